//! Stages on any number of units without a list of them, for chains whose stage options are too many
//! to list: over simple ways a cost with multipliers is K + β / r + γ r in the number of units r, so
//! the best number is known.
//!
//! Bounds on r of a cell are those that are surely needed, so potentials are lower bounds also where
//! a listed option would be left out.

use super::cost::{CostModel, Load};
use super::ideals::{Ideals, StageWork};
use dahl_certify::{Medium, Problem, Semantics, UnitType};

/// What the cost of a stage is made of: joules, seconds that add up, and units.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    pub(super) joules: f64,
    pub(super) sum: f64,
    /// By type.
    pub(super) unit: Vec<f64>,
}

/// A stage on units of a type at a power, on any number of them: a figure is its constant part and
/// what is divided by the number of units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) before: u32,
    pub(super) unit: u8,
    power: u8,
    /// The most units; 0 if none fits.
    most_units: u16,
    joules: [f64; 2],
    sum: [f64; 2],
    /// Seconds of computing and of receiving the input, on one unit.
    compute: f64,
    feeding: f64,
    /// Seconds of the gradient exchange that come after computing, for very many units.
    summed: f64,
}

/// A stage on so many units, and what it costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) before: u32,
    pub(super) unit: u8,
    pub(super) power: u8,
    pub(super) replicas: u16,
    pub(super) sum: f64,
}

/// Whether the figures of all stages on a type have these forms.
fn simple(unit: &UnitType) -> bool {
    let line = |way: &dahl_certify::Way| way.medium == Medium::Lines && way.units_per_end == 1;
    let one = unit.count <= 1;
    one || unit.within.is_none_or(|near| near == unit.reduce)
        && line(&unit.input)
        && unit.reduce.medium == Medium::Lines
}

/// All families by the set that they end with, if figures have these forms.
pub(super) fn families(cost: CostModel<'_>, ideals: &Ideals) -> Option<Vec<Vec<Family>>> {
    let problem = cost.problem;
    if !problem.units.iter().all(simple) {
        return None;
    }
    let of = |works: &Vec<StageWork>| {
        let mut all = Vec::new();
        for work in works {
            for (unit, of) in problem.units.iter().enumerate().filter(|(_, of)| of.count > 0) {
                for power in 0..of.powers.len() {
                    all.push(family(cost, work, unit, power));
                }
            }
        }
        all
    };
    Some(ideals.ending.iter().map(of).collect())
}

fn family(cost: CostModel<'_>, work: &StageWork, unit: usize, power: usize) -> Family {
    let problem: &Problem = cost.problem;
    let of = &problem.units[unit];
    let at = &of.powers[power];
    let compute = work.seconds[unit] / at.speed;
    let feeding = cost.round_trip * work.input * of.input.seconds_per_byte;
    // A sum over r units takes (r − 1) / r of this, and latencies that only make it longer.
    let bytes = cost.all_reduce * work.parameters;
    let gradients = bytes * of.reduce.seconds_per_byte;
    let moved = bytes * of.reduce.joules_per_byte;
    let joules = compute * (at.busy_watts - of.idle_watts)
        + of.input.joules_per_byte * cost.round_trip * work.input;
    let (sum, parts, summed) = match problem.semantics {
        Semantics::Stale => ([0.0, 0.0], 1.0, gradients),
        Semantics::Synchronous { micro_batches } => {
            let m = micro_batches as f64;
            let delay = if work.input > 0.0 { 2.0 * of.input.latency_s } else { 0.0 };
            let divided = (compute + feeding) / m - gradients;
            ([delay + gradients, divided], m, 0.0)
        }
    };
    let load = Load {
        seconds: work.seconds[unit],
        parameters: work.parameters,
        input: work.input,
        activations: work.activations,
    };
    let all = cost.option_of(&load, [unit, of.count, power]);
    let fits = super::cost::fits(all.memory(problem.semantics, of.count, 1), of.memory_bytes);
    Family {
        before: work.before as u32,
        unit: unit as u8,
        power: power as u8,
        most_units: if fits || of.sharing > 1 { of.count as u16 } else { 0 },
        joules: [joules + moved, -moved],
        sum,
        compute: compute / parts,
        feeding: feeding / parts,
        summed,
    }
}

impl Family {
    /// The fewest units of a stage that is faster than this; more than there are if none is.
    pub(super) fn fewest(&self, most_high: f64) -> u16 {
        let never = u16::MAX;
        if self.most_units == 0 {
            return never;
        }
        let fast = |r: u16| {
            let r = f64::from(r);
            // The input arrives while the stage computes and exchanges gradients.
            let busy = self.compute / r + self.summed * (r - 1.0) / (r * r);
            busy.max(self.feeding / r) < most_high * (1.0 + 1e-12)
        };
        // What is summed grows from one unit to two, and falls from there on.
        match () {
            () if fast(1) => 1,
            () if !fast(self.most_units) => never,
            () => {
                let (mut slow, mut found) = (1, self.most_units);
                while found - slow > 1 {
                    let middle = slow.midpoint(found);
                    if fast(middle) { found = middle } else { slow = middle }
                }
                found
            }
        }
    }

    /// The number of units, no fewer than some, for which a cost is least, and that cost.
    fn cheapest(&self, fewest: u16, weights: &Weights) -> (u16, f64) {
        let constant = weights.joules * self.joules[0] + weights.sum * self.sum[0];
        let divided = weights.joules * self.joules[1] + weights.sum * self.sum[1];
        let each = weights.unit[self.unit as usize];
        let at = |r: u16| constant + divided / f64::from(r) + each * f64::from(r);
        let most = self.most_units;
        if divided <= 0.0 {
            return (fewest, at(fewest));
        }
        let best = (divided / each.max(f64::MIN_POSITIVE)).sqrt();
        let low = if best >= f64::from(most) { most } else { (best as u16).clamp(fewest, most) };
        let high = (low + 1).min(most);
        let (a, b) = (at(low), at(high));
        if b < a { (high, b) } else { (low, a) }
    }

    /// Seconds that add up on so many units.
    fn sum_of(&self, replicas: u16) -> f64 {
        self.sum[0] + self.sum[1] / f64::from(replicas)
    }
}

/// The cheapest way to each set, with the numbers of units that a cell surely needs.
pub(super) fn shortest(
    families: &[Vec<Family>],
    fewest: &[Vec<u16>],
    weights: &Weights,
) -> (Vec<f64>, Vec<Option<Chosen>>) {
    let mut by_set = vec![f64::INFINITY; families.len()];
    let mut through: Vec<Option<Chosen>> = vec![None; families.len()];
    by_set[0] = 0.0;
    for end in 1..families.len() {
        let mut best: Option<(&Family, u16)> = None;
        let mut least = f64::INFINITY;
        for (family, &fewest) in families[end].iter().zip(&fewest[end]) {
            let rest = by_set[family.before as usize];
            if fewest > family.most_units || rest >= least {
                continue;
            }
            let (replicas, cost) = family.cheapest(fewest, weights);
            if rest + cost < least {
                least = rest + cost;
                best = Some((family, replicas));
            }
        }
        by_set[end] = least;
        through[end] = best.map(|(family, replicas)| Chosen {
            before: family.before,
            unit: family.unit,
            power: family.power,
            replicas,
            sum: family.sum_of(replicas),
        });
    }
    (by_set, through)
}

#[cfg(test)]
mod tests {
    use super::super::tests::made::problem;
    use super::*;

    /// A bound by families was too high where a stage of a stale pipeline waits for its input: the
    /// input and the gradient exchange overlap.
    #[test]
    fn families_cost_no_more_than_the_stages_that_they_stand_for() {
        let mut compared = 0;
        for seed in 0..60 {
            let problem = problem(seed);
            let cost = CostModel::new(&problem);
            let ideals = Ideals::all(&problem, 1000).expect("a small graph");
            let Some(families) = families(cost, &ideals) else { continue };
            for (end, of) in families.iter().enumerate() {
                for family in of.iter().filter(|family| family.most_units > 0) {
                    let works = &ideals.ending[end];
                    let work = works.iter().find(|work| work.before == family.before as usize);
                    let work = work.expect("the stage of the family");
                    let [unit, power] = [family.unit, family.power].map(usize::from);
                    for replicas in 1..=family.most_units {
                        let option = cost.stage_option(work, [unit, usize::from(replicas), power]);
                        let margin = 1.0 + 1e-9;
                        let fewest = family.fewest(option.most * margin);
                        assert!(fewest <= replicas, "problem {seed}: {family:?} on {replicas}");
                        assert!(family.sum_of(replicas) <= option.sum * margin + 1e-12);
                        let r = f64::from(replicas);
                        let joules = family.joules[0] + family.joules[1] / r;
                        assert!(joules <= option.joules * margin + 1e-12, "problem {seed}");
                        compared += 1;
                    }
                }
            }
        }
        assert!(compared > 1000, "{compared}");
    }
}
