//! Losses of logits and labels, and how many labels were met.

use super::eager::{self, Accum, Arg};
use super::{Backprop, Cut, Meta, Metas, Mismatch, Op, Recorder, Var, expect_floats};
use crate::tensor::{Arena, AsView, Scalar, Vector};
use crate::units::Flops;
use dahl_kernels::cross_entropy as kernels;
use dahl_kernels::{Call, DType, Float, Piece, Region, Shape};

/// Logits \[N, K\] and labels \[N\].
fn infer(inputs: &[Meta]) -> Result<Meta, Mismatch> {
    let (x, labels) = (inputs[0], inputs[1]);
    let samples = x.shape.axes().first().copied().unwrap_or(1);
    let out = Meta { shape: Shape::new(&[samples]), ..x };
    expect_floats(&inputs[..1])?;
    if x.shape.rank() != 2 {
        return Err(Mismatch::new("input", "2 axes [N, classes]", x.shape).guess(out));
    }
    if x.shape[1] == 0 {
        return Err(Mismatch::new("input", "at least one class", x.shape).guess(out));
    }
    if labels != Meta::new([samples], DType::I64) {
        return Err(Mismatch::new("labels", Meta::new([samples], DType::I64), labels).guess(out));
    }
    Ok(out)
}

/// The rows of a piece over samples.
fn regions(metas: Metas<'_>, samples: std::ops::Range<usize>) -> [Region; 2] {
    let rows = Region::full(&metas.inputs[0].shape).with(0, samples.clone());
    [rows, Region::new(&[samples])]
}

/// l\[n\] = ln Σ_k exp x\[n,k\] − x\[n, label\[n\]\]: one loss a sample.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy;

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![infer(inputs)?])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let [rows, labels] = regions(metas, piece.out.range(0));
        vec![rows, labels, piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        Flops((20 * piece.out.elements() * metas.inputs[0].shape[1]) as u64)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let inputs = [at.inputs[0], at.inputs[1], at.grad()];
        Some(vec![at.when(0, || g.one(CrossEntropyBackward, &inputs)), None])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::cross_entropy(call);
    }
}

/// g\[n,k\] = g'\[n\] (softmax(x\[n\])\[k\] − 1 where k is the label).
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyBackward;

impl Op for CrossEntropyBackward {
    fn name(&self) -> &'static str {
        "cross_entropy_backward"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[0]])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let [rows, labels] = regions(metas, piece.out.range(0));
        vec![rows, labels, labels, piece.out]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(40 * piece.out.elements() as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::cross_entropy_backward(call);
    }
}

/// 1 for every sample whose largest logit is its label, else 0.
#[derive(Clone, Copy, Debug)]
pub struct Correct;

impl Op for Correct {
    fn name(&self) -> &'static str {
        "correct"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![infer(inputs)?])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let [rows, labels] = regions(metas, piece.out.range(0));
        vec![rows, labels, piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        Flops((piece.out.elements() * metas.inputs[0].shape[1]) as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::correct(call);
    }
}

/// 1 where a scalar is finite, else 0: the flag that updates obey.
#[derive(Clone, Copy, Debug)]
pub struct IsFinite;

impl Op for IsFinite {
    fn name(&self) -> &'static str {
        "is_finite"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        if inputs[0].shape.rank() != 0 {
            return Err(Mismatch::new("input", "a scalar", inputs[0].shape));
        }
        Ok(vec![Meta::new([], DType::U8)])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out, piece.out]
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(1)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::is_finite(call);
    }
}

/// l\[n\] = ln Σ_k exp x\[n,k\] − x\[n, label\[n\]\]: the loss of each sample;
/// NaN for a label that is no class.
///
/// ```
/// use dahl::{ops::cross_entropy::cross_entropy, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let x = Matrix::full(&arena, [1, 10], 3.0f64);
/// let labels = Vector::full(&arena, [1], 7i64);
/// assert_eq!(format!("{:.4}", cross_entropy(&arena, &x, &labels)), "[2.3026]");
/// ```
#[track_caller]
pub fn cross_entropy<'a, E: Float>(
    arena: &'a Arena,
    logits: &impl AsView<E, 2>,
    labels: &impl AsView<i64, 1>,
) -> Vector<'a, E> {
    eager::run(arena, &CrossEntropy, &[Arg::new(logits), Arg::new(labels)])
}

/// [`cross_entropy`] into an existing vector.
#[track_caller]
pub fn cross_entropy_into<E: Float>(
    logits: &impl AsView<E, 2>,
    labels: &impl AsView<i64, 1>,
    accum: Accum,
    out: &mut Vector<'_, E>,
) {
    eager::run_into(&CrossEntropy, &[Arg::new(logits), Arg::new(labels)], accum, out);
}

/// 1 for every sample whose largest logit is its label, else 0.
///
/// ```
/// use dahl::{ops::cross_entropy::correct, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let x = Matrix::from_slice(&arena, [2, 2], &[1.0f32, 2.0, 4.0, 3.0]).unwrap();
/// let labels = Vector::full(&arena, [2], 1i64);
/// assert_eq!(correct(&arena, &x, &labels).as_slice(), [1.0, 0.0]);
/// ```
#[track_caller]
pub fn correct<'a, E: Float>(
    arena: &'a Arena,
    logits: &impl AsView<E, 2>,
    labels: &impl AsView<i64, 1>,
) -> Vector<'a, E> {
    eager::run(arena, &Correct, &[Arg::new(logits), Arg::new(labels)])
}

/// [`correct`] into an existing vector.
#[track_caller]
pub fn correct_into<E: Float>(
    logits: &impl AsView<E, 2>,
    labels: &impl AsView<i64, 1>,
    accum: Accum,
    out: &mut Vector<'_, E>,
) {
    eager::run_into(&Correct, &[Arg::new(logits), Arg::new(labels)], accum, out);
}

/// The share of samples whose largest logit is their label.
///
/// ```
/// use dahl::{ops::cross_entropy::accuracy, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let x = Matrix::from_slice(&arena, [2, 2], &[1.0f32, 2.0, 4.0, 3.0]).unwrap();
/// let labels = Vector::full(&arena, [2], 1i64);
/// assert_eq!(accuracy(&arena, &x, &labels).item(), 0.5);
/// ```
#[track_caller]
pub fn accuracy<'a, E: Float>(
    arena: &'a Arena,
    logits: &impl AsView<E, 2>,
    labels: &impl AsView<i64, 1>,
) -> Scalar<'a, E> {
    let scratch = Arena::new();
    super::reduce::mean_all(arena, &correct(&scratch, logits, labels))
}

impl dyn Recorder + '_ {
    /// Records the loss of each sample.
    pub fn cross_entropy(&mut self, logits: Var, labels: Var) -> Var {
        self.one(CrossEntropy, &[logits, labels])
    }

    /// Records which samples' largest logit is their label.
    pub fn correct(&mut self, logits: Var, labels: Var) -> Var {
        self.one(Correct, &[logits, labels])
    }

    /// Records the share of samples whose largest logit is their label.
    pub fn accuracy(&mut self, logits: Var, labels: Var) -> Var {
        let correct = self.correct(logits, labels);
        self.mean_all(correct)
    }

    /// Records the flag that says whether a scalar is finite.
    pub fn is_finite(&mut self, scalar: Var) -> Var {
        self.one(IsFinite, &[scalar])
    }
}
