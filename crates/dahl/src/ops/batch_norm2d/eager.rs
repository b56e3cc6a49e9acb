//! Batch normalisation at once, and recorded.

use super::apply::InPlace;
use super::{
    BatchNorm2dApply, BatchNorm2dFinish, BatchNorm2dStats, BatchNorm2dTracked, Statistics,
};
use crate::ops::eager::{self, Accum, Arg};
use crate::ops::{Meta, Recorder, Var};
use crate::tensor::{Arena, AsView, Matrix, Tensor, TensorView};
use dahl_kernels::Float;

/// What a normalisation needs besides its input.
#[derive(Clone, Copy)]
pub struct Affine<'t, E> {
    /// The factor of each channel.
    pub weight: TensorView<'t, E, 1>,
    /// What is then added to each channel.
    pub bias: TensorView<'t, E, 1>,
    /// Added to the variance.
    pub eps: f64,
}

/// y = (x − mean) / √(variance + eps) · w + b by channel of x \[N, C, H, W\],
/// with the batch's own statistics: training. The second result is
/// \[mean, Σ (x − mean)²\] in `f64`, for the tracking.
///
/// ```
/// use dahl::{ops::batch_norm2d::{Affine, batch_norm2d}, tensor::{Arena, Tensor, Vector}};
/// let arena = Arena::new();
/// let x = Tensor::from_slice(&arena, [2, 1, 1, 1], &[1.0f64, 3.0]).unwrap();
/// let (w, b) = (Vector::full(&arena, [1], 1.0), Vector::full(&arena, [1], 10.0));
/// let affine = Affine { weight: w.as_view(), bias: b.as_view(), eps: 0.0 };
/// assert_eq!(batch_norm2d(&arena, &x, &affine).0.as_slice(), [9.0, 11.0]);
/// ```
#[track_caller]
pub fn batch_norm2d<'a, E: Float>(
    arena: &'a Arena,
    x: &impl AsView<E, 4>,
    affine: &Affine<'_, E>,
) -> (Tensor<'a, E, 4>, Matrix<'a, f64>) {
    let (stats, norm) = batch_statistics(arena, x, affine.eps);
    let inputs = [Arg::new(x), Arg::new(&norm), Arg::new(&affine.weight), Arg::new(&affine.bias)];
    (eager::run(arena, &BatchNorm2dApply::new(Statistics::Batch), &inputs), stats)
}

/// [`batch_norm2d`] into an existing tensor.
#[track_caller]
pub fn batch_norm2d_into<E: Float>(
    x: &impl AsView<E, 4>,
    affine: &Affine<'_, E>,
    accum: Accum,
    out: &mut Tensor<'_, E, 4>,
) {
    let scratch = Arena::new();
    let (_, norm) = batch_statistics(&scratch, x, affine.eps);
    let inputs = [Arg::new(x), Arg::new(&norm), Arg::new(&affine.weight), Arg::new(&affine.bias)];
    eager::run_into(&BatchNorm2dApply::new(Statistics::Batch), &inputs, accum, out);
}

#[track_caller]
fn batch_statistics<'a, E: Float>(
    arena: &'a Arena,
    x: &impl AsView<E, 4>,
    eps: f64,
) -> (Matrix<'a, f64>, Matrix<'a, E>) {
    let stats: Matrix<'_, f64> = eager::run(arena, &BatchNorm2dStats, &[Arg::new(x)]);
    let [n, _, h, w] = x.as_view().shape();
    let finish = BatchNorm2dFinish { count: n * h * w, eps, dtype: E::DTYPE };
    let norm = eager::run(arena, &finish, &[Arg::new(&stats)]);
    (stats, norm)
}

/// y = (x − mean) / √(variance + eps) · w + b by channel of x \[N, C, H, W\],
/// with tracked statistics \[C\]: evaluation.
///
/// ```
/// use dahl::{ops::batch_norm2d::{Affine, batch_norm2d_eval}, tensor::{Arena, Tensor, Vector}};
/// let arena = Arena::new();
/// let x = Tensor::full(&arena, [1, 1, 1, 1], 5.0f64);
/// let (one, four) = (Vector::full(&arena, [1], 1.0), Vector::full(&arena, [1], 4.0));
/// let affine = Affine { weight: one.as_view(), bias: one.as_view(), eps: 0.0 };
/// assert_eq!(batch_norm2d_eval(&arena, &x, [&one, &four], &affine).as_slice(), [3.0]);
/// ```
#[track_caller]
pub fn batch_norm2d_eval<'a, E: Float>(
    arena: &'a Arena,
    x: &impl AsView<E, 4>,
    [mean, variance]: [&impl AsView<E, 1>; 2],
    affine: &Affine<'_, E>,
) -> Tensor<'a, E, 4> {
    let scratch = Arena::new();
    let tracked = BatchNorm2dTracked { eps: affine.eps };
    let norm: Matrix<'_, E> = eager::run(&scratch, &tracked, &[Arg::new(mean), Arg::new(variance)]);
    let inputs = [Arg::new(x), Arg::new(&norm), Arg::new(&affine.weight), Arg::new(&affine.bias)];
    eager::run(arena, &BatchNorm2dApply::new(Statistics::Tracked), &inputs)
}

/// [`batch_norm2d_eval`] into an existing tensor.
#[track_caller]
pub fn batch_norm2d_eval_into<E: Float>(
    x: &impl AsView<E, 4>,
    [mean, variance]: [&impl AsView<E, 1>; 2],
    affine: &Affine<'_, E>,
    accum: Accum,
    out: &mut Tensor<'_, E, 4>,
) {
    let scratch = Arena::new();
    let tracked = BatchNorm2dTracked { eps: affine.eps };
    let norm: Matrix<'_, E> = eager::run(&scratch, &tracked, &[Arg::new(mean), Arg::new(variance)]);
    let inputs = [Arg::new(x), Arg::new(&norm), Arg::new(&affine.weight), Arg::new(&affine.bias)];
    eager::run_into(&BatchNorm2dApply::new(Statistics::Tracked), &inputs, accum, out);
}

/// [`batch_norm2d_eval`] in place.
#[track_caller]
pub fn batch_norm2d_eval_in_place<E: Float>(
    x: &mut Tensor<'_, E, 4>,
    [mean, variance]: [&impl AsView<E, 1>; 2],
    affine: &Affine<'_, E>,
) {
    let scratch = Arena::new();
    let tracked = BatchNorm2dTracked { eps: affine.eps };
    let norm: Matrix<'_, E> = eager::run(&scratch, &tracked, &[Arg::new(mean), Arg::new(variance)]);
    let inputs = [Arg::new(&norm), Arg::new(&affine.weight), Arg::new(&affine.bias)];
    eager::infer_with(&InPlace, x, &[&inputs[0], &inputs[1], &inputs[2]]);
    eager::run_in_place(&InPlace, &inputs, x);
}

/// What a recorded batch normalisation gives.
pub struct BatchNorm2dRecorded {
    /// The normalised values.
    pub output: Var,
    /// \[mean, Σ (x − mean)²\] in `f64`, for the tracking.
    pub stats: Var,
    /// How many values each channel has.
    pub count: usize,
}

impl dyn Recorder + '_ {
    /// Records a normalisation by the batch's own statistics.
    pub fn batch_norm2d(
        &mut self,
        x: Var,
        weight: Var,
        bias: Var,
        eps: f64,
    ) -> BatchNorm2dRecorded {
        let Meta { shape, dtype } = self.meta(x);
        let count = match shape.axes() {
            [n, _, h, w] => n.saturating_mul(*h).saturating_mul(*w),
            _ => 1,
        };
        let stats = self.one(BatchNorm2dStats, &[x]);
        let norm = self.one(BatchNorm2dFinish { count, eps, dtype }, &[stats]);
        let apply = BatchNorm2dApply::new(Statistics::Batch);
        let output = self.one(apply, &[x, norm, weight, bias]);
        BatchNorm2dRecorded { output, stats, count }
    }

    /// Records a normalisation by tracked statistics.
    pub fn batch_norm2d_eval(
        &mut self,
        x: Var,
        [mean, variance]: [Var; 2],
        [weight, bias]: [Var; 2],
        eps: f64,
    ) -> Var {
        let norm = self.one(BatchNorm2dTracked { eps }, &[mean, variance]);
        let apply = BatchNorm2dApply::new(Statistics::Tracked);
        self.one(apply, &[x, norm, weight, bias])
    }
}
