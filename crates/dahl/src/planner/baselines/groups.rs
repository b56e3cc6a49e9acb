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

/// What passing outputs on takes on an accelerator that grows by groups.
pub(super) struct Growing<'a> {
    of: &'a Operators,
    users: &'a [Vec<usize>],
    inside: Vec<bool>,
    /// Users outside, of operators inside; users inside, of operators outside.
    across: Vec<usize>,
    passing: f64,
    work: f64,
    bytes: f64,
}

impl<'a> Growing<'a> {
    pub(super) fn new(of: &'a Operators, users: &'a [Vec<usize>]) -> Self {
        let count = of.nodes.len();
        let (inside, across) = (vec![false; count], vec![0; count]);
        Self { of, users, inside, across, passing: 0.0, work: 0.0, bytes: 0.0 }
    }

    pub(super) fn add(&mut self, group: &Group) {
        self.work += group.accelerator;
        self.bytes += group.bytes;
        for &node in &group.operators {
            // It came in, if it was used; now it goes out, if it is used outside.
            if self.across[node] > 0 {
                self.passing -= self.of.nodes[node].pass;
            }
            self.inside[node] = true;
            self.across[node] = self.users[node].iter().filter(|user| !self.inside[**user]).count();
            if self.across[node] > 0 {
                self.passing += self.of.nodes[node].pass;
            }
            for &from in &self.of.nodes[node].inputs {
                let pass = self.of.nodes[from].pass;
                if self.inside[from] {
                    if from != node {
                        self.across[from] -= 1;
                        if self.across[from] == 0 {
                            self.passing -= pass;
                        }
                    }
                } else {
                    if self.across[from] == 0 {
                        self.passing += pass;
                    }
                    self.across[from] += 1;
                }
            }
        }
    }

    /// The load of an accelerator that has all of them, if they fit.
    pub(super) fn load(&self) -> f64 {
        match self.bytes <= self.of.accelerator_bytes {
            true => self.work + self.passing.max(0.0),
            false => f64::INFINITY,
        }
    }

    pub(super) fn clear(&mut self) {
        self.inside.fill(false);
        self.across.fill(0);
        (self.passing, self.work, self.bytes) = (0.0, 0.0, 0.0);
    }
}

/// The operators that use the output of each.
pub(super) fn users(of: &Operators) -> Vec<Vec<usize>> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); of.nodes.len()];
    for (to, node) in of.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&from| users[from].push(to));
    }
    users
}
