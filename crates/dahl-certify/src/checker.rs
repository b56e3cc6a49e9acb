//! The checker: it takes the data types and the documented formulas (docs/planner.md), and every
//! rounding goes against the claim, which is that no plan whose stages are differences of the
//! listed sets of layers, with units of one type per stage, has an objective below `value`.
//!
//! The proof: from the empty partial plan, whatever stage is put before a listed one (a label) gives
//! one that a listed one dominates, or that by the potentials of cells cannot become better.

mod cost;
mod labels;
mod plan;
mod potentials;
mod shares;

use crate::certificate::{CellProof, Certificate};
use crate::problem::Problem;
use crate::{Flaw, flaw, require};
pub(crate) use cost::value;
use cost::{StageOption, idle_watts, most_joules, unit_watts};
use std::cell::Cell;

/// Results of sums and products of some dozens of numbers, all of one sign, lie this near
/// to the true ones.
const ROUNDING: f64 = 1e-13;

fn down(x: f64) -> f64 {
    if x.is_infinite() { x } else { x - x.abs() * ROUNDING }
}

fn up(x: f64) -> f64 {
    x + x.abs() * ROUNDING
}

/// A sum of any number of numbers that is as near to the true one as a sum of two (Neumaier
/// 1974).
fn sum(numbers: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0);
    for x in numbers {
        let next = sum + x;
        lost += if sum.abs() >= x.abs() { (sum - next) + x } else { (x - next) + sum };
        sum = next;
    }
    sum + lost
}

/// Numbers of a proof that are larger are of no use, and sums and products of them overflow.
const LARGEST: f64 = 1e60;

fn small(x: &f64) -> bool {
    x.abs() <= LARGEST
}

/// Stages on units; about 100 bytes each.
const MOST_OPTIONS: usize = 6_000_000;

/// Numbers of all potentials together, 8 bytes each.
pub const MOST_POTENTIALS: usize = 40_000_000;

/// Steps of all checks together, a nanosecond each or so.
const MOST_WORK: u64 = 30_000_000_000;

/// Says what is wrong, or that the claim holds; the latter with the number of inequalities
/// that were checked.
///
/// A proof that takes more than 30,000,000,000 steps to check, of about a nanosecond each, is
/// refused before it does.
pub fn certify(of: &Certificate) -> Result<u64, Flaw> {
    certify_within(of, MOST_WORK)
}

/// The same with another bound on the steps.
pub fn certify_within(of: &Certificate, steps: u64) -> Result<u64, Flaw> {
    let p = &of.problem;
    p.check().or_else(|error| flaw("problem", "a valid problem", error))?;
    let (known, found) = (p.scopes.len(), of.scopes.len());
    require(found == known, "scopes", format!("proofs of {known} scopes"), found)?;
    let own = of.plan_scope.is_none_or(|scope| scope < known);
    require(own, "plan_scope", "a scope of the problem", format!("{:?}", of.plan_scope))?;
    let (mut checked, mut left) = (0, steps);
    for scope in p.all_scopes() {
        let part = match scope {
            Some(scope) => of.of_scope(scope),
            None => Certificate { problem: p.in_scope(None), ..of.clone() },
        };
        let check = || {
            let mut checker = Checker::new(&part, left)?;
            if scope == of.plan_scope {
                checker.plan()?;
            }
            let inequalities = match checker.needs_no_list() {
                true => checker.streamed()? + checker.labels(&[])?,
                false => {
                    let options = checker.options()?;
                    checker.potentials(&options)? + checker.labels(&options)?
                }
            };
            Ok((inequalities + checker.shares()?, checker.work.get()))
        };
        let (inequalities, work) = check().map_err(|flaw: Flaw| match scope {
            Some(scope) => {
                let name = &p.scopes[scope].name;
                Flaw { place: format!("scope {name:?}: {}", flaw.place), ..flaw }
            }
            None => flaw,
        })?;
        checked += inequalities;
        left = left.saturating_sub(work);
    }
    Ok(checked)
}

struct Checker<'a> {
    of: &'a Certificate,
    p: &'a Problem,
    /// Combinations of units, and what one more of a type adds.
    size: usize,
    strides: Vec<usize>,
    idle: Vec<f64>,
    /// Watts of a unit with its part of a full machine, by type, rounded down.
    unit_watts: Vec<f64>,
    inside: Vec<Vec<bool>>,
    /// Potentials of cells and of levels: by set and combination, or by set where units have
    /// multipliers.
    cells: Vec<Vec<f64>>,
    levels: Vec<Vec<f64>>,
    /// More than any plan of a cell takes.
    most_joules: Vec<f64>,
    /// Steps that the checks have taken, and may take.
    work: Cell<u64>,
    most_work: u64,
}

impl<'a> Checker<'a> {
    fn new(of: &'a Certificate, most_work: u64) -> Result<Self, Flaw> {
        // Version 1 has potentials too. Those computed here are no smaller than any that hold.
        let version = of.dahl_certificate;
        require((1..=3).contains(&version), "dahl_certificate", "1, 2 or 3", version)?;
        let p = &of.problem;
        let mut strides = Vec::new();
        let mut size = 1usize;
        for unit in &p.units {
            strides.push(size);
            size = size.saturating_mul(unit.count + 1);
        }
        let listed = of.cells.iter().map(|cell| &cell.multipliers);
        let listed = listed.chain(of.levels.iter().map(|level| &level.multipliers));
        let full = listed.filter(|multipliers| multipliers.is_empty()).count();
        // Labels and potentials by combination number the combinations of units.
        let countable = size < usize::MAX || full == 0 && of.labels.is_empty();
        require(countable, "problem", "units whose combinations can be counted", "more")?;
        let numbers = size.saturating_mul(of.sets.len()).saturating_mul(full);
        let expected = format!("at most {MOST_POTENTIALS} potentials of sets and units");
        require(numbers <= MOST_POTENTIALS, "problem", expected, numbers)?;
        let layers = p.layers.len();
        let mut inside = Vec::new();
        for set in &of.sets {
            let mut own = vec![false; layers];
            for &layer in set {
                require(layer < layers, "sets", "layers of the problem", layer)?;
                own[layer] = true;
            }
            inside.push(own);
        }
        let ends = [inside.first(), inside.last()];
        let right = [Some(&vec![false; layers]), Some(&vec![true; layers])];
        let whole = ends == right && of.sets.len() >= 2;
        require(whole, "sets", "from none to all layers", of.sets.len())?;
        let unit_watts = (0..p.units.len()).map(|unit| unit_watts(p, unit)).collect();
        let [above_idle, waiting] = most_joules(p);
        let most = |cell: &CellProof| match cell.high {
            Some(seconds) => up(above_idle + waiting * seconds),
            None => f64::INFINITY,
        };
        let most_joules = of.cells.iter().map(most).collect();
        let mut checker = Self {
            of,
            p,
            size,
            strides,
            idle: Vec::new(),
            unit_watts,
            inside,
            cells: Vec::new(),
            levels: Vec::new(),
            most_joules,
            work: Cell::new(0),
            most_work,
        };
        if full > 0 {
            let watts = |n| idle_watts(p, &checker.all_used(n));
            checker.idle = (0..size).map(watts).collect();
        }
        checker.intervals()?;
        Ok(checker)
    }

    /// Counts work.
    fn count(&self, steps: u64) {
        self.work.set(self.work.get().saturating_add(steps));
    }

    /// Counts work that is about to be done; refuses what is too much.
    fn spend(&self, steps: u64) -> Result<(), Flaw> {
        self.count(steps);
        if self.work.get() <= self.most_work {
            return Ok(());
        }
        flaw("proof", format!("one that is checked in {} steps", self.most_work), "more")
    }

    /// Cells cover all periods and slowest stages, and have as many multipliers as they should.
    fn intervals(&self) -> Result<(), Flaw> {
        let types = self.p.units.len();
        let bad = |x: &f64| !small(x) || *x < 0.0;
        let right = |multipliers: &[f64]| {
            (multipliers.is_empty() || multipliers.len() == types) && !multipliers.iter().any(bad)
        };
        let multipliers = "a multiplier from 0 to 1e60 for each unit type, or none";
        for (i, cell) in self.of.cells.iter().enumerate() {
            let place = format!("cell {i}");
            let with_multiplier = cell.theta > 0.0 && cell.high.is_some();
            if !(cell.theta == 0.0 || with_multiplier && small(&cell.theta)) {
                return flaw(place, "a multiplier of seconds from 0 to 1e60", cell.theta);
            }
            let edges = [Some(cell.low), Some(cell.most_low), cell.high, cell.most_high];
            if edges.iter().flatten().any(bad) {
                return flaw(place, "edges from 0 to 1e60", format!("{edges:?}"));
            }
            if !right(&cell.multipliers) {
                return flaw(place, multipliers, format!("{:?}", cell.multipliers));
            }
        }
        for (i, level) in self.of.levels.iter().enumerate() {
            if !right(&level.multipliers) {
                return flaw(format!("level {i}"), multipliers, format!("{:?}", level.multipliers));
            }
        }
        let cells = self.of.cells.len() as u64;
        self.spend(cells.saturating_mul(cells).saturating_mul(4))?;
        // Whatever period: one that a cell begins with is like all up to the next of them.
        let ends = self.of.cells.iter().flat_map(|cell| [Some(cell.low), cell.high]);
        for at in ends.flatten().chain([0.0]) {
            let here = |cell: &&CellProof| cell.low <= at && cell.high.is_none_or(|h| at < h);
            let mut here: Vec<&CellProof> = self.of.cells.iter().filter(here).collect();
            here.sort_by(|a, b| a.most_low.total_cmp(&b.most_low));
            let mut reached = Some(0.0);
            for cell in here {
                if reached.is_some_and(|reached| cell.most_low <= reached) {
                    let end = cell.most_high.unwrap_or(f64::INFINITY);
                    reached = reached.map(|reached: f64| reached.max(end));
                }
            }
            if reached != Some(f64::INFINITY) {
                let reached = reached.unwrap_or(0.0);
                let found = format!("up to {reached} s at a period of {at} s");
                return flaw("cells", "all periods and slowest stages", found);
            }
        }
        let edges = self.of.levels.iter().map(|level| level.most_high.unwrap_or(f64::INFINITY));
        let ends = self.of.levels.last().is_none_or(|level| level.most_high.is_none());
        if !ends || !edges.is_sorted() {
            return flaw("levels", "ascending ones, from fast stages to all", "others");
        }
        Ok(())
    }

    /// Whether stages on units are needed once only: there are no labels, and all potentials have
    /// multipliers.
    fn needs_no_list(&self) -> bool {
        let cells = self.of.cells.iter().map(|cell| &cell.multipliers);
        let mut all = cells.chain(self.of.levels.iter().map(|level| &level.multipliers));
        self.of.dahl_certificate >= 3 && self.of.labels.is_empty() && all.all(|m| !m.is_empty())
    }

    /// Every stage between two sets on every number of units of a type at every power.
    fn options(&self) -> Result<Vec<StageOption>, Flaw> {
        let mut all = Vec::new();
        self.each_stage(|stage, sets| {
            let each: usize = self.p.units.iter().map(|unit| unit.count * unit.powers.len()).sum();
            if all.len() + each > MOST_OPTIONS {
                let expected = format!("at most {MOST_OPTIONS} stages on units");
                return flaw("problem", expected, "more");
            }
            self.on_units(stage, sets, &mut all);
            Ok(())
        })?;
        // What does not fit even as the last stage is in no plan.
        all.retain(|option| !self.too_large(option, option.replicas));
        Ok(all)
    }

    /// Calls with the layers of every stage between two sets, ordered by the set that it ends with.
    fn each_stage(
        &self,
        mut call: impl FnMut(&[usize], [usize; 2]) -> Result<(), Flaw>,
    ) -> Result<(), Flaw> {
        let each: usize = self.p.units.iter().map(|unit| unit.count * unit.powers.len()).sum();
        let layers = self.p.layers.len() as u64;
        let types = self.p.units.len() as u64;
        for end in 0..self.inside.len() {
            self.spend(layers.saturating_mul(self.inside.len() as u64))?;
            for before in 0..self.inside.len() {
                let [small, large] = [before, end].map(|set| &self.inside[set]);
                if small.iter().zip(large).any(|(s, l)| *s && !*l) || small == large {
                    continue;
                }
                if before > end {
                    return flaw("sets", "each behind those that it contains", end);
                }
                let stage: Vec<usize> =
                    (0..small.len()).filter(|&i| large[i] && !small[i]).collect();
                let inputs: usize = stage.iter().map(|&i| self.p.layers[i].inputs.len()).sum();
                let sums = (4 * types + 20).saturating_mul((stage.len() + inputs) as u64);
                self.spend(sums.saturating_add(40 * each as u64))?;
                call(&stage, [before, end])?;
            }
        }
        Ok(())
    }

    fn all_used(&self, index: usize) -> Vec<usize> {
        (0..self.p.units.len()).map(|unit| self.used(index, unit)).collect()
    }

    fn used(&self, index: usize, unit: usize) -> usize {
        index / self.strides[unit] % (self.p.units[unit].count + 1)
    }
}
