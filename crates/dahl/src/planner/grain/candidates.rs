//! The grain whose step is predicted to be the shortest.
//!
//! The space is small and documented (docs/grain.md): numbers of workers, pieces of the
//! batch, of channels, of rows, and stages of layers. Every candidate is planned and its
//! step simulated. What may be best may rest on guessed times: then its calls are measured
//! and all are predicted again, until nothing that was not measured could be better than
//! the best that was.

use super::{Grain, PIECES_A_WORKER};
use crate::error::{Error, Result};
use crate::graph::Programs;
use crate::perf::{PerfModel, Source};
use crate::plan::{Numerics, Plan};
use crate::planner::recompute::{Fitted, fit};
use crate::platform::{Expanded, UnitId};
use crate::sim::{Habits, Known, StepPrediction, Worker, predict};
use crate::units::{Bytes, Nanos, ProgramId};

/// A part of the predicted time that may rest on guesses.
const GUESSED: f64 = 0.1;
/// How much longer than the shortest a predicted step may be to be worth a run.
const CLOSE: f64 = 1.3;

/// A grain with its plan and what its step is expected to take.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The grain.
    pub grain: Grain,
    /// Its plan.
    pub plan: Plan,
    /// The peak of its plan that recomputes nothing.
    pub plain: Bytes,
    /// Its step, predicted.
    pub step: StepPrediction,
    /// Its step as it ran, if it did.
    pub ran: Option<Nanos>,
}

/// What was chosen, and from what.
#[derive(Clone, Debug)]
pub struct Choice {
    /// All candidates that fit, the best first: those that ran, then by prediction. Of
    /// equals that of fewer workers and pieces.
    pub candidates: Vec<Candidate>,
    /// How many were measured on the way.
    pub learned: usize,
}

impl Choice {
    /// The best.
    pub fn best(&self) -> &Candidate {
        &self.candidates[0]
    }

    /// Which candidates are worth a run before one is taken, since predictions are never
    /// surer than the measurements that they rest on: `most` that are predicted to be
    /// within 1.3 times of the best, and the best of every number of workers.
    pub fn finalists(&self, most: usize) -> Vec<usize> {
        let best = self.best().step.step.0 as f64;
        let first_of_its_workers = |i: usize| {
            let workers = |c: &Candidate| c.grain.workers;
            self.candidates[..i].iter().all(|c| workers(c) != workers(&self.candidates[i]))
        };
        let all = 0..self.candidates.len();
        let close = |&i: &usize| self.candidates[i].step.step.0 as f64 <= CLOSE * best;
        let mut finalists: Vec<usize> = all.clone().filter(close).take(most).collect();
        finalists.extend(all.filter(|&i| first_of_its_workers(i)));
        finalists.sort_unstable();
        finalists.dedup();
        finalists
    }

    /// Puts what ran first, the shortest step before all.
    pub fn settle(&mut self, ran: &[(usize, Nanos)]) {
        ran.iter().for_each(|&(i, step)| self.candidates[i].ran = Some(step));
        self.candidates.sort_by_key(|c| (c.ran.is_none(), c.ran, c.step.step));
    }
}

/// The grains that are tried for up to so many workers.
pub fn candidates(workers: usize, samples: usize, base: &Grain) -> Vec<Grain> {
    let mut all = Vec::new();
    let mut counts: Vec<usize> =
        (0..).map(|i| 1 << i).take_while(|w| *w < workers).chain([workers]).collect();
    counts.dedup();
    for &workers in &counts {
        let shares = Vec::new();
        let one =
            Grain { sample: 1, channel: 1, row: 1, column: 1, layer: 1, shares, ..base.clone() };
        let one = || Grain { workers, ..one.clone() };
        let mut sample = workers;
        while sample <= samples.min(PIECES_A_WORKER * workers) {
            all.push(Grain { sample, ..one() });
            sample *= 2;
        }
        if workers == 1 {
            continue;
        }
        all.push(Grain { channel: workers, ..one() });
        all.push(Grain { row: workers, ..one() });
        if samples > 1 {
            let sample = workers.min(samples);
            all.push(Grain { sample, channel: 2, ..one() });
            all.push(Grain { sample: (2 * sample).min(samples), layer: 2, ..one() });
        }
    }
    all
}

/// Measures the calls of a plan, on one worker.
pub type Learn<'a> = dyn FnMut(&Plan, &mut PerfModel) -> Result<()> + 'a;

/// Predicts all candidates, measures what may be best and rests on guesses, and predicts
/// again, `most` times at most.
///
/// # Errors
/// Where no candidate fits into `limit`, or of none is known what its calls take, even
/// after measuring.
pub fn choose(
    (programs, numerics): (&Programs, &Numerics),
    grains: &[Grain],
    on: &Expanded<'_>,
    (model, learn, most): (&mut PerfModel, &mut Learn<'_>, usize),
    limit: Option<Bytes>,
) -> Result<Choice> {
    let mut plans: Vec<(Grain, Fitted)> = Vec::new();
    let mut closest: Option<Error> = None;
    for grain in grains {
        match fit(grain, programs, numerics, limit.unwrap_or(Bytes(u64::MAX))) {
            Ok(fitted) => plans.push((grain.clone(), fitted)),
            Err(error) => closest = Some(closer(closest, error)?),
        }
    }
    if let (true, Some(error)) = (plans.is_empty(), closest) {
        return Err(error);
    }
    let mut learned = 0;
    let mut tried = vec![false; plans.len()];
    loop {
        let mut all: Vec<Result<StepPrediction>> = Vec::with_capacity(plans.len());
        let habits = Habits::measured(model);
        for (grain, Fitted { plan, .. }) in &plans {
            let units = (0..grain.workers as u32).map(UnitId);
            let workers = units.map(|unit| Worker { unit, state: None }).collect();
            let what = (programs, plan, ProgramId(0));
            all.push(predict(what, on, workers, &habits, &mut Known::new(model)));
        }
        // What cannot be predicted has calls that nobody knows: these come first.
        let unknown = (0..all.len()).find(|&i| all[i].is_err() && !tried[i]);
        if let Some(next) = unknown.or_else(|| next_to_measure(&all)).filter(|_| learned < most) {
            tried[next] = true;
            learn(&plans[next].1.plan, model)?;
            learned += 1;
            continue;
        }
        let (mut candidates, mut failed) = (Vec::with_capacity(plans.len()), None);
        for ((grain, Fitted { plan, plain }), step) in plans.into_iter().zip(all) {
            match step {
                Ok(step) => candidates.push(Candidate { grain, plan, plain, step, ran: None }),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let (true, Some(error)) = (candidates.is_empty(), failed) {
            return Err(error);
        }
        // Stable: of equals the first.
        candidates.sort_by_key(|candidate| candidate.step.step.0);
        return Ok(Choice { candidates, learned });
    }
}

/// Of two errors of memory the one that comes closer to what is allowed; another error as
/// it is.
fn closer(before: Option<Error>, error: Error) -> Result<Error> {
    let least = |error: &Error| match error {
        Error::Memory { needed, least, .. } => Some(least.unwrap_or(*needed)),
        _ => None,
    };
    match (before, least(&error)) {
        (_, None) => Err(error),
        (Some(before), Some(found)) if least(&before) <= Some(found) => Ok(before),
        _ => Ok(error),
    }
}

/// The prediction that rests on guesses and could be the shortest of all, if any: one that
/// is sure of itself need not be measured where even its lower bound is above the best.
fn next_to_measure(all: &[Result<StepPrediction>]) -> Option<usize> {
    let best = all.iter().flatten().map(|step| step.step.0).min()?;
    let measured = |step: &StepPrediction| {
        let part = step.sources.iter().find(|(source, _)| *source == Source::Measured);
        part.map_or(0.0, |(_, part)| *part) >= 1.0 - GUESSED
    };
    let could = |step: &StepPrediction| step.interval[0].0.min(step.step.0);
    let known = all.iter().enumerate().filter_map(|(i, step)| Some((i, step.as_ref().ok()?)));
    let doubtful = known.filter(|(_, step)| !measured(step) && could(step) <= best);
    doubtful.map(|(i, step)| (could(step), i)).min().map(|(_, i)| i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::model::{Model, Optimizer, TrainSpec};
    use crate::units::Joules;

    fn step(nanos: u64, low: u64, measured: f64) -> Result<StepPrediction> {
        let sources = vec![(Source::Measured, measured), (Source::Regression, 1.0 - measured)];
        let interval = [Nanos(low), Nanos(2 * nanos)];
        Ok(StepPrediction { step: Nanos(nanos), interval, joules: Joules(0.0), sources })
    }

    #[test]
    fn there_are_never_more_pieces_than_samples() {
        for (workers, samples) in [(2, 2), (2, 3), (4, 5), (4, 64)] {
            let all = candidates(workers, samples, &Grain::for_workers(workers));
            assert!(all.iter().all(|grain| grain.sample <= samples), "{workers} {samples}");
        }
    }

    #[test]
    fn the_close_ones_and_the_best_of_each_number_of_workers_run() {
        let model = Model::sequential("m", &[4], |s| s.linear(2));
        let spec = TrainSpec::new(4, DType::F32, Optimizer::sgd(0.1));
        let lowered = model.lower(&spec).unwrap();
        let candidate = |workers: usize, nanos: u64| {
            let grain = Grain::for_workers(workers);
            let plan = grain.plan(&lowered.programs).unwrap();
            let step = step(nanos, nanos, 1.0).unwrap();
            Candidate { grain, plan, plain: Bytes(0), step, ran: None }
        };
        let all = [(2, 100), (2, 110), (2, 120), (4, 125), (2, 126), (4, 150), (1, 190)];
        let candidates = all.map(|(workers, nanos)| candidate(workers, nanos)).to_vec();
        let mut choice = Choice { candidates, learned: 0 };
        assert_eq!(choice.finalists(3), [0, 1, 2, 3, 6]);
        assert_eq!(choice.finalists(9), [0, 1, 2, 3, 4, 6]);
        choice.settle(&[(0, Nanos(130)), (6, Nanos(90))]);
        let order: Vec<u64> = choice.candidates.iter().map(|c| c.step.step.0).collect();
        assert_eq!(order, [190, 100, 110, 120, 125, 126, 150]);
    }

    #[test]
    fn what_could_be_best_is_measured() {
        // A guess that looks best, and one that looks worse and may be better still.
        let all = [step(10, 9, 1.0), step(8, 7, 0.5), step(12, 5, 0.0)];
        assert_eq!(next_to_measure(&all), Some(2));
        // Guesses that cannot be better.
        assert_eq!(next_to_measure(&[step(10, 9, 1.0), step(20, 11, 0.0)]), None);
        assert_eq!(next_to_measure(&[step(10, 9, 0.95)]), None);
        assert_eq!(next_to_measure(&[step(10, 9, 0.5)]), Some(0));
    }
}
