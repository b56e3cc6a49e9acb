//! The gradient of weights: a product over tiles at every point.

use super::form::{
    Axis, F2, F4, Form, Gradients, OUTPUTS, POINTS, Pixels, TAPS, TapGradients, both, load, store,
};
use super::panel_columns;
use crate::conv2d::layout::{Planes, Window};
use crate::conv2d::{ALIGN, Conv2d};
use crate::element::float_dispatch;
use crate::gemm::{self, LINE, Lengths};
use crate::simd::{Lane, MAX_LANES, Simd, Vector, Work};
use crate::{Call, DType, Piece, Region, Shape};
use std::ops::Range;

/// How many tiles are summed before the sum is added to the result; they are
/// counted from the first sample of the sum.
const BLOCK: usize = 128;

/// Vectors of channels that lie together: a multiple of the rows of a product's
/// tile whatever the vector.
const TOGETHER: usize = 3;
/// Channels are padded to a multiple of it.
const CHANNELS: usize = TOGETHER * MAX_LANES;
/// Elements of a window, about.
const WINDOW: usize = 16 << 10;

/// The gradient of w \[O, C, 3, 3\] of a convolution of stride 1. Inputs x, g'.
pub fn conv2d_winograd_backward_weight(form: Form, conv: &Conv2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward(form, conv, call));
}

/// The bytes of scratch that [`conv2d_winograd_backward_weight`] needs.
pub fn conv2d_winograd_backward_weight_scratch(
    form: Form,
    grad: &Shape,
    piece: &Piece,
    dtype: DType,
) -> usize {
    Sizes::new(form, grad, &piece.out).elements() * dtype.size() + LINE
}

/// The lengths of everything that a piece needs.
#[derive(Clone, Copy)]
struct Sizes {
    form: Form,
    /// Channels and filters, padded to whole groups and panels.
    channels: usize,
    filters: usize,
    /// Rows of tiles of a sample, tiles of a row.
    rows: usize,
    tiles: usize,
    /// Rows of tiles in a window.
    strip: usize,
}

impl Sizes {
    fn new(form: Form, grad: &Shape, out: &Region) -> Self {
        let [rows, tiles] = [2, 3].map(|a| grad[a].div_ceil(form.outputs()));
        let (channels, filters) =
            (out.len(1).next_multiple_of(CHANNELS), out.len(0).next_multiple_of(ALIGN));
        let row = (form.outputs() * tiles + 2) * channels.max(filters) * form.outputs();
        Self {
            form,
            channels,
            filters,
            rows,
            tiles,
            strip: (WINDOW / row.max(1)).clamp(1, rows.max(1)),
        }
    }

    fn window(&self) -> usize {
        let side = |tiles: usize| tiles * self.form.outputs() + 2;
        side(self.strip) * side(self.tiles) * self.channels.max(self.filters)
    }

    /// The distance of points, not a multiple of a page.
    fn points(&self, channels: usize) -> usize {
        BLOCK * channels + MAX_LANES
    }

    fn sums(&self) -> usize {
        self.channels * self.filters + MAX_LANES
    }

    fn elements(&self) -> usize {
        let points = self.points(self.channels) + self.points(self.filters) + self.sums();
        self.window() + self.form.products() * points
    }
}

fn backward<T: Lane>(form: Form, conv: &Conv2d, call: &mut Call<'_>) {
    let (region, samples, isa) = (call.piece.out, call.piece.sum.clone(), call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, gy) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gw = outs.take::<T>();
    let (image, grad) = (x.shape(), gy.shape());
    let sizes = Sizes::new(form, &grad, &region);
    let skipped = scratch.as_ptr().align_offset(LINE);
    let bytes = sizes.elements() * size_of::<T>();
    let scratch: &mut [T] = bytemuck::cast_slice_mut(&mut scratch[skipped..][..bytes]);
    let planes = |(first, strides): (*const T, [usize; crate::MAX_AXES]), channels| {
        let planes = Planes {
            first: first.cast_mut(),
            channels,
            channel: strides[1],
            row: strides[2],
            column: 1,
        };
        (planes, strides[0])
    };
    let whole = |shape: &Shape, channels: Range<usize>| {
        Region::full(shape).with(0, samples.clone()).with(1, channels)
    };
    let (to, strides) = gw.raw_mut(&region);
    let [rows, columns] = [region.range(2), region.range(3)];
    let gradient = Gradient {
        sizes,
        padding: conv.padding.map(|p| p as isize),
        samples: samples.len(),
        inputs: planes(x.raw(&whole(&image, region.range(1))), region.len(1)),
        image: [0..image[2], 0..image[3]],
        grads: planes(gy.raw(&whole(&grad, region.range(0))), region.len(0)),
        grad: [0..grad[2], 0..grad[3]],
        scratch,
        write: |filter: usize, channel: usize, values: &[T; TAPS * TAPS]| {
            let to = to.wrapping_add(filter * strides[0] + channel * strides[1]);
            for (i, k) in rows.clone().enumerate() {
                for (j, l) in columns.clone().enumerate() {
                    // SAFETY: an element of the piece.
                    unsafe { *to.add(i * strides[2] + j * strides[3]) = values[k * TAPS + l] };
                }
            }
        },
    };
    isa.run(gradient);
}

struct Gradient<'a, T, W> {
    sizes: Sizes,
    padding: [isize; 2],
    samples: usize,
    /// Planes of the first sample, and the distance of samples.
    inputs: (Planes<T>, usize),
    image: [Range<usize>; 2],
    grads: (Planes<T>, usize),
    grad: [Range<usize>; 2],
    scratch: &'a mut [T],
    /// Takes the taps between a filter and a channel.
    write: W,
}

/// The scratch in parts.
struct Parts<'a, T> {
    window: &'a mut [T],
    pixels: &'a mut [T],
    grads: &'a mut [T],
    sums: &'a mut [T],
}

impl<T: Lane, W: FnMut(usize, usize, &[T; TAPS * TAPS])> Work for Gradient<'_, T, W> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        match self.sizes.form {
            Form::F2 => self.form::<S, F2>(),
            Form::F4 => self.form::<S, F4>(),
        }
    }
}

impl<T: Lane, W: FnMut(usize, usize, &[T; TAPS * TAPS])> Gradient<'_, T, W> {
    #[inline(always)]
    fn form<S: Simd, F: Axis>(mut self) {
        let sizes = self.sizes;
        let products = sizes.form.products();
        let scratch = std::mem::take(&mut self.scratch);
        let (window, rest) = scratch.split_at_mut(sizes.window());
        let (pixels, rest) = rest.split_at_mut(products * sizes.points(sizes.channels));
        let (grads, sums) = rest.split_at_mut(products * sizes.points(sizes.filters));
        let mut parts = Parts { window, pixels, grads, sums };
        let (mut tiles, mut blocks) = (0, 0);
        for sample in 0..self.samples {
            for row in (0..sizes.rows).step_by(sizes.strip) {
                let rows = (sizes.rows - row).min(sizes.strip);
                let count = rows * sizes.tiles;
                let mut done = 0;
                // A strip may fill more than one block.
                while done < count {
                    let part = (count - done).min(BLOCK - tiles);
                    let range = done..done + part;
                    self.read::<S, F>((sample, row, rows), range.clone(), tiles, &mut parts);
                    self.read_grads::<S, F>((sample, row, rows), range, tiles, &mut parts);
                    (done, tiles) = (done + part, tiles + part);
                    if tiles == BLOCK {
                        self.add::<S>(tiles, blocks == 0, &mut parts);
                        (tiles, blocks) = (0, blocks + 1);
                    }
                }
            }
        }
        if tiles > 0 || blocks == 0 {
            self.add::<S>(tiles, blocks == 0, &mut parts);
        }
        self.finish::<S, F>(&parts);
    }

    /// Transforms the pixels of some tiles of a strip; the first becomes tile
    /// `to` of the block.
    #[inline(always)]
    fn read<S: Simd, F: Axis>(
        &self,
        (sample, row, rows): (usize, usize, usize),
        tiles: Range<usize>,
        to: usize,
        parts: &mut Parts<'_, T>,
    ) {
        let (sizes, lanes) = (&self.sizes, T::Vector::<S>::LANES);
        let window = Window {
            first: parts.window.as_mut_ptr(),
            pixel: sizes.channels,
            start: [(row * F::OUTPUTS) as isize - self.padding[0], -self.padding[1]],
            lengths: [rows * F::OUTPUTS + 2, sizes.tiles * F::OUTPUTS + 2],
        };
        let (planes, stride) = self.inputs;
        let planes = Planes { first: planes.first.wrapping_add(sample * stride), ..planes };
        let line = window.lengths[1] * window.pixel;
        let together = TOGETHER * lanes;
        let (point, points) = (sizes.points(sizes.channels), parts.pixels.as_mut_ptr());
        // SAFETY: the window has room for a strip, `points` for a block.
        unsafe {
            window.fill::<S>(&planes, &self.image);
            for (n, tile) in tiles.enumerate() {
                let (i, j) = (tile / sizes.tiles * F::OUTPUTS, tile % sizes.tiles * F::OUTPUTS);
                let from = window.first.add(i * line + j * window.pixel);
                for c in (0..planes.channels).step_by(lanes) {
                    let square: [[T::Vector<S>; POINTS]; POINTS] =
                        load(F::POINTS, |i, j| from.add(i * line + j * window.pixel + c));
                    let made = both::<Pixels<F>, _, POINTS, POINTS>([F::POINTS, F::POINTS], square);
                    let at = c / together * together * BLOCK + (to + n) * together + c % together;
                    store(F::POINTS, made, |i, j| points.add((i * F::POINTS + j) * point + at));
                }
            }
        }
    }

    /// Transforms the gradients of the same tiles.
    #[inline(always)]
    fn read_grads<S: Simd, F: Axis>(
        &self,
        (sample, row, rows): (usize, usize, usize),
        tiles: Range<usize>,
        to: usize,
        parts: &mut Parts<'_, T>,
    ) {
        let (sizes, lanes) = (&self.sizes, T::Vector::<S>::LANES);
        let window = Window {
            first: parts.window.as_mut_ptr(),
            pixel: sizes.filters,
            start: [(row * F::OUTPUTS) as isize, 0],
            lengths: [rows * F::OUTPUTS, sizes.tiles * F::OUTPUTS],
        };
        let (planes, stride) = self.grads;
        let planes = Planes { first: planes.first.wrapping_add(sample * stride), ..planes };
        let line = window.lengths[1] * window.pixel;
        let width = panel_columns::<S, T>();
        let (point, points) = (sizes.points(sizes.filters), parts.grads.as_mut_ptr());
        // SAFETY: as in `read`.
        unsafe {
            window.fill::<S>(&planes, &self.grad);
            for (n, tile) in tiles.enumerate() {
                let (i, j) = (tile / sizes.tiles * F::OUTPUTS, tile % sizes.tiles * F::OUTPUTS);
                let from = window.first.add(i * line + j * window.pixel);
                for o in (0..planes.channels.next_multiple_of(width)).step_by(lanes) {
                    // Filters that are missing fill the last panel with zeros.
                    let side = if o < planes.channels { F::OUTPUTS } else { 0 };
                    let square: [[T::Vector<S>; OUTPUTS]; OUTPUTS] =
                        load(side, |i, j| from.add(i * line + j * window.pixel + o));
                    let made =
                        both::<Gradients<F>, _, OUTPUTS, POINTS>([F::OUTPUTS, F::POINTS], square);
                    let at = o / width * width * BLOCK + (to + n) * width + o % width;
                    store(F::POINTS, made, |i, j| points.add((i * F::POINTS + j) * point + at));
                }
            }
        }
    }

    /// Adds the products of a block of tiles.
    #[inline(always)]
    fn add<S: Simd>(&self, tiles: usize, first: bool, parts: &mut Parts<'_, T>) {
        let sizes = &self.sizes;
        let (width, together) = (panel_columns::<S, T>(), TOGETHER * T::Vector::<S>::LANES);
        let (channels, filters) = (self.inputs.0.channels, self.grads.0.channels);
        for p in 0..sizes.form.products() {
            let pixels = parts.pixels[p * sizes.points(sizes.channels)..].as_ptr();
            let grads = parts.grads[p * sizes.points(sizes.filters)..].as_ptr();
            let sums = parts.sums[p * sizes.sums()..].as_mut_ptr();
            for c in (0..channels).step_by(together) {
                let a = (pixels.wrapping_add(c * BLOCK), 1, together);
                let rows = (channels - c).min(together);
                let lengths = Lengths { rows, columns: filters, terms: tiles };
                let to = sums.wrapping_add(c * sizes.filters);
                // SAFETY: all are padded to whole groups and panels.
                unsafe {
                    gemm::product_in_place::<S, T>(
                        lengths,
                        a,
                        (grads, width * BLOCK),
                        (to, sizes.filters),
                        first,
                    );
                }
            }
        }
    }

    /// Gᵀ u G of every filter and channel.
    #[inline(always)]
    fn finish<S: Simd, F: Axis>(&mut self, parts: &Parts<'_, T>) {
        let (sizes, lanes) = (&self.sizes, T::Vector::<S>::LANES);
        let (channels, filters) = (self.inputs.0.channels, self.grads.0.channels);
        let mut lines = [T::ZERO; TAPS * TAPS * MAX_LANES];
        for o in (0..filters).step_by(lanes) {
            for c in 0..channels {
                let at = |i: usize, j: usize| {
                    let at = (i * F::POINTS + j) * sizes.sums() + c * sizes.filters + o;
                    parts.sums[at..at + lanes].as_ptr()
                };
                // SAFETY: filters are padded to panels.
                let square: [[T::Vector<S>; POINTS]; POINTS] = unsafe { load(F::POINTS, at) };
                let taps = both::<TapGradients<F>, _, POINTS, TAPS>([F::POINTS, TAPS], square);
                for (tap, value) in taps.iter().flatten().enumerate() {
                    // SAFETY: a vector of the array.
                    unsafe { value.store(lines[tap * lanes..(tap + 1) * lanes].as_mut_ptr()) };
                }
                for lane in 0..lanes.min(filters - o) {
                    let taps: [T; TAPS * TAPS] = std::array::from_fn(|t| lines[t * lanes + lane]);
                    (self.write)(o + lane, c, &taps);
                }
            }
        }
    }
}
