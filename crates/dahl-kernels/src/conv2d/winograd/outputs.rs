//! Outputs, and gradients of inputs, from transformed weights.

use super::form::{Axis, F2, F4, Form, OUTPUTS, POINTS, Pixels, Results, both, load, store};
use super::panel_columns;
use crate::conv2d::layout::{Planes, Window};
use crate::conv2d::{ALIGN, Rectify};
use crate::element::float_dispatch;
use crate::gemm::{self, BLOCK, LINE, Lengths};
use crate::simd::{Lane, MAX_LANES, Simd, Vector, Work};
use crate::{Call, DType, Piece, Region};
use std::ops::Range;

/// Tiles that are transformed at once, about: as many as keep the points of a
/// product in the second cache while weights come from further away.
const TILES: usize = 96;

/// A convolution of stride 1 from transformed weights. Inputs x \[N, C, H, W\],
/// points of w, and maybe b; `padding` is what the window reaches over the first
/// row and column, less than 0 where it begins inside.
pub fn conv2d_winograd(form: Form, padding: [isize; 2], rectify: Rectify, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), outputs(form, padding, rectify, call));
}

/// The bytes of scratch that [`conv2d_winograd`] needs for a piece.
pub fn conv2d_winograd_scratch(form: Form, channels: usize, piece: &Piece, dtype: DType) -> usize {
    let sizes = Sizes::new(form, channels, &piece.out);
    sizes.elements() * dtype.size() + LINE
}

/// The lengths of everything that a piece needs.
#[derive(Clone, Copy)]
struct Sizes {
    form: Form,
    /// Channels that are summed over, padded to vectors, and of the result,
    /// padded to panels.
    sums: usize,
    results: usize,
    /// Tiles of a row, and rows of tiles of a sample.
    tiles: usize,
    rows: usize,
    /// Rows of tiles at once.
    block: usize,
}

impl Sizes {
    fn new(form: Form, channels: usize, out: &Region) -> Self {
        let [rows, tiles] = [2, 3].map(|a| {
            let range = out.range(a);
            range.end.div_ceil(form.outputs()) - range.start / form.outputs()
        });
        let block = (TILES / tiles.max(1)).clamp(1, (rows * out.len(0)).max(1));
        Self {
            form,
            sums: channels.next_multiple_of(MAX_LANES),
            results: out.len(1).next_multiple_of(ALIGN),
            tiles,
            rows,
            block,
        }
    }

    /// Elements of a window: of inputs, or of outputs.
    fn window(&self) -> usize {
        let side = |tiles: usize| tiles * self.form.outputs() + 2;
        side(self.block) * side(self.tiles) * self.sums.max(self.results)
    }

    /// The distance of points: not a multiple of a page, so that the points of
    /// a tile do not meet in the same lines of a cache.
    fn points(&self, channels: usize) -> usize {
        self.block * self.tiles * channels + MAX_LANES
    }

    fn elements(&self) -> usize {
        let products = self.form.products();
        self.window()
            + products * (self.points(self.sums) + self.points(self.results))
            + self.results
    }
}

fn outputs<T: Lane>(form: Form, padding: [isize; 2], rectify: Rectify, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, u) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut y = outs.take::<T>();
    let (image, weights) = (x.shape(), u.shape());
    assert!(region.starts()[1].is_multiple_of(ALIGN), "a piece begins with a panel");
    assert!(
        [2, 3].iter().all(|&a| region.starts()[a].is_multiple_of(form.outputs())),
        "a piece begins with a tile"
    );
    let sizes = Sizes::new(form, image[1], &region);
    let skipped = scratch.as_ptr().align_offset(LINE);
    let bytes = sizes.elements() * size_of::<T>();
    let scratch: &mut [T] = bytemuck::cast_slice_mut(&mut scratch[skipped..][..bytes]);
    let (scratch, bias) = scratch.split_at_mut(sizes.elements() - sizes.results);
    bias.fill(T::ZERO);
    if ins.len() > 2 {
        let given = ins.get::<T>(2);
        bias[..region.len(1)].copy_from_slice(&given.row([region.range(1).start])[..region.len(1)]);
    }
    // What is read of the image.
    let reach = |a: usize| {
        let range = region.range(2 + a);
        let at = |i: isize| (i - padding[a]).clamp(0, image[2 + a] as isize) as usize;
        at(range.start as isize)..at(range.end as isize + 2)
    };
    let reach = [reach(0), reach(1)];
    let read = Region::new(&[region.range(0), 0..image[1], reach[0].clone(), reach[1].clone()]);
    let (from, strides) = x.raw(&read);
    let inputs = Images {
        planes: Planes {
            first: from.cast_mut(),
            channels: image[1],
            channel: strides[1],
            row: strides[2],
            column: 1,
        },
        sample: strides[0],
        valid: reach,
    };
    let (to, strides) = y.raw_mut(&region);
    let results = Images {
        planes: Planes {
            first: to,
            channels: region.len(1),
            channel: strides[1],
            row: strides[2],
            column: 1,
        },
        sample: strides[0],
        valid: [region.range(2), region.range(3)],
    };
    let first = region.range(1).start;
    let panels = Region::full(&weights).with(0, first..first + sizes.results);
    let panels = u.run(&panels).expect("panels behind each other");
    isa.run(Outputs {
        sizes,
        padding,
        rectify,
        samples: region.len(0),
        inputs,
        results,
        weights: panels,
        bias,
        scratch,
    });
}

/// Images of some samples.
struct Images<T> {
    /// Those of the first sample.
    planes: Planes<T>,
    /// The distance of samples.
    sample: usize,
    /// The rows and columns that are there.
    valid: [Range<usize>; 2],
}

impl<T> Images<T> {
    #[inline(always)]
    fn sample(&self, i: usize) -> Planes<T>
    where
        T: Copy,
    {
        Planes { first: self.planes.first.wrapping_add(i * self.sample), ..self.planes }
    }
}

struct Outputs<'a, T> {
    sizes: Sizes,
    padding: [isize; 2],
    rectify: Rectify,
    samples: usize,
    inputs: Images<T>,
    results: Images<T>,
    /// Panels of the results, each with the terms of every point.
    weights: &'a [T],
    bias: &'a [T],
    scratch: &'a mut [T],
}

impl<T: Lane> Work for Outputs<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        match self.sizes.form {
            Form::F2 => self.form::<S, F2>(),
            Form::F4 => self.form::<S, F4>(),
        }
    }
}

impl<T: Lane> Outputs<'_, T> {
    #[inline(always)]
    fn form<S: Simd, F: Axis>(mut self) {
        let sizes = self.sizes;
        let products = sizes.form.products();
        let scratch = std::mem::take(&mut self.scratch);
        let (window, points) = scratch.split_at_mut(sizes.window());
        let (read, made) = points.split_at_mut(products * sizes.points(sizes.sums));
        let total = self.samples * sizes.rows;
        for first in (0..total).step_by(sizes.block) {
            let rows = first..(first + sizes.block).min(total);
            self.segments(rows.clone(), |sample, row, rows, tile| {
                self.read::<S, F>(sample, row, rows, window, &mut read[tile * sizes.sums..]);
            });
            self.products::<S>(rows.len() * sizes.tiles, read, made);
            self.segments(rows, |sample, row, rows, tile| {
                self.write::<S, F>(sample, row, rows, window, &made[tile * sizes.results..]);
            });
        }
    }

    /// Calls `body` with the rows of tiles that are of one sample: sample, first
    /// row, rows, first tile of the block.
    #[inline(always)]
    fn segments(&self, rows: Range<usize>, mut body: impl FnMut(usize, usize, usize, usize)) {
        let mut at = rows.start;
        while at < rows.end {
            let (sample, row) = (at / self.sizes.rows, at % self.sizes.rows);
            let count = (self.sizes.rows - row).min(rows.end - at);
            body(sample, row, count, (at - rows.start) * self.sizes.tiles);
            at += count;
        }
    }

    /// Where a row of tiles begins in the result.
    #[inline(always)]
    fn corner(&self, row: usize) -> [isize; 2] {
        let valid = &self.results.valid;
        let outputs = self.sizes.form.outputs();
        [(valid[0].start + row * outputs) as isize, valid[1].start as isize]
    }

    /// Transforms the pixels of some rows of tiles.
    #[inline(always)]
    fn read<S: Simd, F: Axis>(
        &self,
        sample: usize,
        row: usize,
        rows: usize,
        window: &mut [T],
        points: &mut [T],
    ) {
        let (sizes, lanes) = (&self.sizes, T::Vector::<S>::LANES);
        let [i, j] = self.corner(row);
        let window = Window {
            first: window.as_mut_ptr(),
            pixel: sizes.sums,
            start: [i - self.padding[0], j - self.padding[1]],
            lengths: [rows * F::OUTPUTS + 2, sizes.tiles * F::OUTPUTS + 2],
        };
        let line = window.lengths[1] * window.pixel;
        let channels = self.inputs.planes.channels;
        let (point, to) = (sizes.points(sizes.sums), points.as_mut_ptr());
        // SAFETY: the window has room for so many rows of tiles, `points` for
        // their tiles.
        unsafe {
            window.fill::<S>(&self.inputs.sample(sample), &self.inputs.valid);
            for tile in 0..rows * sizes.tiles {
                let (i, j) = (tile / sizes.tiles * F::OUTPUTS, tile % sizes.tiles * F::OUTPUTS);
                let from = window.first.add(i * line + j * window.pixel);
                for c in (0..channels).step_by(lanes) {
                    let pixels: [[T::Vector<S>; POINTS]; POINTS] =
                        load(F::POINTS, |i, j| from.add(i * line + j * window.pixel + c));
                    let made = both::<Pixels<F>, _, POINTS, POINTS>([F::POINTS, F::POINTS], pixels);
                    let at = tile * sizes.sums + c;
                    store(F::POINTS, made, |i, j| to.add((i * F::POINTS + j) * point + at));
                }
            }
        }
    }

    /// The product of every point.
    #[inline(always)]
    fn products<S: Simd>(&self, tiles: usize, read: &[T], made: &mut [T]) {
        let sizes = &self.sizes;
        let sums = self.inputs.planes.channels;
        let width = panel_columns::<S, T>();
        let columns = self.results.planes.channels;
        for p in 0..sizes.form.products() {
            let to = made[p * sizes.points(sizes.results)..].as_mut_ptr();
            let from = read[p * sizes.points(sizes.sums)..].as_ptr();
            let weights = self.weights[p * width * sums..].as_ptr();
            for block in (0..sums.max(1)).step_by(BLOCK) {
                let terms = (sums - block).min(BLOCK);
                let a = (from.wrapping_add(block), sizes.sums, 1);
                let b = weights.wrapping_add(block * width);
                let lengths = Lengths { rows: tiles, columns, terms };
                // SAFETY: all have room for the tiles of a block.
                unsafe {
                    gemm::product_in_place::<S, T>(
                        lengths,
                        a,
                        (b, width * sums * sizes.form.products()),
                        (to, sizes.results),
                        block == 0,
                    );
                }
            }
        }
    }

    /// Transforms the points of some rows of tiles to results.
    #[inline(always)]
    fn write<S: Simd, F: Axis>(
        &self,
        sample: usize,
        row: usize,
        rows: usize,
        window: &mut [T],
        points: &[T],
    ) {
        let (sizes, lanes) = (&self.sizes, T::Vector::<S>::LANES);
        let window = Window {
            first: window.as_mut_ptr(),
            pixel: sizes.results,
            start: self.corner(row),
            lengths: [rows * F::OUTPUTS, sizes.tiles * F::OUTPUTS],
        };
        let line = window.lengths[1] * window.pixel;
        let channels = self.results.planes.channels;
        let (point, from) = (sizes.points(sizes.results), points.as_ptr());
        // SAFETY: as in `read`.
        unsafe {
            for tile in 0..rows * sizes.tiles {
                let (i, j) = (tile / sizes.tiles * F::OUTPUTS, tile % sizes.tiles * F::OUTPUTS);
                let to = window.first.add(i * line + j * window.pixel);
                for c in (0..channels).step_by(lanes) {
                    let at = tile * sizes.results + c;
                    let square: [[T::Vector<S>; POINTS]; POINTS] =
                        load(F::POINTS, |i, j| from.add((i * F::POINTS + j) * point + at));
                    let mut made =
                        both::<Results<F>, _, POINTS, OUTPUTS>([F::POINTS, F::OUTPUTS], square);
                    let bias = T::Vector::<S>::load(self.bias[c..c + lanes].as_ptr());
                    for sum in made.iter_mut().flatten() {
                        *sum = self.rectified::<S>(sum.add(bias));
                    }
                    store(F::OUTPUTS, made, |i, j| to.add(i * line + j * window.pixel + c));
                }
            }
            window.spread::<S>(&self.results.sample(sample), &self.results.valid);
        }
    }

    #[inline(always)]
    fn rectified<S: Simd>(&self, sum: T::Vector<S>) -> T::Vector<S> {
        match self.rectify {
            Rectify::No => sum,
            Rectify::Relu => sum.relu(),
        }
    }
}
