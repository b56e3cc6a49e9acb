//! Pooling over windows.

use super::conv2d::{padded, slid};
use super::cut::{window, window_back};
use super::eager::{self, Accum, Arg};
use super::{Backprop, Meta, Metas, Mismatch, Op, Recorder, Var, expect_floats};
use crate::tensor::{Arena, AsView, Tensor};
use crate::units::Flops;
use dahl_kernels::pool as kernels;
pub use dahl_kernels::pool::Pool2d;
use dahl_kernels::{Call, DType, Float, Piece, Region, Shape};

fn attributes(pool: &Pool2d) -> Vec<(&'static str, String)> {
    let mut attributes = vec![("kernel", format!("{:?}", pool.kernel))];
    if pool.stride != pool.kernel {
        attributes.push(("stride", format!("{:?}", pool.stride)));
    }
    if pool.padding != [0, 0] {
        attributes.push(("padding", format!("{:?}", pool.padding)));
    }
    attributes
}

fn axis(pool: &Pool2d, a: usize) -> (usize, usize, usize) {
    (pool.stride[a], pool.padding[a], 1)
}

pub(super) fn infer(pool: &Pool2d, inputs: &[Meta]) -> Result<Meta, Mismatch> {
    let x = inputs[0];
    if x.shape.rank() != 4 {
        return Err(Mismatch::new("input", "4 axes [N, C, H, W]", x.shape));
    }
    expect_floats(inputs)?;
    if pool.kernel.contains(&0) || pool.stride.contains(&0) {
        let found = format!("kernel {:?}, stride {:?}", pool.kernel, pool.stride);
        return Err(Mismatch::new("kernel and stride", "at least 1", found).guess(x));
    }
    if (0..2).any(|a| pool.padding[a] > pool.kernel[a] / 2) {
        let expected = format!("at most half the kernel {:?}", pool.kernel);
        return Err(Mismatch::new("padding", expected, format!("{:?}", pool.padding)).guess(x));
    }
    if x.shape[2] == 0 || x.shape[3] == 0 {
        return Err(Mismatch::new("input", "at least one row and column", x.shape).guess(x));
    }
    let mut axes = [x.shape[0], x.shape[1], 0, 0];
    for a in 0..2 {
        let Some(length) = slid(x.shape[2 + a], pool.kernel[a], axis(pool, a)) else {
            let expected = format!("at most the padded input {:?}", padded(&x.shape, pool.padding));
            return Err(Mismatch::new("kernel", expected, format!("{:?}", pool.kernel)).guess(x));
        };
        axes[2 + a] = length;
    }
    Ok(Meta { shape: Shape::new(&axes), ..x })
}

/// The part of the input that a piece of the output looks at.
fn input_region(pool: &Pool2d, input: &Shape, out: &Region) -> Region {
    let slide = |a| window(out.range(2 + a), input[2 + a], pool.kernel[a], axis(pool, a));
    Region::new(&[out.range(0), out.range(1), slide(0), slide(1)])
}

/// The part of the output that looks at a piece of the input.
fn output_region(pool: &Pool2d, output: &Shape, piece: &Region) -> Region {
    let slide = |a| window_back(piece.range(2 + a), output[2 + a], pool.kernel[a], axis(pool, a));
    Region::new(&[piece.range(0), piece.range(1), slide(0), slide(1)])
}

fn flops(pool: &Pool2d, outputs: usize) -> Flops {
    Flops((outputs * pool.kernel[0] * pool.kernel[1]) as u64)
}

/// y = the largest value of each window; of equal ones the first in row order.
/// The second output is where it was, an index into the input's plane.
#[derive(Clone, Copy, Debug)]
pub struct MaxPool2d(pub Pool2d);

impl Op for MaxPool2d {
    fn name(&self) -> &'static str {
        "max_pool2d"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.0)
    }

    fn outputs(&self) -> usize {
        2
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let y = infer(&self.0, inputs)?;
        Ok(vec![y, Meta { dtype: DType::I64, ..y }])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let input = input_region(&self.0, &metas.inputs[0].shape, &piece.out);
        vec![input, piece.out, piece.out]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        flops(&self.0, piece.out.elements())
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let input = g.meta(at.inputs[0]).shape;
        let op = MaxPool2dBackward { pool: self.0, input };
        Some(vec![at.when(0, || g.one(op, &[at.grad(), at.outputs[1]]))])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::max_pool2d(&self.0, call);
    }
}

/// The gradient of [`MaxPool2d`]: that of each output goes to its winner.
/// Inputs g' and the winners' indices.
#[derive(Clone, Copy, Debug)]
pub struct MaxPool2dBackward {
    /// The pooling.
    pub pool: Pool2d,
    /// The shape of its input.
    pub input: Shape,
}

impl Op for MaxPool2dBackward {
    fn name(&self) -> &'static str {
        "max_pool2d_backward"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.pool)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: self.input, ..inputs[0] }])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let out = output_region(&self.pool, &metas.inputs[0].shape, &piece.out);
        vec![out, out, piece.out]
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::max_pool2d_backward(&self.pool, call);
    }
}

/// y = the sum of each window over the window's size, padded zeros counted.
#[derive(Clone, Copy, Debug)]
pub struct AvgPool2d(pub Pool2d);

impl Op for AvgPool2d {
    fn name(&self) -> &'static str {
        "avg_pool2d"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.0)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![infer(&self.0, inputs)?])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![input_region(&self.0, &metas.inputs[0].shape, &piece.out), piece.out]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        flops(&self.0, piece.out.elements())
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let op = AvgPool2dBackward { pool: self.0, input: g.meta(at.inputs[0]).shape };
        Some(vec![at.when(0, || g.one(op, &[at.grad()]))])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::avg_pool2d(&self.0, call);
    }
}

/// The gradient of [`AvgPool2d`]: that of each output is shared by its window.
#[derive(Clone, Copy, Debug)]
pub struct AvgPool2dBackward {
    /// The pooling.
    pub pool: Pool2d,
    /// The shape of its input.
    pub input: Shape,
}

impl Op for AvgPool2dBackward {
    fn name(&self) -> &'static str {
        "avg_pool2d_backward"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.pool)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: self.input, ..inputs[0] }])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![output_region(&self.pool, &metas.inputs[0].shape, &piece.out), piece.out]
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::avg_pool2d_backward(&self.pool, call);
    }
}

/// The largest value of each window and where it was, an index into the
/// input's plane; of equal ones the first in row order, NaN before all.
///
/// ```
/// use dahl::{ops::pool::{Pool2d, max_pool2d}, tensor::{Arena, Tensor}};
/// let arena = Arena::new();
/// let x = Tensor::from_fn(&arena, [1, 1, 2, 4], |[_, _, i, j]| (10 * i + j) as f32);
/// let (y, index) = max_pool2d(&arena, &x, Pool2d::tiles([2, 2]));
/// assert_eq!((y.as_slice(), index.as_slice()), (&[11.0, 13.0][..], &[5, 7][..]));
/// ```
#[track_caller]
pub fn max_pool2d<'a, E: Float>(
    arena: &'a Arena,
    x: &impl AsView<E, 4>,
    pool: Pool2d,
) -> (Tensor<'a, E, 4>, Tensor<'a, i64, 4>) {
    eager::run_two(arena, &MaxPool2d(pool), &[Arg::new(x)])
}

/// The mean of each window, padded zeros counted.
///
/// ```
/// use dahl::{ops::pool::{Pool2d, avg_pool2d}, tensor::{Arena, Tensor}};
/// let arena = Arena::new();
/// let x = Tensor::from_fn(&arena, [1, 1, 1, 4], |[_, _, _, j]| j as f32);
/// assert_eq!(avg_pool2d(&arena, &x, Pool2d::tiles([1, 2])).as_slice(), [0.5, 2.5]);
/// ```
#[track_caller]
pub fn avg_pool2d<'a, E: Float>(
    arena: &'a Arena,
    x: &impl AsView<E, 4>,
    pool: Pool2d,
) -> Tensor<'a, E, 4> {
    eager::run(arena, &AvgPool2d(pool), &[Arg::new(x)])
}

/// [`avg_pool2d`] into an existing tensor.
#[track_caller]
pub fn avg_pool2d_into<E: Float>(
    x: &impl AsView<E, 4>,
    pool: Pool2d,
    accum: Accum,
    out: &mut Tensor<'_, E, 4>,
) {
    eager::run_into(&AvgPool2d(pool), &[Arg::new(x)], accum, out);
}

/// The mean of each plane: \[N, C, H, W\] to \[N, C, 1, 1\].
///
/// ```
/// use dahl::{ops::pool::global_avg_pool2d, tensor::{Arena, Tensor}};
/// let arena = Arena::new();
/// let x = Tensor::from_fn(&arena, [1, 1, 1, 4], |[_, _, _, j]| j as f32);
/// assert_eq!(global_avg_pool2d(&arena, &x).as_slice(), [1.5]);
/// ```
#[track_caller]
pub fn global_avg_pool2d<'a, E: Float>(
    arena: &'a Arena,
    x: &impl AsView<E, 4>,
) -> Tensor<'a, E, 4> {
    let [_, _, h, w] = x.as_view().shape();
    avg_pool2d(arena, x, Pool2d::tiles([h, w]))
}

/// [`global_avg_pool2d`] into an existing tensor.
#[track_caller]
pub fn global_avg_pool2d_into<E: Float>(
    x: &impl AsView<E, 4>,
    accum: Accum,
    out: &mut Tensor<'_, E, 4>,
) {
    let [_, _, h, w] = x.as_view().shape();
    avg_pool2d_into(x, Pool2d::tiles([h, w]), accum, out);
}

impl dyn Recorder + '_ {
    /// Records the largest value of each window.
    pub fn max_pool2d(&mut self, x: Var, pool: Pool2d) -> Var {
        self.one(MaxPool2d(pool), &[x])
    }

    /// Records the mean of each window.
    pub fn avg_pool2d(&mut self, x: Var, pool: Pool2d) -> Var {
        self.one(AvgPool2d(pool), &[x])
    }

    /// Records the mean of each plane: \[N, C, H, W\] to \[N, C, 1, 1\].
    pub fn global_avg_pool2d(&mut self, x: Var) -> Var {
        let shape = self.meta(x).shape;
        let kernel = match shape.axes() {
            [_, _, h, w] => [*h, *w],
            _ => [1, 1],
        };
        self.avg_pool2d(x, Pool2d::tiles(kernel))
    }
}
