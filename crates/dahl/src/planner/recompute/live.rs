//! The memory that is alive while a program runs node by node, by what runs again.
//!
//! An estimate: pieces, gathered tasks and packing are not known here.

use crate::graph::{Graph, Kind, Phase, Value, recomputable};
use crate::ops::Access;
use crate::units::ValueId;

/// What moving a byte costs in floating-point operations: about the ratio of a core's
/// arithmetic to its share of the memory's bandwidth.
const FLOPS_A_BYTE: f64 = 4.0;

/// Values this many times smaller than all together do not count.
const COUNTS: u64 = 1 << 16;

/// A node, its operands as the values whose bytes they look at.
struct Step {
    /// The values that count and are read.
    reads: Vec<usize>,
    /// The values that count and are written.
    writes: Vec<usize>,
    /// The nodes that make what it reads.
    makers: Vec<usize>,
    forward: bool,
    view: bool,
    /// Bytes that only the node itself needs: prepared weights, partial sums.
    private: u64,
    /// The work of the node.
    cost: f64,
    /// Whether it may run again.
    may: bool,
}

/// A value of the work memory that is large enough to count.
struct Counted {
    bytes: u64,
    maker: usize,
    /// Whether something behind the forward pass reads it.
    kept: bool,
}

/// What lies between a forward node and the next.
pub(super) struct Crossing {
    /// The node.
    pub(super) node: usize,
    /// The bytes alive there that forward nodes read later.
    pub(super) bytes: u64,
    /// The nodes that made them.
    pub(super) makers: Vec<usize>,
}

/// A program as far as its memory over time goes.
pub(super) struct Live {
    steps: Vec<Step>,
    values: Vec<Counted>,
    /// The peak where nothing runs again.
    pub(super) plain: u64,
    /// By forward node, in order.
    pub(super) crossings: Vec<Crossing>,
}

impl Live {
    /// Of a lowered graph and what its numerics make of it.
    pub(super) fn of(graph: &Graph, expanded: &Graph) -> Self {
        let roots = graph.roots();
        let root = |v: &ValueId| roots[v.index()].value.index();
        let fetched: Vec<usize> = graph.fetches.iter().map(|(_, v)| root(v)).collect();
        let of_value = |(i, value): (usize, &Value)| match value.kind {
            Kind::Local if roots[i].value.index() == i && !fetched.contains(&i) => {
                value.meta.bytes() as u64
            }
            _ => 0,
        };
        let bytes: Vec<u64> = graph.values.iter().enumerate().map(of_value).collect();
        let makers = graph.makers();
        let least = bytes.iter().sum::<u64>() / COUNTS;
        let mut number: Vec<Option<usize>> = vec![None; bytes.len()];
        let mut values = Vec::new();
        for (i, &bytes) in bytes.iter().enumerate().filter(|(_, bytes)| **bytes > least) {
            if let Some(maker) = makers[i] {
                number[i] = Some(values.len());
                values.push(Counted { bytes, maker: maker.index(), kept: false });
            }
        }
        let may = may_run_again(graph);
        let private = private_bytes(graph, expanded);
        let step = |i: usize| {
            let node = &graph.nodes[i];
            let (inputs, outputs) = graph.metas(node);
            let moved: usize = inputs.iter().chain(&outputs).map(|m| m.bytes()).sum();
            let flops = graph.flops_of(node).0;
            let read = || node.inputs.iter().map(root);
            Step {
                reads: read().filter_map(|v| number[v]).collect(),
                writes: node.outputs.iter().map(root).filter_map(|v| number[v]).collect(),
                makers: read().filter_map(|v| makers[v]).map(|m| m.index()).collect(),
                forward: node.phase == Phase::Forward,
                view: node.op.view().is_some(),
                private: private[i],
                cost: flops as f64 + FLOPS_A_BYTE * moved as f64,
                may: may[i],
            }
        };
        let steps: Vec<Step> = (0..graph.nodes.len()).map(step).collect();
        for step in steps.iter().filter(|step| !step.forward && !step.view) {
            step.reads.iter().for_each(|&v| values[v].kept = true);
        }
        let mut live = Self { steps, values, plain: 0, crossings: Vec::new() };
        live.plain = live.profile(&vec![false; live.len()]).into_iter().max().unwrap_or(0);
        live.crossings = live.crossings();
        live
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
        self.steps[node].writes.iter().map(|&v| self.values[v].bytes).sum()
    }

    /// The nodes that would have to run again with a node, so that no value lives longer
    /// for its sake: the makers of inputs that nothing else behind the forward pass reads.
    pub(super) fn with_makers(&self, node: usize, again: &[bool]) -> Vec<usize> {
        let mut all = vec![node];
        let mut at = 0;
        while at < all.len() {
            for value in self.steps[all[at]].reads.iter().map(|&v| &self.values[v]) {
                let free = value.kept || again[value.maker];
                if !free && self.steps[value.maker].may && !all.contains(&value.maker) {
                    all.push(value.maker);
                }
            }
            at += 1;
        }
        all
    }

    fn crossings(&self) -> Vec<Crossing> {
        let forward = self.steps.iter().enumerate().filter(|(_, s)| s.forward);
        let mut last = vec![0; self.values.len()];
        for (i, step) in forward.clone() {
            step.reads.iter().for_each(|&v| last[v] = i);
        }
        forward
            .map(|(i, _)| {
                let across = || {
                    let all = self.values.iter().zip(&last);
                    all.filter(move |(v, last)| v.maker <= i && **last > i).map(|(v, _)| v)
                };
                let makers = across().map(|v| v.maker).collect();
                Crossing { node: i, bytes: across().map(|v| v.bytes).sum(), makers }
            })
            .collect()
    }

    /// The bytes alive at each node as the nodes follow each other, those that run again
    /// right before they are needed.
    pub(super) fn profile(&self, again: &[bool]) -> Vec<u64> {
        let order = self.order(again);
        let values = self.values.len();
        let mut lives: Vec<(usize, usize)> = vec![(usize::MAX, 0); 2 * values];
        let mut touch = |value: usize, at: usize| {
            let (first, last) = &mut lives[value];
            (*first, *last) = ((*first).min(at), at + 1);
        };
        for (at, &(i, second)) in order.iter().enumerate() {
            let step = &self.steps[i];
            let behind = second || !step.forward;
            for &value in &step.reads {
                let remade = behind && again[self.values[value].maker];
                touch(if remade { value + values } else { value }, at);
            }
            for &value in &step.writes {
                touch(if second { value + values } else { value }, at);
            }
        }
        let mut change = vec![0i64; order.len() + 1];
        for (value, &(first, end)) in lives.iter().enumerate().filter(|(_, l)| l.0 < l.1) {
            let bytes = self.values[value % values].bytes as i64;
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
        let mut order = Vec::with_capacity(2 * self.steps.len());
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
        for &maker in &self.steps[i].makers {
            if again[maker] && !std::mem::replace(&mut done[maker], true) {
                self.remake(maker, again, done, order);
                order.push((maker, true));
            }
        }
    }
}

/// Which nodes may run again: not those whose inputs have changed when the backward pass
/// first needs their results.
fn may_run_again(graph: &Graph) -> Vec<bool> {
    let roots = graph.roots();
    let root = |v: &ValueId| roots[v.index()].value.index();
    let mut changed: Vec<Option<usize>> = vec![None; graph.values.len()];
    let mut needed: Vec<Option<usize>> = vec![None; graph.values.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        for (o, v) in node.outputs.iter().enumerate() {
            if node.op.access(o) == Access::Update {
                changed[root(v)].get_or_insert(i);
            }
        }
        if node.phase != Phase::Forward && node.op.view().is_none() {
            for v in &node.inputs {
                needed[root(v)].get_or_insert(i);
            }
        }
    }
    let mut may = vec![false; graph.nodes.len()];
    for id in recomputable(graph) {
        let node = graph.node(id);
        let first = node.outputs.iter().filter_map(|v| needed[root(v)]).min();
        let late = |v: &ValueId| changed[root(v)].zip(first).is_some_and(|(at, first)| at < first);
        may[id.index()] = !node.inputs.iter().any(late);
    }
    may
}

/// The bytes of values that numerics add to each node of a lowered graph. The nodes that
/// a node becomes follow each other, and the last of them makes its results.
fn private_bytes(graph: &Graph, expanded: &Graph) -> Vec<u64> {
    let mut nodes = expanded.nodes.iter();
    let added = |node: &crate::graph::Node| -> u64 {
        let new = node.outputs.iter().filter(|v| v.index() >= graph.values.len());
        new.map(|v| expanded.value(*v).meta.bytes() as u64).sum()
    };
    let of = |lowered: &crate::graph::Node| {
        let mut bytes = 0;
        for node in nodes.by_ref() {
            bytes += added(node);
            if node.outputs == lowered.outputs {
                break;
            }
        }
        bytes
    };
    graph.nodes.iter().map(of).collect()
}
