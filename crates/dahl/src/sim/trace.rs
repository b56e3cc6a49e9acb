//! Simulated steps as a trace, like that of a real run.

use super::outcome::Outcome;
use super::scenario::{EngineModel, Job, Scenario};
use super::steps::Steps;
use super::tasks::Tasks;
use crate::plan::PlannedPrograms;
use crate::platform::{Expanded, MemoryId};
use crate::trace::{Event, Header, ProgramHeader, Trace, VERSION};
use crate::units::ProgramId;

impl Steps {
    /// The trace of a simulated run of these steps. A task's time is divided among
    /// its calls as their costs say.
    pub fn trace(
        &self,
        (planned, program): (&PlannedPrograms, ProgramId),
        on: &Expanded<'_>,
        outcome: &Outcome,
        engine_model: &EngineModel,
    ) -> Trace {
        let header = planned.trace_header(&[(program, program)]);
        let work = &header.programs[program.index()].work;
        let mut events = Vec::new();
        for (step, jobs) in self.jobs.iter().enumerate() {
            let spans = || jobs.iter().map(|job| outcome.spans[job.0 as usize]);
            let at = spans().map(|(from, _)| from.0).min().unwrap_or(0);
            events.push(Event::Submit { step: step as u64, program: program.0, at });
            for (t, job) in jobs.iter().enumerate() {
                let (start, end) = outcome.spans[job.0 as usize];
                let costs = &self.costs[t];
                let whole: f64 = costs.iter().map(|cost| cost.nanos).sum();
                let (mut before, mut from) = (0.0, start.0);
                for (&(cell, _), cost) in work[t].calls.iter().zip(costs) {
                    before += cost.nanos;
                    let part = if whole > 0.0 { before / whole } else { 1.0 };
                    let to = start.0 + ((end.0 - start.0) as f64 * part).round() as u64;
                    events.push(Event::Call {
                        step: step as u64,
                        program: program.0,
                        task: t as u32,
                        codelet: header.cells[cell as usize].codelet,
                        worker: outcome.ran[job.0 as usize].unwrap_or(0),
                        from,
                        to,
                    });
                    from = to;
                }
            }
        }
        between(&self.scenario, outcome, engine_model, &mut events);
        events.sort_by_key(Event::start);
        let header = Header {
            engine: "simulated".to_owned(),
            scheduling: outcome.scheduling.to_owned(),
            workers: self.scenario.workers.len(),
            units: units(&self.scenario, on),
            memories: memories(on),
            ..header
        };
        Trace { header, events }
    }
}

impl Tasks {
    /// The trace of a simulated run of these tasks: one step of one program, a
    /// codelet a task.
    pub fn trace(&self, on: &Expanded<'_>, outcome: &Outcome, engine_model: &EngineModel) -> Trace {
        let mut events = vec![Event::Submit { step: 0, program: 0, at: 0 }];
        for (t, (_, job)) in self.names.iter().enumerate() {
            let (from, to) = outcome.spans[job.0 as usize];
            events.push(Event::Call {
                step: 0,
                program: 0,
                task: t as u32,
                codelet: t as u32,
                worker: outcome.ran[job.0 as usize].unwrap_or(0),
                from: from.0,
                to: to.0,
            });
        }
        between(&self.scenario, outcome, engine_model, &mut events);
        events.sort_by_key(Event::start);
        let names: Vec<String> = self.names.iter().map(|(name, _)| name.clone()).collect();
        let tasks = names.clone();
        let program = ProgramHeader { name: "tasks".to_owned(), tasks, ..ProgramHeader::default() };
        let header = Header {
            dahl_trace: VERSION,
            engine: "simulated".to_owned(),
            scheduling: outcome.scheduling.to_owned(),
            workers: self.scenario.workers.len(),
            units: units(&self.scenario, on),
            codelets: names,
            programs: vec![program],
            memories: memories(on),
            ..Header::default()
        };
        Trace { header, events }
    }
}

/// The names of the workers' units.
fn units(scenario: &Scenario, on: &Expanded<'_>) -> Vec<String> {
    scenario.workers.iter().map(|worker| on.name_of(worker.unit)).collect()
}

/// The names of a platform's memories.
fn memories(on: &Expanded<'_>) -> Vec<String> {
    (0..on.memories.len() as u32).map(|id| on.name_of_memory(MemoryId(id))).collect()
}

/// What happened besides jobs: transfers, and the times between a worker's jobs.
fn between(
    scenario: &Scenario,
    outcome: &Outcome,
    engine_model: &EngineModel,
    events: &mut Vec<Event>,
) {
    for (job, (from, to)) in scenario.jobs.iter().zip(&outcome.spans) {
        if let Job::Transfer { from: source, to: target, bytes } = job {
            let (source, target, bytes) = (source.0, target.0, bytes.0);
            events.push(Event::Move { source, target, bytes, from: from.0, to: to.0 });
        }
    }
    let mut spans: Vec<Vec<(u64, u64)>> = vec![Vec::new(); scenario.workers.len()];
    for (worker, (from, to)) in outcome.ran.iter().zip(&outcome.spans) {
        if let Some(worker) = worker {
            spans[*worker as usize].push((from.0, to.0));
        }
    }
    let end = (outcome.makespan.0, outcome.makespan.0);
    for (worker, mut own) in spans.into_iter().enumerate() {
        own.sort_unstable();
        let mut free = 0;
        for (from, to) in own.into_iter().chain([end]) {
            if from > free {
                let parked = from - free > engine_model.spin.0;
                events.push(Event::Wait { worker: worker as u32, from: free, to: from, parked });
            }
            free = free.max(to);
        }
    }
}
