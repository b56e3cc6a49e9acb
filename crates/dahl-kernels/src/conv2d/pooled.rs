//! Convolution, then the largest of each window, in one pass; and the gradient of
//! its weight, which only the winners of windows have a part in.
#![expect(unsafe_code, reason = "planes and images are read through pointers")]

use super::direct::{Direct, Plan, Sample, Sink, split};
use super::{Conv2d, Rectify};
use crate::element::float_dispatch;
use crate::gemm::LINE;
use crate::pool::Pool2d;
use crate::simd::{Lane, Simd, Vector, Work};
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
        plan.deal(&x, sample, 0..w.shape()[1], first);
        let place = region.with(0, sample..sample + 1);
        let sink = Sink::new((bias, relu), &place, &mut y, winner.as_mut());
        isa.run(Sample { plan: &plan, sink });
    }
}

/// g\[n,o,i,j\] = Σ g' over the windows that place (i, j) of the convolution's
/// result has won: what [`conv2d_max_pool2d`] passes back to the convolution.
/// Inputs g' and the winners.
pub fn conv2d_max_unpool2d(pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), unpool(pool, call));
}

fn unpool<T: Lane>(pool: &Pool2d, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (grad, winner) = (ins.get::<T>(0), ins.get::<u8>(1));
    let mut to = outs.take::<T>();
    if region.is_empty() {
        return;
    }
    let [rows, columns] = [grad.shape()[2], grad.shape()[3]];
    let window = pool.kernel[1];
    let mut places = [(0, 0); 256];
    for (number, place) in places.iter_mut().enumerate() {
        *place = (number / window, number % window);
    }
    for n in region.range(0) {
        for c in region.range(1) {
            for i in region.range(2) {
                to.row_mut([n, c, i, 0]).fill(T::ZERO);
            }
            if columns == 0 {
                continue;
            }
            for i in 0..rows {
                let grads = &grad.row([n, c, i, 0])[..columns];
                let winners = &winner.row([n, c, i, 0])[..columns];
                for (a, line) in (0..pool.kernel[0]).map(|a| (a, i * pool.stride[0] + a)) {
                    let line = to.row_mut([n, c, line, 0]);
                    for (j, (&g, &w)) in grads.iter().zip(winners).enumerate() {
                        let (row, column) = places[usize::from(w)];
                        if row == a {
                            line[j * pool.stride[1] + column] += g;
                        }
                    }
                }
            }
        }
    }
}

/// g\[o,c,k,l\] = Σ g'\[n,o,i,j\] x\[n, c, (y, x) of the winner of (i, j) and tap
/// (k, l)\], over the samples of the piece's sum. Inputs x, g' and the winners.
///
/// The windows of a sample are added in order, gradients of 0 left out; then the
/// samples.
pub fn conv2d_max_pool2d_backward_weight(conv: &Conv2d, pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_weight(conv, pool, call));
}

/// The bytes of scratch that [`conv2d_max_pool2d_backward_weight`] needs.
pub fn conv2d_max_pool2d_backward_weight_scratch(
    conv: &Conv2d,
    image: &Shape,
    grad: &Shape,
    weight: &Shape,
    dtype: DType,
) -> usize {
    let parts = Winners::new(conv, image, grad, weight);
    let elements = parts.image() + parts.windows + parts.sums();
    elements * dtype.size() + parts.windows * size_of::<u32>() + 4 * LINE
}

/// The lengths of the work on one sample and filter.
#[derive(Clone, Copy)]
struct Winners {
    channels: usize,
    kernel: [usize; 2],
    /// Rows and columns of the padded image.
    padded: [usize; 2],
    windows: usize,
}

/// What a vector may read or write behind the last element.
const BEHIND: usize = 16;

impl Winners {
    fn new(conv: &Conv2d, image: &Shape, grad: &Shape, weight: &Shape) -> Self {
        Self {
            channels: weight[1],
            kernel: [weight[2], weight[3]],
            padded: [0, 1].map(|a| image[2 + a] + 2 * conv.padding[a]),
            windows: grad[2] * grad[3],
        }
    }

    fn image(&self) -> usize {
        self.channels * self.padded[0] * self.padded[1] + BEHIND
    }

    /// A row of the kernel, in whole vectors of any instruction set.
    fn sums(&self) -> usize {
        self.channels * self.kernel[0] * self.kernel[1].next_multiple_of(BEHIND)
    }
}

fn backward_weight<T: Lane>(conv: &Conv2d, pool: &Pool2d, call: &mut Call<'_>) {
    let (region, samples, isa) = (call.piece.out, call.piece.sum.clone(), call.isa);
    let (ins, mut outs, scratch) = call.split();
    let (x, grad, winner) = (ins.get::<T>(0), ins.get::<T>(1), ins.get::<u8>(2));
    let mut gw = outs.take::<T>();
    if region.is_empty() {
        return;
    }
    let of = Winners::new(conv, &x.shape(), &grad.shape(), &gw.shape());
    let (image, scratch) = split::<T>(scratch, of.image());
    let (grads, scratch) = split::<T>(scratch, of.windows);
    let (sums, scratch) = split::<T>(scratch, of.sums());
    let (offsets, _) = split::<u32>(scratch, of.windows);
    let taps = of.kernel[1];
    let pitch = taps.next_multiple_of(BEHIND);
    image.fill(T::ZERO);
    if samples.is_empty() {
        gw.runs_mut(&region, |_, run| run.fill(T::ZERO));
    }
    for n in samples.clone() {
        pad(conv, &x, n, &of, image);
        for o in region.range(0) {
            let count = won(conv, pool, (&grad, &winner), [n, o], &of, grads, offsets);
            isa.run(Sum { of, grads: &grads[..count], offsets: &offsets[..count], image, sums });
            for c in 0..of.channels {
                for k in 0..of.kernel[0] {
                    let row = &mut gw.row_mut([o, c, k, 0])[..taps];
                    let sum = &sums[(c * of.kernel[0] + k) * pitch..][..taps];
                    for (to, &sum) in row.iter_mut().zip(sum) {
                        *to = if n == samples.start { sum } else { *to + sum };
                    }
                }
            }
        }
    }
}

/// Copies a sample into the middle of the padded image.
fn pad<T: Lane>(conv: &Conv2d, x: &View<'_, T>, n: usize, of: &Winners, image: &mut [T]) {
    let [height, width] = of.padded;
    let shape = x.shape();
    for c in 0..of.channels {
        for y in 0..shape[2] {
            let at = (c * height + y + conv.padding[0]) * width + conv.padding[1];
            image[at..][..shape[3]].copy_from_slice(&x.row([n, c, y, 0])[..shape[3]]);
        }
    }
}

/// Lists the windows with a gradient: it, and where their winner's patch begins.
fn won<T: Lane>(
    conv: &Conv2d,
    pool: &Pool2d,
    (grad, winner): (&View<'_, T>, &View<'_, u8>),
    [n, o]: [usize; 2],
    of: &Winners,
    grads: &mut [T],
    offsets: &mut [u32],
) -> usize {
    let shape = grad.shape();
    let (window, width) = (pool.kernel[1], of.padded[1]);
    let at = |a: usize, b: usize| (a * conv.stride[0] * width + b * conv.stride[1]) as u32;
    let mut places = [0; 256];
    for (number, place) in places[..pool.kernel[0] * window].iter_mut().enumerate() {
        *place = at(number / window, number % window);
    }
    let step = at(0, pool.stride[1]);
    let mut count = 0;
    for i in 0..shape[2] {
        let (row, winners) = (grad.row([n, o, i, 0]), winner.row([n, o, i, 0]));
        let mut first = at(i * pool.stride[0], 0);
        for (&g, &w) in row.iter().zip(winners) {
            // Written always, kept if there is one: no jump.
            (grads[count], offsets[count]) = (g, first + places[usize::from(w)]);
            count += usize::from(g != T::ZERO);
            first += step;
        }
    }
    count
}

/// The sums of one filter over the windows of a sample.
struct Sum<'a, T> {
    of: Winners,
    grads: &'a [T],
    offsets: &'a [u32],
    image: &'a [T],
    sums: &'a mut [T],
}

impl<T: Lane> Work for Sum<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let lanes = T::Vector::<S>::LANES;
        let Winners { channels, kernel, padded, .. } = self.of;
        let patch = (kernel[0].saturating_sub(1)) * padded[1] + kernel[1];
        let last = self.offsets.iter().max().map_or(0, |&m| m as usize);
        let reach = (channels - 1) * padded[0] * padded[1] + last + patch;
        assert!(lanes <= BEHIND && reach + BEHIND <= self.image.len(), "patches inside");
        let pitch = kernel[1].next_multiple_of(BEHIND);
        let vectors = kernel[1].div_ceil(lanes);
        // One accumulator a channel, row of the kernel and vector of its columns.
        let all = channels * kernel[0] * vectors;
        let place = |i: usize| {
            let (row, v) = (i / vectors, i % vectors);
            let (c, k) = (row / kernel[0], row % kernel[0]);
            ((c * padded[0] + k) * padded[1] + v * lanes, row * pitch + v * lanes)
        };
        let mut work = self;
        let mut i = 0;
        while i < all {
            let left = all - i;
            match left {
                1 => work.some::<S, 1>(i, place),
                2 => work.some::<S, 2>(i, place),
                3 => work.some::<S, 3>(i, place),
                4 => work.some::<S, 4>(i, place),
                5 => work.some::<S, 5>(i, place),
                6 | 7 => work.some::<S, 6>(i, place),
                8 => work.some::<S, 8>(i, place),
                9 => work.some::<S, 9>(i, place),
                _ => work.some::<S, 10>(i, place),
            }
            i += match left {
                6 | 7 => 6,
                _ => left.min(10),
            };
        }
    }
}

impl<T: Lane> Sum<'_, T> {
    #[inline(always)]
    fn some<S: Simd, const N: usize>(
        &mut self,
        first: usize,
        place: impl Fn(usize) -> (usize, usize),
    ) {
        let from: [usize; N] = std::array::from_fn(|i| place(first + i).0);
        let mut sums = [T::Vector::<S>::zero(); N];
        for (&g, &offset) in self.grads.iter().zip(self.offsets) {
            let g = T::Vector::<S>::splat(g);
            // SAFETY: a patch begins inside of the image, which is followed by
            // a vector of room, as `run` has asserted.
            unsafe {
                let patch = self.image.as_ptr().add(offset as usize);
                for (sum, &from) in sums.iter_mut().zip(&from) {
                    *sum = g.mul_add(T::Vector::<S>::load(patch.add(from)), *sum);
                }
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            let to = &mut self.sums[place(first + i).1..][..T::Vector::<S>::LANES];
            // SAFETY: a slice of that length.
            unsafe { sum.store(to.as_mut_ptr()) };
        }
    }
}
