//! Pooling over windows.

mod max;
mod max_backward;

pub use max::max_pool2d;
pub use max_backward::max_pool2d_backward;

use crate::element::float_dispatch;
use crate::planes::PlanesMut;
use crate::{Call, Float};
use std::ops::Range;

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
    fn window(&self, a: usize, o: usize, len: usize) -> Range<usize> {
        let from = (o * self.stride[a]).saturating_sub(self.padding[a]);
        let to = (o * self.stride[a] + self.kernel[a]).saturating_sub(self.padding[a]).min(len);
        from.min(to)..to
    }

    /// The windows that cover input coordinate `x`.
    #[inline(always)]
    fn covering(&self, a: usize, x: usize, out: usize) -> Range<usize> {
        let x = x + self.padding[a];
        let from = (x + 1).saturating_sub(self.kernel[a]).div_ceil(self.stride[a]);
        let to = (x / self.stride[a] + 1).min(out);
        from.min(to)..to
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
    if region.is_empty() {
        return;
    }
    let shared = |n: usize, c: usize, rows: Range<usize>, columns: Range<usize>| {
        let mut sum = T::ZERO;
        for i in rows {
            for j in columns.clone() {
                sum += gy.at([n, c, i, j]) / size;
            }
        }
        sum
    };
    // Between two pixels that the same windows cover they cover all.
    let over = |a: usize, out: usize| {
        let range = region.range(2 + a);
        let first = pool.covering(a, range.start, out);
        (first == pool.covering(a, range.end - 1, out)).then_some(first)
    };
    if let Some((rows, columns)) = over(0, out_h).zip(over(1, out_w)) {
        let to = PlanesMut::new(&mut gx, &region);
        let mut to = if to.is_joined() { to.joined() } else { to };
        let height = to.lengths()[2];
        for (i, n) in region.range(0).enumerate() {
            for (k, c) in region.range(1).enumerate() {
                let sum = shared(n, c, rows.clone(), columns.clone());
                (0..height).for_each(|h| to.row([i, k, h]).fill(sum));
            }
        }
        return;
    }
    for (n, c) in region.range(0).flat_map(|n| region.range(1).map(move |c| (n, c))) {
        for y in region.range(2) {
            let rows = pool.covering(0, y, out_h);
            for x in region.range(3) {
                let sum = shared(n, c, rows.clone(), pool.covering(1, x, out_w));
                gx.set([n, c, y, x], sum);
            }
        }
    }
}
