//! A gradient and the update that follows it as one op.
//!
//! A piece of the gradient is made in scratch and used up there: it is no value of
//! the plan. Both ops run as they do apart, so no bit changes. A product of
//! matrices is not cut further to stay in a nearer cache: it would pack its
//! operands again for every part, which costs more than it saves (blocks of
//! 128 KiB made a step of `mlp` in f32 about a tenth slower). A sum of shards is.

use super::{Access, Cut, Expansion, Meta, Metas, Mismatch, Op, Target};
use crate::units::Flops;
use dahl_kernels::{Call, DType, Piece, Region};
use std::sync::Arc;

/// The bytes of a sum of shards that are made at once.
const CHUNK: usize = 64 << 10;

/// An update by a gradient that is never stored.
///
/// Inputs are those of the gradient, then those of the update but for its first;
/// outputs are the update's.
#[derive(Clone, Debug)]
pub struct Updated {
    gradient: Arc<dyn Op>,
    update: Arc<dyn Op>,
    /// How many inputs the gradient has.
    reads: usize,
    /// The length of the axis that the gradient sums over.
    terms: usize,
    name: String,
}

impl Updated {
    /// The op that does both, where `update` takes the gradient element by
    /// element; `metas` are the gradient's.
    pub fn fused(gradient: &Arc<dyn Op>, metas: Metas<'_>, update: &Arc<dyn Op>) -> Option<Self> {
        let one = metas.outputs.len() == 1 && gradient.access(0) == Access::Write;
        let fits = one && gradient.view().is_none() && update.updates_each();
        fits.then(|| Self {
            gradient: gradient.clone(),
            update: update.clone(),
            reads: metas.inputs.len(),
            terms: gradient.summed(metas).unwrap_or(0),
            name: format!("{}_{}", gradient.name(), update.name()),
        })
    }

    /// What is known of the gradient's operands: the gradient is like the first
    /// output.
    fn gradient_metas<'a>(&self, metas: Metas<'a>) -> Metas<'a> {
        Metas { inputs: &metas.inputs[..self.reads], outputs: &metas.outputs[..1] }
    }

    fn update_inputs(&self, gradient: Meta, inputs: &[Meta]) -> Vec<Meta> {
        std::iter::once(gradient).chain(inputs[self.reads..].iter().copied()).collect()
    }

    /// The part of a piece that is made at once, from a row of it on.
    fn chunk(&self, piece: &Region, from: usize, dtype: DType) -> Region {
        if !self.gradient.each_alone() || piece.rank() == 0 {
            return *piece;
        }
        let rows = piece.range(0);
        let row = piece.elements() / rows.len().max(1) * dtype.size();
        let from = rows.start + from;
        piece.with(0, from..rows.end.min(from + (CHUNK / row.max(1)).max(1)))
    }

    fn gradient_piece(&self, out: Region) -> Piece {
        Piece { out, sum: 0..self.terms }
    }
}

impl Op for Updated {
    fn name(&self) -> &str {
        &self.name
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.gradient.attributes().into_iter().chain(self.update.attributes()).collect()
    }

    fn outputs(&self) -> usize {
        self.update.outputs()
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let gradient = self.gradient.infer(&inputs[..self.reads])?[0];
        self.update.infer(&self.update_inputs(gradient, inputs))
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn cuts(&self, metas: Metas<'_>) -> Vec<Cut> {
        self.gradient.cuts(self.gradient_metas(metas))
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let made = self.gradient_piece(piece.out);
        let mut regions = self.gradient.regions(self.gradient_metas(metas), &made);
        regions.truncate(self.reads);
        let inputs = self.update_inputs(metas.outputs[0], metas.inputs);
        let then = self.update.regions(Metas { inputs: &inputs, ..metas }, piece);
        regions.extend(then.into_iter().skip(1));
        regions
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let made = self.gradient.flops(self.gradient_metas(metas), &self.gradient_piece(piece.out));
        let inputs = self.update_inputs(metas.outputs[0], metas.inputs);
        let then = self.update.flops(Metas { inputs: &inputs, ..metas }, piece);
        Flops(made.0 + then.0)
    }

    fn scratch(&self, variant: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let inputs = self.update_inputs(metas.outputs[0], metas.inputs);
        let dtype = metas.outputs[0].dtype;
        let made = self.gradient_piece(self.chunk(&piece.out, 0, dtype));
        let inside = self.gradient.scratch(variant, self.gradient_metas(metas), &made);
        let then = self.update.scratch(0, Metas { inputs: &inputs, ..metas }, piece);
        let own = Call::through_scratch(&made.out, dtype);
        own.saturating_add(inside.max(then))
    }

    fn variants(&self) -> &'static [&'static str] {
        self.gradient.variants()
    }

    fn choose(&self, metas: Metas<'_>, on: &Target) -> usize {
        self.gradient.choose(self.gradient_metas(metas), on)
    }

    fn allowed(&self, metas: Metas<'_>, on: &Target) -> Vec<usize> {
        self.gradient.allowed(self.gradient_metas(metas), on)
    }

    fn expand(&self, variant: usize, metas: Metas<'_>) -> Option<Expansion> {
        let Expansion { input, prepare, op } =
            self.gradient.expand(variant, self.gradient_metas(metas))?;
        Some(Expansion { input, prepare, op: Arc::new(Self { gradient: op, ..self.clone() }) })
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        let (whole, dtype) = (call.piece.out, call.dtype(call.inputs()));
        let mut from = 0;
        loop {
            let made = self.gradient_piece(self.chunk(&whole, from, dtype));
            from += if whole.rank() == 0 { 1 } else { made.out.len(0) };
            call.through(
                self.reads,
                &made,
                |call| self.gradient.run(variant, call),
                |call| self.update.run(0, call),
            );
            if whole.rank() == 0 || from >= whole.len(0) {
                break;
            }
        }
    }
}
