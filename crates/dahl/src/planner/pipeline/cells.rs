//! Potentials: what plans of a cell take at least (README.md).
//!
//! A cell is an interval [low, high) of the period and one of the bottleneck. One number for each
//! set of layers and combination of units in use, or, with Lagrange multipliers, one for each set.

use super::cost::{StageOption, fits};
use super::families::Weights;
use super::stage_options::OptionTable;
use super::unit_counts::UnitCounts;

/// Edges of cells lie this much below plans, as a part: so much that no rounding, of a
/// certificate's labels neither, moves a plan over an edge.
pub(super) const ASIDE: f64 = 1e-9;

/// What it takes at least to do the layers of a set.
#[derive(Clone, Debug)]
pub(super) enum Potential {
    /// By set and combination of units that are used by later stages; idle watts of all
    /// units are in it.
    Full(Vec<f64>),
    /// By set, with a multiplier for each unit of a type.
    Lagrangian { by_set: Vec<f64>, multipliers: Vec<f64> },
}

impl Potential {
    /// Those of all sets and combinations, where each has one.
    pub(super) fn full(&self) -> Option<&[f64]> {
        match self {
            Self::Full(all) => Some(all),
            Self::Lagrangian { .. } => None,
        }
    }

    /// How many numbers it has.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Full(all) => all.len(),
            Self::Lagrangian { by_set, .. } => by_set.len(),
        }
    }

    /// That of a set when so many units are in use.
    pub(super) fn at(&self, unit_counts: &UnitCounts, set: usize, used: usize) -> f64 {
        match self {
            Self::Full(all) => all[set * unit_counts.size + used],
            Self::Lagrangian { .. } => {
                let counts = unit_counts.available.iter().enumerate();
                let free =
                    counts.map(|(unit, count)| (count - unit_counts.used(used, unit)) as f64);
                self.with_free(set, &free.collect::<Vec<f64>>())
            }
        }
    }

    /// That of a set when so many units are left, by type, where units have multipliers.
    pub(super) fn with_free(&self, set: usize, free: &[f64]) -> f64 {
        match self {
            Self::Full(_) => f64::NEG_INFINITY,
            Self::Lagrangian { by_set, multipliers } => {
                let paid = multipliers.iter().zip(free).map(|(multiplier, free)| multiplier * free);
                by_set[set] - paid.sum::<f64>()
            }
        }
    }
}

/// Intervals of the period and of the slowest stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) most_low: f64,
    pub(super) most_high: f64,
    /// Joules per second of what adds up.
    pub(super) theta: f64,
}

impl Range {
    /// All slowest stages, and no multiplier of seconds.
    pub(super) fn of(low: f64, high: f64) -> Self {
        Self { low, high, most_low: 0.0, most_high: f64::INFINITY, theta: 0.0 }
    }

    /// What the seconds that have added up say beyond the potential; nothing where they
    /// have no multiplier.
    pub(super) fn beyond(&self, sum: f64, slowest: f64, most: f64) -> f64 {
        match self.theta > 0.0 {
            true => self.theta * (sum + slowest * most.max(self.most_low) - self.high),
            false => 0.0,
        }
    }
}

/// The least seconds that add up of plans whose stages are all faster than this.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub(super) most_high: f64,
    pub(super) potential: Potential,
}

impl Level {
    /// What adds up at least in whole plans.
    pub(super) fn least(&self, table: &OptionTable<'_>) -> f64 {
        self.potential.at(&table.unit_counts, table.sets() - 1, 0)
    }
}

/// Potentials of such intervals.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) range: Range,
    pub(super) potential: Potential,
}

/// Whether it counts for memory how many stages follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    Ignored,
    Counted,
}

impl OptionTable<'_> {
    /// Idle watts by combination.
    pub(super) fn idle(&self) -> Vec<f64> {
        let used = (0..self.unit_counts.size).map(|n| self.unit_counts.all_used(n));
        used.map(|used| self.cost.idle_watts(&used)).collect()
    }

    /// What stage options cost that may matter in a cell.
    pub(super) fn useful(&self, range: Range) -> impl Fn(&StageOption) -> Option<f64> {
        move |option| {
            let fast = self.alone(option) < range.high && option.most < range.most_high;
            fast.then_some(option.joules + range.theta * option.sum)
        }
    }

    /// Calls with stage options that have a cost: of the same layers on the same unit type, more
    /// units only where they cost less.
    fn each_cheapest(
        &self,
        end: usize,
        cost: impl Fn(&StageOption) -> Option<f64>,
        mut call: impl FnMut(&StageOption, f64),
    ) {
        let mut group = (u32::MAX, u8::MAX);
        let mut least = f64::INFINITY;
        let mut best: Option<&StageOption> = None;
        for option in &self.ending[end] {
            // Powers of as many units lie together.
            if let Some(last) = best
                && (last.before, last.unit, last.replicas)
                    != (option.before, option.unit, option.replicas)
            {
                call(last, least);
                best = None;
            }
            // Where memory depends on how many units follow, more of them hold less each.
            let new = (option.before, option.unit) != group || self.units_count && best.is_none();
            if new {
                group = (option.before, option.unit);
                least = f64::INFINITY;
            }
            if let Some(cost) = cost(option).filter(|cost| *cost < least) {
                least = cost;
                best = Some(option);
            }
        }
        if let Some(last) = best {
            call(last, least);
        }
    }

    /// The potentials of a cell, by set and combination.
    pub(super) fn full(&self, idle: &[f64], range: Range) -> Cell {
        let start = idle.iter().map(|watts| watts * range.low).collect();
        Cell { range, potential: self.by_units(start, self.useful(range)) }
    }

    /// The least sum of the seconds that add up, by set and combination, where no stage is
    /// as slow as this.
    pub(super) fn sums(&self, most_high: f64) -> Potential {
        let cost = |option: &StageOption| (option.most < most_high).then_some(option.sum);
        self.by_units(vec![0.0; self.unit_counts.size], cost)
    }

    /// From small sets to large ones; `all` are the potentials of the empty set.
    fn by_units(&self, mut all: Vec<f64>, cost: impl Fn(&StageOption) -> Option<f64>) -> Potential {
        let size = self.unit_counts.size;
        for end in 1..self.sets() {
            all.resize((end + 1) * size, f64::INFINITY);
            let (before, here) = all.split_at_mut(end * size);
            self.each_cheapest(end, &cost, |option, cost| self.relax(before, here, option, cost));
        }
        Potential::Full(all)
    }

    /// Takes a stage option into account wherever its units are free.
    fn relax(&self, before: &[f64], here: &mut [f64], option: &StageOption, cost: f64) {
        let (unit, r) = (option.unit as usize, option.replicas as usize);
        let holds = self.problem.units[unit].memory_bytes;
        let units = option.most_units(self.problem.semantics, holds, self.all_units);
        let size = self.unit_counts.size;
        let from = &before[option.before as usize * size..][..size];
        let step = r * self.unit_counts.strides[unit];
        self.unit_counts.ranges(unit, r, |first, length| {
            let source = &from[first + step..][..length];
            if units < self.all_units {
                let totals = &self.totals[first + step..][..length];
                let to = &mut here[first..][..length];
                for (n, &total) in totals.iter().enumerate() {
                    if total as usize <= units {
                        to[n] = to[n].min(cost + source[n]);
                    }
                }
                return;
            }
            // The innermost loop of plans; without optimisation iterators take four times as long.
            let to = &mut here[first..][..length];
            let mut n = 0;
            while n < length {
                let through = cost + source[n];
                if through < to[n] {
                    to[n] = through;
                }
                n += 1;
            }
        });
    }

    /// The stage options that potentials lead to, the last first, with the sets that they end with.
    pub(super) fn path(&self, cell: &Cell, depth: Depth) -> Option<Vec<(usize, StageOption)>> {
        if !self.listed {
            return self.relaxed_path_of(cell);
        }
        let each = |unit: usize| self.cost.unit_watts(unit) * cell.range.low;
        self.follow(&cell.potential, depth, each, self.useful(cell.range))
    }

    /// The same for seconds that add up.
    pub(super) fn path_of_sums(&self, level: &Level) -> Option<Vec<(usize, StageOption)>> {
        if let (false, Potential::Lagrangian { multipliers, .. }) = (self.listed, &level.potential)
        {
            let weights = Weights { joules: 0.0, sum: 1.0, unit: multipliers.clone() };
            return self.relaxed_path(&weights, level.most_high);
        }
        let cost = |c: &StageOption| (c.most < level.most_high).then_some(c.sum);
        self.follow(&level.potential, Depth::Ignored, |_| 0.0, cost)
    }

    /// From the last set on, always the stage option that costs least with what is left; `each` is
    /// what a unit costs beyond its multiplier, where units have one.
    fn follow(
        &self,
        potential: &Potential,
        depth: Depth,
        each: impl Fn(usize) -> f64,
        cost: impl Fn(&StageOption) -> Option<f64>,
    ) -> Option<Vec<(usize, StageOption)>> {
        let unit_counts = &self.unit_counts;
        let (mut set, mut used) = (self.sets() - 1, 0);
        let mut chosen: Vec<(usize, StageOption)> = Vec::new();
        while set > 0 {
            let mut best: Option<(f64, StageOption)> = None;
            let units: usize = unit_counts.all_used(used).iter().sum();
            let stages = if depth == Depth::Counted { chosen.len() + 1 } else { 1 };
            self.each_cheapest(set, &cost, |option, cost| {
                let (unit, r) = (option.unit as usize, option.replicas as usize);
                let bytes = option.memory(self.problem.semantics, units + r, stages);
                let room = fits(bytes, self.problem.units[unit].memory_bytes);
                if !room || unit_counts.used(used, unit) + r > unit_counts.available[unit] {
                    return;
                }
                let next = used + r * unit_counts.strides[unit];
                let before = option.before as usize;
                let rest = potential.at(unit_counts, before, next);
                let total = match potential {
                    Potential::Full(_) => cost + rest,
                    Potential::Lagrangian { .. } => cost + rest + r as f64 * each(unit),
                };
                if total.is_finite() && best.is_none_or(|(known, _)| total < known) {
                    best = Some((total, *option));
                }
            });
            let (_, option) = best?;
            used += option.replicas as usize * unit_counts.strides[option.unit as usize];
            chosen.push((set, option));
            set = option.before as usize;
        }
        Some(chosen)
    }
}
