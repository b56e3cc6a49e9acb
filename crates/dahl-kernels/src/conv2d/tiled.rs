//! Convolution as a product of the weights with the patches of the images, which
//! are copied panel by panel and never stored as a whole.
#![expect(unsafe_code, reason = "tiles are read and written through pointers")]

use super::direct::{Direct, Plan};
use super::direct_sample::{Sample, Sink};
use super::patches::{Axis, ByPlace, ByTap, Patches};
use super::pooled::{conv2d_max_pool2d_scratch, forward as pooled_forward};
use super::{Conv2d, Rectify};
use crate::element::float_dispatch;
use crate::gemm::{self, Bias, Finish, Lengths, Matrix, Panels, Tiles};
use crate::pool::Pool2d;
use crate::simd::Lane;
use crate::{Call, DType, Piece, Region, Shape, View};
use std::marker::PhantomData;
use std::ops::Range;

/// [`conv2d`](super::conv2d) in tiles.
pub fn conv2d_gemm(conv: &Conv2d, relu: Rectify, call: &mut Call<'_>) {
    if few(conv, call.piece.out.len(1)) {
        float_dispatch!(call.dtype(0), pooled_forward(conv, None, relu, call));
    } else {
        float_dispatch!(call.dtype(0), forward(conv, relu, call));
    }
}

/// The most rows of a product for which copying patches costs more than it
/// saves. Either way gives the same bits.
const FEW: usize = 16;

fn few(conv: &Conv2d, rows: usize) -> bool {
    conv.groups == 1 && rows <= FEW
}

/// The bytes of scratch that [`conv2d_gemm`] needs for a piece.
pub fn conv2d_gemm_scratch(conv: &Conv2d, weight: &Shape, piece: &Piece, dtype: DType) -> usize {
    let out = &piece.out;
    if few(conv, out.len(1)) {
        return conv2d_max_pool2d_scratch(conv, &Pool2d::tiles([1, 1]), weight, piece, dtype);
    }
    let lengths = Lengths {
        rows: out.len(1),
        columns: out.len(0) * out.len(2) * out.len(3),
        terms: weight[1] * weight[2] * weight[3],
    };
    gemm::scratch_bytes(lengths, dtype)
}

fn forward<T: Lane>(conv: &Conv2d, relu: Rectify, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let b: Option<View<'_, T>> = (ins.len() > 2).then(|| ins.get(2));
    let mut y = outs.take::<T>();
    let (shape, per_group) = (w.shape(), w.shape()[1]);
    let axes = [0, 1].map(|a| forward_axis(conv, a, shape[2 + a]));
    let places = [region.range(2), region.range(3)];
    let terms = per_group * shape[2] * shape[3];
    for (group, filters) in groups(region.range(1), shape[0] / conv.groups) {
        let channels = group * per_group..(group + 1) * per_group;
        let patches = Patches::new(&x, (region.range(0), channels), axes, places.clone());
        let weights = matrix(&w, filters.clone(), terms);
        let bias = b.as_ref().map_or(&[][..], |b| &b.row([filters.start])[..filters.len()]);
        let bias = if bias.is_empty() { Bias::None } else { Bias::Rows(bias) };
        let to = Cells::new(y.raw_mut(&region.with(1, filters.clone())), &region, 1);
        let lengths = Lengths { rows: filters.len(), columns: to.columns(), terms };
        let finish = Finish { bias, rectify: relu };
        // SAFETY: `to` has the filters and places of the piece.
        unsafe { gemm::run(isa, lengths, &weights, &ByPlace(patches), &to, finish, scratch) };
    }
}

/// The taps of an output: its window.
fn forward_axis(conv: &Conv2d, a: usize, taps: usize) -> Axis {
    let (stride, padding, dilation) = conv.axis(a);
    Axis { taps, place: stride, tap: dilation as isize, first: -(padding as isize) }
}

/// The weights of some filters as rows of terms.
fn matrix<'a, T: Lane>(w: &View<'a, T>, filters: Range<usize>, terms: usize) -> Matrix<'a, T> {
    let shape = w.shape();
    let rows = w.run(&Region::full(&shape).with(0, filters)).expect("weights in one piece");
    // SAFETY: rows of `terms` behind each other.
    unsafe { Matrix::new(rows.as_ptr().cast_mut(), terms, 1) }
}

/// The parts of a range of channels that lie in one group each.
fn groups(channels: Range<usize>, per_group: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    (channels.start / per_group..channels.end.div_ceil(per_group)).map(move |group| {
        let from = (group * per_group).max(channels.start);
        (group, from..((group + 1) * per_group).min(channels.end))
    })
}

/// A box as a result: its rows are one axis, its columns three others, each at a
/// fixed distance.
struct Cells<'a, T> {
    first: *mut T,
    row: usize,
    /// Distances of the columns' axes, and their lengths.
    strides: [usize; 3],
    lengths: [usize; 3],
    element: PhantomData<&'a mut T>,
}

impl<T> Cells<'_, T> {
    /// Axis `row` of a box of four is the rows.
    fn new(
        (first, strides): (*mut T, [usize; crate::MAX_AXES]),
        region: &Region,
        row: usize,
    ) -> Self {
        let axes = [usize::from(row == 0), 2 - usize::from(row == 2), 3];
        Self {
            first,
            row: strides[row],
            strides: axes.map(|a| strides[a]),
            lengths: axes.map(|a| region.len(a)),
            element: PhantomData,
        }
    }

    fn columns(&self) -> usize {
        self.lengths.iter().product()
    }
}

impl<T> Tiles<T> for Cells<'_, T> {
    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> (*mut T, usize) {
        let [_, rows, columns] = self.lengths;
        let (line, x) = (column / columns, column % columns);
        let (z, y) = (line / rows, line % rows);
        let [k, i, j] = self.strides;
        let together = match j {
            // Rows lie behind each other too.
            1 if i == columns => (rows - y) * columns - x,
            1 => columns - x,
            _ => 1,
        };
        let together =
            if j == 1 && i == columns && k == rows * columns { usize::MAX } else { together };
        (self.first.wrapping_add(row * self.row + z * k + y * i + x * j), together)
    }

    fn row_stride(&self) -> usize {
        self.row
    }
}

/// [`conv2d_backward_input`](super::conv2d_backward_input) in tiles.
///
/// Pixels that lie alike to the stride see the same taps: each such class is a
/// product of its own, and no product with an inserted zero is taken.
pub fn conv2d_backward_input_gemm(conv: &Conv2d, call: &mut Call<'_>) {
    let shape = call.operands()[1].shape();
    match direct_backward(conv, &shape, &call.piece.out) {
        Some(of) => float_dispatch!(call.dtype(0), backward_input_direct(of, call)),
        None => float_dispatch!(call.dtype(0), backward_input(conv, call)),
    }
}

/// The work on one sample, where there are few channels.
fn direct_backward(conv: &Conv2d, weight: &Shape, out: &Region) -> Option<Direct> {
    if !few(conv, out.len(1)) || out.is_empty() {
        return None;
    }
    let channels = (weight[0], out.len(1));
    Direct::backward(conv, [weight[2], weight[3]], channels, [out.len(2), out.len(3)])
}

fn backward_input_direct<T: Lane>(of: Direct, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    let (ins, mut outs, scratch) = call.split();
    let (gy, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gx = outs.take::<T>();
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

/// The bytes of scratch that [`conv2d_backward_input_gemm`] needs for a piece.
pub fn conv2d_backward_input_gemm_scratch(
    conv: &Conv2d,
    weight: &Shape,
    piece: &Piece,
    dtype: DType,
) -> usize {
    let out = &piece.out;
    if let Some(of) = direct_backward(conv, weight, out) {
        return of.scratch(dtype.size());
    }
    let lengths = Lengths {
        rows: out.len(1).min(weight[1]),
        columns: out.len(0) * out.len(2) * out.len(3),
        terms: weight[0] / conv.groups * weight[2] * weight[3],
    };
    gemm::scratch_bytes(lengths, dtype)
}

/// The pixels of one axis that see the same taps.
#[derive(Clone, Debug)]
struct Class {
    /// The first pixel, and how many there are, a stride apart.
    first: usize,
    pixels: usize,
    /// The first tap, the distance to the next one.
    tap: usize,
    step: usize,
    axis: Axis,
}

/// The classes of pixels of `range` along axis `a` of a kernel of `taps`.
fn classes(
    conv: &Conv2d,
    a: usize,
    range: Range<usize>,
    taps: usize,
) -> impl Iterator<Item = Class> {
    let (stride, padding, dilation) = conv.axis(a);
    // Pixel y sees tap k where y + p − k d is a multiple of s, at that over s.
    let step = stride / gcd(stride, dilation);
    (0..stride.min(range.len())).map(move |r| {
        let first = range.start + r;
        let sees = |k: &usize| (first + padding) % stride == (k * dilation) % stride;
        let tap = (0..step.min(taps)).find(sees);
        let axis = match tap {
            None => Axis { taps: 0, place: 1, tap: 0, first: 0 },
            Some(tap) => {
                let at = (first + padding) as isize - (tap * dilation) as isize;
                Axis {
                    taps: (taps - tap).div_ceil(step),
                    place: 1,
                    tap: -((step * dilation / stride) as isize),
                    first: at.div_euclid(stride as isize),
                }
            }
        };
        let pixels = (range.end - first).div_ceil(stride);
        Class { first, pixels, tap: tap.unwrap_or(0), step, axis }
    })
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn backward_input<T: Lane>(conv: &Conv2d, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (gy, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gx = outs.take::<T>();
    let shape = w.shape();
    let filters = shape[0] / conv.groups;
    for (group, channels) in groups(region.range(1), shape[1]) {
        let (to, strides) = gx.raw_mut(&region.with(1, channels.clone()));
        for rows in classes(conv, 0, region.range(2), shape[2]) {
            for columns in classes(conv, 1, region.range(3), shape[3]) {
                let weights = Transposed {
                    first: w
                        .run(&Region::full(&shape).with(0, group * filters..(group + 1) * filters))
                        .expect("weights in one piece"),
                    channel: channels.start % shape[1],
                    shape: [shape[1], shape[2], shape[3]],
                    taps: [
                        (rows.tap, rows.step, rows.axis.taps),
                        (columns.tap, columns.step, columns.axis.taps),
                    ],
                };
                let axes = [rows.axis, columns.axis];
                let samples = (region.range(0), group * filters..(group + 1) * filters);
                let places = [0..rows.pixels, 0..columns.pixels];
                let patches = Patches::new(&gy, samples, axes, places);
                let [i, j] = [&rows, &columns].map(|c| c.first);
                let offset = (i - region.range(2).start) * strides[2]
                    + (j - region.range(3).start) * strides[3];
                let to = Cells {
                    first: to.wrapping_add(offset),
                    row: strides[1],
                    strides: [strides[0], strides[2] * conv.stride[0], strides[3] * conv.stride[1]],
                    lengths: [region.len(0), rows.pixels, columns.pixels],
                    element: PhantomData,
                };
                let terms = filters * rows.axis.taps * columns.axis.taps;
                let lengths = Lengths { rows: channels.len(), columns: to.columns(), terms };
                let (patches, finish) = (ByPlace(patches), Finish::NOTHING);
                // SAFETY: the result's places are those of the piece.
                unsafe { gemm::run(isa, lengths, &weights, &patches, &to, finish, scratch) };
            }
        }
    }
}

/// Weights with channels as lanes and (filter, tap) as terms, of some taps.
struct Transposed<'a, T> {
    /// The weights of the group's filters.
    first: &'a [T],
    /// The channel of lane 0.
    channel: usize,
    /// Channels, rows and columns of a filter.
    shape: [usize; 3],
    /// First, distance and number of taps, of rows and columns.
    taps: [(usize, usize, usize); 2],
}

impl<T: Lane> Panels<T> for Transposed<'_, T> {
    #[inline(always)]
    fn pack(&self, lanes: Range<usize>, terms: Range<usize>, width: usize, to: &mut [T]) {
        let [channels, kh, kw] = self.shape;
        let [rows, columns] = self.taps;
        let taps = rows.2 * columns.2;
        for (t, term) in terms.enumerate() {
            let (filter, tap) = (term / taps, term % taps);
            let k = rows.0 + tap / columns.2 * rows.1;
            let l = columns.0 + tap % columns.2 * columns.1;
            let first = (filter * channels + self.channel + lanes.start) * kh * kw + k * kw + l;
            for (lane, to) in to[t * width..(t + 1) * width].iter_mut().enumerate() {
                *to = self.first[first + lane.min(lanes.len() - 1) * kh * kw];
            }
        }
    }
}

/// [`conv2d_backward_weight`](super::conv2d_backward_weight) in tiles; the terms
/// are the places of all samples of the piece's sum, in order.
pub fn conv2d_backward_weight_gemm(conv: &Conv2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_weight(conv, call));
}

/// The bytes of scratch that [`conv2d_backward_weight_gemm`] needs for a piece.
pub fn conv2d_backward_weight_gemm_scratch(grad: &Shape, piece: &Piece, dtype: DType) -> usize {
    let out = &piece.out;
    let lengths = Lengths {
        rows: out.len(0),
        columns: out.len(1) * out.len(2) * out.len(3),
        terms: piece.sum.len() * grad[2] * grad[3],
    };
    gemm::scratch_bytes(lengths, dtype)
}

fn backward_weight<T: Lane>(conv: &Conv2d, call: &mut Call<'_>) {
    let (region, samples, isa) = (call.piece.out, call.piece.sum.clone(), call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, gy) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gw = outs.take::<T>();
    let (shape, grads) = (gw.shape(), gy.shape());
    let axes = [0, 1].map(|a| {
        let axis = forward_axis(conv, a, region.len(2 + a));
        let skipped = (region.range(2 + a).start * conv.dilation[a]) as isize;
        Axis { first: axis.first + skipped, ..axis }
    });
    let places = [0..grads[2], 0..grads[3]];
    for (group, filters) in groups(region.range(0), shape[0] / conv.groups) {
        let first = group * shape[1];
        let channels = first + region.range(1).start..first + region.range(1).end;
        let patches = Patches::new(&x, (samples.clone(), channels), axes, places.clone());
        let pixel = Axis { taps: 1, place: 1, tap: 0, first: 0 };
        let operand = (samples.clone(), filters.clone());
        let grads = Patches::new(&gy, operand, [pixel; 2], places.clone());
        let to = Cells::new(gw.raw_mut(&region.with(0, filters.clone())), &region, 0);
        let terms = samples.len() * places[0].len() * places[1].len();
        let lengths = Lengths { rows: filters.len(), columns: to.columns(), terms };
        let (grads, patches) = (ByTap(grads), ByTap(patches));
        // SAFETY: `to` has the filters and taps of the piece.
        unsafe {
            gemm::run(isa, lengths, &grads, &patches, &to, Finish::NOTHING, scratch);
        }
    }
}
