//! Reductions over given axes: sum, mean, min, max, argmax.

use super::eager::{self, Accum, Arg};
use super::reduce::Average;
use super::{Backprop, Meta, Metas, Mismatch, Op, Recorder, Var, expect_floats};
use crate::tensor::{Arena, AsView, Scalar, Tensor};
use crate::units::Flops;
use dahl_kernels::reduce_axes as kernels;
pub use dahl_kernels::reduce_axes::Extreme;
use dahl_kernels::{Call, DType, Float, Piece, Region, Shape};

/// The shape without `axes`, or what is wrong with them.
fn without(shape: &Shape, axes: &[usize]) -> Result<Shape, Mismatch> {
    let twice = axes.iter().enumerate().any(|(i, a)| axes[..i].contains(a));
    if twice || axes.iter().any(|&a| a >= shape.rank()) {
        let expected = format!("different axes of {shape}");
        return Err(Mismatch::new("axes", expected, format!("{axes:?}")));
    }
    let kept: Vec<usize> =
        (0..shape.rank()).filter(|a| !axes.contains(a)).map(|a| shape[a]).collect();
    Ok(Shape::new(&kept))
}

/// Refuses to pick one element out of none.
fn expect_some(shape: &Shape, axes: &[usize]) -> Result<(), Mismatch> {
    if axes.iter().any(|&a| shape[a] == 0) {
        return Err(Mismatch::new("input", format!("elements along axes {axes:?}"), shape));
    }
    Ok(())
}

/// The box of the input that a box of the result is made of.
fn widened(shape: &Shape, axes: &[usize], out: &Region) -> Region {
    let mut kept = out.ranges();
    let ranges: Vec<_> = (0..shape.rank())
        .map(|a| if axes.contains(&a) { 0..shape[a] } else { kept.next().unwrap_or(0..0) })
        .collect();
    Region::new(&ranges)
}

/// The box of the result that a box of the input goes into.
fn narrowed(axes: &[usize], region: &Region) -> Region {
    let kept: Vec<_> =
        region.ranges().enumerate().filter(|(a, _)| !axes.contains(a)).map(|(_, r)| r).collect();
    Region::new(&kept)
}

fn attributes(axes: &[usize]) -> Vec<(&'static str, String)> {
    vec![("axes", format!("{axes:?}"))]
}

fn flops(metas: Metas<'_>, piece: &Piece) -> Flops {
    let terms = metas.inputs[0].shape.elements() / metas.out().elements().max(1);
    Flops((terms * piece.out.elements()) as u64)
}

/// y = Σ x over `axes`, which disappear; divided by the number of terms for
/// the mean.
#[derive(Clone, Debug)]
pub struct Sum {
    /// The axes that are summed over.
    pub axes: Vec<usize>,
    /// What the sum is divided by.
    pub average: Average,
}

impl Op for Sum {
    fn name(&self) -> &'static str {
        match self.average {
            Average::No => "sum",
            Average::Mean => "mean",
        }
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.axes)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_floats(inputs)?;
        Ok(vec![Meta { shape: without(&inputs[0].shape, &self.axes)?, ..inputs[0] }])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![widened(&metas.inputs[0].shape, &self.axes, &piece.out), piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        flops(metas, piece)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let shape = g.meta(at.inputs[0]).shape;
        let op = Expand { shape, axes: self.axes.clone(), average: self.average };
        Some(vec![at.when(0, || g.one(op, &[at.grad()]))])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::sum_axes(&self.axes, self.average == Average::Mean, call);
    }
}

/// y = x along new `axes`: the gradient of a sum; divided by their elements
/// for that of a mean.
#[derive(Clone, Debug)]
pub struct Expand {
    /// The shape of the result.
    pub shape: Shape,
    /// The axes of the result that the input does not have.
    pub axes: Vec<usize>,
    /// What the elements are divided by.
    pub average: Average,
}

impl Op for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = attributes(&self.axes);
        attributes.push(("shape", self.shape.to_string()));
        attributes
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let out = Meta { shape: self.shape, ..inputs[0] };
        let expected = without(&self.shape, &self.axes)?;
        if inputs[0].shape != expected {
            return Err(Mismatch::new("input", expected, inputs[0].shape).guess(out));
        }
        Ok(vec![out])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![narrowed(&self.axes, &piece.out), piece.out]
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::expand_axes(&self.axes, self.average == Average::Mean, call);
    }
}

/// The smallest or largest element over `axes`, which disappear; the second
/// output is its number in row-major order of them. Of equal ones the first;
/// NaN before all.
#[derive(Clone, Debug)]
pub struct Pick {
    /// The axes that are searched.
    pub axes: Vec<usize>,
    /// Which element.
    pub extreme: Extreme,
}

impl Op for Pick {
    fn name(&self) -> &'static str {
        match self.extreme {
            Extreme::Min => "min",
            Extreme::Max => "max",
        }
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.axes)
    }

    fn outputs(&self) -> usize {
        2
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_floats(inputs)?;
        let y = Meta { shape: without(&inputs[0].shape, &self.axes)?, ..inputs[0] };
        expect_some(&inputs[0].shape, &self.axes)?;
        Ok(vec![y, Meta { dtype: DType::I64, ..y }])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![widened(&metas.inputs[0].shape, &self.axes, &piece.out), piece.out, piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        flops(metas, piece)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let op = PickBackward { shape: g.meta(at.inputs[0]).shape, axes: self.axes.clone() };
        Some(vec![at.when(0, || g.one(op, &[at.grad(), at.outputs[1]]))])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::extreme_axes(&self.axes, self.extreme, call);
    }
}

/// The gradient of [`Pick`]: all of it goes to the element that was picked.
/// Inputs g' and the picked ones' numbers.
#[derive(Clone, Debug)]
pub struct PickBackward {
    /// The shape of the result.
    pub shape: Shape,
    /// The axes that were searched.
    pub axes: Vec<usize>,
}

impl Op for PickBackward {
    fn name(&self) -> &'static str {
        "pick_backward"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.axes)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: self.shape, ..inputs[0] }])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let out = narrowed(&self.axes, &piece.out);
        vec![out, out, piece.out]
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::extreme_axes_backward(&self.axes, call);
    }
}

/// The number of the largest element over `axes` in row-major order of them;
/// of equal ones the first, NaN before all.
#[derive(Clone, Debug)]
pub struct Argmax {
    /// The axes that are searched.
    pub axes: Vec<usize>,
}

impl Op for Argmax {
    fn name(&self) -> &'static str {
        "argmax"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.axes)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_floats(inputs)?;
        let shape = without(&inputs[0].shape, &self.axes)?;
        expect_some(&inputs[0].shape, &self.axes)?;
        Ok(vec![Meta { shape, dtype: DType::I64 }])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![widened(&metas.inputs[0].shape, &self.axes, &piece.out), piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        flops(metas, piece)
    }

    fn backward(&self, _: &mut dyn Recorder, _: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        Some(vec![None])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::argmax_axes(&self.axes, call);
    }
}

/// Σ x over `K` axes, which disappear.
///
/// ```
/// use dahl::{ops::reduce_axes::sum, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let x = Matrix::from_slice(&arena, [2, 2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
/// let columns: Vector<f32> = sum(&arena, &x, [0]);
/// assert_eq!(columns.as_slice(), [4.0, 6.0]);
/// ```
#[track_caller]
pub fn sum<'a, E: Float, const R: usize, const K: usize, const S: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
    axes: [usize; K],
) -> Tensor<'a, E, S> {
    const { assert!(S + K == R, "the axes summed over disappear") };
    eager::run(arena, &Sum { axes: axes.to_vec(), average: Average::No }, &[Arg::new(x)])
}

/// [`sum`] into an existing tensor.
#[track_caller]
pub fn sum_into<E: Float, const R: usize, const K: usize, const S: usize>(
    x: &impl AsView<E, R>,
    axes: [usize; K],
    accum: Accum,
    out: &mut Tensor<'_, E, S>,
) {
    const { assert!(S + K == R, "the axes summed over disappear") };
    let op = Sum { axes: axes.to_vec(), average: Average::No };
    eager::run_into(&op, &[Arg::new(x)], accum, out);
}

/// The mean of x over `K` axes, which disappear.
///
/// ```
/// use dahl::{ops::reduce_axes::mean, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let x = Matrix::from_slice(&arena, [2, 2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
/// let rows: Vector<f32> = mean(&arena, &x, [1]);
/// assert_eq!(rows.as_slice(), [1.5, 3.5]);
/// ```
#[track_caller]
pub fn mean<'a, E: Float, const R: usize, const K: usize, const S: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
    axes: [usize; K],
) -> Tensor<'a, E, S> {
    const { assert!(S + K == R, "the axes averaged over disappear") };
    eager::run(arena, &Sum { axes: axes.to_vec(), average: Average::Mean }, &[Arg::new(x)])
}

/// [`mean`] into an existing tensor.
#[track_caller]
pub fn mean_into<E: Float, const R: usize, const K: usize, const S: usize>(
    x: &impl AsView<E, R>,
    axes: [usize; K],
    accum: Accum,
    out: &mut Tensor<'_, E, S>,
) {
    const { assert!(S + K == R, "the axes averaged over disappear") };
    let op = Sum { axes: axes.to_vec(), average: Average::Mean };
    eager::run_into(&op, &[Arg::new(x)], accum, out);
}

/// The smallest elements over `K` axes, which disappear, and their numbers in
/// row-major order of these axes.
///
/// ```
/// use dahl::{ops::reduce_axes::min, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let x = Matrix::from_slice(&arena, [2, 2], &[1.0f32, 2.0, 4.0, 3.0]).unwrap();
/// let (values, indices): (Vector<f32>, Vector<i64>) = min(&arena, &x, [1]);
/// assert_eq!((values.as_slice(), indices.as_slice()), (&[1.0, 3.0][..], &[0, 1][..]));
/// ```
#[track_caller]
pub fn min<'a, E: Float, const R: usize, const K: usize, const S: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
    axes: [usize; K],
) -> (Tensor<'a, E, S>, Tensor<'a, i64, S>) {
    const { assert!(S + K == R, "the axes searched disappear") };
    eager::run_two(arena, &Pick { axes: axes.to_vec(), extreme: Extreme::Min }, &[Arg::new(x)])
}

/// The largest elements over `K` axes, which disappear, and their numbers in
/// row-major order of these axes.
///
/// ```
/// use dahl::{ops::reduce_axes::max, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let x = Matrix::from_slice(&arena, [2, 2], &[1.0f32, 2.0, 4.0, 3.0]).unwrap();
/// let (values, indices): (Vector<f32>, Vector<i64>) = max(&arena, &x, [1]);
/// assert_eq!((values.as_slice(), indices.as_slice()), (&[2.0, 4.0][..], &[1, 0][..]));
/// ```
#[track_caller]
pub fn max<'a, E: Float, const R: usize, const K: usize, const S: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
    axes: [usize; K],
) -> (Tensor<'a, E, S>, Tensor<'a, i64, S>) {
    const { assert!(S + K == R, "the axes searched disappear") };
    eager::run_two(arena, &Pick { axes: axes.to_vec(), extreme: Extreme::Max }, &[Arg::new(x)])
}

/// The numbers of the largest elements over `K` axes, which disappear, in
/// row-major order of these axes.
///
/// ```
/// use dahl::{ops::reduce_axes::argmax, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let x = Matrix::from_slice(&arena, [2, 2], &[1.0f32, 2.0, 4.0, 3.0]).unwrap();
/// let best: Vector<i64> = argmax(&arena, &x, [1]);
/// assert_eq!(best.as_slice(), [1, 0]);
/// ```
#[track_caller]
pub fn argmax<'a, E: Float, const R: usize, const K: usize, const S: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
    axes: [usize; K],
) -> Tensor<'a, i64, S> {
    const { assert!(S + K == R, "the axes searched disappear") };
    eager::run(arena, &Argmax { axes: axes.to_vec() }, &[Arg::new(x)])
}

/// The smallest of all elements and its number in row-major order.
///
/// ```
/// use dahl::{ops::reduce_axes::min_all, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [3], &[2.0f32, 1.0, 4.0]).unwrap();
/// let (value, index) = min_all(&arena, &x);
/// assert_eq!((value.item(), index.item()), (1.0, 1));
/// ```
#[track_caller]
pub fn min_all<'a, E: Float, const R: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
) -> (Scalar<'a, E>, Scalar<'a, i64>) {
    let op = Pick { axes: (0..R).collect(), extreme: Extreme::Min };
    eager::run_two(arena, &op, &[Arg::new(x)])
}

/// The largest of all elements and its number in row-major order.
///
/// ```
/// use dahl::{ops::reduce_axes::max_all, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [3], &[2.0f32, 1.0, 4.0]).unwrap();
/// let (value, index) = max_all(&arena, &x);
/// assert_eq!((value.item(), index.item()), (4.0, 2));
/// ```
#[track_caller]
pub fn max_all<'a, E: Float, const R: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
) -> (Scalar<'a, E>, Scalar<'a, i64>) {
    let op = Pick { axes: (0..R).collect(), extreme: Extreme::Max };
    eager::run_two(arena, &op, &[Arg::new(x)])
}

/// The number of the largest of all elements in row-major order.
///
/// ```
/// use dahl::{ops::reduce_axes::argmax_all, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [3], &[2.0f32, 1.0, 4.0]).unwrap();
/// assert_eq!(argmax_all(&arena, &x).item(), 2);
/// ```
#[track_caller]
pub fn argmax_all<'a, E: Float, const R: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
) -> Scalar<'a, i64> {
    eager::run(arena, &Argmax { axes: (0..R).collect() }, &[Arg::new(x)])
}

impl dyn Recorder + '_ {
    /// Records the sum over `axes`.
    pub fn sum(&mut self, x: Var, axes: &[usize]) -> Var {
        self.one(Sum { axes: axes.to_vec(), average: Average::No }, &[x])
    }

    /// Records the mean over `axes`.
    pub fn mean(&mut self, x: Var, axes: &[usize]) -> Var {
        self.one(Sum { axes: axes.to_vec(), average: Average::Mean }, &[x])
    }

    /// Records the smallest elements over `axes`.
    pub fn min(&mut self, x: Var, axes: &[usize]) -> Var {
        self.one(Pick { axes: axes.to_vec(), extreme: Extreme::Min }, &[x])
    }

    /// Records the largest elements over `axes`.
    pub fn max(&mut self, x: Var, axes: &[usize]) -> Var {
        self.one(Pick { axes: axes.to_vec(), extreme: Extreme::Max }, &[x])
    }

    /// Records the numbers of the largest elements over `axes`.
    pub fn argmax(&mut self, x: Var, axes: &[usize]) -> Var {
        self.one(Argmax { axes: axes.to_vec() }, &[x])
    }
}
