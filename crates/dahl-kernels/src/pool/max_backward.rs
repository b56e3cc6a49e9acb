//! The gradient of the largest of each window.
#![expect(unsafe_code, reason = "vectors are loaded from slices and stored to them")]

use super::Pool2d;
use super::max::EXACT;
use crate::element::float_dispatch;
use crate::planes::{Planes, PlanesMut};
use crate::simd::{Lane, MAX_LANES, Simd, Vector, Work};
use crate::{Call, Region, View, ViewMut};

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
        if tiles && pool.kernel[1] == 2 {
            return self.tiles::<S>();
        }
        for (n, c) in region.range(0).flat_map(|n| region.range(1).map(move |c| (n, c))) {
            match whole {
                true => self.scatter([n, c]),
                false => self.search([n, c]),
            }
        }
    }
}

impl<T: Lane> Backward<'_, T> {
    /// Windows of two columns side by side: each place of a window has its
    /// gradient or nothing.
    #[inline(always)]
    fn tiles<S: Simd>(&mut self) {
        let (shape, windows, height) = (self.gx.shape(), self.gy.shape(), self.pool.kernel[0]);
        let width = shape[3];
        let samples = self.region.with(2, 0..windows[2]).with(3, 0..windows[3]);
        let (gy, index) = (Planes::new(&self.gy, &samples), Planes::new(&self.index, &samples));
        let mut gx = PlanesMut::new(&mut self.gx, &self.region);
        let [samples, channels, _] = gx.lengths();
        for (n, c) in (0..samples).flat_map(|n| (0..channels).map(move |c| (n, c))) {
            for i in 0..windows[2] {
                let (gs, winners) = (gy.row([n, c, i]), index.row([n, c, i]));
                let mut first = 0;
                while first < windows[3] {
                    let lanes = <T::Vector<S>>::LANES;
                    first = first.min(windows[3].saturating_sub(lanes));
                    let corner = i * height * width + 2 * first;
                    let [g, offsets] = gradients::<S, T>(&gs[first..], &winners[first..], corner);
                    for k in 0..height {
                        let here = |l: usize| {
                            let offset = T::from_offset((k * width + l) as i32);
                            // A sum of one term, which 0 starts.
                            <T::Vector<S>>::zero()
                                .add(g.where_equal(offsets, <T::Vector<S>>::splat(offset)))
                        };
                        let row = &mut gx.row([n, c, i * height + k])[2 * first..];
                        store_pair::<S, T>(here(0).zip(here(1)), row);
                    }
                    first += lanes;
                }
                for k in (0..height).take_while(|_| 2 * windows[3] < width) {
                    gx.row([n, c, i * height + k])[2 * windows[3]..].fill(T::ZERO);
                }
            }
            for y in windows[2] * height..shape[2] {
                gx.row([n, c, y]).fill(T::ZERO);
            }
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

/// A vector of gradients, and how far from its window's first place each winner
/// is; `corner` is the index of the first window's.
#[inline(always)]
fn gradients<S: Simd, T: Lane>(gs: &[T], winners: &[i64], corner: usize) -> [T::Vector<S>; 2] {
    let lanes = <T::Vector<S>>::LANES;
    let (mut g, mut offsets) = ([T::ZERO; MAX_LANES], [T::ZERO; MAX_LANES]);
    let of = |j: usize, winner: i64| T::from_offset((winner - (corner + 2 * j) as i64) as i32);
    if let (Some(gs), Some(winners)) = (gs.get(..lanes), winners.get(..lanes)) {
        g[..lanes].copy_from_slice(gs);
        for (j, (offset, &winner)) in offsets.iter_mut().zip(winners).enumerate() {
            *offset = of(j, winner);
        }
    } else {
        for (j, (&from, &winner)) in gs.iter().zip(winners).enumerate() {
            (g[j], offsets[j]) = (from, of(j, winner));
        }
    }
    // SAFETY: no vector has more than `MAX_LANES` elements.
    [g, offsets].map(|x| unsafe { <T::Vector<S>>::load(x.as_ptr()) })
}

/// Stores two vectors behind each other, as far as there is room.
#[inline(always)]
fn store_pair<S: Simd, T: Lane>((low, high): (T::Vector<S>, T::Vector<S>), to: &mut [T]) {
    let lanes = <T::Vector<S>>::LANES;
    if to.len() >= 2 * lanes {
        // SAFETY: there is room for both.
        unsafe {
            low.store(to.as_mut_ptr());
            high.store(to.as_mut_ptr().add(lanes));
        }
        return;
    }
    let mut pair = [T::ZERO; 2 * MAX_LANES];
    // SAFETY: no vector has more than `MAX_LANES` elements.
    unsafe {
        low.store(pair.as_mut_ptr());
        high.store(pair.as_mut_ptr().add(lanes));
    }
    to.copy_from_slice(&pair[..to.len()]);
}
