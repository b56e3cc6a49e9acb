//! Pooling over windows, plain.

use crate::element::float_dispatch;
use crate::{Call, Float};

/// The parameters of a pooling: input \[N, C, H, W\], output \[N, C, H', W'\].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool2d {
    /// The window, rows then columns.
    pub kernel: [usize; 2],
    /// The step between windows.
    pub stride: [usize; 2],
    /// Padding around the input: minus infinity for the maximum, zeros that
    /// count for the average.
    pub padding: [usize; 2],
}

impl Pool2d {
    /// Windows of `kernel` side by side, without padding.
    pub fn tiles(kernel: [usize; 2]) -> Self {
        Self { kernel, stride: kernel, padding: [0, 0] }
    }

    /// The part of window `o` that lies on the input, as input coordinates.
    #[inline(always)]
    fn window(&self, a: usize, o: usize, len: usize) -> std::ops::Range<usize> {
        let from = (o * self.stride[a]).saturating_sub(self.padding[a]);
        let to = (o * self.stride[a] + self.kernel[a]).saturating_sub(self.padding[a]).min(len);
        from.min(to)..to
    }

    /// The windows that cover input coordinate `x`.
    #[inline(always)]
    fn covering(&self, a: usize, x: usize, out: usize) -> std::ops::Range<usize> {
        let x = x + self.padding[a];
        let from = (x + 1).saturating_sub(self.kernel[a]).div_ceil(self.stride[a]);
        let to = (x / self.stride[a] + 1).min(out);
        from.min(to)..to
    }
}

/// y = the largest value of each window, and where it is: the index in the
/// input's plane. Of equal values the first in row order wins; NaN wins over
/// all. Input x, outputs y and index.
pub fn max_pool2d(pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), max_forward(pool, call));
}

fn max_forward<T: Float>(pool: &Pool2d, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let x = ins.get::<T>(0);
    let (mut y, mut index) = (outs.take::<T>(), outs.take::<i64>());
    let [height, width] = [x.shape()[2], x.shape()[3]];
    if region.is_empty() {
        return;
    }
    let (j0, j1) = (region.range(3).start, region.range(3).end);
    let side_by_side = pool.stride[1] == pool.kernel[1] && pool.padding[1] == 0;
    for n in region.range(0) {
        for c in region.range(1) {
            for i in region.range(2) {
                let values = &mut y.row_mut([n, c, i, j0])[..j1 - j0];
                let winners = &mut index.row_mut([n, c, i, j0])[..j1 - j0];
                let rows = pool.window(0, i, height);
                let reached = pool.window(1, j0, width).start..pool.window(1, j1 - 1, width).end;
                for (j, (value, winner)) in (j0..).zip(values.iter_mut().zip(&mut *winners)) {
                    let first = rows.start * width + pool.window(1, j, width).start;
                    (*value, *winner) = (T::NEG_INFINITY, first as i64);
                }
                if reached.is_empty() {
                    continue;
                }
                for k in rows {
                    let row = &x.row([n, c, k, reached.start])[..reached.len()];
                    let first = (k * width + reached.start) as i64;
                    if side_by_side && pool.kernel[1] == 2 {
                        best_of::<T, 2>(row, first, values, winners);
                        continue;
                    }
                    if side_by_side && pool.kernel[1] == 3 {
                        best_of::<T, 3>(row, first, values, winners);
                        continue;
                    }
                    for (j, (value, winner)) in (j0..).zip(values.iter_mut().zip(&mut *winners)) {
                        let columns = pool.window(1, j, width);
                        let first = columns.start - reached.start;
                        for (l, &v) in row[first..][..columns.len()].iter().enumerate() {
                            let at = (k * width + columns.start + l) as i64;
                            (*value, *winner) = better((*value, *winner), (v, at));
                        }
                    }
                }
            }
        }
    }
}

/// The larger of two values with where it is; the first of equal ones; NaN.
#[inline(always)]
fn better<T: Float>((best, at): (T, i64), (v, here): (T, i64)) -> (T, i64) {
    // Selected without a jump, which would be mispredicted.
    let wins = (v > best) | v.is_nan();
    (if wins { v } else { best }, if wins { here } else { at })
}

/// One row of windows of `K` columns side by side; `first` is the index of the
/// row's first element.
fn best_of<T: Float, const K: usize>(row: &[T], first: i64, values: &mut [T], winners: &mut [i64]) {
    let (windows, _) = row.as_chunks::<K>();
    for (j, window) in windows.iter().enumerate().take(values.len().min(winners.len())) {
        let mut best = (values[j], winners[j]);
        for (l, &v) in window.iter().enumerate() {
            best = better(best, (v, first + (j * K + l) as i64));
        }
        (values[j], winners[j]) = best;
    }
}

/// g\[y,x\] = Σ g' over the windows that (y, x) won, in row order. Inputs g'
/// and index.
pub fn max_pool2d_backward(pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), max_backward(pool, call));
}

fn max_backward<T: Float>(pool: &Pool2d, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (gy, index) = (ins.get::<T>(0), ins.get::<i64>(1));
    let mut gx = outs.take::<T>();
    let width = gx.shape()[3];
    let [out_h, out_w] = [gy.shape()[2], gy.shape()[3]];
    if region.is_empty() {
        return;
    }
    let (x0, x1) = (region.range(3).start, region.range(3).end);
    let first = pool.covering(1, x0, out_w).start;
    let last = pool.covering(1, x1 - 1, out_w).end;
    for n in region.range(0) {
        for c in region.range(1) {
            for y in region.range(2) {
                let row = &mut gx.row_mut([n, c, y, x0])[..x1 - x0];
                row.fill(T::ZERO);
                if first >= last {
                    continue;
                }
                for i in pool.covering(0, y, out_h) {
                    let grads = &gy.row([n, c, i, first])[..last - first];
                    let winners = &index.row([n, c, i, first])[..last - first];
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
}

/// y = the sum of each window over the window's size, padded zeros counted.
/// Input x.
pub fn avg_pool2d(pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), avg_forward(pool, call));
}

fn avg_forward<T: Float>(pool: &Pool2d, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, mut y) = (ins.get::<T>(0), outs.take::<T>());
    let [height, width] = [x.shape()[2], x.shape()[3]];
    let size = T::from_f64((pool.kernel[0] * pool.kernel[1]) as f64);
    for n in region.range(0) {
        for c in region.range(1) {
            for i in region.range(2) {
                for j in region.range(3) {
                    let columns = pool.window(1, j, width);
                    let mut sum = T::ZERO;
                    if !columns.is_empty() {
                        for k in pool.window(0, i, height) {
                            let row = &x.row([n, c, k, columns.start])[..columns.len()];
                            sum += crate::math::sum_slice(row);
                        }
                    }
                    y.set([n, c, i, j], sum / size);
                }
            }
        }
    }
}

/// g\[y,x\] = Σ g' / size over the windows that cover (y, x). Input g'.
pub fn avg_pool2d_backward(pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), avg_backward(pool, call));
}

fn avg_backward<T: Float>(pool: &Pool2d, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (gy, mut gx) = (ins.get::<T>(0), outs.take::<T>());
    let [out_h, out_w] = [gy.shape()[2], gy.shape()[3]];
    let size = T::from_f64((pool.kernel[0] * pool.kernel[1]) as f64);
    for n in region.range(0) {
        for c in region.range(1) {
            for y in region.range(2) {
                for x in region.range(3) {
                    let mut sum = T::ZERO;
                    for i in pool.covering(0, y, out_h) {
                        for j in pool.covering(1, x, out_w) {
                            sum += gy.at([n, c, i, j]) / size;
                        }
                    }
                    gx.set([n, c, y, x], sum);
                }
            }
        }
    }
}
