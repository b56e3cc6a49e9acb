//! Weights to points, in panels that products read in order.

use super::form::{Axis, F2, F4, Form, POINTS, TAPS, Taps, both, load};
use super::panel_columns;
use crate::conv2d::Direction;
use crate::element::float_dispatch;
use crate::simd::{Lane, MAX_LANES, Simd, Vector, Work};
use crate::{Call, Region};

/// Taps of a filter.
pub(super) const SQUARE: usize = TAPS * TAPS;

/// G w Gᵀ of every filter and channel. Input w \[O, C, 3, 3\], output points
/// \[results, points², sums\], results padded to whole panels.
pub fn conv2d_winograd_weight(form: Form, direction: Direction, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), transform(form, direction, call));
}

fn transform<T: Lane>(form: Form, direction: Direction, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, _) = call.split();
    let (w, mut u) = (ins.get::<T>(0), outs.take::<T>());
    let shape = w.shape();
    let weights = w.run(&Region::full(&shape)).expect("weights in one piece");
    let (to, _) = u.raw_mut(&region);
    let [results, sums] = direction.channels([shape[0], shape[1]]);
    isa.run(Transform {
        form,
        direction,
        weights,
        sizes: [results, sums],
        channels: shape[1],
        results: region.range(0),
        to,
    });
}

struct Transform<'a, T> {
    form: Form,
    direction: Direction,
    weights: &'a [T],
    /// Results, and channels that are summed over.
    sizes: [usize; 2],
    /// Channels of a filter as it is stored.
    channels: usize,
    results: std::ops::Range<usize>,
    /// The first panel: its terms of every point.
    to: *mut T,
}

impl<T: Lane> Work for Transform<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        match self.form {
            Form::F2 => self.form::<S, F2>(),
            Form::F4 => self.form::<S, F4>(),
        }
    }
}

impl<T: Lane> Transform<'_, T> {
    #[inline(always)]
    fn form<S: Simd, F: Axis>(self) {
        let lanes = T::Vector::<S>::LANES;
        let width = panel_columns::<S, T>();
        let [results, sums] = self.sizes;
        let mut rows = [T::ZERO; MAX_LANES * MAX_LANES * SQUARE];
        let mut columns = [T::ZERO; MAX_LANES * MAX_LANES * SQUARE];
        let line = lanes * SQUARE;
        for r in self.results.clone().step_by(lanes) {
            let there = results.saturating_sub(r).min(lanes);
            let terms_of_point = width * sums;
            let panel = (r - self.results.start) / width * self.form.products() * terms_of_point;
            let lane = (r - self.results.start) % width;
            for s in (0..sums).step_by(lanes) {
                let terms = (sums - s).min(lanes);
                for i in 0..lanes {
                    let row = &mut rows[i * line..(i + 1) * line];
                    if i < there {
                        self.copy(r + i, s..s + terms, row);
                    } else {
                        row.fill(T::ZERO);
                    }
                }
                for tap in 0..SQUARE {
                    // SAFETY: squares of both arrays.
                    unsafe {
                        let from = rows.as_ptr().add(tap * lanes);
                        let to = columns.as_mut_ptr().add(tap * lanes * lanes);
                        T::Vector::<S>::transpose(from, to, [line, lanes]);
                    }
                }
                for term in 0..terms {
                    let at = |k, l| columns[(term * SQUARE + k * TAPS + l) * lanes..].as_ptr();
                    // SAFETY: vectors of the array.
                    let taps: [[T::Vector<S>; TAPS]; TAPS] = unsafe { load(TAPS, at) };
                    let points: [[T::Vector<S>; POINTS]; POINTS] =
                        both::<Taps<F>, _, TAPS, POINTS>([TAPS, F::POINTS], taps);
                    for (p, point) in
                        points.iter().take(F::POINTS).flat_map(|r| &r[..F::POINTS]).enumerate()
                    {
                        let at = panel + p * terms_of_point + (s + term) * width + lane;
                        // SAFETY: panels of the piece.
                        unsafe { point.store(self.to.add(at)) };
                    }
                }
            }
        }
    }

    /// Copies the taps between a result and some channels that it sums.
    #[inline(always)]
    fn copy(&self, result: usize, sums: std::ops::Range<usize>, to: &mut [T]) {
        match self.direction {
            Direction::Forward => {
                let from = (result * self.channels + sums.start) * SQUARE;
                let taps = sums.len() * SQUARE;
                to[..taps].copy_from_slice(&self.weights[from..from + taps]);
            }
            Direction::Backward => {
                for (s, to) in sums.zip(to.chunks_exact_mut(SQUARE)) {
                    let from = (s * self.channels + result) * SQUARE;
                    // Taps the other way round.
                    let taps = self.weights[from..from + SQUARE].iter().rev();
                    to.iter_mut().zip(taps).for_each(|(to, tap)| *to = *tap);
                }
            }
        }
    }
}
