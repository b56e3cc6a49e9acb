//! Weights in panels that products read in order.

use super::Direction;
use crate::conv2d::{ALIGN, Conv2d};
use crate::element::float_dispatch;
use crate::gemm::VECTORS;
use crate::simd::{Lane, Simd, Vector, Work};
use crate::{Call, Region, Shape};
use std::ops::Range;

/// The shape of packed weights: \[results, taps, sums\], the results of each group
/// padded to whole panels.
pub fn conv2d_packed_shape(conv: &Conv2d, direction: Direction, weight: &Shape) -> Shape {
    let [results, sums] = direction.channels([weight[0] / conv.groups, weight[1]]);
    let padded = results.next_multiple_of(ALIGN);
    Shape::new(&[conv.groups * padded, weight[2] * weight[3], sums])
}

/// Copies weights \[O, C/groups, kh, kw\] into panels: of two vectors of results,
/// a term after the other.
pub fn conv2d_pack_weight(conv: &Conv2d, direction: Direction, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), pack(conv, direction, call));
}

fn pack<T: Lane>(conv: &Conv2d, direction: Direction, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, _) = call.split();
    let (w, mut u) = (ins.get::<T>(0), outs.take::<T>());
    let shape = w.shape();
    let taps = shape[2] * shape[3];
    let weights = w.run(&Region::full(&shape)).expect("weights in one piece");
    let [results, sums] = direction.channels([shape[0] / conv.groups, shape[1]]);
    let padded = results.next_multiple_of(ALIGN);
    let size = shape[0] / conv.groups * shape[1] * taps;
    // Panels of a group follow those of the one before.
    for first in region.range(0).step_by(ALIGN) {
        let (group, from) = (first / padded, first % padded);
        let (to, _) = u.raw_mut(&region.with(0, first..first + ALIGN));
        isa.run(Pack {
            direction,
            weights: &weights[group * size..(group + 1) * size],
            channels: shape[1],
            taps,
            results: from..(from + ALIGN).min(results).max(from),
            sums,
            to,
        });
    }
}

struct Pack<'a, T> {
    direction: Direction,
    /// Those of a group.
    weights: &'a [T],
    /// Channels of a filter, and its taps.
    channels: usize,
    taps: usize,
    /// Those of some panels; what is missing is 0.
    results: Range<usize>,
    sums: usize,
    to: *mut T,
}

impl<T: Lane> Work for Pack<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let width = VECTORS * T::Vector::<S>::LANES;
        let terms = self.taps * self.sums;
        for panel in 0..ALIGN / width {
            let to = self.to.wrapping_add(panel * width * terms);
            for lane in 0..width {
                let result = self.results.start + panel * width + lane;
                for sum in 0..self.sums {
                    for tap in 0..self.taps {
                        let value = match result < self.results.end {
                            true => self.weights[self.at(result, sum) + tap],
                            false => T::ZERO,
                        };
                        // SAFETY: panels of the piece.
                        unsafe { *to.add((tap * self.sums + sum) * width + lane) = value };
                    }
                }
            }
        }
    }
}

impl<T> Pack<'_, T> {
    /// Where the taps between a result and a channel that it sums are.
    #[inline(always)]
    fn at(&self, result: usize, sum: usize) -> usize {
        let [filter, channel] = match self.direction {
            Direction::Forward => [result, sum],
            Direction::Backward => [sum, result],
        };
        (filter * self.channels + channel) * self.taps
    }
}
