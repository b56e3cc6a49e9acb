//! The memory that is alive while a program runs node by node, by what runs again.
//!
//! An estimate: pieces, gathered tasks and packing are not known here.

use crate::graph::{Graph, Kind, Phase, recomputable};
use crate::ops::{Access, Metas};
use crate::units::NodeId;

/// What moving a byte costs in floating-point operations: about the ratio of a core's
/// arithmetic to its share of the memory's bandwidth.
const FLOPS_A_BYTE: f64 = 4.0;

/// A node, its operands as the values whose bytes they look at.
struct Step {
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    forward: bool,
    view: bool,
    /// Bytes that only the node itself needs: prepared weights, partial sums.
    private: u64,
    /// The work of the node.
    cost: f64,
    /// Whether it may run again.
    may: bool,
}

/// A program as far as its memory over time goes.
pub(super) struct Live {
    steps: Vec<Step>,
    /// The bytes of each value in the work memory.
    bytes: Vec<u64>,
    /// The node that makes each value.
    makers: Vec<Option<usize>>,
    /// Whether something behind the forward pass reads a value.
    kept: Vec<bool>,
}

impl Live {
    /// Of a lowered graph and what its numerics make of it.
    pub(super) fn of(graph: &Graph, expanded: &Graph) -> Self {
        let roots = graph.roots();
        let root = |v: &crate::units::ValueId| roots[v.index()].value.index();
        let may = recomputable(graph);
        let mut private = private_bytes(graph, expanded).into_iter();
        let steps: Vec<Step> = graph
            .node_ids()
            .map(|id| {
                let node = graph.node(id);
                let (inputs, outputs) = graph.metas(node);
                let metas = Metas { inputs: &inputs, outputs: &outputs };
                let moved: usize = inputs.iter().chain(&outputs).map(|m| m.bytes()).sum();
                let flops = node.op.flops(metas, &graph.whole(node)).0;
                Step {
                    inputs: node.inputs.iter().map(root).collect(),
                    outputs: node.outputs.iter().map(root).collect(),
                    forward: node.phase == Phase::Forward,
                    view: node.op.view().is_some(),
                    private: private.next().unwrap_or(0),
                    cost: flops as f64 + FLOPS_A_BYTE * moved as f64,
                    may: may.binary_search(&id).is_ok(),
                }
            })
            .collect();
        let fetched: Vec<usize> = graph.fetches.iter().map(|(_, v)| root(v)).collect();
        let of_value = |(i, value): (usize, &crate::graph::Value)| match value.kind {
            Kind::Local if roots[i].value.index() == i && !fetched.contains(&i) => {
                value.meta.bytes() as u64
            }
            _ => 0,
        };
        let bytes = graph.values.iter().enumerate().map(of_value).collect();
        let mut makers = vec![None; graph.values.len()];
        let mut kept = vec![false; graph.values.len()];
        for (i, step) in steps.iter().enumerate().filter(|(_, step)| !step.view) {
            let made = step.outputs.iter().enumerate();
            made.filter(|(o, _)| graph.nodes[i].op.access(*o) == Access::Write)
                .for_each(|(_, &value)| makers[value] = Some(i));
            let behind = step.inputs.iter().filter(|_| !step.forward);
            behind.for_each(|&value| kept[value] = true);
        }
        let mut live = Self { steps, bytes, makers, kept };
        live.forbid_changed(graph);
        live
    }

    /// A node whose inputs have changed when the backward pass first needs its results
    /// may not run again.
    fn forbid_changed(&mut self, graph: &Graph) {
        let mut changed: Vec<Option<usize>> = vec![None; self.bytes.len()];
        for (i, step) in self.steps.iter().enumerate() {
            let updated = |o: &(usize, &usize)| graph.nodes[i].op.access(o.0) == Access::Update;
            for (_, &value) in step.outputs.iter().enumerate().filter(updated) {
                changed[value].get_or_insert(i);
            }
        }
        for i in 0..self.steps.len() {
            let (before, behind) = self.steps.split_at(i + 1);
            let reads = |s: &Step| s.inputs.iter().any(|v| before[i].outputs.contains(v));
            let need = behind.iter().position(|s| !s.forward && !s.view && reads(s));
            let late = |v: &usize| {
                changed[*v].zip(need).is_some_and(|(at, need)| i < at && at < i + 1 + need)
            };
            if self.steps[i].inputs.iter().any(late) {
                self.steps[i].may = false;
            }
        }
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether a node may run again.
    pub(super) fn may(&self, node: usize) -> bool {
        self.steps[node].may
    }

    /// The work of a node.
    pub(super) fn cost(&self, node: usize) -> f64 {
        self.steps[node].cost
    }

    /// The work of all nodes of a set.
    pub(super) fn cost_of(&self, again: &[bool]) -> f64 {
        (0..again.len()).filter(|&i| again[i]).map(|i| self.steps[i].cost).sum()
    }

    /// The bytes that a node makes.
    pub(super) fn made(&self, node: usize) -> u64 {
        self.steps[node].outputs.iter().map(|&v| self.bytes[v]).sum()
    }

    /// The nodes that would have to run again with a node, so that no value lives longer
    /// for its sake: the makers of inputs that nothing else behind the forward pass reads.
    pub(super) fn with_makers(&self, node: usize, again: &[bool]) -> Vec<usize> {
        let mut all = vec![node];
        let mut at = 0;
        while at < all.len() {
            for &value in &self.steps[all[at]].inputs {
                let maker = self.makers[value].filter(|&m| {
                    let free = self.bytes[value] == 0 || self.kept[value] || again[m];
                    !free && self.steps[m].may && !all.contains(&m)
                });
                all.extend(maker);
            }
            at += 1;
        }
        all
    }

    /// The bytes alive behind each forward node that forward nodes after it read, and the
    /// nodes that made them.
    pub(super) fn crossings(&self) -> Vec<(u64, Vec<usize>)> {
        let forward = self.steps.iter().enumerate().filter(|(_, s)| s.forward);
        let mut last = vec![0; self.bytes.len()];
        for (i, step) in forward.clone() {
            step.inputs.iter().for_each(|&v| last[v] = i);
        }
        forward
            .map(|(i, _)| {
                let across = |v: &usize| self.makers[*v].is_some_and(|m| m <= i) && last[*v] > i;
                let values: Vec<usize> = (0..self.bytes.len()).filter(across).collect();
                let bytes = values.iter().map(|&v| self.bytes[v]).sum();
                (bytes, values.iter().filter_map(|&v| self.makers[v]).collect())
            })
            .collect()
    }

    /// The bytes alive at each node as the nodes follow each other, those that run again
    /// right before they are needed.
    pub(super) fn profile(&self, again: &[bool]) -> Vec<u64> {
        let order = self.order(again);
        let values = self.bytes.len();
        let mut lives: Vec<(usize, usize)> = vec![(usize::MAX, 0); 2 * values];
        let mut touch = |value: usize, at: usize| {
            let (first, last) = &mut lives[value];
            (*first, *last) = ((*first).min(at), at + 1);
        };
        for (at, &(i, second)) in order.iter().enumerate() {
            let step = &self.steps[i];
            let behind = second || !step.forward;
            for &value in &step.inputs {
                let remade = behind && self.makers[value].is_some_and(|m| again[m]);
                touch(if remade { value + values } else { value }, at);
            }
            for &value in &step.outputs {
                touch(if second { value + values } else { value }, at);
            }
        }
        let mut change = vec![0i64; order.len() + 1];
        for (value, &(first, end)) in lives.iter().enumerate().filter(|(_, l)| l.0 < l.1) {
            let bytes = self.bytes[value % values] as i64;
            change[first] += bytes;
            change[end] -= bytes;
        }
        let mut alive = 0;
        order
            .iter()
            .zip(change)
            .map(|(&(i, _), change)| {
                alive += change;
                alive as u64 + self.steps[i].private
            })
            .collect()
    }

    /// The nodes in order, and whether each runs again.
    fn order(&self, again: &[bool]) -> Vec<(usize, bool)> {
        let mut order = Vec::with_capacity(self.steps.len());
        let mut done = vec![false; self.steps.len()];
        for (i, step) in self.steps.iter().enumerate().filter(|(_, step)| !step.view) {
            if !step.forward {
                self.remake(i, again, &mut done, &mut order);
            }
            order.push((i, false));
        }
        order
    }

    fn remake(&self, i: usize, again: &[bool], done: &mut [bool], order: &mut Vec<(usize, bool)>) {
        for maker in self.steps[i].inputs.iter().filter_map(|&v| self.makers[v]) {
            if again[maker] && !std::mem::replace(&mut done[maker], true) {
                self.remake(maker, again, done, order);
                order.push((maker, true));
            }
        }
    }
}

/// The bytes of values that numerics add to each node of a lowered graph. The nodes that
/// a node becomes follow each other, and the last of them makes its results.
fn private_bytes(graph: &Graph, expanded: &Graph) -> Vec<u64> {
    let mut private = Vec::with_capacity(graph.nodes.len());
    let mut bytes = 0;
    for node in &expanded.nodes {
        let added = node.outputs.iter().filter(|v| v.index() >= graph.values.len());
        bytes += added.map(|v| expanded.value(*v).meta.bytes() as u64).sum::<u64>();
        let next = graph.nodes.get(NodeId::new(private.len()).index());
        if next.is_some_and(|lowered| lowered.outputs == node.outputs) {
            private.push(std::mem::take(&mut bytes));
        }
    }
    private
}
