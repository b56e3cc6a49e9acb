//! Partial plans: each leads to a listed one, or cannot become better than the claim.

use super::cost::{StageOption, idle_watts, value};
use super::{Checker, ROUNDING, down, small, up};
use crate::certificate::{LabelProof, LevelProof};
use crate::{Flaw, flaw};
use std::cell::OnceCell;
use std::collections::BTreeMap;

impl Checker<'_> {
    /// Whether a whole plan is better than the claim.
    fn better(&self, label: &LabelProof) -> bool {
        let p = self.p;
        let used = self.all_used(label.used);
        let watts = down(idle_watts(p, &used));
        let mut seconds = down(label.sum + self.slowest() * label.most);
        if let Some(cap) = p.power_cap {
            if cap <= watts {
                return false;
            }
            seconds = seconds.max(down(down(label.joules) / (cap - watts)));
        }
        let joules = down(label.joules + watts * seconds);
        let within = seconds <= p.period_cap.unwrap_or(f64::INFINITY);
        within && down(value(p.objective, seconds, joules)) < self.of.value
    }

    /// Whether a partial plan may become better than the claim.
    fn hopeful(&self, label: &LabelProof) -> bool {
        let p = self.p;
        if label.set == 0 {
            return self.better(label);
        }
        let used = self.all_used(label.used);
        let watts = down(idle_watts(p, &used));
        let parts = used.iter().zip(&self.unit_watts).map(|(n, watts)| *n as f64 * watts);
        let parts = down(parts.sum());
        let cap = p.period_cap.unwrap_or(f64::INFINITY);
        // Seconds that the rest adds at least, with the slowest stages that this is about;
        // few cells come so far.
        let levels = OnceCell::new();
        let with_levels = |most: f64, most_high: f64| {
            let levels = levels.get_or_init(|| self.levels(label, &used));
            self.count(4 * levels.len() as u64);
            let here = levels.iter().filter(|(low, high, _)| most < *high && *low < most_high);
            let seconds = here.map(|(low, _, left)| left + self.slowest() * most.max(*low));
            seconds.fold(f64::INFINITY, f64::min)
        };
        (0..self.of.cells.len()).any(|i| {
            let (cell, known) = (&self.of.cells[i], &self.cells[i]);
            let high = cell.high.unwrap_or(f64::INFINITY);
            let most = label.most.max(cell.most_low);
            let most_high = cell.most_high.unwrap_or(f64::INFINITY);
            let least = self.slowest() * most;
            let at = cell.low.max(down(label.sum + least));
            self.count(4);
            if at >= high || label.most >= most_high {
                return false;
            }
            self.count(20 + 4 * p.units.len() as u64);
            let beyond = match cell.theta > 0.0 {
                true => cell.theta * (down(label.sum + least) - high),
                false => 0.0,
            };
            let (watts, rest) = match cell.multipliers.is_empty() {
                true => (watts, known[label.set * self.size + label.used]),
                false => {
                    let done = down(known[label.set] + down(parts * cell.low));
                    (parts, done - self.paid(&cell.multipliers, &used))
                }
            };
            // Whether a plan of this cell that takes so long at least may be better; no if there
            // is no way to do the rest, or none that ends in time.
            let may_be = |at: f64| {
                if at >= high || rest == f64::INFINITY || at == f64::INFINITY {
                    return false;
                }
                let joules = label.joules + rest + beyond + down(watts * (at - cell.low));
                let joules = joules - (label.joules.abs() + rest.abs() + beyond.abs()) * ROUNDING;
                let waits = p.power_cap.map_or(0.0, |power| down(joules / power));
                let at = at.max(waits);
                if at >= high || at > cap || joules > self.most_joules[i] {
                    return false;
                }
                // Whatever is not known to be no better may be.
                let no_better = down(value(p.objective, at, joules)) >= self.of.value;
                !no_better
            };
            may_be(at)
                && (self.of.levels.is_empty()
                    || may_be(cell.low.max(down(label.sum + with_levels(most, most_high)))))
        })
    }

    /// Where levels begin and end, and the seconds that the rest of a partial plan adds at
    /// least by each.
    fn levels(&self, label: &LabelProof, used: &[usize]) -> Vec<(f64, f64, f64)> {
        let mut edge = 0.0;
        let of = |(level, known): (&LevelProof, &Vec<f64>)| {
            let low = edge;
            edge = level.most_high.unwrap_or(f64::INFINITY);
            let left = match level.multipliers.is_empty() {
                true => known[label.set * self.size + label.used],
                false => (down(known[label.set]) - self.paid(&level.multipliers, used)).max(0.0),
            };
            (low, edge, left)
        };
        self.of.levels.iter().zip(&self.levels).map(of).collect()
    }

    /// What units cost that are not in use, rounded up.
    fn paid(&self, multipliers: &[f64], used: &[usize]) -> f64 {
        let free = |unit: usize| (self.p.units[unit].count - used[unit]) as f64;
        up(multipliers.iter().enumerate().map(|(unit, multiplier)| multiplier * free(unit)).sum())
    }

    /// Partial plans lead to listed ones, or nowhere.
    pub(super) fn labels(&self, options: &[StageOption]) -> Result<u64, Flaw> {
        let sets = self.of.sets.len();
        let p_stages = self.p.layers.len();
        let mut by_state: BTreeMap<(usize, usize), Vec<LabelProof>> = Default::default();
        for label in &self.of.labels {
            if label.set >= sets || label.used >= self.size {
                return flaw("labels", "states of the problem", format!("{label:?}"));
            }
            let figures = [label.sum, label.most, label.joules];
            if !figures.iter().all(small) || label.stages > p_stages {
                return flaw(
                    "labels",
                    "seconds and joules from -1e60 to 1e60",
                    format!("{label:?}"),
                );
            }
            by_state.entry((label.set, label.used)).or_default().push(*label);
        }
        let start =
            LabelProof { set: sets - 1, used: 0, sum: 0.0, most: 0.0, joules: 0.0, stages: 0 };
        self.covered(&start, &by_state)?;
        let mut ending: Vec<Vec<&StageOption>> = vec![Vec::new(); sets];
        options.iter().for_each(|option| ending[option.end].push(option));
        let mut checked = 0;
        for label in &self.of.labels {
            self.spend(10 * ending[label.set].len() as u64)?;
            let units = self.units(label.used);
            for option in &ending[label.set] {
                let of = &self.p.units[option.unit];
                let free = of.count - self.used(label.used, option.unit);
                let stages = label.stages + 1;
                if option.replicas > free
                    || self.memory(option, units + option.replicas, stages) > of.memory_bytes
                {
                    continue;
                }
                checked += 1;
                let next = LabelProof {
                    set: option.before,
                    used: label.used + option.replicas * self.strides[option.unit],
                    sum: down(label.sum + option.sum),
                    most: label.most.max(option.most),
                    joules: down(label.joules + option.joules),
                    stages,
                };
                self.covered(&next, &by_state)?;
            }
        }
        Ok(checked)
    }

    fn covered(
        &self,
        label: &LabelProof,
        by_state: &BTreeMap<(usize, usize), Vec<LabelProof>>,
    ) -> Result<(), Flaw> {
        let as_good = |other: &LabelProof| {
            other.sum <= label.sum
                && other.most <= label.most
                && other.joules <= label.joules
                && other.stages <= label.stages
        };
        // What is whole is not covered by a list.
        let listed = by_state.get(&(label.set, label.used)).filter(|_| label.set > 0);
        self.spend((100 + 4 * listed.map_or(0, Vec::len)) as u64)?;
        if listed.is_some_and(|list| list.iter().any(as_good)) || !self.hopeful(label) {
            return Ok(());
        }
        flaw("labels", "one that is as good, or too little to become better", format!("{label:?}"))
    }
}
