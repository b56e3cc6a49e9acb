//! Copies with the axes in another order.

use super::eager::{self, Accum, Arg};
use super::{Backprop, Meta, Metas, Mismatch, Op, Recorder, Var};
use crate::tensor::{Arena, AsView, Matrix, Tensor};
use crate::units::Flops;
use dahl_kernels::{Call, Element, Float, Piece, Region, Shape};

/// y\[i_0, i_1, …\] = x with i_k at axis `axes[k]`: axis k of the result is
/// axis `axes[k]` of the input.
#[derive(Clone, Debug)]
pub struct Permute {
    /// Where each axis of the result comes from.
    pub axes: Vec<usize>,
}

impl Op for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("axes", format!("{:?}", self.axes))]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let x = inputs[0];
        let rank = x.shape.rank();
        if self.axes.len() != rank || !(0..rank).all(|a| self.axes.contains(&a)) {
            let expected = format!("an order of the axes of {}", x.shape);
            return Err(Mismatch::new("axes", expected, format!("{:?}", self.axes)).guess(x));
        }
        let axes: Vec<usize> = self.axes.iter().map(|&a| x.shape[a]).collect();
        Ok(vec![Meta { shape: Shape::new(&axes), ..x }])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let mut from = Region::full(&metas.inputs[0].shape);
        for (k, &axis) in self.axes.iter().enumerate() {
            from = from.with(axis, piece.out.range(k));
        }
        vec![from, piece.out]
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(0)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let mut inverse = vec![0; self.axes.len()];
        for (k, &axis) in self.axes.iter().enumerate() {
            inverse[axis] = k;
        }
        Some(vec![at.when(0, || g.permute(at.grad(), &inverse))])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        dahl_kernels::permute::permute(&self.axes, call);
    }
}

/// A copy with the axes in another order: axis k of the result is axis
/// `axes[k]` of x. ([`Tensor::permute`] is a view without a copy.)
///
/// ```
/// use dahl::{ops::permute::permute, tensor::{Arena, Block}};
/// let arena = Arena::new();
/// let x = Block::from_fn(&arena, [2, 3, 4], |[i, j, k]| (100 * i + 10 * j + k) as f32);
/// let y = permute(&arena, &x, [2, 0, 1]);
/// assert_eq!((y.shape(), y[[3, 1, 2]]), ([4, 2, 3], 123.0));
/// ```
#[track_caller]
pub fn permute<'a, E: Element, const R: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
    axes: [usize; R],
) -> Tensor<'a, E, R> {
    eager::run(arena, &Permute { axes: axes.to_vec() }, &[Arg::new(x)])
}

/// [`permute`] into an existing tensor.
#[track_caller]
pub fn permute_into<E: Float, const R: usize>(
    x: &impl AsView<E, R>,
    axes: [usize; R],
    accum: Accum,
    out: &mut Tensor<'_, E, R>,
) {
    eager::run_into(&Permute { axes: axes.to_vec() }, &[Arg::new(x)], accum, out);
}

/// A copy of a matrix with rows as columns. ([`Tensor::transpose`] is a view
/// without a copy.)
///
/// ```
/// use dahl::{ops::permute::transpose, tensor::{Arena, Matrix}};
/// let arena = Arena::new();
/// let x = Matrix::from_slice(&arena, [1, 2], &[1.0f32, 2.0]).unwrap();
/// assert_eq!(transpose(&arena, &x).shape(), [2, 1]);
/// ```
#[track_caller]
pub fn transpose<'a, E: Element>(arena: &'a Arena, x: &impl AsView<E, 2>) -> Matrix<'a, E> {
    permute(arena, x, [1, 0])
}

/// [`transpose`] into an existing matrix.
#[track_caller]
pub fn transpose_into<E: Float>(x: &impl AsView<E, 2>, accum: Accum, out: &mut Matrix<'_, E>) {
    permute_into(x, [1, 0], accum, out);
}

impl dyn Recorder + '_ {
    /// Records a copy with the axes in another order.
    pub fn permute(&mut self, x: Var, axes: &[usize]) -> Var {
        self.one(Permute { axes: axes.to_vec() }, &[x])
    }

    /// Records a copy of a matrix with rows as columns.
    pub fn transpose(&mut self, x: Var) -> Var {
        self.permute(x, &[1, 0])
    }
}
