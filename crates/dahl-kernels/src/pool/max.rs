//! The largest of each window.
//!
//! Windows that lie beside each other are taken together: the first place of all
//! of them, then the second, and so on. Where a winner is within its window is
//! carried along as a float, as wide as what it is selected with.

use super::Pool2d;
use crate::element::float_dispatch;
use crate::simd::{Lane, Simd, Work};
use crate::{Call, Float, Region, View, ViewMut};
use std::ops::Range;

/// Windows that are taken together.
const WINDOWS: usize = 64;
/// Offsets below this are exact as floats.
const EXACT: usize = 1 << 24;

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
            Some(reach) if reach < EXACT => pool.inner(columns.clone(), width),
            _ => columns.start..columns.start,
        };
        for (n, c) in region.range(0).flat_map(|n| region.range(1).map(move |c| (n, c))) {
            for i in region.range(2) {
                let rows = pool.window(0, i, height);
                let values = &mut self.y.row_mut([n, c, i, columns.start])[..columns.len()];
                let winners = &mut self.index.row_mut([n, c, i, columns.start])[..columns.len()];
                for j in (columns.start..inner.start).chain(inner.end..columns.end) {
                    let at = j - columns.start;
                    let over = [rows.clone(), pool.window(1, j, width)];
                    (values[at], winners[at]) = largest(&self.x, [n, c], over, width);
                }
                for first in inner.clone().step_by(WINDOWS) {
                    let length = WINDOWS.min(inner.end - first);
                    let at = first - columns.start;
                    let beside = Beside { rows: rows.clone(), first, width };
                    let outs = (&mut values[at..at + length], &mut winners[at..at + length]);
                    match (pool.kernel[1], pool.stride[1]) {
                        (2, 2) => beside.largest(&self.x, [n, c], &pool, &TwoByTwo, outs),
                        (3, 2) => beside.largest(&self.x, [n, c], &pool, &ThreeByTwo, outs),
                        (3, 3) => beside.largest(&self.x, [n, c], &pool, &ThreeByThree, outs),
                        _ => beside.largest(&self.x, [n, c], &pool, &pool, outs),
                    }
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

/// How wide windows are and how far from each other, known when compiled or not.
trait Columns {
    fn kernel(&self) -> usize;
    fn stride(&self) -> usize;
}

macro_rules! columns {
    ($name:ident, $kernel:literal, $stride:literal) => {
        struct $name;
        impl Columns for $name {
            #[inline(always)]
            fn kernel(&self) -> usize {
                $kernel
            }
            #[inline(always)]
            fn stride(&self) -> usize {
                $stride
            }
        }
    };
}
columns!(TwoByTwo, 2, 2);
columns!(ThreeByTwo, 3, 2);
columns!(ThreeByThree, 3, 3);

impl Columns for Pool2d {
    #[inline(always)]
    fn kernel(&self) -> usize {
        self.kernel[1]
    }
    #[inline(always)]
    fn stride(&self) -> usize {
        self.stride[1]
    }
}

/// Windows beside each other, from column `first` of the result on.
struct Beside {
    /// The rows of the input that they cover.
    rows: Range<usize>,
    first: usize,
    width: usize,
}

impl Beside {
    #[inline(always)]
    fn largest<T: Lane>(
        &self,
        x: &View<'_, T>,
        [n, c]: [usize; 2],
        pool: &Pool2d,
        columns: &impl Columns,
        (values, winners): (&mut [T], &mut [i64]),
    ) {
        let (kernel, stride) = (columns.kernel(), columns.stride());
        let length = values.len().min(winners.len());
        let left = self.first * stride - pool.padding[1];
        let reach = (length - 1) * stride + kernel;
        let mut best = [T::NEG_INFINITY; WINDOWS];
        let mut offsets = [T::ZERO; WINDOWS];
        for (k, row) in self.rows.clone().enumerate() {
            let row = &x.row([n, c, row, left])[..reach];
            for (j, (best, offset)) in best.iter_mut().zip(&mut offsets).enumerate().take(length) {
                for l in 0..kernel {
                    let here = T::from_offset((k * self.width + l) as i32);
                    (*best, *offset) = better((*best, *offset), (row[j * stride + l], here));
                }
            }
        }
        values.copy_from_slice(&best[..length]);
        let corner = (self.rows.start * self.width + left) as i64;
        for (j, (winner, offset)) in winners.iter_mut().zip(&offsets).enumerate() {
            *winner = corner + (j * stride) as i64 + i64::from(offset.to_offset());
        }
    }
}

/// The larger of two values with where it is; the first of equal ones; NaN.
#[inline(always)]
fn better<T: Float, I>((best, at): (T, I), (v, here): (T, I)) -> (T, I) {
    // Selected without a jump, which would be mispredicted.
    let wins = (v > best) | v.is_nan();
    (if wins { v } else { best }, if wins { here } else { at })
}

/// The largest value of one window and its index.
fn largest<T: Float>(
    x: &View<'_, T>,
    [n, c]: [usize; 2],
    [rows, columns]: [Range<usize>; 2],
    width: usize,
) -> (T, i64) {
    let mut best = (T::NEG_INFINITY, (rows.start * width + columns.start) as i64);
    if columns.is_empty() {
        return best;
    }
    for k in rows {
        let row = &x.row([n, c, k, columns.start])[..columns.len()];
        for (l, &v) in row.iter().enumerate() {
            best = better(best, (v, (k * width + columns.start + l) as i64));
        }
    }
    best
}

/// g\[y,x\] = Σ g' over the windows that (y, x) won, in row order. Inputs g'
/// and index.
pub fn max_pool2d_backward(pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), max_backward(pool, call));
}

fn max_backward<T: Lane>(pool: &Pool2d, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    let (ins, mut outs, _) = call.split();
    let (gy, index, gx) = (ins.get::<T>(0), ins.get::<i64>(1), outs.take::<T>());
    if !region.is_empty() {
        isa.run(Backward { pool: *pool, gy, index, gx, region });
    }
}

struct Backward<'a, T> {
    pool: Pool2d,
    gy: View<'a, T>,
    index: View<'a, i64>,
    gx: ViewMut<'a, T>,
    region: Region,
}

impl<T: Lane> Work for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let (region, pool, shape) = (self.region, self.pool, self.gx.shape());
        let whole = region.range(2) == (0..shape[2]) && region.range(3) == (0..shape[3]);
        let tiles =
            whole && pool == Pool2d::tiles(pool.kernel) && pool.kernel[0] * shape[3] < EXACT;
        for (n, c) in region.range(0).flat_map(|n| region.range(1).map(move |c| (n, c))) {
            match pool.kernel[1] {
                2 if tiles => self.tiles::<2>([n, c]),
                3 if tiles => self.tiles::<3>([n, c]),
                _ if whole => self.scatter([n, c]),
                _ => self.search([n, c]),
            }
        }
    }
}

impl<T: Lane> Backward<'_, T> {
    /// Windows side by side: each place of a window has its gradient or nothing.
    #[inline(always)]
    fn tiles<const K: usize>(&mut self, [n, c]: [usize; 2]) {
        let (shape, windows, kernel) = (self.gx.shape(), self.gy.shape(), self.pool.kernel);
        let width = shape[3];
        for i in 0..windows[2] {
            let (gs, winners) = (self.gy.row([n, c, i, 0]), self.index.row([n, c, i, 0]));
            for first in (0..windows[3]).step_by(WINDOWS) {
                let length = WINDOWS.min(windows[3] - first);
                let (gs, winners) = (&gs[first..][..length], &winners[first..][..length]);
                let corner = (i * kernel[0] * width + first * K) as i64;
                let mut offsets = [T::ZERO; WINDOWS];
                for (j, (offset, winner)) in offsets.iter_mut().zip(winners).enumerate() {
                    *offset = T::from_offset((winner - corner - (j * K) as i64) as i32);
                }
                for k in 0..kernel[0] {
                    let row = self.gx.row_mut([n, c, i * kernel[0] + k, first * K]);
                    let (places, _) = row[..length * K].as_chunks_mut::<K>();
                    let here: [T; K] =
                        std::array::from_fn(|l| T::from_offset((k * width + l) as i32));
                    for (place, (&g, &offset)) in places.iter_mut().zip(gs.iter().zip(&offsets)) {
                        for (to, here) in place.iter_mut().zip(here) {
                            // A sum of one term, which 0 starts.
                            *to = T::ZERO + if offset == here { g } else { T::ZERO };
                        }
                    }
                }
            }
            // Columns that no window covers.
            for k in 0..kernel[0] {
                let covered = windows[3] * K;
                if covered < width {
                    self.gx.row_mut([n, c, i * kernel[0] + k, covered]).fill(T::ZERO);
                }
            }
        }
        for y in windows[2] * kernel[0]..shape[2] {
            self.gx.row_mut([n, c, y, 0]).fill(T::ZERO);
        }
    }

    /// Each window gives to its winner, which is in the piece.
    #[inline(always)]
    fn scatter(&mut self, [n, c]: [usize; 2]) {
        let (shape, windows) = (self.gx.shape(), self.gy.shape());
        let plane = Region::new(&[n..n + 1, c..c + 1, 0..shape[2], 0..shape[3]]);
        let mut in_rows = true;
        self.gx.runs_mut(&plane, |_, plane| {
            if plane.len() < shape[2] * shape[3] {
                in_rows = false;
                return;
            }
            plane.fill(T::ZERO);
            if windows[3] == 0 {
                return;
            }
            for i in 0..windows[2] {
                let (gs, winners) = (self.gy.row([n, c, i, 0]), self.index.row([n, c, i, 0]));
                for (&g, &winner) in gs.iter().zip(winners) {
                    plane[winner as usize] += g;
                }
            }
        });
        if !in_rows {
            self.search([n, c]);
        }
    }

    /// Each row looks for what it has won.
    fn search(&mut self, [n, c]: [usize; 2]) {
        let (region, pool, width) = (self.region, self.pool, self.gx.shape()[3]);
        let [out_h, out_w] = [self.gy.shape()[2], self.gy.shape()[3]];
        let (x0, x1) = (region.range(3).start, region.range(3).end);
        let first = pool.covering(1, x0, out_w).start;
        let last = pool.covering(1, x1 - 1, out_w).end;
        for y in region.range(2) {
            let row = &mut self.gx.row_mut([n, c, y, x0])[..x1 - x0];
            row.fill(T::ZERO);
            if first >= last {
                continue;
            }
            for i in pool.covering(0, y, out_h) {
                let grads = &self.gy.row([n, c, i, first])[..last - first];
                let winners = &self.index.row([n, c, i, first])[..last - first];
                for (&g, &winner) in grads.iter().zip(winners) {
                    let at = (winner as usize).wrapping_sub(y * width + x0);
                    if let Some(sum) = row.get_mut(at) {
                        *sum += g;
                    }
                }
            }
        }
    }
}
