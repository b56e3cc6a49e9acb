//! Partial sums over blocks of the summed axis.
//!
//! [`Blocked`] turns the axis that an op sums over into an axis of its result:
//! one partial sum a block, stacked in front. [`SumBlocks`] adds them in a
//! tree that depends on their number alone, [`MergeShards`] those of each shard of
//! the batch. Between them the blocks can be computed anywhere, in any order and
//! grain, and the result has the same bits.

use super::op::describe;
use super::{Cut, Meta, Metas, Mismatch, Op, Target};
use crate::units::Flops;
use dahl_kernels::{Call, Piece, Region};
use std::ops::Range;
use std::sync::Arc;

/// The most operands of an op that is run on blocks.
const MAX_OPERANDS: usize = 8;

/// An op run on blocks of its summed axis, partial results stacked in front.
#[derive(Clone, Debug)]
pub struct Blocked {
    /// The op.
    pub inner: Arc<dyn Op>,
    /// The blocks of the summed axis, in order.
    pub blocks: Vec<Range<usize>>,
}

impl Blocked {
    fn inner_piece(&self, piece: &Piece) -> Piece {
        let blocks = &self.blocks[piece.out.range(0)];
        let sum = match (blocks.first(), blocks.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        };
        Piece { out: piece.out.without(0), sum }
    }
}

impl Op for Blocked {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = self.inner.attributes();
        attributes.push(("blocks", self.blocks.len().to_string()));
        attributes
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let inner = self.inner.infer(inputs)?;
        assert_eq!(inner.len(), 1, "partial sums of {} with one output", describe(&*self.inner));
        Ok(vec![Meta { shape: inner[0].shape.stacked(self.blocks.len()), ..inner[0] }])
    }

    fn cuts(&self, metas: Metas<'_>) -> Vec<Cut> {
        let outputs = inner_outputs(metas);
        let inner = self.inner.cuts(Metas { outputs: &outputs, ..metas });
        std::iter::once(Cut { axis: 0, align: 1 })
            .chain(inner.into_iter().map(|cut| Cut { axis: cut.axis + 1, ..cut }))
            .collect()
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let outputs = inner_outputs(metas);
        let inner = Metas { outputs: &outputs, ..metas };
        let mut regions = self.inner.regions(inner, &self.inner_piece(piece));
        let out = regions.last_mut().expect("an output");
        *out = out.stacked(piece.out.range(0));
        regions
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let outputs = inner_outputs(metas);
        self.inner.flops(Metas { outputs: &outputs, ..metas }, &self.inner_piece(piece))
    }

    fn scratch(&self, variant: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let outputs = inner_outputs(metas);
        let metas = Metas { outputs: &outputs, ..metas };
        // Blocks are run one after the other.
        let out = piece.out.without(0);
        let blocks = self.blocks[piece.out.range(0)].iter();
        let pieces = blocks.map(|block| Piece { out, sum: block.clone() });
        pieces.map(|piece| self.inner.scratch(variant, metas, &piece)).max().unwrap_or(0)
    }

    fn allowed(&self, metas: Metas<'_>, on: &Target) -> Vec<usize> {
        // The rules look at inputs, which are those of the op inside.
        self.inner.allowed(metas, on)
    }

    fn variants(&self) -> &'static [&'static str] {
        self.inner.variants()
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        let (out, inputs) = call.operands().split_last().expect("an output");
        let mut operands = [*out; MAX_OPERANDS];
        operands[..inputs.len()].copy_from_slice(inputs);
        let operands = &mut operands[..=inputs.len()];
        for block in call.piece.out.range(0) {
            operands[inputs.len()] = out.select(0, block);
            let piece = Piece { out: call.piece.out.without(0), sum: self.blocks[block].clone() };
            call.with(operands, &piece, |call| self.inner.run(variant, call));
        }
    }
}

fn inner_outputs(metas: Metas<'_>) -> Vec<Meta> {
    metas.outputs.iter().map(|m| Meta { shape: m.shape.without(0), ..*m }).collect()
}

/// The sum over the first axis, in a binary tree over its indices.
///
/// y = Σ_b x_b; x is [B, …], y is […].
#[derive(Clone, Debug)]
pub struct SumBlocks;

impl Op for SumBlocks {
    fn name(&self) -> &'static str {
        "sum_blocks"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: inputs[0].shape.without(0), ..inputs[0] }])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out.stacked(0..metas.inputs[0].shape[0]), piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        Flops((metas.inputs[0].shape[0] * piece.out.elements()) as u64)
    }

    fn each_alone(&self) -> bool {
        true
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        dahl_kernels::reduce::sum_blocks(call);
    }
}

/// The blocks of each shard merged, by the op that merges blocks: \[B, …\] to \[shards, …\].
#[derive(Clone, Debug)]
pub struct MergeShards {
    /// The op that merges each shard's blocks, and which blocks these are.
    shards: Vec<(Arc<dyn Op>, Range<usize>)>,
}

impl MergeShards {
    /// From the op that merges each shard's blocks and how many blocks it has.
    pub fn new(shards: Vec<(Arc<dyn Op>, usize)>) -> Self {
        let mut from = 0;
        let ranged = shards.into_iter().map(|(op, blocks)| {
            from += blocks;
            (op, from - blocks..from)
        });
        Self { shards: ranged.collect() }
    }
}

impl Op for MergeShards {
    fn name(&self) -> &'static str {
        "merge_shards"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let blocks: Vec<String> = self.shards.iter().map(|(_, r)| r.len().to_string()).collect();
        vec![("blocks", blocks.join("+"))]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let shape = inputs[0].shape.without(0).stacked(self.shards.len());
        Ok(vec![Meta { shape, ..inputs[0] }])
    }

    fn cuts(&self, metas: Metas<'_>) -> Vec<Cut> {
        let outputs = inner_outputs(metas);
        let inner = self.shards[0].0.cuts(Metas { outputs: &outputs, ..metas });
        std::iter::once(Cut { axis: 0, align: 1 })
            .chain(inner.into_iter().map(|cut| Cut { axis: cut.axis + 1, ..cut }))
            .collect()
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let shards = &self.shards[piece.out.range(0)];
        let blocks = match (shards.first(), shards.last()) {
            (Some((_, first)), Some((_, last))) => first.start..last.end,
            _ => 0..0,
        };
        vec![piece.out.with(0, blocks), piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let blocks = self.regions(metas, piece)[0].len(0);
        Flops((blocks * piece.out.without(0).elements()) as u64)
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        let &[x, out] = call.operands() else { panic!("an input and an output") };
        let inner = Piece { out: call.piece.out.without(0), sum: 0..0 };
        for shard in call.piece.out.range(0) {
            let (op, blocks) = &self.shards[shard];
            let operands = [x.slice(0, blocks.clone()), out.select(0, shard)];
            call.with(&operands, &inner, |call| op.run(variant, call));
        }
    }
}
