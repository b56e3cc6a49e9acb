//! Fusion: two ops become one that does both, before the backward pass.

use super::Graph;
use crate::units::ValueId;

/// Replaces each op and its only user by one op, where the first offers it.
pub fn fuse(graph: Graph) -> Graph {
    let mut graph = graph;
    let mut uses = vec![0usize; graph.values.len()];
    for id in graph.nodes.iter().flat_map(|n| &n.inputs) {
        uses[id.index()] += 1;
    }
    for (_, id) in &graph.fetches {
        uses[id.index()] += 1;
    }
    let mut i = 0;
    while i < graph.nodes.len() {
        let out: ValueId = graph.nodes[i].outputs[0];
        let user = graph.nodes.iter().position(|n| n.inputs.first() == Some(&out));
        let fused = user.filter(|_| uses[out.index()] == 1).and_then(|user| {
            let op = graph.nodes[i].op.fuse(&*graph.nodes[user].op)?;
            Some((user, op))
        });
        let Some((user, op)) = fused else {
            i += 1;
            continue;
        };
        // The fused node stands where the second was: all its inputs are made.
        let first = graph.nodes.remove(i);
        let node = &mut graph.nodes[user - 1];
        node.op = op;
        let rest = node.inputs.split_off(1);
        node.inputs = first.inputs.into_iter().chain(rest).collect();
        node.path = first.path;
    }
    graph
}
