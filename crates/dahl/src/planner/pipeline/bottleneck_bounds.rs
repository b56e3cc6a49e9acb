//! Levels: the least seconds that add up, for slowest stages (bottlenecks) from fast to slow.
//!
//! The interval that leaves most open is split where the plan that it leads to has its slowest
//! stage: behind that place it is the best, and before it is no longer there.

use super::cells::{ASIDE, Level, Potential};
use super::cost::StageOption;
use super::refine::{Cover, MOST_NUMBERS};
use super::solve::Limits;

/// As many intervals at the most.
const MOST: usize = 96;
/// The part of the time after which levels of families are no longer split.
const LEVELS_END: f64 = 0.7;

impl Cover<'_> {
    /// Splits intervals until the fastest plan is known, or there are as many as may be.
    pub(super) fn make_levels(&mut self, limits: &Limits<'_>) {
        if !self.table.adds_up {
            return;
        }
        let first = self.level(f64::INFINITY, 0.0, None);
        let most = match self.full {
            true => (MOST_NUMBERS / first.0.potential.len().max(1)).clamp(4, MOST),
            // Each takes its time when a proof is checked.
            false if self.table.families.is_some() => MOST / 2,
            false => MOST / 4,
        };
        let mut open = vec![first];
        let mut stopped = (limits.stop)();
        while open.len() < most && !stopped {
            let fastest = self.front.plans().first().map_or(f64::INFINITY, |plan| plan.period_s);
            let edge = |i: usize| if i == 0 { 0.0 } else { open[i - 1].0.most_high };
            let seconds = |i: usize| open[i].0.least(self.table) + self.table.slowest * edge(i);
            let order = |a: &usize, b: &usize| seconds(*a).total_cmp(&seconds(*b));
            let Some(worst) = (0..open.len()).min_by(order) else { break };
            if seconds(worst) >= fastest * (1.0 - 2.0 * ASIDE) {
                break;
            }
            let (low, high) = (edge(worst), open[worst].0.most_high);
            // Relaxed plans may say nothing of a place inside. No stage of a plan that is faster
            // than a known one is slower than this.
            let most = fastest / self.table.slowest;
            let half = match high.is_finite() {
                true => (high > 1.002 * low).then_some(low + 0.5 * (high - low)),
                false => Some(most).filter(|most| most.is_finite() && *most > 1.002 * low),
            };
            let half = half.filter(|_| !self.full);
            let Some(middle) = split(low, high, open[worst].1).or(half) else { break };
            let like = open[worst].0.potential.clone();
            let new = self.level(middle, low, Some(&like));
            // What was the best of a wider interval may be better with the multipliers of its half.
            if !self.full {
                let upper = self.level(high, middle, Some(&new.0.potential));
                if upper.0.least(self.table) > open[worst].0.least(self.table) {
                    open[worst] = upper;
                }
            }
            open.insert(worst, new);
            let families = self.table.families.is_some();
            stopped = (limits.stop)() || families && (limits.used)() >= LEVELS_END;
        }
        self.levels = open.into_iter().map(|(level, _)| level).collect();
    }

    /// One level, with the slowest stage of the plan that it leads to, which joins the front. It is
    /// wanted for slowest stages from `low` on, and is much like another.
    fn level(
        &mut self,
        most_high: f64,
        low: f64,
        like: Option<&Potential>,
    ) -> (Level, Option<f64>) {
        let potential = match self.full {
            true => self.table.sums(most_high),
            false => {
                let fastest = self.front.plans().first().map(|plan| plan.period_s);
                let aim = fastest.map(|seconds| seconds - self.table.slowest * low);
                self.table.lagrangian_sums(most_high, aim.filter(|aim| *aim > 0.0), like)
            }
        };
        let level = Level { most_high, potential };
        let path = self.table.path_of_sums(&level);
        let slowest = path.as_ref().map(|path| slowest(path));
        if let Some(path) = path {
            self.meet(path);
        }
        (level, slowest)
    }

    /// Seconds that plans take at least whose slowest stage takes so long.
    pub(super) fn seconds(&self, most_low: f64, most_high: f64) -> f64 {
        let mut edge = 0.0f64;
        let mut least = if self.levels.is_empty() { 0.0 } else { f64::INFINITY };
        for level in &self.levels {
            if level.most_high > most_low && edge < most_high {
                let seconds = level.least(self.table) + self.table.slowest * edge.max(most_low);
                least = least.min(seconds);
            }
            edge = level.most_high;
        }
        least
    }
}

/// Where to split an interval of slowest stages, given that of the plan that it leads to.
fn split(low: f64, high: f64, at: Option<f64>) -> Option<f64> {
    let at = at.or(Some(high).filter(|high| high.is_finite()))? * (1.0 - ASIDE);
    // Halves, rather than slices from the end.
    let middle = if high.is_finite() { at.min(low + 0.6 * (high - low)) } else { at };
    (middle > low * (1.0 + 1e-9) && middle < high && middle > 1e-300).then_some(middle)
}

/// Seconds of the slowest stage.
pub(super) fn slowest(path: &[(usize, StageOption)]) -> f64 {
    path.iter().map(|(_, option)| option.most).fold(0.0, f64::max)
}
