//! The gradients of a normalisation.

use super::{PLAIN, SIMD, Statistics, VARIANTS, pairs};
use crate::ops::conv2d::Rectify;
use crate::ops::{Cut, Meta, Metas, Mismatch, Op, Target};
use crate::units::Flops;
use dahl_kernels::batch_norm2d as kernels;
use dahl_kernels::{Call, Piece, Region};

/// \[Σ g', Σ g' (x − mean) · invstd\] by channel. Inputs x, \[mean, invstd\], g';
/// where a relu followed also w and b, and g' counts only where it let through.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm2dBackwardSums {
    /// What followed the normalisation.
    pub rectify: Rectify,
}

impl Op for BatchNorm2dBackwardSums {
    fn name(&self) -> &'static str {
        match self.rectify {
            Rectify::No => "batch_norm2d_backward_sums",
            Rectify::Relu => "batch_norm2d_relu_backward_sums",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[1]])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Cut::along([1])
    }

    fn summed(&self, metas: Metas<'_>) -> Option<usize> {
        Some(metas.inputs[0].shape[0])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let x = Region::full(&metas.inputs[0].shape)
            .with(0, piece.sum.clone())
            .with(1, piece.out.range(1));
        let channels = piece.out.range(1);
        let mut regions = vec![x, pairs(channels.clone()), x];
        if self.rectify == Rectify::Relu {
            regions.extend([Region::new(&[channels]); 2]);
        }
        regions.push(piece.out);
        regions
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
            PLAIN => kernels::batch_norm2d_backward_sums_plain(self.rectify, call),
            _ => kernels::batch_norm2d_backward_sums(self.rectify, call),
        }
    }
}

/// The gradient of x: invstd · w · (g' − mean(g') − x̂ · mean(g' x̂)) for the
/// batch's statistics, invstd · w · g' for tracked ones. Inputs x,
/// \[mean, invstd\], w, g', the sums for the batch's statistics, and b where a
/// relu followed.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm2dBackwardInput {
    /// Whose statistics normalised.
    pub statistics: Statistics,
    /// What followed the normalisation.
    pub rectify: Rectify,
}

impl Op for BatchNorm2dBackwardInput {
    fn name(&self) -> &'static str {
        match self.rectify {
            Rectify::No => "batch_norm2d_backward_input",
            Rectify::Relu => "batch_norm2d_relu_backward_input",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[0]])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let channels = piece.out.range(1);
        let vector = Region::new(std::slice::from_ref(&channels));
        let mut regions = vec![piece.out, pairs(channels.clone()), vector, piece.out];
        if self.statistics == Statistics::Batch {
            regions.push(pairs(channels));
        }
        if self.rectify == Rectify::Relu {
            regions.push(vector);
        }
        regions.push(piece.out);
        regions
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(5 * piece.out.elements() as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::batch_norm2d_backward_input(self.statistics, self.rectify, call);
    }
}
