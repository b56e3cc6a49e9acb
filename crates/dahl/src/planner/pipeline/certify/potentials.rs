//! What the rest of a half-made plan takes at least, in each cell and level.
//!
//! A potential is right if, for each column and each combination of units that leaves enough
//! free, that of the set behind the column is at most that of the set before it + what the column
//! costs. Those computed here, from small sets to large ones, are the largest that are: so a
//! certificate lists none.

use super::{Checker, Column, Flaw, ROUNDING, down};

impl Checker<'_> {
    /// Computes all potentials; how many inequalities that took.
    pub(super) fn potentials(&mut self, columns: &[Column]) -> Result<u64, Flaw> {
        let (of, mut checked) = (self.of, 0);
        for cell in &of.cells {
            let high = cell.high.unwrap_or(f64::INFINITY);
            let most_high = cell.most_high.unwrap_or(f64::INFINITY);
            let cost = |column: &Column| {
                let alone = down(column.sum + self.slowest() * column.most);
                let fast = alone < high && column.most < most_high;
                fast.then(|| down(column.joules + down(cell.theta * column.sum)))
            };
            let watts = |unit: usize| self.unit_watts[unit] * cell.low;
            let potential = match &cell.prices[..] {
                [] => {
                    let start = self.idle.iter().map(|watts| down(watts * cell.low));
                    self.by_units(columns, start.collect(), &cost, &mut checked)?
                }
                prices => {
                    let each = |unit: usize| watts(unit) + prices[unit];
                    self.by_set(columns, &each, &cost, &mut checked)?
                }
            };
            self.cells.push(potential);
        }
        for level in &of.levels {
            let most_high = level.most_high.unwrap_or(f64::INFINITY);
            let cost = |column: &Column| (column.most < most_high).then_some(column.sum);
            let potential = match &level.prices[..] {
                [] => self.by_units(columns, vec![0.0; self.size], &cost, &mut checked)?,
                prices => self.by_set(columns, &|unit| prices[unit], &cost, &mut checked)?,
            };
            self.levels.push(potential);
        }
        Ok(checked)
    }

    /// One number for each set; units cost `each` beside what columns do.
    fn by_set(
        &self,
        columns: &[Column],
        each: &dyn Fn(usize) -> f64,
        cost: &dyn Fn(&Column) -> Option<f64>,
        checked: &mut u64,
    ) -> Result<Vec<f64>, Flaw> {
        self.spend((self.of.sets.len() + 10 * columns.len()) as u64)?;
        let mut all = vec![f64::INFINITY; self.of.sets.len()];
        all[0] = 0.0;
        for column in columns {
            let Some(cost) = cost(column) else { continue };
            let paid = down(cost + column.replicas as f64 * each(column.unit));
            *checked += 1;
            all[column.end] = all[column.end].min(down(all[column.before] + paid));
        }
        Ok(all)
    }

    /// One number for each set and combination of units; `start` are those of the empty set.
    ///
    /// The more units are in use the larger a potential is. So of columns of one stage on one
    /// type, one with more units and no smaller cost says nothing, if the other one always fits.
    fn by_units(
        &self,
        columns: &[Column],
        start: Vec<f64>,
        cost: &dyn Fn(&Column) -> Option<f64>,
        checked: &mut u64,
    ) -> Result<Vec<f64>, Flaw> {
        self.spend((self.size * self.of.sets.len() + 20 * columns.len()) as u64)?;
        let mut all = start;
        all.resize(self.size * self.of.sets.len(), f64::INFINITY);
        let on = |column: &Column| (column.end, column.before, column.unit);
        for stage in columns.chunk_by(|a, b| on(a) == on(b)) {
            let mut least = f64::INFINITY;
            for powers in stage.chunk_by(|a, b| a.replicas == b.replicas) {
                let column = &powers[0];
                let Some(cost) = powers.iter().filter_map(cost).min_by(f64::total_cmp) else {
                    continue;
                };
                if cost >= least {
                    continue;
                }
                let most_units = self.most_units(column);
                if most_units == self.all_units() {
                    least = cost;
                }
                *checked += self.relax(&mut all, column, cost, most_units)?;
            }
        }
        Ok(all)
    }

    /// Takes a column into account at all combinations of units; how many these are.
    fn relax(
        &self,
        all: &mut [f64],
        column: &Column,
        cost: f64,
        most_units: usize,
    ) -> Result<u64, Flaw> {
        let size = self.size;
        let (before, here) = all.split_at_mut(column.end * size);
        let before = &before[column.before * size..][..size];
        let stride = self.strides[column.unit];
        let count = self.p.units[column.unit].count;
        let (step, block) = (column.replicas * stride, (count + 1) * stride);
        // Combinations that leave enough units free lie together.
        let length = block - step;
        let combinations = (size / block * length) as u64;
        let always_fits = most_units == self.all_units();
        // Where it does not always fit, the units of combinations are counted one by one.
        let each = if always_fits { 1 } else { 2 + 8 * self.p.units.len() as u64 };
        self.spend(combinations.saturating_mul(each))?;
        // Not a number, and so not less, where there is no way.
        let through = |x: &f64| (x + cost) - (x + cost).abs() * ROUNDING;
        for first in (0..size).step_by(block) {
            let from = &before[first + step..][..length];
            let here = here[first..][..length].iter_mut().zip(from.iter().map(through));
            if always_fits {
                here.for_each(|(best, through)| {
                    *best = if through < *best { through } else { *best }
                });
                continue;
            }
            for (n, (best, through)) in here.enumerate() {
                if through < *best && self.units(first + n) + column.replicas <= most_units {
                    *best = through;
                }
            }
        }
        Ok(combinations)
    }

    /// All units that there are.
    fn all_units(&self) -> usize {
        self.p.units.iter().map(|unit| unit.count).sum()
    }

    /// Units in use in a combination.
    pub(super) fn units(&self, index: usize) -> usize {
        (0..self.p.units.len()).map(|unit| self.used(index, unit)).sum()
    }

    /// With how many units in use from a stage on it still fits: the more, the more it holds.
    fn most_units(&self, column: &Column) -> usize {
        let (mut fits, mut too_many) = (column.replicas, self.all_units() + 1);
        while too_many - fits > 1 {
            let middle = fits.midpoint(too_many);
            if self.too_large(column, middle) { too_many = middle } else { fits = middle }
        }
        fits
    }
}
