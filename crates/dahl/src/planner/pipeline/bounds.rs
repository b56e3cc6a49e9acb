//! Which partial plans may still become better than what is known.

use super::cells::{Cell, Level};
use super::cost::objective_value;
use super::front::Front;
use super::stage_options::OptionTable;
use dahl_certify::{MOST_TYPES, Objective};

/// A partial plan: the last layers, from a set on.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartialPlan {
    /// The layers that are left.
    pub(super) set: usize,
    /// The units in use.
    pub(super) used: usize,
    /// Seconds that add up.
    pub(super) sum: f64,
    /// Seconds of the slowest stage.
    pub(super) most: f64,
    /// Joules beyond idle watts.
    pub(super) joules: f64,
}

/// What plans have to be better than.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aim<'a> {
    /// Than all that are known, in period or energy.
    Front(&'a Front),
    /// Than a value of the objective, within the caps.
    Claim { objective: Objective, value: f64, period_cap: f64 },
}

/// Potentials of all cells, which cover all periods.
pub(super) struct Bounds<'a> {
    pub(super) table: &'a OptionTable<'a>,
    /// The ones that end first are first.
    cells: Vec<&'a Cell>,
    /// By set, combination and cell; empty where units have multipliers.
    together: Vec<f64>,
    /// Least sums of seconds, from fast to all stages; none where nothing adds up.
    levels: &'a [Level],
    /// By set, combination and level: that sum, and the least seconds of plans of slower
    /// levels; empty where units have multipliers.
    sums: Vec<(f64, f64)>,
    idle: &'a [f64],
    /// More than any plan of a cell takes.
    most_joules: Vec<f64>,
    /// The levels that a cell's slowest stages are in.
    spans: Vec<std::ops::Range<usize>>,
}

/// Units that are not in use, by type.
type Free = [f64; MOST_TYPES];

impl<'a> Bounds<'a> {
    pub(super) fn new(
        table: &'a OptionTable<'a>,
        mut cells: Vec<&'a Cell>,
        levels: &'a [Level],
        idle: &'a [f64],
    ) -> Self {
        cells.sort_by(|a, b| {
            (a.range.high.total_cmp(&b.range.high))
                .then(a.range.most_low.total_cmp(&b.range.most_low))
        });
        let full: Vec<&[f64]> = levels.iter().filter_map(|l| l.potential.full()).collect();
        let states = full.first().map_or(0, |sums| sums.len());
        let mut sums = Vec::with_capacity(states * full.len());
        for at in 0..states {
            let first = sums.len();
            let mut after = f64::INFINITY;
            for level in (0..full.len()).rev() {
                sums.push((full[level][at], after));
                let edge = if level == 0 { 0.0 } else { levels[level - 1].most_high };
                after = after.min(full[level][at] + table.slowest * edge);
            }
            sums[first..].reverse();
        }
        let full: Vec<&[f64]> = cells.iter().filter_map(|c| c.potential.full()).collect();
        let states = full.first().map_or(0, |all| all.len());
        let mut together = Vec::with_capacity(states * full.len());
        for at in 0..states {
            together.extend(full.iter().map(|all| all[at]));
        }
        let busy = table.cost.most_busy_joules();
        let most = |cell: &&Cell| table.cost.most_joules(busy, cell.range.high);
        let most_joules = cells.iter().map(most).collect();
        let span = |cell: &&Cell| {
            let first = levels.partition_point(|level| level.most_high <= cell.range.most_low);
            let last = levels.partition_point(|level| level.most_high < cell.range.most_high);
            first..(last + 1).min(levels.len())
        };
        let spans = cells.iter().map(span).collect();
        Self { table, cells, together, levels, sums, idle, most_joules, spans }
    }

    /// Idle watts of the units in use, or less.
    fn watts(&self, used: usize) -> f64 {
        if let Some(watts) = self.idle.get(used) {
            return *watts;
        }
        let types = 0..self.table.unit_counts.available.len();
        let watts = |unit| {
            self.table.unit_counts.used(used, unit) as f64 * self.table.cost.unit_watts(unit)
        };
        types.map(watts).sum()
    }

    /// What units are left, where they have multipliers.
    fn free(&self, used: usize) -> Free {
        let mut free = [0.0; MOST_TYPES];
        if self.together.is_empty() {
            let unit_counts = &self.table.unit_counts;
            for (unit, count) in unit_counts.available.iter().enumerate() {
                free[unit] = (count - unit_counts.used(used, unit)) as f64;
            }
        }
        free
    }

    /// Joules of a plan in a cell that goes on from here, without those that it has.
    fn lower(&self, cell: usize, partial: &PartialPlan, watts: f64, free: &Free) -> f64 {
        if !self.together.is_empty() {
            let at = partial.set * self.table.unit_counts.size + partial.used;
            return self.together[at * self.cells.len() + cell];
        }
        let cell = self.cells[cell];
        cell.potential.with_free(partial.set, free) + watts * cell.range.low
    }

    /// Seconds that the rest adds at least, by a level.
    fn left(&self, level: usize, partial: &PartialPlan, free: &Free) -> f64 {
        if !self.sums.is_empty() {
            let at = partial.set * self.table.unit_counts.size + partial.used;
            return self.sums[at * self.levels.len() + level].0;
        }
        self.levels[level].potential.with_free(partial.set, free).max(0.0)
    }

    /// Seconds of a whole plan that goes on from here: the slower its slowest stage, the less
    /// adds up.
    fn seconds(&self, partial: &PartialPlan, free: &Free) -> f64 {
        let (count, slowest) = (self.levels.len(), self.table.slowest);
        if !self.sums.is_empty() {
            let first = self.levels.partition_point(|level| level.most_high <= partial.most);
            let at = partial.set * self.table.unit_counts.size + partial.used;
            let (here, after) = self.sums[at * count + first];
            return partial.sum + after.min(here + slowest * partial.most);
        }
        self.seconds_within(0..count, partial, partial.most, free)
    }

    /// The same of plans whose slowest stage takes so long and is in one of some levels.
    fn seconds_within(
        &self,
        span: std::ops::Range<usize>,
        partial: &PartialPlan,
        most: f64,
        free: &Free,
    ) -> f64 {
        if self.levels.is_empty() {
            return partial.sum + self.table.slowest * most;
        }
        let seconds = span.filter(|&i| self.levels[i].most_high > partial.most).map(|i| {
            let edge = if i == 0 { 0.0 } else { self.levels[i - 1].most_high };
            self.left(i, partial, free) + self.table.slowest * most.max(edge)
        });
        partial.sum + seconds.fold(f64::INFINITY, f64::min)
    }

    /// Calls with the least seconds and joules in each cell that can be reached, until
    /// told to stop.
    fn each(&self, partial: &PartialPlan, mut call: impl FnMut(f64, f64) -> Go) {
        let slowest = self.table.slowest;
        let free = self.free(partial.used);
        let seconds = self.seconds(partial, &free);
        let watts = self.watts(partial.used);
        let cap = self.table.problem.power_cap.unwrap_or(f64::INFINITY);
        let first = self.cells.partition_point(|cell| cell.range.high <= seconds);
        for cell in first..self.cells.len() {
            let it = &self.cells[cell].range;
            let most = partial.most.max(it.most_low);
            let mut at = it.low.max(seconds);
            if at >= it.high || partial.most >= it.most_high {
                continue;
            }
            let span = self.spans[cell].clone();
            if span.len() < self.levels.len() || partial.most < it.most_low {
                at = at.max(self.seconds_within(span, partial, most, &free));
            }
            if at >= it.high {
                continue;
            }
            let joules = partial.joules
                + self.lower(cell, partial, watts, &free)
                + it.beyond(partial.sum, slowest, partial.most)
                + watts * (at - it.low);
            if !joules.is_finite() || joules > self.most_joules[cell] {
                continue;
            }
            // No more than the cap's watts, so that joules take their time.
            if joules > cap * at {
                at = joules / cap;
                if at >= it.high {
                    continue;
                }
            }
            if call(at, joules) == Go::Stop {
                return;
            }
        }
    }

    /// Whether a plan that goes on from here may be better.
    pub(super) fn hopeful(&self, partial: &PartialPlan, aim: Aim<'_>) -> bool {
        let mut hope = false;
        self.each(partial, |seconds, joules| {
            hope = match aim {
                Aim::Front(front) => front.would_take(seconds, joules),
                Aim::Claim { objective, value, period_cap } => {
                    seconds <= period_cap && objective_value(objective, seconds, joules) < value
                }
            };
            if hope { Go::Stop } else { Go::On }
        });
        hope
    }

    /// The least value of the objective that a plan may have that goes on from here.
    pub(super) fn least(
        &self,
        partial: &PartialPlan,
        objective: Objective,
        period_cap: f64,
    ) -> f64 {
        let mut least = f64::INFINITY;
        self.each(partial, |seconds, joules| {
            if seconds <= period_cap {
                least = least.min(objective_value(objective, seconds, joules));
            }
            Go::On
        });
        least
    }

    /// The least value of the objective that any plan may have.
    pub(super) fn least_of_all(&self, objective: Objective, period_cap: f64) -> f64 {
        self.least(&self.start(), objective, period_cap)
    }

    /// Where plans start.
    pub(super) fn start(&self) -> PartialPlan {
        PartialPlan { set: self.table.sets() - 1, used: 0, sum: 0.0, most: 0.0, joules: 0.0 }
    }
}

#[derive(PartialEq)]
enum Go {
    On,
    Stop,
}
