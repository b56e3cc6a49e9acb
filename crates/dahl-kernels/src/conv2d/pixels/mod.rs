//! Convolution as a product of matrices: pixels by channels times channels by
//! filters, summed over the taps of the window.
//!
//! Nothing is copied a tap: a strip of the image is turned so that the channels
//! of a pixel lie together, padded, and every tap reads the same pixels from
//! another place on. The terms of a sum are (tap, channel), in blocks of
//! [`gemm::BLOCK`](crate::gemm::BLOCK); for the gradient of weights they are
//! the places of the result.
#![expect(unsafe_code, reason = "pixels are read and written through pointers")]

mod outputs;
mod weight;
mod weight_gradient;

pub use outputs::{conv2d_gemm, conv2d_gemm_scratch};
pub use weight::{conv2d_pack_weight, conv2d_packed_shape};
pub use weight_gradient::{conv2d_backward_weight_gemm, conv2d_backward_weight_gemm_scratch};

use super::Conv2d;
use std::ops::Range;

/// What is computed from an image and weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Outputs.
    Forward,
    /// The gradient of inputs: filters and channels are exchanged.
    Backward,
}

impl Direction {
    /// The channels of the result and those that are summed over, from filters
    /// and channels.
    pub(super) fn channels(self, [filters, channels]: [usize; 2]) -> [usize; 2] {
        match self {
            Direction::Forward => [filters, channels],
            Direction::Backward => [channels, filters],
        }
    }
}

/// Results along one axis that see the same taps, at fixed distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    /// The first result, the distance to the next, how many.
    first: usize,
    step: usize,
    count: usize,
    /// The first tap, the distance to the next, how many.
    tap: usize,
    tap_step: usize,
    taps: usize,
    /// Where the first result sees its first tap.
    origin: isize,
    /// How far apart results see the same tap, and a result its taps.
    place: usize,
    apart: isize,
}

impl Class {
    /// The classes of results in `range` along axis `a` of a kernel of `taps`.
    fn of(
        direction: Direction,
        conv: &Conv2d,
        a: usize,
        range: Range<usize>,
        taps: usize,
    ) -> impl Iterator<Item = Class> {
        let (stride, padding, dilation) = conv.axis(a);
        let classes = match direction {
            Direction::Forward => 1,
            Direction::Backward => stride.min(range.len()),
        };
        (0..classes).map(move |class| match direction {
            Direction::Forward => Class {
                first: range.start,
                step: 1,
                count: range.len(),
                tap: 0,
                tap_step: 1,
                taps,
                origin: (range.start * stride) as isize - padding as isize,
                place: stride,
                apart: dilation as isize,
            },
            Direction::Backward => {
                // Pixel y sees tap k where y + p − k d is a multiple of s, at
                // that over s.
                let first = range.start + class;
                let tap_step = stride / gcd(stride, dilation);
                let sees = |k: &usize| (first + padding) % stride == (k * dilation) % stride;
                let tap = (0..tap_step.min(taps)).find(sees);
                let at = (first + padding) as isize - (tap.unwrap_or(0) * dilation) as isize;
                Class {
                    first,
                    step: stride,
                    count: (range.end - first).div_ceil(stride),
                    tap: tap.unwrap_or(0),
                    tap_step,
                    taps: tap.map_or(0, |tap| (taps - tap).div_ceil(tap_step)),
                    origin: at.div_euclid(stride as isize),
                    place: 1,
                    apart: -((tap_step * dilation / stride) as isize),
                }
            }
        })
    }

    /// How far the taps of a result reach.
    fn reach(&self) -> usize {
        self.taps.saturating_sub(1) * self.apart.unsigned_abs()
    }

    /// How many pixels `count` results see together.
    fn length(&self, count: usize) -> usize {
        if count == 0 { 0 } else { (count - 1) * self.place + self.reach() + 1 }
    }

    /// The first pixel that result `i` sees.
    fn start(&self, i: usize) -> isize {
        self.origin + (i * self.place) as isize
            - if self.apart < 0 { self.reach() as isize } else { 0 }
    }

    /// How far behind its first pixel a result sees its tap `k`.
    fn offset(&self, k: usize) -> usize {
        let k = if self.apart < 0 { self.taps - 1 - k } else { k };
        k * self.apart.unsigned_abs()
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
