//! Batch normalisation, lowered to parts: statistics, finish, apply.
//!
//! The statistics of blocks of samples are merged in the numerics' tree, so
//! they are those of the whole batch whatever the pieces.

mod apply;
mod backward;
mod eager;

pub use apply::{BatchNorm2dApply, Residual};
pub use backward::{BatchNorm2dBackwardInput, BatchNorm2dBackwardSums};
pub use eager::{
    Affine, BatchNorm2dRecorded, batch_norm2d, batch_norm2d_eval, batch_norm2d_eval_in_place,
    batch_norm2d_eval_into, batch_norm2d_into,
};

use super::{Access, Cut, Meta, Metas, Mismatch, Op, Target, expect_floats};
use crate::units::Flops;
use dahl_kernels::batch_norm2d as kernels;
pub use dahl_kernels::batch_norm2d::Statistics;
use dahl_kernels::{Call, DType, Piece, Region, Shape};
use std::ops::Range;
use std::sync::Arc;

const VARIANTS: [&str; 2] = ["plain", "simd"];
const PLAIN: usize = 0;
const SIMD: usize = 1;

/// The channels of a piece of \[2, C\].
fn pairs(channels: Range<usize>) -> Region {
    Region::new(&[0..2, channels])
}

/// \[mean, Σ (x − mean)²\] by channel: x is \[N, C, H, W\], the result \[2, C\] in `f64`,
/// whatever the elements of x are.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm2dStats;

impl Op for BatchNorm2dStats {
    fn name(&self) -> &'static str {
        "batch_norm2d_stats"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let x = inputs[0];
        if x.shape.rank() != 4 {
            return Err(Mismatch::new("input", "4 axes [N, C, H, W]", x.shape));
        }
        expect_floats(inputs)?;
        let out = Meta { shape: Shape::new(&[2, x.shape[1]]), dtype: DType::F64 };
        let count = [0, 2, 3].iter().try_fold(1usize, |n, &a| n.checked_mul(x.shape[a]));
        if count.is_none_or(|n| n < 2) {
            let expected = "more than one value per channel in training";
            return Err(Mismatch::new("input", expected, x.shape).guess(out));
        }
        Ok(vec![out])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Cut::along([1])
    }

    fn summed(&self, metas: Metas<'_>) -> Option<usize> {
        Some(metas.inputs[0].shape[0])
    }

    fn merge(&self, metas: Metas<'_>, blocks: &[Range<usize>]) -> Arc<dyn Op> {
        let x = metas.inputs[0].shape;
        let counts = blocks.iter().map(|block| block.len() * x[2] * x[3]).collect();
        Arc::new(MergeMoments { counts })
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let x = Region::full(&metas.inputs[0].shape);
        vec![x.with(0, piece.sum.clone()).with(1, piece.out.range(1)), piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let x = metas.inputs[0].shape;
        Flops(4 * (piece.sum.len() * piece.out.len(1) * x[2] * x[3]) as u64)
    }

    fn variants(&self) -> &'static [&'static str] {
        &VARIANTS
    }

    fn choose(&self, _: Metas<'_>, _: &Target) -> usize {
        SIMD
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        match variant {
            PLAIN => kernels::batch_norm2d_stats_plain(call),
            _ => kernels::batch_norm2d_stats(call),
        }
    }
}

/// Merges the statistics of blocks: \[B, 2, C\] to \[2, C\] (Chan et al. 1979).
#[derive(Clone, Debug)]
pub struct MergeMoments {
    /// How many values of a channel each block has.
    pub counts: Vec<usize>,
}

impl Op for MergeMoments {
    fn name(&self) -> &'static str {
        "merge_moments"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: inputs[0].shape.without(0), ..inputs[0] }])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Cut::along([1])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out.stacked(0..metas.inputs[0].shape[0]), piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        Flops((8 * metas.inputs[0].shape[0] * piece.out.len(1)) as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::merge_moments(&self.counts, call);
    }
}

/// \[mean, 1/√(variance + eps)\] from \[mean, Σ (x − mean)²\].
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm2dFinish {
    /// How many values each channel has.
    pub count: usize,
    /// Added to the variance.
    pub eps: f64,
    /// The element type of what is normalised.
    pub dtype: DType,
}

impl Op for BatchNorm2dFinish {
    fn name(&self) -> &'static str {
        "batch_norm2d_finish"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("count", self.count.to_string()), ("eps", self.eps.to_string())]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { dtype: self.dtype, ..inputs[0] }])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Cut::along([1])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out, piece.out]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(4 * piece.out.len(1) as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::batch_norm2d_finish(self.count, self.eps, call);
    }
}

/// \[mean, 1/√(variance + eps)\] from the tracked mean and variance.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm2dTracked {
    /// Added to the variance.
    pub eps: f64,
}

impl Op for BatchNorm2dTracked {
    fn name(&self) -> &'static str {
        "batch_norm2d_tracked"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("eps", self.eps.to_string())]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let out = Meta { shape: inputs[0].shape.stacked(2), ..inputs[0] };
        expect_floats(inputs)?;
        if inputs[0].shape.rank() != 1 || inputs[0] != inputs[1] {
            let found = format!("{} and {}", inputs[0], inputs[1]);
            return Err(Mismatch::new("mean and variance", "[C] both", found).guess(out));
        }
        Ok(vec![out])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Cut::along([1])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let channels = Region::new(&[piece.out.range(1)]);
        vec![channels, channels, piece.out]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(3 * piece.out.len(1) as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::batch_norm2d_tracked(self.eps, call);
    }
}

/// Moves the tracked mean and (unbiased) variance towards the batch's and
/// counts the batch; nothing where ok is 0. Inputs statistics and ok.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm2dTrack {
    /// How many values each channel has.
    pub count: usize,
    /// The weight of the new statistics.
    pub momentum: f64,
    /// The element type of the tracked ones.
    pub dtype: DType,
}

impl Op for BatchNorm2dTrack {
    fn name(&self) -> &'static str {
        "batch_norm2d_track"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("count", self.count.to_string()), ("momentum", self.momentum.to_string())]
    }

    fn outputs(&self) -> usize {
        3
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let channels = Meta { shape: inputs[0].shape.without(0), dtype: self.dtype };
        Ok(vec![channels, channels, Meta::new([], DType::I64)])
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let scalar = Region::full(&Shape::scalar());
        vec![pairs(piece.out.range(0)), scalar, piece.out, piece.out, scalar]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(7 * piece.out.elements() as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::batch_norm2d_track(self.count, self.momentum, call);
    }
}
