//! What other units would change: `--what-if`, and what a run costs beyond joules.

use crate::error::{Error, Result};
use crate::planner::pipeline::{Assignment, Watts, machinery};
use crate::platform::Platform;

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
        let unit = types.find(&self.unit)?;
        // Equal machines may be declared apart: those of the name, if any, else any with enough.
        let called = |kind: usize| {
            let name = platform.nodes[kind].name.to_lowercase();
            self.unit.to_lowercase().split('/').next() == Some(&*name)
        };
        let kinds = || types.declared[unit].iter().map(|(kind, _)| *kind);
        let most = kinds().max_by_key(|&kind| (called(kind), platform.nodes[kind].count));
        let kind_at = most.unwrap_or(0);
        let unit = &types.units[unit];
        let (kind, each) = (&platform.nodes[kind_at], unit.per_node as i64);
        if self.count % each != 0 {
            let expected = format!(
                "a multiple of {each} x {}: units come in whole machines, and each {:?} has {each}",
                unit.name, kind.name
            );
            return Err(Error::config("what-if", expected, self.to_string()));
        }
        let machines = self.count / each;
        if kind.count as i64 + machines < 0 {
            let expected = format!("at most {} x {} to remove", unit.count, unit.name);
            return Err(Error::config("what-if", expected, self.to_string()));
        }
        Ok((kind_at, machines))
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
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct RunCosts {
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
    pub fn bill(&self, plan: &Assignment) -> RunCosts {
        let joules = plan.energy_j * self.batches;
        let kwh = joules / 3.6e6;
        RunCosts {
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
