//! Sums and other reductions.

use super::eager::{self, Accum, Arg};
use super::{Backprop, Cut, Meta, Metas, Mismatch, Op, Recorder, Target, Var, expect_floats};
use crate::tensor::{Arena, AsView, Scalar};
use crate::units::Flops;
use dahl_kernels::reduce as kernels;
use dahl_kernels::{Call, Float, Piece, Region, Shape};

/// y\[c\] = Σ_{n,…} x\[n,c,…\]: the gradient of a bias. Summed over samples.
#[derive(Clone, Copy, Debug)]
pub struct SumChannels;

impl Op for SumChannels {
    fn name(&self) -> &'static str {
        "sum_channels"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let x = inputs[0];
        expect_floats(inputs)?;
        if !matches!(x.shape.rank(), 2 | 4) {
            return Err(Mismatch::new("input", "2 or 4 axes", x.shape));
        }
        Ok(vec![Meta { shape: Shape::new(&[x.shape[1]]), ..x }])
    }

    fn summed(&self, metas: Metas<'_>) -> Option<usize> {
        Some(metas.inputs[0].shape[0])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let x = Region::full(&metas.inputs[0].shape);
        vec![x.with(0, piece.sum.clone()).with(1, piece.out.range(0)), piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let plane: usize = metas.inputs[0].shape.axes()[2..].iter().product();
        Flops((piece.sum.len() * piece.out.elements() * plane) as u64)
    }

    fn variants(&self) -> &'static [&'static str] {
        &["plain", "simd"]
    }

    fn choose(&self, _: Metas<'_>, _: &Target) -> usize {
        1
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        match variant {
            0 => kernels::sum_channels_plain(call),
            _ => kernels::sum_channels(call),
        }
    }
}

/// y = Σ x over all elements, divided by their number for the mean.
#[derive(Clone, Copy, Debug)]
pub struct SumAll {
    /// Whether the sum is divided by the number of elements.
    pub average: Average,
}

/// What a sum is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// Nothing: a sum.
    No,
    /// The number of terms: a mean.
    Mean,
}

impl Op for SumAll {
    fn name(&self) -> &'static str {
        match self.average {
            Average::No => "sum",
            Average::Mean => "mean",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_floats(inputs)?;
        Ok(vec![Meta { shape: Shape::scalar(), ..inputs[0] }])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![Region::full(&metas.inputs[0].shape), piece.out]
    }

    fn flops(&self, metas: Metas<'_>, _: &Piece) -> Flops {
        Flops(metas.inputs[0].shape.elements() as u64)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let shape = g.meta(at.inputs[0]).shape;
        let op = ExpandAll { shape, average: self.average };
        Some(vec![at.when(0, || g.one(op, &[at.grad()]))])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::sum_all(self.average == Average::Mean, call);
    }
}

/// The scalar in every element, divided by their number for the gradient of a
/// mean.
#[derive(Clone, Copy, Debug)]
pub struct ExpandAll {
    /// The shape of the result.
    pub shape: Shape,
    /// What the scalar is divided by.
    pub average: Average,
}

impl Op for ExpandAll {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("shape", self.shape.to_string())]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: self.shape, ..inputs[0] }])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![Region::full(&Shape::scalar()), piece.out]
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::expand_all(self.average == Average::Mean, call);
    }
}

/// Σ x over all elements.
///
/// ```
/// use dahl::{ops::reduce::sum_all, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [3], &[1.0f32, 2.0, 3.0]).unwrap();
/// assert_eq!(sum_all(&arena, &x).item(), 6.0);
/// ```
#[track_caller]
pub fn sum_all<'a, E: Float, const R: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
) -> Scalar<'a, E> {
    eager::run(arena, &SumAll { average: Average::No }, &[Arg::new(x)])
}

/// [`sum_all`] into an existing scalar.
#[track_caller]
pub fn sum_all_into<E: Float, const R: usize>(
    x: &impl AsView<E, R>,
    accum: Accum,
    out: &mut Scalar<'_, E>,
) {
    eager::run_into(&SumAll { average: Average::No }, &[Arg::new(x)], accum, out);
}

/// The mean of all elements.
///
/// ```
/// use dahl::{ops::reduce::mean_all, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [3], &[1.0f32, 2.0, 3.0]).unwrap();
/// assert_eq!(mean_all(&arena, &x).item(), 2.0);
/// ```
#[track_caller]
pub fn mean_all<'a, E: Float, const R: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
) -> Scalar<'a, E> {
    eager::run(arena, &SumAll { average: Average::Mean }, &[Arg::new(x)])
}

/// [`mean_all`] into an existing scalar.
#[track_caller]
pub fn mean_all_into<E: Float, const R: usize>(
    x: &impl AsView<E, R>,
    accum: Accum,
    out: &mut Scalar<'_, E>,
) {
    eager::run_into(&SumAll { average: Average::Mean }, &[Arg::new(x)], accum, out);
}

impl dyn Recorder + '_ {
    /// Records the sum over everything but the second axis.
    pub fn sum_channels(&mut self, x: Var) -> Var {
        self.one(SumChannels, &[x])
    }

    /// Records the sum of all elements.
    pub fn sum_all(&mut self, x: Var) -> Var {
        self.one(SumAll { average: Average::No }, &[x])
    }

    /// Records the mean of all elements.
    pub fn mean_all(&mut self, x: Var) -> Var {
        self.one(SumAll { average: Average::Mean }, &[x])
    }
}
