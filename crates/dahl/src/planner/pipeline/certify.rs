//! Checks certificates. This module knows nothing of how plans are found: it takes the data
//! types and the documented formulas (docs/planner.md), and every rounding goes against
//! the claim. Potentials are computed in `potentials.rs`, labels are checked in `labels.rs`, the
//! plan in `plan.rs`.
//!
//! The claim: no plan whose stages are differences of the listed sets of layers, with
//! units of one type a stage, has an objective below `value`.
//!
//! The proof: half-made plans (labels) that begin at the last layer. The empty one is
//! listed; whatever stage is put before a listed one gives a half-made plan than which a
//! listed one is as good in everything, or that cannot become better than the claim. The
//! latter is shown by potentials of intervals of the period (cells).

mod labels;
mod plan;
mod potentials;

use super::proof::{CellProof, Certificate};
use super::types::{Problem, Semantics, UnitType};
use std::cell::Cell;

/// What is wrong with a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: expected {expected}, found {found}")]
pub struct Flaw {
    /// Where.
    pub place: String,
    /// What would be right.
    pub expected: String,
    /// What is there.
    pub found: String,
}

fn flaw<T>(place: impl ToString, expected: impl ToString, found: impl ToString) -> Result<T, Flaw> {
    let (place, expected) = (place.to_string(), expected.to_string());
    Err(Flaw { place, expected, found: found.to_string() })
}

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
const MOST_COLUMNS: usize = 6_000_000;

/// Numbers of all potentials together, 8 bytes each.
pub(super) const MOST_NUMBERS: usize = 40_000_000;

/// Steps of all checks together, a nanosecond each or so.
const MOST_WORK: u64 = 30_000_000_000;

/// A stage on units, rounded down.
struct Column {
    before: usize,
    end: usize,
    unit: usize,
    replicas: usize,
    sum: f64,
    most: f64,
    joules: f64,
    parameters: f64,
    activations: f64,
}

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
    let mut checker = Checker::new(of, steps)?;
    checker.plan()?;
    let columns = checker.columns()?;
    Ok(checker.potentials(&columns)? + checker.labels(&columns)?)
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
        if !(1..=2).contains(&of.dahl_certificate) {
            return flaw("dahl_certificate", "1 or 2", of.dahl_certificate);
        }
        let p = &of.problem;
        if let Err(error) = p.check() {
            return flaw("problem", "one that can be", error);
        }
        let mut strides = Vec::new();
        let mut size = 1usize;
        for unit in &p.units {
            strides.push(size);
            size = size.saturating_mul(unit.count + 1);
        }
        if size == usize::MAX {
            return flaw("problem", "units whose combinations can be counted", "more");
        }
        let listed = of.cells.iter().map(|cell| &cell.prices);
        let listed = listed.chain(of.levels.iter().map(|level| &level.prices));
        let full = listed.filter(|prices| prices.is_empty()).count();
        let numbers = size.saturating_mul(of.sets.len()).saturating_mul(full);
        if numbers > MOST_NUMBERS {
            let expected = format!("at most {MOST_NUMBERS} potentials of sets and units");
            return flaw("problem", expected, numbers);
        }
        let layers = p.layers.len();
        let mut inside = Vec::new();
        for set in &of.sets {
            let mut own = vec![false; layers];
            for &layer in set {
                if layer >= layers {
                    return flaw("sets", "layers of the problem", layer);
                }
                own[layer] = true;
            }
            inside.push(own);
        }
        let ends = [inside.first(), inside.last()];
        let right = [Some(&vec![false; layers]), Some(&vec![true; layers])];
        if ends != right || of.sets.len() < 2 {
            return flaw("sets", "from none to all layers", of.sets.len());
        }
        let idle = match full > 0 {
            true => (0..size)
                .map(|n| {
                    let used = p.units.iter().zip(&strides);
                    let used: Vec<usize> = used.map(|(u, s)| n / s % (u.count + 1)).collect();
                    p.idle_watts(&used)
                })
                .collect(),
            false => Vec::new(),
        };
        let watts = |unit: &UnitType| {
            let sharing = p.units.iter().filter(|other| other.node == unit.node).count();
            let base = p.nodes[unit.node].base_watts / (unit.per_node * sharing) as f64;
            down(unit.idle_watts + base)
        };
        let unit_watts = p.units.iter().map(watts).collect();
        let busy = p.most_busy_joules();
        let most =
            |cell: &CellProof| up(p.most_joules_with(busy, cell.high.unwrap_or(f64::INFINITY)));
        let most_joules = of.cells.iter().map(most).collect();
        let (cells, levels) = (Vec::new(), Vec::new());
        let work = Cell::new(0);
        let checker = Self {
            of,
            p,
            size,
            strides,
            idle,
            unit_watts,
            inside,
            cells,
            levels,
            most_joules,
            work,
            most_work,
        };
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
        let right = |prices: &[f64]| {
            (prices.is_empty() || prices.len() == types) && !prices.iter().any(bad)
        };
        let multipliers = "a multiplier from 0 to 1e60 for each unit type, or none";
        for (i, cell) in self.of.cells.iter().enumerate() {
            let place = format!("cell {i}");
            let priced = cell.theta > 0.0 && cell.high.is_some();
            if !(cell.theta == 0.0 || priced && small(&cell.theta)) {
                return flaw(place, "a multiplier of seconds from 0 to 1e60", cell.theta);
            }
            let edges = [Some(cell.low), Some(cell.most_low), cell.high, cell.most_high];
            if edges.iter().flatten().any(bad) {
                return flaw(place, "edges from 0 to 1e60", format!("{edges:?}"));
            }
            if !right(&cell.prices) {
                return flaw(place, multipliers, format!("{:?}", cell.prices));
            }
        }
        for (i, level) in self.of.levels.iter().enumerate() {
            if !right(&level.prices) {
                return flaw(format!("level {i}"), multipliers, format!("{:?}", level.prices));
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

    fn slowest(&self) -> f64 {
        match self.p.semantics {
            Semantics::Stale => 1.0,
            Semantics::Synchronous { micro_batches } => micro_batches as f64 - 1.0,
        }
    }

    /// Every stage between two sets on every number of units of a type at every power.
    fn columns(&self) -> Result<Vec<Column>, Flaw> {
        let each: usize = self.p.units.iter().map(|unit| unit.count * unit.powers.len()).sum();
        let layers = self.p.layers.len() as u64;
        let types = self.p.units.len() as u64;
        let mut columns = Vec::new();
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
                if columns.len() + each > MOST_COLUMNS {
                    let expected = format!("at most {MOST_COLUMNS} stages on units");
                    return flaw("problem", expected, "more");
                }
                let stage: Vec<usize> =
                    (0..small.len()).filter(|&i| large[i] && !small[i]).collect();
                let inputs: usize = stage.iter().map(|&i| self.p.layers[i].inputs.len()).sum();
                let sums = (4 * types + 20).saturating_mul((stage.len() + inputs) as u64);
                self.spend(sums.saturating_add(40 * each as u64))?;
                self.on_units(&stage, [before, end], &mut columns);
            }
        }
        // What does not fit even as the last stage is in no plan.
        columns.retain(|column| !self.too_large(column, column.replicas));
        Ok(columns)
    }

    fn on_units(&self, layers: &[usize], [before, end]: [usize; 2], columns: &mut Vec<Column>) {
        let p = self.p;
        let of = |i: &usize| &p.layers[*i];
        let parameters = sum(layers.iter().map(|i| of(i).parameter_bytes));
        let own = sum(layers.iter().map(|i| of(i).output_bytes));
        let mut taken: Vec<usize> = layers.iter().flat_map(|i| of(i).inputs.clone()).collect();
        taken.sort_unstable();
        taken.dedup();
        let taken = taken.iter().filter(|i| layers.binary_search(i).is_err());
        let input = sum(taken.map(|i| of(i).output_bytes));
        for (unit, it) in p.units.iter().enumerate() {
            let work = sum(layers.iter().map(|i| of(i).seconds[unit]));
            for replicas in 1..=it.count {
                for power in &it.powers {
                    let r = replicas as f64;
                    let compute = work / power.speed / r;
                    let summed = 4.0 * (r - 1.0) * parameters / r;
                    let gradients = summed * it.reduce.seconds_per_byte;
                    let feeding = 2.0 * input * it.input.seconds_per_byte / r;
                    let (sum, most, held) = match p.semantics {
                        Semantics::Stale => (0.0, (compute + gradients / r).max(feeding), 1.0),
                        Semantics::Synchronous { micro_batches } => {
                            let m = micro_batches as f64;
                            ((compute + feeding) / m + gradients, compute.max(feeding) / m, r)
                        }
                    };
                    let joules = r * compute * (power.busy_watts - it.idle_watts)
                        + it.input.joules_per_byte * 2.0 * input
                        + it.reduce.joules_per_byte * summed;
                    columns.push(Column {
                        before,
                        end,
                        unit,
                        replicas,
                        sum: down(sum),
                        most: down(most),
                        joules: down(joules),
                        parameters: down(parameters),
                        activations: down((own + input) / held),
                    });
                }
            }
        }
    }

    /// Bytes on each unit of a stage, rounded down.
    fn memory(&self, column: &Column, units: usize, stages: usize) -> f64 {
        down(match self.p.semantics {
            Semantics::Stale => {
                let batches = units.div_ceil(column.replicas) as f64;
                column.parameters * (batches + 1.0) + column.activations * batches
            }
            Semantics::Synchronous { micro_batches } => {
                let part = stages.min(micro_batches) as f64 / micro_batches as f64;
                2.0 * column.parameters + column.activations * part
            }
        })
    }

    /// Whether a stage does not fit, even as the last one.
    fn too_large(&self, column: &Column, units: usize) -> bool {
        self.memory(column, units, 1) > self.p.units[column.unit].memory_bytes
    }

    fn used(&self, index: usize, unit: usize) -> usize {
        index / self.strides[unit] % (self.p.units[unit].count + 1)
    }
}
