//! Where the time of a run went, by its trace or by counters alone.
//!
//! All times are whole nanoseconds of the trace; sums are exact.

mod codelets;
mod critical;
mod decisions;
mod idle;
mod ready;
mod spread;
mod text;

pub use codelets::{CodeletRow, ShapeRow};
pub use critical::ProgramPath;
pub use decisions::DecisionRow;
pub use idle::{Gap, WorkerUse};
pub use spread::{Level, Spread};
pub use text::{Detail, percents};

use super::calls::Calls;
use crate::trace::{Activity, ShapeCount, Trace};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// Every event of the steps that were recorded.
    Trace,
    /// Counters of a whole session; quantiles are known to an eighth.
    Counters,
}

/// Which steps a trace has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The first and the last step.
    pub steps: [u64; 2],
    /// Number of steps of the session, if known.
    pub of: Option<u64>,
    /// The bound on events that recording ended at, where it did.
    pub bound: Option<u64>,
    /// Number of steps of each program.
    pub programs: Vec<(String, u64)>,
}

impl Recorded {
    /// Which steps a trace has; `None` where it has none.
    pub fn of_trace(trace: &Trace) -> Option<Self> {
        Self::of(&Calls::of(trace))
    }

    fn of(calls: &Calls<'_>) -> Option<Self> {
        let header = &calls.trace.header;
        let mut steps: BTreeMap<u64, u32> = BTreeMap::new();
        for call in &calls.all {
            steps.insert(call.step, call.program);
        }
        let ends = [*steps.first_key_value()?.0, *steps.last_key_value()?.0];
        let count = |p: usize| steps.values().filter(|&&q| q as usize == p).count() as u64;
        let programs = header.programs.iter().enumerate();
        let programs = programs.map(|(p, program)| (program.name.clone(), count(p)));
        let programs = programs.filter(|(_, steps)| *steps > 0).collect();
        Some(Self { steps: ends, of: header.steps, bound: header.bound, programs })
    }
}

/// Statistics of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// Where they come from.
    pub from: From,
    /// The engine.
    pub engine: String,
    /// The scheduling policy.
    pub scheduling: String,
    /// Steps that are in it; of counters, training steps.
    pub steps: u64,
    /// Which steps of the engine these are, those of evaluation and saving too; of a trace.
    #[serde(default)]
    pub recorded: Option<Recorded>,
    /// When the time began that is looked at, on the trace's clock; gaps are on it too.
    #[serde(default)]
    pub begin: u64,
    /// The time that is looked at, in nanoseconds.
    pub window: u64,
    /// By codelet, the longest first.
    pub codelets: Vec<CodeletRow>,
    /// By worker; lanes, which move data between memories, come last.
    pub workers: Vec<WorkerUse>,
    /// How many of them are lanes.
    #[serde(default, skip_serializing_if = "crate::trace::is_zero")]
    pub lanes: usize,
    /// The units of a platform that workers were on, where there is a platform.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<String>,
    /// Nanoseconds by place in the model and codelet, in the order of the model.
    pub layers: Vec<(String, String, u64)>,
    /// Why calls of one codelet and shape take different times, the largest spread first.
    pub spreads: Vec<Spread>,
    /// The critical path, by program.
    pub paths: Vec<ProgramPath>,
    /// The largest gaps.
    pub gaps: Vec<Gap>,
    /// Nanoseconds that workers waited while a task was ready, where that is known.
    #[serde(default)]
    pub left_ready: Option<u64>,
    /// By which placement the run went on, wherever that was decided.
    #[serde(default)]
    pub decisions: Vec<DecisionRow>,
}

impl Stats {
    /// Statistics of a trace.
    pub fn of_trace(trace: &Trace) -> Self {
        Self::of_calls(&Calls::of(trace))
    }

    /// Statistics of calls.
    pub fn of_calls(calls: &Calls<'_>) -> Self {
        let (workers, gaps) = idle::idle(calls);
        let mut layers: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for call in &calls.all {
            let codelet = calls.cells[call.cell as usize].codelet;
            *layers.entry((call.layer, codelet)).or_default() += call.nanos();
        }
        let header = &calls.trace.header;
        let layers = layers.into_iter().map(|((layer, codelet), nanos)| {
            let layer = header.layers.get(layer as usize).cloned().unwrap_or_default();
            (layer, header.codelets[codelet as usize].clone(), nanos)
        });
        let steps: std::collections::BTreeSet<u64> = calls.all.iter().map(|c| c.step).collect();
        Self {
            from: From::Trace,
            engine: header.engine.clone(),
            scheduling: header.scheduling.clone(),
            steps: steps.len() as u64,
            recorded: Recorded::of(calls),
            begin: calls.window.0,
            window: calls.window.1 - calls.window.0,
            codelets: codelets::of_calls(calls),
            workers,
            lanes: header.lanes,
            units: header.units.clone(),
            layers: layers.collect(),
            spreads: spread::spreads(calls),
            paths: critical::paths(calls),
            gaps,
            left_ready: ready::waited(calls),
            decisions: decisions::decisions(calls.trace),
        }
    }

    /// Statistics of the counters, which are always on: codelets by shape, workers by state.
    pub fn of_counters(shapes: &[ShapeCount], activity: &Activity, steps: u64) -> Self {
        Self {
            from: From::Counters,
            engine: "native".to_owned(),
            scheduling: String::new(),
            steps,
            recorded: None,
            begin: 0,
            window: activity.elapsed,
            codelets: codelets::of_counters(shapes),
            workers: idle::of_counters(activity),
            lanes: 0,
            units: Vec::new(),
            layers: Vec::new(),
            spreads: Vec::new(),
            paths: Vec::new(),
            gaps: Vec::new(),
            left_ready: None,
            decisions: Vec::new(),
        }
    }

    /// Nanoseconds that all workers together ran codelets.
    pub fn busy(&self) -> u64 {
        self.codelets.iter().map(|row| row.total).sum()
    }

    /// The workers without the lanes.
    pub fn computing(&self) -> &[WorkerUse] {
        &self.workers[..self.workers.len().saturating_sub(self.lanes)]
    }

    /// The part of the workers' time in which they ran codelets.
    pub fn efficiency(&self) -> f64 {
        let all = self.window as f64 * self.computing().len() as f64;
        let busy: u64 = self.computing().iter().map(|worker| worker.busy).sum();
        if all > 0.0 { busy as f64 / all } else { 0.0 }
    }
}
