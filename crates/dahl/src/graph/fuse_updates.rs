//! Fusion of gradients with the updates that follow them.

use super::{Graph, Kind, Node, Root, default_blocks};
use crate::ops::Metas;
use crate::ops::updated::Updated;
use crate::units::ValueId;
use std::sync::Arc;

/// Replaces each gradient and the update that is its only user by one op.
///
/// Not where the gradient is summed in several blocks: these are shared by
/// workers, and small. The op stands as early as it can, so that what the
/// gradient reads lives no longer than before.
pub fn fuse_updates(graph: Graph) -> Graph {
    let mut graph = graph;
    let roots = graph.roots();
    let mut uses = vec![0usize; graph.values.len()];
    let read = graph.nodes.iter().flat_map(|n| &n.inputs);
    for id in read.chain(graph.fetches.iter().map(|(_, id)| id)) {
        uses[id.index()] += 1;
    }
    let mut update = 0;
    while update < graph.nodes.len() {
        if let Some((gradient, at, node)) = fused(&graph, &roots, &uses, update) {
            graph.nodes.remove(update);
            graph.nodes.remove(gradient);
            // One place further to the front without the gradient.
            graph.nodes.insert(at - 1, node);
        } else {
            update += 1;
        }
    }
    graph
}

/// The gradient that an update can be fused with, the place of the op that does
/// both, before the two are taken out, and that op.
fn fused(
    graph: &Graph,
    roots: &[Root],
    uses: &[usize],
    update: usize,
) -> Option<(usize, usize, Node)> {
    let after = &graph.nodes[update];
    let made = *after.inputs.first()?;
    let gradient = graph.nodes.iter().position(|n| n.outputs.contains(&made))?;
    let before = &graph.nodes[gradient];
    if uses[made.index()] != 1 || graph.value(made).kind != Kind::Local {
        return None;
    }
    let (inputs, outputs) = graph.metas(before);
    let metas = Metas { inputs: &inputs, outputs: &outputs };
    let products = before.op.flops(metas, &graph.whole(before)).0 / 2;
    if default_blocks(before.op.summed(metas)?, outputs[0], products) > 1 {
        return None;
    }
    let op = Updated::fused(&before.op, metas, &after.op)?;
    let between = |range: std::ops::Range<usize>| graph.nodes[range].iter();
    // The update may pass what neither touches its outputs nor makes its inputs.
    let passed = between(gradient + 1..update).rev().take_while(|n| {
        let makes = shares(roots, &n.outputs, &after.inputs[1..]);
        !makes && !touches(n, roots, &after.outputs)
    });
    let at = update - passed.count();
    // The gradient may pass what leaves its inputs alone.
    if between(gradient + 1..at).any(|n| writes(n, roots, &before.inputs)) {
        return None;
    }
    let inputs = before.inputs.iter().chain(&after.inputs[1..]).copied().collect();
    let path = before.path.clone();
    Some((gradient, at, Node { op: Arc::new(op), inputs, path, ..after.clone() }))
}

fn shares(roots: &[Root], a: &[ValueId], b: &[ValueId]) -> bool {
    let root = |v: &ValueId| roots[v.index()].value;
    a.iter().any(|v| b.iter().any(|w| root(v) == root(w)))
}

fn writes(node: &Node, roots: &[Root], values: &[ValueId]) -> bool {
    node.op.view().is_none() && shares(roots, &node.outputs, values)
}

fn touches(node: &Node, roots: &[Root], values: &[ValueId]) -> bool {
    shares(roots, &node.outputs, values) || shares(roots, &node.inputs, values)
}
