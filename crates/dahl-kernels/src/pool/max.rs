//! The largest of each window.
//!
//! A vector has windows that lie beside each other: the first place of all of
//! them, then the second, and so on. Where a winner is within its window is
//! carried along as a float, as wide as what it is selected with.
#![expect(unsafe_code, reason = "vectors are loaded from slices and stored to them")]

use super::Pool2d;
use crate::element::float_dispatch;
use crate::planes::{Planes, PlanesMut};
use crate::simd::{Lane, MAX_LANES, Simd, Vector, Work};
use crate::{Call, Float, Region, View, ViewMut};
use std::ops::Range;

/// The widest windows that vectors are used for.
const WIDEST: usize = 16;
/// Offsets below this are exact as floats.
pub(super) const EXACT: usize = 1 << 24;

/// y = the largest value of each window, and where it is: the index in the
/// input's plane. Of equal values the first in row order wins; NaN wins over
/// all. Input x, outputs y and index.
pub fn max_pool2d(pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), max_forward(pool, call));
}

fn max_forward<T: Lane>(pool: &Pool2d, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    let (ins, mut outs, _) = call.split();
    let (x, y, index) = (ins.get::<T>(0), outs.take::<T>(), outs.take::<i64>());
    if !region.is_empty() {
        isa.run(Forward { pool: *pool, x, y, index, region });
    }
}

struct Forward<'a, T> {
    pool: Pool2d,
    x: View<'a, T>,
    y: ViewMut<'a, T>,
    index: ViewMut<'a, i64>,
    region: Region,
}

impl<T: Lane> Work for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let (region, pool) = (self.region, self.pool);
        let [height, width] = [self.x.shape()[2], self.x.shape()[3]];
        let columns = region.range(3);
        let inner = match pool.kernel[0].checked_mul(width) {
            Some(reach) if reach < EXACT && pool.kernel[1] <= WIDEST => {
                pool.inner(columns.clone(), width)
            }
            _ => columns.start..columns.start,
        };
        let stride = pool.stride[1];
        let inner = if stride > 2 { inner.start..inner.start } else { inner };
        let seen = self.x.region();
        let (rows_from, from) = (seen.range(2).start, seen.range(3).start);
        let x = Planes::new(&self.x, seen);
        let mut y = PlanesMut::new(&mut self.y, &region);
        let mut index = PlanesMut::new(&mut self.index, &region);
        let padded = &mut [T::ZERO; 2 * MAX_LANES + WIDEST];
        let [samples, channels, _] = y.lengths();
        for (n, c) in (0..samples).flat_map(|n| (0..channels).map(move |c| (n, c))) {
            for (h, i) in region.range(2).enumerate() {
                let rows = pool.window(0, i, height);
                let (values, winners) = (y.row([n, c, h]), index.row([n, c, h]));
                for j in (columns.start..inner.start).chain(inner.end..columns.end) {
                    let over = pool.window(1, j, width);
                    let mut best = (T::NEG_INFINITY, (rows.start * width + over.start) as i64);
                    for k in rows.clone().take_while(|_| !over.is_empty()) {
                        let row = &x.row([n, c, k - rows_from])[over.start - from..over.end - from];
                        for (at, &v) in (k * width + over.start..).zip(row) {
                            best = better(best, (v, at as i64));
                        }
                    }
                    (values[j - columns.start], winners[j - columns.start]) = best;
                }
                if inner.is_empty() {
                    continue;
                }
                let left = inner.start * stride - pool.padding[1];
                let windows = Windows {
                    x,
                    plane: [n, c],
                    rows: rows.start - rows_from..rows.end - rows_from,
                    left: left - from,
                    width,
                    kernel: pool.kernel[1],
                    corner: rows.start * width + left,
                };
                let inside = inner.start - columns.start..inner.end - columns.start;
                let outs = (&mut values[inside.clone()], &mut winners[inside]);
                match (stride, pool.kernel[1]) {
                    (1, _) => windows.largest::<S, 1>(windows.kernel, outs, padded),
                    (_, 2) => windows.largest::<S, 2>(2, outs, padded),
                    (_, 3) => windows.largest::<S, 2>(3, outs, padded),
                    _ => windows.largest::<S, 2>(windows.kernel, outs, padded),
                }
            }
        }
    }
}

impl Pool2d {
    /// The windows of a range that lie on the input as a whole.
    fn inner(&self, columns: Range<usize>, width: usize) -> Range<usize> {
        let from = self.padding[1].div_ceil(self.stride[1]);
        let room = (width + self.padding[1]).checked_sub(self.kernel[1]);
        let to = room.map_or(0, |room| room / self.stride[1] + 1);
        let from = from.clamp(columns.start, columns.end);
        from..to.clamp(from, columns.end)
    }
}

/// The end of a row, for a vector that reads beyond it.
type Padded<T> = [T; 2 * MAX_LANES + WIDEST];

/// Windows that lie beside each other, all on the input.
struct Windows<'a, T> {
    x: Planes<'a, T>,
    plane: [usize; 2],
    /// Rows of the input that they cover, and the column of the first.
    rows: Range<usize>,
    left: usize,
    /// Columns of the whole input, and of a window.
    width: usize,
    kernel: usize,
    /// The index of the first window's first place.
    corner: usize,
}

impl<T: Lane> Windows<'_, T> {
    /// `kernel` is given apart so that it may be known when compiled.
    #[inline(always)]
    fn largest<S: Simd, const STRIDE: usize>(
        &self,
        kernel: usize,
        (values, winners): (&mut [T], &mut [i64]),
        padded: &mut Padded<T>,
    ) {
        let lanes = <T::Vector<S>>::LANES;
        let length = values.len().min(winners.len());
        let mut first = 0;
        while first < length {
            // The last vector begins earlier, so that it is full.
            first = first.min(length.saturating_sub(lanes));
            let (best, offsets) = self.vector::<S, STRIDE>(kernel, first, padded);
            let (mut value, mut offset) = ([T::ZERO; MAX_LANES], [T::ZERO; MAX_LANES]);
            // SAFETY: no vector has more than `MAX_LANES` elements.
            unsafe {
                best.store(value.as_mut_ptr());
                offsets.store(offset.as_mut_ptr());
            }
            let count = lanes.min(length - first);
            let index = (self.corner + first * STRIDE) as i64;
            if count == lanes {
                // A number of turns that is known when compiled.
                let winners = &mut winners[first..first + lanes];
                values[first..first + lanes].copy_from_slice(&value[..lanes]);
                for (j, (winner, offset)) in winners.iter_mut().zip(&offset[..lanes]).enumerate() {
                    *winner = index + (j * STRIDE) as i64 + i64::from(offset.to_offset());
                }
            } else {
                for j in 0..count {
                    values[first + j] = value[j];
                    winners[first + j] =
                        index + (j * STRIDE) as i64 + i64::from(offset[j].to_offset());
                }
            }
            first += lanes;
        }
    }

    /// The largest of a vector of windows, and how far from its window's first
    /// place each is.
    #[inline(always)]
    fn vector<S: Simd, const STRIDE: usize>(
        &self,
        kernel: usize,
        first: usize,
        padded: &mut Padded<T>,
    ) -> (T::Vector<S>, T::Vector<S>) {
        let lanes = <T::Vector<S>>::LANES;
        let from = self.left + first * STRIDE;
        // A pair of columns is read for every second one.
        let reach = STRIDE * lanes + (kernel - 1) / STRIDE * STRIDE;
        let mut best = (<T::Vector<S>>::splat(T::NEG_INFINITY), <T::Vector<S>>::zero());
        for (k, row) in self.rows.clone().enumerate() {
            let row = self.x.row([self.plane[0], self.plane[1], row]);
            let row = if let Some(row) = row.get(from..from + reach) {
                row
            } else {
                // What is read beyond the row is of no window that is stored.
                let rest = &row[from..];
                padded[..rest.len()].copy_from_slice(rest);
                &padded[..reach]
            };
            let offset =
                |l: usize| <T::Vector<S>>::splat(T::from_offset((k * self.width + l) as i32));
            // SAFETY: what is read of the last window's last places is within
            // `reach`.
            let load = |at: usize| unsafe { <T::Vector<S>>::load(row.as_ptr().add(at)) };
            if STRIDE == 1 {
                for l in 0..kernel {
                    best = Vector::better(best, (load(l), offset(l)));
                }
            } else {
                for l in (0..kernel).step_by(2) {
                    let (evens, odds) = load(l).unzip(load(l + lanes));
                    best = Vector::better(best, (evens, offset(l)));
                    if l + 1 < kernel {
                        best = Vector::better(best, (odds, offset(l + 1)));
                    }
                }
            }
        }
        best
    }
}

/// The larger of two values with where it is; the first of equal ones; NaN.
#[inline(always)]
fn better<T: Float, I>((best, at): (T, I), (v, here): (T, I)) -> (T, I) {
    // Selected without a jump, which would be mispredicted.
    let wins = (v > best) | v.is_nan();
    (if wins { v } else { best }, if wins { here } else { at })
}
