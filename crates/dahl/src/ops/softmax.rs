//! Softmax over rows, and its logarithm.

use super::eager::{self, Accum, Arg};
use super::{Access, Backprop, Cut, Meta, Metas, Mismatch, Op, Recorder, Var, expect_floats};
use crate::tensor::{Arena, AsView, Matrix};
use crate::units::Flops;
use dahl_kernels::softmax as kernels;
pub use dahl_kernels::softmax::Softmax;
use dahl_kernels::{Call, Float, Piece, Region};

/// Whole rows of a piece's samples.
fn rows(metas: Metas<'_>, piece: &Piece) -> Region {
    Region::full(&metas.out()).with(0, piece.out.range(0))
}

/// y\[n,k\] = exp x\[n,k\] / Σ_j exp x\[n,j\], or its logarithm; x and y are
/// \[N, K\].
impl Op for Softmax {
    fn name(&self) -> &'static str {
        match self {
            Softmax::Plain => "softmax",
            Softmax::Log => "log_softmax",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_floats(inputs)?;
        if inputs[0].shape.rank() != 2 {
            let found = inputs[0].shape;
            return Err(Mismatch::new("input", "2 axes [N, K]", found).guess(inputs[0]));
        }
        Ok(vec![inputs[0]])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![rows(metas, piece), piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        Flops((20 * (piece.out.len(0) * metas.out()[1] + piece.out.elements())) as u64)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let inputs = [at.outputs[0], at.grad()];
        Some(vec![at.when(0, || g.one(SoftmaxBackward(*self), &inputs))])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::softmax(*self, call);
    }
}

/// y (g' − Σ_j g'\[j\] y\[j\]), and for the logarithm g' − exp y Σ_j g'\[j\].
/// Inputs y and g'.
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxBackward(pub Softmax);

impl Op for SoftmaxBackward {
    fn name(&self) -> &'static str {
        match self.0 {
            Softmax::Plain => "softmax_backward",
            Softmax::Log => "log_softmax_backward",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[0]])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let rows = rows(metas, piece);
        vec![rows, rows, piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        Flops((2 * piece.out.len(0) * metas.out()[1] + 20 * piece.out.elements()) as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::softmax_backward(self.0, call);
    }
}

/// Rows replaced by their softmax.
#[derive(Clone, Copy, Debug)]
struct InPlace(Softmax);

impl Op for InPlace {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        self.0.infer(inputs)
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Cut::along([0])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(40 * piece.out.elements() as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::softmax_in_place(self.0, call);
    }
}

/// y\[n,k\] = exp x\[n,k\] / Σ_j exp x\[n,j\]: \[N, K\] to \[N, K\].
///
/// ```
/// use dahl::{ops::softmax::softmax, tensor::{Arena, Matrix}};
/// let arena = Arena::new();
/// let x = Matrix::from_slice(&arena, [1, 2], &[0.0f64, 3f64.ln()]).unwrap();
/// assert_eq!(format!("{:.2}", softmax(&arena, &x)), "[[0.25, 0.75]]");
/// ```
#[track_caller]
pub fn softmax<'a, E: Float>(arena: &'a Arena, x: &impl AsView<E, 2>) -> Matrix<'a, E> {
    eager::run(arena, &Softmax::Plain, &[Arg::new(x)])
}

/// [`softmax`] into an existing matrix.
#[track_caller]
pub fn softmax_into<E: Float>(x: &impl AsView<E, 2>, accum: Accum, out: &mut Matrix<'_, E>) {
    eager::run_into(&Softmax::Plain, &[Arg::new(x)], accum, out);
}

/// [`softmax`] in place.
pub fn softmax_in_place<E: Float>(x: &mut Matrix<'_, E>) {
    eager::run_in_place(&InPlace(Softmax::Plain), &[], x);
}

/// y\[n,k\] = x\[n,k\] − ln Σ_j exp x\[n,j\]: \[N, K\] to \[N, K\].
///
/// ```
/// use dahl::{ops::softmax::log_softmax, tensor::{Arena, Matrix}};
/// let arena = Arena::new();
/// let x = Matrix::from_slice(&arena, [1, 2], &[5.0f64, 5.0]).unwrap();
/// assert_eq!(format!("{:.4}", log_softmax(&arena, &x)), "[[-0.6931, -0.6931]]");
/// ```
#[track_caller]
pub fn log_softmax<'a, E: Float>(arena: &'a Arena, x: &impl AsView<E, 2>) -> Matrix<'a, E> {
    eager::run(arena, &Softmax::Log, &[Arg::new(x)])
}

/// [`log_softmax`] into an existing matrix.
#[track_caller]
pub fn log_softmax_into<E: Float>(x: &impl AsView<E, 2>, accum: Accum, out: &mut Matrix<'_, E>) {
    eager::run_into(&Softmax::Log, &[Arg::new(x)], accum, out);
}

/// [`log_softmax`] in place.
pub fn log_softmax_in_place<E: Float>(x: &mut Matrix<'_, E>) {
    eager::run_in_place(&InPlace(Softmax::Log), &[], x);
}

impl dyn Recorder + '_ {
    /// Records the softmax of each row.
    pub fn softmax(&mut self, x: Var) -> Var {
        self.one(Softmax::Plain, &[x])
    }

    /// Records the logarithm of the softmax of each row.
    pub fn log_softmax(&mut self, x: Var) -> Var {
        self.one(Softmax::Log, &[x])
    }
}
