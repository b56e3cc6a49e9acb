//! Static replay: lists of tasks per worker, and positions to wait for.

use super::gate::{Gate, Stopped, Waited};
use super::runner::{Runner, StepRecord, WorkerState};
use crate::plan::{Does, PlannedPrograms, TaskGraph};
use crate::units::{ProgramId, TaskId};

/// Wait until `worker` has ended its task at `position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WaitFor {
    worker: usize,
    position: u64,
    of: Of,
}

/// Which step's task is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// One of the same step.
    This,
    /// One of the step before, if that is a step of this program.
    Before(usize),
}

/// One task of a worker's list.
#[derive(Debug)]
pub(crate) struct Entry {
    task: TaskId,
    /// What it needs of the step before, whatever its program, then of this
    /// one. One list, since most tasks need nothing and have to show it at once.
    waits: Box<[WaitFor]>,
    /// Whether somebody waits for it.
    publish: bool,
}

/// The lists of one program, by worker.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(crate) by_worker: Vec<Vec<Entry>>,
}

impl Lists {
    /// The lists of all programs.
    pub(crate) fn new(planned: &PlannedPrograms) -> Vec<Self> {
        let (graphs, workers) = (planned.graphs(), planned.lanes());
        let positions: Vec<Vec<(usize, u64)>> =
            graphs.iter().map(|g| positions(g, workers)).collect();
        let mut lists: Vec<Self> = graphs
            .iter()
            .enumerate()
            .map(|(b, graph)| {
                let mut by_worker: Vec<Vec<Entry>> = (0..workers).map(|_| Vec::new()).collect();
                // What each worker already knows of the others, by the program
                // whose tasks they are: this one's, then each one before.
                let mut known = vec![vec![vec![0u64; workers]; workers]; 1 + graphs.len()];
                let own = graph.tasks.iter().enumerate();
                for (t, task) in own.filter(|(_, task)| !matches!(task.does, Does::Elsewhere)) {
                    let w = task.worker.index();
                    let mut waits = Vec::new();
                    for (a, positions) in positions.iter().enumerate() {
                        let across = planned.across(ProgramId::new(a), ProgramId::new(b));
                        let preds = &across.preds[t];
                        let known = &mut known[1 + a][w];
                        needed(Of::Before(a), preds, positions, w, known, &mut waits);
                    }
                    let preds = &graph.edges.preds[t];
                    needed(Of::This, preds, &positions[b], w, &mut known[0][w], &mut waits);
                    let (task, waits) = (TaskId::new(t), waits.into());
                    by_worker[w].push(Entry { task, waits, publish: false });
                }
                Self { by_worker }
            })
            .collect();
        mark_published(&mut lists);
        lists
    }

    /// How many tasks each worker has.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = u64> + '_ {
        self.by_worker.iter().map(|list| list.len() as u64)
    }
}

/// The worker of each task and how many tasks that worker has ended with it.
fn positions(graph: &TaskGraph, workers: usize) -> Vec<(usize, u64)> {
    let mut ended = vec![0; workers];
    let place = |task: &crate::plan::Task| {
        let w = task.worker.index();
        ended[w] += u64::from(!matches!(task.does, Does::Elsewhere));
        (w, ended[w])
    };
    graph.tasks.iter().map(place).collect()
}

/// Adds the positions to wait for: the last of each other worker, unless an
/// earlier task of the list has waited for it already.
fn needed(
    of: Of,
    preds: &[TaskId],
    at: &[(usize, u64)],
    own: usize,
    known: &mut [u64],
    waits: &mut Vec<WaitFor>,
) {
    let mut last = vec![0u64; known.len()];
    for pred in preds {
        let (worker, position) = at[pred.index()];
        last[worker] = last[worker].max(position);
    }
    for (worker, &position) in last.iter().enumerate() {
        if worker != own && position > known[worker] {
            known[worker] = position;
            waits.push(WaitFor { worker, position, of });
        }
    }
}

fn mark_published(lists: &mut [Lists]) {
    let mut awaited: Vec<(usize, WaitFor)> = Vec::new();
    for (p, list) in lists.iter().enumerate() {
        for entry in list.by_worker.iter().flatten() {
            awaited.extend(entry.waits.iter().map(|wait| match wait.of {
                Of::This => (p, *wait),
                Of::Before(a) => (a, *wait),
            }));
        }
    }
    for (p, wait) in awaited {
        lists[p].by_worker[wait.worker][wait.position as usize - 1].publish = true;
    }
}

/// Runs a worker's list of one step. `last` is done before the end of the step
/// is known to anyone.
pub(crate) fn replay(
    lists: &[Lists],
    gate: &Gate,
    runner: &Runner,
    worker: &mut WorkerState,
    step: &StepRecord,
    last: impl FnOnce(&mut WorkerState),
) -> Result<(), Stopped> {
    let own = worker.index;
    let list = &lists[step.program].by_worker[own];
    worker.begin(&runner.counters, step);
    for (i, entry) in list.iter().enumerate() {
        for wait in &entry.waits {
            let base = match wait.of {
                Of::This => &step.base,
                Of::Before(program) if step.before == Some(program) => &step.base_before,
                Of::Before(_) => continue,
            };
            match gate.wait(wait.worker, base[wait.worker] + wait.position)? {
                Waited::Not => {}
                waited => worker.waited(&runner.counters, waited == Waited::Parked),
            }
        }
        runner.run(worker, step, entry.task).map_err(|error| worker.lost(error))?;
        if entry.publish {
            gate.publish(own, step.base[own] + i as u64 + 1);
        }
    }
    last(worker);
    // The end of the step, also where there was nothing to do: whoever submits
    // steps must not get ahead of a worker that has not looked at them yet.
    gate.publish(own, step.base[own] + list.len() as u64 + 1);
    Ok(())
}
