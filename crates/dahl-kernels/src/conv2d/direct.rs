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
//! As in [`gemm`](crate::gemm) in blocks, over (channel, row, column) of the window.

#![expect(unsafe_code, reason = "vectors are read and written through pointers")]

use super::Conv2d;
use crate::View;
use crate::gemm::{LINE, ROWS};
use crate::pool::Pool2d;
use crate::simd::{Isa, Lane, Simd, Vector, Work};
use std::ops::Range;

/// The places of the widest tile, over all instruction sets and elements.
const WIDEST: usize = 64;
/// The places of a band of windows, beside each other: so that the results of a
/// panel of filters stay in the first cache.
const BAND: usize = 512;

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

    pub(super) fn terms(&self) -> usize {
        self.channels * self.axes[0].taps * self.axes[1].taps
    }

    /// Places of a window.
    pub(super) fn window(&self) -> usize {
        self.axes[0].window * self.axes[1].window
    }

    /// Windows, rows then columns.
    pub(super) fn windows(&self) -> [usize; 2] {
        self.windows
    }

    /// Rows and columns of a plane.
    pub(super) fn plane(&self) -> [usize; 2] {
        [0, 1].map(|a| self.axes[a].length(self.windows[a]))
    }

    /// The elements of all planes, and what a vector may read behind them.
    fn planes(&self) -> usize {
        let [rows, columns] = self.plane();
        self.channels * self.axes[0].step * self.axes[1].step * rows * columns + WIDEST
    }

    fn weights(&self) -> usize {
        self.filters.next_multiple_of(ROWS) * self.terms()
    }

    /// How many panels the filters are cut into, of about the same size.
    pub(super) fn panels(&self) -> usize {
        self.filters.div_ceil(ROWS)
    }

    /// The filters of a panel.
    pub(super) fn panel(&self, panel: usize) -> Range<usize> {
        let first = |panel: usize| panel * self.filters / self.panels();
        first(panel)..first(panel + 1)
    }

    /// Rows of windows in a band.
    pub(super) fn band(&self) -> usize {
        (BAND / self.plane()[1].max(1)).clamp(1, self.windows[0].max(1))
    }

    /// The results of a filter in a band, in whole tiles.
    pub(super) fn results(&self) -> usize {
        self.band() * self.plane()[1] + WIDEST
    }

    /// A row of the image, as far as the planes reach.
    fn line(&self) -> usize {
        self.plane()[1] * self.axes[1].step
    }

    /// The bytes of scratch that [`Plan::new`] needs.
    pub(super) fn scratch(&self, element: usize) -> usize {
        let offsets = self.window() * self.terms() * size_of::<usize>();
        let results = ROWS * self.results() * (element + size_of::<u8>());
        let elements = self.weights() + self.planes() + self.line();
        offsets + results + elements * element + 6 * LINE
    }
}

/// The scratch of a convolution: weights in panels, where taps are, the planes,
/// and the results of a panel of filters.
pub(super) struct Plan<'a, T> {
    pub(super) of: Direct,
    pub(super) offsets: &'a [usize],
    pub(super) weights: &'a [T],
    pub(super) planes: &'a mut [T],
    pub(super) values: &'a mut [T],
    pub(super) winners: &'a mut [u8],
    line: &'a mut [T],
}

impl<'a, T: Lane> Plan<'a, T> {
    /// `weight(filter, channel, row, column)` is asked for once each.
    pub(super) fn new(of: Direct, weight: impl Fn([usize; 4]) -> T, scratch: &'a mut [u8]) -> Self {
        let (offsets, scratch) = split::<usize>(scratch, of.window() * of.terms());
        let (weights, scratch) = split::<T>(scratch, of.weights());
        let (planes, scratch) = split::<T>(scratch, of.planes());
        let (values, scratch) = split::<T>(scratch, ROWS * of.results());
        let (winners, scratch) = split::<u8>(scratch, ROWS * of.results());
        // Where windows have one place, nobody stores which it is.
        winners.fill(0);
        let (line, _) = split::<T>(scratch, of.line());
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
                    for (r, filter) in of.panel(panel).enumerate() {
                        to[term * ROWS + r] = weight([filter, c, k, l]);
                    }
                    term += 1;
                }
            }
        }
        line.fill(T::ZERO);
        Self { of, offsets, weights, planes, values, winners, line }
    }

    /// Deals out the channels of a sample, for windows from `first` on.
    pub(super) fn deal(
        &mut self,
        isa: Isa,
        image: &View<'_, T>,
        sample: usize,
        channels: Range<usize>,
        first: [usize; 2],
    ) {
        isa.run(Deal { plan: self, image, sample, channels, first });
    }
}

/// A sample, dealt out.
struct Deal<'a, 'b, 'c, T> {
    plan: &'a mut Plan<'b, T>,
    image: &'a View<'c, T>,
    sample: usize,
    channels: Range<usize>,
    first: [usize; 2],
}

impl<T: Lane> Work for Deal<'_, '_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let Self { plan, image, sample, channels, first } = self;
        let [rows, columns] = plan.of.axes;
        let [height, width] = plan.of.plane();
        let x0 = (first[1] * columns.step) as isize - columns.padding as isize;
        let (lines, there) = (image.region().range(2), image.region().range(3));
        // Columns of the image that are seen at all, and where they begin in a line.
        let end = (x0 + plan.line.len() as isize).clamp(0, there.end as isize) as usize;
        let start = (x0.max(0) as usize).max(there.start).min(end);
        let lead = (start as isize - x0) as usize;
        let whole = end - start == plan.line.len();
        let mut places = plan.planes.chunks_exact_mut((columns.step * height * width).max(1));
        for channel in channels {
            for p in 0..rows.step {
                let Some(planes) = places.next() else { return };
                for i in 0..height {
                    let y = ((first[0] + i) * rows.step + p).wrapping_sub(rows.padding);
                    if !lines.contains(&y) || start == end {
                        for plane in planes.chunks_exact_mut(height * width) {
                            plane[i * width..][..width].fill(T::ZERO);
                        }
                        continue;
                    }
                    let row = &image.row([sample, channel, y, start])[..end - start];
                    let line = if whole {
                        row
                    } else {
                        // The zeros around it stay.
                        plan.line[lead..][..row.len()].copy_from_slice(row);
                        &*plan.line
                    };
                    deal_out::<S, T>(line, planes, [height, width], i);
                }
            }
        }
        if !whole {
            // What the next sample has may lie elsewhere.
            plan.line.fill(T::ZERO);
        }
    }
}

/// Deals a line out to row `i` of as many planes as its length is a multiple of
/// their width.
#[inline(always)]
fn deal_out<S: Simd, T: Lane>(line: &[T], planes: &mut [T], [height, width]: [usize; 2], i: usize) {
    let lanes = T::Vector::<S>::LANES;
    match line.len() / width.max(1) {
        1 => planes[i * width..][..width].copy_from_slice(line),
        2 if width >= lanes => {
            let (even, odd) = planes.split_at_mut(height * width);
            let (even, odd) = (&mut even[i * width..][..width], &mut odd[i * width..][..width]);
            assert!(line.len() == 2 * width, "two planes");
            // The last vector may overlap the one before.
            let last = width - lanes;
            let mut j = 0;
            loop {
                // SAFETY: `j` is at most `last`, so a vector is inside of each
                // plane, and two are inside of the line.
                unsafe {
                    let from = line.as_ptr().add(2 * j);
                    let pair = (T::Vector::<S>::load(from), T::Vector::<S>::load(from.add(lanes)));
                    let (a, b) = T::Vector::<S>::unzip(pair.0, pair.1);
                    a.store(even.as_mut_ptr().add(j));
                    b.store(odd.as_mut_ptr().add(j));
                }
                if j == last {
                    break;
                }
                j = (j + lanes).min(last);
            }
        }
        step => {
            for (q, plane) in planes.chunks_exact_mut(height * width).enumerate() {
                let to = plane[i * width..][..width].iter_mut();
                to.zip(line[q..].iter().step_by(step)).for_each(|(to, x)| *to = *x);
            }
        }
    }
}

/// The first `count` elements of scratch, from a line of the cache on.
pub(super) fn split<T: bytemuck::Pod>(scratch: &mut [u8], count: usize) -> (&mut [T], &mut [u8]) {
    let skipped = scratch.as_ptr().align_offset(LINE);
    let (bytes, rest) = scratch[skipped..].split_at_mut(count * size_of::<T>());
    (bytemuck::cast_slice_mut(bytes), rest)
}
