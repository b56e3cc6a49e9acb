//! Placements of graphs with too many ideals: the best of many topological orders.
//!
//! All placements whose devices are consecutive in an order are searched exactly (its prefixes are a
//! chain of ideals). Around a good order, all placements are searched in which no group moves ahead of
//! another one that stands `width` places before it: these are the ideals of a graph with more edges
//! (Balas and Simonetti 2001 do the same for tours). Orders are changed at random where that is no
//! worse, and after a number of failures the search begins anew with another order.

use super::super::groups::Grouped;
use super::labels::{Placed, Search};
use super::lattice::{Lattice, Size};
use super::orders::{Orders, order_of};

/// Orders of more groups are cut between blocks of groups only.
pub(super) const MOST_PLACES: usize = 2_500;

/// The best placement so far, and what it is compared with.
pub(super) struct Improve<'a> {
    pub(super) graph: &'a Grouped<'a>,
    /// No placement has a smaller largest load.
    pub(super) bound: f64,
    /// The lattices that are searched around an order.
    pub(super) size: Size,
    /// Labels that a search may keep.
    pub(super) labels: usize,
    pub(super) stop: &'a dyn Fn() -> bool,
    pub(super) best: Option<Placed>,
    /// Orders that were searched.
    pub(super) orders: usize,
}

impl Improve<'_> {
    /// Whether nothing better is possible, or no time is left.
    fn done(&self) -> bool {
        let best = self.best.as_ref().map_or(f64::INFINITY, |placed| placed.load);
        best <= self.bound || (self.stop)()
    }

    fn keep(&mut self, placed: &Placed) {
        if self.best.as_ref().is_none_or(|best| placed.load < best.load) {
            self.best = Some(placed.clone());
        }
    }

    fn search(&self, lattice: &Lattice, limit: f64) -> Option<Placed> {
        let Self { graph, bound, labels, stop, .. } = *self;
        Search { graph, limit, bound, labels, stop }.run(lattice).placed
    }

    /// The best placement below a limit whose devices are consecutive in an order.
    fn along(&mut self, order: &[usize], limit: f64) -> Option<Placed> {
        self.orders += 1;
        let mut inputs = vec![Vec::new(); order.len()];
        order.windows(2).for_each(|pair| inputs[pair[1]].push(pair[0]));
        let size = Size { sets: usize::MAX, bytes: usize::MAX };
        self.search(&Lattice::new(&inputs, size)?, limit)
    }

    /// The same with limits that grow: loads far above the bound are seldom worth looking at.
    fn first_along(&mut self, order: &[usize], known: f64) -> Option<Placed> {
        for times in [1.5, 4.0, f64::INFINITY] {
            let limit = known.min(self.bound * times);
            let found = self.along(order, limit);
            if found.is_some() || limit == known || self.done() {
                return found;
            }
        }
        None
    }

    /// The best placement near an order that is better than a limit, over the widest window whose
    /// ideals are few enough.
    fn around(&self, order: &[usize], limit: f64) -> Option<Placed> {
        let plain = self.graph.inputs();
        let windowed = |width: usize| {
            let mut inputs = plain.clone();
            for (place, &group) in order.iter().enumerate().skip(width) {
                let before = order[place - width];
                if !inputs[group].contains(&before) {
                    inputs[group].push(before);
                }
            }
            Lattice::new(&inputs, self.size)
        };
        let mut widest = None;
        for width in
            [2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32].into_iter().filter(|w| *w <= order.len())
        {
            match windowed(width) {
                Some(lattice) => widest = Some(lattice),
                None => break,
            }
        }
        self.search(&widest?, limit)
    }

    /// Searches around an order, then around the order of what that found, until nothing is better.
    fn descend(&mut self, order: &mut Vec<usize>, current: &mut Placed) {
        while !self.done() {
            match self.around(order, current.load * (1.0 - 1e-12)) {
                Some(placed) => {
                    *order = order_of(&placed, order);
                    *current = placed;
                    self.keep(current);
                }
                None => return,
            }
        }
    }

    /// The first orders, without changes.
    pub(super) fn begin(&mut self, orders: &mut Orders<'_>) {
        let mut best: Option<(Vec<usize>, Placed)> = None;
        for round in 0..6 {
            let order = orders.start(round);
            let known = best.as_ref().map_or(f64::INFINITY, |(_, placed)| placed.load);
            if let Some(placed) = self.first_along(&order, known) {
                self.keep(&placed);
                best = Some((order, placed));
            }
            if self.done() {
                return;
            }
        }
        if let Some((mut order, mut placed)) = best {
            self.descend(&mut order, &mut placed);
        }
    }

    /// So many rounds of a start and its changes.
    pub(super) fn rounds(&mut self, orders: &mut Orders<'_>, rounds: usize) {
        let patience = 50 + self.graph.len() / 2;
        for round in 0..rounds {
            if self.done() {
                return;
            }
            // Every other round begins near the best placement.
            let start = orders.start(4 + round);
            let mut order = match &self.best {
                Some(best) if round % 2 == 0 => orders.near(&order_of(best, &start), best),
                _ => start,
            };
            let Some(mut current) = self.first_along(&order, f64::INFINITY) else { continue };
            self.keep(&current);
            self.descend(&mut order, &mut current);
            let mut failures = 0;
            while failures < patience && !self.done() {
                let other = orders.near(&order, &current);
                match self.along(&other, current.load * (1.0 + 1e-12)) {
                    Some(placed) => {
                        if placed.load < current.load * (1.0 - 1e-12) {
                            failures = 0;
                        } else {
                            failures += 1;
                        }
                        (order, current) = (other, placed);
                        self.keep(&current);
                    }
                    None => failures += 1,
                }
            }
            self.descend(&mut order, &mut current);
        }
    }
}
