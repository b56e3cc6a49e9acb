//! Checks certificates. This module knows nothing of how plans are found: it takes the data
//! types and the documented formulas (docs/planner.md), and every rounding goes against
//! the claim. Potentials are checked here, labels in `labels.rs`, the plan in `plan.rs`.
//!
//! The claim: no plan whose stages are differences of the listed sets of layers, with
//! units of one type a stage, has an objective below `value`.
//!
//! The proof: half-made plans (labels) that begin at the last layer. The empty one is
//! listed; whatever stage is put before a listed one gives a half-made plan than which a
//! listed one is as good in everything, or that cannot become better than the claim. The
//! latter is shown by potentials of intervals of the period (cells), each of them right by
//! one inequality a column.

mod labels;
mod plan;

use super::proof::{CellProof, Certificate};
use super::types::{Problem, Semantics, UnitType};

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

/// More would not be checked in a day.
const MOST_COLUMNS: usize = 20_000_000;

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
pub fn certify(of: &Certificate) -> Result<u64, Flaw> {
    let checker = Checker::new(of)?;
    checker.plan()?;
    let columns = checker.columns()?;
    let mut checked = 0;
    checked += checker.potentials(&columns)?;
    checked += checker.labels(&columns)?;
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
}

impl<'a> Checker<'a> {
    fn new(of: &'a Certificate) -> Result<Self, Flaw> {
        if of.dahl_certificate != 1 {
            return flaw("dahl_certificate", 1, of.dahl_certificate);
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
        let full = of.cells.iter().any(|cell| !cell.joules.is_empty())
            || of.levels.iter().any(|level| !level.sums.is_empty());
        let numbers = size.saturating_mul(of.sets.len());
        if full && numbers > 1 << 28 {
            return flaw("problem", "at most 2^28 states", numbers);
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
        let idle = match full {
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
        let checker = Self { of, p, size, strides, idle, unit_watts, inside };
        checker.cells()?;
        Ok(checker)
    }

    /// Cells cover all periods and slowest stages, and have as many numbers as they should.
    fn cells(&self) -> Result<(), Flaw> {
        let (sets, types) = (self.of.sets.len(), self.p.units.len());
        let states = self.size.saturating_mul(sets);
        let right = |numbers: [usize; 3]| numbers == [states, 0, 0] || numbers == [0, sets, types];
        let bad = |price: &f64| !small(price) || *price < 0.0;
        let large = |all: &[Option<f64>]| all.iter().flatten().any(|x| !small(x));
        for (i, cell) in self.of.cells.iter().enumerate() {
            let place = format!("cell {i}");
            let priced = cell.theta > 0.0 && cell.high.is_some();
            if !(cell.theta == 0.0 || priced && small(&cell.theta)) {
                return flaw(place, "a price of seconds that is not negative", cell.theta);
            }
            let edges = [Some(cell.low), Some(cell.most_low), cell.high, cell.most_high];
            if edges.iter().flatten().any(bad) {
                return flaw(place, "edges from 0 to 1e60", format!("{edges:?}"));
            }
            if large(&cell.joules) || large(&cell.by_set) {
                return flaw(place, "potentials from -1e60 to 1e60", "larger ones");
            }
            let numbers = [cell.joules.len(), cell.by_set.len(), cell.prices.len()];
            if !right(numbers) {
                return flaw(place, "a number for each state", format!("{numbers:?}"));
            }
            if cell.prices.iter().any(bad) {
                return flaw(place, "prices that are not negative", format!("{:?}", cell.prices));
            }
        }
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
        let all = self.of.levels.iter().all(|level| {
            right([level.sums.len(), level.by_set.len(), level.prices.len()])
                && !level.prices.iter().any(bad)
                && !large(&level.sums)
                && !large(&level.by_set)
        });
        let ends = self.of.levels.last().is_none_or(|level| level.most_high.is_none());
        if !all || !ends || !edges.is_sorted() {
            return flaw(
                "levels",
                "a number for each state, from fast stages to all",
                self.of.levels.len(),
            );
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
        let mut columns = Vec::new();
        for end in 0..self.inside.len() {
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
                let layers: Vec<usize> =
                    (0..small.len()).filter(|&i| large[i] && !small[i]).collect();
                self.on_units(&layers, [before, end], &mut columns);
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

    /// Every potential is at most what each column leads to.
    fn potentials(&self, columns: &[Column]) -> Result<u64, Flaw> {
        let mut checked = 0;
        let value = |x: &Option<f64>| x.unwrap_or(f64::INFINITY);
        let size = self.size;
        for (c, cell) in self.of.cells.iter().enumerate() {
            let high = cell.high.unwrap_or(f64::INFINITY);
            let most_high = cell.most_high.unwrap_or(f64::INFINITY);
            let allowed = |column: &&Column| {
                down(column.sum + self.slowest() * column.most) < high && column.most < most_high
            };
            let cost = |column: &Column| down(column.joules + down(cell.theta * column.sum));
            let wrong = |set: usize, at: usize| {
                flaw(
                    format!("cell {c}, set {set}, units {at}"),
                    "no more than a column leads to",
                    "more",
                )
            };
            if cell.joules.is_empty() {
                if value(&cell.by_set[0]) > 0.0 {
                    return wrong(0, 0);
                }
                for column in columns.iter().filter(allowed) {
                    let each = self.unit_watts[column.unit] * cell.low + cell.prices[column.unit];
                    let through = value(&cell.by_set[column.before])
                        + down(cost(column) + column.replicas as f64 * each);
                    checked += 1;
                    if value(&cell.by_set[column.end]) > down(through) {
                        return wrong(column.end, 0);
                    }
                }
                continue;
            }
            for n in 0..size {
                if value(&cell.joules[n]) > down(self.idle[n] * cell.low) {
                    return wrong(0, n);
                }
            }
            for column in columns.iter().filter(allowed) {
                checked += self
                    .inequalities(&cell.joules, column, cost(column))
                    .or_else(|n| wrong(column.end, n))?;
            }
        }
        for (l, level) in self.of.levels.iter().enumerate() {
            let wrong = |set: usize, n: usize| {
                let place = format!("level {l}, set {set}, units {n}");
                flaw(place, "no more than a column leads to", "more")
            };
            let most_high = level.most_high.unwrap_or(f64::INFINITY);
            let columns = columns.iter().filter(|column| column.most < most_high);
            if level.sums.is_empty() {
                if value(&level.by_set[0]) > 0.0 {
                    return wrong(0, 0);
                }
                for column in columns {
                    let paid = column.replicas as f64 * level.prices[column.unit];
                    let through = value(&level.by_set[column.before]) + down(column.sum + paid);
                    checked += 1;
                    if value(&level.by_set[column.end]) > down(through) {
                        return wrong(column.end, 0);
                    }
                }
                continue;
            }
            if let Some(n) = (0..size).find(|&n| value(&level.sums[n]) > 0.0) {
                return wrong(0, n);
            }
            for column in columns {
                let sums = self.inequalities(&level.sums, column, column.sum);
                checked += sums.or_else(|n| wrong(column.end, n))?;
            }
        }
        Ok(checked)
    }

    /// One column at all combinations of units; else the first that is wrong.
    fn inequalities(
        &self,
        potential: &[Option<f64>],
        column: &Column,
        cost: f64,
    ) -> Result<u64, usize> {
        let size = self.size;
        let here = &potential[column.end * size..][..size];
        let before = &potential[column.before * size..][..size];
        let step = column.replicas * self.strides[column.unit];
        let most = self.p.units[column.unit].count - column.replicas;
        let mut checked = 0;
        for n in 0..size {
            if self.used(n, column.unit) > most {
                continue;
            }
            let units: usize = (0..self.p.units.len()).map(|unit| self.used(n, unit)).sum();
            if self.too_large(column, units + column.replicas) {
                continue;
            }
            checked += 1;
            let through = before[n + step].unwrap_or(f64::INFINITY);
            if here[n].unwrap_or(f64::INFINITY) > down(through + cost) {
                return Err(n);
            }
        }
        Ok(checked)
    }
}
