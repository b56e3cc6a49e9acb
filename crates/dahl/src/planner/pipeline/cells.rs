//! What plans of an interval of the period take at least: potentials.
//!
//! A cell is an interval [low, high) of the period. Plans in it have only columns that
//! take less than `high` alone, and pay idle watts for `low` seconds or more. So the
//! least of Σ joules + idle watts · `low` over all ways to do the first layers with the
//! units that are left bounds what a half-made plan will cost: one number for each set
//! of layers and each combination of units in use, from small sets to large ones.
//!
//! Where that is too many numbers, units get a price instead (Lagrange): a number for
//! each set and one for each unit type.

use super::cost::Column;
use super::table::Table;

/// What it takes at least to do the layers of a set.
#[derive(Clone, Debug)]
pub(super) enum Potential {
    /// By set and combination of units that are used by later stages; idle watts of all
    /// units are in it.
    Full(Vec<f64>),
    /// By set, with a price for each unit of a type.
    Priced {
        by_set: Vec<f64>,
        prices: Vec<f64>,
    },
}

/// An interval of the period.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) potential: Potential,
}

impl Table<'_> {
    /// Idle watts by combination.
    pub(super) fn idle(&self) -> Vec<f64> {
        let used = (0..self.lattice.size).map(|n| self.lattice.all_used(n));
        used.map(|used| self.problem.idle_watts(&used)).collect()
    }

    /// Calls with the columns that may matter in a cell: of the same layers on the same
    /// unit type, more units only where they save joules.
    pub(super) fn each_useful(&self, end: usize, high: f64, mut call: impl FnMut(&Column)) {
        let mut group = (u32::MAX, u8::MAX);
        let mut least = f64::INFINITY;
        let mut best: Option<&Column> = None;
        for column in &self.ending[end] {
            if (column.before, column.unit) != group {
                group = (column.before, column.unit);
                least = f64::INFINITY;
            }
            // Powers of as many units lie together: the cheapest that is fast enough.
            if let Some(last) = best
                && (last.before, last.unit, last.replicas)
                    != (column.before, column.unit, column.replicas)
            {
                call(last);
                best = None;
            }
            if self.alone(column) < high && column.joules < least {
                least = column.joules;
                best = Some(column);
            }
        }
        if let Some(last) = best {
            call(last);
        }
    }

    /// The potentials of the interval [low, high), by set and combination.
    pub(super) fn full(&self, idle: &[f64], low: f64, high: f64) -> Cell {
        let size = self.lattice.size;
        let cost = |column: &Column| column.joules;
        let first: Vec<f64> = idle.iter().map(|watts| watts * low).collect();
        Cell { low, high, potential: Potential::Full(self.sweep(first, size, high, cost)) }
    }

    /// The least sum of the seconds that add up, by set and combination.
    pub(super) fn sums(&self) -> Vec<f64> {
        let size = self.lattice.size;
        let mut all = vec![0.0; size];
        for end in 1..self.sets() {
            all.resize((end + 1) * size, f64::INFINITY);
            let (before, here) = all.split_at_mut(end * size);
            for column in &self.ending[end] {
                self.relax(before, here, column, column.sum);
            }
        }
        all
    }

    fn sweep(&self, first: Vec<f64>, size: usize, high: f64, cost: impl Fn(&Column) -> f64) -> Vec<f64> {
        let mut all = first;
        for end in 1..self.sets() {
            all.resize((end + 1) * size, f64::INFINITY);
            let (before, here) = all.split_at_mut(end * size);
            self.each_useful(end, high, |column| self.relax(before, here, column, cost(column)));
        }
        all
    }

    /// Takes a column into account wherever its units are free.
    fn relax(&self, before: &[f64], here: &mut [f64], column: &Column, cost: f64) {
        let (unit, r) = (column.unit as usize, column.replicas as usize);
        let size = self.lattice.size;
        let from = &before[column.before as usize * size..][..size];
        let step = r * self.lattice.strides[unit];
        self.lattice.ranges(unit, r, |first, length| {
            let source = &from[first + step..][..length];
            for (best, x) in here[first..][..length].iter_mut().zip(source) {
                let through = cost + x;
                if through < *best {
                    *best = through;
                }
            }
        });
    }

    /// Watts of a unit that is used, with its part of a machine that is full.
    pub(super) fn unit_watts(&self, unit: usize) -> f64 {
        let of = &self.problem.units[unit];
        let sharing = self.problem.units.iter().filter(|other| other.node == of.node).count();
        let base = self.problem.nodes[of.node].base_watts;
        of.idle_watts + base / (of.per_node * sharing) as f64
    }

    /// The potentials of an interval by set, with prices of units that make the bound of
    /// all plans large; what is known of a good plan sets the length of their steps.
    pub(super) fn priced(&self, low: f64, high: f64, aim: f64, rounds: usize) -> Cell {
        let types = self.lattice.counts.len();
        let end = self.sets() - 1;
        let columns: Vec<Vec<Column>> = (0..=end)
            .map(|end| {
                let mut of = Vec::new();
                self.each_useful(end, high, |column| of.push(*column));
                of
            })
            .collect();
        let watts: Vec<f64> = (0..types).map(|unit| self.unit_watts(unit)).collect();
        let mut prices = vec![0.0; types];
        let mut best: Option<(f64, Vec<f64>, Vec<f64>)> = None;
        let mut stride = 1.0;
        for round in 0..rounds.max(1) {
            let (by_set, used) = self.shortest(&columns, |column| {
                let unit = column.unit as usize;
                column.joules + column.replicas as f64 * (watts[unit] * low + prices[unit])
            });
            let paid: f64 = prices.iter().zip(&self.lattice.counts).map(|(p, c)| p * *c as f64).sum();
            let bound = by_set[end] - paid;
            if best.as_ref().is_none_or(|(known, ..)| bound > *known) {
                best = Some((bound, by_set, prices.clone()));
            } else if round % 4 == 3 {
                stride *= 0.7;
            }
            if !bound.is_finite() {
                break;
            }
            // Along what is used beyond what there is (a subgradient), as far as would
            // reach the aim (Polyak 1969).
            let over: Vec<f64> =
                used.iter().zip(&self.lattice.counts).map(|(u, c)| *u as f64 - *c as f64).collect();
            let free = |i: usize| over[i] > 0.0 || prices[i] > 0.0;
            let norm: f64 = (0..types).filter(|&i| free(i)).map(|i| over[i] * over[i]).sum();
            if norm == 0.0 {
                break;
            }
            let missing = if aim.is_finite() { (aim - bound).max(0.01 * aim.abs()) } else { bound.abs().max(1e-9) };
            for i in 0..types {
                prices[i] = (prices[i] + stride * missing * over[i] / norm).max(0.0);
            }
        }
        let (_, by_set, prices) = best.expect("at least one round");
        Cell { low, high, potential: Potential::Priced { by_set, prices } }
    }

    /// The least cost of each set, and the units that the one of all layers uses.
    fn shortest(&self, columns: &[Vec<Column>], cost: impl Fn(&Column) -> f64) -> (Vec<f64>, Vec<usize>) {
        let mut least = vec![f64::INFINITY; columns.len()];
        let mut through: Vec<Option<Column>> = vec![None; columns.len()];
        least[0] = 0.0;
        for (end, of) in columns.iter().enumerate().skip(1) {
            for column in of {
                let total = cost(column) + least[column.before as usize];
                if total < least[end] {
                    least[end] = total;
                    through[end] = Some(*column);
                }
            }
        }
        let mut used = vec![0; self.lattice.counts.len()];
        let mut at = columns.len() - 1;
        while let Some(column) = through[at] {
            used[column.unit as usize] += column.replicas as usize;
            at = column.before as usize;
        }
        (least, used)
    }
}
