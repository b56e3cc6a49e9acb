//! All stages on all units: the stage options that plans are made of.

use super::cost::{CostModel, StageOption, fits};
use super::families::{Family, families};
use super::ideals::Ideals;
use super::solve::Limits;
use super::unit_counts::UnitCounts;
use dahl_certify::{Assignment, Problem, Semantics};

/// Families that are kept at most, of about 80 bytes each.
const MOST_FAMILIES: usize = 8_000_000;

/// Columns by the set of layers that they end with.
#[derive(Debug)]
pub(super) struct OptionTable<'a> {
    pub(super) cost: CostModel<'a>,
    pub(super) problem: &'a Problem,
    pub(super) ideals: Ideals,
    pub(super) unit_counts: UnitCounts,
    pub(super) ending: Vec<Vec<StageOption>>,
    /// The same without a list, for multipliers of units; there is nothing else where they are too
    /// many to list.
    pub(super) families: Option<Vec<Vec<Family>>>,
    /// Whether they are listed.
    pub(super) listed: bool,
    /// How often the slowest stage counts.
    pub(super) slowest: f64,
    /// Whether something adds up over stages.
    pub(super) adds_up: bool,
    /// Whether how many stages follow decides what fits into memory.
    pub(super) depth_counts: bool,
    /// Whether how many units are in use decides what fits into memory.
    pub(super) units_count: bool,
    /// Units of all types together, and of each combination where these can be listed.
    pub(super) all_units: usize,
    pub(super) totals: Vec<u32>,
    /// Which numbers of units stages have.
    pub(super) numbers: Replicas,
}

/// Which numbers of units a stage may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// All.
    All,
    /// Up to 16 all, then 24, 32, 48, 64, 96 … and all units of a type.
    Thinned,
    /// The same, and of so many types not all units.
    Clipped,
}

impl Replicas {
    fn of(self, count: usize) -> Vec<usize> {
        let kept = |r: &usize| {
            let steps = [24, 32].iter().any(|s| r.is_multiple_of(*s) && (r / s).is_power_of_two());
            self == Replicas::All || *r <= 16 || steps || *r == count
        };
        (1..=count).filter(kept).collect()
    }
}

/// How many units of each type plans may use: all, unless combinations are beyond counting.
fn counts(problem: &Problem) -> Vec<usize> {
    let within =
        |most: usize| problem.units.iter().map(|unit| unit.count.min(most)).collect::<Vec<usize>>();
    let bits = |most: usize| within(most).iter().map(|&n| (n as f64 + 1.0).log2()).sum::<f64>();
    let most = problem.units.iter().map(|unit| unit.count).max().unwrap_or(1);
    // 32 types of one unit are always countable.
    let (mut fits, mut too_many) = (1, most + 1);
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        if bits(middle) <= 60.0 { fits = middle } else { too_many = middle }
    }
    within(fits)
}

impl<'a> OptionTable<'a> {
    /// The stage options of a problem, of all cuts where there are not too many, else of an order in
    /// which a plan's stages follow each other.
    pub(super) fn new(
        cost: CostModel<'a>,
        limits: &Limits<'_>,
        along: Option<&Assignment>,
    ) -> Self {
        let problem = cost.problem;
        let unit_counts = UnitCounts::new(counts(problem));
        let powers: usize = problem.units.iter().map(|unit| unit.powers.len()).max().unwrap_or(1);
        let types: usize = problem.units.iter().map(|unit| unit.powers.len()).sum();
        let choices = |numbers: Replicas| -> usize {
            unit_counts.available.iter().map(|&count| numbers.of(count).len()).sum()
        };
        let clipped =
            problem.units.iter().zip(&unit_counts.available).any(|(unit, n)| *n < unit.count);
        let places = |numbers: Replicas| {
            let each = choices(numbers).max(1) * powers;
            (2.0 * limits.options as f64 / each as f64).sqrt() as usize
        };
        let all = Ideals::all(problem, limits.ideals);
        let small = |numbers: Replicas, ideals: &Ideals| {
            let each = choices(numbers).max(1) * powers;
            ideals.stages().saturating_mul(each) <= limits.options
        };
        // Every number of units where that leaves all cuts, or many.
        let every = all.as_ref().is_some_and(|ideals| small(Replicas::All, ideals))
            || choices(Replicas::All) <= 512;
        let numbers = match clipped {
            true => Replicas::Clipped,
            false if every => Replicas::All,
            false => Replicas::Thinned,
        };
        let all = match all.or_else(|| Ideals::chain(problem)) {
            Some(ideals) if small(numbers, &ideals) && numbers == Replicas::All => Some(ideals),
            Some(ideals) if ideals.are_nested() && ideals.stages() * types <= MOST_FAMILIES => {
                match families(cost, &ideals) {
                    Some(families) => return Self::of_families(cost, ideals, families),
                    None => Some(ideals).filter(|ideals| small(numbers, ideals)),
                }
            }
            all => all.filter(|ideals| small(numbers, ideals)),
        };
        let ideals = all.unwrap_or_else(|| Ideals::in_order(problem, along, places(numbers)));
        let mut limited = false;
        let most_units: usize = unit_counts.available.iter().sum();
        let ending = ideals.ending.iter().map(|works| {
            let mut options = Vec::new();
            for work in works {
                for (unit, of) in problem.units.iter().enumerate() {
                    for r in numbers.of(unit_counts.available[unit]) {
                        let mut all: Vec<StageOption> = (0..of.powers.len())
                            .map(|power| cost.stage_option(work, [unit, r, power]))
                            .filter(|c| fits(c.memory(problem.semantics, r, 1), of.memory_bytes))
                            .collect();
                        limited |= all.iter().any(|c| {
                            c.memory(problem.semantics, most_units, most_units) > of.memory_bytes
                        });
                        // Slower ones that save nothing are never better.
                        all.sort_by(|a, b| {
                            (a.sum.total_cmp(&b.sum))
                                .then(a.most.total_cmp(&b.most))
                                .then(a.joules.total_cmp(&b.joules))
                        });
                        let mut least = f64::INFINITY;
                        all.retain(|c| {
                            let better = c.joules < least;
                            least = least.min(c.joules);
                            better
                        });
                        options.extend(all);
                    }
                }
            }
            options
        });
        let ending: Vec<Vec<StageOption>> = ending.collect();
        let adds_up = ending.iter().flatten().any(|option| option.sum > 0.0);
        let depth_counts = limited && matches!(problem.semantics, Semantics::Synchronous { .. });
        let units_count = limited && problem.semantics == Semantics::Stale;
        let totals = match units_count && unit_counts.size <= 6_000_000 {
            true => unit_counts.totals(),
            false => Vec::new(),
        };
        let chain = ideals.are_nested() && numbers == Replicas::All;
        let families = if chain { families(cost, &ideals) } else { None };
        Self {
            cost,
            problem,
            ideals,
            ending,
            families,
            listed: true,
            slowest: cost.slowest_counts(),
            adds_up,
            depth_counts,
            units_count,
            all_units: most_units,
            totals,
            numbers,
            unit_counts,
        }
    }

    /// The same with families of stages of any number of units.
    fn of_families(cost: CostModel<'a>, ideals: Ideals, families: Vec<Vec<Family>>) -> Self {
        let problem = cost.problem;
        let unit_counts = UnitCounts::new(problem.units.iter().map(|unit| unit.count).collect());
        Self {
            cost,
            problem,
            ending: vec![Vec::new(); ideals.len()],
            ideals,
            families: Some(families),
            listed: false,
            slowest: cost.slowest_counts(),
            adds_up: matches!(problem.semantics, Semantics::Synchronous { .. }),
            depth_counts: false,
            units_count: false,
            all_units: unit_counts.available.iter().sum(),
            totals: Vec::new(),
            numbers: Replicas::All,
            unit_counts,
        }
    }

    /// Seconds that a stage option takes at the least, whatever else there is.
    pub(super) fn alone(&self, option: &StageOption) -> f64 {
        option.sum + self.slowest * option.most
    }

    /// How many sets of layers there are.
    pub(super) fn sets(&self) -> usize {
        self.ideals.len()
    }
}
