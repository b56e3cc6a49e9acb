//! Convolution of few filters or channels: without copying patches.

use super::direct::{Direct, Plan};
use super::direct_sample::{Sample, Sink};
use super::pooled::{conv2d_max_pool2d_scratch, forward};
use super::{Conv2d, Rectify};
use crate::element::float_dispatch;
use crate::pool::Pool2d;
use crate::simd::Lane;
use crate::{Call, DType, Piece, Region, Shape};

/// [`conv2d`](super::conv2d) without copying patches; of one group.
pub fn conv2d_direct(conv: &Conv2d, rectify: Rectify, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), forward(conv, None, rectify, call));
}

/// The bytes of scratch that [`conv2d_direct`] needs for a piece.
pub fn conv2d_direct_scratch(conv: &Conv2d, weight: &Shape, piece: &Piece, dtype: DType) -> usize {
    conv2d_max_pool2d_scratch(conv, &Pool2d::tiles([1, 1]), weight, piece, dtype)
}

/// The work on one sample, where the convolution has a stride of 1 and no more
/// padding than the kernel reaches.
fn direct_backward(conv: &Conv2d, weight: &Shape, out: &Region) -> Option<Direct> {
    let channels = (weight[0], out.len(1));
    Direct::backward(conv, [weight[2], weight[3]], channels, [out.len(2), out.len(3)])
}

/// Whether [`conv2d_backward_input_direct`] can be used.
pub fn conv2d_backward_input_is_direct(conv: &Conv2d, weight: &Shape) -> bool {
    let any = Region::new(&[0..1, 0..1, 0..1, 0..1]);
    conv.groups == 1 && direct_backward(conv, weight, &any).is_some()
}

/// [`conv2d_backward_input`](super::conv2d_backward_input) without copying
/// patches.
///
/// # Panics
/// If [`conv2d_backward_input_is_direct`] does not say so.
pub fn conv2d_backward_input_direct(conv: &Conv2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_input(conv, call));
}

/// The bytes of scratch that [`conv2d_backward_input_direct`] needs for a piece.
pub fn conv2d_backward_input_direct_scratch(
    conv: &Conv2d,
    weight: &Shape,
    piece: &Piece,
    dtype: DType,
) -> usize {
    direct_backward(conv, weight, &piece.out).map_or(0, |of| of.scratch(dtype.size()))
}

fn backward_input<T: Lane>(conv: &Conv2d, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (gy, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gx = outs.take::<T>();
    let of = direct_backward(conv, &w.shape(), &region).expect("stride 1, little padding");
    let filter = region.range(1).start;
    let mut plan = Plan::new(of, |[c, o, k, l]| w.at([o, filter + c, k, l]), scratch);
    let first = [region.range(2).start, region.range(3).start];
    for sample in region.range(0) {
        plan.deal(isa, &gy, sample, 0..w.shape()[0], first);
        let place = region.with(0, sample..sample + 1);
        let sink = Sink::new((&[], Rectify::No), &place, &mut gx, None);
        isa.run(Sample { plan: &mut plan, sink });
    }
}
