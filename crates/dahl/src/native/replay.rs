//! Static replay: lists of tasks a worker, and positions to wait for.

use super::gate::{Gate, Stopped, Waited};
use super::runner::{Runner, StepRecord, WorkerState};
use crate::plan::{Edges, TaskGraph};
use crate::units::TaskId;

/// Wait until `worker` has ended its task at `position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitFor {
    pub(crate) worker: usize,
    pub(crate) position: u64,
}

/// One task of a worker's list.
#[derive(Debug)]
pub(crate) struct Entry {
    task: TaskId,
    /// What it needs of this step.
    waits: Box<[WaitFor]>,
    /// What it needs of the step before, by that step's program.
    waits_before: Box<[Box<[WaitFor]>]>,
    /// Whether somebody waits for it.
    publish: bool,
}

/// The lists of one program, by worker.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(crate) by_worker: Vec<Vec<Entry>>,
}

impl Lists {
    /// The lists of all programs; `across[a][b]` are the edges from program a
    /// to program b when b runs next.
    pub(crate) fn new(graphs: &[TaskGraph], across: &[Vec<Edges>], workers: usize) -> Vec<Self> {
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
                for (t, task) in graph.tasks.iter().enumerate() {
                    let w = task.worker.index();
                    let mut waits = |which: usize, preds: &[TaskId], at: &[(usize, u64)]| {
                        needed(preds, at, w, &mut known[which][w])
                    };
                    let own = waits(0, &graph.edges.preds[t], &positions[b]);
                    let before = (0..graphs.len())
                        .map(|a| waits(1 + a, &across[a][b].preds[t], &positions[a]));
                    let waits_before = before.collect();
                    let task = TaskId::new(t);
                    by_worker[w].push(Entry { task, waits: own, waits_before, publish: false });
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
        ended[w] += 1;
        (w, ended[w])
    };
    graph.tasks.iter().map(place).collect()
}

/// The positions to wait for: the last of each other worker, unless an earlier
/// task of the list has waited for it already.
fn needed(preds: &[TaskId], at: &[(usize, u64)], own: usize, known: &mut [u64]) -> Box<[WaitFor]> {
    let mut last = vec![0u64; known.len()];
    for pred in preds {
        let (worker, position) = at[pred.index()];
        last[worker] = last[worker].max(position);
    }
    let mut waits = Vec::new();
    for (worker, &position) in last.iter().enumerate() {
        if worker != own && position > known[worker] {
            known[worker] = position;
            waits.push(WaitFor { worker, position });
        }
    }
    waits.into()
}

fn mark_published(lists: &mut [Lists]) {
    let mut awaited: Vec<(usize, WaitFor)> = Vec::new();
    for (p, list) in lists.iter().enumerate() {
        for entry in list.by_worker.iter().flatten() {
            awaited.extend(entry.waits.iter().map(|w| (p, *w)));
            for (a, waits) in entry.waits_before.iter().enumerate() {
                awaited.extend(waits.iter().map(|w| (a, *w)));
            }
        }
    }
    for (p, wait) in awaited {
        lists[p].by_worker[wait.worker][wait.position as usize - 1].publish = true;
    }
}

/// Runs a worker's list of one step.
pub(crate) fn replay(
    lists: &[Lists],
    gate: &Gate,
    runner: &Runner,
    worker: &mut WorkerState,
    step: &StepRecord,
) -> Result<(), Stopped> {
    let own = worker.index;
    let list = &lists[step.program].by_worker[own];
    worker.clock = runner.ticks.now();
    for (i, entry) in list.iter().enumerate() {
        if let Some(before) = step.before {
            for wait in &entry.waits_before[before] {
                await_counter(
                    gate,
                    runner,
                    worker,
                    wait.worker,
                    step.base_before[wait.worker] + wait.position,
                )?;
            }
        }
        for wait in &entry.waits {
            await_counter(
                gate,
                runner,
                worker,
                wait.worker,
                step.base[wait.worker] + wait.position,
            )?;
        }
        runner.run(worker, step, entry.task);
        if entry.publish {
            gate.publish(own, step.base[own] + i as u64 + 1);
        }
    }
    // The end of the step, also where there was nothing to do: whoever submits
    // steps must not get ahead of a worker that has not looked at them yet.
    gate.publish(own, step.base[own] + list.len() as u64 + 1);
    Ok(())
}

#[inline]
fn await_counter(
    gate: &Gate,
    runner: &Runner,
    worker: &mut WorkerState,
    counter: usize,
    value: u64,
) -> Result<(), Stopped> {
    match gate.wait(counter, value)? {
        Waited::Not => {}
        waited => worker.waited(&runner.ticks, waited == Waited::Parked),
    }
    Ok(())
}
