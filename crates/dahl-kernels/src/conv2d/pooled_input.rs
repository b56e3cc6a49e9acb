//! The gradient of the input of a convolution that is followed by a maximum over
//! windows: what the winners of windows pass back.
//!
//! # How it is fast
//! The gradient of a window reaches only the patch that its winner saw. With the
//! channels of a pixel beside each other that patch is a few vectors, one row of
//! the kernel after the other, and so is the filter: each is multiplied with the
//! gradient and added where it lies. The result of the convolution, of which most
//! places have won nothing, is never made.
//!
//! # The order of a sum
//! An element starts from zero and takes what reaches it in the order of (row of
//! windows, filter, column of windows), each rounded once with the sum (where the
//! instruction set can).
#![expect(unsafe_code, reason = "patches are read and written through pointers")]

use super::Conv2d;
use super::direct::split;
use super::pooled_weight::{BEHIND, Maps, Patches};
use crate::element::float_dispatch;
use crate::gemm::LINE;
use crate::pool::Pool2d;
use crate::simd::{Lane, Simd, Vector, Work};
use crate::{Call, DType, Piece, Region, Shape, View, ViewMut};

/// g\[n,c,y,x\] = Σ w\[o,c,k,l\] g'\[n,o,i,j\] over the windows (i, j) whose winner
/// sees (y, x) through tap (k, l). Inputs g', w and the winners; whole planes.
pub fn conv2d_max_pool2d_backward_input(conv: &Conv2d, pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_input(conv, pool, call));
}

/// The bytes of scratch that [`conv2d_max_pool2d_backward_input`] needs.
pub fn conv2d_max_pool2d_backward_input_scratch(
    conv: &Conv2d,
    pool: &Pool2d,
    [image, grad, weight]: [&Shape; 3],
    piece: &Piece,
    dtype: DType,
) -> usize {
    let of = patches(conv, pool, [image, grad, weight], &piece.out);
    (of.band() + weight[0] * of.sums()) * dtype.size() + 3 * LINE
}

/// The patches in a whole image of the piece's channels.
fn patches(
    conv: &Conv2d,
    pool: &Pool2d,
    [image, grad, weight]: [&Shape; 3],
    out: &Region,
) -> Patches {
    let part = Shape::new(&[weight[0], out.len(1), weight[2], weight[3]]);
    Patches { rows: grad[2].max(1), ..Patches::new(conv, pool, image, grad, &part) }
}

fn backward_input<T: Lane>(conv: &Conv2d, pool: &Pool2d, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    let (ins, mut outs, scratch) = call.split();
    let (grad, w, winner) = (ins.get::<T>(0), ins.get::<T>(1), ins.get::<u8>(2));
    let mut gx = outs.take::<T>();
    if region.is_empty() {
        return;
    }
    let of = patches(conv, pool, [&gx.shape(), &grad.shape(), &w.shape()], &region);
    let filters = 0..w.shape()[0];
    let (image, scratch) = split::<T>(scratch, of.band());
    let (weights, _) = split::<T>(scratch, filters.len() * of.sums());
    pack(&of, &w, region.range(1).start, weights);
    let places = of.places();
    for n in region.range(0) {
        image.fill(T::ZERO);
        if of.windows[0] > 0 && of.windows[1] > 0 {
            let windows = [n..n + 1, filters.clone(), 0..of.windows[0], 0..of.windows[1]];
            let maps = Maps::new(&grad, &winner, &Region::new(&windows));
            isa.run(Scatter { of, places: &places, maps, weights, image });
        }
        store(&of, image, n, &region, &mut gx);
    }
}

/// Filters with the channels of a tap beside each other, rows in whole vectors of
/// any instruction set, zeros behind them.
fn pack<T: Lane>(of: &Patches, w: &View<'_, T>, first: usize, to: &mut [T]) {
    to.fill(T::ZERO);
    let pitch = of.taps().next_multiple_of(BEHIND);
    for (o, to) in to.chunks_exact_mut(of.sums().max(1)).enumerate() {
        for (k, to) in to.chunks_exact_mut(pitch).enumerate() {
            for c in 0..of.channels {
                let row = &w.row([o, first + c, k, 0])[..of.kernel[1]];
                for (to, &w) in to[c..].iter_mut().step_by(of.channels).zip(row) {
                    *to = w;
                }
            }
        }
    }
}

/// Copies the image, channel by channel, without what is around it.
fn store<T: Lane>(of: &Patches, image: &[T], n: usize, region: &Region, gx: &mut ViewMut<'_, T>) {
    let width = region.len(3);
    for y in region.range(2) {
        let line = (y + of.padding[0]) * of.pitch;
        for (c, channel) in region.range(1).enumerate() {
            let to = &mut gx.row_mut([n, channel, y, 0])[..width];
            // Rows that no window reaches are not there.
            let Some(line) = image.get(line..line + of.pitch).filter(|_| y < of.reached()) else {
                to.fill(T::ZERO);
                continue;
            };
            let from = line[of.padding[1] * of.channels + c..].iter();
            match of.channels {
                1 => to.copy_from_slice(&from.as_slice()[..width]),
                step => to.iter_mut().zip(from.step_by(step)).for_each(|(to, &g)| *to = g),
            }
        }
    }
}

/// All windows of a sample, added to where their winners' patches are.
struct Scatter<'a, T> {
    of: Patches,
    places: &'a [u32; 256],
    maps: Maps<T>,
    weights: &'a [T],
    image: &'a mut [T],
}

impl<T: Lane> Work for Scatter<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let lanes = T::Vector::<S>::LANES;
        let of = self.of;
        let reach = of.lines(self.maps.rows) * of.pitch + BEHIND;
        assert!(lanes <= BEHIND && reach <= self.image.len(), "patches inside");
        assert!(self.weights.len() >= self.maps.filters * of.sums(), "a weight for each tap");
        match of.taps().div_ceil(lanes) {
            1 => self.all::<S, 1>(),
            2 => self.all::<S, 2>(),
            3 => self.all::<S, 3>(),
            4 => self.all::<S, 4>(),
            _ => self.all::<S, 0>(),
        }
    }
}

impl<T: Lane> Scatter<'_, T> {
    /// Rows of the kernel are `V` vectors long, or any number where it is 0.
    #[inline(always)]
    fn all<S: Simd, const V: usize>(&mut self) {
        let lanes = T::Vector::<S>::LANES;
        let of = self.of;
        let vectors = if V == 0 { of.taps().div_ceil(lanes) } else { V };
        let pitch = of.taps().next_multiple_of(BEHIND);
        let Maps { grads, winners, strides: [gs, ws], filters, rows, columns } = self.maps;
        let step = of.step[1] * of.channels;
        for i in 0..rows {
            for o in 0..filters {
                // SAFETY: as `run` has asserted, patches are inside of the image,
                // which is followed by a vector of room, whatever the winner's byte
                // is; weights have whole vectors; gradients and winners have the
                // region's rows, columns and filters.
                unsafe {
                    let weights = self.weights.as_ptr().add(o * of.sums());
                    let mut patches = self.image.as_mut_ptr().add(i * of.step[0] * of.pitch);
                    let grads = grads.add(o * gs[0] + i * gs[1]);
                    let winners = winners.add(o * ws[0] + i * ws[1]);
                    for j in 0..columns {
                        let place = self.places[usize::from(*winners.add(j))];
                        let grad = T::Vector::<S>::splat(*grads.add(j));
                        let (mut to, mut weight) = (patches.add(place as usize), weights);
                        for _ in 0..of.kernel[0] {
                            for v in 0..vectors {
                                let w = T::Vector::<S>::load(weight.add(v * lanes));
                                let sum = T::Vector::<S>::load(to.add(v * lanes));
                                grad.mul_add(w, sum).store(to.add(v * lanes));
                            }
                            (to, weight) = (to.add(of.pitch), weight.add(pitch));
                        }
                        patches = patches.add(step);
                    }
                }
            }
        }
    }
}
