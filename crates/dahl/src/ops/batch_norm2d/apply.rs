//! The normalisation itself, and what it is fused with.

use super::{BatchNorm2dBackwardInput, BatchNorm2dBackwardSums, Statistics, pairs};
use crate::ops::conv2d::Rectify;
use crate::ops::elementwise::{Binary, Unary};
use crate::ops::{Access, Backprop, Meta, Metas, Mismatch, Op, Recorder, Var, expect_floats};
use crate::units::Flops;
use dahl_kernels::batch_norm2d as kernels;
use dahl_kernels::{Call, Piece, Region};
use std::any::Any;
use std::sync::Arc;

/// Whether something is added to what is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Residual {
    /// Nothing.
    No,
    /// A fifth input.
    Add,
}

/// y = (x − mean) · invstd · w + b by channel, then + r, then max(0, y), each
/// where it is fused with it. Inputs x, \[mean, invstd\], w, b and perhaps r.
///
/// Its backward rule is that of the whole normalisation: the gradient that
/// reaches x through the batch's statistics is part of it.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm2dApply {
    /// Whose statistics normalise.
    pub statistics: Statistics,
    /// What is added.
    pub residual: Residual,
    /// What is done to the result.
    pub rectify: Rectify,
}

impl BatchNorm2dApply {
    /// A normalisation that is fused with nothing.
    pub fn new(statistics: Statistics) -> Self {
        Self { statistics, residual: Residual::No, rectify: Rectify::No }
    }
}

impl Op for BatchNorm2dApply {
    fn name(&self) -> &'static str {
        match (self.residual, self.rectify) {
            (Residual::No, Rectify::No) => "batch_norm2d",
            (Residual::No, Rectify::Relu) => "batch_norm2d_relu",
            (Residual::Add, Rectify::No) => "batch_norm2d_add",
            (Residual::Add, Rectify::Relu) => "batch_norm2d_add_relu",
        }
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("statistics", format!("{:?}", self.statistics).to_lowercase())]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let x = inputs[0];
        if x.shape.rank() != 4 {
            return Err(Mismatch::new("input", "4 axes [N, C, H, W]", x.shape));
        }
        expect_floats(inputs)?;
        if inputs[1].shape.axes() != [2, x.shape[1]] {
            let expected = format!("[2, {}]", x.shape[1]);
            return Err(Mismatch::new("statistics", expected, inputs[1].shape).guess(x));
        }
        for w in &inputs[2..4] {
            if w.shape.axes() != [x.shape[1]] {
                let expected = format!("[{}]", x.shape[1]);
                return Err(Mismatch::new("weight and bias", expected, w.shape).guess(x));
            }
        }
        if let Some(r) = inputs.get(4).filter(|r| **r != x) {
            return Err(Mismatch::new("residual", x, r).guess(x));
        }
        Ok(vec![x])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let channels = piece.out.range(1);
        let vector = Region::new(std::slice::from_ref(&channels));
        let mut regions = vec![piece.out, pairs(channels), vector, vector];
        if self.residual == Residual::Add {
            regions.push(piece.out);
        }
        regions.push(piece.out);
        regions
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        let more = u64::from(self.residual == Residual::Add);
        let more = more + u64::from(self.rectify == Rectify::Relu);
        Flops((3 + more) * piece.out.elements() as u64)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let [x, norm, w, b, ..] = *at.inputs else { return None };
        // What is added gets the gradient behind the relu, so that one is stored;
        // else the relu's mask is found again from x where it is needed.
        let (grad, rectify) = match (self.residual, self.rectify) {
            (Residual::Add, Rectify::Relu) => {
                (g.relu_backward(at.outputs[0], at.grad()), Rectify::No)
            }
            (_, rectify) => (at.grad(), rectify),
        };
        let masked = [w, b];
        let masked = if rectify == Rectify::Relu { &masked[..] } else { &[] };
        let sums = BatchNorm2dBackwardSums { rectify };
        let sums = g.apply(Arc::new(sums), &[&[x, norm, grad], masked].concat())[0];
        let input = at.when(0, || {
            let op = BatchNorm2dBackwardInput { statistics: self.statistics, rectify };
            let mut inputs = vec![x, norm, w, grad];
            if self.statistics == Statistics::Batch {
                inputs.push(sums);
            }
            inputs.extend(masked.last());
            g.apply(Arc::new(op), &inputs)[0]
        });
        let weight = at.when(2, || g.select(sums, 0, 1));
        let bias = at.when(3, || g.select(sums, 0, 0));
        let residual = at.when(4, || grad);
        let all = [input, None, weight, bias, residual];
        Some(all.into_iter().take(at.inputs.len()).collect())
    }

    fn fuse(&self, _: Metas<'_>, next: &dyn Op) -> Option<Arc<dyn Op>> {
        if self.rectify == Rectify::Relu {
            return None;
        }
        let next = next as &dyn Any;
        if next.downcast_ref::<Unary>() == Some(&Unary::Relu) {
            return Some(Arc::new(Self { rectify: Rectify::Relu, ..*self }));
        }
        let adds = next.downcast_ref::<Binary>() == Some(&Binary::Add);
        let fused = Self { residual: Residual::Add, ..*self };
        (adds && self.residual == Residual::No).then(|| Arc::new(fused) as _)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::batch_norm2d(self.rectify, call);
    }
}

/// [`BatchNorm2dApply`] by tracked statistics in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct InPlace;

impl Op for InPlace {
    fn name(&self) -> &'static str {
        "batch_norm2d"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        BatchNorm2dApply::new(Statistics::Tracked).infer(inputs)
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let channels = piece.out.range(1);
        let vector = Region::new(std::slice::from_ref(&channels));
        vec![pairs(channels), vector, vector, piece.out]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(3 * piece.out.elements() as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::batch_norm2d_in_place(call);
    }
}
