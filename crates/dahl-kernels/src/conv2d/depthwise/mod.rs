//! Depthwise convolution: groups of one channel, each with filters of its own.
//!
//! A group has too few products for tiles of filters by channels, so places of
//! the image that lie beside each other fill the vectors. Outputs, and the
//! gradient of the input with a stride of 1, are a [`direct`](super::direct)
//! convolution of each group; with larger strides the gradient of the input is
//! taken by [phases](strided_input), that of the [weight] over sixteen lanes.
//!
//! # The order of a sum
//! Outputs take taps by rows; gradients of inputs take filters, then taps by rows;
//! the gradient of the weight takes samples, rows and columns, column `j` in lane
//! `j % 16`. Nothing else changes it.

mod strided_input;
mod weight;

use super::direct::{Direct, Plan};
use super::direct_sample::{Sample, Sink};
use super::{Conv2d, Rectify};
use crate::element::float_dispatch;
use crate::pool::Pool2d;
use crate::simd::Lane;
use crate::{Call, DType, Piece, Region, Shape, View};
use std::ops::Range;

pub use weight::{conv2d_backward_weight_depthwise, conv2d_backward_weight_depthwise_scratch};

/// Whether a convolution is one of groups of one channel.
pub fn conv2d_is_depthwise(conv: &Conv2d, weight: &Shape) -> bool {
    conv.groups > 1 && weight[1] == 1
}

/// The groups that have some of the filters, and which.
fn groups(filters: Range<usize>, of_each: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let groups = filters.start / of_each..filters.end.div_ceil(of_each);
    groups.map(move |group| {
        let (first, end) = (group * of_each, (group + 1) * of_each);
        (group, first.max(filters.start)..end.min(filters.end))
    })
}

fn forward_shape(conv: &Conv2d, weight: &Shape, out: &Region, filters: usize) -> Direct {
    let whole = Pool2d::tiles([1, 1]);
    Direct::new(conv, &whole, [weight[2], weight[3]], (1, filters), [out.len(2), out.len(3)])
}

/// [`conv2d`](super::conv2d) of groups of one channel.
pub fn conv2d_depthwise(conv: &Conv2d, rectify: Rectify, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), forward(conv, rectify, call));
}

/// The bytes of scratch that [`conv2d_depthwise`] needs for a piece.
pub fn conv2d_depthwise_scratch(
    conv: &Conv2d,
    weight: &Shape,
    piece: &Piece,
    dtype: DType,
) -> usize {
    let most = (weight[0] / conv.groups).min(piece.out.len(1));
    forward_shape(conv, weight, &piece.out, most).scratch(dtype.size())
}

fn forward<T: Lane>(conv: &Conv2d, rectify: Rectify, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let b: Option<View<'_, T>> = (ins.len() > 2).then(|| ins.get(2));
    let mut y = outs.take::<T>();
    let first = [region.range(2).start, region.range(3).start];
    for (group, filters) in groups(region.range(1), w.shape()[0] / conv.groups) {
        let of = forward_shape(conv, &w.shape(), &region, filters.len());
        let weight = |[o, _, k, l]: [usize; 4]| w.at([filters.start + o, 0, k, l]);
        let mut plan = Plan::new(of, weight, scratch);
        let bias = b.as_ref().map_or(&[][..], |b| &b.row([filters.start])[..filters.len()]);
        for sample in region.range(0) {
            plan.deal(isa, &x, sample, group..group + 1, first);
            let place = region.with(0, sample..sample + 1).with(1, filters.clone());
            let sink = Sink::new((bias, rectify), &place, &mut y, None);
            isa.run(Sample { plan: &mut plan, sink });
        }
    }
}

/// The work on one sample of a group, where the stride is 1 and the padding no
/// more than the kernel reaches.
fn backward_shape(conv: &Conv2d, weight: &Shape, out: &Region) -> Option<Direct> {
    let filters = weight[0] / conv.groups;
    Direct::backward(conv, [weight[2], weight[3]], (filters, 1), [out.len(2), out.len(3)])
}

/// [`conv2d_backward_input`](super::conv2d_backward_input) of groups of one
/// channel.
pub fn conv2d_backward_input_depthwise(conv: &Conv2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_input(conv, call));
}

/// The bytes of scratch that [`conv2d_backward_input_depthwise`] needs for a
/// piece; `outputs` is the shape of the convolution's result.
pub fn conv2d_backward_input_depthwise_scratch(
    conv: &Conv2d,
    weight: &Shape,
    outputs: &Shape,
    piece: &Piece,
    dtype: DType,
) -> usize {
    match backward_shape(conv, weight, &piece.out) {
        Some(of) => of.scratch(dtype.size()),
        None => strided_input::scratch(conv, weight, outputs, &piece.out, dtype),
    }
}

fn backward_input<T: Lane>(conv: &Conv2d, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (gy, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gx = outs.take::<T>();
    let Some(of) = backward_shape(conv, &w.shape(), &region) else {
        strided_input::run(isa, conv, (&gy, &w), &mut gx, &region, scratch);
        return;
    };
    let filters = w.shape()[0] / conv.groups;
    let first = [region.range(2).start, region.range(3).start];
    for group in region.range(1) {
        let weight = |[_, o, k, l]: [usize; 4]| w.at([group * filters + o, 0, k, l]);
        let mut plan = Plan::new(of, weight, scratch);
        for sample in region.range(0) {
            plan.deal(isa, &gy, sample, group * filters..(group + 1) * filters, first);
            let place = region.with(0, sample..sample + 1).with(1, group..group + 1);
            let sink = Sink::new((&[], Rectify::No), &place, &mut gx, None);
            isa.run(Sample { plan: &mut plan, sink });
        }
    }
}
