//! Potentials of sets of layers with prices of units, where combinations are too many.

use super::cells::{Cell, Potential, Range};
use super::cost::Column;
use super::table::Table;

/// Rounds in which prices are looked for.
const ROUNDS: usize = 80;

impl Table<'_> {
    /// The columns of a cell with their costs, by set.
    fn useful(&self, range: &Range) -> Vec<Vec<(Column, f64)>> {
        let of = |end: usize| {
            let mut all = Vec::new();
            self.each_useful(end, range, |column, cost| all.push((*column, cost)));
            all
        };
        (0..self.sets()).map(of).collect()
    }

    /// The potentials of a cell by set, with prices of units that make the bound of all
    /// plans large; what is known of a good plan sets the length of the first steps.
    pub(super) fn priced(&self, range: Range, aim: f64) -> Cell {
        let types = self.lattice.counts.len();
        let end = self.sets() - 1;
        let columns = self.useful(&range);
        let watts: Vec<f64> = (0..types).map(|unit| self.unit_watts(unit)).collect();
        let counts: Vec<f64> = self.lattice.counts.iter().map(|&c| c as f64).collect();
        let mut prices = vec![0.0; types];
        let mut best: Option<(f64, Vec<f64>, Vec<f64>)> = None;
        let (mut stride, mut since) = (1.0, 0);
        for _ in 0..ROUNDS {
            let (by_set, used) = self.shortest(&columns, |column, cost| {
                let unit = column.unit as usize;
                cost + column.replicas as f64 * (watts[unit] * range.low + prices[unit])
            });
            let paid: f64 = prices.iter().zip(&counts).map(|(p, c)| p * c).sum();
            let bound = by_set[end] - paid;
            if best.as_ref().is_none_or(|(known, ..)| bound > *known) {
                best = Some((bound, by_set, prices.clone()));
                since = 0;
            } else {
                since += 1;
                if since % 4 == 0 {
                    stride *= 0.6;
                    // From the best prices again.
                    prices = best.as_ref().map_or(prices, |(_, _, known)| known.clone());
                }
            }
            if !bound.is_finite() {
                break;
            }
            // Along what is used beyond what there is (a subgradient), as far as would
            // reach the aim (Polyak 1969).
            let over: Vec<f64> = used.iter().zip(&counts).map(|(u, c)| *u as f64 - c).collect();
            let free = |i: usize| over[i] > 0.0 || prices[i] > 0.0;
            let norm: f64 = (0..types).filter(|&i| free(i)).map(|i| over[i] * over[i]).sum();
            if norm == 0.0 || stride < 1e-4 {
                break;
            }
            let missing = match aim.is_finite() {
                true => (aim - bound).max(0.01 * aim.abs()),
                false => bound.abs().max(1e-9),
            };
            for i in 0..types {
                prices[i] = (prices[i] + stride * missing * over[i] / norm).max(0.0);
            }
        }
        let (_, by_set, prices) = best.expect("at least one round");
        Cell { range, potential: Potential::Priced { by_set, prices } }
    }

    /// Prices that show that no plan is in a cell, if they are found: such that all units
    /// together cost less than what any plan needs (weights of Arora et al. 2012).
    pub(super) fn impossible(&self, range: Range) -> Option<Cell> {
        let columns = self.useful(&range);
        let end = self.sets() - 1;
        let counts: Vec<f64> = self.lattice.counts.iter().map(|&c| c.max(1) as f64).collect();
        let mut shares: Vec<f64> = counts.iter().map(|_| 1.0 / counts.len() as f64).collect();
        for round in 0..ROUNDS {
            let prices: Vec<f64> = shares.iter().zip(&counts).map(|(s, c)| s / c).collect();
            let each = |column: &Column, _| column.replicas as f64 * prices[column.unit as usize];
            let (by_set, used) = self.shortest(&columns, each);
            if by_set[end] > 1.0 + 1e-9 {
                // As large as no plan's energy is.
                let scale = 1e24 / (by_set[end] - 1.0).min(1e12);
                return Some(Cell {
                    range: Range { theta: 0.0, ..range },
                    potential: Potential::Priced {
                        by_set: by_set.iter().map(|x| x * scale).collect(),
                        prices: prices.iter().map(|x| x * scale).collect(),
                    },
                });
            }
            let rate = 1.0 / (1.0 + round as f64 / 8.0);
            for ((share, used), count) in shares.iter_mut().zip(used).zip(&counts) {
                *share *= (rate * (used as f64 / count - 1.0).clamp(-1.0, 1.0)).exp();
            }
            let all: f64 = shares.iter().sum();
            shares.iter_mut().for_each(|share| *share /= all);
        }
        None
    }

    /// The least cost of each set, and the units that the one of all layers uses.
    fn shortest(
        &self,
        columns: &[Vec<(Column, f64)>],
        cost: impl Fn(&Column, f64) -> f64,
    ) -> (Vec<f64>, Vec<usize>) {
        let mut least = vec![f64::INFINITY; columns.len()];
        let mut through: Vec<Option<Column>> = vec![None; columns.len()];
        least[0] = 0.0;
        for (end, of) in columns.iter().enumerate().skip(1) {
            for (column, own) in of {
                let total = cost(column, *own) + least[column.before as usize];
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
