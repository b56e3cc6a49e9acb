//! Labels as rows of zeros with a one.

use super::eager::{self, Accum, Arg};
use super::{Backprop, Meta, Metas, Mismatch, Op, Recorder, Var};
use crate::tensor::{Arena, AsView, Matrix};
use dahl_kernels::{Call, DType, Float, Piece, Region, Shape};

/// y\[n,k\] = 1 where k is label\[n\], else 0: labels are \[N\], y is
/// \[N, classes\]. A label that is no class makes its row NaN.
#[derive(Clone, Copy, Debug)]
pub struct OneHot {
    /// How many classes there are.
    pub classes: usize,
    /// The result's element type.
    pub dtype: DType,
}

impl Op for OneHot {
    fn name(&self) -> &'static str {
        "one_hot"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("classes", self.classes.to_string())]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let labels = inputs[0];
        let samples = labels.shape.axes().first().copied().unwrap_or(1);
        let out = Meta { shape: Shape::new(&[samples, self.classes]), dtype: self.dtype };
        if !self.dtype.is_float() {
            return Err(Mismatch::new("element type", "f32 or f64", self.dtype).guess(out));
        }
        if labels.shape.rank() != 1 || labels.dtype != DType::I64 {
            return Err(Mismatch::new("labels", "i64 with 1 axis [N]", labels).guess(out));
        }
        Ok(vec![out])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![Region::new(&[piece.out.range(0)]), piece.out]
    }

    fn backward(&self, _: &mut dyn Recorder, _: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        Some(vec![None])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        dahl_kernels::one_hot::one_hot(call);
    }
}

/// y\[n,k\] = 1 where k is label\[n\], else 0; a label that is no class makes
/// its row NaN.
///
/// ```
/// use dahl::{ops::one_hot::one_hot, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let labels = Vector::from_slice(&arena, [2], &[2i64, 0]).unwrap();
/// let y: Matrix<f32> = one_hot(&arena, &labels, 3);
/// assert_eq!(y.as_slice(), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
/// ```
#[track_caller]
pub fn one_hot<'a, E: Float>(
    arena: &'a Arena,
    labels: &impl AsView<i64, 1>,
    classes: usize,
) -> Matrix<'a, E> {
    eager::run(arena, &OneHot { classes, dtype: E::DTYPE }, &[Arg::new(labels)])
}

/// [`one_hot`] into an existing matrix.
#[track_caller]
pub fn one_hot_into<E: Float>(
    labels: &impl AsView<i64, 1>,
    classes: usize,
    accum: Accum,
    out: &mut Matrix<'_, E>,
) {
    eager::run_into(&OneHot { classes, dtype: E::DTYPE }, &[Arg::new(labels)], accum, out);
}

impl dyn Recorder + '_ {
    /// Records labels as rows of zeros with a one.
    pub fn one_hot(&mut self, labels: Var, classes: usize, dtype: DType) -> Var {
        self.one(OneHot { classes, dtype }, &[labels])
    }
}
