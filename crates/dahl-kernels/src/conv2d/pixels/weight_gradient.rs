//! The gradient of weights: a product over the places of the result.

use super::{Class, Direction};
use crate::conv2d::layout::{Planes, Window};
use crate::conv2d::{ALIGN, Conv2d};
use crate::element::float_dispatch;
use crate::gemm::{BLOCK, LINE, ROWS, Run, Strip, Tile, VECTORS};
use crate::simd::{Lane, Simd, Vector, Work};
use crate::{Call, DType, Piece, Region, Shape};
use std::ops::Range;

/// The gradient of w \[O, C/groups, kh, kw\]; the terms are the places of all
/// samples of the piece's sum, in order. Inputs x, g'.
pub fn conv2d_backward_weight_gemm(conv: &Conv2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward(conv, call));
}

/// The bytes of scratch that [`conv2d_backward_weight_gemm`] needs for a piece.
pub fn conv2d_backward_weight_gemm_scratch(
    conv: &Conv2d,
    grad: &Shape,
    piece: &Piece,
    dtype: DType,
) -> usize {
    let sizes = Sizes::new(conv, grad, piece);
    sizes.elements() * dtype.size() + LINE
}

/// The lengths of everything that a piece needs.
#[derive(Clone, Copy)]
struct Sizes {
    /// Places by rows and columns, which see the taps of the piece.
    classes: [Class; 2],
    samples: usize,
    /// Channels padded to panels, filters to rows of a tile.
    channels: usize,
    filters: usize,
}

impl Sizes {
    fn new(conv: &Conv2d, grad: &Shape, piece: &Piece) -> Self {
        let class = |a: usize| {
            let taps = piece.out.range(2 + a);
            let classes = Class::of(Direction::Forward, conv, a, 0..grad[2 + a], taps.len());
            let class = classes.last().expect("one class");
            // The first taps may be another piece's.
            let skipped = (taps.start * conv.dilation[a]) as isize;
            Class { origin: class.origin + skipped, ..class }
        };
        Self {
            classes: [class(0), class(1)],
            samples: piece.sum.len(),
            channels: piece.out.len(1).next_multiple_of(ALIGN),
            filters: piece.out.len(0).next_multiple_of(ROWS),
        }
    }

    fn places(&self) -> usize {
        self.classes[0].count * self.classes[1].count
    }

    /// Pixels of the windows of a block, at most.
    fn pixels(&self) -> usize {
        let [rows, columns] = self.classes;
        if columns.count == 0 || rows.count == 0 {
            return 0;
        }
        let lines = (BLOCK.div_ceil(columns.count) + 1).min(rows.count * self.samples.max(1));
        let samples = (lines.div_ceil(rows.count) + 1).min(self.samples.max(1));
        let lines = lines * rows.place + samples * (rows.reach() + 1);
        lines * columns.length(columns.count)
    }

    fn taps(&self) -> usize {
        self.classes[0].taps * self.classes[1].taps
    }

    fn elements(&self) -> usize {
        self.pixels() * self.channels
            + BLOCK * self.filters
            + self.filters * self.taps() * self.channels
    }
}

fn backward<T: Lane>(conv: &Conv2d, call: &mut Call<'_>) {
    let (piece, isa) = (call.piece.clone(), call.isa);
    let region = piece.out;
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, gy) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gw = outs.take::<T>();
    let (weight, image, grad) = (gw.shape(), x.shape(), gy.shape());
    let filters = weight[0] / conv.groups;
    let skipped = scratch.as_ptr().align_offset(LINE);
    for group in 0..conv.groups {
        let part = region.range(0).start.max(group * filters)
            ..region.range(0).end.min((group + 1) * filters);
        if part.is_empty() {
            continue;
        }
        let piece = Piece { out: region.with(0, part.clone()), sum: piece.sum.clone() };
        let sizes = Sizes::new(conv, &grad, &piece);
        let bytes = sizes.elements() * size_of::<T>();
        let scratch: &mut [T] = bytemuck::cast_slice_mut(&mut scratch[skipped..][..bytes]);
        let channels =
            group * weight[1] + region.range(1).start..group * weight[1] + region.range(1).end;
        let planes = |(first, strides): (*const T, [usize; crate::MAX_AXES]), channels| {
            let (channel, row) = (strides[1], strides[2]);
            (Planes { first: first.cast_mut(), channels, channel, row, column: 1 }, strides[0])
        };
        let of = |shape: &Shape, channels: Range<usize>| {
            Region::full(shape).with(0, piece.sum.clone()).with(1, channels)
        };
        let gradient = Gradient {
            sizes,
            image: planes(x.raw(&of(&image, channels)), region.len(1)),
            valid: [0..image[2], 0..image[3]],
            grads: planes(gy.raw(&of(&grad, part.clone())), part.len()),
            scratch,
        };
        let sums = isa.run(gradient);
        let (to, strides) = gw.raw_mut(&piece.out);
        let (taps, columns) = (sizes.taps(), sizes.classes[1].taps);
        for o in 0..part.len() {
            let sums = &sums[o * taps * sizes.channels..][..taps * sizes.channels];
            for c in 0..region.len(1) {
                let to = to.wrapping_add(o * strides[0] + c * strides[1]);
                for tap in 0..taps {
                    let (k, l) = (tap / columns, tap % columns);
                    let at = k * strides[2] + l * strides[3];
                    // SAFETY: an element of the piece.
                    unsafe { *to.add(at) = sums[tap * sizes.channels + c] };
                }
            }
        }
    }
}

struct Gradient<'a, T> {
    sizes: Sizes,
    /// Planes of the first sample, and the distance of samples.
    image: (Planes<T>, usize),
    valid: [Range<usize>; 2],
    grads: (Planes<T>, usize),
    scratch: &'a mut [T],
}

impl<'a, T: Lane> Work for Gradient<'a, T> {
    /// The gradient as \[filters, taps, channels\].
    type Output = &'a [T];

    #[inline(always)]
    fn run<S: Simd>(mut self) -> &'a [T] {
        let sizes = self.sizes;
        let scratch = std::mem::take(&mut self.scratch);
        let (windows, rest) = scratch.split_at_mut(sizes.pixels() * sizes.channels);
        let (grads, sums) = rest.split_at_mut(BLOCK * sizes.filters);
        let total = sizes.samples * sizes.places();
        let mut runs = [Run::default(); BLOCK + 1];
        // A sum of nothing is stored too.
        for block in 0..total.div_ceil(BLOCK).max(1) {
            let places = block * BLOCK..((block + 1) * BLOCK).min(total);
            let (runs, line) = self.read::<S>(places, windows, grads, &mut runs);
            self.add::<S>(runs, line, block == 0, (windows, grads), sums);
        }
        sums
    }
}

impl<T: Lane> Gradient<'_, T> {
    /// Turns what a block of places sees, and copies their gradients; the runs of
    /// places, and the pixels of a row of the windows.
    #[inline(always)]
    fn read<'r, S: Simd>(
        &self,
        places: Range<usize>,
        windows: &mut [T],
        grads: &mut [T],
        runs: &'r mut [Run],
    ) -> (&'r [Run], usize) {
        if places.is_empty() {
            return (&[], 0);
        }
        let width = VECTORS * T::Vector::<S>::LANES;
        let [rows, columns] = self.sizes.classes;
        // Of a single row not all columns may be needed.
        let (skip, wide) = match places.start / columns.count == (places.end - 1) / columns.count {
            true => (places.start % columns.count, places.len()),
            false => (0, columns.count),
        };
        let line = columns.length(wide);
        let (mut place, mut window, mut count) = (places.start, 0, 0);
        while place < places.end {
            // All rows of a sample that the block has.
            let (sample, at) = (place / self.sizes.places(), place % self.sizes.places());
            let end = (at + places.end - place).min(self.sizes.places());
            let (first, last) = (at / columns.count, (end - 1) / columns.count);
            let lengths = [rows.length(last + 1 - first), line];
            let start = [rows.start(first), columns.start(skip)];
            self.fill::<S>(sample, start, lengths, window, windows);
            for row in first..=last {
                let from = if row == first { at % columns.count } else { 0 };
                let to = (end - row * columns.count).min(columns.count);
                let n = place - places.start + row * columns.count + from - at;
                self.copy(sample, row, from..to, &mut grads[n * ROWS..]);
                let pixel = (row - first) * rows.place * line + (from - skip) * columns.place;
                runs[count] = Run { a: n * ROWS, b: (window + pixel) * width, terms: to - from };
                count += 1;
            }
            window += lengths[0] * line;
            place += end - at;
        }
        (&runs[..count], line)
    }

    /// Fills a window, from pixel `at` of every panel on.
    #[inline(always)]
    fn fill<S: Simd>(
        &self,
        sample: usize,
        start: [isize; 2],
        lengths: [usize; 2],
        at: usize,
        windows: &mut [T],
    ) {
        let width = VECTORS * T::Vector::<S>::LANES;
        let (planes, distance) = self.image;
        for c in (0..planes.channels).step_by(width) {
            let to = c * self.sizes.pixels() + at * width;
            let to = &mut windows[to..to + lengths[0] * lengths[1] * width];
            let window = Window { first: to.as_mut_ptr(), pixel: width, start, lengths };
            let planes = Planes {
                first: planes.first.wrapping_add(sample * distance + c * planes.channel),
                channels: (planes.channels - c).min(width),
                ..planes
            };
            // SAFETY: the slice has the room.
            unsafe { window.fill::<S>(&planes, &self.valid) };
        }
    }

    /// Copies the gradients of a row of places, filters in groups of a tile.
    #[inline(always)]
    fn copy(&self, sample: usize, row: usize, columns: Range<usize>, to: &mut [T]) {
        let (planes, distance) = self.grads;
        let first = planes.first.wrapping_add(sample * distance + row * planes.row + columns.start);
        for o in 0..self.sizes.filters {
            let to = &mut to[o / ROWS * ROWS * BLOCK + o % ROWS..];
            let from = first.wrapping_add(o.min(planes.channels - 1) * planes.channel);
            for (j, to) in to.iter_mut().step_by(ROWS).take(columns.len()).enumerate() {
                // SAFETY: a place of the gradient.
                *to = unsafe { *from.add(j) };
            }
        }
    }

    /// Adds the products of a block of places.
    #[inline(always)]
    fn add<S: Simd>(
        &self,
        runs: &[Run],
        line: usize,
        first: bool,
        (windows, grads): (&[T], &[T]),
        sums: &mut [T],
    ) {
        let sizes = &self.sizes;
        let width = VECTORS * T::Vector::<S>::LANES;
        let [rows, columns] = sizes.classes;
        for c in (0..self.image.0.channels).step_by(width) {
            let panel = windows[c * sizes.pixels()..].as_ptr();
            for o in (0..self.grads.0.channels).step_by(ROWS) {
                let a = grads[o * BLOCK..].as_ptr();
                let count = (self.grads.0.channels - o).min(ROWS);
                for tap in 0..sizes.taps() {
                    let (k, l) = (tap / columns.taps, tap % columns.taps);
                    let pixel = rows.offset(k) * line + columns.offset(l);
                    let to = sums[(o * sizes.taps() + tap) * sizes.channels + c..].as_mut_ptr();
                    let strip = Strip {
                        tiles: std::iter::once(Tile::spaced(a, 1, count, to)),
                        runs,
                        b: panel.wrapping_add(pixel * width),
                        terms: [ROWS, columns.place * width],
                        stride: sizes.taps() * sizes.channels,
                        first,
                        finish: None,
                    };
                    // SAFETY: the instructions are there, we are among them;
                    // the sums have whole panels.
                    unsafe { S::enter(strip) };
                }
            }
        }
    }
}
