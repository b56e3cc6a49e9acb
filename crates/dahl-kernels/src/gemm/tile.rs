//! Tiles of C in registers.

use super::{Finish, ROWS, VECTORS};
use crate::conv2d::Rectify;
use crate::simd::{Lane, Simd, Vector, Work};

/// Terms that lie at fixed distances in A and in B, from these elements on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) terms: usize,
}

/// One tile: the rows of A that it sums, how many of them, and where it is in C.
/// Each of its rows has two vectors that can be written, and read unless it is
/// the first block.
#[derive(Clone, Copy)]
pub(crate) struct Tile<T> {
    pub(crate) a: [*const T; ROWS],
    pub(crate) rows: usize,
    pub(crate) to: *mut T,
}

impl<T> Tile<T> {
    /// A tile of rows at a fixed distance.
    #[inline(always)]
    pub(crate) fn spaced(a: *const T, row: usize, rows: usize, to: *mut T) -> Self {
        Self { a: std::array::from_fn(|i| a.wrapping_add(i * row)), rows, to }
    }
}

/// Tiles of C below each other: = or += the product of rows of A and columns of B.
pub(crate) struct Strip<'a, T, I> {
    pub(crate) tiles: I,
    /// The terms, in order.
    pub(crate) runs: &'a [Run],
    /// Two vectors of columns a term.
    pub(crate) b: *const T,
    /// The distance of terms in A and in B, in elements.
    pub(crate) terms: [usize; 2],
    /// The distance of rows in C.
    pub(crate) stride: usize,
    /// Whether C has nothing yet to be added to.
    pub(crate) first: bool,
    /// What is done at the last block; a bias of these columns alone.
    pub(crate) finish: Option<Finish<'a, T>>,
}

impl<T: Lane, I: Iterator<Item = Tile<T>>> Work for Strip<'_, T, I> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        while let Some(tile) = self.tiles.next() {
            match tile.rows {
                6 => self.sized::<S, 6>(tile),
                5 => self.sized::<S, 5>(tile),
                4 => self.sized::<S, 4>(tile),
                3 => self.sized::<S, 3>(tile),
                2 => self.sized::<S, 2>(tile),
                _ => self.sized::<S, 1>(tile),
            }
        }
    }
}

impl<T: Lane, I> Strip<'_, T, I> {
    #[inline(always)]
    fn sized<S: Simd, const R: usize>(&self, tile: Tile<T>) {
        let lanes = T::Vector::<S>::LANES;
        for i in 0..R {
            let row = tile.to.wrapping_add(i * self.stride);
            S::prefetch(row);
            S::prefetch(row.wrapping_add(VECTORS * lanes - 1));
        }
        let sums = self.product::<S, R>(&tile.a);
        for (i, row) in sums.into_iter().enumerate() {
            for (v, sum) in row.into_iter().enumerate() {
                // SAFETY: row i of the tile has two vectors.
                unsafe {
                    let at = tile.to.add(i * self.stride + v * lanes);
                    let sum = if self.first { sum } else { T::Vector::<S>::load(at).add(sum) };
                    let sum = self.finish.map_or(sum, |finish| finish.apply::<S>(v, sum));
                    sum.store(at);
                }
            }
        }
    }

    /// Σ_t a\[t\]\[i\] b\[t\]\[j\], in order.
    #[inline(always)]
    fn product<S: Simd, const R: usize>(
        &self,
        rows: &[*const T; ROWS],
    ) -> [[T::Vector<S>; VECTORS]; R] {
        let lanes = T::Vector::<S>::LANES;
        let mut sums = [[T::Vector::<S>::zero(); VECTORS]; R];
        for run in self.runs {
            let mut a = run.a;
            let mut b = self.b.wrapping_add(run.b);
            for _ in 0..run.terms {
                // SAFETY: the runs are inside of the operands.
                unsafe {
                    let columns = T::Vector::<S>::load_many::<VECTORS>(b, lanes);
                    for (i, row) in sums.iter_mut().enumerate() {
                        let x = T::Vector::<S>::splat(*rows[i].add(a));
                        for (sum, &column) in row.iter_mut().zip(&columns) {
                            *sum = x.mul_add(column, *sum);
                        }
                    }
                }
                a += self.terms[0];
                b = b.wrapping_add(self.terms[1]);
            }
        }
        sums
    }
}

impl<T: Lane> Finish<'_, T> {
    /// Finishes vector `v` of a row of a tile.
    #[inline(always)]
    fn apply<S: Simd>(self, v: usize, sum: T::Vector<S>) -> T::Vector<S> {
        let lanes = T::Vector::<S>::LANES;
        let sum = match self.bias {
            None => sum,
            Some(bias) => {
                let bias = &bias[v * lanes..(v + 1) * lanes];
                // SAFETY: a slice of that length.
                sum.add(unsafe { T::Vector::<S>::load(bias.as_ptr()) })
            }
        };
        match self.rectify {
            Rectify::No => sum,
            Rectify::Relu => sum.relu(),
        }
    }
}
