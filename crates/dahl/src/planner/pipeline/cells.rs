//! What plans of an interval of the period take at least: potentials.
//!
//! A cell is an interval [low, high) of the period and one of the slowest stage's seconds.
//! Plans in it have only columns that take less than `high` alone and are not too slow,
//! pay idle watts for `low` seconds or more, and their seconds that add up are less than
//! what the slowest stage leaves of `high`. So, with a price θ of these seconds, the least
//! of Σ (joules + θ · seconds) + idle watts · `low` over all ways to do the first layers
//! with the units that are left bounds what a half-made plan will cost: one number for each
//! set of layers and each combination of units in use, from small sets to large ones.
//!
//! Where that is too many numbers, units get a price instead (Lagrange): a number for
//! each set and one for each unit type.

use super::cost::{Column, fits};
use super::lattice::Lattice;
use super::table::Table;

/// Edges of cells lie this much below plans, as a part: so much that no rounding, of a
/// certificate's labels neither, moves a plan over an edge.
pub(super) const ASIDE: f64 = 1e-9;

/// What it takes at least to do the layers of a set.
#[derive(Clone, Debug)]
pub(super) enum Potential {
    /// By set and combination of units that are used by later stages; idle watts of all
    /// units are in it.
    Full(Vec<f64>),
    /// By set, with a price for each unit of a type.
    Priced { by_set: Vec<f64>, prices: Vec<f64> },
}

impl Potential {
    /// Those of all sets and combinations, where each has one.
    pub(super) fn full(&self) -> Option<&[f64]> {
        match self {
            Self::Full(all) => Some(all),
            Self::Priced { .. } => None,
        }
    }

    /// How many numbers it has.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Full(all) => all.len(),
            Self::Priced { by_set, .. } => by_set.len(),
        }
    }

    /// That of a set when so many units are in use.
    pub(super) fn at(&self, lattice: &Lattice, set: usize, used: usize) -> f64 {
        match self {
            Self::Full(all) => all[set * lattice.size + used],
            Self::Priced { .. } => {
                let counts = lattice.counts.iter().enumerate();
                let free = counts.map(|(unit, count)| (count - lattice.used(used, unit)) as f64);
                self.with_free(set, &free.collect::<Vec<f64>>())
            }
        }
    }

    /// That of a set when so many units are left, by type, where units have prices.
    pub(super) fn with_free(&self, set: usize, free: &[f64]) -> f64 {
        match self {
            Self::Full(_) => f64::NEG_INFINITY,
            Self::Priced { by_set, prices } => {
                let paid = prices.iter().zip(free).map(|(price, free)| price * free);
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
    /// Joules a second of what adds up.
    pub(super) theta: f64,
}

impl Range {
    /// All slowest stages, and no price of seconds.
    pub(super) fn of(low: f64, high: f64) -> Self {
        Self { low, high, most_low: 0.0, most_high: f64::INFINITY, theta: 0.0 }
    }

    /// What the seconds that have added up say beyond the potential; nothing where they
    /// have no price.
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
    pub(super) fn least(&self, table: &Table<'_>) -> f64 {
        self.potential.at(&table.lattice, table.sets() - 1, 0)
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

impl Table<'_> {
    /// Idle watts by combination.
    pub(super) fn idle(&self) -> Vec<f64> {
        let used = (0..self.lattice.size).map(|n| self.lattice.all_used(n));
        used.map(|used| self.problem.idle_watts(&used)).collect()
    }

    /// Calls with the columns that may matter in a cell and their costs.
    fn each_useful(&self, end: usize, range: &Range, call: impl FnMut(&Column, f64)) {
        let cost = |column: &Column| {
            let fast = self.alone(column) < range.high && column.most < range.most_high;
            fast.then_some(column.joules + range.theta * column.sum)
        };
        self.each_cheapest(end, cost, call);
    }

    /// Calls with columns that have a cost: of the same layers on the same unit type, more
    /// units only where they cost less.
    fn each_cheapest(
        &self,
        end: usize,
        cost: impl Fn(&Column) -> Option<f64>,
        mut call: impl FnMut(&Column, f64),
    ) {
        let mut group = (u32::MAX, u8::MAX);
        let mut least = f64::INFINITY;
        let mut best: Option<&Column> = None;
        for column in &self.ending[end] {
            // Powers of as many units lie together.
            if let Some(last) = best
                && (last.before, last.unit, last.replicas)
                    != (column.before, column.unit, column.replicas)
            {
                call(last, least);
                best = None;
            }
            // Where memory depends on how many units follow, more of them hold less each.
            let new = (column.before, column.unit) != group || self.units_count && best.is_none();
            if new {
                group = (column.before, column.unit);
                least = f64::INFINITY;
            }
            if let Some(cost) = cost(column).filter(|cost| *cost < least) {
                least = cost;
                best = Some(column);
            }
        }
        if let Some(last) = best {
            call(last, least);
        }
    }

    /// The potentials of a cell, by set and combination.
    pub(super) fn full(&self, idle: &[f64], range: Range) -> Cell {
        let size = self.lattice.size;
        let mut all: Vec<f64> = idle.iter().map(|watts| watts * range.low).collect();
        for end in 1..self.sets() {
            all.resize((end + 1) * size, f64::INFINITY);
            let (before, here) = all.split_at_mut(end * size);
            self.each_useful(end, &range, |column, cost| self.relax(before, here, column, cost));
        }
        Cell { range, potential: Potential::Full(all) }
    }

    /// The least sum of the seconds that add up, by set and combination, where no stage is
    /// as slow as this.
    pub(super) fn sums(&self, most_high: f64) -> Potential {
        let size = self.lattice.size;
        let mut all = vec![0.0; size];
        for end in 1..self.sets() {
            all.resize((end + 1) * size, f64::INFINITY);
            let (before, here) = all.split_at_mut(end * size);
            let cost = |column: &Column| (column.most < most_high).then_some(column.sum);
            self.each_cheapest(end, cost, |column, sum| self.relax(before, here, column, sum));
        }
        Potential::Full(all)
    }

    /// Takes a column into account wherever its units are free.
    fn relax(&self, before: &[f64], here: &mut [f64], column: &Column, cost: f64) {
        let (unit, r) = (column.unit as usize, column.replicas as usize);
        let holds = self.problem.units[unit].memory_bytes;
        let units = column.most_units(self.problem.semantics, holds, self.all_units);
        let size = self.lattice.size;
        let from = &before[column.before as usize * size..][..size];
        let step = r * self.lattice.strides[unit];
        self.lattice.ranges(unit, r, |first, length| {
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

    /// The columns that potentials lead to, the last first, with the sets that they end with.
    pub(super) fn path(&self, cell: &Cell, depth: Depth) -> Option<Vec<(usize, Column)>> {
        let each = |unit: usize| self.unit_watts(unit) * cell.range.low;
        self.follow(&cell.potential, depth, each, |end, call| {
            self.each_useful(end, &cell.range, call);
        })
    }

    /// The same for seconds that add up.
    pub(super) fn path_of_sums(&self, level: &Level) -> Option<Vec<(usize, Column)>> {
        let cost = |c: &Column| (c.most < level.most_high).then_some(c.sum);
        let columns = |end: usize, call: &mut dyn FnMut(&Column, f64)| {
            self.each_cheapest(end, cost, call);
        };
        self.follow(&level.potential, Depth::Ignored, |_| 0.0, columns)
    }

    /// From the last set on, always the column that costs least with what is left; `each` is
    /// what a unit costs beyond its price, where units have one.
    fn follow(
        &self,
        potential: &Potential,
        depth: Depth,
        each: impl Fn(usize) -> f64,
        columns: impl Fn(usize, &mut dyn FnMut(&Column, f64)),
    ) -> Option<Vec<(usize, Column)>> {
        let lattice = &self.lattice;
        let (mut set, mut used) = (self.sets() - 1, 0);
        let mut chosen: Vec<(usize, Column)> = Vec::new();
        while set > 0 {
            let mut best: Option<(f64, Column)> = None;
            let units: usize = lattice.all_used(used).iter().sum();
            let stages = if depth == Depth::Counted { chosen.len() + 1 } else { 1 };
            columns(set, &mut |column, cost| {
                let (unit, r) = (column.unit as usize, column.replicas as usize);
                let bytes = column.memory(self.problem.semantics, units + r, stages);
                let room = fits(bytes, self.problem.units[unit].memory_bytes);
                if !room || lattice.used(used, unit) + r > lattice.counts[unit] {
                    return;
                }
                let next = used + r * lattice.strides[unit];
                let before = column.before as usize;
                let rest = potential.at(lattice, before, next);
                let total = match potential {
                    Potential::Full(_) => cost + rest,
                    Potential::Priced { .. } => cost + rest + r as f64 * each(unit),
                };
                if total.is_finite() && best.is_none_or(|(known, _)| total < known) {
                    best = Some((total, *column));
                }
            });
            let (_, column) = best?;
            used += column.replicas as usize * lattice.strides[column.unit as usize];
            chosen.push((set, column));
            set = column.before as usize;
        }
        Some(chosen)
    }

    /// Watts of a unit that is used, with its part of a machine that is full.
    pub(super) fn unit_watts(&self, unit: usize) -> f64 {
        let of = &self.problem.units[unit];
        let sharing = self.problem.units.iter().filter(|other| other.node == of.node).count();
        let base = self.problem.nodes[of.node].base_watts;
        of.idle_watts + base / (of.per_node * sharing) as f64
    }
}
