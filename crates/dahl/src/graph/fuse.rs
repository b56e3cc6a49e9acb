//! Fusion: two ops become one that does both, before the backward pass.

use super::Graph;
use crate::ops::{Meta, Metas, Op};
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
            let (inputs, outputs) = graph.metas(&graph.nodes[i]);
            let metas = Metas { inputs: &inputs, outputs: &outputs };
            let op = graph.nodes[i].op.fuse(metas, &*graph.nodes[user].op)?;
            let results = inferred(&graph, i, user, &*op)?;
            // What else the second op gave may look different now.
            let node = &graph.nodes[user];
            let same = node
                .outputs
                .iter()
                .zip(&results)
                .all(|(v, meta)| uses[v.index()] == 0 || graph.value(*v).meta == *meta);
            same.then_some((user, op, results))
        });
        let Some((user, op, results)) = fused else {
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
        for (value, meta) in node.outputs.clone().into_iter().zip(results) {
            graph.values[value.index()].meta = meta;
        }
    }
    graph
}

/// What the fused op gives from the inputs of both.
fn inferred(graph: &Graph, first: usize, second: usize, op: &dyn Op) -> Option<Vec<Meta>> {
    let inputs = graph.nodes[first].inputs.iter().chain(&graph.nodes[second].inputs[1..]);
    let metas: Vec<Meta> = inputs.map(|v| graph.value(*v).meta).collect();
    op.infer(&metas).ok()
}
