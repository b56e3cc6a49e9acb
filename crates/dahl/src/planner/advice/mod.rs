//! What follows from a plan for people: which units are not worth switching on, what other
//! units would change, and how much watts that nobody knows exactly can change.

#[cfg(test)]
mod tests;
mod what_if;
mod within;

pub use what_if::{Change, Prices, RunCosts};
pub use within::{Advice, Changed, TimeLimit, WhatIf, advice, changed, what_if};

use super::pipeline::{
    Assignment, Extent, Limits, Problem, Replicas, Watts, cost_of, machinery, solve,
};
use crate::error::Result;
use crate::platform::Platform;

/// A unit type that a plan leaves off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOff {
    /// The type, by index.
    pub unit: usize,
    /// How many of it are off.
    pub off: usize,
}

/// When one more unit would be used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BreakEven {
    /// At this part of its watts, and of those of its machine.
    At(f64),
    /// Not even for nothing.
    Never,
    /// No plan was proved to be the best in the time given.
    Unknown,
}

/// The units of a type that a plan uses.
fn used(plan: &Assignment, unit: usize) -> usize {
    plan.stages.iter().filter(|stage| stage.unit == unit).map(|stage| stage.replicas).sum()
}

/// The units that a plan leaves off.
pub fn left_off(problem: &Problem, plan: &Assignment) -> Vec<LeftOff> {
    let types = problem.units.iter().enumerate();
    let all = types.map(|(unit, of)| LeftOff { unit, off: of.count - used(plan, unit) });
    all.filter(|left| left.off > 0).collect()
}

/// From which part of its watts on one more unit of a type would be used than a plan uses.
pub fn break_even(
    problem: &Problem,
    plan: &Assignment,
    unit: usize,
    limits: &Limits<'_>,
) -> Result<BreakEven> {
    let now = used(plan, unit);
    // Whether one more is used at such a part; nothing where that is not known.
    let worth = |part: f64| -> Result<Option<bool>> {
        let best = proved(&scaled(problem, unit, part), limits)?;
        Ok(best.map(|plan| used(&plan, unit) > now))
    };
    match worth(0.0)? {
        Some(true) => {}
        Some(false) => return Ok(BreakEven::Never),
        None => return Ok(BreakEven::Unknown),
    }
    let (mut low, mut high) = (0.0, 1.0);
    while high - low > 0.01 {
        let middle = (low + high) / 2.0;
        match worth(middle)? {
            Some(true) => low = middle,
            Some(false) => high = middle,
            None => return Ok(BreakEven::Unknown),
        }
    }
    Ok(BreakEven::At(low))
}

/// The best plan, if all were looked at or none can be better.
fn proved(problem: &Problem, limits: &Limits<'_>) -> Result<Option<Assignment>> {
    let found = solve(problem, &Limits { extent: Extent::Best, ..*limits })?;
    // Shares of a batch are looked at one by one, but no bound is so near.
    let all = found.proved && found.replicas == Replicas::All;
    let sure = all || found.gap(problem) == Some(0.0);
    Ok(found.best.filter(|_| sure))
}

/// The problem with a type, and its machines where no other type is in them, at a part of
/// their watts.
fn scaled(problem: &Problem, unit: usize, part: f64) -> Problem {
    let mut cheaper = problem.clone();
    let of = &mut cheaper.units[unit];
    of.idle_watts *= part;
    of.powers.iter_mut().for_each(|power| power.busy_watts *= part);
    let node = of.node;
    if problem.units.iter().filter(|other| other.node == node).count() == 1 {
        cheaper.nodes[node].base_watts *= part;
    }
    cheaper
}

/// A problem whose watts are others within their intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// `all low`, `a40/gpu high, others low`.
    pub name: String,
    problem: Problem,
}

impl Scenario {
    /// Joules that a plan takes in it.
    pub fn joules(&self, plan: &Assignment) -> f64 {
        cost_of(&self.problem, plan)[1]
    }

    /// The best plan in it, where one is proved to be.
    ///
    /// # Errors
    /// Where the problem cannot be.
    pub fn best(&self, limits: &Limits<'_>) -> Result<Option<Assignment>> {
        proved(&self.problem, limits)
    }
}

/// The ends of the intervals of watts: all at one end, and each type at the other end from all
/// others.
///
/// # Errors
/// Where the platform has no ways between its units.
pub fn scenarios(problem: &Problem, platform: &Platform) -> Result<Vec<Scenario>> {
    let [lows, highs] = [machinery(platform, Watts::Low)?, machinery(platform, Watts::High)?];
    let types = problem.units.len();
    let mut cases: Vec<(String, Vec<bool>)> = vec![
        ("all low".to_owned(), vec![false; types]),
        ("all high".to_owned(), vec![true; types]),
    ];
    for unit in 0..types {
        let name = &problem.units[unit].name;
        let one = |up: bool| (0..types).map(|other| (other == unit) == up).collect::<Vec<bool>>();
        cases.push((format!("{name} high, others low"), one(true)));
        cases.push((format!("{name} low, others high"), one(false)));
    }
    let scenario = |(name, up): (String, Vec<bool>)| {
        let mut other = problem.clone();
        for (unit, up) in up.into_iter().enumerate() {
            let from = if up { &highs } else { &lows };
            other.units[unit].idle_watts = from.units[unit].idle_watts;
            other.units[unit].powers = from.units[unit].powers.clone();
            let node = problem.units[unit].node;
            other.nodes[node].base_watts = from.nodes[node].base_watts;
        }
        Scenario { name, problem: other }
    };
    Ok(cases.into_iter().map(scenario).collect())
}

/// Whether two plans use the same unit types.
pub fn same_types(a: &Assignment, b: &Assignment) -> bool {
    let uses = |plan: &Assignment, unit: usize| plan.stages.iter().any(|stage| stage.unit == unit);
    let in_other =
        |plan: &Assignment, other| plan.stages.iter().all(|stage| uses(other, stage.unit));
    in_other(a, b) && in_other(b, a)
}
