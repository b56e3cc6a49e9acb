//! Topological orders of groups: first ones, random ones, and such that differ a little from another.

use super::super::groups::Grouped;
use super::labels::Placed;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::BinaryHeap;

/// A source of orders, the same for every call with the same graph.
pub(super) struct Orders<'a> {
    graph: &'a Grouped<'a>,
    users: Vec<Vec<usize>>,
    random: ChaCha8Rng,
}

/// A group that is ready; the one with the least key comes first, then the one with the least index.
#[derive(Debug)]
struct Ready {
    key: f64,
    group: usize,
}

impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ready {}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ready {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.key.total_cmp(&self.key).then(other.group.cmp(&self.group))
    }
}

impl<'a> Orders<'a> {
    pub(super) fn new(graph: &'a Grouped<'a>) -> Self {
        Self { graph, users: graph.group_users(), random: ChaCha8Rng::seed_from_u64(22) }
    }

    /// A number in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.random.next_u64() % n.max(1) as u64) as usize
    }

    /// Of the groups that are ready, the one whose key is least comes next. `key` gets the group and
    /// its place if it came next when it became ready.
    fn by(&self, mut key: impl FnMut(usize, usize) -> f64) -> Vec<usize> {
        let inputs = &self.graph.groups;
        let mut left: Vec<usize> = inputs.iter().map(|group| group.inputs.len()).collect();
        let first = (0..left.len()).filter(|&group| left[group] == 0);
        let mut ready: BinaryHeap<Ready> =
            first.map(|group| Ready { key: key(group, 0), group }).collect();
        let mut order = Vec::with_capacity(left.len());
        while let Some(Ready { group, .. }) = ready.pop() {
            order.push(group);
            for &user in &self.users[group] {
                left[user] -= 1;
                if left[user] == 0 {
                    ready.push(Ready { key: key(user, order.len()), group: user });
                }
            }
        }
        order
    }

    /// The first orders are those of the file, depth first, breadth first and with few open outputs;
    /// later ones are random mixtures of these.
    pub(super) fn start(&mut self, round: usize) -> Vec<usize> {
        let count = self.graph.len();
        match round {
            0 => (0..count).collect(),
            1 => self.by(|group, place| -((place * count + group) as f64)),
            2 => self.by(|_, place| place as f64),
            3 => self.few_open(0.0),
            _ => {
                let noise: Vec<f64> = (0..count).map(|_| self.unit()).collect();
                match self.below(4) {
                    0 => self.by(|group, _| noise[group]),
                    1 => self.by(|group, place| noise[group] - place as f64),
                    2 => self.by(|group, place| noise[group] + place as f64),
                    _ => {
                        let noise = self.unit();
                        self.few_open(noise)
                    }
                }
            }
        }
    }

    /// Next comes the group after which the transfers of the outputs that are still needed are least.
    fn few_open(&mut self, noise: f64) -> Vec<usize> {
        let of = self.graph.of;
        let mut users = vec![0usize; of.nodes.len()];
        for node in &of.nodes {
            node.inputs.iter().for_each(|&from| users[from] += 1);
        }
        let groups = &self.graph.groups;
        let mut left: Vec<usize> = groups.iter().map(|group| group.inputs.len()).collect();
        let mut ready: Vec<usize> = (0..left.len()).filter(|&group| left[group] == 0).collect();
        let mut order = Vec::with_capacity(left.len());
        while !ready.is_empty() {
            let mut best = (f64::INFINITY, 0);
            for (i, &group) in ready.iter().enumerate() {
                let (mut opened, mut size) = (0.0, 0.0);
                for &node in &groups[group].operators {
                    size += of.nodes[node].pass;
                    opened += if users[node] > 0 { of.nodes[node].pass } else { 0.0 };
                    let inputs = of.nodes[node].inputs.iter().filter(|&&from| users[from] == 1);
                    opened -= inputs.map(|&from| of.nodes[from].pass).sum::<f64>();
                }
                let value = opened + noise * size * (2.0 * self.unit() - 1.0);
                if value < best.0 {
                    best = (value, i);
                }
            }
            let group = ready.remove(best.1);
            order.push(group);
            for &node in &groups[group].operators {
                of.nodes[node].inputs.iter().for_each(|&from| users[from] -= 1);
            }
            for &user in &self.users[group] {
                left[user] -= 1;
                if left[user] == 0 {
                    ready.push(user);
                }
            }
        }
        order
    }

    /// An order near another one: places move by a random distance, or groups of the device with the
    /// largest load move, with all that must come before or behind them.
    pub(super) fn near(&mut self, order: &[usize], placed: &Placed) -> Vec<usize> {
        let count = order.len();
        let mut keys = vec![0.0; count];
        order.iter().enumerate().for_each(|(place, &group)| keys[group] = place as f64);
        if self.below(2) == 0 {
            let most = 1 + self.below(usize::BITS as usize - count.leading_zeros() as usize);
            let distance = (1u64 << most) as f64;
            let part = [0.05, 0.3, 1.0][self.below(3)];
            for key in &mut keys {
                if self.unit() < part {
                    *key += distance * (self.unit() - 0.5);
                }
            }
        } else {
            let slowest = placed.stages.iter().enumerate().max_by(|a, b| {
                let load = |stage: &(super::Load, Vec<usize>)| {
                    super::labels::load_of(self.graph, stage.0, &stage.1)
                };
                load(a.1).total_cmp(&load(b.1))
            });
            let Some((slowest, _)) = slowest else { return order.to_vec() };
            for _ in 0..1 + self.below(3) {
                // Mostly of the slowest device, else of any.
                let stage = match self.below(4) {
                    0 => self.below(placed.stages.len()),
                    _ => slowest,
                };
                let groups = &placed.stages[stage].1;
                let group = groups[self.below(groups.len())];
                let place = self.below(count) as f64 + 0.5;
                self.carry(&mut keys, group, place);
            }
        }
        self.by(|group, _| keys[group])
    }

    /// Moves a group to a place, and before it or behind it what must be there.
    fn carry(&self, keys: &mut [f64], group: usize, place: f64) {
        let earlier = place < keys[group];
        let mut work = vec![group];
        while let Some(group) = work.pop() {
            let (moves, next) = match earlier {
                true => (keys[group] > place, &self.graph.groups[group].inputs),
                false => (keys[group] < place, &self.users[group]),
            };
            if moves {
                keys[group] = place;
                work.extend(next);
            }
        }
    }
}

/// The order of a placement: device by device, within each as before.
pub(super) fn order_of(placed: &Placed, order: &[usize]) -> Vec<usize> {
    let mut device = vec![0; order.len()];
    for (i, (_, groups)) in placed.stages.iter().enumerate() {
        groups.iter().for_each(|&group| device[group] = i);
    }
    let mut sorted = order.to_vec();
    sorted.sort_by_key(|&group| device[group]);
    sorted
}

#[cfg(test)]
mod tests {
    use super::super::Load;
    use super::*;
    use crate::planner::baselines::tests::file;
    use crate::planner::baselines::{Imported, Operators};

    #[track_caller]
    fn is_topological(graph: &Grouped<'_>, order: &[usize]) {
        let mut place = vec![usize::MAX; graph.len()];
        order.iter().enumerate().for_each(|(at, &group)| place[group] = at);
        assert_eq!(order.len(), graph.len());
        for (group, it) in graph.groups.iter().enumerate() {
            assert!(it.inputs.iter().all(|&from| place[from] < place[group]), "{order:?}");
        }
    }

    #[test]
    fn orders_are_topological_and_repeatable() {
        let read = Imported::read(&file("resnet50_training.json")).unwrap();
        let Imported::Operators(of) = read else { panic!("a graph of operators") };
        let of: Operators = of;
        let graph = Grouped::new(&of);
        let made = || {
            let mut orders = Orders::new(&graph);
            let mut all: Vec<Vec<usize>> = (0..12).map(|round| orders.start(round)).collect();
            let half = graph.len() / 2;
            let stages = [all[0][..half].to_vec(), all[0][half..].to_vec()];
            let stages = stages.map(|groups| (Load::Accelerator, groups)).to_vec();
            let placed = Placed { stages, load: 1.0 };
            for _ in 0..20 {
                let near = orders.near(all.last().unwrap(), &placed);
                all.push(near);
            }
            all
        };
        let all = made();
        all.iter().for_each(|order| is_topological(&graph, order));
        assert_eq!(all, made());
        let mut different = all.clone();
        different.sort();
        different.dedup();
        assert!(different.len() > 15, "{}", different.len());
    }
}
