//! Which placement suits workers whose speeds have changed.
//!
//! A run counts what every worker takes for every codelet and shape. What the same shapes
//! take on different workers says how fast these are ([`speeds`]). Where they are no longer
//! what the placement was chosen for, others are planned whose shares suit them
//! ([`shared`]), and their steps are simulated from the calibrated times at these speeds.
//! A placement is changed where that is predicted to gain enough, by two looks in a row.
//!
//! # What it leaves out
//! A worker that gets nothing is not measured: its last speed is taken to stay, until it is
//! tried again as if it were as fast as ever. What slows all workers alike is no reason to
//! change. Cuts other than those of the batch.

use super::shares::apportion;
use super::{Grain, PIECES_A_WORKER};
use crate::error::Result;
use crate::perf::PerfModel;
use crate::plan::PlannedPrograms;
use crate::planner::recompute::{Fitted, fit};
use crate::platform::{Platform, UnitId};
use crate::sim::{EngineModel, Known, StepPrediction, Steps, Worker, predict_at};
use crate::trace::WorkerCounts;
use crate::units::{Bytes, Nanos, ProgramId};
use std::collections::BTreeMap;

/// How often it is looked, and how much must be gained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// Steps between looks, at least.
    pub steps: u64,
    /// Time between looks, at least.
    pub time: Nanos,
    /// The part of a step that must be gained for a change, and by which a speed must
    /// differ for others to be predicted.
    pub gain: f64,
    /// Looks in a row that must say so.
    pub looks: usize,
    /// Of the time, the part that may be spent on predicting and changing.
    pub part: f64,
    /// Looks after which a worker that got nothing is tried again; twice as many each time.
    pub retry: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { steps: 8, time: Nanos(100_000_000), gain: 0.05, looks: 2, part: 0.05, retry: 50 }
    }
}

/// What is known before the run.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// What calls take at a speed of 1.
    pub known: PerfModel,
    /// The machine.
    pub platform: Platform,
    /// The grain that the run begins with.
    pub grain: Grain,
    /// The samples of a step.
    pub samples: usize,
    /// The most memory that a plan may need.
    pub limit: Option<Bytes>,
}

/// What was decided.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The placement to go on with; `None` to stay.
    pub change: Option<(Grain, PlannedPrograms)>,
    /// In words.
    pub why: String,
    /// What a step is predicted to take, by that.
    pub predicted: Nanos,
}

/// Watches the speeds of a run's workers and re-chooses its placement.
#[derive(Clone, Debug)]
pub struct Adapter {
    about: Circumstances,
    patience: Patience,
    grain: Grain,
    /// What the placement suits.
    chosen_for: Vec<f64>,
    /// As they were last seen.
    speeds: Vec<f64>,
    /// What the run had counted at the last look.
    seen: BTreeMap<(String, String), Vec<(u64, u64)>>,
    /// What calls of the placement are expected to take; made when it is needed.
    expected: Option<BTreeMap<(String, String), f64>>,
    /// How many looks in a row have said that another placement is better.
    agreed: usize,
    /// Looks since a worker gets nothing, and after how many it is tried again.
    left_out: (u64, u64),
}

impl Adapter {
    /// One that begins with the grain of the circumstances.
    pub fn new(about: Circumstances, patience: Patience) -> Self {
        let grain = about.grain.clone();
        let workers = grain.workers;
        let chosen_for = match &grain.shares[..] {
            [] => vec![1.0; workers],
            shares => {
                let most = shares.iter().copied().max().unwrap_or(1).max(1) as f64;
                // Of one that gets nothing it is not known: as fast as any.
                let speed = |share: &usize| if *share == 0 { 1.0 } else { *share as f64 / most };
                shares.iter().map(speed).collect()
            }
        };
        Self {
            about,
            patience,
            grain,
            speeds: chosen_for.clone(),
            chosen_for,
            seen: BTreeMap::new(),
            expected: None,
            agreed: 0,
            left_out: (0, patience.retry.max(1)),
        }
    }

    /// How often to look.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// The speeds of the workers as they were last seen, the fastest as 1.
    pub fn speeds(&self) -> &[f64] {
        &self.speeds
    }

    /// Looks at what the run has counted so far. Where speeds have changed, others are
    /// predicted, and what is decided is told.
    ///
    /// # Errors
    /// Where nobody knows what a call of the placement takes.
    pub fn look(
        &mut self,
        planned: &PlannedPrograms,
        counted: &[WorkerCounts],
    ) -> Result<Option<Verdict>> {
        let since = self.since(counted);
        if self.expected.is_none() {
            self.expected = Some(self.expectations(planned)?);
        }
        let expected = self.expected.as_ref().expect("just made");
        let of = |cell: &WorkerCounts| {
            expected.get(&(cell.codelet.clone(), cell.shape.clone())).copied()
        };
        let found = speeds(&since, &of, self.grain.workers);
        let known = self.speeds.iter().zip(&found);
        self.speeds = normalised(known.map(|(old, new)| new.unwrap_or(*old)).collect());
        if self.tries_again() {
            return self.decide(planned).map(Some);
        }
        if differs(&self.speeds, &self.chosen_for) <= self.patience.gain {
            self.agreed = 0;
            return Ok(None);
        }
        self.agreed += 1;
        if self.agreed < self.patience.looks {
            return Ok(None);
        }
        self.decide(planned).map(Some)
    }

    /// Whether it is time to give something to a worker that got nothing, as if it were as
    /// fast as the others: whether it is, only then is known.
    fn tries_again(&mut self) -> bool {
        if !self.grain.shares.contains(&0) {
            self.left_out.0 = 0;
            return false;
        }
        self.left_out.0 += 1;
        if self.left_out.0 < self.left_out.1 {
            return false;
        }
        self.left_out = (0, 2 * self.left_out.1);
        let shares = self.speeds.iter_mut().zip(&self.grain.shares);
        shares.filter(|(_, share)| **share == 0).for_each(|(speed, _)| *speed = 1.0);
        true
    }

    /// What was counted since the last look.
    fn since(&mut self, counted: &[WorkerCounts]) -> Vec<WorkerCounts> {
        let mut since = Vec::with_capacity(counted.len());
        for cell in counted {
            let key = (cell.codelet.clone(), cell.shape.clone());
            let before = self.seen.insert(key, cell.workers.clone()).unwrap_or_default();
            let less = |(w, &(calls, nanos)): (usize, &(u64, u64))| {
                let (c, n) = before.get(w).copied().unwrap_or((0, 0));
                (calls.saturating_sub(c), nanos.saturating_sub(n))
            };
            let workers = cell.workers.iter().enumerate().map(less).collect();
            since.push(WorkerCounts { workers, ..cell.clone() });
        }
        since
    }

    fn workers(&self) -> Vec<Worker> {
        let unit = |w: usize| Worker { unit: UnitId(w as u32), state: None };
        (0..self.grain.workers).map(unit).collect()
    }

    /// What the calls of a plan's training step take at a speed of 1, by codelet and shape.
    fn expectations(&self, planned: &PlannedPrograms) -> Result<BTreeMap<(String, String), f64>> {
        let on = self.about.platform.expand();
        let known = &mut Known::new(&self.about.known);
        let steps = Steps::new((planned, ProgramId(0)), (&on, self.workers()), 1, known)?;
        let header = planned.trace_header(&[]);
        let mut all = BTreeMap::new();
        for (work, costs) in header.programs[0].work.iter().zip(&steps.costs) {
            for (&(cell, _), cost) in work.calls.iter().zip(costs) {
                let cell = &header.cells[cell as usize];
                let codelet = header.codelets[cell.codelet as usize].clone();
                all.insert((codelet, cell.shape.clone()), cost.nanos);
            }
        }
        Ok(all)
    }

    /// Predicts the placement as it is and those that suit the speeds.
    fn decide(&mut self, planned: &PlannedPrograms) -> Result<Verdict> {
        let now = self.predicted(planned)?.step;
        let mut best: Option<(Nanos, Grain, PlannedPrograms)> = None;
        for grain in shared(&self.speeds, self.about.samples, &self.about.grain) {
            // One that does not fit, or of which nobody knows what it takes, is no candidate.
            let limit = self.about.limit.unwrap_or(Bytes(u64::MAX));
            let fitted = fit(&grain, planned.programs(), &planned.numerics, limit);
            let Ok(Fitted { plan: candidate, .. }) = fitted else { continue };
            let Ok(StepPrediction { step, .. }) = self.predicted(&candidate) else {
                continue;
            };
            if best.as_ref().is_none_or(|(least, ..)| step.0 < least.0) {
                best = Some((step, grain, candidate));
            }
        }
        self.agreed = 0;
        // Whatever comes out, it was chosen for these.
        self.chosen_for.clone_from(&self.speeds);
        let why = words(&self.speeds);
        Ok(match best {
            Some((step, grain, plan)) if is_worth(now, step, self.patience.gain) => {
                self.grain = grain.clone();
                self.expected = None;
                Verdict { change: Some((grain, plan)), why, predicted: step }
            }
            _ => Verdict { change: None, why, predicted: now },
        })
    }

    fn predicted(&self, planned: &PlannedPrograms) -> Result<StepPrediction> {
        let on = self.about.platform.expand();
        let engine_model = EngineModel::measured(&self.about.known);
        let known = &mut Known::new(&self.about.known);
        let workers = (self.workers(), &self.speeds[..]);
        predict_at((planned, ProgramId(0)), &on, workers, &engine_model, known)
    }
}

/// Whether a step of `then` instead of `now` gains more than a part of it.
fn is_worth(now: Nanos, then: Nanos, gain: f64) -> bool {
    (then.0 as f64) < (1.0 - gain) * now.0 as f64
}

/// By how much speeds differ at most, relative to the greater of two.
fn differs(a: &[f64], b: &[f64]) -> f64 {
    let part = |(a, b): (&f64, &f64)| (a - b).abs() / a.max(*b).max(f64::MIN_POSITIVE);
    a.iter().zip(b).map(part).fold(0.0, f64::max)
}

fn normalised(speeds: Vec<f64>) -> Vec<f64> {
    let most = speeds.iter().copied().fold(0.0, f64::max);
    if most > 0.0 { speeds.iter().map(|speed| speed / most).collect() } else { speeds }
}

fn words(speeds: &[f64]) -> String {
    let slow = speeds.iter().enumerate().filter(|(_, speed)| **speed < 0.995);
    let slow: Vec<String> = slow.map(|(w, speed)| format!("worker {w} at {speed:.2}")).collect();
    match slow.is_empty() {
        true => "all workers are as fast".to_owned(),
        false => format!("{} of the fastest one's speed", slow.join(", ")),
    }
}

/// The speeds of workers by what they took for calls, the fastest as 1; `None` for those
/// that ran nothing.
///
/// A worker is compared with the one that has computed longest, by the median over the
/// shapes that both have run, weighted by their time. Where these are less than half of
/// what it did, by what `expected` says of each of its shapes instead.
pub fn speeds(
    cells: &[WorkerCounts],
    expected: &dyn Fn(&WorkerCounts) -> Option<f64>,
    workers: usize,
) -> Vec<Option<f64>> {
    let busy = |w: usize| -> u64 { cells.iter().map(|cell| of(cell, w).1).sum() };
    let reference = (0..workers).rev().max_by_key(|&w| busy(w)).unwrap_or(0);
    let mean = |cell: &WorkerCounts, w: usize| {
        let (calls, nanos) = of(cell, w);
        (calls > 0 && nanos > 0).then(|| nanos as f64 / calls as f64)
    };
    let by_expectation = |w: usize| {
        let ratio =
            |cell: &WorkerCounts| Some((expected(cell)? / mean(cell, w)?, of(cell, w).1 as f64));
        median(cells.iter().filter_map(ratio).collect())
    };
    let speed = |w: usize| {
        if busy(w) == 0 {
            return None;
        }
        let both = |cell: &WorkerCounts| {
            Some((mean(cell, reference)? / mean(cell, w)?, of(cell, w).1 as f64))
        };
        let common: Vec<(f64, f64)> = cells.iter().filter_map(both).collect();
        let weight: f64 = common.iter().map(|(_, weight)| weight).sum();
        if 2.0 * weight >= busy(w) as f64 {
            return median(common);
        }
        Some(by_expectation(w)? / by_expectation(reference)?)
    };
    let all: Vec<Option<f64>> = (0..workers).map(speed).collect();
    let most = all.iter().flatten().copied().fold(0.0, f64::max);
    all.into_iter().map(|speed| speed.map(|speed| speed / most)).collect()
}

/// Calls and nanoseconds of a cell on a worker.
fn of(cell: &WorkerCounts, worker: usize) -> (u64, u64) {
    cell.workers.get(worker).copied().unwrap_or((0, 0))
}

/// The median of values with weights.
fn median(mut values: Vec<(f64, f64)>) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    values.into_iter().find_map(|(value, weight)| {
        sum += weight;
        (sum >= half).then_some(value)
    })
}

/// How many of the grains that would end soonest are taken.
const SOONEST: usize = 4;
/// How many of those with the fewest pieces.
const COARSEST: usize = 4;
/// How much later than the soonest these may end.
const NEAR: f64 = 0.1;

/// Grains whose shares suit the speeds: the best worker alone, and the batch in so many
/// pieces that they can be dealt as the speeds are.
///
/// For each number of pieces they go one by one to the worker that would end them first; of
/// the same shares the two of fewest pieces count. Taken are the four that would end soonest,
/// and of the others that would end within a tenth of the soonest the four of fewest pieces:
/// by samples alone fine cuts always end sooner, but every piece costs something.
pub fn shared(speeds: &[f64], samples: usize, base: &Grain) -> Vec<Grain> {
    let workers = speeds.len();
    let plain = Grain { channel: 1, row: 1, column: 1, layer: 1, workers, ..base.clone() };
    let mut all: Vec<(f64, Vec<usize>, usize)> = Vec::new();
    for pieces in 1..=samples.min(PIECES_A_WORKER * workers) {
        let counts = dealt(pieces, speeds);
        let (divisor, shares) = reduced(&counts);
        if all.iter().filter(|(_, other, _)| *other == shares).count() >= 2 {
            continue;
        }
        // Samples are dealt in whole ones: pieces are only nearly equal.
        let of = apportion(samples, &counts);
        let time = of.iter().zip(speeds).filter(|(n, _)| **n > 0);
        let time = time.map(|(n, speed)| *n as f64 / speed).fold(0.0, f64::max);
        // A worker alone needs no pieces.
        if shares.iter().filter(|share| **share > 0).count() > 1 || divisor == 1 {
            all.push((time, shares, pieces));
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.cmp(&b.2)));
    let is_alone = |shares: &[usize]| shares.iter().filter(|share| **share > 0).count() == 1;
    let (alone, mut soonest): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, shares, _)| is_alone(shares));
    let near = (1.0 + NEAR) * soonest.first().map_or(0.0, |(time, ..)| *time);
    let mut coarsest = soonest.split_off(SOONEST.min(soonest.len()));
    coarsest.retain(|(time, ..)| *time <= near);
    coarsest.sort_by_key(|(.., pieces)| *pieces);
    coarsest.truncate(COARSEST);
    let grain = |(_, shares, sample): (f64, Vec<usize>, usize)| {
        let even = shares.iter().all(|share| *share == 1);
        Grain { sample, shares: if even { Vec::new() } else { shares }, ..plain.clone() }
    };
    alone.into_iter().take(1).chain(soonest).chain(coarsest).map(grain).collect()
}

/// How many of some pieces each worker gets, so that the last ends soonest.
fn dealt(pieces: usize, speeds: &[f64]) -> Vec<usize> {
    let mut counts = vec![0; speeds.len()];
    for _ in 0..pieces {
        let end = |w: usize| (counts[w] + 1) as f64 / speeds[w].max(1e-9);
        let soonest = (0..speeds.len()).min_by(|&a, &b| end(a).total_cmp(&end(b)));
        counts[soonest.unwrap_or(0)] += 1;
    }
    counts
}

/// Shares without their greatest common divisor, and that divisor.
fn reduced(counts: &[usize]) -> (usize, Vec<usize>) {
    fn gcd(a: usize, b: usize) -> usize {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let divisor = counts.iter().copied().fold(0, gcd).max(1);
    (divisor, counts.iter().map(|count| count / divisor).collect())
}

#[cfg(test)]
mod tests;
