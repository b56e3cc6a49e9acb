//! A training step of a pipeline, each stage of which has replicas.
//!
//! Micro-batch m runs on replica m mod r of each stage. Weights change once, at the
//! end of the step, when the gradients of a stage's replicas are summed: the result
//! is that of the whole batch, and the bubble is part of the time.

use super::collective::all_reduce;
use super::scenario::{Job, JobId, Scenario, Worker};
use crate::error::{Error, Result};
use crate::platform::{Expanded, MemoryId, UnitId};
use crate::units::{Bytes, Nanos};

/// Layers that run on the same units.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// One for each replica.
    pub units: Vec<UnitId>,
    /// Forwards and backwards, a micro-batch, at a speed of 1.
    pub times: [Nanos; 2],
    /// Bytes that come in with a micro-batch, and go back as their gradient.
    pub input: Bytes,
    /// Bytes of parameters.
    pub parameters: Bytes,
    /// The update of the parameters, at a speed of 1.
    pub update: Nanos,
}

/// In which order a unit takes its micro-batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// All forwards, then all backwards (Huang et al. 2019).
    #[default]
    GPipe,
    /// As few forwards as fill the pipeline, then by turns (Narayanan et al. 2019).
    OneForwardOneBackward,
}

/// The jobs of a step.
pub fn step(
    on: &Expanded<'_>,
    stages: &[Stage],
    micro_batches: usize,
    schedule: Schedule,
) -> Result<Scenario> {
    if stages.is_empty() || stages.iter().any(|stage| stage.units.is_empty()) {
        return Err(Error::platform("pipeline", "stages with units", stages.len()));
    }
    let units = stages.iter().flat_map(|stage| &stage.units);
    let mut step = Step {
        on,
        stages,
        scenario: Scenario::new(units.map(|&unit| Worker { unit, state: None }).collect()),
        first: stages
            .iter()
            .scan(0, |first, stage| {
                *first += stage.units.len();
                Some(*first - stage.units.len())
            })
            .collect(),
        forwards: vec![vec![None; micro_batches]; stages.len()],
        backwards: vec![vec![None; micro_batches]; stages.len()],
    };
    step.compute(schedule)?;
    step.update()?;
    Ok(step.scenario)
}

struct Step<'a> {
    on: &'a Expanded<'a>,
    stages: &'a [Stage],
    scenario: Scenario,
    /// The first worker of each stage.
    first: Vec<usize>,
    /// The jobs of each stage and micro-batch that were added.
    forwards: Vec<Vec<Option<JobId>>>,
    backwards: Vec<Vec<Option<JobId>>>,
}

/// A micro-batch on a stage.
#[derive(Clone, Copy)]
enum Turn {
    Forward(usize),
    Backward(usize),
}

impl Step<'_> {
    fn memory(&self, stage: usize, micro_batch: usize) -> MemoryId {
        let units = &self.stages[stage].units;
        self.on.units[units[micro_batch % units.len()].0 as usize].memory
    }

    /// What a worker does, in its order.
    fn turns(&self, stage: usize, replica: usize, schedule: Schedule) -> Vec<Turn> {
        let replicas = self.stages[stage].units.len();
        let mine: Vec<usize> = (replica..self.forwards[stage].len()).step_by(replicas).collect();
        let ahead = match schedule {
            Schedule::GPipe => mine.len(),
            Schedule::OneForwardOneBackward => {
                let behind = self.stages[stage..].iter().map(|s| s.units.len()).sum::<usize>();
                behind.div_ceil(replicas).min(mine.len())
            }
        };
        let mut turns: Vec<Turn> = mine[..ahead].iter().map(|&m| Turn::Forward(m)).collect();
        for (i, &m) in mine.iter().enumerate() {
            turns.push(Turn::Backward(m));
            turns.extend(mine.get(ahead + i).map(|&next| Turn::Forward(next)));
        }
        turns
    }

    /// Adds forwards and backwards, each behind what it waits for.
    fn compute(&mut self, schedule: Schedule) -> Result<()> {
        let mut left: Vec<(usize, u32, std::vec::IntoIter<Turn>, Option<Turn>)> = Vec::new();
        for stage in 0..self.stages.len() {
            for replica in 0..self.stages[stage].units.len() {
                let mut turns = self.turns(stage, replica, schedule).into_iter();
                let next = turns.next();
                left.push((stage, (self.first[stage] + replica) as u32, turns, next));
            }
        }
        // Rounds over all workers; each adds what can follow.
        loop {
            let before = self.scenario.jobs.len();
            for (stage, worker, turns, next) in &mut left {
                while let Some(turn) = *next
                    && self.add(*stage, *worker, turn)
                {
                    *next = turns.next();
                }
            }
            if self.scenario.jobs.len() == before {
                break;
            }
        }
        match left.iter().filter(|(.., next)| next.is_some()).count() {
            0 => Ok(()),
            stuck => Err(Error::platform("pipeline", "turns that can follow each other", stuck)),
        }
    }

    /// Adds a turn, if what it waits for is there.
    fn add(&mut self, stage: usize, worker: u32, turn: Turn) -> bool {
        let times = self.stages[stage].times;
        let compute = |work| Job::Compute { worker, work, spread: 0.0, traffic: Bytes(0) };
        match turn {
            Turn::Forward(m) => {
                let mut after = Vec::new();
                if stage > 0 {
                    let Some(before) = self.forwards[stage - 1][m] else { return false };
                    let bytes = self.stages[stage].input;
                    after.push(self.moved([stage - 1, stage], m, bytes, before));
                }
                self.forwards[stage][m] = Some(self.scenario.add(compute(times[0]), &after));
            }
            Turn::Backward(m) => {
                let Some(forward) = self.forwards[stage][m] else { return false };
                let mut after = vec![forward];
                if stage + 1 < self.stages.len() {
                    let Some(before) = self.backwards[stage + 1][m] else { return false };
                    let bytes = self.stages[stage + 1].input;
                    after.push(self.moved([stage + 1, stage], m, bytes, before));
                }
                self.backwards[stage][m] = Some(self.scenario.add(compute(times[1]), &after));
            }
        }
        true
    }

    /// The job after which bytes of a micro-batch are on another stage.
    fn moved(&mut self, [from, to]: [usize; 2], m: usize, bytes: Bytes, after: JobId) -> JobId {
        let [from, to] = [from, to].map(|stage| self.memory(stage, m));
        if from == to {
            return after;
        }
        self.scenario.add(Job::Transfer { from, to, bytes }, &[after])
    }

    /// Sums gradients over replicas, and updates.
    fn update(&mut self) -> Result<()> {
        for (s, stage) in self.stages.iter().enumerate() {
            let done: Vec<JobId> = self.backwards[s].iter().copied().flatten().collect();
            let memories = (0..stage.units.len()).map(|r| self.memory(s, r));
            let mut memories: Vec<MemoryId> = memories.collect();
            memories.sort_unstable();
            memories.dedup();
            let sum = self.scenario.add(all_reduce(self.on, &memories, stage.parameters)?, &done);
            for replica in 0..stage.units.len() {
                let worker = (self.first[s] + replica) as u32;
                let work = stage.update;
                let update = Job::Compute { worker, work, spread: 0.0, traffic: Bytes(0) };
                self.scenario.add(update, &[sum]);
            }
        }
        Ok(())
    }
}
