//! Potentials: what the rest of a partial plan takes at least, in each cell and level. Those computed
//! here, from small sets to large ones, are the largest that hold: a certificate lists none.

use super::cost::StageOption;
use super::{Checker, ROUNDING, down};
use crate::Flaw;
use crate::certificate::CellProof;

impl Checker<'_> {
    /// Computes all potentials; how many inequalities that took.
    pub(super) fn potentials(&mut self, options: &[StageOption]) -> Result<u64, Flaw> {
        let (of, mut checked) = (self.of, 0);
        for cell in &of.cells {
            let high = cell.high.unwrap_or(f64::INFINITY);
            let most_high = cell.most_high.unwrap_or(f64::INFINITY);
            let cost = |option: &StageOption| {
                let alone = down(option.sum + self.slowest() * option.most);
                let fast = alone < high && option.most < most_high;
                fast.then(|| down(option.joules + down(cell.theta * option.sum)))
            };
            let watts = |unit: usize| self.unit_watts[unit] * cell.low;
            let potential = match &cell.multipliers[..] {
                [] => {
                    let start = self.idle.iter().map(|watts| down(watts * cell.low));
                    self.by_units(options, start.collect(), &cost, &mut checked)?
                }
                multipliers => {
                    let each = |unit: usize| watts(unit) + multipliers[unit];
                    self.by_set(options, &each, &cost, &mut checked)?
                }
            };
            self.cells.push(potential);
        }
        for level in &of.levels {
            let most_high = level.most_high.unwrap_or(f64::INFINITY);
            let cost = |option: &StageOption| (option.most < most_high).then_some(option.sum);
            let potential = match &level.multipliers[..] {
                [] => self.by_units(options, vec![0.0; self.size], &cost, &mut checked)?,
                multipliers => {
                    self.by_set(options, &|unit| multipliers[unit], &cost, &mut checked)?
                }
            };
            self.levels.push(potential);
        }
        Ok(checked)
    }

    /// The same for proofs whose potentials all have multipliers, stage by stage: what a stage costs
    /// on units is not kept.
    pub(super) fn streamed(&mut self) -> Result<u64, Flaw> {
        let (of, sets) = (self.of, self.of.sets.len());
        let start = |n: usize| vec![[&[0.0][..], &vec![f64::INFINITY; sets - 1]].concat(); n];
        let (mut cells, mut levels) = (start(of.cells.len()), start(of.levels.len()));
        // What units cost beside what stages do.
        let paid = |cell: &CellProof| -> Vec<f64> {
            let watts = self.unit_watts.iter().map(|watts| watts * cell.low);
            watts.zip(&cell.multipliers).map(|(watts, each)| watts + each).collect()
        };
        let paid: Vec<Vec<f64>> = of.cells.iter().map(paid).collect();
        let (mut checked, mut options) = (0, Vec::new());
        let slowest = self.slowest();
        let all = (of.cells.len() + of.levels.len()) as u64;
        self.each_stage(|stage, [before, end]| {
            options.clear();
            self.on_units(stage, [before, end], &mut options);
            options.retain(|option| !self.too_large(option, option.replicas));
            self.spend(4 * all * options.len() as u64)?;
            checked += all * options.len() as u64;
            for ((cell, paid), known) in of.cells.iter().zip(&paid).zip(&mut cells) {
                let high = cell.high.unwrap_or(f64::INFINITY);
                let most_high = cell.most_high.unwrap_or(f64::INFINITY);
                let mut least = f64::INFINITY;
                for option in &options {
                    let alone = down(option.sum + slowest * option.most);
                    if alone < high && option.most < most_high {
                        let cost = down(option.joules + down(cell.theta * option.sum));
                        least = least.min(cost + option.replicas as f64 * paid[option.unit]);
                    }
                }
                known[end] = known[end].min(down(known[before] + down(least)));
            }
            for (level, known) in of.levels.iter().zip(&mut levels) {
                let most_high = level.most_high.unwrap_or(f64::INFINITY);
                let mut least = f64::INFINITY;
                for option in options.iter().filter(|option| option.most < most_high) {
                    let each = level.multipliers[option.unit];
                    least = least.min(option.sum + option.replicas as f64 * each);
                }
                known[end] = known[end].min(down(known[before] + down(least)));
            }
            Ok(())
        })?;
        (self.cells, self.levels) = (cells, levels);
        Ok(checked)
    }

    /// One number for each set; units cost `each` beside what stage options do.
    fn by_set(
        &self,
        options: &[StageOption],
        each: &dyn Fn(usize) -> f64,
        cost: &dyn Fn(&StageOption) -> Option<f64>,
        checked: &mut u64,
    ) -> Result<Vec<f64>, Flaw> {
        self.spend((self.of.sets.len() + 10 * options.len()) as u64)?;
        let mut all = vec![f64::INFINITY; self.of.sets.len()];
        all[0] = 0.0;
        for option in options {
            let Some(cost) = cost(option) else { continue };
            let paid = down(cost + option.replicas as f64 * each(option.unit));
            *checked += 1;
            all[option.end] = all[option.end].min(down(all[option.before] + paid));
        }
        Ok(all)
    }

    /// One number for each set and combination of units; `start` are those of the empty set.
    ///
    /// The more units are in use the larger a potential is. So of stage options of one stage on one
    /// type, one with more units and no smaller cost says nothing, if the other one always fits.
    fn by_units(
        &self,
        options: &[StageOption],
        start: Vec<f64>,
        cost: &dyn Fn(&StageOption) -> Option<f64>,
        checked: &mut u64,
    ) -> Result<Vec<f64>, Flaw> {
        self.spend((self.size * self.of.sets.len() + 20 * options.len()) as u64)?;
        let mut all = start;
        all.resize(self.size * self.of.sets.len(), f64::INFINITY);
        let on = |option: &StageOption| (option.end, option.before, option.unit);
        for stage in options.chunk_by(|a, b| on(a) == on(b)) {
            let mut least = f64::INFINITY;
            for powers in stage.chunk_by(|a, b| a.replicas == b.replicas) {
                let option = &powers[0];
                let Some(cost) = powers.iter().filter_map(cost).min_by(f64::total_cmp) else {
                    continue;
                };
                if cost >= least {
                    continue;
                }
                let most_units = self.most_units(option);
                if most_units == self.all_units() {
                    least = cost;
                }
                *checked += self.relax(&mut all, option, cost, most_units)?;
            }
        }
        Ok(all)
    }

    /// Takes a stage option into account at all combinations of units; how many these are.
    fn relax(
        &self,
        all: &mut [f64],
        option: &StageOption,
        cost: f64,
        most_units: usize,
    ) -> Result<u64, Flaw> {
        let size = self.size;
        let (before, here) = all.split_at_mut(option.end * size);
        let before = &before[option.before * size..][..size];
        let stride = self.strides[option.unit];
        let count = self.p.units[option.unit].count;
        let (step, block) = (option.replicas * stride, (count + 1) * stride);
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
                if through < *best && self.units(first + n) + option.replicas <= most_units {
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
    fn most_units(&self, option: &StageOption) -> usize {
        let (mut fits, mut too_many) = (option.replicas, self.all_units() + 1);
        while too_many - fits > 1 {
            let middle = fits.midpoint(too_many);
            if self.too_large(option, middle) { too_many = middle } else { fits = middle }
        }
        fits
    }
}
