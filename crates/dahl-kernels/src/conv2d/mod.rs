//! Two-dimensional convolution: plain, with direct loops over rows, and in tiles.

mod depthwise;
mod direct;
mod direct_sample;
mod few;
mod layout;
mod pixels;
mod pooled;
mod pooled_input;
mod pooled_plain;
mod pooled_weight;
mod winograd;

pub use depthwise::{
    conv2d_backward_input_depthwise, conv2d_backward_input_depthwise_scratch,
    conv2d_backward_weight_depthwise, conv2d_backward_weight_depthwise_scratch, conv2d_depthwise,
    conv2d_depthwise_scratch, conv2d_is_depthwise,
};
pub use few::{
    conv2d_backward_input_direct, conv2d_backward_input_direct_scratch,
    conv2d_backward_input_is_direct, conv2d_direct, conv2d_direct_scratch,
};
pub use pixels::{
    Direction, conv2d_backward_weight_gemm, conv2d_backward_weight_gemm_scratch, conv2d_gemm,
    conv2d_gemm_scratch, conv2d_pack_weight, conv2d_packed_shape,
};
pub use pooled::{conv2d_max_pool2d, conv2d_max_pool2d_scratch};
pub use pooled_input::{
    conv2d_max_pool2d_backward_input, conv2d_max_pool2d_backward_input_scratch,
};
pub use pooled_plain::{
    conv2d_max_pool2d_backward_input_plain, conv2d_max_pool2d_backward_weight_plain,
    conv2d_max_pool2d_plain,
};
pub use pooled_weight::{
    conv2d_max_pool2d_backward_weight, conv2d_max_pool2d_backward_weight_scratch,
};
pub use winograd::{
    Form, conv2d_winograd, conv2d_winograd_backward_weight,
    conv2d_winograd_backward_weight_scratch, conv2d_winograd_scratch, conv2d_winograd_weight,
    conv2d_winograd_weight_shape,
};

use crate::element::float_dispatch;
use crate::gemm::MAX_COLUMNS;
use crate::math;
use crate::{Call, Float, View};

/// Where weights are packed, pieces of the result's channels start at a multiple
/// of this.
pub const ALIGN: usize = MAX_COLUMNS;

/// The parameters of a convolution. Input [N, C, H, W], weight
/// [O, C/groups, kh, kw], output [N, O, H', W'].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv2d {
    /// The step between windows, rows then columns.
    pub stride: [usize; 2],
    /// Zeros around the input, rows then columns.
    pub padding: [usize; 2],
    /// The distance between taps, rows then columns.
    pub dilation: [usize; 2],
    /// Channels are convolved in this many separate groups.
    pub groups: usize,
}

impl Default for Conv2d {
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

impl Conv2d {
    /// Stride, padding and dilation of the rows (0) or columns (1).
    pub fn axis(&self, a: usize) -> (usize, usize, usize) {
        (self.stride[a], self.padding[a], self.dilation[a])
    }

    /// The input coordinate of tap `k` of output `o`, if it is not padding.
    #[inline(always)]
    fn tap(&self, a: usize, o: usize, k: usize, len: usize) -> Option<usize> {
        let at = (o * self.stride[a] + k * self.dilation[a]).wrapping_sub(self.padding[a]);
        (at < len).then_some(at)
    }

    /// The outputs in `from..to` whose tap `k` is not padding.
    #[inline(always)]
    fn valid(&self, a: usize, k: usize, len: usize, from: usize, to: usize) -> (usize, usize) {
        let (stride, padding, dilation) = self.axis(a);
        let lo = padding.saturating_sub(k * dilation).div_ceil(stride);
        let hi = match (len + padding).checked_sub(k * dilation + 1) {
            Some(last) => last / stride + 1,
            None => 0,
        };
        let lo = lo.max(from);
        (lo, hi.min(to).max(lo))
    }
}

/// y\[n,o,i,j\] = b\[o\] + Σ_{c,k,l} w\[o,c,k,l\] x\[n,c,i s+k d−p, j s+l d−p\];
/// then max(0, y) where `relu`. Inputs x, w and, where there are three, b.
///
/// The terms of an element are added in the order of (c, k, l), then the bias.
pub fn conv2d(conv: &Conv2d, relu: Rectify, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), forward(conv, relu, call));
}

/// What is done to the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rectify {
    /// Nothing.
    No,
    /// Negative values become 0.
    Relu,
}

fn forward<T: Float>(conv: &Conv2d, relu: Rectify, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let b: Option<View<'_, T>> = (ins.len() > 2).then(|| ins.get(2));
    let mut y = outs.take::<T>();
    let [height, width] = [x.shape()[2], x.shape()[3]];
    let [kh, kw] = [w.shape()[2], w.shape()[3]];
    let per_group = w.shape()[1];
    let out_per_group = w.shape()[0] / conv.groups;
    let (j0, j1) = (region.range(3).start, region.range(3).end);
    if region.is_empty() {
        return;
    }
    for n in region.range(0) {
        for o in region.range(1) {
            let c0 = o / out_per_group * per_group;
            let bias = b.as_ref().map(|b| b.at([o]));
            for i in region.range(2) {
                let row = &mut y.row_mut([n, o, i, j0])[..j1 - j0];
                row.fill(T::ZERO);
                for c in 0..per_group {
                    for k in 0..kh {
                        let Some(at) = conv.tap(0, i, k, height) else { continue };
                        for l in 0..kw {
                            let (from, to) = conv.valid(1, l, width, j0, j1);
                            if from == to {
                                continue;
                            }
                            let weight = w.at([o, c, k, l]);
                            let start =
                                from * conv.stride[1] + l * conv.dilation[1] - conv.padding[1];
                            let taps = x.row([n, c0 + c, at, start]);
                            let sums = &mut row[from - j0..to - j0];
                            if conv.stride[1] == 1 {
                                for (sum, &tap) in sums.iter_mut().zip(taps) {
                                    *sum += weight * tap;
                                }
                            } else {
                                for (sum, &tap) in
                                    sums.iter_mut().zip(taps.iter().step_by(conv.stride[1]))
                                {
                                    *sum += weight * tap;
                                }
                            }
                        }
                    }
                }
                if let Some(bias) = bias {
                    row.iter_mut().for_each(|sum| *sum += bias);
                }
                if relu == Rectify::Relu {
                    row.iter_mut().for_each(|y| *y = crate::elementwise::relu(*y));
                }
            }
        }
    }
}

/// g\[n,c,y,x\] = Σ_{o,k,l} w\[o,c,k,l\] g'\[n,o,i,j\] over the outputs (i, j)
/// whose tap (k, l) is (y, x). Inputs g', w.
pub fn conv2d_backward_input(conv: &Conv2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_input(conv, call));
}

fn backward_input<T: Float>(conv: &Conv2d, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (gy, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gx = outs.take::<T>();
    let [out_h, out_w] = [gy.shape()[2], gy.shape()[3]];
    let [kh, kw] = [w.shape()[2], w.shape()[3]];
    let per_group = w.shape()[1];
    let out_per_group = w.shape()[0] / conv.groups;
    let (x0, x1) = (region.range(3).start, region.range(3).end);
    if region.is_empty() {
        return;
    }
    for n in region.range(0) {
        for c in region.range(1) {
            let (group, c_in) = (c / per_group, c % per_group);
            for y in region.range(2) {
                let row = &mut gx.row_mut([n, c, y, x0])[..x1 - x0];
                row.fill(T::ZERO);
                for o in group * out_per_group..(group + 1) * out_per_group {
                    for k in 0..kh {
                        let Some(above) = (y + conv.padding[0]).checked_sub(k * conv.dilation[0])
                        else {
                            continue;
                        };
                        let i = above / conv.stride[0];
                        if above % conv.stride[0] != 0 || i >= out_h {
                            continue;
                        }
                        for l in 0..kw {
                            // Output j touches x = j s + l d − p.
                            let shift = l * conv.dilation[1];
                            let from = (x0 + conv.padding[1])
                                .saturating_sub(shift)
                                .div_ceil(conv.stride[1]);
                            let to = (x1 + conv.padding[1])
                                .saturating_sub(shift)
                                .div_ceil(conv.stride[1])
                                .min(out_w);
                            if from >= to {
                                continue;
                            }
                            let weight = w.at([o, c_in, k, l]);
                            let grads = &gy.row([n, o, i, from])[..to - from];
                            let first = from * conv.stride[1] + shift - conv.padding[1] - x0;
                            if conv.stride[1] == 1 {
                                for (sum, &g) in row[first..].iter_mut().zip(grads) {
                                    *sum += weight * g;
                                }
                            } else {
                                for (sum, &g) in
                                    row[first..].iter_mut().step_by(conv.stride[1]).zip(grads)
                                {
                                    *sum += weight * g;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// g\[o,c,k,l\] = Σ_{n,i,j} g'\[n,o,i,j\] x\[n,c,i s+k d−p, j s+l d−p\], over
/// the samples of the piece's sum. Inputs x, g'.
///
/// A row of the output is one dot product; rows are added in order.
pub fn conv2d_backward_weight(conv: &Conv2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_weight(conv, call));
}

fn backward_weight<T: Float>(conv: &Conv2d, call: &mut Call<'_>) {
    let (region, samples) = (call.piece.out, call.piece.sum.clone());
    let (ins, mut outs, _) = call.split();
    let (x, gy) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gw = outs.take::<T>();
    let [height, width] = [x.shape()[2], x.shape()[3]];
    let [out_h, out_w] = [gy.shape()[2], gy.shape()[3]];
    let out_per_group = gy.shape()[1] / conv.groups;
    let per_group = gw.shape()[1];
    for o in region.range(0) {
        let c0 = o / out_per_group * per_group;
        for c in region.range(1) {
            for k in region.range(2) {
                for l in region.range(3) {
                    let (from, to) = conv.valid(1, l, width, 0, out_w);
                    let mut sum = T::ZERO;
                    if from < to {
                        let start = from * conv.stride[1] + l * conv.dilation[1] - conv.padding[1];
                        for n in samples.clone() {
                            for i in 0..out_h {
                                let Some(at) = conv.tap(0, i, k, height) else { continue };
                                let grads = &gy.row([n, o, i, from])[..to - from];
                                let taps = x.row([n, c0 + c, at, start]);
                                sum += if conv.stride[1] == 1 {
                                    math::dot(grads, &taps[..to - from])
                                } else {
                                    math::sum(to - from, &|j| grads[j] * taps[j * conv.stride[1]])
                                };
                            }
                        }
                    }
                    gw.set([o, c, k, l], sum);
                }
            }
        }
    }
}
