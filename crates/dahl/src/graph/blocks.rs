//! Blocks of partial sums: a rewrite that makes them explicit.

use super::{Graph, Kind, Node, Value};
use crate::ops::{Blocked, Meta, Metas};
use crate::units::{NodeId, ValueId};
use std::ops::Range;
use std::sync::Arc;

/// The bytes of partial sums that an op may have.
const PARTIALS: usize = 256 << 10;

/// The fewest products that an element of a partial sum takes.
const PRODUCTS: u64 = 16;

/// How many blocks a sum over samples has by default: one a sample where the
/// partial sums fit into 256 KiB, else the largest power of two that does; and
/// never so many that an element of a partial sum takes less than 16 products,
/// for then storing the sums would cost more than taking them.
///
/// A power of two, so that the bounds of 2, 4, … pieces of the batch are
/// bounds of blocks and a piece's blocks can be summed where the piece is.
pub fn default_blocks(samples: usize, result: Meta, products: u64) -> usize {
    let elements = result.shape.elements().max(1) as u64;
    let worth = usize::try_from(products / (PRODUCTS * elements)).unwrap_or(usize::MAX);
    let fit = (PARTIALS / result.bytes().max(1)).min(worth);
    if fit >= samples { samples.max(1) } else { 1 << fit.max(1).ilog2() }
}

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
