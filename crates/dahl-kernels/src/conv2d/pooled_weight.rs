//! The gradient of the weight of a convolution that is followed by a maximum over
//! windows: only the winners of windows have a part in it.
//!
//! # How it is fast
//! A band of a sample is copied once, padded, with the channels of a pixel beside
//! each other: the patch under a winner is then a few vectors, one row of the
//! kernel after the other. Where a winner is follows from its byte by a table;
//! no list of winners is made. The sums of some filters stay in registers while
//! the windows of a band go by.
//!
//! # The order of a sum
//! The windows of a sample are added in order, each rounded once with the sum
//! (where the instruction set can); then the samples. Bands, layout and how many
//! filters go together do not change it.
#![expect(unsafe_code, reason = "images, gradients and winners are read through pointers")]

use super::Conv2d;
use super::direct::split;
use crate::element::float_dispatch;
use crate::gemm::LINE;
use crate::pool::Pool2d;
use crate::simd::{Lane, MAX_LANES, Simd, Vector, Work};
use crate::{Call, DType, Region, Shape, View, ViewMut};
use std::ops::Range;

/// g\[o,c,k,l\] = Σ g'\[n,o,i,j\] x\[n, c, (y, x) of the winner of (i, j) and tap
/// (k, l)\], over the samples of the piece's sum. Inputs x, g' and the winners.
pub fn conv2d_max_pool2d_backward_weight(conv: &Conv2d, pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_weight(conv, pool, call));
}

/// The bytes of scratch that [`conv2d_max_pool2d_backward_weight`] needs.
pub fn conv2d_max_pool2d_backward_weight_scratch(
    conv: &Conv2d,
    pool: &Pool2d,
    image: &Shape,
    grad: &Shape,
    weight: &Shape,
    dtype: DType,
) -> usize {
    let of = Patches::new(conv, pool, image, grad, weight);
    (of.band() + 2 * weight[0] * of.sums()) * dtype.size() + 4 * LINE
}

/// What a vector may read or write behind the last element.
pub(super) const BEHIND: usize = MAX_LANES;
/// The elements of a band: so that it stays in the second cache.
const BAND: usize = 24 * 1024;
/// Accumulators that fit in registers.
const MOST: usize = 12;

/// How the bands of a sample lie, and the patches in them.
#[derive(Clone, Copy)]
pub(super) struct Patches {
    pub(super) channels: usize,
    pub(super) kernel: [usize; 2],
    pub(super) padding: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) window: [usize; 2],
    /// Rows and columns of pixels between windows.
    pub(super) step: [usize; 2],
    /// Rows and columns of windows.
    pub(super) windows: [usize; 2],
    /// Rows of windows in a band.
    pub(super) rows: usize,
    /// Elements of a band's row.
    pub(super) pitch: usize,
}

impl Patches {
    pub(super) fn new(
        conv: &Conv2d,
        pool: &Pool2d,
        image: &Shape,
        grad: &Shape,
        weight: &Shape,
    ) -> Self {
        let channels = weight[1];
        let pitch = (image[3] + 2 * conv.padding[1]) * channels;
        let step = [0, 1].map(|a| pool.stride[a] * conv.stride[a]);
        let rows = (BAND / pitch.max(1) / step[0]).clamp(1, grad[2].max(1));
        Self {
            channels,
            kernel: [weight[2], weight[3]],
            padding: conv.padding,
            stride: conv.stride,
            window: pool.kernel,
            step,
            windows: [grad[2], grad[3]],
            rows,
            pitch,
        }
    }

    /// Rows of pixels under so many rows of windows.
    pub(super) fn lines(&self, windows: usize) -> usize {
        (windows - 1) * self.step[0] + (self.window[0] - 1) * self.stride[0] + self.kernel[0]
    }

    /// Elements of a band, and what a vector may read behind it.
    pub(super) fn band(&self) -> usize {
        self.lines(self.rows) * self.pitch + BEHIND
    }

    /// Rows of the image, without what is around it, that windows reach.
    pub(super) fn reached(&self) -> usize {
        self.lines(self.rows).saturating_sub(self.padding[0])
    }

    /// Elements of a row of the kernel.
    pub(super) fn taps(&self) -> usize {
        self.kernel[1] * self.channels
    }

    /// The sums of a filter: rows of the kernel in whole vectors of any
    /// instruction set.
    pub(super) fn sums(&self) -> usize {
        self.kernel[0] * self.taps().next_multiple_of(BEHIND)
    }

    /// Where the patch of each place of a window begins; a byte that is no place
    /// gives the first.
    pub(super) fn places(&self) -> [u32; 256] {
        let mut places = [0; 256];
        let all = (0..self.window[0]).flat_map(|a| (0..self.window[1]).map(move |b| (a, b)));
        for (to, (a, b)) in places.iter_mut().zip(all) {
            *to = (a * self.stride[0] * self.pitch + b * self.stride[1] * self.channels) as u32;
        }
        places
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
    let filters = region.range(0);
    let of = Patches::new(conv, pool, &x.shape(), &grad.shape(), &gw.shape());
    let (band, scratch) = split::<T>(scratch, of.band());
    let (sums, scratch) = split::<T>(scratch, filters.len() * of.sums());
    let (totals, _) = split::<T>(scratch, filters.len() * of.sums());
    totals.fill(T::ZERO);
    if of.windows[0] > 0 && of.windows[1] > 0 {
        // Around the image, and behind it.
        band.fill(T::ZERO);
        let places = of.places();
        for n in samples {
            sums.fill(T::ZERO);
            for first in (0..of.windows[0]).step_by(of.rows) {
                let rows = first..(first + of.rows).min(of.windows[0]);
                copy(&of, &x, n, rows.clone(), band);
                let maps = Region::new(&[n..n + 1, filters.clone(), rows, 0..of.windows[1]]);
                let maps = Maps::new(&grad, &winner, &maps);
                isa.run(Band { of, places: &places, maps, image: band, sums });
            }
            for (total, &sum) in totals.iter_mut().zip(&*sums) {
                *total += sum;
            }
        }
    }
    store(&of, totals, &region, &mut gw);
}

/// Copies the pixels under some rows of windows, channels beside each other.
fn copy<T: Lane>(of: &Patches, x: &View<'_, T>, n: usize, rows: Range<usize>, band: &mut [T]) {
    let (channels, width) = (of.channels, x.shape()[3]);
    let first = rows.start * of.step[0];
    for (line, to) in band.chunks_exact_mut(of.pitch).take(of.lines(rows.len())).enumerate() {
        let to = &mut to[of.padding[1] * channels..][..width * channels];
        let y = (first + line).wrapping_sub(of.padding[0]);
        if y >= x.shape()[2] {
            to.fill(T::ZERO);
            continue;
        }
        let row = |c: usize| &x.row([n, c, y, 0])[..width];
        match channels {
            1 => to.copy_from_slice(row(0)),
            2 => interleave(std::array::from_fn::<_, 2, _>(row), to),
            3 => interleave(std::array::from_fn::<_, 3, _>(row), to),
            4 => interleave(std::array::from_fn::<_, 4, _>(row), to),
            _ => {
                for c in 0..channels {
                    for (to, &x) in to[c..].iter_mut().step_by(channels).zip(row(c)) {
                        *to = x;
                    }
                }
            }
        }
    }
}

fn interleave<T: Copy, const C: usize>(rows: [&[T]; C], to: &mut [T]) {
    let (to, _) = to.as_chunks_mut::<C>();
    let rows = rows.map(|row| &row[..to.len()]);
    for (x, to) in to.iter_mut().enumerate() {
        *to = std::array::from_fn(|c| rows[c][x]);
    }
}

/// Writes the sums of all filters to where they belong.
fn store<T: Lane>(of: &Patches, totals: &[T], region: &Region, gw: &mut ViewMut<'_, T>) {
    let pitch = of.taps().next_multiple_of(BEHIND);
    for (o, totals) in region.range(0).zip(totals.chunks_exact(of.sums().max(1))) {
        for (k, row) in totals.chunks_exact(pitch).enumerate() {
            for c in 0..of.channels {
                let to = &mut gw.row_mut([o, c, k, 0])[..of.kernel[1]];
                for (to, &sum) in to.iter_mut().zip(row[c..].iter().step_by(of.channels)) {
                    *to = sum;
                }
            }
        }
    }
}

/// Gradients and winners of some rows of windows of one sample.
#[derive(Clone, Copy)]
pub(super) struct Maps<T> {
    pub(super) grads: *const T,
    pub(super) winners: *const u8,
    /// The distance of filters, and of rows, in each.
    pub(super) strides: [[usize; 2]; 2],
    pub(super) filters: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl<T: Lane> Maps<T> {
    pub(super) fn new(grad: &View<'_, T>, winner: &View<'_, u8>, region: &Region) -> Self {
        let ((grads, g), (winners, w)) = (grad.raw(region), winner.raw(region));
        let [filters, rows, columns] = [1, 2, 3].map(|a| region.len(a));
        assert!(columns <= 1 || (g[3] == 1 && w[3] == 1), "columns lie behind each other");
        let strides = [[g[1], g[2]], [w[1], w[2]]];
        Self { grads, winners, strides, filters, rows, columns }
    }
}

/// The sums of all filters over the windows of a band.
struct Band<'a, T> {
    of: Patches,
    places: &'a [u32; 256],
    maps: Maps<T>,
    image: &'a [T],
    sums: &'a mut [T],
}

impl<T: Lane> Work for Band<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let lanes = T::Vector::<S>::LANES;
        let of = self.of;
        let reach = of.lines(self.maps.rows) * of.pitch + BEHIND;
        assert!(lanes <= BEHIND && reach <= self.image.len(), "patches inside");
        assert!(self.sums.len() >= self.maps.filters * of.sums(), "a sum for each tap");
        let vectors = of.taps().div_ceil(lanes);
        let all = of.kernel[0] * vectors;
        // As many filters at a time as keep the adders busy.
        let together = match all {
            0 => return,
            1..=3 => 4,
            4..=6 => 2,
            _ => 1,
        };
        let mut o = 0;
        while o < self.maps.filters {
            let left = self.maps.filters - o;
            let count = if left >= together { together } else { 1 };
            match (count, all) {
                (4, 1) => self.some::<S, 4, 1>(o, 0),
                (4, 2) => self.some::<S, 4, 2>(o, 0),
                (4, 3) => self.some::<S, 4, 3>(o, 0),
                (2, 4) => self.some::<S, 2, 4>(o, 0),
                (2, 5) => self.some::<S, 2, 5>(o, 0),
                (2, 6) => self.some::<S, 2, 6>(o, 0),
                _ => self.one::<S>(o, all),
            }
            o += count;
        }
    }
}

impl<T: Lane> Band<'_, T> {
    /// One filter, in parts of about the same size.
    #[inline(always)]
    fn one<S: Simd>(&mut self, o: usize, all: usize) {
        let mut first = 0;
        for left in (1..=all.div_ceil(MOST)).rev() {
            let count = (all - first).div_ceil(left);
            match count {
                1 => self.some::<S, 1, 1>(o, first),
                2 => self.some::<S, 1, 2>(o, first),
                3 => self.some::<S, 1, 3>(o, first),
                4 => self.some::<S, 1, 4>(o, first),
                5 => self.some::<S, 1, 5>(o, first),
                6 => self.some::<S, 1, 6>(o, first),
                7 => self.some::<S, 1, 7>(o, first),
                8 => self.some::<S, 1, 8>(o, first),
                9 => self.some::<S, 1, 9>(o, first),
                10 => self.some::<S, 1, 10>(o, first),
                11 => self.some::<S, 1, 11>(o, first),
                _ => self.some::<S, 1, MOST>(o, first),
            }
            first += count;
        }
    }

    /// `N` vectors of the kernel, from the `first` on, of `G` filters.
    #[inline(always)]
    fn some<S: Simd, const G: usize, const N: usize>(&mut self, o: usize, first: usize) {
        let lanes = T::Vector::<S>::LANES;
        let of = self.of;
        let vectors = of.taps().div_ceil(lanes);
        let from: [usize; N] = std::array::from_fn(|i| {
            let (k, v) = ((first + i) / vectors, (first + i) % vectors);
            k * of.pitch + v * lanes
        });
        let to: [usize; N] = std::array::from_fn(|i| {
            let (k, v) = ((first + i) / vectors, (first + i) % vectors);
            k * of.taps().next_multiple_of(BEHIND) + v * lanes
        });
        let Maps { grads, winners, strides: [gs, ws], rows, columns, .. } = self.maps;
        let step = of.step[1] * of.channels;
        // SAFETY: a place of `run`'s assertions: patches begin inside of the
        // image, which is followed by a vector of room, whatever the winner's
        // byte is; the sums have whole vectors; gradients and winners have the
        // region's rows, columns and filters.
        unsafe {
            let kept = self.sums.as_mut_ptr().add(o * of.sums());
            let mut sums = [[T::Vector::<S>::zero(); N]; G];
            for (g, sums) in sums.iter_mut().enumerate() {
                for (sum, to) in sums.iter_mut().zip(to) {
                    *sum = T::Vector::<S>::load(kept.add(g * of.sums() + to));
                }
            }
            for i in 0..rows {
                let mut patches = self.image.as_ptr().add(i * of.step[0] * of.pitch);
                let grads = grads.add(o * gs[0] + i * gs[1]);
                let winners = winners.add(o * ws[0] + i * ws[1]);
                for j in 0..columns {
                    for (g, sums) in sums.iter_mut().enumerate() {
                        let place = self.places[usize::from(*winners.add(g * ws[0] + j))];
                        let patch = patches.add(place as usize);
                        let grad = T::Vector::<S>::splat(*grads.add(g * gs[0] + j));
                        for (sum, &from) in sums.iter_mut().zip(&from) {
                            *sum = grad.mul_add(T::Vector::<S>::load(patch.add(from)), *sum);
                        }
                    }
                    patches = patches.add(step);
                }
            }
            for (g, sums) in sums.into_iter().enumerate() {
                for (sum, to) in sums.into_iter().zip(to) {
                    sum.store(kept.add(g * of.sums() + to));
                }
            }
        }
    }
}
