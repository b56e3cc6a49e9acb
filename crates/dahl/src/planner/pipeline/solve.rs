//! What a search may look at, and what it finds: the whole front of a problem, or as much of it as
//! there is time for, and the best plan for the objective with a lower bound.

use super::canonical::Canonical;
use super::cost::{CostModel, plan_value};
use super::front::Front;
use super::ideals::Cuts;
use super::scopes::over_scopes;
use super::stage_options::Replicas;
use crate::error::{Error, Result};
use crate::units::Bytes;
use dahl_certify::{Assignment, Objective, Problem};

/// What is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// The whole front of period and energy.
    #[default]
    Front,
    /// The best plan for the objective; of the front what is met on the way.
    Best,
}

/// How much a search may look at.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// What is looked for.
    pub extent: Extent,
    /// Sets of layers of a graph; with more, only cuts of the layers' order are taken.
    pub ideals: usize,
    /// Sets of layers times combinations of units that potentials are computed for; with more,
    /// units get multipliers, and the best partial plans alone are followed.
    pub states: usize,
    /// Stages on units that are listed, about 70 bytes each; of chains with more, any number of units
    /// is bounded without a list, and of other graphs not every number or cut is taken.
    pub options: usize,
    /// Partial plans at a time, about 100 bytes each.
    pub labels: usize,
    /// Whether to stop: with the best plans so far.
    pub stop: &'a dyn Fn() -> bool,
    /// Which part of the time is over, from 0 to 1, so that parts of a search share it.
    pub used: &'a dyn Fn() -> f64,
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Self {
            extent: Extent::Front,
            ideals: 1500,
            states: 3_000_000,
            options: 4_000_000,
            labels: 20_000_000,
            stop: &|| false,
            used: &|| 0.0,
        }
    }
}

/// Which plans a lower bound holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounded {
    /// Those of the space that was searched.
    Space,
    /// Any, also with several unit types in a stage.
    Any,
}

impl Bounded {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Space => "any plan of this space",
            Self::Any => "any plan, also with several unit types in one stage",
        }
    }
}

/// Which plans were searched whose units of several types share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// None.
    None,
    /// Some numbers of units.
    Some,
    /// All numbers of units at all powers, with all shares.
    All,
}

/// What is known of a problem.
#[derive(Clone, Debug)]
pub struct Solution {
    /// The best plan for the objective within the caps.
    pub best: Option<Assignment>,
    /// The best plan without uneven shares: certificates are about these.
    pub best_pipeline: Option<Assignment>,
    /// The Pareto front of period and energy, whatever the period's cap.
    pub front: Front,
    /// No plan has an objective below this.
    pub lower_bound: f64,
    /// Which plans that holds for.
    pub bounded: Bounded,
    /// Whether the front is all of it.
    pub whole: bool,
    /// Whether all plans were looked at, for the objective.
    pub proved: bool,
    /// Of which cuts plans were made.
    pub cuts: Cuts,
    /// Which numbers of units a stage may have.
    pub replicas: Replicas,
    /// Which plans were searched in which units of several types share a batch.
    pub shares: Shares,
    /// Partial plans that were kept.
    pub labels: usize,
}

impl Solution {
    /// How far the best plan may be from the best that there is, as a part of its value.
    pub fn gap(&self, problem: &Problem) -> Option<f64> {
        let best = self.best.as_ref()?;
        let value = plan_value(problem, best);
        if value <= self.lower_bound || value == 0.0 {
            return Some(0.0);
        }
        Some((value - self.lower_bound) / value)
    }

    /// One plan from elsewhere, or none, with what no plan is below.
    pub fn single(plan: Option<&Assignment>, lower_bound: f64) -> Self {
        let mut front = Front::default();
        plan.into_iter().for_each(|plan| front.add(plan.clone()));
        Self {
            best: plan.cloned(),
            best_pipeline: plan.cloned(),
            front,
            lower_bound,
            bounded: Bounded::Space,
            whole: false,
            proved: false,
            cuts: Cuts::All,
            replicas: Replicas::All,
            shares: Shares::None,
            labels: 0,
        }
    }

    /// The plans that were searched.
    pub fn space(&self) -> String {
        let shares = match self.shares {
            Shares::None => return self.pipelines(),
            Shares::Some => ", of some numbers of units",
            Shares::All => "",
        };
        format!(
            "{}; or one stage on several unit types with uneven shares{shares}",
            self.pipelines()
        )
    }

    /// Those of them without uneven shares.
    pub fn pipelines(&self) -> String {
        let numbers = match self.replicas {
            Replicas::All => "",
            Replicas::Thinned => ", not every number of units above 16",
            Replicas::Clipped => ", not all units of every type",
        };
        format!("stages of one unit type each{numbers}, cut at {}", self.cuts.name())
    }
}

/// Why there is no plan: what is missing.
pub fn infeasible(problem: &Problem, found: &Solution) -> Error {
    let fastest = found.front.plans().first();
    if let (Some(cap), Some(fastest)) = (problem.period_cap, fastest) {
        let expected = format!("a plan of at most {cap} s per batch");
        let is = if found.proved && problem.objective == Objective::Time || found.whole {
            "the fastest takes"
        } else {
            "the fastest that was found takes"
        };
        return Error::plan("period", expected, format!("{is} {} s", fastest.period_s));
    }
    if let (true, Some(cap)) = (found.proved, problem.power_cap) {
        let least = least_watts(problem);
        if least >= cap {
            let found = format!("{least} W, the idle watts of one unit and its machine");
            return Error::plan("power-cap", format!("units that draw less than {cap} W"), found);
        }
    }
    if !found.proved {
        return Error::plan("time", "a plan in the time given", "none yet");
    }
    // The layer that needs most, on the unit that holds most.
    let alone = |i: usize| {
        let work = super::ideals::stage_work(&problem.layers, &[i]);
        let bytes = |unit: usize| {
            let option = CostModel::new(problem).stage_option(&work, [unit, 1, 0]);
            option.memory(problem.semantics, 1, 1)
        };
        (0..problem.units.len()).map(bytes).fold(f64::INFINITY, f64::min)
    };
    let needs = (0..problem.layers.len()).map(|i| (alone(i), i));
    let (bytes, layer) = needs.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0));
    let holds = problem.units.iter().map(|unit| unit.memory_bytes).fold(0.0, f64::max);
    let all: f64 = problem.units.iter().map(|unit| unit.memory_bytes * unit.count as f64).sum();
    let weights: f64 = problem.layers.iter().map(|layer| 2.0 * layer.parameter_bytes).sum();
    let size = |x: f64| Bytes(x as u64);
    let found = format!(
        "at most {} on a unit and {} on all; the largest layer alone ({}) needs {}, weights and gradients of all {}",
        size(holds),
        size(all),
        problem.layers[layer].name,
        size(bytes),
        size(weights)
    );
    Error::plan(
        "memory",
        "units with enough memory for the weights, gradients and activations of their stages",
        found,
    )
}

/// What one unit that only waits draws at least, with its machine.
fn least_watts(problem: &Problem) -> f64 {
    let there = problem.units.iter().enumerate().filter(|(_, unit)| unit.count > 0);
    let alone = there.map(|(k, _)| {
        let mut used = vec![0; problem.units.len()];
        used[k] = 1;
        CostModel::new(problem).idle_watts(&used)
    });
    alone.fold(f64::INFINITY, f64::min)
}

/// Finds the front and the best plan.
///
/// # Errors
/// Where the problem cannot be.
pub fn solve(problem: &Problem, limits: &Limits<'_>) -> Result<Solution> {
    problem.check()?;
    if problem.power_cap.is_some_and(|cap| least_watts(problem) >= cap) {
        // Nothing can even wait.
        let shares = if problem.samples.is_some() { Shares::All } else { Shares::None };
        let none = Solution::single(None, f64::INFINITY);
        return Ok(Solution { whole: true, proved: true, shares, ..none });
    }
    let canonical = Canonical::of(problem);
    let mut found = over_scopes(&canonical.problem, limits);
    // The search for the fastest plan may know one that keeps the cap.
    let capped = problem.period_cap.filter(|_| problem.objective != Objective::Time);
    let infeasible = found.proved && found.cuts == Cuts::All;
    if let (Some(cap), None, false) = (capped, &found.best, infeasible) {
        let objective = Objective::Time;
        let fastest = Problem { objective, period_cap: None, ..canonical.problem.clone() };
        let best = over_scopes(&fastest, limits).best;
        if let Some(plan) = best.filter(|plan| plan.period_s <= cap) {
            found.front.add(plan.clone());
            found.best_pipeline = Some(plan.clone()).filter(|plan| plan.shares.is_empty());
            found.best = Some(plan);
            // It may be cut along another order of the layers, of which nothing is proved.
            if found.proved {
                (found.proved, found.lower_bound) = (false, 0.0);
            }
        }
    }
    let plans = found.best.iter_mut().chain(&mut found.best_pipeline);
    plans.for_each(|plan| canonical.back(plan));
    found.front.plans_mut().iter_mut().for_each(|plan| canonical.back(plan));
    Ok(found)
}

/// The best plan of a front.
pub(super) fn pick(problem: &Problem, front: &Front) -> Option<Assignment> {
    let cap = problem.period_cap.unwrap_or(f64::INFINITY);
    let within = front.plans().iter().filter(|plan| plan.period_s <= cap);
    let value = |plan: &Assignment| plan_value(problem, plan);
    within.min_by(|a, b| value(a).total_cmp(&value(b))).cloned()
}
