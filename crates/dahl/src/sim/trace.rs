//! Simulated steps as a trace, like that of a real run.

use super::outcome::Outcome;
use super::scenario::{Habits, Job};
use super::steps::Steps;
use crate::error::Result;
use crate::graph::Programs;
use crate::plan::{Plan, trace_header};
use crate::platform::Expanded;
use crate::trace::{Event, Header, Trace};
use crate::units::ProgramId;

impl Steps {
    /// The trace of a simulated run of these steps. A task's time is parted among
    /// its calls as their costs say.
    pub fn trace(
        &self,
        (programs, plan, program): (&Programs, &Plan, ProgramId),
        on: &Expanded<'_>,
        outcome: &Outcome,
        habits: &Habits,
    ) -> Result<Trace> {
        let (expanded, graphs) = plan.task_graphs(programs)?;
        let header = trace_header(&expanded, &graphs);
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
        for (job, (from, to)) in self.scenario.jobs.iter().zip(&outcome.spans) {
            if let Job::Transfer { from: source, to: target, bytes } = job {
                let (source, target, bytes) = (source.0, target.0, bytes.0);
                events.push(Event::Move { source, target, bytes, from: from.0, to: to.0 });
            }
        }
        self.waits(outcome, habits, &mut events);
        events.sort_by_key(Event::start);
        let memories = on.memories.iter().map(|of| {
            let node = &on.platform.nodes[of.kind];
            format!("{}[{}]/{}", node.name, of.node.0, node.memories[of.memory].name)
        });
        let header = Header {
            engine: "simulated".to_owned(),
            scheduling: "static".to_owned(),
            workers: self.scenario.workers.len(),
            memories: memories.collect(),
            ..header
        };
        Ok(Trace { header, events })
    }

    /// The times between a worker's jobs.
    fn waits(&self, outcome: &Outcome, habits: &Habits, events: &mut Vec<Event>) {
        for worker in 0..self.scenario.workers.len() as u32 {
            let own = outcome.ran.iter().zip(&outcome.spans).filter(|(w, _)| **w == Some(worker));
            let mut spans: Vec<(u64, u64)> = own.map(|(_, (a, b))| (a.0, b.0)).collect();
            spans.sort_unstable();
            let mut free = 0;
            for (from, to) in spans.into_iter().chain([(outcome.makespan.0, outcome.makespan.0)]) {
                if from > free {
                    let parked = from - free > habits.spin.0;
                    events.push(Event::Wait { worker, from: free, to: from, parked });
                }
                free = free.max(to);
            }
        }
    }
}
