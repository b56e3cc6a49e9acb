//! The product of matrices: C = A B, with the order of every sum pinned.
//!
//! # The order of a sum
//! The summed axis is cut into blocks of [`BLOCK`]. A block starts from zero and
//! takes its products in order, each rounded once with the sum (where the
//! instruction set can); blocks are added in order; the bias comes last. That
//! is all: neither the place of an element, nor the other axes, nor the sizes of
//! caches, nor the width of vectors change it, so any piece of C has the bits
//! that it has in the whole.
//!
//! # How it is fast
//! After Goto and van de Geijn (2008): panels of A ([`ROWS`] rows) and of B (two
//! vectors of columns) are copied so that the innermost loop reads both in order;
//! a block of packed A stays in the second cache, a panel of B in the first; the
//! [`Tile`] of C that a pair of panels gives stays in registers. Kernels whose
//! operands are in such an order already run a [`Strip`] of tiles themselves.
#![expect(unsafe_code, reason = "the module that reads and writes tiles through pointers")]

mod matrix;
#[cfg(test)]
mod tests;
mod tile;

pub(crate) use matrix::Matrix;

use crate::DType;
use crate::simd::{Isa, Lane, MAX_LANES, Simd, Vector, Work};
use std::ops::Range;
pub(crate) use tile::{Run, Strip, Tile};

/// How many terms are summed before the sum is added to the result.
pub(crate) const BLOCK: usize = 256;

/// Panels start at a line of the cache.
pub(crate) const LINE: usize = 64;

/// Rows of a tile.
pub(crate) const ROWS: usize = 6;
/// Vectors of a tile's row.
pub(crate) const VECTORS: usize = 2;
/// The most columns of a tile, over all instruction sets and elements.
pub(crate) const MAX_COLUMNS: usize = VECTORS * MAX_LANES;

/// Elements behind the panels of A: rows are packed in squares of vectors, and
/// the last one may stand out by less than this.
const BEHIND: usize = MAX_LANES;
/// Rows of A that are packed at once; a multiple of [`ROWS`].
const ROW_BLOCK: usize = 96;
/// Columns of B that are packed at once; a multiple of every tile's columns.
const COLUMN_BLOCK: usize = 1024;

/// What is done to a sum before it is stored for the last time.
#[derive(Clone, Copy)]
pub(crate) struct Finish<'a, T> {
    /// A summand of each column.
    pub(crate) bias: Option<&'a [T]>,
    pub(crate) rectify: crate::conv2d::Rectify,
}

impl<T> Finish<'_, T> {
    pub(crate) const NOTHING: Self = Self { bias: None, rectify: crate::conv2d::Rectify::No };
}

/// The lengths of a product: C is rows × columns, and `terms` are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) terms: usize,
}

impl Lengths {
    fn blocks(&self) -> (usize, usize, usize) {
        let rows = self.rows.min(ROW_BLOCK).next_multiple_of(ROWS);
        // Padded for the widest tile, so that it does not depend on the
        // instruction set.
        let columns = self.columns.min(COLUMN_BLOCK).next_multiple_of(MAX_COLUMNS);
        (rows, columns, self.terms.min(BLOCK))
    }

    /// The elements of scratch that [`gemm`] needs.
    pub(crate) fn scratch(&self) -> usize {
        let (rows, columns, terms) = self.blocks();
        (rows + columns) * terms + BEHIND
    }
}

/// The bytes of scratch that [`run`] needs.
pub(crate) fn scratch_bytes(lengths: Lengths, dtype: DType) -> usize {
    lengths.scratch() * dtype.size() + LINE
}

/// C = A B on an instruction set, finished as `finish` says. The lanes of A are
/// its rows, those of B its columns, those of C its rows.
///
/// # Safety
/// The elements of the matrices that `lengths` has can be read, or written.
pub(crate) unsafe fn run<T: Lane>(
    isa: Isa,
    lengths: Lengths,
    a: &Matrix<'_, T>,
    b: &Matrix<'_, T>,
    c: &Matrix<'_, T>,
    finish: Finish<'_, T>,
    scratch: &mut [u8],
) {
    let skipped = scratch.as_ptr().align_offset(LINE);
    let bytes = lengths.scratch() * size_of::<T>();
    let scratch = bytemuck::cast_slice_mut(&mut scratch[skipped..][..bytes]);
    isa.run(Product { lengths, operands: (a, b, c), finish, scratch });
}

struct Product<'a, T> {
    lengths: Lengths,
    operands: (&'a Matrix<'a, T>, &'a Matrix<'a, T>, &'a Matrix<'a, T>),
    finish: Finish<'a, T>,
    scratch: &'a mut [T],
}

/// A block of terms of a block of columns: what is packed at once.
struct Block<'a, T> {
    /// Panels of A and of B.
    a: &'a [T],
    b: &'a [T],
    depth: usize,
    first: bool,
    finish: Option<Finish<'a, T>>,
}

impl<T: Lane> Work for Product<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let width = VECTORS * T::Vector::<S>::LANES;
        debug_assert!(width <= MAX_COLUMNS && COLUMN_BLOCK.is_multiple_of(width));
        let Lengths { rows, columns, terms } = self.lengths;
        let (a, b, _) = self.operands;
        // Rows of the next panel fill this one's last square.
        let squares = ROWS.next_multiple_of(T::Vector::<S>::LANES);
        debug_assert!(squares <= ROWS + BEHIND);
        let (_, column_block, term_block) = self.lengths.blocks();
        let scratch = std::mem::take(&mut self.scratch);
        let (packed_b, packed_a) = scratch.split_at_mut(column_block * term_block);
        // A sum of nothing is stored too.
        let blocks = terms.div_ceil(BLOCK).max(1);
        for j0 in (0..columns).step_by(COLUMN_BLOCK) {
            let j1 = (j0 + COLUMN_BLOCK).min(columns);
            for block in 0..blocks {
                let range = block * BLOCK..((block + 1) * BLOCK).min(terms);
                let depth = range.len();
                for (p, j) in (j0..j1).step_by(width).enumerate() {
                    let to = &mut packed_b[p * width * depth..][..width * depth];
                    b.pack::<S>(j..(j + width).min(j1), range.clone(), [width, width], to);
                }
                let finish = (block + 1 == blocks).then_some(self.finish);
                for i0 in (0..rows).step_by(ROW_BLOCK) {
                    let i1 = (i0 + ROW_BLOCK).min(rows);
                    for (p, i) in (i0..i1).step_by(ROWS).enumerate() {
                        let to = &mut packed_a[p * ROWS * depth..];
                        let there = i..(i + squares).min(rows);
                        a.pack::<S>(there, range.clone(), [ROWS, squares], to);
                    }
                    let (a, b, first) = (&*packed_a, &*packed_b, block == 0);
                    let packed = Block { a, b, depth, first, finish };
                    self.tiles::<S>(&packed, i0..i1, j0..j1);
                }
            }
        }
    }
}

impl<T: Lane> Product<'_, T> {
    /// Runs the tiles of some rows and columns.
    #[inline(always)]
    fn tiles<S: Simd>(&self, block: &Block<'_, T>, rows: Range<usize>, columns: Range<usize>) {
        let width = VECTORS * T::Vector::<S>::LANES;
        let depth = block.depth;
        let c = self.operands.2;
        for (q, j) in columns.clone().step_by(width).enumerate() {
            let here = j..(j + width).min(columns.end);
            // A bias of as many columns as a tile has.
            let mut bias = [T::ZERO; MAX_COLUMNS];
            let finish = block.finish.map(|finish| {
                if let Some(given) = finish.bias {
                    bias[..here.len()].copy_from_slice(&given[here.clone()]);
                }
                Finish { bias: finish.bias.map(|_| &bias[..]), ..finish }
            });
            let b = block.b[q * width * depth..][..width * depth].as_ptr();
            let tile = |i: usize, to: *mut T| {
                let a = block.a[(i - rows.start) / ROWS * ROWS * depth..].as_ptr();
                Tile::spaced(a, 1, (rows.end - i).min(ROWS), to)
            };
            let starts = rows.clone().step_by(ROWS);
            if here.len() == width && c.term == 1 {
                let tiles = starts.map(|i| tile(i, c.at(i, j)));
                // SAFETY: the tiles are inside of C.
                unsafe { block.strip::<S>(tiles, b, c.lane, finish) };
                continue;
            }
            // Columns that are no whole tile are computed beside C, with the
            // same instructions.
            for i in starts {
                let mut beside = [T::ZERO; ROWS * MAX_COLUMNS];
                let there = i..(i + ROWS).min(rows.end);
                if !block.first {
                    c.each(there.clone(), here.clone(), |k, to| beside[k] = *to);
                }
                let tiles = std::iter::once(tile(i, beside.as_mut_ptr()));
                // SAFETY: it has room for the largest tile.
                unsafe { block.strip::<S>(tiles, b, MAX_COLUMNS, finish) };
                c.each(there, here.clone(), |k, to| *to = beside[k]);
            }
        }
    }
}

impl<T: Lane> Block<'_, T> {
    /// # Safety
    /// The tiles can be written, and read unless it is the first block.
    #[inline(always)]
    unsafe fn strip<S: Simd>(
        &self,
        tiles: impl Iterator<Item = Tile<T>>,
        b: *const T,
        stride: usize,
        finish: Option<Finish<'_, T>>,
    ) {
        let runs = &[Run { a: 0, b: 0, terms: self.depth }];
        let strip = Strip {
            tiles,
            runs,
            b,
            terms: [ROWS, VECTORS * T::Vector::<S>::LANES],
            stride,
            first: self.first,
            finish,
        };
        // SAFETY: the instructions are there, we are among them.
        unsafe { S::enter(strip) };
    }
}

/// C = A B, or += where it is not the first block of a sum, of at most [`BLOCK`]
/// terms: operands are read where they are. `row` and `panels` are the distances
/// of rows of A and of panels of B; C has whole panels of columns.
///
/// # Safety
/// The operands can be read and C written, padded to whole panels.
#[inline(always)]
pub(crate) unsafe fn product_in_place<S: Simd, T: Lane>(
    lengths: Lengths,
    (a, row, term): (*const T, usize, usize),
    (b, panels): (*const T, usize),
    (c, stride): (*mut T, usize),
    first: bool,
) {
    let width = VECTORS * T::Vector::<S>::LANES;
    let Lengths { rows, columns, terms } = lengths;
    for (panel, j) in (0..columns).step_by(width).enumerate() {
        let strip = Strip {
            tiles: (0..rows).step_by(ROWS).map(|i| {
                let to = c.wrapping_add(i * stride + j);
                Tile::spaced(a.wrapping_add(i * row), row, (rows - i).min(ROWS), to)
            }),
            runs: &[Run { a: 0, b: 0, terms }],
            b: b.wrapping_add(panel * panels),
            terms: [term, width],
            stride,
            first,
            finish: None,
        };
        // SAFETY: the instructions are there, we are among them; the tiles are
        // inside of C.
        unsafe { S::enter(strip) };
    }
}
