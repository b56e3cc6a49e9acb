//! What a stage takes, in seconds and joules: the cost model `dahl`.
//!
//! Of a stage of layers that take C seconds on one unit, on r units, with W bytes of
//! parameters and x = 2 · bytes of other stages' outputs that it takes (activations and
//! their gradients):
//!
//! - it computes for c = C / (speed · r),
//! - sums gradients in g = 4 (r − 1) W / (B r),
//! - is fed in f = x / (B r),
//! - and takes r c (busy − idle) + J (x + 4 (r − 1) W / r) joules beyond idle watts.
//!
//! Stale: r batches are under way before gradients are summed, so that a stage takes
//! max(c + g / r, f) a batch; the period is that of the slowest stage.
//!
//! Synchronous, with m micro-batches, each of them divided among the units of a stage:
//! Σ (c / m + f / m + g) + (m − 1) · max (c, f) / m. That is the makespan of a flow shop
//! of m equal jobs in which stages and ways between them are machines, with all sums of
//! gradients behind it. It is what a GPipe step takes where forward and backward have the
//! same share in every stage.
//!
//! The energy of a batch is that of its stages + period · (idle watts of the units that
//! are used + base watts of the machines that they are in).
//!
//! It leaves out latencies, that transfers share links, the update of the weights, and
//! that a small part of a batch is less efficient than a whole one.

use super::ideals::{Ideals, StageWork};
use dahl_certify::{Assignment, Problem, Semantics, Stage};

/// A stage on units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StageOption {
    /// The set of layers before it.
    pub(super) before: u32,
    pub(super) unit: u8,
    pub(super) replicas: u16,
    pub(super) power: u8,
    /// What adds up over stages, in seconds.
    pub(super) sum: f64,
    /// What the slowest stage decides, in seconds.
    pub(super) most: f64,
    /// Joules beyond idle watts.
    pub(super) joules: f64,
    /// Bytes of parameters on each unit.
    parameters: f64,
    /// Bytes of activations of a whole batch on each unit.
    activations: f64,
}

/// How often the slowest stage counts: seconds of a batch are sum + this · most.
pub(super) fn slowest_counts(semantics: Semantics) -> f64 {
    match semantics {
        Semantics::Synchronous { micro_batches } => micro_batches as f64 - 1.0,
        Semantics::Stale => 1.0,
    }
}

/// A stage on so many units of a type at a power.
pub(super) fn stage_option(
    problem: &Problem,
    work: &StageWork,
    [unit, replicas, power]: [usize; 3],
) -> StageOption {
    let (of, r) = (&problem.units[unit], replicas as f64);
    let at = &of.powers[power];
    let compute = work.seconds[unit] / at.speed / r;
    let summed = 4.0 * (r - 1.0) * work.parameters / r;
    let fed = 2.0 * work.input;
    let gradients = summed * of.reduce.seconds_per_byte;
    let feeding = fed * of.input.seconds_per_byte / r;
    let (sum, most, held) = match problem.semantics {
        Semantics::Stale => (0.0, (compute + gradients / r).max(feeding), 1.0),
        Semantics::Synchronous { micro_batches } => {
            let m = micro_batches as f64;
            ((compute + feeding) / m + gradients, compute.max(feeding) / m, r)
        }
    };
    StageOption {
        before: work.before as u32,
        unit: unit as u8,
        replicas: replicas as u16,
        power: power as u8,
        sum,
        most,
        joules: r * compute * (at.busy_watts - of.idle_watts)
            + of.input.joules_per_byte * fed
            + of.reduce.joules_per_byte * summed,
        parameters: work.parameters,
        activations: work.activations / held,
    }
}

impl StageOption {
    /// Bytes that each of its units holds, when so many units are in use from this
    /// stage on, in so many stages: weights with their gradient and with a version for
    /// each batch under way, activations of what is under way (one forward, one
    /// backward).
    pub(super) fn memory(&self, semantics: Semantics, units: usize, stages: usize) -> f64 {
        match semantics {
            Semantics::Stale => {
                let under_way = units.div_ceil(self.replicas as usize) as f64;
                self.parameters * (under_way + 1.0) + self.activations * under_way
            }
            Semantics::Synchronous { micro_batches } => {
                let part = stages.min(micro_batches) as f64 / micro_batches as f64;
                2.0 * self.parameters + self.activations * part
            }
        }
    }
}

impl StageOption {
    /// With how many units in use from this stage on it still fits, at the least depth.
    pub(super) fn most_units(&self, semantics: Semantics, holds: f64, all: usize) -> usize {
        let fitting = |units: &usize| fits(self.memory(semantics, *units, 1), holds);
        // The more units are in use, the more is under way.
        match fitting(&all) {
            true => all,
            false => (self.replicas as usize..all).take_while(fitting).last().unwrap_or(0),
        }
    }
}

/// Whether bytes fit; differences of rounding do not count.
pub(super) fn fits(bytes: f64, holds: f64) -> bool {
    bytes <= holds * (1.0 + 1e-12)
}

/// What a plan costs, by the same formulas.
pub(super) fn evaluate(
    problem: &Problem,
    ideals: &Ideals,
    chosen: &[(usize, StageOption)],
) -> Assignment {
    let (mut sum, mut most, mut joules) = (0.0, 0.0f64, 0.0);
    let mut used = vec![0; problem.units.len()];
    let mut stages = Vec::new();
    for &(end, option) in chosen {
        sum += option.sum;
        most = most.max(option.most);
        joules += option.joules;
        used[option.unit as usize] += option.replicas as usize;
        stages.push(Stage {
            layers: ideals.between(option.before as usize, end),
            unit: option.unit as usize,
            replicas: option.replicas as usize,
            power: option.power as usize,
        });
    }
    let seconds = sum + slowest_counts(problem.semantics) * most;
    let (period_s, energy_j) = waited(problem, problem.idle_watts(&used), [seconds, joules]);
    Assignment { stages, shares: Vec::new(), period_s, energy_j }
}

/// Seconds and joules of a batch, longer where no more than some watts may be drawn;
/// infinite where idle watts alone are more.
pub(super) fn waited(
    problem: &Problem,
    idle_watts: f64,
    [seconds, joules]: [f64; 2],
) -> (f64, f64) {
    let least = match problem.power_cap {
        None => 0.0,
        Some(cap) if cap > idle_watts => joules / (cap - idle_watts),
        Some(_) if joules + idle_watts > 0.0 => return (f64::INFINITY, f64::INFINITY),
        Some(_) => 0.0,
    };
    let seconds = seconds.max(least);
    (seconds, joules + idle_watts * seconds)
}
