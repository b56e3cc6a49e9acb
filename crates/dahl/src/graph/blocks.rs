//! Blocks of partial sums: a rewrite that makes them explicit.

use super::{Graph, Kind, Node, Shards, Value};
use crate::ops::{Blocked, MergeShards, Meta, Metas, split};
use crate::units::{NodeId, ValueId};
use std::ops::Range;
use std::sync::Arc;

/// The bytes of partial sums that an op may have.
const PARTIALS: usize = 256 << 10;

/// The fewest products that an element of a partial sum takes.
const PRODUCTS: u64 = 16;

impl Graph {
    /// How many blocks a node's sum over samples has by default, within each shard: one per
    /// sample where the partial sums fit into 256 KiB, else the largest power of two that does;
    /// and never so many that an element of a partial sum takes less than 16 products, for then
    /// storing the sums would cost more than taking them. One where nothing is summed.
    ///
    /// A power of two, so that the bounds of 2, 4, … pieces of the batch are bounds of blocks and
    /// a piece's blocks can be summed where the piece is.
    pub fn default_blocks(&self, node: &Node, shards: &Shards) -> usize {
        let (inputs, outputs) = self.metas(node);
        let metas = Metas { inputs: &inputs, outputs: &outputs };
        let Some(length) = node.op.summed(metas) else { return 1 };
        let shares = shares(node, length, shards);
        let samples = shares.iter().map(Range::len).max().unwrap_or(0);
        let products = node.op.flops(metas, &self.whole(node)).0 / 2;
        let products = u128::from(products) * samples as u128 / length.max(1) as u128;
        fitting(samples, outputs[0], u64::try_from(products).unwrap_or(u64::MAX))
    }
}

/// The most blocks of so many samples that are worth storing.
fn fitting(samples: usize, result: Meta, products: u64) -> usize {
    let elements = result.shape.elements().max(1) as u64;
    let worth = usize::try_from(products / (PRODUCTS * elements)).unwrap_or(usize::MAX);
    let fit = (PARTIALS / result.bytes().max(1)).min(worth);
    if fit >= samples { samples.max(1) } else { 1 << fit.max(1).ilog2() }
}

/// The shards of what a node sums over.
fn shares(node: &Node, length: usize, shards: &Shards) -> Vec<Range<usize>> {
    if node.op.sums_samples() { shards.split(length) } else { Shards::default().split(length) }
}

impl Graph {
    /// Number of shards of a node's sum.
    pub fn sum_shards(&self, node: &Node, shards: &Shards) -> usize {
        let (inputs, outputs) = self.metas(node);
        let length = node.op.summed(Metas { inputs: &inputs, outputs: &outputs });
        length.map_or(1, |length| shares(node, length, shards).len())
    }
}

/// Replaces every op that sums over several blocks by one that makes the partial sums and one that
/// merges them: within each shard first, where there are several. `blocks` says how many blocks a
/// node's sum has within each shard; one block of one shard leaves the node as it is.
pub fn block_sums(graph: &Graph, shards: &Shards, blocks: impl Fn(NodeId) -> usize) -> Graph {
    let mut result =
        Graph { values: graph.values.clone(), nodes: Vec::new(), fetches: graph.fetches.clone() };
    for id in graph.node_ids() {
        let node = graph.node(id);
        let (inputs, outputs) = graph.metas(node);
        let metas = Metas { inputs: &inputs, outputs: &outputs };
        let length = node.op.summed(metas);
        let shares = length.map_or(Vec::new(), |length| shares(node, length, shards));
        let blocks = |share: &Range<usize>| {
            let within = split(share.len(), blocks(id), 1).into_iter();
            within.map(|b| share.start + b.start..share.start + b.end).collect()
        };
        let by_share: Vec<Vec<Range<usize>>> = shares.iter().map(blocks).collect();
        let all = by_share.concat();
        if all.len() < 2 {
            result.nodes.push(node.clone());
            continue;
        }
        let mut push = |op, from: &Node, inputs, parts, name: &str| {
            let meta = Meta { shape: outputs[0].shape.stacked(parts), ..outputs[0] };
            let name = format!("{}.{name}", graph.value(node.outputs[0]).name);
            result.values.push(Value { name, meta, kind: Kind::Local });
            let made = ValueId::new(result.values.len() - 1);
            result.nodes.push(Node { op, inputs, outputs: vec![made], ..from.clone() });
            made
        };
        let op = Arc::new(Blocked { inner: node.op.clone(), blocks: all.clone() });
        let mut partial = push(op, node, node.inputs.clone(), all.len(), "blocks");
        let plain = Node { variant: 0, ..node.clone() };
        let two_levels = by_share.len() > 1 && all.len() > by_share.len();
        if two_levels {
            let merges = by_share.iter().map(|parts| (node.op.merge(metas, parts), parts.len()));
            let op = Arc::new(MergeShards::new(merges.collect()));
            partial = push(op, &plain, vec![partial], by_share.len(), "shards");
        }
        let merge = node.op.merge(metas, if two_levels { &shares } else { &all });
        result.nodes.push(Node { op: merge, inputs: vec![partial], ..plain });
    }
    result
}
