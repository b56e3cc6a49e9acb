//! What is simulated: jobs on the units of a platform.

use crate::error::{Error, Result};
use crate::platform::{Expanded, MemoryId, NodeId, UnitId};
use crate::units::{Bytes, Joules, Nanos};
use std::collections::BTreeMap;

/// A job of a scenario, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u32);

/// Something that takes time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Job {
    /// A worker computes.
    Compute {
        /// Who, unless a policy decides.
        worker: u32,
        /// How long it takes at a speed of 1, with the memory to itself.
        work: Nanos,
        /// How much that varies: the standard deviation over the mean.
        spread: f64,
        /// Bytes that are moved between memory and unit meanwhile.
        traffic: Bytes,
    },
    /// Bytes are moved from a memory to another.
    Transfer {
        /// Where they are.
        from: MemoryId,
        /// Where they are needed.
        to: MemoryId,
        /// How many.
        bytes: Bytes,
    },
    /// A lane copies bytes within a machine, on one of its processors.
    Copy {
        /// Who: one lane makes one copy at a time, as its predecessors say.
        lane: u32,
        /// Where they are read and written.
        memory: MemoryId,
        /// How long it takes alone.
        work: Nanos,
        /// How many.
        bytes: Bytes,
    },
    /// Several memories exchange bytes, in a time that is known beforehand.
    Collective {
        /// How long it takes.
        time: Nanos,
        /// What it costs.
        joules: Joules,
        /// Bytes that it moves in all.
        bytes: Bytes,
    },
}

/// Who computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The unit that it runs on; a unit has one worker.
    pub unit: UnitId,
    /// The power state of the unit, by index; none is its full speed.
    pub state: Option<usize>,
}

/// How an engine behaves between jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineModel {
    /// What a worker needs before each job.
    pub overhead: Nanos,
    /// Until a worker knows that another has ended a job.
    pub hop: Nanos,
    /// The same where there are lanes, which leave fewer processors than threads: who waits sleeps.
    pub lane_hop: Nanos,
    /// How long a worker looks for work before it sleeps.
    pub spin: Nanos,
    /// How much durations vary.
    pub noise: Noise,
    /// What the noise is made from.
    pub seed: u64,
    /// Whether nodes have to be woken.
    pub start: Start,
}

impl Default for EngineModel {
    fn default() -> Self {
        Self {
            overhead: Nanos(0),
            hop: Nanos(0),
            lane_hop: Nanos(0),
            spin: Nanos(0),
            noise: Noise::Off,
            seed: 0,
            start: Start::Awake,
        }
    }
}

/// How much durations vary around their means: their logarithms are normal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Noise {
    /// Not at all.
    #[default]
    Off,
    /// All by as much: the standard deviation over the mean.
    All(f64),
    /// Each as it did when it was measured.
    Own,
}

/// What nodes do before the first job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// They are on.
    #[default]
    Awake,
    /// They sleep, where they can, and are woken at the beginning.
    Asleep,
}

/// Jobs, and what has to come before what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// Who computes.
    pub workers: Vec<Worker>,
    /// The jobs. A worker without a policy takes its own in this order.
    pub jobs: Vec<Job>,
    /// Where the predecessors of each job begin in `preds`; one more than jobs.
    starts: Vec<u32>,
    preds: Vec<JobId>,
    /// Bytes that each memory has to hold.
    pub needed: BTreeMap<MemoryId, Bytes>,
}

impl Scenario {
    /// A scenario without jobs.
    pub fn new(workers: Vec<Worker>) -> Self {
        Self { workers, starts: vec![0], ..Self::default() }
    }

    /// Adds a job behind others.
    pub fn add(&mut self, job: Job, after: &[JobId]) -> JobId {
        let id = JobId(self.jobs.len() as u32);
        self.jobs.push(job);
        self.preds.extend_from_slice(after);
        self.starts.push(self.preds.len() as u32);
        id
    }

    /// What a job waits for.
    pub fn preds(&self, job: JobId) -> &[JobId] {
        let [from, to] = [0, 1].map(|i| self.starts[job.0 as usize + i] as usize);
        &self.preds[from..to]
    }

    /// The nodes that have a worker.
    pub fn nodes(&self, on: &Expanded<'_>) -> Vec<NodeId> {
        let nodes = self.workers.iter().map(|w| on.units[w.unit.0 as usize].node);
        let mut nodes: Vec<NodeId> = nodes.collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Refuses units that differ in kind or memory: what a job takes on another unit, and
    /// what has to be moved there, only its own worker's costs say.
    pub(super) fn check_alike(&self, on: &Expanded<'_>) -> Result<()> {
        let of = |worker: &Worker| {
            (&*on.unit(worker.unit).kind, on.units[worker.unit.0 as usize].memory)
        };
        let first = self.workers.first().map(of);
        match self.workers.iter().map(of).find(|other| Some(*other) != first) {
            None => Ok(()),
            Some((kind, _)) => {
                let expected = "units of one kind in one memory, where a policy decides";
                let found = format!("{kind} beside {}", first.map_or("none", |(kind, _)| kind));
                Err(Error::platform("units", expected, found))
            }
        }
    }

    /// Refuses what the platform does not have.
    pub(super) fn check(&self, on: &Expanded<'_>) -> Result<()> {
        let mut taken = vec![false; on.units.len()];
        for (w, worker) in self.workers.iter().enumerate() {
            let place = || format!("worker {w}");
            let Some(unit) = on.units.get(worker.unit.0 as usize) else {
                let expected = format!("one of {} units", on.units.len());
                return Err(Error::platform(place(), expected, worker.unit.0));
            };
            if std::mem::replace(&mut taken[worker.unit.0 as usize], true) {
                return Err(Error::platform(
                    place(),
                    "a unit that no other worker has",
                    worker.unit.0,
                ));
            }
            let states = on.platform.nodes[unit.kind].units[unit.unit].states.len();
            if worker.state.is_some_and(|state| state >= states) {
                let expected = format!("one of {states} power states");
                return Err(Error::platform(place(), expected, format!("{:?}", worker.state)));
            }
        }
        for (&memory, &needed) in &self.needed {
            let of = on.memories[memory.0 as usize];
            let node = &on.platform.nodes[of.kind];
            let limit = Bytes(node.memories[of.memory].bytes);
            if needed.0 > limit.0 {
                let name = format!("{} of {}", node.memories[of.memory].name, node.name);
                return Err(Error::Memory {
                    space: Some(name.clone()),
                    needed,
                    limit: limit.into(),
                    least: None,
                    largest: vec![(name, needed)],
                });
            }
        }
        for (i, job) in self.jobs.iter().enumerate() {
            let id = JobId(i as u32);
            if let Some(pred) = self.preds(id).iter().find(|p| p.0 >= id.0) {
                let found = format!("{i} waits for {}", pred.0);
                return Err(Error::platform("jobs", "jobs that wait for earlier ones", found));
            }
            if let Job::Compute { worker, .. } = job
                && *worker as usize >= self.workers.len()
            {
                let expected = format!("one of {} workers", self.workers.len());
                return Err(Error::platform(format!("job {i}"), expected, worker));
            }
        }
        Ok(())
    }
}
