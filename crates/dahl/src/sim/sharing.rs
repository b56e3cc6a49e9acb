//! Capacities that several activities share, max-min fairly.
//!
//! An activity has a rate, at most its bound, and takes `share` times its rate of
//! each capacity that it uses. Rates are raised together, each by its weight, until
//! a capacity is used up or a bound is reached; those concerned stay, the others are
//! raised on (Bertsekas and Gallager 1992). So no rate can be raised but at the cost
//! of one that is lower for its weight.
//!
//! What begins or ends touches only what is connected with it through capacities;
//! [`System::solve`] looks at nothing else.

/// An activity that shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Activity(pub(super) u32);

#[derive(Debug, Default)]
struct Sharer {
    bound: f64,
    weight: f64,
    rate: f64,
    uses: Vec<Use>,
    /// Found by the search that has this number.
    seen: u64,
    settled: bool,
}

/// How much of a capacity an activity takes for each unit of its rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) capacity: usize,
    pub(super) share: f64,
}

#[derive(Debug, Default)]
struct Capacity {
    amount: f64,
    /// In the order of their beginning, so that sums have one order.
    users: Vec<Activity>,
    seen: u64,
    /// While rates are found: what is left, and the shares of those that rise.
    left: f64,
    rising: f64,
}

/// What an activity is, before it shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand<'a> {
    /// The highest rate.
    pub(super) bound: f64,
    /// How fast its rate is raised beside others.
    pub(super) weight: f64,
    pub(super) uses: &'a [Use],
}

/// Activities and the capacities that they share.
#[derive(Debug, Default)]
pub(super) struct System {
    sharers: Vec<Sharer>,
    free: Vec<u32>,
    capacities: Vec<Capacity>,
    /// Where something has changed since rates were found.
    touched: Vec<usize>,
    alone: Vec<Activity>,
    search: u64,
    /// What the present search has found; kept for their memory.
    found: Vec<Activity>,
    near: Vec<usize>,
}

impl System {
    pub(super) fn new(capacities: &[f64]) -> Self {
        let capacities =
            capacities.iter().map(|&amount| Capacity { amount, ..Capacity::default() });
        Self { capacities: capacities.collect(), ..Self::default() }
    }

    pub(super) fn begin(&mut self, demand: Demand<'_>) -> Activity {
        let Demand { bound, weight, uses } = demand;
        let id = match self.free.pop() {
            Some(id) => Activity(id),
            None => {
                self.sharers.push(Sharer::default());
                Activity(self.sharers.len() as u32 - 1)
            }
        };
        let sharer = &mut self.sharers[id.0 as usize];
        sharer.bound = bound;
        sharer.weight = weight;
        sharer.rate = 0.0;
        sharer.uses.clear();
        sharer.uses.extend(uses.iter().filter(|u| u.share > 0.0));
        if sharer.uses.is_empty() {
            self.alone.push(id);
        }
        for i in 0..self.sharers[id.0 as usize].uses.len() {
            let capacity = self.sharers[id.0 as usize].uses[i].capacity;
            self.capacities[capacity].users.push(id);
            self.touched.push(capacity);
        }
        id
    }

    pub(super) fn end(&mut self, id: Activity) {
        for used in std::mem::take(&mut self.sharers[id.0 as usize].uses) {
            self.capacities[used.capacity].users.retain(|user| *user != id);
            self.touched.push(used.capacity);
        }
        self.free.push(id.0);
    }

    #[cfg(test)]
    fn rate(&self, id: Activity) -> f64 {
        self.sharers[id.0 as usize].rate
    }

    /// Finds the rates of all that is connected with what has changed, and tells
    /// those that are different now.
    pub(super) fn solve(&mut self, mut changed: impl FnMut(Activity, f64)) {
        for id in std::mem::take(&mut self.alone) {
            let sharer = &mut self.sharers[id.0 as usize];
            sharer.rate = sharer.bound;
            changed(id, sharer.rate);
        }
        self.search += 1;
        for start in std::mem::take(&mut self.touched) {
            if self.capacities[start].seen != self.search {
                self.connected(start);
                self.raise();
                for &id in &self.found {
                    let sharer = &self.sharers[id.0 as usize];
                    changed(id, sharer.rate);
                }
            }
        }
    }

    /// Everything that shares with a capacity, directly or through others.
    fn connected(&mut self, start: usize) {
        self.found.clear();
        self.near.clear();
        self.near.push(start);
        self.capacities[start].seen = self.search;
        let (mut capacities, mut activities) = (0, 0);
        while capacities < self.near.len() {
            for &id in &self.capacities[self.near[capacities]].users {
                let sharer = &mut self.sharers[id.0 as usize];
                if sharer.seen != self.search {
                    sharer.seen = self.search;
                    sharer.settled = false;
                    self.found.push(id);
                }
            }
            capacities += 1;
            for id in &self.found[activities..] {
                for used in &self.sharers[id.0 as usize].uses {
                    let capacity = &mut self.capacities[used.capacity];
                    if capacity.seen != self.search {
                        capacity.seen = self.search;
                        self.near.push(used.capacity);
                    }
                }
            }
            activities = self.found.len();
        }
    }

    /// Raises the rates of what was found.
    fn raise(&mut self) {
        let mut rising = self.found.len();
        while rising > 0 {
            self.count();
            // How far all can be raised from zero before something stops one.
            let of_bounds = self.found.iter().map(|id| &self.sharers[id.0 as usize]);
            let of_bounds = of_bounds.filter(|s| !s.settled).map(|s| s.bound / s.weight);
            let of_capacities = self.near.iter().map(|&c| self.capacities[c].level());
            let level = of_bounds.chain(of_capacities).fold(f64::INFINITY, f64::min);
            let before = rising;
            for id in &self.found {
                let sharer = &self.sharers[id.0 as usize];
                let full = |used: &Use| self.capacities[used.capacity].level() <= level;
                let stopped = sharer.bound / sharer.weight <= level || sharer.uses.iter().any(full);
                if stopped && !sharer.settled {
                    let sharer = &mut self.sharers[id.0 as usize];
                    sharer.rate = sharer.bound.min(level * sharer.weight);
                    sharer.settled = true;
                    rising -= 1;
                }
            }
            assert!(rising < before, "a level that stops nobody");
        }
    }

    /// What is left of each capacity, and how fast it is taken by those that rise.
    fn count(&mut self) {
        for &c in &self.near {
            let capacity = &mut self.capacities[c];
            (capacity.left, capacity.rising) = (capacity.amount, 0.0);
        }
        for id in &self.found {
            let sharer = &self.sharers[id.0 as usize];
            for used in &sharer.uses {
                let capacity = &mut self.capacities[used.capacity];
                if sharer.settled {
                    capacity.left -= used.share * sharer.rate;
                } else {
                    capacity.rising += used.share * sharer.weight;
                }
            }
        }
    }
}

impl Capacity {
    /// How far those that rise can be raised.
    fn level(&self) -> f64 {
        if self.rising > 0.0 { (self.left / self.rising).max(0.0) } else { f64::INFINITY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bound, weight and uses.
    type DemandOf<'a> = (f64, f64, &'a [(usize, f64)]);

    /// The rates of activities with these bounds, weights and uses.
    fn rates(capacities: &[f64], demands: &[DemandOf<'_>]) -> Vec<f64> {
        let mut system = System::new(capacities);
        let begin = |&(bound, weight, uses): &(f64, f64, &[(usize, f64)])| {
            let uses: Vec<Use> =
                uses.iter().map(|&(capacity, share)| Use { capacity, share }).collect();
            system.begin(Demand { bound, weight, uses: &uses })
        };
        let ids: Vec<Activity> = demands.iter().map(begin).collect();
        system.solve(|_, _| {});
        ids.into_iter().map(|id| system.rate(id)).collect()
    }

    const FREE: f64 = f64::INFINITY;

    #[test]
    fn a_capacity_is_shared_by_weight_and_bound() {
        assert_eq!(rates(&[12.0], &[(FREE, 1.0, &[(0, 1.0)][..]); 3]), [4.0; 3]);
        // One has enough with 2, the others share what is left.
        let bounded =
            [(2.0, 1.0, &[(0, 1.0)][..]), (FREE, 1.0, &[(0, 1.0)]), (FREE, 1.0, &[(0, 1.0)])];
        assert_eq!(rates(&[12.0], &bounded), [2.0, 5.0, 5.0]);
        let weighted = [(FREE, 1.0, &[(0, 1.0)][..]), (FREE, 3.0, &[(0, 1.0)])];
        assert_eq!(rates(&[12.0], &weighted), [3.0, 9.0]);
        // Twice the share for each unit of the rate.
        let shares = [(FREE, 1.0, &[(0, 2.0)][..]), (FREE, 1.0, &[(0, 1.0)])];
        assert_eq!(rates(&[12.0], &shares), [4.0, 4.0]);
        assert_eq!(rates(&[], &[(7.0, 1.0, &[])]), [7.0]);
    }

    /// The example of Bertsekas and Gallager: a long way that shares each of its
    /// links with a short one.
    #[test]
    fn the_narrowest_place_decides() {
        let demands = [
            (FREE, 1.0, &[(0, 1.0), (1, 1.0)][..]),
            (FREE, 1.0, &[(0, 1.0)]),
            (FREE, 1.0, &[(1, 1.0)]),
        ];
        assert_eq!(rates(&[1.0, 3.0], &demands), [0.5, 0.5, 2.5]);
    }

    #[test]
    fn only_what_is_connected_is_solved_again() {
        let mut system = System::new(&[10.0, 10.0]);
        let mut begin = |capacity| {
            let uses = [Use { capacity, share: 1.0 }];
            system.begin(Demand { bound: FREE, weight: 1.0, uses: &uses })
        };
        let (a, b, c) = (begin(0), begin(0), begin(1));
        system.solve(|_, _| {});
        assert_eq!([a, b, c].map(|id| system.rate(id)), [5.0, 5.0, 10.0]);
        system.end(a);
        let mut told = Vec::new();
        system.solve(|id, rate| told.push((id, rate)));
        assert_eq!(told, [(b, 10.0)]);
    }
}
