//! Fusion of gradients with the updates that follow them.

use super::{Graph, Kind, Node, Root, Shards};
use crate::ops::Metas;
use crate::ops::updated::Updated;
use crate::units::ValueId;
use std::ops::Range;
use std::sync::Arc;

/// Replaces each gradient and the update that is its only user by one op.
///
/// Not where the gradient is summed in several blocks or shards: blocks are shared by
/// workers, and small; shards by ranks and devices. The op that adds these is then fused
/// with the update instead, once it is made explicit. The op stands as early as it can, so that what the
/// gradient reads lives no longer than before.
pub fn fuse_updates(graph: Graph, shards: &Shards) -> Graph {
    let mut graph = graph;
    let mut program = Ordered::of(&graph);
    let mut uses = vec![0usize; graph.values.len()];
    let read = graph.nodes.iter().flat_map(|n| &n.inputs);
    for id in read.chain(graph.fetches.iter().map(|(_, id)| id)) {
        uses[id.index()] += 1;
    }
    let mut at = 0;
    while let Some(&update) = program.order.get(at) {
        match fused(&graph, shards, &program, &uses, update) {
            Some((gradient, to, node)) => {
                program.fuse(gradient, update, to, &node);
                graph.nodes[update] = node;
            }
            None => at += 1,
        }
    }
    let mut nodes: Vec<Option<Node>> = graph.nodes.into_iter().map(Some).collect();
    graph.nodes = program.order.iter().filter_map(|&node| nodes[node].take()).collect();
    graph
}

/// The nodes of a graph in an order that changes, and where each value is made and read.
struct Ordered {
    roots: Vec<Root>,
    /// Indices of nodes.
    order: Vec<usize>,
    /// The place of each node in the order; none of those that were fused with others.
    place: Vec<Option<usize>>,
    /// By root: the nodes that have it, or a view of it, as an output and as an input.
    makers: Vec<Vec<usize>>,
    readers: Vec<Vec<usize>>,
}

impl Ordered {
    fn of(graph: &Graph) -> Self {
        let none = vec![Vec::new(); graph.values.len()];
        let mut all = Self {
            roots: graph.roots(),
            order: (0..graph.nodes.len()).collect(),
            place: (0..graph.nodes.len()).map(Some).collect(),
            makers: none.clone(),
            readers: none,
        };
        graph.nodes.iter().enumerate().for_each(|(i, node)| all.add(i, node));
        all
    }

    fn add(&mut self, index: usize, node: &Node) {
        let root = |v: &ValueId| self.roots[v.index()].value.index();
        node.outputs.iter().for_each(|v| self.makers[root(v)].push(index));
        node.inputs.iter().for_each(|v| self.readers[root(v)].push(index));
    }

    /// The places within a range of those nodes of `touching` that touch some values.
    fn touch<'a>(
        &'a self,
        touching: &'a [Vec<usize>],
        values: &'a [ValueId],
        within: Range<usize>,
    ) -> impl Iterator<Item = (usize, usize)> + 'a {
        let nodes = values.iter().flat_map(|v| &touching[self.roots[v.index()].value.index()]);
        let placed = nodes.filter_map(|&node| Some((node, self.place[node]?)));
        placed.filter(move |(_, place)| within.contains(place))
    }

    /// Takes out a gradient and an update; the node that does both has the index of the
    /// update, and stands before what was at the place `to`.
    fn fuse(&mut self, gradient: usize, update: usize, to: usize, node: &Node) {
        let (Some(from), Some(end)) = (self.place[gradient], self.place[update]) else { return };
        self.order[to..=end].rotate_right(1);
        self.order.remove(from);
        self.place[gradient] = None;
        for (place, &node) in self.order.iter().enumerate().skip(from) {
            self.place[node] = Some(place);
        }
        self.add(update, node);
    }
}

/// The gradient that an update can be fused with, the place of the op that does
/// both, before the two are taken out, and that op.
fn fused(
    graph: &Graph,
    shards: &Shards,
    program: &Ordered,
    uses: &[usize],
    update: usize,
) -> Option<(usize, usize, Node)> {
    let after = &graph.nodes[update];
    let made = *after.inputs.first()?;
    if uses[made.index()] != 1 || graph.value(made).kind != Kind::Local {
        return None;
    }
    let end = program.place[update]?;
    let makers = program.touch(&program.makers, std::slice::from_ref(&made), 0..end);
    let makers = makers.filter(|(node, _)| graph.nodes[*node].outputs.contains(&made));
    let (gradient, from) = makers.min_by_key(|(_, place)| *place)?;
    let before = &graph.nodes[gradient];
    let (inputs, outputs) = graph.metas(before);
    let metas = Metas { inputs: &inputs, outputs: &outputs };
    let whole = before.op.summed(metas).is_some()
        && graph.default_blocks(before, shards) == 1
        && graph.sum_shards(before, shards) == 1;
    if !whole && !before.op.each_alone() {
        return None;
    }
    let op = Updated::fused(&before.op, metas, &after.op)?;
    // The update may pass what neither touches its outputs nor makes its inputs.
    let between = from + 1..end;
    let makes = program.touch(&program.makers, &after.inputs[1..], between.clone());
    let writes = program.touch(&program.makers, &after.outputs, between.clone());
    let reads = program.touch(&program.readers, &after.outputs, between);
    let stops = makes.chain(writes).chain(reads).map(|(_, place)| place).max();
    let to = stops.unwrap_or(from) + 1;
    // The gradient may pass what leaves its inputs alone.
    let mut written = program.touch(&program.makers, &before.inputs, from + 1..to);
    if written.any(|(node, _)| graph.nodes[node].op.view().is_none()) {
        return None;
    }
    let inputs = before.inputs.iter().chain(&after.inputs[1..]).copied().collect();
    let path = before.path.clone();
    Some((gradient, to, Node { op: Arc::new(op), inputs, path, ..after.clone() }))
}
