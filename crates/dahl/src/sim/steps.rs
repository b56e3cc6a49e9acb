//! Steps of a plan as a scenario.
//!
//! A plan's tasks become jobs, with the edges that the native engine waits for: data,
//! reuse of bytes, and the step before. Moves of a plan over several spaces become transfers
//! between the memories that their workers compute in, and copies where these are one memory. Of
//! a plan that has one space though its workers compute in several memories, what one wrote and
//! another reads is moved once to each memory that reads it.

use super::scenario::{Job, JobId, Scenario, Worker};
use super::spaces::{check_spaces, memories_of_spaces, needed};
use crate::error::{Error, Result};
use crate::graph::{Graph, Kind};
use crate::perf::Source;
use crate::plan::{CallSpec, Does, Edges, Move, PlannedPrograms, Task, TaskGraph, Use};
use crate::platform::{Expanded, Memory, MemoryId, Unit};
use crate::units::{Bytes, Nanos, PersistentId, ProgramId, TaskId, ValueId, WorkerId};
use dahl_kernels::{Isa, Region};
use std::collections::BTreeMap;

/// What a call is expected to take on a kind of unit, at a speed of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The mean of its time, in nanoseconds.
    pub nanos: f64,
    /// The standard deviation of a call, relative to the mean.
    pub spread: f64,
    /// How far the mean itself may be off, relative to it: the same for all calls
    /// of a step.
    pub doubt: f64,
    /// Bytes that it moves between memory and unit.
    pub traffic: Bytes,
    /// Where this comes from.
    pub source: Source,
}

impl Cost {
    /// What stands where nobody knows, until that is said.
    fn unknown() -> Self {
        Self { nanos: 0.0, spread: 0.0, doubt: 0.0, traffic: Bytes(0), source: Source::Profile }
    }
}

/// Where a call runs.
#[derive(Clone, Copy, Debug)]
pub struct Where<'a> {
    /// The instruction set of the plan's kernels.
    pub isa: Isa,
    /// The type of unit.
    pub unit: &'a Unit,
    /// The memory that it computes in.
    pub memory: &'a Memory,
}

/// Says what calls take.
pub trait Costs {
    /// What a call of a program takes, with its kernels of an instruction set, on a unit
    /// at a speed of 1; `None` where nobody knows.
    fn call(&mut self, graph: &Graph, call: &CallSpec, on: &Where<'_>) -> Option<Cost>;

    /// What a copy between two memories of a machine takes alone; `None` where nobody knows: then
    /// it takes what memory needs to read and write it.
    fn copy(&mut self, _bytes: Bytes) -> Option<Nanos> {
        None
    }
}

/// Steps of one program, one after the other.
#[derive(Clone, Debug)]
pub struct Steps {
    /// The jobs.
    pub scenario: Scenario,
    /// The job of each task, step by step.
    pub jobs: Vec<Vec<JobId>>,
    /// The tasks of a step, with the costs of their calls.
    pub costs: Vec<Vec<Cost>>,
}

impl Steps {
    /// `count` steps of a program on workers, as the plan has them.
    ///
    /// # Errors
    /// Where there are not as many workers, the plan needs more memory than there is,
    /// or nobody knows what a call takes.
    pub fn new(
        (planned, program): (&PlannedPrograms, ProgramId),
        (on, workers): (&Expanded<'_>, Vec<Worker>),
        count: usize,
        costs: &mut dyn Costs,
    ) -> Result<Self> {
        if workers.len() != planned.placement.workers {
            let expected = format!("{} workers, as the plan has", planned.placement.workers);
            return Err(Error::platform("units", expected, workers.len()));
        }
        check_spaces(planned, on, &workers)?;
        let (graph, tasks) = planned.program(program);
        let task_costs = task_costs((planned, program), (on, &workers), costs)?;
        let memories: Vec<MemoryId> =
            workers.iter().map(|w| on.units[w.unit.0 as usize].memory).collect();
        let one_space = planned.placement.spaces.len() == 1;
        let mut build = Build {
            graph,
            tasks,
            across: planned.across(program, program),
            apart: one_space && memories.iter().any(|m| *m != memories[0]),
            of_space: memories_of_spaces(planned, on, &workers),
            ranks: planned.placement.spaces.iter().map(|space| space.rank).collect(),
            first_lanes: first_lanes(planned),
            lanes: BTreeMap::new(),
            copies: tasks.tasks.iter().map(|task| copied(graph, task, costs)).collect(),
            copied: on.capacities[..on.memories.len()].to_vec(),
            memories,
            scenario: Scenario::new(workers),
            written: BTreeMap::new(),
        };
        build.scenario.needed = needed(planned, on, &build.scenario.workers);
        let mut jobs: Vec<Vec<JobId>> = Vec::with_capacity(count);
        for step in 0..count {
            let before = jobs.last().map_or(&[][..], Vec::as_slice);
            let new = build.step(step, before, &task_costs);
            jobs.push(new);
        }
        Ok(Self { scenario: build.scenario, jobs, costs: task_costs })
    }

    /// Has each worker take its jobs at a speed of its own, beside that of its unit;
    /// those that are not said at 1.
    pub fn at_speeds(&mut self, speeds: &[f64]) {
        for job in &mut self.scenario.jobs {
            if let Job::Compute { worker, work, .. } = job
                && let Some(speed) = speeds.get(*worker as usize)
            {
                work.0 = (work.0 as f64 / speed.max(1e-6)).round() as u64;
            }
        }
    }

    /// How much of a step's time comes from where, as parts of 1.
    pub fn sources(&self) -> Vec<(Source, f64)> {
        let calls = || self.costs.iter().flatten();
        let whole: f64 = calls().map(|cost| cost.nanos).sum();
        let part = |source: Source| {
            let own: f64 = calls().filter(|c| c.source == source).map(|c| c.nanos).sum();
            (source, if whole > 0.0 { own / whole } else { 0.0 })
        };
        Source::ALL.into_iter().map(part).filter(|(_, part)| *part > 0.0).collect()
    }
}

/// The lane to the first space of each rank: all messages from one rank to another share one.
fn first_lanes(planned: &PlannedPrograms) -> Vec<WorkerId> {
    let placement = &planned.placement;
    let first = |rank: u32| placement.spaces.iter().position(|space| space.rank == rank);
    let lane = |rank| WorkerId::new(placement.workers + first(rank).unwrap_or(0));
    (0..placement.ranks()).map(lane).collect()
}

/// What the copy of a move takes alone.
fn copied(graph: &Graph, task: &Task, costs: &mut dyn Costs) -> Option<Nanos> {
    match &task.does {
        Does::Move(of) => costs.copy(of.bytes(graph)),
        _ => None,
    }
}

/// The costs of the calls of a program's tasks, on the workers that the plan names.
///
/// # Errors
/// Where nobody knows what a call takes.
pub(super) fn task_costs(
    (planned, program): (&PlannedPrograms, ProgramId),
    (on, workers): (&Expanded<'_>, &[Worker]),
    costs: &mut dyn Costs,
) -> Result<Vec<Vec<Cost>>> {
    let ((graph, tasks), isa) = (planned.program(program), planned.numerics.isa);
    let mut unknown = Vec::new();
    let mut all = Vec::with_capacity(tasks.tasks.len());
    for task in &tasks.tasks {
        let Some(worker) = workers.get(task.worker.index()) else {
            all.push(Vec::new());
            continue;
        };
        let of = on.units[worker.unit.0 as usize];
        let node = &on.platform.nodes[of.kind];
        let unit = &node.units[of.unit];
        let place = Where { isa, unit, memory: &node.memories[unit.memory] };
        let kind = &unit.kind;
        let cost = |call: &CallSpec| {
            costs.call(graph, call, &place).unwrap_or_else(|| {
                let node = graph.node(call.node);
                unknown.push(format!("{} {:?} on {kind}", node.op.name(), node.path));
                Cost::unknown()
            })
        };
        all.push(task.calls().iter().map(cost).collect::<Vec<Cost>>());
    }
    let Some(first) = unknown.first() else { return Ok(all) };
    let found =
        format!("none for {first} and {} others; dahl calibrate measures them", unknown.len() - 1);
    Err(Error::config("calibration", "the time of every call", found))
}

/// A value of a step, or one that outlives steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Step(usize, ValueId),
    Persistent(PersistentId),
}

/// A box of a value, as it was last written.
struct Written {
    region: Region,
    /// By whom; an input that nobody has read yet is where the first worker computes.
    by: Option<(JobId, WorkerId)>,
    /// The memories that parts of it were moved to since, by which job.
    moved: Vec<(MemoryId, Region, JobId)>,
}

struct Build<'a> {
    graph: &'a Graph,
    tasks: &'a TaskGraph,
    across: &'a Edges,
    /// The memory of each worker.
    memories: Vec<MemoryId>,
    /// Whether there are several, and the plan does not say what is moved.
    apart: bool,
    /// The memory of each space.
    of_space: Vec<MemoryId>,
    /// The rank of each space, and the first lane to a space of each rank.
    ranks: Vec<u32>,
    first_lanes: Vec<WorkerId>,
    /// The last move of each lane, which does one after the other: to each space, and between
    /// ranks from each rank.
    lanes: BTreeMap<(WorkerId, u32), JobId>,
    /// What the copy of each move takes, where it is one and that is known.
    copies: Vec<Option<Nanos>>,
    /// Bytes per second that are read or written in each memory.
    copied: Vec<f64>,
    scenario: Scenario,
    written: BTreeMap<Whose, Vec<Written>>,
}

impl Build<'_> {
    fn step(&mut self, step: usize, before: &[JobId], costs: &[Vec<Cost>]) -> Vec<JobId> {
        let mut jobs: Vec<JobId> = Vec::with_capacity(self.tasks.tasks.len());
        for (t, task) in self.tasks.tasks.iter().enumerate() {
            let id = TaskId::new(t);
            let within = self.tasks.edges.preds[id.index()].iter().map(|p| jobs[p.index()]);
            let mut after: Vec<JobId> = within.collect();
            if !before.is_empty() {
                after.extend(self.across.preds[id.index()].iter().map(|p| before[p.index()]));
            }
            if let Does::Move(of) = &task.does {
                let [from, to] = [of.from, of.to].map(|space| self.ranks[space.index()]);
                let lane = match from == to {
                    true => (task.worker, to),
                    false => (self.first_lanes[to as usize], from),
                };
                after.extend(self.lanes.get(&lane));
                let job = self.moved(of, self.copies[t], &after);
                self.lanes.insert(lane, job);
                jobs.push(job);
                continue;
            }
            self.fetch(step, task, &mut after);
            let work: f64 = costs[t].iter().map(|cost| cost.nanos).sum();
            // Calls vary one by one.
            let variance: f64 = costs[t].iter().map(|c| (c.nanos * c.spread).powi(2)).sum();
            let traffic: u64 = costs[t].iter().map(|cost| cost.traffic.0).sum();
            let job = self.scenario.add(
                Job::Compute {
                    worker: task.worker.0,
                    work: Nanos(work.round() as u64),
                    spread: if work > 0.0 { variance.sqrt() / work } else { 0.0 },
                    traffic: Bytes(traffic),
                },
                &after,
            );
            self.store(step, task, job);
            jobs.push(job);
        }
        jobs
    }

    /// A transfer between memories, or a copy within one, which reads and writes it.
    fn moved(&mut self, of: &Move, known: Option<Nanos>, after: &[JobId]) -> JobId {
        let [from, to] = [of.from, of.to].map(|space| self.of_space[space.index()]);
        let bytes = of.bytes(self.graph);
        if from != to {
            return self.scenario.add(Job::Transfer { from, to, bytes }, after);
        }
        let work = known.unwrap_or_else(|| {
            let seconds = 2.0 * bytes.0 as f64 / self.copied[from.0 as usize].max(1.0);
            Nanos((seconds * 1e9).round() as u64)
        });
        let lane = of.to.0;
        self.scenario.add(Job::Copy { lane, memory: to, work, bytes }, after)
    }

    fn whose(&self, step: usize, root: ValueId) -> Whose {
        match self.graph.value(root).kind {
            Kind::Persistent(id) => Whose::Persistent(id),
            _ => Whose::Step(step, root),
        }
    }

    /// Moves what a task reads and others wrote in other memories.
    fn fetch(&mut self, step: usize, task: &Task, after: &mut Vec<JobId>) {
        if !self.apart {
            return;
        }
        let to = self.memories[task.worker.index()];
        for operand in task.calls().iter().flat_map(|call| &call.operands) {
            if operand.usage == Use::Write {
                continue;
            }
            let whose = self.whose(step, operand.root);
            let value = self.graph.value(operand.root);
            let size = value.meta.dtype.size();
            let boxes = self.written.entry(whose).or_default();
            if value.kind == Kind::Input && boxes.is_empty() {
                let region = Region::full(&value.meta.shape);
                boxes.push(Written { region, by: None, moved: Vec::new() });
            }
            for written in boxes {
                let Some(part) = shared(&written.region, &operand.root_region) else { continue };
                let from = self.memories[written.by.map_or(0, |(_, worker)| worker.index())];
                if from == to {
                    continue;
                }
                let is_there = |m: &&(MemoryId, Region, JobId)| m.0 == to && m.1.contains(&part);
                let found = written.moved.iter().find(is_there);
                let job = found.map(|(.., job)| *job).unwrap_or_else(|| {
                    let behind: Vec<JobId> = written.by.iter().map(|(job, _)| *job).collect();
                    let bytes = Bytes((part.elements() * size) as u64);
                    let job = self.scenario.add(Job::Transfer { from, to, bytes }, &behind);
                    written.moved.push((to, part, job));
                    job
                });
                after.push(job);
            }
        }
    }

    fn store(&mut self, step: usize, task: &Task, job: JobId) {
        if !self.apart {
            return;
        }
        for operand in task.calls().iter().flat_map(|call| &call.operands) {
            if operand.usage == Use::Read {
                continue;
            }
            let boxes = self.written.entry(self.whose(step, operand.root)).or_default();
            let (region, by) = (operand.root_region, Some((job, task.worker)));
            let new = Written { region, by, moved: Vec::new() };
            // What was written here before is no longer what readers want.
            boxes.retain(|written| !region.contains(&written.region));
            boxes.push(new);
        }
    }
}

/// The box that two boxes share.
fn shared(a: &Region, b: &Region) -> Option<Region> {
    let ranges = (0..a.rank()).map(|axis| {
        let (a, b) = (a.range(axis), b.range(axis));
        a.start.max(b.start)..a.end.min(b.end).max(a.start.max(b.start))
    });
    let region = Region::new(&ranges.collect::<Vec<_>>());
    (!region.is_empty()).then_some(region)
}
