//! Fully connected layers with few outputs, samples or terms, where copying the
//! operands into panels takes longer than the product.
#![expect(unsafe_code, reason = "rows are read and written through pointers")]

use crate::element::float_dispatch;
use crate::gemm;
use crate::lanes::{self, WIDE};
use crate::simd::{Lane, Simd, Vector, Work};
use crate::{Call, DType, Piece, View};
use std::ops::Range;

/// Terms that the lanes take before they are added to the sum.
const BLOCK: usize = 256 * WIDE;

/// The bytes of scratch that [`linear_dot`] needs for a piece.
pub fn linear_dot_scratch(piece: &Piece, dtype: DType) -> usize {
    piece.out.elements() * WIDE * dtype.size() + gemm::LINE
}

/// [`linear`](crate::linear::linear) as dot products of rows: term i of a
/// sum goes to lane i mod 16 in blocks of 4,096, halves of the lanes are added,
/// then comes the bias.
pub fn linear_dot(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), forward(call));
}

fn forward<T: Lane>(call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let b: Option<View<'_, T>> = (ins.len() > 2).then(|| ins.get(2));
    let mut y = outs.take::<T>();
    let skipped = scratch.as_ptr().align_offset(gemm::LINE);
    let bytes = region.elements() * WIDE * size_of::<T>();
    let sums: &mut [T] = bytemuck::cast_slice_mut(&mut scratch[skipped..][..bytes]);
    let (sums, _) = sums.as_chunks_mut::<WIDE>();
    sums.fill([T::ZERO; WIDE]);
    let features = x.shape()[1];
    let outputs = region.range(1);
    for first in (0..features).step_by(BLOCK) {
        let block = first..(first + BLOCK).min(features);
        isa.run(Dots {
            x: &x,
            w: &w,
            samples: region.range(0),
            outputs: outputs.clone(),
            block,
            sums,
        });
    }
    let bias = b.as_ref().map(|b| &b.row([outputs.start])[..outputs.len()]);
    for (n, sums) in region.range(0).zip(sums.chunks_exact(outputs.len())) {
        let row = &mut y.row_mut([n, outputs.start])[..outputs.len()];
        for (o, (y, sum)) in row.iter_mut().zip(sums).enumerate() {
            let sum = lanes::total(*sum);
            *y = bias.map_or(sum, |bias| sum + bias[o]);
        }
    }
}

/// The dot products of a block of features, added to their lanes.
struct Dots<'a, 'b, T> {
    x: &'a View<'b, T>,
    w: &'a View<'b, T>,
    samples: Range<usize>,
    outputs: Range<usize>,
    block: Range<usize>,
    /// Samples by outputs.
    sums: &'a mut [[T; WIDE]],
}

impl<T: Lane> Work for Dots<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        // Up to twelve accumulators at a time.
        match WIDE / T::Vector::<S>::LANES {
            1 => self.sized::<S, 1, 3, 4>(),
            2 => self.sized::<S, 2, 2, 3>(),
            4 => self.sized::<S, 4, 1, 3>(),
            _ => self.sized::<S, 8, 1, 1>(),
        }
    }
}

impl<T: Lane> Dots<'_, '_, T> {
    #[inline(always)]
    fn sized<S: Simd, const P: usize, const N: usize, const O: usize>(&mut self) {
        let (samples, outputs) = (self.samples.len(), self.outputs.len());
        let mut n = 0;
        while n < samples {
            let few = samples - n < N;
            let mut o = 0;
            while o < outputs {
                match (few, outputs - o < O) {
                    (false, false) => self.some::<S, P, N, O>(n, o),
                    (true, false) => self.some::<S, P, 1, O>(n, o),
                    (false, true) => self.some::<S, P, N, 1>(n, o),
                    (true, true) => self.some::<S, P, 1, 1>(n, o),
                }
                o += if outputs - o < O { 1 } else { O };
            }
            n += if few { 1 } else { N };
        }
    }

    /// `N` samples by `O` outputs.
    #[inline(always)]
    fn some<S: Simd, const P: usize, const N: usize, const O: usize>(
        &mut self,
        n: usize,
        o: usize,
    ) {
        let (block, length) = (self.block.start, self.block.len());
        let x: [&[T]; N] =
            std::array::from_fn(|i| &self.x.row([self.samples.start + n + i, block])[..length]);
        let w: [&[T]; O] =
            std::array::from_fn(|j| &self.w.row([self.outputs.start + o + j, block])[..length]);
        let mut sums = [[[T::Vector::<S>::zero(); P]; O]; N];
        let whole = length / WIDE * WIDE;
        for c in (0..whole).step_by(WIDE) {
            // SAFETY: every row has sixteen elements from `c` on.
            unsafe {
                let x: [*const T; N] = std::array::from_fn(|i| x[i].as_ptr().add(c));
                let w: [*const T; O] = std::array::from_fn(|j| w[j].as_ptr().add(c));
                add::<S, T, P, N, O>(x, w, &mut sums);
            }
        }
        if whole < length {
            let x: [[T; WIDE]; N] = std::array::from_fn(|i| lanes::padded(&x[i][whole..]));
            let w: [[T; WIDE]; O] = std::array::from_fn(|j| lanes::padded(&w[j][whole..]));
            // SAFETY: arrays of sixteen.
            unsafe {
                let x: [*const T; N] = std::array::from_fn(|i| x[i].as_ptr());
                let w: [*const T; O] = std::array::from_fn(|j| w[j].as_ptr());
                add::<S, T, P, N, O>(x, w, &mut sums);
            }
        }
        let outputs = self.outputs.len();
        for (i, sums) in sums.into_iter().enumerate() {
            for (j, sums) in sums.into_iter().enumerate() {
                let all = &mut self.sums[(n + i) * outputs + o + j];
                let mut more = lanes::load::<S, T, P>(all);
                for p in 0..P {
                    more[p] = more[p].add(sums[p]);
                }
                lanes::store::<S, T, P>(more, all);
            }
        }
    }
}

/// Sixteen terms of `N` samples by `O` outputs.
///
/// # Safety
/// Sixteen elements can be read from each.
#[inline(always)]
unsafe fn add<S: Simd, T: Lane, const P: usize, const N: usize, const O: usize>(
    x: [*const T; N],
    w: [*const T; O],
    sums: &mut [[[T::Vector<S>; P]; O]; N],
) {
    let lanes = T::Vector::<S>::LANES;
    for (j, w) in w.into_iter().enumerate() {
        for p in 0..P {
            // SAFETY: promised: `P` vectors are sixteen elements.
            let weights = unsafe { T::Vector::<S>::load(w.add(p * lanes)) };
            for (x, sums) in x.iter().zip(sums.iter_mut()) {
                // SAFETY: as above.
                let samples = unsafe { T::Vector::<S>::load(x.add(p * lanes)) };
                sums[j][p] = samples.mul_add(weights, sums[j][p]);
            }
        }
    }
}

/// C = A B where the rows of B and C lie in one piece: read as they are, in the
/// order of sums of [`gemm`].
pub(crate) struct Rows<T> {
    /// A's first element, the distance of its rows and of its terms.
    pub(crate) a: (*const T, usize, usize),
    /// B's first element and the distance of its terms.
    pub(crate) b: (*const T, usize),
    /// C's first element and the distance of its rows.
    pub(crate) c: (*mut T, usize),
    pub(crate) lengths: gemm::Lengths,
}

/// Whether [`Rows`] is faster than panels.
pub(crate) fn few(lengths: gemm::Lengths) -> bool {
    let gemm::Lengths { rows, terms, .. } = lengths;
    terms <= 24 || (rows <= 24 && terms <= gemm::BLOCK)
}

impl<T: Lane> Work for Rows<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let lanes = T::Vector::<S>::LANES;
        let columns = self.lengths.columns;
        if columns >= 2 * lanes {
            // The last tile overlaps the one before.
            let last = columns - 2 * lanes;
            for j in (0..last).step_by(2 * lanes).chain([last]) {
                // SAFETY: whoever made it promised its elements; two vectors from
                // `last` on end at the last column.
                unsafe { self.column::<S, 2>(j) };
            }
        } else if columns >= lanes {
            let last = columns - lanes;
            for j in (0..last).step_by(lanes).chain([last]) {
                // SAFETY: as above, with one vector.
                unsafe { self.column::<S, 1>(j) };
            }
        } else {
            self.beside::<S>();
        }
    }
}

impl<T: Lane> Rows<T> {
    /// All rows of some columns.
    ///
    /// # Safety
    /// `V` vectors from column `j` on are inside.
    #[inline(always)]
    unsafe fn column<S: Simd, const V: usize>(&self, j: usize) {
        let rows = self.lengths.rows;
        let mut i = 0;
        for left in (1..=rows.div_ceil(gemm::ROWS)).rev() {
            let count = (rows - i).div_ceil(left);
            // SAFETY: promised.
            unsafe {
                match count {
                    6 => self.tile::<S, V, 6>(i, j),
                    5 => self.tile::<S, V, 5>(i, j),
                    4 => self.tile::<S, V, 4>(i, j),
                    3 => self.tile::<S, V, 3>(i, j),
                    2 => self.tile::<S, V, 2>(i, j),
                    _ => self.tile::<S, V, 1>(i, j),
                }
            }
            i += count;
        }
    }

    /// # Safety
    /// `R` rows from `i` on, and `V` vectors from column `j` on, are inside.
    #[inline(always)]
    unsafe fn tile<S: Simd, const V: usize, const R: usize>(&self, i: usize, j: usize) {
        let lanes = T::Vector::<S>::LANES;
        let (terms, (a, row, term)) = (self.lengths.terms, self.a);
        let mut all = [[T::Vector::<S>::zero(); V]; R];
        for first in (0..terms).step_by(gemm::BLOCK) {
            let mut sums = [[T::Vector::<S>::zero(); V]; R];
            // SAFETY: promised.
            unsafe {
                let a = a.add(i * row);
                let b = self.b.0.add(j);
                for t in first..(first + gemm::BLOCK).min(terms) {
                    let columns = T::Vector::<S>::load_many::<V>(b.add(t * self.b.1), lanes);
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let x = T::Vector::<S>::splat(*a.add(r * row + t * term));
                        for (sum, &column) in sums.iter_mut().zip(&columns) {
                            *sum = x.mul_add(column, *sum);
                        }
                    }
                }
            }
            for r in 0..R {
                for v in 0..V {
                    all[r][v] = if first == 0 { sums[r][v] } else { all[r][v].add(sums[r][v]) };
                }
            }
        }
        for (r, row) in all.into_iter().enumerate() {
            for (v, sum) in row.into_iter().enumerate() {
                // SAFETY: promised.
                unsafe { sum.store(self.c.0.add((i + r) * self.c.1 + j + v * lanes)) };
            }
        }
    }

    /// Fewer columns than a vector has: terms are copied one by one.
    #[inline(always)]
    fn beside<S: Simd>(&self) {
        let gemm::Lengths { rows, columns, terms } = self.lengths;
        let (a, row, term) = self.a;
        for i in 0..rows {
            let mut all = T::Vector::<S>::zero();
            for first in (0..terms).step_by(gemm::BLOCK) {
                let mut sum = T::Vector::<S>::zero();
                for t in first..(first + gemm::BLOCK).min(terms) {
                    let mut values = [T::ZERO; WIDE];
                    // SAFETY: the elements are inside of A and B; no vector is
                    // longer than the copy.
                    unsafe {
                        for (j, value) in values[..columns].iter_mut().enumerate() {
                            *value = *self.b.0.add(t * self.b.1 + j);
                        }
                        let x = T::Vector::<S>::splat(*a.add(i * row + t * term));
                        sum = x.mul_add(T::Vector::<S>::load(values.as_ptr()), sum);
                    }
                }
                all = if first == 0 { sum } else { all.add(sum) };
            }
            let mut values = [T::ZERO; WIDE];
            // SAFETY: as above; the row of C has so many columns.
            unsafe {
                all.store(values.as_mut_ptr());
                std::ptr::copy_nonoverlapping(values.as_ptr(), self.c.0.add(i * self.c.1), columns);
            }
        }
    }
}
