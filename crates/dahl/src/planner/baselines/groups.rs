//! Operators that go to one device together, and the graph of them: the model of
//! dnn-partitioning (Tarnawski et al. 2020).
//!
//! The load of an accelerator is what its operators take, and for each operator outside
//! whose output it uses, and each of its own whose output is used outside, what passing
//! that on takes, once. The load of a core is what its operators take. Operators of one
//! colour go together, which ties the backward part to the forward part; stages are cut
//! by the forward part alone. What is of the backward part alone goes by its edges,
//! turned around.

use super::import::Operators;
use super::max_load::Load;

/// Operators that are always together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    /// By index.
    pub(super) operators: Vec<usize>,
    /// What they take on an accelerator; infinite where one of them cannot run there.
    pub(super) accelerator: f64,
    /// What they take on a core.
    pub(super) core: f64,
    /// Bytes that they need.
    pub(super) bytes: f64,
    /// Groups that come before it in the forward part.
    pub(super) inputs: Vec<usize>,
}

/// All groups, each behind the ones before it.
pub(super) fn groups(of: &Operators) -> Vec<Group> {
    let mut colours: Vec<i64> = of.nodes.iter().map(|node| node.colour).collect();
    colours.sort_unstable();
    colours.dedup();
    let class = |i: usize| colours.binary_search(&of.nodes[i].colour).expect("a colour of a node");
    let mut forward = vec![false; colours.len()];
    for (i, node) in of.nodes.iter().enumerate() {
        forward[class(i)] |= !node.backward;
    }
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); colours.len()];
    for (i, node) in of.nodes.iter().enumerate() {
        for &from in &node.inputs {
            let (a, b) = (class(from), class(i));
            if a == b {
                continue;
            }
            if !node.backward && !of.nodes[from].backward {
                after[a].push(b);
            } else if !forward[a] || !forward[b] {
                match node.backward && of.nodes[from].backward {
                    true => after[b].push(a),
                    false => after[a].push(b),
                }
            }
        }
    }
    // Classes in a circle cannot be apart.
    let component = components(&after);
    let count = component.iter().max().map_or(0, |most| most + 1);
    let mut all: Vec<Group> = (0..count)
        .map(|_| Group {
            operators: vec![],
            accelerator: 0.0,
            core: 0.0,
            bytes: 0.0,
            inputs: vec![],
        })
        .collect();
    for (i, node) in of.nodes.iter().enumerate() {
        let group = &mut all[component[class(i)]];
        group.operators.push(i);
        group.accelerator += node.accelerator.unwrap_or(f64::INFINITY);
        group.core += node.core;
        group.bytes += node.bytes;
    }
    for (a, to) in after.iter().enumerate() {
        for &b in to {
            let (a, b) = (component[a], component[b]);
            if a != b && !all[b].inputs.contains(&a) {
                all[b].inputs.push(a);
            }
        }
    }
    let inputs: Vec<Vec<usize>> = all.iter().map(|group| group.inputs.clone()).collect();
    let keys: Vec<u64> = all.iter().map(|group| group.operators[0] as u64).collect();
    let order = super::import::in_order(&inputs, &keys).expect("no circles are left");
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
    let renumbered = order.iter().map(|&old| {
        let mut group = all[old].clone();
        group.inputs.iter_mut().for_each(|from| *from = place[*from]);
        group.inputs.sort_unstable();
        group
    });
    renumbered.collect()
}

/// The number of the strongly connected component of each node (Tarjan 1972), without
/// recursion: graphs are deep.
fn components(after: &[Vec<usize>]) -> Vec<usize> {
    let n = after.len();
    let (mut index, mut low) = (vec![usize::MAX; n], vec![0; n]);
    let (mut on, mut component) = (vec![false; n], vec![usize::MAX; n]);
    let (mut stack, mut next, mut count) = (Vec::new(), 0, 0);
    for root in 0..n {
        if index[root] != usize::MAX {
            continue;
        }
        let mut work = vec![(root, 0)];
        while let Some(&mut (v, ref mut at)) = work.last_mut() {
            if *at == 0 {
                (index[v], low[v]) = (next, next);
                next += 1;
                stack.push(v);
                on[v] = true;
            }
            if let Some(&w) = after[v].get(*at) {
                *at += 1;
                if index[w] == usize::MAX {
                    work.push((w, 0));
                } else if on[w] {
                    low[v] = low[v].min(index[w]);
                }
                // A node without successors is entered once more below.
                continue;
            }
            work.pop();
            if low[v] == index[v] {
                loop {
                    let w = stack.pop().expect("the node itself");
                    on[w] = false;
                    component[w] = count;
                    if w == v {
                        break;
                    }
                }
                count += 1;
            }
            if let Some(&(parent, _)) = work.last() {
                low[parent] = low[parent].min(low[v]);
            }
        }
    }
    component
}

/// The transfers of an accelerator, while groups are added to it and removed again.
pub(super) struct Transfers<'a> {
    of: &'a Operators,
    users: &'a [Vec<usize>],
    inside: Vec<bool>,
    /// Users outside, of operators inside; users inside, of operators outside.
    across: Vec<usize>,
    total: f64,
}

impl<'a> Transfers<'a> {
    pub(super) fn new(of: &'a Operators, users: &'a [Vec<usize>]) -> Self {
        let count = of.nodes.len();
        Self { of, users, inside: vec![false; count], across: vec![0; count], total: 0.0 }
    }

    /// Their time.
    pub(super) fn total(&self) -> f64 {
        self.total.max(0.0)
    }

    pub(super) fn add(&mut self, group: &Group) {
        for &node in &group.operators {
            // Its output came in, if it was used; now it goes out, if it is used outside.
            if self.across[node] > 0 {
                self.total -= self.of.nodes[node].pass;
            }
            self.inside[node] = true;
            self.across[node] = self.users[node].iter().filter(|user| !self.inside[**user]).count();
            if self.across[node] > 0 {
                self.total += self.of.nodes[node].pass;
            }
            for &from in &self.of.nodes[node].inputs {
                let pass = self.of.nodes[from].pass;
                if self.inside[from] {
                    self.across[from] -= 1;
                    if self.across[from] == 0 {
                        self.total -= pass;
                    }
                } else {
                    if self.across[from] == 0 {
                        self.total += pass;
                    }
                    self.across[from] += 1;
                }
            }
        }
    }

    /// Removes the group that was added last; `before` is the total before it was added, so that no
    /// rounding stays.
    pub(super) fn remove(&mut self, group: &Group, before: f64) {
        for &node in group.operators.iter().rev() {
            for &from in &self.of.nodes[node].inputs {
                match self.inside[from] {
                    true => self.across[from] += 1,
                    false => self.across[from] -= 1,
                }
            }
            self.inside[node] = false;
            self.across[node] = self.users[node].iter().filter(|user| self.inside[**user]).count();
        }
        self.total = before;
    }
}

/// A graph of groups.
#[derive(Clone)]
pub(super) struct Grouped<'a> {
    pub(super) of: &'a Operators,
    /// Each behind its inputs.
    pub(super) groups: Vec<Group>,
    /// The operators that use the output of each operator.
    users: Vec<Vec<usize>>,
}

impl<'a> Grouped<'a> {
    pub(super) fn new(of: &'a Operators) -> Self {
        Self { of, groups: groups(of), users: operator_users(of) }
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn transfers(&self) -> Transfers<'_> {
        Transfers::new(self.of, &self.users)
    }

    /// The inputs of each group.
    pub(super) fn inputs(&self) -> Vec<Vec<usize>> {
        self.groups.iter().map(|group| group.inputs.clone()).collect()
    }

    /// The groups that need each group.
    pub(super) fn group_users(&self) -> Vec<Vec<usize>> {
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); self.len()];
        for (to, group) in self.groups.iter().enumerate() {
            group.inputs.iter().for_each(|&from| users[from].push(to));
        }
        users
    }

    /// The graph of at most so many blocks of groups that are consecutive in a topological order.
    pub(super) fn blocks(&self, order: &[usize], most: usize) -> Self {
        let size = order.len().div_ceil(most.max(1)).max(1);
        let mut block = vec![0; self.len()];
        order.iter().enumerate().for_each(|(place, &group)| block[group] = place / size);
        let merged = order.chunks(size).enumerate().map(|(own, members)| {
            let of = || members.iter().map(|&group| &self.groups[group]);
            let inputs = of().flat_map(|group| group.inputs.iter().map(|&from| block[from]));
            let mut inputs: Vec<usize> = inputs.filter(|&from| from != own).collect();
            inputs.sort_unstable();
            inputs.dedup();
            Group {
                operators: of().flat_map(|group| group.operators.iter().copied()).collect(),
                accelerator: of().map(|group| group.accelerator).sum(),
                core: of().map(|group| group.core).sum(),
                bytes: of().map(|group| group.bytes).sum(),
                inputs,
            }
        });
        Self { of: self.of, groups: merged.collect(), users: self.users.clone() }
    }
}

/// The load of a device with some operators.
pub(in crate::planner) fn device_load(of: &Operators, kind: Load, operators: &[usize]) -> f64 {
    let nodes = || operators.iter().map(|&node| &of.nodes[node]);
    if kind == Load::Core {
        return nodes().map(|node| node.core).sum();
    }
    let graph = Grouped { of, groups: Vec::new(), users: operator_users(of) };
    let mut transfers = graph.transfers();
    transfers.add(&Group {
        operators: operators.to_vec(),
        accelerator: 0.0,
        core: 0.0,
        bytes: 0.0,
        inputs: Vec::new(),
    });
    let work: f64 = nodes().map(|node| node.accelerator.unwrap_or(f64::INFINITY)).sum();
    work + transfers.total()
}

/// The operators that use the output of each operator.
fn operator_users(of: &Operators) -> Vec<Vec<usize>> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); of.nodes.len()];
    for (to, node) in of.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&from| users[from].push(to));
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::baselines::Imported;
    use crate::planner::baselines::tests::file;

    /// Adding and removing groups in any order of visits gives the transfers of the set itself.
    #[test]
    fn transfers_are_those_of_the_set() {
        let Ok(Imported::Operators(of)) = Imported::read(&file("bert24_training.json")) else {
            panic!("a graph of operators")
        };
        let graph = Grouped::new(&of);
        let mut transfers = graph.transfers();
        let mut stack: Vec<(usize, f64)> = Vec::new();
        for step in 0..400 {
            // Two steps forward, one back.
            if step % 3 == 2 {
                let (group, before) = stack.pop().expect("a group was added");
                transfers.remove(&graph.groups[group], before);
            } else if stack.len() < graph.len() {
                let group = (stack.len() * 7 + 3) % graph.len();
                if stack.iter().all(|(other, _)| *other != group) {
                    stack.push((group, transfers.total));
                    transfers.add(&graph.groups[group]);
                } else {
                    continue;
                }
            }
            let inside =
                |i: usize| stack.iter().any(|(g, _)| graph.groups[*g].operators.contains(&i));
            let expected = of.nodes.iter().enumerate().filter(|(i, _)| {
                let used = |by_inside| {
                    (0..of.nodes.len())
                        .any(|to| of.nodes[to].inputs.contains(i) && inside(to) == by_inside)
                };
                used(!inside(*i))
            });
            let expected: f64 = expected.map(|(_, node)| node.pass).sum();
            assert!((transfers.total() - expected).abs() < 1e-9, "step {step}");
        }
    }
}
