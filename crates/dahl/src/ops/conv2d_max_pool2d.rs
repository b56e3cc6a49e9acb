//! Convolution, relu and the largest of each window as one op.
//!
//! The convolution's result is never stored: what is kept is the largest value of
//! each window and which place it was, a byte. The weight's gradient is then
//! taken at the winners alone, a product for each of them instead of one for each
//! place of the result.

use super::conv2d::{Conv2d, Conv2dForward, Rectify, attributes};
use super::pool::{self, Pool2d};
use super::{Backprop, Cut, Meta, Metas, Mismatch, Op, Recorder, Target, Var};
use crate::units::Flops;
use dahl_kernels::conv2d as kernels;
use dahl_kernels::{Call, DType, Piece, Region, Shape};

const VARIANTS: [&str; 2] = ["plain", "direct"];
const PLAIN: usize = 0;
const DIRECT: usize = 1;

/// The most filters that are fused: beyond, a product in tiles of the whole
/// result is faster.
const FILTERS: usize = 32;

/// y = the largest value of each window of the convolution of x with w (and b),
/// then max(0, y) where it is fused with a relu; of equal values the first. The
/// second output is which place of the window it was, numbered by rows.
///
/// x is \[N, C, H, W\], w \[O, C, kh, kw\], b \[O\], y \[N, O, H'', W''\].
#[derive(Clone, Copy, Debug)]
pub struct Conv2dMaxPool2d {
    /// Stride, padding and dilation; one group.
    pub conv: Conv2d,
    /// What is done to the sums.
    pub rectify: Rectify,
    /// The windows, without padding.
    pub pool: Pool2d,
}

impl Conv2dMaxPool2d {
    /// The op, where it can and should be fused.
    pub(super) fn fused(forward: &Conv2dForward, pool: &Pool2d, weight: &Shape) -> Option<Self> {
        let places = pool.kernel[0].checked_mul(pool.kernel[1])?;
        let fits = forward.conv.groups == 1
            && forward.conv.dilation == [1, 1]
            && pool.padding == [0, 0]
            && places <= usize::from(u8::MAX)
            && weight[0] <= FILTERS;
        let (conv, rectify) = (forward.conv, forward.rectify);
        fits.then_some(Self { conv, rectify, pool: *pool })
    }

    fn forward(&self) -> Conv2dForward {
        Conv2dForward { conv: self.conv, rectify: self.rectify }
    }
}

fn pool_attributes(pool: &Pool2d) -> Vec<(&'static str, String)> {
    let mut attributes = vec![("window", format!("{:?}", pool.kernel))];
    if pool.stride != pool.kernel {
        attributes.push(("step", format!("{:?}", pool.stride)));
    }
    attributes
}

impl Op for Conv2dMaxPool2d {
    fn name(&self) -> &'static str {
        match self.rectify {
            Rectify::No => "conv2d_max_pool2d",
            Rectify::Relu => "conv2d_relu_max_pool2d",
        }
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.conv).into_iter().chain(pool_attributes(&self.pool)).collect()
    }

    fn outputs(&self) -> usize {
        2
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let y = pool::infer(&self.pool, &self.forward().infer(inputs)?)?;
        Ok(vec![y, Meta { dtype: DType::U8, ..y }])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let places = |a: usize| {
            let windows = piece.out.range(2 + a);
            let (step, last) = (self.pool.stride[a], self.pool.kernel[a] - 1);
            match windows.is_empty() {
                true => 0..0,
                false => windows.start * step..(windows.end - 1) * step + last + 1,
            }
        };
        let out = piece.out.with(2, places(0)).with(3, places(1));
        let mut regions = self.forward().regions(metas, &Piece { out, ..piece.clone() });
        regions.pop();
        regions.extend([piece.out, piece.out]);
        regions
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let places = self.pool.kernel[0] * self.pool.kernel[1];
        let w = metas.inputs[1].shape;
        Flops(2 * (piece.out.elements() * places * w[1] * w[2] * w[3]) as u64)
    }

    fn scratch(&self, variant: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let (x, w) = (metas.inputs[0], metas.inputs[1].shape);
        match variant {
            PLAIN => 0,
            _ => kernels::conv2d_max_pool2d_scratch(&self.conv, &self.pool, &w, piece, x.dtype),
        }
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let (x, w) = (at.inputs[0], at.inputs[1]);
        let winners = at.outputs[1];
        let grad = match self.rectify {
            Rectify::No => at.grad(),
            Rectify::Relu => g.relu_backward(at.outputs[0], at.grad()),
        };
        let input = at.when(0, || {
            let input = g.meta(x).shape;
            let op = Conv2dMaxPool2dBackwardInput { conv: self.conv, pool: self.pool, input };
            g.one(op, &[grad, w, winners])
        });
        let weight = at.when(1, || {
            let weight = g.meta(w).shape;
            let op = Conv2dMaxPool2dBackwardWeight { conv: self.conv, pool: self.pool, weight };
            g.one(op, &[x, grad, winners])
        });
        let bias = at.when(2, || g.sum_channels(grad));
        Some([input, weight, bias].into_iter().take(at.inputs.len()).collect())
    }

    fn variants(&self) -> &'static [&'static str] {
        &VARIANTS
    }

    fn choose(&self, _: Metas<'_>, _: &Target) -> usize {
        DIRECT
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        match variant {
            PLAIN => kernels::conv2d_max_pool2d_plain(&self.conv, &self.pool, self.rectify, call),
            _ => kernels::conv2d_max_pool2d(&self.conv, &self.pool, self.rectify, call),
        }
    }
}

/// The gradient of the input, from the winners: g\[n,c,y,x\] = Σ w\[o,c,k,l\]
/// g'\[n,o,i,j\] over the windows (i, j) whose winner sees (y, x) through tap
/// (k, l). Inputs g', w and the winners.
#[derive(Clone, Copy, Debug)]
pub struct Conv2dMaxPool2dBackwardInput {
    /// The convolution.
    pub conv: Conv2d,
    /// The windows.
    pub pool: Pool2d,
    /// The shape of the input.
    pub input: Shape,
}

impl Op for Conv2dMaxPool2dBackwardInput {
    fn name(&self) -> &'static str {
        "conv2d_max_pool2d_backward_input"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.conv).into_iter().chain(pool_attributes(&self.pool)).collect()
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: self.input, ..inputs[0] }])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        vec![Cut { axis: 0, align: 1 }, Cut { axis: 1, align: 1 }]
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let windows = Region::full(&metas.inputs[0].shape).with(0, piece.out.range(0));
        let w = Region::full(&metas.inputs[1].shape).with(1, piece.out.range(1));
        vec![windows, w, windows, piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let (windows, w) = (metas.inputs[0].shape, metas.inputs[1].shape);
        let windows = piece.out.len(0) * windows[1] * windows[2] * windows[3];
        Flops(2 * (windows * piece.out.len(1) * w[2] * w[3]) as u64)
    }

    fn scratch(&self, variant: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let (grad, w) = (metas.inputs[0], metas.inputs[1].shape);
        let shapes = [&self.input, &grad.shape, &w];
        match variant {
            PLAIN => 0,
            _ => kernels::conv2d_max_pool2d_backward_input_scratch(
                &self.conv, &self.pool, shapes, piece, grad.dtype,
            ),
        }
    }

    fn variants(&self) -> &'static [&'static str] {
        &VARIANTS
    }

    fn choose(&self, _: Metas<'_>, _: &Target) -> usize {
        DIRECT
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        let Self { conv, pool, .. } = self;
        match variant {
            PLAIN => kernels::conv2d_max_pool2d_backward_input_plain(conv, pool, call),
            _ => kernels::conv2d_max_pool2d_backward_input(conv, pool, call),
        }
    }
}

/// The gradient of the weight, at the winners: g\[o,c,k,l\] = Σ g'\[n,o,i,j\]
/// x\[n, c, the winner of (i, j) and tap (k, l)\]. Inputs x, g' and the winners;
/// summed over samples.
#[derive(Clone, Copy, Debug)]
pub struct Conv2dMaxPool2dBackwardWeight {
    /// The convolution.
    pub conv: Conv2d,
    /// The windows.
    pub pool: Pool2d,
    /// The shape of the weight.
    pub weight: Shape,
}

impl Op for Conv2dMaxPool2dBackwardWeight {
    fn name(&self) -> &'static str {
        "conv2d_max_pool2d_backward_weight"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.conv).into_iter().chain(pool_attributes(&self.pool)).collect()
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: self.weight, ..inputs[0] }])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        vec![Cut { axis: 0, align: 1 }]
    }

    fn summed(&self, metas: Metas<'_>) -> Option<usize> {
        Some(metas.inputs[0].shape[0])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let windows = Region::full(&metas.inputs[1].shape)
            .with(0, piece.sum.clone())
            .with(1, piece.out.range(0));
        let x = Region::full(&metas.inputs[0].shape).with(0, piece.sum.clone());
        vec![x, windows, windows, piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let windows = metas.inputs[1].shape;
        Flops(2 * (piece.out.elements() * piece.sum.len() * windows[2] * windows[3]) as u64)
    }

    fn scratch(&self, variant: usize, metas: Metas<'_>, _: &Piece) -> usize {
        let (x, grad) = (metas.inputs[0], metas.inputs[1].shape);
        let Self { conv, pool, weight } = self;
        match variant {
            PLAIN => 0,
            _ => kernels::conv2d_max_pool2d_backward_weight_scratch(
                conv, pool, &x.shape, &grad, weight, x.dtype,
            ),
        }
    }

    fn variants(&self) -> &'static [&'static str] {
        &VARIANTS
    }

    fn choose(&self, _: Metas<'_>, _: &Target) -> usize {
        DIRECT
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        let Self { conv, pool, .. } = self;
        match variant {
            PLAIN => kernels::conv2d_max_pool2d_backward_weight_plain(conv, pool, call),
            _ => kernels::conv2d_max_pool2d_backward_weight(conv, pool, call),
        }
    }
}
