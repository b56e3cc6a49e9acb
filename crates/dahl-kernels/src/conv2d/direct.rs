//! Convolution without copying patches: for few filters, where a patch would be
//! copied more often than it is used. A maximum over windows of the result can be
//! taken on the way, so that the result itself is never stored.
//!
//! # Planes
//! A sample is copied once, padded, and dealt out: with a step of `s` between the
//! places that lie beside each other in the result, row `y` goes to plane `y % s`
//! as its row `y / s`, and columns alike. What any tap sees then lies one behind
//! the other for places beside each other, also across the rows of the result:
//! a vector of places needs one load a tap, whatever stride and window are.
//!
//! # The order of a sum
//! That of [`gemm`](crate::gemm), over (channel, row, column) of the window: both
//! give the same bits.

#![expect(unsafe_code, reason = "planes are read through pointers")]

use super::{Conv2d, Rectify};
use crate::gemm::{BLOCK, LINE, MAX_COLUMNS, ROWS, VECTORS};
use crate::pool::Pool2d;
use crate::simd::{Lane, Simd, Vector, Work};
use crate::{Element, Region, View, ViewMut};
use std::marker::PhantomData;
use std::ops::Range;

/// How a convolution and the windows over its result lie along one axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    /// Places of a window, taps of the kernel.
    window: usize,
    taps: usize,
    /// Rows of the padded image between windows, places and taps.
    step: usize,
    stride: usize,
    dilation: usize,
    padding: usize,
    towards: Towards,
}

/// Whether the taps of a kernel go along with the image or against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Towards {
    /// As in the convolution.
    Along,
    /// As in the gradient of its input.
    Against,
}

impl Axis {
    /// Where place `a` of a window sees tap `k`: its plane and how far behind.
    fn at(&self, a: usize, k: usize) -> (usize, usize) {
        let k = match self.towards {
            Towards::Along => k,
            Towards::Against => self.taps - 1 - k,
        };
        let y = a * self.stride + k * self.dilation;
        (y % self.step, y / self.step)
    }

    /// How many rows a plane has for so many windows.
    fn length(&self, windows: usize) -> usize {
        let last = (self.window - 1) * self.stride + (self.taps - 1) * self.dilation;
        windows + last / self.step
    }
}

/// The shape of the work on one sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direct {
    axes: [Axis; 2],
    channels: usize,
    filters: usize,
    /// Windows, rows then columns.
    windows: [usize; 2],
}

impl Direct {
    /// A convolution of `channels` with kernels of `kernel`, then the largest of
    /// each window of `pool`.
    pub(super) fn new(
        conv: &Conv2d,
        pool: &Pool2d,
        kernel: [usize; 2],
        (channels, filters): (usize, usize),
        windows: [usize; 2],
    ) -> Self {
        let axis = |a: usize| Axis {
            window: pool.kernel[a],
            taps: kernel[a],
            step: pool.stride[a] * conv.stride[a],
            stride: conv.stride[a],
            dilation: conv.dilation[a],
            padding: conv.padding[a],
            towards: Towards::Along,
        };
        Self { axes: [axis(0), axis(1)], channels, filters, windows }
    }

    /// The gradient of the input of a convolution with a stride of 1: a
    /// convolution of its result's gradient with the taps the other way round.
    /// `None` where the padding is more than the kernel reaches.
    pub(super) fn backward(
        conv: &Conv2d,
        kernel: [usize; 2],
        (filters, channels): (usize, usize),
        pixels: [usize; 2],
    ) -> Option<Self> {
        let mut axes = [Axis {
            window: 1,
            taps: 1,
            step: 1,
            stride: 1,
            dilation: 1,
            padding: 0,
            towards: Towards::Against,
        }; 2];
        for (a, axis) in axes.iter_mut().enumerate() {
            let (stride, padding, dilation) = conv.axis(a);
            if stride != 1 {
                return None;
            }
            let padding = (dilation * (kernel[a] - 1)).checked_sub(padding)?;
            *axis = Axis { taps: kernel[a], dilation, padding, ..*axis };
        }
        Some(Self { axes, channels: filters, filters: channels, windows: pixels })
    }

    fn terms(&self) -> usize {
        self.channels * self.axes[0].taps * self.axes[1].taps
    }

    fn window(&self) -> usize {
        self.axes[0].window * self.axes[1].window
    }

    /// Rows and columns of a plane.
    fn plane(&self) -> [usize; 2] {
        [0, 1].map(|a| self.axes[a].length(self.windows[a]))
    }

    /// The elements of all planes, and what a vector may read behind them.
    fn planes(&self) -> usize {
        let [rows, columns] = self.plane();
        self.channels * self.axes[0].step * self.axes[1].step * rows * columns + MAX_COLUMNS
    }

    fn weights(&self) -> usize {
        self.filters.next_multiple_of(ROWS) * self.terms()
    }

    /// The bytes of scratch that [`Plan::new`] needs.
    pub(super) fn scratch(&self, element: usize) -> usize {
        let offsets = self.window() * self.terms() * size_of::<usize>();
        offsets + (self.weights() + self.planes()) * element + 3 * LINE
    }
}

/// The scratch of a convolution: weights in panels, where taps are, the planes.
pub(super) struct Plan<'a, T> {
    of: Direct,
    offsets: &'a [usize],
    weights: &'a [T],
    planes: &'a mut [T],
}

impl<'a, T: Lane> Plan<'a, T> {
    /// `weight(filter, channel, row, column)` is asked for once each.
    pub(super) fn new(of: Direct, weight: impl Fn([usize; 4]) -> T, scratch: &'a mut [u8]) -> Self {
        let (offsets, scratch) = split::<usize>(scratch, of.window() * of.terms());
        let (weights, scratch) = split::<T>(scratch, of.weights());
        let (planes, _) = split::<T>(scratch, of.planes());
        let [rows, columns] = of.axes;
        let [height, width] = of.plane();
        let mut next = offsets.iter_mut();
        for (a, b) in (0..rows.window).flat_map(|a| (0..columns.window).map(move |b| (a, b))) {
            for c in 0..of.channels {
                for (k, l) in (0..rows.taps).flat_map(|k| (0..columns.taps).map(move |l| (k, l))) {
                    let ((p, i), (q, j)) = (rows.at(a, k), columns.at(b, l));
                    let plane = (c * rows.step + p) * columns.step + q;
                    if let Some(offset) = next.next() {
                        *offset = (plane * height + i) * width + j;
                    }
                }
            }
        }
        let terms = of.terms();
        for (panel, to) in weights.chunks_exact_mut(ROWS * terms.max(1)).enumerate() {
            let mut term = 0;
            for c in 0..of.channels {
                for (k, l) in (0..rows.taps).flat_map(|k| (0..columns.taps).map(move |l| (k, l))) {
                    for r in 0..ROWS {
                        let filter = panel * ROWS + r;
                        let inside = filter < of.filters;
                        to[term * ROWS + r] =
                            if inside { weight([filter, c, k, l]) } else { T::ZERO };
                    }
                    term += 1;
                }
            }
        }
        Self { of, offsets, weights, planes }
    }

    /// Deals out the channels of a sample, for windows from `first` on.
    pub(super) fn deal(
        &mut self,
        image: &View<'_, T>,
        sample: usize,
        channels: Range<usize>,
        first: [usize; 2],
    ) {
        let [rows, columns] = self.of.axes;
        let [height, width] = self.of.plane();
        let shape = image.shape();
        let x0 = (first[1] * columns.step) as isize - columns.padding as isize;
        // Columns of the image that are seen at all.
        let seen = x0.max(0) as usize
            ..((x0 + (width * columns.step) as isize).max(0) as usize).min(shape[3]);
        let seen =
            seen.start.min(image.region().range(3).end)..seen.end.min(image.region().range(3).end);
        let seen = seen.start.max(image.region().range(3).start)..seen.end;
        let lines = image.region().range(2);
        for (c, channel) in channels.enumerate() {
            for p in 0..rows.step {
                for i in 0..height {
                    let y = ((first[0] + i) * rows.step + p).wrapping_sub(rows.padding);
                    let line = (lines.contains(&y) && seen.start < seen.end)
                        .then(|| &image.row([sample, channel, y, seen.start])[..seen.len()]);
                    for q in 0..columns.step {
                        let plane = (c * rows.step + p) * columns.step + q;
                        let to = &mut self.planes[(plane * height + i) * width..][..width];
                        let Some(line) = line else {
                            to.fill(T::ZERO);
                            continue;
                        };
                        // Column j of the plane is x = x0 + j step + q.
                        let lead = seen.start as isize - x0 - q as isize;
                        let from = (lead.max(0) as usize).div_ceil(columns.step).min(width);
                        let skip = (x0 + (from * columns.step + q) as isize) - seen.start as isize;
                        let line = &line[(skip.max(0) as usize).min(line.len())..];
                        to[..from].fill(T::ZERO);
                        let count = line.len().div_ceil(columns.step).min(width - from);
                        match columns.step {
                            1 => to[from..][..count].copy_from_slice(&line[..count]),
                            2 => deal_out::<T, 2>(line, &mut to[from..][..count]),
                            step => {
                                for (to, x) in to[from..].iter_mut().zip(line.iter().step_by(step))
                                {
                                    *to = *x;
                                }
                            }
                        }
                        to[from + count..].fill(T::ZERO);
                    }
                }
            }
        }
    }
}

/// Every `K`th element.
fn deal_out<T: Copy, const K: usize>(from: &[T], to: &mut [T]) {
    let (whole, rest) = from.as_chunks::<K>();
    let (most, last) = to.split_at_mut(whole.len().min(to.len()));
    for (to, x) in most.iter_mut().zip(whole) {
        *to = x[0];
    }
    if let (Some(to), Some(x)) = (last.first_mut(), rest.first()) {
        *to = *x;
    }
}

/// The first `count` elements of scratch, from a line of the cache on.
pub(super) fn split<T: bytemuck::Pod>(scratch: &mut [u8], count: usize) -> (&mut [T], &mut [u8]) {
    let skipped = scratch.as_ptr().align_offset(LINE);
    let (bytes, rest) = scratch[skipped..].split_at_mut(count * size_of::<T>());
    (bytemuck::cast_slice_mut(bytes), rest)
}

/// What is done to a sum, and where it goes.
pub(super) struct Sink<'a, T> {
    pub(super) bias: &'a [T],
    pub(super) rectify: Rectify,
    /// Where the sample's windows go.
    y: Maps<'a, T>,
    /// Which place of its window was the largest.
    winner: Option<Maps<'a, u8>>,
}

/// The maps of one sample in a result, rows by rows.
struct Maps<'a, T> {
    first: *mut T,
    /// Distance of filters, and of rows.
    filter: usize,
    row: usize,
    element: PhantomData<&'a mut T>,
}

impl<'a, T: Element> Maps<'a, T> {
    fn new(view: &'a mut ViewMut<'_, T>, region: &Region) -> Self {
        let (first, strides) = view.raw_mut(region);
        assert!(strides[3] == 1 || region.len(3) <= 1, "columns lie behind each other");
        Self { first, filter: strides[1], row: strides[2], element: PhantomData }
    }

    /// # Safety
    /// So many columns from the place on are inside of the region.
    #[inline(always)]
    unsafe fn row(&mut self, filter: usize, [i, j]: [usize; 2], columns: usize) -> &mut [T] {
        // SAFETY: as promised; `&mut self` keeps it the only one.
        unsafe {
            let first = self.first.add(filter * self.filter + i * self.row + j);
            std::slice::from_raw_parts_mut(first, columns)
        }
    }
}

impl<'a, T: Lane> Sink<'a, T> {
    /// For one sample of `region`, whose box is written.
    pub(super) fn new(
        (bias, rectify): (&'a [T], Rectify),
        region: &Region,
        y: &'a mut ViewMut<'_, T>,
        winner: Option<&'a mut ViewMut<'_, u8>>,
    ) -> Self {
        let (y, winner) = (Maps::new(y, region), winner.map(|w| Maps::new(w, region)));
        Self { bias, rectify, y, winner }
    }
}

/// All windows of a sample.
pub(super) struct Sample<'a, 'b, T> {
    pub(super) plan: &'a Plan<'a, T>,
    pub(super) sink: Sink<'b, T>,
}

impl<T: Lane> Work for Sample<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let Self { plan, mut sink } = self;
        let of = plan.of;
        let width = VECTORS * T::Vector::<S>::LANES;
        let pitch = of.plane()[1];
        let [rows, columns] = of.windows;
        let last = (rows - 1) * pitch + columns;
        let panel = ROWS * of.terms();
        let mut results = Results {
            values: [[T::ZERO; MAX_COLUMNS]; ROWS],
            winners: [[T::ZERO; MAX_COLUMNS]; ROWS],
        };
        // The row and column of the next place.
        let (mut i, mut j) = (0, 0);
        for q in (0..last).step_by(width) {
            // The rows that the places of this tile lie in.
            let mut segments = [Segment::default(); MAX_COLUMNS];
            let (mut count, mut lane) = (0, 0);
            while lane < width && i < rows {
                if j < columns {
                    let length = (columns - j).min(width - lane);
                    segments[count] = Segment { lane, at: [i, j], length };
                    count += 1;
                }
                let step = (pitch - j).min(width - lane);
                (lane, j) = (lane + step, j + step);
                if j == pitch {
                    (i, j) = (i + 1, 0);
                }
            }
            for f in (0..of.filters).step_by(ROWS) {
                let filters = (of.filters - f).min(ROWS);
                let tile = Tile {
                    plan,
                    weights: &plan.weights[f / ROWS * panel..][..panel],
                    q,
                    bias: if sink.bias.is_empty() { &[] } else { &sink.bias[f..f + filters] },
                    rectify: sink.rectify,
                };
                match filters {
                    6 => tile.sized::<S, 6>(&mut results),
                    5 => tile.sized::<S, 5>(&mut results),
                    4 => tile.sized::<S, 4>(&mut results),
                    3 => tile.sized::<S, 3>(&mut results),
                    2 => tile.sized::<S, 2>(&mut results),
                    _ => tile.sized::<S, 1>(&mut results),
                }
                for r in 0..filters {
                    sink.store(f + r, &segments[..count], &results, r);
                }
            }
        }
    }
}

/// A part of a row of windows, from a lane of a tile on.
#[derive(Clone, Copy, Default)]
struct Segment {
    lane: usize,
    at: [usize; 2],
    length: usize,
}

/// Two vectors of windows of some filters.
struct Results<T> {
    values: [[T; MAX_COLUMNS]; ROWS],
    winners: [[T; MAX_COLUMNS]; ROWS],
}

impl<T: Lane> Sink<'_, T> {
    /// Stores row `r` of the results.
    #[inline(always)]
    fn store(&mut self, filter: usize, segments: &[Segment], results: &Results<T>, r: usize) {
        for &Segment { lane, at, length } in segments {
            // SAFETY: a segment is a part of a row of windows, which the result
            // has for every filter.
            let to = unsafe { self.y.row(filter, at, length) };
            to.copy_from_slice(&results.values[r][lane..][..length]);
            if let Some(winner) = &mut self.winner {
                // SAFETY: as above.
                let to = unsafe { winner.row(filter, at, length) };
                for (to, w) in to.iter_mut().zip(&results.winners[r][lane..][..length]) {
                    *to = w.to_byte();
                }
            }
        }
    }
}

/// Two vectors of windows by some filters.
struct Tile<'a, T> {
    plan: &'a Plan<'a, T>,
    weights: &'a [T],
    q: usize,
    bias: &'a [T],
    rectify: Rectify,
}

impl<T: Lane> Tile<'_, T> {
    #[inline(always)]
    fn sized<S: Simd, const R: usize>(&self, results: &mut Results<T>) {
        let lanes = T::Vector::<S>::LANES;
        let (terms, window) = (self.plan.of.terms(), self.plan.of.window());
        let mut best = [[T::Vector::<S>::splat(T::NEG_INFINITY); VECTORS]; R];
        let mut winner = [[T::Vector::<S>::zero(); VECTORS]; R];
        for place in 0..window {
            let offsets = &self.plan.offsets[place * terms..][..terms];
            let mut sums = self.block::<S, R>(0, &offsets[..terms.min(BLOCK)]);
            for first in (BLOCK..terms).step_by(BLOCK) {
                let more = self.block::<S, R>(first, &offsets[first..(first + BLOCK).min(terms)]);
                for (sum, more) in sums.iter_mut().flatten().zip(more.into_iter().flatten()) {
                    *sum = sum.add(more);
                }
            }
            let here = T::Vector::<S>::splat(T::from_f64(place as f64));
            for (r, row) in sums.iter_mut().enumerate() {
                for (v, sum) in row.iter_mut().enumerate() {
                    if let Some(&bias) = self.bias.get(r) {
                        *sum = sum.add(T::Vector::<S>::splat(bias));
                    }
                    if window == 1 {
                        best[r][v] = *sum;
                    } else {
                        (best[r][v], winner[r][v]) =
                            T::Vector::<S>::better((best[r][v], winner[r][v]), (*sum, here));
                    }
                }
            }
        }
        for r in 0..R {
            for v in 0..VECTORS {
                let value = match self.rectify {
                    Rectify::No => best[r][v],
                    Rectify::Relu => best[r][v].relu(),
                };
                // SAFETY: a row of the results has room for two vectors.
                unsafe {
                    value.store(results.values[r].as_mut_ptr().add(v * lanes));
                    if window > 1 {
                        winner[r][v].store(results.winners[r].as_mut_ptr().add(v * lanes));
                    }
                }
            }
        }
    }

    /// The sum of some terms, from zero.
    #[inline(always)]
    fn block<S: Simd, const R: usize>(
        &self,
        first: usize,
        offsets: &[usize],
    ) -> [[T::Vector<S>; VECTORS]; R] {
        let lanes = T::Vector::<S>::LANES;
        let mut sums = [[T::Vector::<S>::zero(); VECTORS]; R];
        let weights = &self.weights[first * ROWS..][..offsets.len() * ROWS];
        let planes = self.plan.planes.as_ptr();
        for (t, &offset) in offsets.iter().enumerate() {
            // SAFETY: an offset and a place of a window are inside of the
            // planes, which are followed by two vectors of room; the weights
            // have `ROWS` elements a term.
            unsafe {
                let from = planes.add(offset + self.q);
                let columns: [T::Vector<S>; VECTORS] =
                    std::array::from_fn(|v| T::Vector::<S>::load(from.add(v * lanes)));
                for (r, row) in sums.iter_mut().enumerate() {
                    let x = T::Vector::<S>::splat(*weights.as_ptr().add(t * ROWS + r));
                    for (sum, &column) in row.iter_mut().zip(&columns) {
                        *sum = x.mul_add(column, *sum);
                    }
                }
            }
        }
        sums
    }
}
