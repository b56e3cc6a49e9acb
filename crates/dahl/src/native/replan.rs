//! Another placement in mid-run: the same values, slots and numbers of steps.
//!
//! Persistent values, inputs and outputs keep their places: in one space a plan stores them
//! whole, in the order of the values; over several spaces only a plan with the same replicas
//! is taken. The work memory, the tasks with their operands, the counters and the workers'
//! threads are new.

use super::check_room;
use super::counters::WorkerCounters;
use super::runner::WorkerState;
use super::session::{NativeSession, ProgramInfo};
use super::sys::{Ticks, headroom};
use super::worker::{Mode, Shared, Threads, driver};
use crate::error::{Error, MemoryLimit, Result};
use crate::exec::{Arenas, Decision};
use crate::plan::PlannedPrograms;
use crate::trace::{Event, Header};
use std::sync::Arc;

/// What a placement takes over: nothing at the beginning, or what another one left.
pub(super) struct Before {
    pub(super) first_step: u64,
    pub(super) ticks: Arc<Ticks>,
    pub(super) counters: Option<Arc<WorkerCounters>>,
    /// The header of traces so far, the name of the placement and why it is taken.
    pub(super) header: Option<(Arc<Header>, String, String)>,
    pub(super) buffers: Option<Arenas>,
}

impl Before {
    pub(super) fn nothing() -> Self {
        let ticks = Arc::new(Ticks::start());
        Self { first_step: 0, ticks, counters: None, header: None, buffers: None }
    }
}

/// A plan that is ready to run.
pub(super) struct Placed {
    pub(super) shared: Arc<Shared>,
    pub(super) threads: Threads,
    pub(super) header: Arc<Header>,
}

impl NativeSession {
    /// See [`Session::replan`](crate::exec::Session::replan).
    pub(super) fn go_on(&mut self, decision: &Decision<'_>) -> Result<()> {
        let ticks = self.shared.runner.counters.ticks.clone();
        let begin = ticks.now();
        if let Some(planned) = decision.to {
            self.replace(planned, decision)?;
        }
        if self.engine.record {
            let to = ticks.now();
            let took = (decision.took.0 as f64 / ticks.rate()) as u64;
            self.events.push(Event::Replan {
                step: self.submitted,
                placement: self.placement,
                measured: decision.measured.0,
                predicted: decision.predicted.0,
                from: begin.saturating_sub(took),
                to,
            });
        }
        Ok(())
    }

    fn replace(&mut self, planned: &PlannedPrograms, decision: &Decision<'_>) -> Result<()> {
        if matches!(self.shared.mode, Mode::Dynamic { .. }) {
            let what = "another placement where a policy gives tasks to workers".to_owned();
            return Err(Error::Unsupported { what });
        }
        if planned.numerics != self.shared.planned.numerics {
            return Err(Error::plan("numerics", "those that the session began with", "others"));
        }
        for (p, before) in self.programs.iter().enumerate() {
            let after = ProgramInfo::new(planned, p);
            if before.inputs != after.inputs || before.outputs != after.outputs {
                let place = format!("memory of {:?}", before.name);
                return Err(Error::plan(place, "slots as before", "others"));
            }
        }
        let first = planned.first_space();
        let (old, new) = (&self.shared.planned.memory, &planned.memory);
        let slots = |m: &crate::plan::Memory| {
            let outputs: Vec<(usize, usize)> = m
                .programs
                .iter()
                .map(|p| (p.output_slots, p.spaces[first.index()].outputs))
                .collect();
            (m.input_slots, m.input_slot(first), outputs)
        };
        let places = |m: &crate::plan::Memory| {
            (m.replicas.clone(), m.persistent.clone(), m.persistent_bytes.clone())
        };
        let spaces = self.shared.planned.placement.spaces != planned.placement.spaces;
        if spaces || places(old) != places(new) || slots(old) != slots(new) {
            return Err(Error::plan("memory", "values and slots as before", "others"));
        }
        // The session goes on as it is where there is no room for another placement.
        if check_room(planned.needs(), self.shared.buffers.allocated(), headroom()).is_err() {
            let expected = "a placement that fits into the memory that is left";
            return Err(Error::plan("memory", expected, planned.peak()));
        }
        self.wait_all()?;
        self.gather_events();
        self.shared.stop();
        self.threads.join();
        let no_memory = |_| planned.too_large(MemoryLimit::Unknown, None);
        let kept = self.shared.buffers.kept().map_err(no_memory)?;
        let names = (decision.name.to_owned(), decision.why.to_owned());
        let before = Before {
            first_step: self.submitted,
            ticks: self.shared.runner.counters.ticks.clone(),
            counters: Some(self.shared.runner.counters.clone()),
            header: Some((self.header.clone(), names.0, names.1)),
            buffers: Some(kept),
        };
        // The old work memory goes before the new one comes.
        self.driver =
            WorkerState::new(self.driver.index, self.shared.buffers.first().persistent.clone());
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.buffers = shared.buffers.kept().map_err(no_memory)?;
            shared.runner.programs.clear();
        }
        let Placed { shared, threads, header } = self.engine.placed(planned, None, before)?;
        self.counters.go_on(shared.runner.counters.clone());
        self.driver = driver(&shared);
        (self.shared, self.threads, self.header) = (shared, threads, header);
        self.base = vec![0; planned.lanes()];
        self.last = None;
        self.placement += 1;
        Ok(())
    }
}
