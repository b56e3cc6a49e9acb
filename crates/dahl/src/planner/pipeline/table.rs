//! All stages on all units: the columns that plans are made of.

use super::cost::{Column, column, slowest_counts};
use super::lattice::Lattice;
use super::space::{Cuts, Space};
use super::types::{Problem, Semantics};

/// Columns that are too many are too many to look at.
const MOST_COLUMNS: usize = 4_000_000;

/// Columns by the set of layers that they end with.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) problem: &'a Problem,
    pub(super) space: Space,
    pub(super) lattice: Lattice,
    pub(super) ending: Vec<Vec<Column>>,
    /// How often the slowest stage counts.
    pub(super) slowest: f64,
    /// Whether how many stages follow decides what fits into memory.
    pub(super) depth_counts: bool,
    /// Which numbers of units stages have.
    pub(super) numbers: Replicas,
}

/// Which numbers of units a stage may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// All.
    All,
    /// Up to 16 all, then 24, 32, 48, 64, 96 …
    Thinned,
}

impl Replicas {
    fn of(self, count: usize) -> Vec<usize> {
        let kept = |r: &usize| {
            let steps = [24, 32].iter().any(|s| r % s == 0 && (r / s).is_power_of_two());
            self == Replicas::All || *r <= 16 || steps
        };
        (1..=count).filter(kept).collect()
    }
}

impl<'a> Table<'a> {
    /// The columns of a problem, of all cuts where there are not too many.
    pub(super) fn new(problem: &'a Problem, ideals: usize) -> Self {
        let powers: usize = problem.units.iter().map(|unit| unit.powers.len()).max().unwrap_or(1);
        let choices = |numbers: Replicas| -> usize {
            problem.units.iter().map(|unit| numbers.of(unit.count).len()).sum()
        };
        let numbers = [Replicas::All, Replicas::Thinned].into_iter();
        let numbers = numbers.clone().find(|n| choices(*n) <= 512).unwrap_or(Replicas::Thinned);
        let fits = |space: &Space| space.stages().saturating_mul(choices(numbers) * powers);
        let mut space = Space::new(problem, ideals);
        if fits(&space) > MOST_COLUMNS && space.cuts == Cuts::All {
            space = Space::in_order(problem, usize::MAX);
        }
        let mut places = problem.layers.len();
        while fits(&space) > MOST_COLUMNS && places > 2 {
            places = (places * 3 / 4).max(2);
            space = Space::in_order(problem, places);
        }
        let lattice = Lattice::new(problem.units.iter().map(|unit| unit.count).collect());
        let mut limited = false;
        let most_units: usize = lattice.counts.iter().sum();
        let ending = space.ending.iter().map(|loads| {
            let mut columns = Vec::new();
            for load in loads {
                for (unit, of) in problem.units.iter().enumerate() {
                    for r in numbers.of(of.count) {
                        let mut all: Vec<Column> = (0..of.powers.len())
                            .map(|power| column(problem, load, [unit, r, power]))
                            .filter(|c| c.memory(problem.semantics, r, 1) <= of.memory_bytes)
                            .collect();
                        limited |= all.iter().any(|c| {
                            c.memory(problem.semantics, most_units, most_units) > of.memory_bytes
                        });
                        // Slower ones that save nothing are never better.
                        all.sort_by(|a, b| {
                            (a.sum.total_cmp(&b.sum))
                                .then(a.most.total_cmp(&b.most))
                                .then(a.joules.total_cmp(&b.joules))
                        });
                        let mut least = f64::INFINITY;
                        all.retain(|c| {
                            let better = c.joules < least;
                            least = least.min(c.joules);
                            better
                        });
                        columns.extend(all);
                    }
                }
            }
            columns
        });
        let ending = ending.collect();
        let depth_counts = limited && matches!(problem.semantics, Semantics::Synchronous { .. });
        let slowest = slowest_counts(problem.semantics);
        Self { problem, space, lattice, ending, slowest, depth_counts, numbers }
    }

    /// Seconds that a column takes at the least, whatever else there is.
    pub(super) fn alone(&self, column: &Column) -> f64 {
        column.sum + self.slowest * column.most
    }

    /// How many sets of layers there are.
    pub(super) fn sets(&self) -> usize {
        self.space.len()
    }
}
