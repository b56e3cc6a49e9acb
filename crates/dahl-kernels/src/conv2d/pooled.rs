//! Convolution, then the largest of each window, in one pass.

use super::direct::{Direct, Plan};
use super::direct_sample::{Sample, Sink};
use super::{Conv2d, Rectify};
use crate::element::float_dispatch;
use crate::pool::Pool2d;
use crate::simd::Lane;
use crate::{Call, DType, Piece, Region, Shape, View};

/// y = the largest value of each window of the convolution's result, and which
/// place of the window it is, numbered by rows; of equal values the first. Then
/// max(0, y) where `relu`. Inputs x, w and, where there are three, b; outputs y
/// and the winners.
pub fn conv2d_max_pool2d(conv: &Conv2d, pool: &Pool2d, relu: Rectify, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), forward(conv, Some(pool), relu, call));
}

/// The bytes of scratch that [`conv2d_max_pool2d`] needs for a piece.
pub fn conv2d_max_pool2d_scratch(
    conv: &Conv2d,
    pool: &Pool2d,
    weight: &Shape,
    piece: &Piece,
    dtype: DType,
) -> usize {
    shape(conv, pool, weight, &piece.out).scratch(dtype.size())
}

fn shape(conv: &Conv2d, pool: &Pool2d, weight: &Shape, out: &Region) -> Direct {
    let channels = (weight[1], out.len(1));
    Direct::new(conv, pool, [weight[2], weight[3]], channels, [out.len(2), out.len(3)])
}

/// The convolution itself, as if each place were a window.
pub(super) fn forward<T: Lane>(
    conv: &Conv2d,
    pool: Option<&Pool2d>,
    relu: Rectify,
    call: &mut Call<'_>,
) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let b: Option<View<'_, T>> = (ins.len() > 2).then(|| ins.get(2));
    let mut y = outs.take::<T>();
    let mut winner = pool.map(|_| outs.take::<u8>());
    let whole = Pool2d::tiles([1, 1]);
    let of = shape(conv, pool.unwrap_or(&whole), &w.shape(), &region);
    let filter = region.range(1).start;
    let mut plan = Plan::new(of, |[o, c, k, l]| w.at([filter + o, c, k, l]), scratch);
    let first = [region.range(2).start, region.range(3).start];
    let bias = b.as_ref().map_or(&[][..], |b| &b.row([filter])[..region.len(1)]);
    for sample in region.range(0) {
        plan.deal(isa, &x, sample, 0..w.shape()[1], first);
        let place = region.with(0, sample..sample + 1);
        let sink = Sink::new((bias, relu), &place, &mut y, winner.as_mut());
        isa.run(Sample { plan: &mut plan, sink });
    }
}
