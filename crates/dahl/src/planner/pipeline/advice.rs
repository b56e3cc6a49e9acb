//! What follows from a plan for people: which units are not worth switching on, what other
//! units would change, and how much watts that nobody knows exactly can change.

use super::explain::cost_of;
use super::machines::{Machinery, Watts, machinery};
use super::solve::{Extent, Limits, solve};
use super::table::Replicas;
use super::types::{Pipeline, Problem};
use crate::error::{Error, Result};
use crate::platform::Platform;

/// A unit type that a plan leaves off.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOff {
    /// The type, by index.
    pub unit: usize,
    /// How many of it are off.
    pub off: usize,
    /// When one more of it would be used.
    pub break_even: BreakEven,
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

/// The units that a plan leaves off, and from which part of their watts on it would not.
pub fn left_off(problem: &Problem, plan: &Pipeline, limits: &Limits<'_>) -> Result<Vec<LeftOff>> {
    let used = |plan: &Pipeline, unit: usize| -> usize {
        plan.stages.iter().filter(|stage| stage.unit == unit).map(|stage| stage.replicas).sum()
    };
    let mut all = Vec::new();
    for unit in 0..problem.units.len() {
        let now = used(plan, unit);
        let off = problem.units[unit].count - now;
        if off == 0 {
            continue;
        }
        // Whether one more is used at such a part; nothing where that is not known.
        let worth = |part: f64| -> Result<Option<bool>> {
            let cheaper = scaled(problem, unit, part);
            let best = proved(&cheaper, limits)?;
            Ok(best.map(|plan| used(&plan, unit) > now))
        };
        let mut break_even = match worth(0.0)? {
            Some(true) => BreakEven::At(0.0),
            Some(false) => BreakEven::Never,
            None => BreakEven::Unknown,
        };
        let (mut low, mut high) = (0.0, 1.0);
        while break_even == BreakEven::At(low) && high - low > 0.01 {
            let middle = (low + high) / 2.0;
            match worth(middle)? {
                Some(true) => low = middle,
                Some(false) => high = middle,
                None => {
                    break_even = BreakEven::Unknown;
                    break;
                }
            }
            break_even = BreakEven::At(low);
        }
        all.push(LeftOff { unit, off, break_even });
    }
    Ok(all)
}

/// The best plan, if all were looked at or none can be better.
fn proved(problem: &Problem, limits: &Limits<'_>) -> Result<Option<Pipeline>> {
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

/// A change of the units that there are: `add=1xA40`, `remove=2xP100`.
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

impl Change {
    /// The problem with these units more or fewer.
    pub fn apply(&self, problem: &Problem) -> Result<Problem> {
        let names = Machinery { units: problem.units.clone(), nodes: vec![], slowdowns: vec![] };
        let unit = names.find(&self.unit)?;
        let mut changed = problem.clone();
        let count = &mut changed.units[unit].count;
        *count = usize::try_from(*count as i64 + self.count).map_err(|_| {
            Error::config("what-if", format!("at most {count} to remove"), -self.count)
        })?;
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
    pub fn bill(&self, plan: &Pipeline) -> Bill {
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
    pub fn pay_back_hours(&self, before: &Pipeline, after: &Pipeline) -> Option<f64> {
        // As many batches an hour as before: what is saved is energy.
        let saved = (before.energy_j - after.energy_j) / 3.6e6 * self.per_kwh;
        let hour = 3600.0 / before.period_s;
        (saved > 0.0).then(|| self.once / (saved * hour))
    }
}

/// How a plan fares where watts are others within their intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// `all low`, `a40/gpu high, others low`.
    pub name: String,
    /// Joules of the plan.
    pub plan_j: f64,
    /// Joules of the best plan, where it is known.
    pub best_j: Option<f64>,
    /// Whether the best plan uses other unit types.
    pub other_units: bool,
}

/// How much the intervals of watts can change what is best: all at one end, and each type
/// at the other end from all others.
pub fn sensitivity(
    problem: &Problem,
    plan: &Pipeline,
    platform: &Platform,
    limits: &Limits<'_>,
) -> Result<Vec<Scenario>> {
    let [low, high] = [Watts::Low, Watts::High];
    let [lows, highs] = [machinery(platform, low)?, machinery(platform, high)?];
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
    let kinds = |plan: &Pipeline| -> Vec<usize> {
        let mut kinds: Vec<usize> = plan.stages.iter().map(|stage| stage.unit).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    let mut all = Vec::new();
    for (name, up) in cases {
        let mut other = problem.clone();
        for (unit, up) in up.into_iter().enumerate() {
            let from = if up { &highs } else { &lows };
            other.units[unit].idle_watts = from.units[unit].idle_watts;
            other.units[unit].powers = from.units[unit].powers.clone();
            let node = problem.units[unit].node;
            other.nodes[node].base_watts = from.nodes[node].base_watts;
        }
        let best = proved(&other, limits)?;
        let plan_j = cost_of(&other, plan)[1];
        all.push(Scenario {
            name,
            plan_j,
            best_j: best.as_ref().map(|best| best.energy_j),
            other_units: best.is_some_and(|best| kinds(&best) != kinds(plan)),
        });
    }
    Ok(all)
}
