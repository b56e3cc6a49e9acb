//! Matrices in memory as operands and results.

use super::{Panels, Tiles};
use std::marker::PhantomData;
use std::ops::Range;

/// A matrix of an operand: lanes (rows of A, columns of B or C's rows) and terms
/// at fixed distances.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    first: *mut T,
    /// Distance of lanes, and of terms, in elements.
    lane: usize,
    term: usize,
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

impl<T: Copy> Panels<T> for Matrix<'_, T> {
    #[inline(always)]
    fn pack(&self, lanes: Range<usize>, terms: Range<usize>, width: usize, to: &mut [T]) {
        let depth = terms.len();
        assert!(lanes.len() <= width && to.len() >= depth * width);
        // SAFETY: whoever made the matrix promised its elements; `to` is long
        // enough as asserted.
        unsafe {
            let from = self.first.add(lanes.start * self.lane + terms.start * self.term);
            let to = to.as_mut_ptr();
            if self.lane == 1 {
                for t in 0..depth {
                    let (from, to) = (from.add(t * self.term), to.add(t * width));
                    if lanes.len() == width {
                        // The length is a constant where this is inlined.
                        std::ptr::copy_nonoverlapping(from, to, width);
                    } else {
                        std::ptr::copy_nonoverlapping(from, to, lanes.len());
                        for lane in lanes.len()..width {
                            *to.add(lane) = *from;
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
}

impl<T: Copy> Tiles<T> for Matrix<'_, T> {
    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> (*mut T, usize) {
        let together = if self.term == 1 { usize::MAX } else { 1 };
        // SAFETY: an element of the result, as whoever made it promised.
        (unsafe { self.first.add(row * self.lane + column * self.term) }, together)
    }

    fn row_stride(&self) -> usize {
        self.lane
    }
}
