//! From images with channels apart to pixels with channels together, and back.
#![expect(unsafe_code, reason = "pixels are read and written through pointers")]

use crate::simd::{Lane, MAX_LANES, Simd, Vector};
use std::ops::Range;

/// A box of planes: `first` is at its first row and column.
#[derive(Clone, Copy)]
pub(super) struct Planes<T> {
    pub(super) first: *mut T,
    /// How many there are, and how far apart.
    pub(super) channels: usize,
    pub(super) channel: usize,
    /// The distances of rows and of columns; what is read has columns behind
    /// each other.
    pub(super) row: usize,
    pub(super) column: usize,
}

/// Exchanges rows and columns of a rectangle of `rows` × `columns`, at most a
/// vector each; `written` elements of each row of the result, 0 where `rows` has
/// not so many.
///
/// # Safety
/// The rectangle can be read; `columns` rows of `written` elements can be
/// written.
#[inline(always)]
unsafe fn exchange<S: Simd, T: Lane>(
    (from, line): (*const T, usize),
    (to, out): (*mut T, usize),
    [rows, columns]: [usize; 2],
    written: usize,
) {
    let lanes = T::Vector::<S>::LANES;
    // SAFETY: promised by the caller; the squares beside have room for all.
    unsafe {
        if [rows, columns, written] == [lanes; 3] {
            T::Vector::<S>::transpose(from, to, [line, out]);
            return;
        }
        let mut read = [T::ZERO; MAX_LANES * MAX_LANES];
        let mut turned = [T::ZERO; MAX_LANES * MAX_LANES];
        for i in 0..rows {
            for j in 0..columns {
                read[i * lanes + j] = *from.add(i * line + j);
            }
        }
        T::Vector::<S>::transpose(read.as_ptr(), turned.as_mut_ptr(), [lanes, lanes]);
        for j in 0..columns {
            for i in 0..written {
                *to.add(j * out + i) = turned[j * lanes + i];
            }
        }
    }
}

/// A window of an image with channels together: `pixel` apart, zero around the
/// image and in the channels that fill the last vector.
#[derive(Clone, Copy)]
pub(super) struct Window<T> {
    pub(super) first: *mut T,
    pub(super) pixel: usize,
    /// Its first row and column in the image, rows and columns.
    pub(super) start: [isize; 2],
    pub(super) lengths: [usize; 2],
}

impl<T: Lane> Window<T> {
    /// The part of an axis of an image that has `valid` in this window.
    fn inside(&self, a: usize, valid: &Range<usize>) -> Range<usize> {
        let length = self.lengths[a] as isize;
        let at = |i: usize| (i as isize - self.start[a]).clamp(0, length) as usize;
        at(valid.start)..at(valid.end).max(at(valid.start))
    }

    #[inline(always)]
    fn at(&self, [row, column]: [usize; 2]) -> *mut T {
        self.first.wrapping_add((row * self.lengths[1] + column) * self.pixel)
    }

    /// Fills the window from the planes whose first element is at the first of
    /// `valid` rows and columns; outside of these it is 0.
    ///
    /// # Safety
    /// The planes can be read at `valid`, the window can be written.
    #[inline(always)]
    pub(super) unsafe fn fill<S: Simd>(&self, planes: &Planes<T>, valid: &[Range<usize>; 2]) {
        debug_assert_eq!(planes.column, 1, "columns behind each other");
        let lanes = T::Vector::<S>::LANES;
        let (rows, columns) = (self.inside(0, &valid[0]), self.inside(1, &valid[1]));
        let zero = |row: usize, columns: Range<usize>| {
            // SAFETY: pixels of the window.
            unsafe {
                let count = columns.len() * self.pixel;
                std::ptr::write_bytes(self.at([row, columns.start]), 0, count);
            }
        };
        for row in 0..self.lengths[0] {
            if !rows.contains(&row) || columns.is_empty() {
                zero(row, 0..self.lengths[1]);
                continue;
            }
            zero(row, 0..columns.start);
            zero(row, columns.end..self.lengths[1]);
            let y = (row as isize + self.start[0]) as usize - valid[0].start;
            let x = (columns.start as isize + self.start[1]) as usize - valid[1].start;
            // SAFETY: inside of the planes and of the window.
            unsafe {
                let from = planes.first.add(y * planes.row + x);
                for c in (0..planes.channels).step_by(lanes) {
                    let channels = (planes.channels - c).min(lanes);
                    for j in (0..columns.len()).step_by(lanes) {
                        exchange::<S, T>(
                            (from.add(c * planes.channel + j), planes.channel),
                            (self.at([row, columns.start + j]).add(c), self.pixel),
                            [channels, (columns.len() - j).min(lanes)],
                            lanes,
                        );
                    }
                }
            }
        }
    }

    /// Writes the part of the window that is `valid` to planes whose first
    /// element is at the first of these rows and columns.
    ///
    /// # Safety
    /// The planes can be written at `valid`, the window can be read.
    #[inline(always)]
    pub(super) unsafe fn spread<S: Simd>(&self, planes: &Planes<T>, valid: &[Range<usize>; 2]) {
        let lanes = T::Vector::<S>::LANES;
        let (rows, columns) = (self.inside(0, &valid[0]), self.inside(1, &valid[1]));
        for row in rows.filter(|_| !columns.is_empty()) {
            let y = (row as isize + self.start[0]) as usize - valid[0].start;
            let x = (columns.start as isize + self.start[1]) as usize - valid[1].start;
            // SAFETY: inside of the planes and of the window.
            unsafe {
                let to = planes.first.add(y * planes.row + x);
                for c in (0..planes.channels).step_by(lanes) {
                    let channels = (planes.channels - c).min(lanes);
                    for j in (0..columns.len()).step_by(lanes) {
                        let pixels = (columns.len() - j).min(lanes);
                        let from =
                            (self.at([row, columns.start + j]).add(c).cast_const(), self.pixel);
                        let to = to.add(c * planes.channel + j * planes.column);
                        if planes.column == 1 {
                            let to = (to, planes.channel);
                            exchange::<S, T>(from, to, [pixels, channels], pixels);
                            continue;
                        }
                        for pixel in 0..pixels {
                            for channel in 0..channels {
                                let at = channel * planes.channel + pixel * planes.column;
                                *to.add(at) = *from.0.add(pixel * from.1 + channel);
                            }
                        }
                    }
                }
            }
        }
    }
}
