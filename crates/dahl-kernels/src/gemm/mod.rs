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
//! [`Tile`] of C that a pair of panels gives stays in registers. Operands are
//! [`Panels`]: anything that can be copied so, such as the patches of an image.
#![expect(unsafe_code, reason = "the module that reads and writes tiles through pointers")]

mod matrix;
mod tile;

pub(crate) use matrix::Matrix;

use crate::DType;
use crate::simd::{Isa, Lane, Simd, Vector, Work};
use std::ops::Range;
pub(crate) use tile::{Columns, Rows, Run, Tile};

/// How many terms are summed before the sum is added to the result.
pub(crate) const BLOCK: usize = 256;

/// Panels start at a line of the cache.
pub(crate) const LINE: usize = 64;

/// Rows of a tile.
pub(crate) const ROWS: usize = 6;
/// Vectors of a tile's row.
pub(crate) const VECTORS: usize = 2;
/// The most columns of a tile, over all instruction sets and elements.
pub(crate) const MAX_COLUMNS: usize = 32;

/// Rows of A that are packed at once; a multiple of [`ROWS`].
const ROW_BLOCK: usize = 96;
/// Columns of B that are packed at once; a multiple of every tile's columns.
const COLUMN_BLOCK: usize = 1024;

/// An operand that can be copied in panels: `lanes` rows of A, or columns of B.
pub(crate) trait Panels<T> {
    /// Copies `lanes` for `terms` of the sum: `to[t * width + lane]`, where the
    /// lanes from `lanes.len()` to `width` are written too, with anything that is
    /// finite.
    fn pack(&self, lanes: Range<usize>, terms: Range<usize>, width: usize, to: &mut [T]);
}

/// Where the elements of C are.
pub(crate) trait Tiles<T> {
    /// The address of an element, and how many columns from it on lie behind
    /// each other.
    fn at(&self, row: usize, column: usize) -> (*mut T, usize);
    /// The distance of rows, in elements.
    fn row_stride(&self) -> usize;
}

/// What is done to a sum before it is stored for the last time.
#[derive(Clone, Copy)]
pub(crate) struct Finish<'a, T> {
    pub(crate) bias: Bias<'a, T>,
    pub(crate) rectify: crate::conv2d::Rectify,
}

/// A summand of a whole column.
#[derive(Clone, Copy)]
pub(crate) enum Bias<'a, T> {
    None,
    Columns(&'a [T]),
}

impl<T> Finish<'_, T> {
    pub(crate) const NOTHING: Self = Self { bias: Bias::None, rectify: crate::conv2d::Rectify::No };
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
        (rows + columns) * terms
    }
}

/// The bytes of scratch that [`run`] needs.
pub(crate) fn scratch_bytes(lengths: Lengths, dtype: DType) -> usize {
    lengths.scratch() * dtype.size() + LINE
}

/// C = A B on an instruction set, finished as `finish` says.
///
/// # Safety
/// As [`gemm`].
pub(crate) unsafe fn run<T: Lane>(
    isa: Isa,
    lengths: Lengths,
    a: &impl Panels<T>,
    b: &impl Panels<T>,
    c: &impl Tiles<T>,
    finish: Finish<'_, T>,
    scratch: &mut [u8],
) {
    struct Product<'a, T, A, B, C> {
        lengths: Lengths,
        operands: (&'a A, &'a B, &'a C),
        finish: Finish<'a, T>,
        scratch: &'a mut [T],
    }
    impl<T: Lane, A: Panels<T>, B: Panels<T>, C: Tiles<T>> Work for Product<'_, T, A, B, C> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self) {
            let (a, b, c) = self.operands;
            // SAFETY: promised to `run`.
            unsafe { gemm::<S, T>(self.lengths, a, b, c, self.finish, self.scratch) };
        }
    }
    let skipped = scratch.as_ptr().align_offset(LINE);
    let bytes = lengths.scratch() * size_of::<T>();
    let scratch = bytemuck::cast_slice_mut(&mut scratch[skipped..][..bytes]);
    isa.run(Product { lengths, operands: (a, b, c), finish, scratch });
}

/// C = A B, finished as `finish` says.
///
/// # Safety
/// `c` gives addresses that can be written for all rows and columns of `lengths`.
#[inline(always)]
pub(crate) unsafe fn gemm<S: Simd, T: Lane>(
    lengths: Lengths,
    a: &impl Panels<T>,
    b: &impl Panels<T>,
    c: &impl Tiles<T>,
    finish: Finish<'_, T>,
    scratch: &mut [T],
) {
    let width = VECTORS * T::Vector::<S>::LANES;
    debug_assert!(width <= MAX_COLUMNS && COLUMN_BLOCK.is_multiple_of(width));
    let Lengths { rows, columns, terms } = lengths;
    let (packed_a, packed_b) = {
        let (row_block, _, term_block) = lengths.blocks();
        scratch[..lengths.scratch()].split_at_mut(row_block * term_block)
    };
    // A sum of nothing is stored too.
    let blocks = terms.div_ceil(BLOCK).max(1);
    for j0 in (0..columns).step_by(COLUMN_BLOCK) {
        let j1 = (j0 + COLUMN_BLOCK).min(columns);
        for block in 0..blocks {
            let range = block * BLOCK..((block + 1) * BLOCK).min(terms);
            let depth = range.len();
            for (p, j) in (j0..j1).step_by(width).enumerate() {
                let to = &mut packed_b[p * width * depth..][..width * depth];
                b.pack(j..(j + width).min(j1), range.clone(), width, to);
            }
            let finish = (block + 1 == blocks).then_some(finish);
            for i0 in (0..rows).step_by(ROW_BLOCK) {
                let i1 = (i0 + ROW_BLOCK).min(rows);
                for (p, i) in (i0..i1).step_by(ROWS).enumerate() {
                    let to = &mut packed_a[p * ROWS * depth..][..ROWS * depth];
                    a.pack(i..(i + ROWS).min(i1), range.clone(), ROWS, to);
                }
                for (q, j) in (j0..j1).step_by(width).enumerate() {
                    let panel = &packed_b[q * width * depth..][..width * depth];
                    for (p, i) in (i0..i1).step_by(ROWS).enumerate() {
                        let tile = Tile {
                            runs: &[Run { a: 0, b: 0, terms: depth }],
                            a: Rows::spaced(
                                packed_a[p * ROWS * depth..][..ROWS * depth].as_ptr(),
                                1,
                                ROWS,
                            ),
                            b: Columns { first: panel.as_ptr(), term: width },
                            rows: (i1 - i).min(ROWS),
                            to: std::ptr::null_mut(),
                            stride: 0,
                            first: block == 0,
                            finish,
                        };
                        let columns = j..(j + width).min(j1);
                        // SAFETY: the place is inside of C.
                        unsafe { place::<S, T>(tile, i, columns, width, c) };
                    }
                }
            }
        }
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
    (b, panels): (Columns<T>, usize),
    (c, stride): (*mut T, usize),
    first: bool,
) {
    let width = VECTORS * T::Vector::<S>::LANES;
    let Lengths { rows, columns, terms } = lengths;
    for (panel, j) in (0..columns).step_by(width).enumerate() {
        let b = Columns { first: b.first.wrapping_add(panel * panels), ..b };
        for i in (0..rows).step_by(ROWS) {
            let tile = Tile {
                runs: &[Run { a: 0, b: 0, terms }],
                a: Rows::spaced(a.wrapping_add(i * row), row, term),
                b,
                rows: (rows - i).min(ROWS),
                to: c.wrapping_add(i * stride + j),
                stride,
                first,
                finish: None,
            };
            // SAFETY: the instructions are there, we are among them; the tile
            // is inside of C.
            unsafe { S::enter(tile) };
        }
    }
}

/// Runs a tile at its place in C, from row `i` on. Where its columns do not lie
/// behind each other it is computed beside C, with the same instructions.
///
/// # Safety
/// `c` can be written at the place, and read unless it is the first block.
#[inline(always)]
unsafe fn place<S: Simd, T: Lane>(
    tile: Tile<'_, T>,
    i: usize,
    columns: Range<usize>,
    width: usize,
    c: &impl Tiles<T>,
) {
    let (address, together) = c.at(i, columns.start);
    let mut bias_beside = [T::ZERO; MAX_COLUMNS];
    let whole = columns.len() == width && together >= width;
    let finish = tile.finish.map(|finish| {
        let bias = match finish.bias {
            Bias::Columns(bias) if whole => Bias::Columns(&bias[columns.clone()]),
            Bias::Columns(bias) => {
                bias_beside[..columns.len()].copy_from_slice(&bias[columns.clone()]);
                Bias::Columns(&bias_beside[..])
            }
            Bias::None => Bias::None,
        };
        Finish { bias, ..finish }
    });
    if whole {
        let tile = Tile { to: address, stride: c.row_stride(), finish, ..tile };
        // SAFETY: the instructions are there, we are among them.
        return unsafe { S::enter(tile) };
    }
    let mut beside = [T::ZERO; ROWS * MAX_COLUMNS];
    if !tile.first {
        for row in 0..tile.rows {
            for (j, column) in columns.clone().enumerate() {
                // SAFETY: an element of C.
                beside[row * MAX_COLUMNS + j] = unsafe { *c.at(i + row, column).0 };
            }
        }
    }
    let to = beside.as_mut_ptr();
    // SAFETY: as above.
    unsafe { S::enter(Tile { to, stride: MAX_COLUMNS, finish, ..tile }) };
    for row in 0..tile.rows {
        let mut column = columns.start;
        while column < columns.end {
            let (address, together) = c.at(i + row, column);
            let count = together.min(columns.end - column);
            let from = &beside[row * MAX_COLUMNS + column - columns.start..][..count];
            // SAFETY: so many elements of C lie behind each other.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), address, count) };
            column += count;
        }
    }
}
