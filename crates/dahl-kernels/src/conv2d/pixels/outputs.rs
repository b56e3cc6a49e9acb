//! Outputs, and gradients of inputs, from packed weights.

use super::{Class, Direction};
use crate::conv2d::layout::{Planes, Window};
use crate::conv2d::{ALIGN, Conv2d, Rectify};
use crate::element::float_dispatch;
use crate::gemm::{BLOCK, Finish, LINE, ROWS, Run, Strip, Tile, VECTORS};
use crate::simd::{Lane, MAX_LANES, Simd, Vector, Work};
use crate::{Call, DType, Piece, Region, Shape};
use std::ops::Range;

/// Places that are computed at once, about: as many as keep their sums in the
/// second cache while weights come from further away.
const PLACES: usize = 96;

/// A convolution, or the gradient of its input, from packed weights. Inputs x or
/// g', \[results, taps, sums\], and maybe b; `kernel` are the taps.
pub fn conv2d_gemm(
    conv: &Conv2d,
    direction: Direction,
    kernel: [usize; 2],
    rectify: Rectify,
    call: &mut Call<'_>,
) {
    float_dispatch!(call.dtype(0), outputs(conv, direction, kernel, rectify, call));
}

/// The bytes of scratch that [`conv2d_gemm`] needs for a piece.
pub fn conv2d_gemm_scratch(
    conv: &Conv2d,
    direction: Direction,
    kernel: [usize; 2],
    packed: &Shape,
    piece: &Piece,
    dtype: DType,
) -> usize {
    let mut most = 0;
    each_class(conv, direction, kernel, &piece.out, |classes| {
        most = most.max(Sizes::new(classes, packed, &piece.out).elements());
    });
    most * dtype.size() + LINE
}

/// Calls `body` with every pair of classes of rows and columns.
fn each_class(
    conv: &Conv2d,
    direction: Direction,
    kernel: [usize; 2],
    out: &Region,
    mut body: impl FnMut([Class; 2]),
) {
    for rows in Class::of(direction, conv, 0, out.range(2), kernel[0]) {
        for columns in Class::of(direction, conv, 1, out.range(3), kernel[1]) {
            body([rows, columns]);
        }
    }
}

/// The lengths of everything that a class of a piece needs.
#[derive(Clone, Copy)]
struct Sizes {
    classes: [Class; 2],
    samples: usize,
    /// Channels of a group that are summed over, padded to vectors, and those of
    /// the result, padded to panels.
    sums: usize,
    results: usize,
    /// Rows of places at once.
    block: usize,
}

impl Sizes {
    fn new(classes: [Class; 2], packed: &Shape, out: &Region) -> Self {
        let [rows, columns] = classes.map(|c| c.count);
        let samples = out.len(0);
        Self {
            classes,
            samples,
            sums: packed[2].next_multiple_of(MAX_LANES),
            results: out.len(1).next_multiple_of(ALIGN),
            block: (PLACES / columns.max(1)).clamp(1, (rows * samples).max(1)),
        }
    }

    /// Elements of the windows of a block.
    fn windows(&self) -> usize {
        let [rows, columns] = self.classes;
        // Each sample that a block touches has a window of its own.
        let samples = (self.block.div_ceil(rows.count.max(1)) + 1).min(self.block);
        let lines = self.block * rows.place + samples * (rows.reach() + 1);
        lines * columns.length(columns.count) * self.sums
    }

    fn sums_of_block(&self) -> usize {
        self.block * self.classes[1].count * self.results
    }

    fn elements(&self) -> usize {
        self.windows() + self.sums_of_block() + self.results
    }
}

fn outputs<T: Lane>(
    conv: &Conv2d,
    direction: Direction,
    kernel: [usize; 2],
    rectify: Rectify,
    call: &mut Call<'_>,
) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, u) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut y = outs.take::<T>();
    let packed = u.shape();
    let result = y.shape();
    let per_group = result[1] / conv.groups;
    let skipped = scratch.as_ptr().align_offset(LINE);
    for group in 0..conv.groups {
        let channels = region.range(1).start.max(group * per_group)
            ..region.range(1).end.min((group + 1) * per_group);
        if channels.is_empty() {
            continue;
        }
        let first = channels.start - group * per_group;
        assert!(first.is_multiple_of(ALIGN), "a piece begins with a panel");
        let sums = group * packed[2]..(group + 1) * packed[2];
        let read = x.region().with(0, region.range(0)).with(1, sums.clone());
        let (from, strides) = x.raw(&read);
        let images = Images {
            planes: Planes {
                first: from.cast_mut(),
                channels: packed[2],
                channel: strides[1],
                row: strides[2],
                column: 1,
            },
            sample: strides[0],
            valid: [read.range(2), read.range(3)],
        };
        let padded = first + channels.len().next_multiple_of(ALIGN);
        let of_group = group * per_group.next_multiple_of(ALIGN);
        let panels = Region::full(&packed).with(0, of_group + first..of_group + padded);
        let weights = u.run(&panels).expect("panels behind each other");
        each_class(conv, direction, kernel, &region, |classes| {
            let sizes = Sizes::new(classes, &packed, &region);
            let bytes = sizes.elements() * size_of::<T>();
            let scratch: &mut [T] = bytemuck::cast_slice_mut(&mut scratch[skipped..][..bytes]);
            let (scratch, bias) = scratch.split_at_mut(sizes.elements() - sizes.results);
            bias.fill(T::ZERO);
            if ins.len() > 2 {
                let given = ins.get::<T>(2);
                bias[..channels.len()]
                    .copy_from_slice(&given.row([channels.start])[..channels.len()]);
            }
            let (to, strides) = y.raw_mut(&region.with(1, channels.clone()));
            let [i, j] = [0, 1].map(|a| classes[a].first - region.range(2 + a).start);
            let results = Planes {
                first: to.wrapping_add(i * strides[2] + j * strides[3]),
                channels: channels.len(),
                channel: strides[1],
                row: strides[2] * classes[0].step,
                column: strides[3] * classes[1].step,
            };
            isa.run(Outputs {
                sizes,
                kernel,
                rectify,
                images: &images,
                results: (results, strides[0]),
                weights,
                bias,
                scratch,
            });
        });
    }
}

/// Images of some samples.
struct Images<T> {
    /// Those of the first sample, from the first valid row and column on.
    planes: Planes<T>,
    /// The distance of samples.
    sample: usize,
    /// The rows and columns that are there.
    valid: [Range<usize>; 2],
}

struct Outputs<'a, T> {
    sizes: Sizes,
    kernel: [usize; 2],
    rectify: Rectify,
    images: &'a Images<T>,
    /// Planes of the first sample's results, and the distance of samples.
    results: (Planes<T>, usize),
    weights: &'a [T],
    bias: &'a [T],
    scratch: &'a mut [T],
}

/// Rows of places of one sample, with their window.
#[derive(Clone, Copy)]
struct Segment {
    sample: usize,
    row: usize,
    rows: usize,
    /// The first place of the block, and the first element of its window.
    place: usize,
    window: usize,
}

impl<T: Lane> Work for Outputs<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let sizes = self.sizes;
        let scratch = std::mem::take(&mut self.scratch);
        let (windows, sums) = scratch.split_at_mut(sizes.windows());
        let total = sizes.samples * sizes.classes[0].count;
        for first in (0..total).step_by(sizes.block) {
            let rows = first..(first + sizes.block).min(total);
            self.segments(rows.clone(), |segment| self.fill::<S>(segment, windows));
            self.products::<S>(rows.clone(), windows, sums);
            self.segments(rows, |segment| self.spread::<S>(segment, sums));
        }
    }
}

impl<T: Lane> Outputs<'_, T> {
    /// Calls `body` with the rows of places that are of one sample.
    #[inline(always)]
    fn segments(&self, rows: Range<usize>, mut body: impl FnMut(Segment)) {
        let [class, columns] = self.sizes.classes;
        let (mut at, mut window) = (rows.start, 0);
        while at < rows.end {
            let (sample, row) = (at / class.count, at % class.count);
            let count = (class.count - row).min(rows.end - at);
            let place = (at - rows.start) * columns.count;
            body(Segment { sample, row, rows: count, place, window });
            at += count;
            window += class.length(count) * self.line();
        }
    }

    /// The elements of a row of a window.
    #[inline(always)]
    fn line(&self) -> usize {
        let columns = &self.sizes.classes[1];
        columns.length(columns.count) * self.sizes.sums
    }

    #[inline(always)]
    fn fill<S: Simd>(&self, of: Segment, windows: &mut [T]) {
        let [rows, columns] = &self.sizes.classes;
        let lengths = [rows.length(of.rows), columns.length(columns.count)];
        let window = Window {
            first: windows[of.window..of.window + lengths[0] * self.line()].as_mut_ptr(),
            pixel: self.sizes.sums,
            start: [rows.start(of.row), columns.start(0)],
            lengths,
        };
        let planes = &self.images.planes;
        let first = planes.first.wrapping_add(of.sample * self.images.sample);
        // SAFETY: the window has room for the segment.
        unsafe { window.fill::<S>(&Planes { first, ..*planes }, &self.images.valid) };
    }

    #[inline(always)]
    fn products<S: Simd>(&self, rows: Range<usize>, windows: &[T], sums: &mut [T]) {
        let [class, columns] = &self.sizes.classes;
        let width = VECTORS * T::Vector::<S>::LANES;
        let channels = self.images.planes.channels;
        let taps = class.taps * columns.taps;
        let terms = taps * channels;
        let all_terms = self.kernel[0] * self.kernel[1] * channels;
        let places = rows.len() * columns.count;
        let blocks = terms.div_ceil(BLOCK).max(1);
        let mut runs = [Run::default(); BLOCK + 1];
        for block in 0..blocks {
            let range = block * BLOCK..((block + 1) * BLOCK).min(terms);
            let runs = self.runs(range, width, &mut runs);
            for (panel, j) in (0..self.results.0.channels).step_by(width).enumerate() {
                let b = self.weights[panel * width * all_terms..][..width * all_terms].as_ptr();
                let finish = (block + 1 == blocks).then(|| Finish {
                    bias: Some(&self.bias[j..j + width]),
                    rectify: self.rectify,
                });
                let mut at = Places::new(self, rows.start);
                let tiles = (0..places).step_by(ROWS).map(|place| {
                    let count = (places - place).min(ROWS);
                    let mut a = [windows.as_ptr(); ROWS];
                    for a in a.iter_mut().take(count) {
                        *a = a.wrapping_add(at.step());
                    }
                    let to = sums[place * self.sizes.results + j..].as_mut_ptr();
                    Tile { a, rows: count, to }
                });
                let strip = Strip {
                    tiles,
                    runs,
                    b,
                    terms: [1, width],
                    stride: self.sizes.results,
                    first: block == 0,
                    finish,
                };
                // SAFETY: the instructions are there, we are among them; the
                // sums have whole panels.
                unsafe { S::enter(strip) };
            }
        }
    }

    /// Where the terms of a block are.
    #[inline(always)]
    fn runs<'r>(&self, terms: Range<usize>, width: usize, runs: &'r mut [Run]) -> &'r [Run] {
        let [rows, columns] = &self.sizes.classes;
        let channels = self.images.planes.channels;
        let (mut term, mut count) = (terms.start, 0);
        while term < terms.end {
            let (tap, channel) = (term / channels, term % channels);
            let (k, l) = (tap / columns.taps, tap % columns.taps);
            let length = (channels - channel).min(terms.end - term);
            let pixel = rows.offset(k) * self.line() + columns.offset(l) * self.sizes.sums;
            let tap = (rows.tap + k * rows.tap_step) * self.kernel[1]
                + columns.tap
                + l * columns.tap_step;
            runs[count] =
                Run { a: pixel + channel, b: (tap * channels + channel) * width, terms: length };
            count += 1;
            term += length;
        }
        &runs[..count]
    }

    #[inline(always)]
    fn spread<S: Simd>(&self, of: Segment, sums: &mut [T]) {
        let columns = &self.sizes.classes[1];
        let window = Window {
            first: sums[of.place * self.sizes.results..].as_mut_ptr(),
            pixel: self.sizes.results,
            start: [0, 0],
            lengths: [of.rows, columns.count],
        };
        let (planes, sample) = &self.results;
        let first = planes.first.wrapping_add(of.sample * sample + of.row * planes.row);
        let valid = [0..of.rows, 0..columns.count];
        // SAFETY: the results have the rows of the segment.
        unsafe { window.spread::<S>(&Planes { first, ..*planes }, &valid) };
    }
}

/// Goes through the places of a block, in order.
struct Places {
    /// Rows that are left of this sample, and columns of this row.
    rows: usize,
    column: usize,
    /// The element that the place sees first.
    at: usize,
    /// From place to place, from row to row, from sample to sample.
    place: usize,
    row: usize,
    sample: usize,
    class: [Class; 2],
}

impl Places {
    #[inline(always)]
    fn new<T: Lane>(of: &Outputs<'_, T>, first: usize) -> Self {
        let [class, columns] = of.sizes.classes;
        let place = columns.place * of.sizes.sums;
        Self {
            rows: class.count - first % class.count,
            column: columns.count,
            at: 0,
            place,
            row: (class.place * of.line()).wrapping_sub(columns.count * place),
            sample: ((class.reach() + 1) * of.line()).wrapping_sub(columns.count * place),
            class: of.sizes.classes,
        }
    }

    /// The first element that the next place sees.
    #[inline(always)]
    fn step(&mut self) -> usize {
        let at = self.at;
        self.at = self.at.wrapping_add(self.place);
        self.column -= 1;
        if self.column == 0 {
            self.column = self.class[1].count;
            self.rows -= 1;
            if self.rows == 0 {
                self.rows = self.class[0].count;
                self.at = self.at.wrapping_add(self.sample);
            } else {
                self.at = self.at.wrapping_add(self.row);
            }
        }
        at
    }
}
