//! Matrices in memory as operands and results.

use super::MAX_COLUMNS;
use crate::simd::{Lane, Simd, Vector};
use std::marker::PhantomData;
use std::ops::Range;

/// A matrix of an operand: lanes (rows of A, columns of B or C's rows) and terms
/// at fixed distances.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    first: *mut T,
    /// Distance of lanes, and of terms, in elements.
    pub(super) lane: usize,
    pub(super) term: usize,
    element: PhantomData<&'a T>,
}

impl<T: Copy> Matrix<'_, T> {
    /// # Safety
    /// The addresses that are asked for later can be read, or written where it
    /// is a result.
    pub(crate) unsafe fn new(first: *mut T, lane: usize, term: usize) -> Self {
        Self { first, lane, term, element: PhantomData }
    }
}

impl<T: Lane> Matrix<'_, T> {
    /// Copies `lanes` for `terms` of the sum: `to[t * width + lane]`. The lanes
    /// from `lanes.len()` to `width` are written too, with elements of others; those
    /// beyond `width` are overwritten by the next term, and stand
    /// out behind the last one. It is fastest where `whole` lanes are there.
    #[inline(always)]
    pub(super) fn pack<S: Simd>(
        &self,
        lanes: Range<usize>,
        terms: Range<usize>,
        [width, whole]: [usize; 2],
        to: &mut [T],
    ) {
        let depth = terms.len();
        assert!(lanes.len() <= whole && to.len() >= depth * width + (whole - width));
        // SAFETY: whoever made the matrix promised its elements; `to` is long
        // enough as asserted.
        unsafe {
            let from = self.first.add(lanes.start * self.lane + terms.start * self.term);
            let to = to.as_mut_ptr();
            if self.lane == 1 {
                for t in 0..depth {
                    let (from, to) = (from.add(t * self.term), to.add(t * width));
                    if lanes.len() == whole {
                        // The length is a constant where this is inlined.
                        std::ptr::copy_nonoverlapping(from, to, whole);
                    } else {
                        std::ptr::copy_nonoverlapping(from, to, lanes.len());
                        for lane in lanes.len()..width {
                            *to.add(lane) = *from;
                        }
                    }
                }
                return;
            }
            let side = T::Vector::<S>::LANES;
            if self.term == 1 && lanes.len() == whole && whole.is_multiple_of(side) {
                let turned = depth - depth % side;
                // The last lanes first: they stand out over the first ones.
                for lane in (0..whole).step_by(side).rev() {
                    let (from, to) = (from.add(lane * self.lane), to.add(lane));
                    for t in (0..turned).step_by(side) {
                        let to = to.add(t * width);
                        T::Vector::<S>::transpose(from.add(t), to, [self.lane, width]);
                    }
                    for t in turned..depth {
                        for i in 0..side {
                            *to.add(t * width + i) = *from.add(i * self.lane + t);
                        }
                    }
                }
                return;
            }
            // Lanes that are missing repeat the last one.
            let last = lanes.len().saturating_sub(1);
            // A few terms of all lanes at a time: what is written stays near.
            const STEP: usize = 16;
            for t0 in (0..depth).step_by(STEP) {
                let t1 = (t0 + STEP).min(depth);
                for lane in 0..width {
                    let from = from.add(lane.min(last) * self.lane);
                    for t in t0..t1 {
                        *to.add(t * width + lane) = *from.add(t * self.term);
                    }
                }
            }
        }
    }

    /// The address of an element of a result.
    #[inline(always)]
    pub(super) fn at(&self, row: usize, column: usize) -> *mut T {
        self.first.wrapping_add(row * self.lane + column * self.term)
    }

    /// Calls `body` with the elements of a box of at most a tile, and their
    /// number in a tile whose rows are [`MAX_COLUMNS`] long.
    #[inline(always)]
    pub(super) fn each(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        mut body: impl FnMut(usize, &mut T),
    ) {
        for (i, row) in rows.enumerate() {
            for (j, column) in columns.clone().enumerate() {
                // SAFETY: an element of the result, as whoever made it promised.
                body(i * MAX_COLUMNS + j, unsafe { &mut *self.at(row, column) });
            }
        }
    }
}
