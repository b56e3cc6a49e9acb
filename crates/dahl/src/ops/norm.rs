//! Norms, and the factor that clips gradients by them.

use super::eager::{self, Accum, Arg};
use super::{Backprop, Cut, Meta, Metas, Mismatch, Op, Recorder, Var, expect_floats};
use crate::tensor::{Arena, AsView, Scalar};
use crate::units::Flops;
use dahl_kernels::norm as kernels;
use dahl_kernels::{Call, Float, Piece, Region, Shape};
use std::ops::Range;
use std::sync::Arc;

/// √Σ x² over all elements, a scalar.
///
/// Norms of blocks of the first axis are merged by taking their norm. Its
/// gradient g' x / norm is NaN where the norm is 0.
#[derive(Clone, Copy, Debug)]
pub struct Norm;

impl Op for Norm {
    fn name(&self) -> &'static str {
        "norm"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_floats(inputs)?;
        Ok(vec![Meta { shape: Shape::scalar(), ..inputs[0] }])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn summed(&self, metas: Metas<'_>) -> Option<usize> {
        let shape = metas.inputs[0].shape;
        (shape.rank() > 1).then(|| shape[0])
    }

    fn sums_samples(&self) -> bool {
        false
    }

    fn merge(&self, _: Metas<'_>, _: &[Range<usize>]) -> Arc<dyn Op> {
        Arc::new(Norm)
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let mut x = Region::full(&metas.inputs[0].shape);
        if x.rank() > 1 {
            x = x.with(0, piece.sum.clone());
        }
        vec![x, piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let x = &self.regions(metas, piece)[0];
        Flops(2 * x.elements() as u64)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let (x, norm, grad) = (at.inputs[0], at.outputs[0], at.grad());
        Some(vec![at.when(0, || {
            let factor = g.div(grad, norm);
            g.scale_by(x, factor)
        })])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::norm(call);
    }
}

/// min(1, max_norm / (√Σ x² + 1e-6)) over scalars x: what
/// `torch.nn.utils.clip_grad_norm_` multiplies gradients with, given their
/// norms.
#[derive(Clone, Copy, Debug)]
pub struct ClipFactor {
    /// The largest norm that stays as it is.
    pub max_norm: f64,
}

impl Op for ClipFactor {
    fn name(&self) -> &'static str {
        "clip_factor"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("max_norm", self.max_norm.to_string())]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let Some(first) = inputs.first() else {
            return Err(Mismatch::new("norms", "at least one", "none"));
        };
        expect_floats(inputs)?;
        let out = Meta { shape: Shape::scalar(), ..*first };
        if let Some(x) = inputs.iter().find(|x| x.shape.rank() != 0) {
            return Err(Mismatch::new("norms", "scalars", x.shape).guess(out));
        }
        if self.max_norm.is_nan() || self.max_norm < 0.0 {
            return Err(Mismatch::new("max_norm", "at least 0", self.max_norm).guess(out));
        }
        Ok(vec![out])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out; metas.inputs.len() + 1]
    }

    fn flops(&self, metas: Metas<'_>, _: &Piece) -> Flops {
        Flops(2 * metas.inputs.len() as u64 + 4)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::clip_factor(self.max_norm, call);
    }
}

/// √Σ x² over all elements.
///
/// ```
/// use dahl::{ops::norm::norm, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [2], &[3.0f32, 4.0]).unwrap();
/// assert_eq!(norm(&arena, &x).item(), 5.0);
/// ```
#[track_caller]
pub fn norm<'a, E: Float, const R: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
) -> Scalar<'a, E> {
    eager::run(arena, &Norm, &[Arg::new(x)])
}

/// [`norm`] into an existing scalar.
#[track_caller]
pub fn norm_into<E: Float, const R: usize>(
    x: &impl AsView<E, R>,
    accum: Accum,
    out: &mut Scalar<'_, E>,
) {
    eager::run_into(&Norm, &[Arg::new(x)], accum, out);
}

/// min(1, max_norm / (√Σ x² + 1e-6)) over the norms x of all gradients.
///
/// ```
/// use dahl::{ops::norm::{clip_factor, norm}, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [2], &[3.0f64, 4.0]).unwrap();
/// let norm = norm(&arena, &x);
/// assert_eq!(format!("{:.3}", clip_factor(&arena, &[&norm], 2.5)), "0.500");
/// assert_eq!(clip_factor(&arena, &[&norm], 6.0).item(), 1.0);
/// ```
#[track_caller]
pub fn clip_factor<'a, E: Float>(
    arena: &'a Arena,
    norms: &[&Scalar<'_, E>],
    max_norm: f64,
) -> Scalar<'a, E> {
    let norms: Vec<Arg<'_>> = norms.iter().map(|norm| Arg::new(*norm)).collect();
    eager::run(arena, &ClipFactor { max_norm }, &norms)
}

impl dyn Recorder + '_ {
    /// Records the Euclidean norm of all elements.
    pub fn norm(&mut self, x: Var) -> Var {
        self.one(Norm, &[x])
    }

    /// Records the factor that clips gradients of these norms.
    pub fn clip_factor(&mut self, norms: &[Var], max_norm: f64) -> Var {
        self.one(ClipFactor { max_norm }, norms)
    }
}
