//! The windows of a sample in a [`direct`](super::direct) convolution.
//!
//! Tiles of some vectors of places by some filters are computed beside the result,
//! a band of rows at a time, where the rows have the planes' length; then the
//! rows are copied to where they belong.
#![expect(unsafe_code, reason = "planes and results are read and written through pointers")]

use super::Rectify;
use super::direct::Plan;
use crate::gemm::{BLOCK, ROWS};
use crate::simd::{Lane, Simd, Vector, Work};
use crate::{Element, Region, ViewMut};
use std::marker::PhantomData;

/// What is done to a sum, and where it goes.
pub(super) struct Sink<'a, T> {
    bias: &'a [T],
    rectify: Rectify,
    /// Where the sample's windows go.
    y: Maps<'a, T>,
    /// Which place of its window was the largest.
    winner: Option<Maps<'a, u8>>,
}

/// The maps of one sample in a result, rows by rows.
struct Maps<'a, T> {
    first: *mut T,
    /// Distance of filters, and of rows.
    filter: usize,
    row: usize,
    element: PhantomData<&'a mut T>,
}

impl<'a, T: Element> Maps<'a, T> {
    fn new(view: &'a mut ViewMut<'_, T>, region: &Region) -> Self {
        let (first, strides) = view.raw_mut(region);
        assert!(strides[3] == 1 || region.len(3) <= 1, "columns lie behind each other");
        Self { first, filter: strides[1], row: strides[2], element: PhantomData }
    }

    /// # Safety
    /// The row is inside of the region.
    #[inline(always)]
    unsafe fn row(&mut self, filter: usize, row: usize) -> *mut T {
        // SAFETY: as promised.
        unsafe { self.first.add(filter * self.filter + row * self.row) }
    }
}

impl<'a, T: Lane> Sink<'a, T> {
    /// For one sample of `region`, whose box is written.
    pub(super) fn new(
        (bias, rectify): (&'a [T], Rectify),
        region: &Region,
        y: &'a mut ViewMut<'_, T>,
        winner: Option<&'a mut ViewMut<'_, u8>>,
    ) -> Self {
        let (y, winner) = (Maps::new(y, region), winner.map(|w| Maps::new(w, region)));
        Self { bias, rectify, y, winner }
    }
}

/// All windows of a sample.
pub(super) struct Sample<'a, 'b, T> {
    pub(super) plan: &'a mut Plan<'b, T>,
    pub(super) sink: Sink<'a, T>,
}

impl<T: Lane> Work for Sample<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let Self { plan, mut sink } = self;
        let of = plan.of;
        let (pitch, [rows, columns]) = (of.plane()[1], of.windows());
        let (panel, length) = (ROWS * of.terms(), of.results());
        for first in (0..rows).step_by(of.band()) {
            let count = of.band().min(rows - first);
            let places = (count - 1) * pitch + columns;
            for number in 0..of.panels() {
                let (f, filters) = (of.panel(number).start, of.panel(number).len());
                let mut bias = [T::ZERO; ROWS];
                if !sink.bias.is_empty() {
                    bias[..filters].copy_from_slice(&sink.bias[f..f + filters]);
                }
                let mut tile = Tile {
                    window: of.window(),
                    terms: of.terms(),
                    offsets: plan.offsets,
                    weights: &plan.weights[number * panel..][..panel],
                    planes: plan.planes.as_ptr(),
                    bias: (!sink.bias.is_empty()).then_some(&bias),
                    rectify: sink.rectify,
                    values: plan.values.as_mut_ptr(),
                    winners: plan.winners.as_mut_ptr(),
                    length,
                };
                let vectors = vectors(filters, places, T::Vector::<S>::LANES);
                let width = vectors * T::Vector::<S>::LANES;
                assert!(places.next_multiple_of(width) <= length, "room for whole tiles");
                for q in (0..places).step_by(width) {
                    // SAFETY: the tile is inside of the results, as asserted; the
                    // places are inside of the planes, which are followed by room
                    // for the widest tile.
                    unsafe { tile.run::<S>([filters, vectors], first * pitch + q, q) };
                }
                for r in 0..filters {
                    let from = r * length;
                    assert!(from + places <= plan.values.len().min(plan.winners.len()));
                    // SAFETY: as asserted; the result has the rows of the band, of so
                    // many columns, for every filter.
                    unsafe {
                        let (mut from, mut to) =
                            (plan.values.as_ptr().add(from), sink.y.row(f + r, first));
                        for _ in 0..count {
                            copy::<S, T>(from, to, columns);
                            (from, to) = (from.wrapping_add(pitch), to.wrapping_add(sink.y.row));
                        }
                    }
                    let Some(winner) = &mut sink.winner else { continue };
                    // SAFETY: as above.
                    unsafe {
                        let (mut from, mut to) =
                            (plan.winners.as_ptr().add(from), winner.row(f + r, first));
                        for _ in 0..count {
                            copy_bytes(from, to, columns);
                            (from, to) = (from.wrapping_add(pitch), to.wrapping_add(winner.row));
                        }
                    }
                }
            }
        }
    }
}

/// How many vectors of places a tile has: about eight sums at a time, for which
/// registers suffice, unless too many of them were of places that are not there.
fn vectors(filters: usize, places: usize, lanes: usize) -> usize {
    let wide = match filters {
        1 | 2 => 4,
        3 => 3,
        _ => 2,
    };
    let filled = |vectors: usize| places.next_multiple_of(vectors * lanes);
    if 5 * filled(wide) <= 6 * filled(2) { wide } else { 2 }
}

/// Copies a row in vectors: rows are too short for a call.
///
/// # Safety
/// So many elements can be read and written.
#[inline(always)]
unsafe fn copy<S: Simd, T: Lane>(from: *const T, to: *mut T, columns: usize) {
    let lanes = T::Vector::<S>::LANES;
    let mut i = 0;
    // SAFETY: as promised; the last vector may overlap the one before.
    unsafe {
        let Some(last) = columns.checked_sub(lanes) else {
            while i < columns {
                *to.add(i) = *from.add(i);
                i += 1;
            }
            return;
        };
        while i < last {
            T::Vector::<S>::load(from.add(i)).store(to.add(i));
            i += lanes;
        }
        T::Vector::<S>::load(from.add(last)).store(to.add(last));
    }
}

/// [`copy`] for bytes, eight at a time.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, columns: usize) {
    let mut i = 0;
    // SAFETY: as in `copy`.
    unsafe {
        let Some(last) = columns.checked_sub(8) else {
            while i < columns {
                *to.add(i) = *from.add(i);
                i += 1;
            }
            return;
        };
        let (from, to) = (from.cast::<[u8; 8]>(), to.cast::<[u8; 8]>());
        while i < last {
            to.byte_add(i).write(from.byte_add(i).read());
            i += 8;
        }
        to.byte_add(last).write(from.byte_add(last).read());
    }
}

/// Some vectors of windows by some filters.
struct Tile<'a, T> {
    window: usize,
    terms: usize,
    offsets: &'a [usize],
    /// [`ROWS`] a term.
    weights: &'a [T],
    planes: *const T,
    bias: Option<&'a [T; ROWS]>,
    rectify: Rectify,
    /// Where the results of the first filter go, and how far apart filters are.
    values: *mut T,
    winners: *mut u8,
    length: usize,
}

impl<T: Lane> Tile<'_, T> {
    /// # Safety
    /// From place `from` on, the planes have so many vectors for every tap; from
    /// `to` on, the results have them for every filter.
    #[inline(always)]
    unsafe fn run<S: Simd>(&mut self, size: [usize; 2], from: usize, to: usize) {
        // SAFETY: promised.
        unsafe {
            match size {
                [6, _] => self.sized::<S, 6, 2>(from, to),
                [5, _] => self.sized::<S, 5, 2>(from, to),
                [4, _] => self.sized::<S, 4, 2>(from, to),
                [3, 3] => self.sized::<S, 3, 3>(from, to),
                [3, _] => self.sized::<S, 3, 2>(from, to),
                [2, 4] => self.sized::<S, 2, 4>(from, to),
                [2, _] => self.sized::<S, 2, 2>(from, to),
                [_, 4] => self.sized::<S, 1, 4>(from, to),
                _ => self.sized::<S, 1, 2>(from, to),
            }
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    #[inline(always)]
    unsafe fn sized<S: Simd, const R: usize, const V: usize>(&mut self, from: usize, to: usize) {
        let lanes = T::Vector::<S>::LANES;
        // SAFETY: promised.
        let mut best = unsafe { self.place::<S, R, V>(0, from) };
        let mut winner = [[T::Vector::<S>::zero(); V]; R];
        for place in 1..self.window {
            // SAFETY: promised.
            let sums = unsafe { self.place::<S, R, V>(place, from) };
            let here = T::Vector::<S>::splat(T::from_f64(place as f64));
            for r in 0..R {
                for v in 0..V {
                    (best[r][v], winner[r][v]) =
                        T::Vector::<S>::better((best[r][v], winner[r][v]), (sums[r][v], here));
                }
            }
        }
        for r in 0..R {
            for v in 0..V {
                let value = match self.rectify {
                    Rectify::No => best[r][v],
                    Rectify::Relu => best[r][v].relu(),
                };
                let at = r * self.length + to + v * lanes;
                // SAFETY: promised.
                unsafe {
                    value.store(self.values.add(at));
                    if self.window > 1 {
                        winner[r][v].store_bytes(self.winners.add(at));
                    }
                }
            }
        }
    }

    /// The convolution at one place of the windows, with its bias.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline(always)]
    unsafe fn place<S: Simd, const R: usize, const V: usize>(
        &self,
        place: usize,
        from: usize,
    ) -> [[T::Vector<S>; V]; R] {
        let terms = self.terms;
        let offsets = &self.offsets[place * terms..][..terms];
        // SAFETY: promised.
        let mut sums = unsafe { self.block::<S, R, V>(0, &offsets[..terms.min(BLOCK)], from) };
        for first in (BLOCK..terms).step_by(BLOCK) {
            let offsets = &offsets[first..(first + BLOCK).min(terms)];
            // SAFETY: promised.
            let more = unsafe { self.block::<S, R, V>(first, offsets, from) };
            for r in 0..R {
                for v in 0..V {
                    sums[r][v] = sums[r][v].add(more[r][v]);
                }
            }
        }
        if let Some(bias) = self.bias {
            for r in 0..R {
                let bias = T::Vector::<S>::splat(bias[r]);
                sums[r].iter_mut().for_each(|sum| *sum = sum.add(bias));
            }
        }
        sums
    }

    /// The sum of some terms, from zero.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline(always)]
    unsafe fn block<S: Simd, const R: usize, const V: usize>(
        &self,
        first: usize,
        offsets: &[usize],
        from: usize,
    ) -> [[T::Vector<S>; V]; R] {
        let mut sums = [[T::Vector::<S>::zero(); V]; R];
        let weights = &self.weights[first * ROWS..][..offsets.len() * ROWS];
        // Four at a time: the end of a short loop is foreseen.
        let (fours, rest) = offsets.as_chunks::<4>();
        // SAFETY: promised; the weights have `ROWS` elements a term.
        unsafe {
            let (mut weight, planes) = (weights.as_ptr(), self.planes.add(from));
            for four in fours {
                for (t, &offset) in four.iter().enumerate() {
                    term::<S, T, R, V>(planes.add(offset), weight.add(t * ROWS), &mut sums);
                }
                weight = weight.add(4 * ROWS);
            }
            for &offset in rest {
                term::<S, T, R, V>(planes.add(offset), weight, &mut sums);
                weight = weight.add(ROWS);
            }
        }
        sums
    }
}

/// One tap of all filters, added to their sums.
///
/// # Safety
/// `R` weights and `V` vectors can be read.
#[inline(always)]
unsafe fn term<S: Simd, T: Lane, const R: usize, const V: usize>(
    from: *const T,
    weights: *const T,
    sums: &mut [[T::Vector<S>; V]; R],
) {
    let lanes = T::Vector::<S>::LANES;
    // SAFETY: promised.
    unsafe {
        let columns = T::Vector::<S>::load_many::<V>(from, lanes);
        for (r, sums) in sums.iter_mut().enumerate() {
            let x = T::Vector::<S>::splat(*weights.add(r));
            for (sum, &column) in sums.iter_mut().zip(&columns) {
                *sum = x.mul_add(column, *sum);
            }
        }
    }
}
