//! What follows from a plan for people: which units are not worth switching on, what other
//! units would change, and how much watts that nobody knows exactly can change.

#[cfg(test)]
mod tests;

use super::pipeline::{
    Assignment, Extent, Limits, Problem, Replicas, Watts, cost_of, machinery, solve,
};
use crate::error::{Error, Result};
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

/// A change of the units that there are: `add=1xA40`, `remove=2xP100`. Units come and go in
/// whole machines, with all else that these have.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// How many more, or fewer.
    pub count: i64,
    /// The type's name or its beginning.
    pub unit: String,
}

impl std::str::FromStr for Change {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::config("what-if", "such as add=1xA40 or remove=2xP100", text);
        let (verb, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (count, unit) = rest.split_once('x').ok_or_else(wrong)?;
        let count: i64 = count.trim().parse().map_err(|_| wrong())?;
        let sign = match verb.trim() {
            "add" => 1,
            "remove" => -1,
            _ => return Err(wrong()),
        };
        if !(1..=1000).contains(&count) || unit.trim().is_empty() {
            return Err(wrong());
        }
        Ok(Self { count: sign * count, unit: unit.trim().to_owned() })
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = if self.count > 0 { "add" } else { "remove" };
        write!(f, "{verb}={}x{}", self.count.abs(), self.unit)
    }
}

impl Change {
    /// The kind of machine whose number changes, by index, and by how many.
    ///
    /// # Errors
    /// Where no type or several have that name, or the units are not those of whole machines.
    pub fn machines(&self, platform: &Platform) -> Result<(usize, i64)> {
        let types = machinery(platform, Watts::Likely)?;
        let unit = &types.units[types.find(&self.unit)?];
        let (kind, each) = (&platform.nodes[unit.node], unit.per_node as i64);
        if self.count % each != 0 {
            let expected = format!(
                "a multiple of {each} x {}: units come in whole machines, and each {:?} has {each}",
                unit.name, kind.name
            );
            return Err(Error::config("what-if", expected, self));
        }
        let machines = self.count / each;
        if kind.count as i64 + machines < 0 {
            let expected = format!("at most {} x {} to remove", unit.count, unit.name);
            return Err(Error::config("what-if", expected, self));
        }
        Ok((unit.node, machines))
    }

    /// The platform with these machines more or fewer. A kind that has none left stays, so that a
    /// profile stays one of the unit that it was measured on.
    ///
    /// # Errors
    /// As [`Change::machines`].
    pub fn apply(&self, platform: &Platform) -> Result<Platform> {
        let (kind, machines) = self.machines(platform)?;
        let mut changed = platform.clone();
        let count = &mut changed.nodes[kind].count;
        *count = count.saturating_add_signed(machines as isize);
        Ok(changed)
    }
}

/// What a run costs beyond joules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Batches of the run.
    pub batches: f64,
    /// Money a kilowatt-hour.
    pub per_kwh: f64,
    /// Grams of CO2 a kilowatt-hour.
    pub grams_per_kwh: f64,
    /// Money that the change of the units costs once.
    pub once: f64,
}

/// A run by such prices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bill {
    /// Joules.
    pub joules: f64,
    /// Hours.
    pub hours: f64,
    /// Money for energy.
    pub money: f64,
    /// Kilograms of CO2.
    pub co2_kg: f64,
}

impl Prices {
    /// The bill of a run by a plan.
    pub fn bill(&self, plan: &Assignment) -> Bill {
        let joules = plan.energy_j * self.batches;
        let kwh = joules / 3.6e6;
        Bill {
            joules,
            hours: plan.period_s * self.batches / 3600.0,
            money: kwh * self.per_kwh,
            co2_kg: kwh * self.grams_per_kwh / 1000.0,
        }
    }

    /// Hours of running after which a change has paid for itself; nothing where it never
    /// does.
    pub fn pay_back_hours(&self, before: &Assignment, after: &Assignment) -> Option<f64> {
        // As many batches an hour as before: what is saved is energy.
        let saved = (before.energy_j - after.energy_j) / 3.6e6 * self.per_kwh;
        let hour = 3600.0 / before.period_s;
        (saved > 0.0).then(|| self.once / (saved * hour))
    }
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
