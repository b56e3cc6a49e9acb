//! Choosing among plans: predict, measure what predictions lack, race what is close, rank.
//!
//! One algorithm for grains ([`GrainRequest`]) and for plans over processing units ([`PlanRequest`]):
//!
//! 1. Every candidate is predicted. While a candidate that may be the best rests on guessed
//!    times, its calls are measured and all are predicted again.
//! 2. The candidates that are predicted to be about as good as the best, and the best of every
//!    set of workers, run in turns: predictions are no surer than the measurements that they
//!    rest on.
//! 3. Those that keep the bounds come first, then those that ran to the end of the race, then by
//!    value.
//!
//! Without a [`Measurer`] the candidates are ranked by prediction alone.

mod grains;
mod units;

pub use grains::{ChosenGrain, GrainCandidate, GrainRequest};
pub use units::{MICRO_BATCHES, PlanRequest, PlannedUnits, in_words};

use crate::calibrate::{self, Racer, Turn, compared, race, to_the_end};
use crate::error::Result;
use crate::graph::Programs;
use crate::native::available_bytes;
use crate::ops::Target;
use crate::perf::{PerfModel, Source};
use crate::plan::{Numerics, PlannedPrograms};
use crate::planner::Ran;
use crate::sim::StepPrediction;
use crate::units::{Bytes, ProgramId};
use std::time::Duration;

/// A debug build takes a tenth of the time: it mostly measures itself.
const PART: f64 = if cfg!(debug_assertions) { 0.1 } else { 1.0 };
/// Time in which the calls of a candidate are measured.
const LEARN: Duration = Duration::from_millis((PART * 300.0) as u64);
/// Maximum number of candidates that are measured.
const MOST_LEARNED: usize = 8;
/// The part of the predicted time that may rest on guesses.
const GUESSED: f64 = 0.1;
/// Maximum ratio of a candidate's prediction to the best one for it to run.
const CLOSE: f64 = 1.3;
/// The same for the best candidate on other workers.
const OTHER_WORKERS: f64 = 2.0;
/// Maximum number of close candidates that run.
const MOST_CLOSE: usize = 5;
/// The part of a run that the race may take, and its bounds in seconds.
const RACE: (f64, [f64; 2]) = (PART * 0.05, [PART * 1.0, PART * 15.0]);

/// Measures calls, and races plans, on this machine.
pub trait Measurer {
    /// Measures the calls of a training step.
    fn learn(&mut self, of: &PlannedPrograms, kind: &str, known: &mut PerfModel) -> Result<()>;

    /// The numerics of a target with the fastest kernels, and how many ops were measured.
    fn tune(&mut self, programs: &Programs, target: &Target) -> (Numerics, usize) {
        let mut ops = 0;
        (calibrate::tuned(programs, target, |_| ops += 1), ops)
    }

    /// Runs the steps of plans in turns.
    fn race(
        &mut self,
        racers: &[Racer<'_>],
        budget: Duration,
        value: &dyn Fn(usize, &Turn) -> f64,
    ) -> Result<Vec<Vec<Turn>>>;
}

/// This machine.
pub struct ThisMachine;

impl Measurer for ThisMachine {
    fn learn(&mut self, of: &PlannedPrograms, kind: &str, known: &mut PerfModel) -> Result<()> {
        calibrate::steps(of, ProgramId(0), LEARN, kind, known).map(drop)
    }

    fn race(
        &mut self,
        racers: &[Racer<'_>],
        budget: Duration,
        value: &dyn Fn(usize, &Turn) -> f64,
    ) -> Result<Vec<Vec<Turn>>> {
        race(racers, budget, value)
    }
}

/// Candidates to choose from, which can be predicted, run and compared.
trait Contest {
    type Candidate;

    /// Predicts a candidate. An error says that nobody knows what some of its calls take.
    fn predict(&self, candidate: &mut Self::Candidate, known: &PerfModel) -> Result<()>;

    fn step<'a>(&self, of: &'a Self::Candidate) -> Option<&'a StepPrediction>;

    fn racer<'a>(&'a self, of: &'a Self::Candidate) -> Racer<'a>;

    fn ran(&self, of: &Self::Candidate) -> Option<Ran>;

    fn set_ran(&self, of: &mut Self::Candidate, ran: Ran);

    /// The objective value of a step's seconds and joules: smaller is better.
    fn worth(&self, seconds: f64, joules: f64) -> f64;

    /// Seconds and joules of a step, as it ran or else as predicted.
    fn expected(&self, of: &Self::Candidate) -> [f64; 2];

    /// The joules of a step of a turn.
    fn joules(&self, of: &Self::Candidate, turn: &Turn) -> f64;

    /// The workers that have tasks.
    fn used(&self, of: &Self::Candidate) -> Vec<bool>;

    /// Whether a candidate breaks a bound that was set.
    fn breaks(&self, _of: &Self::Candidate) -> bool {
        false
    }

    /// Whether it can run as it is planned.
    fn runs(&self, _of: &Self::Candidate) -> bool {
        true
    }

    fn value(&self, of: &Self::Candidate) -> f64 {
        let [seconds, joules] = self.expected(of);
        self.worth(seconds, joules)
    }
}

/// The run that a choice is made for.
struct For<'a> {
    /// The kind of unit whose calls are measured.
    kind: &'a str,
    /// The steps of the run: the race is worth a part of it.
    steps: u64,
    /// The maximum memory of all plans that are raced.
    limit: Option<Bytes>,
}

/// The candidates that can be predicted, the best first, and how many were measured on the way.
fn choose<C: Contest>(
    contest: &C,
    mut candidates: Vec<C::Candidate>,
    known: &mut PerfModel,
    mut measurer: Option<&mut dyn Measurer>,
    of: For<'_>,
) -> Result<(Vec<C::Candidate>, usize)> {
    let (mut learned, mut tried) = (0, vec![false; candidates.len()]);
    let predicted = loop {
        let mut predicted = Vec::with_capacity(candidates.len());
        for candidate in &mut candidates {
            predicted.push(contest.predict(candidate, known));
        }
        let Some(measurer) = measurer.as_deref_mut().filter(|_| learned < MOST_LEARNED) else {
            break predicted;
        };
        // Those whose calls nobody knows come first.
        let unknown = (0..candidates.len()).find(|&i| predicted[i].is_err() && !tried[i]);
        let next = unknown.or_else(|| next_to_measure(contest, &candidates, &predicted));
        let Some(next) = next else { break predicted };
        tried[next] = true;
        measurer.learn(contest.racer(&candidates[next]).plan, of.kind, known)?;
        learned += 1;
    };
    let (mut left, mut failed) = (Vec::with_capacity(candidates.len()), None);
    for (candidate, predicted) in candidates.into_iter().zip(predicted) {
        match predicted {
            Ok(()) => left.push(candidate),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let (true, Some(error)) = (left.is_empty(), failed) {
        return Err(error);
    }
    rank(contest, &mut left);
    // What was predicted anew may have become what another is.
    let mut kept: Vec<C::Candidate> = Vec::with_capacity(left.len());
    for candidate in left {
        let plan = contest.racer(&candidate).plan;
        if kept.iter().all(|other| **contest.racer(other).plan != **plan) {
            kept.push(candidate);
        }
    }
    let mut left = kept;
    if let Some(measurer) = measurer {
        race_close(contest, &mut left, measurer, &of)?;
        rank(contest, &mut left);
    }
    Ok((left, learned))
}

/// The candidate that rests on guesses and could be the best of all, if any: one whose lower
/// bound is above the best need not be measured.
fn next_to_measure<C: Contest>(
    contest: &C,
    all: &[C::Candidate],
    predicted: &[Result<()>],
) -> Option<usize> {
    let kept = || (0..all.len()).filter(|&i| predicted[i].is_ok() && !contest.breaks(&all[i]));
    let best = kept().map(|i| contest.value(&all[i])).min_by(f64::total_cmp)?;
    let could = |i: usize| {
        let low = |step: &StepPrediction| step.interval[0].0 as f64 / (step.step.0 as f64).max(1.0);
        contest.value(&all[i]) * contest.step(&all[i]).map_or(1.0, low).min(1.0)
    };
    let guessed = |&i: &usize| contest.step(&all[i]).is_some_and(|step| !is_measured(step));
    let doubtful = kept().filter(guessed).filter(|&i| could(i) <= best);
    doubtful.min_by(|&a, &b| could(a).total_cmp(&could(b)))
}

/// Whether a prediction rests on measurements.
fn is_measured(step: &StepPrediction) -> bool {
    let part = step.sources.iter().find(|(source, _)| *source == Source::Measured);
    part.map_or(0.0, |(_, part)| *part) >= 1.0 - GUESSED
}

/// Those that keep the bounds first, then those that ran to the end and those that ran at all,
/// then by value; of equals the one that comes first.
fn rank<C: Contest>(contest: &C, candidates: &mut [C::Candidate]) {
    candidates.sort_by(|a, b| {
        let ran = |c| contest.ran(c).map_or(2, |ran| usize::from(!ran.to_the_end));
        let key = |c| (contest.breaks(c), ran(c));
        key(a).cmp(&key(b)).then(contest.value(a).total_cmp(&contest.value(b)))
    });
}

/// Runs the candidates that may be the best in turns.
fn race_close<C: Contest>(
    contest: &C,
    candidates: &mut [C::Candidate],
    measurer: &mut dyn Measurer,
    of: &For<'_>,
) -> Result<()> {
    let (part, [least, most]) = RACE;
    let step = candidates.first().map_or(0.0, |best| contest.expected(best)[0]);
    let budget = (part * step * of.steps as f64).clamp(least, most);
    let tried = worth_a_race(contest, candidates, budget, of.limit);
    if tried.len() < 2 {
        return Ok(());
    }
    let racers: Vec<Racer<'_>> = tried.iter().map(|&i| contest.racer(&candidates[i])).collect();
    let seconds = |_: usize, turn: &Turn| turn.step().0 as f64 / 1e9;
    let joules = |i: usize, turn: &Turn| contest.joules(&candidates[tried[i]], turn);
    let value = |i: usize, turn: &Turn| contest.worth(seconds(i, turn), joules(i, turn));
    let turns = measurer.race(&racers, Duration::from_secs_f64(budget), &value)?;
    let ran = compared(&turns, &seconds).into_iter().zip(compared(&turns, &joules));
    let ran: Vec<Ran> = ran
        .zip(to_the_end(&turns))
        .map(|((seconds, joules), to_the_end)| Ran { seconds, joules, to_the_end })
        .collect();
    for (i, ran) in tried.into_iter().zip(ran) {
        contest.set_ran(&mut candidates[i], ran);
    }
    Ok(())
}

/// The candidates that are predicted to be about as good as the best, and the best of every set
/// of workers; as many as there is memory for at once, and time for some steps of each. None
/// where the best cannot run as it is planned: it would be behind all that ran.
fn worth_a_race<C: Contest>(
    contest: &C,
    all: &[C::Candidate],
    budget: f64,
    limit: Option<Bytes>,
) -> Vec<usize> {
    let Some(best) = all.first() else { return Vec::new() };
    let within = |i: usize, times: f64| contest.value(&all[i]) <= times * contest.value(best);
    let used: Vec<Vec<bool>> = all.iter().map(|c| contest.used(c)).collect();
    let first_of_its_workers = |i: usize| used[..i].iter().all(|other| *other != used[i]);
    let comparable =
        |c: &C::Candidate| contest.runs(c) && contest.breaks(c) == contest.breaks(best);
    let comparable = (0..all.len()).filter(|&i| comparable(&all[i]));
    let close = comparable.clone().filter(|&i| within(i, CLOSE));
    let mut tried: Vec<usize> = close.take(MOST_CLOSE).collect();
    tried.extend(comparable.filter(|&i| first_of_its_workers(i) && within(i, OTHER_WORKERS)));
    tried.sort_unstable();
    tried.dedup();
    let limits = limit.map(|limit| limit.0).into_iter().chain(available_bytes());
    let (mut bytes, mut seconds) = (limits.min().unwrap_or(u64::MAX), budget);
    tried.retain(|&i| {
        let Racer { plan, steps, .. } = contest.racer(&all[i]);
        let rest = bytes.checked_sub(plan.memory.peak().0);
        let takes = contest.expected(&all[i])[0] * steps.len() as f64;
        let fits = rest.is_some() && takes <= seconds;
        if fits {
            (bytes, seconds) = (rest.unwrap_or(0), seconds - takes);
        }
        fits
    });
    if tried.first() == Some(&0) { tried } else { Vec::new() }
}

#[cfg(test)]
mod tests;
