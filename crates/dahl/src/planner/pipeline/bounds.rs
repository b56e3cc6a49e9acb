//! Which half-made plans may still become better than what is known.

use super::cells::{Cell, Level, Potential};
use super::front::Front;
use super::table::Table;
use super::types::Objective;

/// A half-made plan: the last layers, from a set on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half {
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
    pub(super) table: &'a Table<'a>,
    pub(super) cells: Vec<Cell>,
    /// By set, combination and cell; empty where units have prices.
    together: Vec<f64>,
    /// Least sums of seconds, from fast to all stages; none where nothing adds up.
    pub(super) levels: Vec<Level>,
    /// The same by set, combination and level.
    sums: Vec<f64>,
    pub(super) idle: Vec<f64>,
    /// More than any plan of a cell takes.
    most_joules: Vec<f64>,
}

impl<'a> Bounds<'a> {
    pub(super) fn new(
        table: &'a Table<'a>,
        cells: Vec<Cell>,
        levels: Vec<Level>,
        idle: Vec<f64>,
    ) -> Self {
        let states = levels.first().map_or(0, |level| level.sums.len());
        let sums = (0..states).flat_map(|at| levels.iter().map(move |level| level.sums[at]));
        let sums = sums.collect();
        let mut together = Vec::new();
        let length = cells.iter().map(|cell| match &cell.potential {
            Potential::Full(all) => all.len(),
            Potential::Priced { .. } => 0,
        });
        let length = length.min().unwrap_or(0);
        together.reserve(length * cells.len());
        for at in 0..length {
            for cell in &cells {
                if let Potential::Full(all) = &cell.potential {
                    together.push(all[at]);
                }
            }
        }
        let most = |cell: &Cell| table.problem.most_joules(cell.range.high);
        let most_joules = cells.iter().map(most).collect();
        Self { table, cells, together, levels, sums, idle, most_joules }
    }

    /// Idle watts of the units in use, or less.
    fn watts(&self, used: usize) -> f64 {
        if let Some(watts) = self.idle.get(used) {
            return *watts;
        }
        let types = 0..self.table.lattice.counts.len();
        let watts = |unit| self.table.lattice.used(used, unit) as f64 * self.table.unit_watts(unit);
        types.map(watts).sum()
    }

    /// Joules of a plan in a cell that goes on from here, without those that it has.
    fn lower(&self, cell: usize, half: &Half, watts: f64) -> f64 {
        if !self.together.is_empty() {
            let at = half.set * self.table.lattice.size + half.used;
            return self.together[at * self.cells.len() + cell];
        }
        match &self.cells[cell].potential {
            Potential::Full(_) => unreachable!("full potentials lie together"),
            Potential::Priced { by_set, prices } => {
                let lattice = &self.table.lattice;
                let left =
                    |unit: usize| (lattice.counts[unit] - lattice.used(half.used, unit)) as f64;
                let paid: f64 = prices.iter().enumerate().map(|(unit, p)| p * left(unit)).sum();
                by_set[half.set] - paid + watts * self.cells[cell].range.low
            }
        }
    }

    /// Seconds that the rest adds at least, and those of the whole plan: the slower its
    /// slowest stage, the less adds up.
    fn seconds(&self, half: &Half) -> (f64, f64) {
        let (count, slowest) = (self.levels.len(), self.table.slowest);
        if count == 0 {
            return (0.0, half.sum + slowest * half.most);
        }
        let at = half.set * self.table.lattice.size + half.used;
        let sums = &self.sums[at * count..][..count];
        let first = self.levels.partition_point(|level| level.most_high <= half.most);
        let seconds = (first..count).map(|i| {
            let edge = if i == 0 { 0.0 } else { self.levels[i - 1].most_high };
            sums[i] + slowest * half.most.max(edge)
        });
        (sums[count - 1], half.sum + seconds.fold(f64::INFINITY, f64::min))
    }

    /// Calls with the least seconds and joules in each cell that can be reached, until
    /// told to stop.
    fn each(&self, half: &Half, mut call: impl FnMut(f64, f64) -> Go) {
        let slowest = self.table.slowest;
        let (left, seconds) = self.seconds(half);
        let sum = half.sum + left;
        let watts = self.watts(half.used);
        let cap = self.table.problem.power_cap.unwrap_or(f64::INFINITY);
        let first = self.cells.partition_point(|cell| cell.range.high <= seconds);
        for cell in first..self.cells.len() {
            let it = &self.cells[cell].range;
            let most = half.most.max(it.most_low);
            let mut at = it.low.max(seconds).max(sum + slowest * most);
            if at >= it.high || half.most >= it.most_high {
                continue;
            }
            let joules = half.joules
                + self.lower(cell, half, watts)
                + it.beyond(half.sum, slowest, half.most)
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
    pub(super) fn hopeful(&self, half: &Half, aim: Aim<'_>) -> bool {
        let mut hope = false;
        self.each(half, |seconds, joules| {
            hope = match aim {
                Aim::Front(front) => front.would_take(seconds, joules),
                Aim::Claim { objective, value, period_cap } => {
                    seconds <= period_cap && objective.value(seconds, joules) < value
                }
            };
            if hope { Go::Stop } else { Go::On }
        });
        hope
    }

    /// The least value of the objective that a plan may have that goes on from here.
    pub(super) fn least(&self, half: &Half, objective: Objective, period_cap: f64) -> f64 {
        let mut least = f64::INFINITY;
        self.each(half, |seconds, joules| {
            if seconds <= period_cap {
                least = least.min(objective.value(seconds, joules));
            }
            Go::On
        });
        least
    }

    /// Where plans start.
    pub(super) fn start(&self) -> Half {
        Half { set: self.table.sets() - 1, used: 0, sum: 0.0, most: 0.0, joules: 0.0 }
    }
}

#[derive(PartialEq)]
enum Go {
    On,
    Stop,
}
