//! Blocks of partial sums: a rewrite that makes them explicit.

use super::{Graph, Kind, Node, Value};
use crate::ops::{Blocked, Metas};
use crate::units::{NodeId, ValueId};
use std::ops::Range;
use std::sync::Arc;

/// Replaces every op that sums over several blocks by one that makes the
/// partial sums and one that merges them. `blocks` says what the blocks of a
/// node's summed axis are, given the bytes of its result; one block leaves the
/// node as it is.
pub fn block_sums(
    graph: &Graph,
    mut blocks: impl FnMut(NodeId, &Node, usize, usize) -> Vec<Range<usize>>,
) -> Graph {
    let mut result =
        Graph { values: graph.values.clone(), nodes: Vec::new(), fetches: graph.fetches.clone() };
    for id in graph.node_ids() {
        let node = graph.node(id);
        let (inputs, outputs) = graph.metas(node);
        let metas = Metas { inputs: &inputs, outputs: &outputs };
        let parts = match node.op.summed(metas) {
            Some(length) => blocks(id, node, length, outputs[0].bytes()),
            None => Vec::new(),
        };
        if parts.len() < 2 {
            result.nodes.push(node.clone());
            continue;
        }
        let merge = node.op.merge(metas, &parts);
        let mut meta = outputs[0];
        meta.shape = meta.shape.stacked(parts.len());
        let name = format!("{}.blocks", graph.value(node.outputs[0]).name);
        result.values.push(Value { name, meta, kind: Kind::Local });
        let partial = ValueId::new(result.values.len() - 1);
        let op = Arc::new(Blocked { inner: node.op.clone(), blocks: parts });
        result.nodes.push(Node { op, outputs: vec![partial], ..node.clone() });
        result.nodes.push(Node { op: merge, inputs: vec![partial], variant: 0, ..node.clone() });
    }
    result
}
