//! What a step of a plan is expected to take.

use super::outcome::Outcome;
use super::run::{Order, run};
use super::scenario::{EngineModel, JobId, Noise, Worker};
use super::steps::{Cost, Costs, Steps};
use crate::error::Result;
use crate::perf::Source;
use crate::plan::PlannedPrograms;
use crate::platform::Expanded;
use crate::units::{Joules, Nanos, ProgramId};
use dahl_kernels::math;

/// How many steps are simulated: the first fills what the others find. More of small
/// ones, so that what workers wait for each other is that of many.
const STEPS: std::ops::RangeInclusive<usize> = 4..=64;
/// About how many tasks are simulated.
const TASKS: usize = 2000;

/// A step, with what it lies in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepPrediction {
    /// From the end of a step to the end of the next.
    pub step: Nanos,
    /// What it lies in with 95 %, if the costs are right about their own spread.
    pub interval: [Nanos; 2],
    /// The modelled energy of a step.
    pub joules: Joules,
    /// How much of its time comes from where, as parts of 1.
    pub sources: Vec<(Source, f64)>,
}

/// Predicts the time and energy of a program's steps that follow each other. Calls vary
/// as they did when they were measured: who waits for several waits for the slowest.
///
/// # Errors
/// As [`Steps::new`].
pub fn predict(
    what: (&PlannedPrograms, ProgramId),
    on: &Expanded<'_>,
    workers: Vec<Worker>,
    engine_model: &EngineModel,
    costs: &mut dyn Costs,
) -> Result<StepPrediction> {
    predict_at(what, on, (workers, &[]), engine_model, costs)
}

/// The same with workers that have speeds of their own, beside those of their units.
///
/// # Errors
/// As [`Steps::new`].
pub fn predict_at(
    what: (&PlannedPrograms, ProgramId),
    on: &Expanded<'_>,
    (workers, speeds): (Vec<Worker>, &[f64]),
    engine_model: &EngineModel,
    costs: &mut dyn Costs,
) -> Result<StepPrediction> {
    let groups = what.0.placement.programs[what.1.index()].groups.iter();
    let tasks: usize = groups.map(|group| group.workers.len()).sum();
    let count = (TASKS / tasks.max(1)).clamp(*STEPS.start(), *STEPS.end());
    let mut steps = Steps::new(what, (on, workers), count, costs)?;
    steps.at_speeds(speeds);
    let engine_model = EngineModel { noise: Noise::Own, ..*engine_model };
    let outcome = run(&steps.scenario, on, &engine_model, Order::Static)?;
    Ok(steps.predicted(&outcome))
}

impl Steps {
    /// What a simulated run of these steps says of one of them.
    pub fn predicted(&self, outcome: &Outcome) -> StepPrediction {
        let end = |jobs: &Vec<JobId>| {
            jobs.iter().map(|job| outcome.spans[job.0 as usize].1.0).max().unwrap_or(0)
        };
        let ends: Vec<u64> = self.jobs.iter().map(end).collect();
        let step = match ends[..] {
            [] => 0,
            [only] => only,
            [first, .., last] => last.saturating_sub(first) / (ends.len() as u64 - 1),
        };
        // A time that may be half or twice as long is as sure of either.
        let doubt = math::exp(2.0 * relative(self));
        let bound = |factor: f64| Nanos((step as f64 * factor).round() as u64);
        let part = step as f64 / outcome.makespan.0.max(1) as f64;
        let wake: Joules = outcome.nodes.iter().map(|node| node.wake).sum();
        StepPrediction {
            step: Nanos(step),
            interval: [bound(1.0 / doubt), bound(doubt)],
            joules: Joules((outcome.joules().0 - wake.0) * part),
            sources: self.sources(),
        }
    }
}

/// The standard deviation of a step, relative to it: calls vary one by one, doubts
/// about their means are the same for all.
fn relative(steps: &Steps) -> f64 {
    let all = || steps.costs.iter().flatten();
    let sum = |f: &dyn Fn(&Cost) -> f64| all().map(f).sum::<f64>();
    let mean = sum(&|c| c.nanos);
    if mean == 0.0 {
        return 0.0;
    }
    let random = sum(&|c| (c.nanos * c.spread).powi(2));
    let common = sum(&|c| c.nanos * c.doubt);
    (random + common * common).sqrt() / mean
}
