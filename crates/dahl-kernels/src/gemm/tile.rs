//! A tile of C in registers.

use super::{Bias, Finish, ROWS, VECTORS};
use crate::conv2d::Rectify;
use crate::simd::{Lane, Simd, Vector, Work};

/// Terms that lie at fixed distances in A and in B, from these elements on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) terms: usize,
}

/// The rows of A that a tile sums, where they are.
#[derive(Clone, Copy)]
pub(crate) struct Rows<T> {
    pub(crate) rows: [*const T; ROWS],
    /// Distance of terms, in elements.
    pub(crate) term: usize,
}

impl<T> Rows<T> {
    /// Rows at a fixed distance.
    #[inline(always)]
    pub(crate) fn spaced(first: *const T, row: usize, term: usize) -> Self {
        Self { rows: std::array::from_fn(|i| first.wrapping_add(i * row)), term }
    }
}

/// The columns of B that a tile sums: two vectors a term.
#[derive(Clone, Copy)]
pub(crate) struct Columns<T> {
    pub(crate) first: *const T,
    /// Distance of terms, in elements.
    pub(crate) term: usize,
}

/// A tile of C: = or += the product of rows of A and columns of B.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a, T> {
    /// The terms, in order.
    pub(crate) runs: &'a [Run],
    pub(crate) a: Rows<T>,
    pub(crate) b: Columns<T>,
    /// How many rows there are.
    pub(crate) rows: usize,
    /// The first element of C, and the distance of its rows. Each row has two
    /// vectors that can be written, and read unless it is the first block.
    pub(crate) to: *mut T,
    pub(crate) stride: usize,
    /// Whether C has nothing yet to be added to.
    pub(crate) first: bool,
    /// What is done at the last block; a bias of this tile alone.
    pub(crate) finish: Option<Finish<'a, T>>,
}

impl<T: Lane> Work for Tile<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        match self.rows {
            6 => self.sized::<S, 6>(),
            5 => self.sized::<S, 5>(),
            4 => self.sized::<S, 4>(),
            3 => self.sized::<S, 3>(),
            2 => self.sized::<S, 2>(),
            _ => self.sized::<S, 1>(),
        }
    }
}

impl<T: Lane> Tile<'_, T> {
    #[inline(always)]
    fn sized<S: Simd, const R: usize>(self) {
        let lanes = T::Vector::<S>::LANES;
        for i in 0..R {
            let row = self.to.wrapping_add(i * self.stride);
            S::prefetch(row);
            S::prefetch(row.wrapping_add(VECTORS * lanes - 1));
        }
        let sums = self.product::<S, R>();
        for (i, row) in sums.into_iter().enumerate() {
            for (v, sum) in row.into_iter().enumerate() {
                // SAFETY: row i of the tile has two vectors.
                unsafe {
                    let at = self.to.add(i * self.stride + v * lanes);
                    let sum = if self.first { sum } else { T::Vector::<S>::load(at).add(sum) };
                    let sum = self.finish.map_or(sum, |finish| finish.apply::<S>(v, sum));
                    sum.store(at);
                }
            }
        }
    }

    /// Σ_t a\[t\]\[i\] b\[t\]\[j\], in order.
    #[inline(always)]
    fn product<S: Simd, const R: usize>(self) -> [[T::Vector<S>; VECTORS]; R] {
        let lanes = T::Vector::<S>::LANES;
        let mut sums = [[T::Vector::<S>::zero(); VECTORS]; R];
        for run in self.runs {
            let mut a = run.a;
            let mut b = self.b.first.wrapping_add(run.b);
            for _ in 0..run.terms {
                // SAFETY: the runs are inside of the operands.
                unsafe {
                    let columns: [T::Vector<S>; VECTORS] =
                        std::array::from_fn(|v| T::Vector::<S>::load(b.add(v * lanes)));
                    for (i, row) in sums.iter_mut().enumerate() {
                        let x = T::Vector::<S>::splat(*self.a.rows[i].add(a));
                        for (sum, &column) in row.iter_mut().zip(&columns) {
                            *sum = x.mul_add(column, *sum);
                        }
                    }
                }
                a += self.a.term;
                b = b.wrapping_add(self.b.term);
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
            Bias::None => sum,
            Bias::Columns(bias) => {
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
