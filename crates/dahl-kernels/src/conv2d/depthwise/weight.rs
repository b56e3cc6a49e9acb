//! The gradient of the weight of a depthwise convolution.
//!
//! The image of a channel is copied once a sample, padded, with the columns that
//! one tap sees behind each other; rows of the result's gradient are filled up
//! with zeros. A tap is then a sum of products of two lines, kept in sixteen lanes
//! over all rows and samples.
#![expect(unsafe_code, reason = "vectors are read through pointers")]

use super::super::Conv2d;
use super::super::direct::split;
use super::groups;
use crate::element::float_dispatch;
use crate::gemm::LINE;
use crate::lanes::{self, WIDE};
use crate::simd::{Lane, Simd, Vector, Work};
use crate::{Call, DType, Piece, Shape, View};
use std::ops::Range;

/// How rows and columns lie.
#[derive(Clone, Copy)]
struct Lines {
    conv: Conv2d,
    /// Rows and columns of the result, rows of the image.
    places: [usize; 2],
    height: usize,
    /// Taps of a row.
    taps: usize,
}

impl Lines {
    fn new(conv: &Conv2d, x: &Shape, gy: &Shape, taps: usize) -> Self {
        Self { conv: *conv, places: [gy[2], gy[3]], height: x[2], taps }
    }

    /// The phase of a tap, and how many steps into it the tap begins.
    fn begin(&self, tap: usize) -> [usize; 2] {
        let column = tap * self.conv.dilation[1];
        [column % self.conv.stride[1], column / self.conv.stride[1]]
    }

    /// A row of the result's gradient, in whole vectors.
    fn gradient(&self) -> usize {
        self.places[1].next_multiple_of(WIDE)
    }

    /// The columns of a row of the image that are a step apart.
    fn phase(&self) -> usize {
        self.gradient() + self.begin(self.taps.saturating_sub(1))[1]
    }

    fn image(&self) -> usize {
        self.conv.stride[1] * self.phase()
    }

    /// The elements of scratch of the image, the gradient, and the lanes of so
    /// many taps of all filters.
    fn lengths(&self, taps: usize) -> [usize; 3] {
        [self.height * self.image(), self.places[0] * self.gradient(), taps * WIDE]
    }
}

/// The taps of all filters of a group that a piece has.
fn taps(conv: &Conv2d, weight: &Shape, piece: &Piece) -> usize {
    let filters = (weight[0] / conv.groups).min(piece.out.len(0));
    filters * piece.out.len(2) * piece.out.len(3)
}

/// [`conv2d_backward_weight`](super::super::conv2d_backward_weight) of groups of
/// one channel.
pub fn conv2d_backward_weight_depthwise(conv: &Conv2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_weight(conv, call));
}

/// The bytes of scratch that [`conv2d_backward_weight_depthwise`] needs for a
/// piece; the shapes are those of the input, the result and the weight.
pub fn conv2d_backward_weight_depthwise_scratch(
    conv: &Conv2d,
    [x, gy, weight]: [&Shape; 3],
    piece: &Piece,
    dtype: DType,
) -> usize {
    let lines = Lines::new(conv, x, gy, weight[3]);
    let elements: usize = lines.lengths(taps(conv, weight, piece)).iter().sum();
    elements * dtype.size() + 4 * LINE
}

fn backward_weight<T: Lane>(conv: &Conv2d, call: &mut Call<'_>) {
    let (piece, isa) = (call.piece, call.isa);
    let region = piece.out;
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, gy) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gw = outs.take::<T>();
    let weight = gw.shape();
    let of = Lines::new(conv, &x.shape(), &gy.shape(), weight[3]);
    let [image, gradient, sums] = of.lengths(taps(conv, &weight, piece));
    let (image, scratch) = split::<T>(scratch, image);
    let (gradient, scratch) = split::<T>(scratch, gradient);
    let (sums, _) = split::<T>(scratch, sums);
    let (rows, columns) = (region.range(2), region.range(3));
    let each = rows.len() * columns.len() * WIDE;
    for (group, filters) in groups(region.range(0), weight[0] / conv.groups) {
        sums.fill(T::ZERO);
        for sample in piece.sum.clone() {
            of.deal(&x, [sample, group], image);
            for (o, sums) in filters.clone().zip(sums.chunks_exact_mut(each)) {
                of.pad(&gy, [sample, o], gradient);
                let taps = [rows.clone(), columns.clone()];
                isa.run(Sums { of, image, gradient, taps, sums });
            }
        }
        for (o, sums) in filters.zip(sums.chunks_exact(each)) {
            let taps = rows.clone().flat_map(|k| columns.clone().map(move |l| (k, l)));
            for ((k, l), sum) in taps.zip(sums.as_chunks::<WIDE>().0) {
                gw.set([o, 0, k, l], lanes::total(*sum));
            }
        }
    }
}

impl Lines {
    /// How many steps of a phase windows see. What is behind them is multiplied
    /// by zeros, and need not be finite.
    fn seen(&self, phase: usize) -> usize {
        let begins = (0..self.taps).map(|tap| self.begin(tap)).filter(|b| b[0] == phase);
        begins.map(|b| b[1] + self.places[1]).max().unwrap_or(0)
    }

    /// Copies a channel: column `x` of the padded image goes to phase `x % stride`.
    fn deal<T: Lane>(&self, x: &View<'_, T>, [sample, channel]: [usize; 2], to: &mut [T]) {
        let (stride, padding, _) = self.conv.axis(1);
        for (y, line) in to.chunks_exact_mut(self.image()).enumerate() {
            let row = if x.shape()[3] == 0 { &[][..] } else { x.row([sample, channel, y, 0]) };
            for (phase, to) in line.chunks_exact_mut(self.phase()).enumerate() {
                // The first step that is not padding, and its column.
                let lead = padding.saturating_sub(phase).div_ceil(stride).min(to.len());
                let first = (lead * stride + phase).saturating_sub(padding);
                to[..lead].fill(T::ZERO);
                let seen = row.get(first..).unwrap_or(&[]);
                let most = self.seen(phase).min(to.len()).saturating_sub(lead);
                let count = seen.len().div_ceil(stride).min(most);
                let (inside, behind) = to[lead..].split_at_mut(count);
                if stride == 1 {
                    inside.copy_from_slice(&seen[..count]);
                } else {
                    let from = seen.iter().step_by(stride);
                    inside.iter_mut().zip(from).for_each(|(to, x)| *to = *x);
                }
                behind.fill(T::ZERO);
            }
        }
    }

    /// Copies the result's gradient of a filter, rows filled up with zeros.
    fn pad<T: Lane>(&self, gy: &View<'_, T>, [sample, filter]: [usize; 2], to: &mut [T]) {
        for (i, line) in to.chunks_exact_mut(self.gradient()).enumerate() {
            let (inside, behind) = line.split_at_mut(self.places[1]);
            inside.copy_from_slice(gy.row([sample, filter, i, 0]));
            behind.fill(T::ZERO);
        }
    }
}

/// The products of one sample and filter, added to the lanes of all taps.
struct Sums<'a, T> {
    of: Lines,
    image: &'a [T],
    gradient: &'a [T],
    taps: [Range<usize>; 2],
    sums: &'a mut [T],
}

impl<T: Lane> Work for Sums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        // As many taps at once as registers suffice for.
        match WIDE / T::Vector::<S>::LANES {
            1 => self.vectors::<S, 1, 4>(),
            2 => self.vectors::<S, 2, 3>(),
            4 => self.vectors::<S, 4, 2>(),
            _ => self.vectors::<S, 8, 1>(),
        }
    }
}

impl<T: Lane> Sums<'_, T> {
    /// Sixteen lanes are `P` vectors; `R` taps at once.
    #[inline(always)]
    fn vectors<S: Simd, const P: usize, const R: usize>(self) {
        let Self { of, image, gradient, taps: [rows, columns], sums } = self;
        let mut sums = sums.as_chunks_mut::<WIDE>().0.chunks_exact_mut(columns.len());
        for k in rows {
            let Some(sums) = sums.next() else { return };
            let mut l = columns.start;
            for sums in sums.chunks_mut(R) {
                let line = Line { of, image, gradient, k, l };
                if let Ok(sums) = <&mut [[T; WIDE]; R]>::try_from(&mut *sums) {
                    line.add::<S, P, R>(sums);
                } else {
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let line = Line { l: l + i, ..line };
                        line.add::<S, P, 1>(std::array::from_mut(sum));
                    }
                }
                l += R;
            }
        }
    }
}

/// Taps from (k, l) on.
#[derive(Clone, Copy)]
struct Line<'a, T> {
    of: Lines,
    image: &'a [T],
    gradient: &'a [T],
    k: usize,
    l: usize,
}

impl<T: Lane> Line<'_, T> {
    #[inline(always)]
    fn add<S: Simd, const P: usize, const R: usize>(&self, sums: &mut [[T; WIDE]; R]) {
        let (of, lanes) = (&self.of, T::Vector::<S>::LANES);
        let (stride, dilation) = (of.conv.stride[1], of.conv.dilation[1]);
        let offsets: [usize; R] = std::array::from_fn(|r| {
            let at = (self.l + r) * dilation;
            at % stride * of.phase() + at / stride
        });
        let mut vectors = [[T::Vector::<S>::zero(); P]; R];
        for (vectors, sums) in vectors.iter_mut().zip(sums.iter()) {
            *vectors = lanes::load::<S, T, P>(sums);
        }
        for (i, gradient) in self.gradient.chunks_exact(of.gradient()).enumerate() {
            let Some(y) = of.conv.tap(0, i, self.k, of.height) else { continue };
            let image = &self.image[y * of.image()..][..of.image()];
            let seen = offsets.map(|offset| &image[offset..][..gradient.len()]);
            for from in (0..gradient.len()).step_by(WIDE) {
                for p in 0..P {
                    let at = from + p * lanes;
                    // SAFETY: the lines have whole multiples of `WIDE` elements.
                    let g = unsafe { T::Vector::<S>::load(gradient.as_ptr().add(at)) };
                    for (vectors, seen) in vectors.iter_mut().zip(seen) {
                        // SAFETY: as above.
                        let x = unsafe { T::Vector::<S>::load(seen.as_ptr().add(at)) };
                        vectors[p] = g.mul_add(x, vectors[p]);
                    }
                }
            }
        }
        for (vectors, sum) in vectors.into_iter().zip(sums) {
            lanes::store::<S, T, P>(vectors, sum);
        }
    }
}
