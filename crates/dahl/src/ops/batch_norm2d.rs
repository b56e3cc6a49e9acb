//! Batch normalisation, lowered to parts: statistics, finish, apply.
//!
//! The statistics of blocks of samples are merged in the numerics' tree, so
//! they are those of the whole batch whatever the pieces.

use super::eager::{self, Accum, Arg};
use super::{Access, Backprop, Cut, Meta, Metas, Mismatch, Op, Recorder, Var, expect_floats};
use crate::tensor::{Arena, AsView, Matrix, Tensor, TensorView};
use crate::units::Flops;
use dahl_kernels::batch_norm2d as kernels;
pub use dahl_kernels::batch_norm2d::Statistics;
use dahl_kernels::{Call, DType, Float, Piece, Region, Shape};
use std::ops::Range;
use std::sync::Arc;

/// The channels of a piece of \[2, C\].
fn pairs(channels: Range<usize>) -> Region {
    Region::new(&[0..2, channels])
}

/// \[mean, Σ (x − mean)²\] by channel: x is \[N, C, H, W\], the result \[2, C\].
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
        let out = Meta { shape: Shape::new(&[2, x.shape[1]]), ..x };
        let count = [0, 2, 3].iter().try_fold(1usize, |n, &a| n.checked_mul(x.shape[a]));
        if count.is_none_or(|n| n < 2) {
            let expected = "more than one value a channel to train on";
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

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::batch_norm2d_stats(call);
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
}

impl Op for BatchNorm2dFinish {
    fn name(&self) -> &'static str {
        "batch_norm2d_finish"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("count", self.count.to_string()), ("eps", self.eps.to_string())]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[0]])
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
        let channels = Meta { shape: inputs[0].shape.without(0), ..inputs[0] };
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

/// y = (x − mean) · invstd · w + b by channel. Inputs x, \[mean, invstd\], w, b.
///
/// Its backward rule is that of the whole normalisation: the gradient that
/// reaches x through the batch's statistics is part of it.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm2dApply {
    /// Whose statistics normalise.
    pub statistics: Statistics,
}

impl Op for BatchNorm2dApply {
    fn name(&self) -> &'static str {
        "batch_norm2d"
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
        for w in &inputs[2..] {
            if w.shape.axes() != [x.shape[1]] {
                let expected = format!("[{}]", x.shape[1]);
                return Err(Mismatch::new("weight and bias", expected, w.shape).guess(x));
            }
        }
        Ok(vec![x])
    }

    fn cuts(&self, metas: Metas<'_>) -> Vec<Cut> {
        Cut::everywhere(metas)
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let channels = piece.out.range(1);
        let vector = Region::new(std::slice::from_ref(&channels));
        vec![piece.out, pairs(channels), vector, vector, piece.out]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(3 * piece.out.elements() as u64)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let [x, norm, w, _] = *at.inputs else { return None };
        let grad = at.grad();
        let sums = g.one(BatchNorm2dBackwardSums, &[x, norm, grad]);
        let op = BatchNorm2dBackwardInput { statistics: self.statistics };
        let input = at.when(0, || match self.statistics {
            Statistics::Batch => g.one(op, &[x, norm, w, grad, sums]),
            Statistics::Tracked => g.one(op, &[x, norm, w, grad]),
        });
        let weight = at.when(2, || g.select(sums, 0, 1));
        let bias = at.when(3, || g.select(sums, 0, 0));
        Some(vec![input, None, weight, bias])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::batch_norm2d(call);
    }
}

/// \[Σ g', Σ g' (x − mean) · invstd\] by channel. Inputs x, \[mean, invstd\], g'.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm2dBackwardSums;

impl Op for BatchNorm2dBackwardSums {
    fn name(&self) -> &'static str {
        "batch_norm2d_backward_sums"
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
        vec![x, pairs(piece.out.range(1)), x, piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let x = metas.inputs[0].shape;
        Flops(4 * (piece.sum.len() * piece.out.len(1) * x[2] * x[3]) as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::batch_norm2d_backward_sums(call);
    }
}

/// The gradient of x: invstd · w · (g' − mean(g') − x̂ · mean(g' x̂)) for the
/// batch's statistics, invstd · w · g' for tracked ones.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm2dBackwardInput {
    /// Whose statistics normalised.
    pub statistics: Statistics,
}

impl Op for BatchNorm2dBackwardInput {
    fn name(&self) -> &'static str {
        "batch_norm2d_backward_input"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[0]])
    }

    fn cuts(&self, metas: Metas<'_>) -> Vec<Cut> {
        Cut::everywhere(metas)
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let channels = piece.out.range(1);
        let vector = Region::new(std::slice::from_ref(&channels));
        let mut regions = vec![piece.out, pairs(channels.clone()), vector, piece.out];
        if metas.inputs.len() > 4 {
            regions.push(pairs(channels));
        }
        regions.push(piece.out);
        regions
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(5 * piece.out.elements() as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::batch_norm2d_backward_input(self.statistics, call);
    }
}

/// [`BatchNorm2dApply`] by tracked statistics in place.
#[derive(Clone, Copy, Debug)]
struct InPlace;

impl Op for InPlace {
    fn name(&self) -> &'static str {
        "batch_norm2d"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        BatchNorm2dApply { statistics: Statistics::Tracked }.infer(inputs)
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn cuts(&self, metas: Metas<'_>) -> Vec<Cut> {
        Cut::everywhere(metas)
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
/// \[mean, Σ (x − mean)²\], for the tracking.
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
) -> (Tensor<'a, E, 4>, Matrix<'a, E>) {
    let (stats, norm) = batch_statistics(arena, x, affine.eps);
    let inputs = [Arg::new(x), Arg::new(&norm), Arg::new(&affine.weight), Arg::new(&affine.bias)];
    (eager::run(arena, &BatchNorm2dApply { statistics: Statistics::Batch }, &inputs), stats)
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
    eager::run_into(&BatchNorm2dApply { statistics: Statistics::Batch }, &inputs, accum, out);
}

#[track_caller]
fn batch_statistics<'a, E: Float>(
    arena: &'a Arena,
    x: &impl AsView<E, 4>,
    eps: f64,
) -> (Matrix<'a, E>, Matrix<'a, E>) {
    let stats: Matrix<'_, E> = eager::run(arena, &BatchNorm2dStats, &[Arg::new(x)]);
    let [n, _, h, w] = x.as_view().shape();
    let finish = BatchNorm2dFinish { count: n * h * w, eps };
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
    eager::run(arena, &BatchNorm2dApply { statistics: Statistics::Tracked }, &inputs)
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
    eager::run_into(&BatchNorm2dApply { statistics: Statistics::Tracked }, &inputs, accum, out);
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
    /// \[mean, Σ (x − mean)²\], for the tracking.
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
        let shape = self.meta(x).shape;
        let count = match shape.axes() {
            [n, _, h, w] => n.saturating_mul(*h).saturating_mul(*w),
            _ => 1,
        };
        let stats = self.one(BatchNorm2dStats, &[x]);
        let norm = self.one(BatchNorm2dFinish { count, eps }, &[stats]);
        let apply = BatchNorm2dApply { statistics: Statistics::Batch };
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
        let apply = BatchNorm2dApply { statistics: Statistics::Tracked };
        self.one(apply, &[x, norm, weight, bias])
    }
}
