//! Products of vectors and matrices: plain, with one pairwise sum an element, and
//! in tiles.
#![expect(unsafe_code, reason = "tiles are read and written through pointers")]

use crate::element::float_dispatch;
use crate::gemm::{self, Finish, Lengths, Matrix};
use crate::simd::Lane;
use crate::{Call, DType, Float, Line, Region, math};

/// How a matrix enters a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// As it is.
    Plain,
    /// Its rows as columns.
    Transposed,
}

impl Side {
    /// The other one.
    #[must_use]
    pub fn flipped(self) -> Self {
        match self {
            Side::Plain => Side::Transposed,
            Side::Transposed => Side::Plain,
        }
    }

    /// The pair as rows and columns of the matrix as it enters.
    pub fn order<T>(self, [rows, columns]: [T; 2]) -> [T; 2] {
        match self {
            Side::Plain => [rows, columns],
            Side::Transposed => [columns, rows],
        }
    }

    /// The axis, of the last two, that a product's left (0) or right (1)
    /// matrix is summed along.
    fn summed(self, operand: usize) -> usize {
        usize::from((self == Side::Plain) == (operand == 0))
    }
}

fn product<T: Float>(x: &Line<'_, T>, y: &Line<'_, T>) -> T {
    assert_eq!(x.len(), y.len());
    math::sum(x.len(), &|i| x.get(i) * y.get(i))
}

/// c\[…,m,n\] = Σ_k a\[…,m,k\] b\[…,k,n\], for matrices or batches of them, each
/// side plain or transposed. Inputs a and b.
pub fn matmul(sides: [Side; 2], call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), matmul_typed(sides, call));
}

fn matmul_typed<T: Float>(sides: [Side; 2], call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (a, b) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut c = outs.take::<T>();
    // A leading axis is the batch's.
    let batch = region.rank() - 2;
    let axes = [batch + sides[0].summed(0), batch + sides[1].summed(1)];
    crate::region::for_each(&region, |at| {
        let (m, n) = (at[batch], at[batch + 1]);
        let coordinate = |operand: usize, index: usize| {
            let mut at = [at[0]; 3];
            at[batch] = 0;
            at[batch + 1] = 0;
            at[2 * batch + 1 - axes[operand]] = index;
            at
        };
        let x = a.line(&coordinate(0, m)[..batch + 2], axes[0]);
        let y = b.line(&coordinate(1, n)[..batch + 2], axes[1]);
        c.set_axes(&at[..batch + 2], product(&x, &y));
    });
}

/// [`matmul`] in panels and tiles.
pub fn matmul_gemm(sides: [Side; 2], call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), matmul_tiled(sides, call));
}

/// The bytes of scratch that [`matmul_gemm`] needs for a piece.
pub fn matmul_gemm_scratch(piece: &Region, terms: usize, dtype: DType) -> usize {
    let batch = piece.rank() - 2;
    let lengths = Lengths { rows: piece.len(batch), columns: piece.len(batch + 1), terms };
    gemm::scratch_bytes(lengths, dtype)
}

fn matmul_tiled<T: Lane>(sides: [Side; 2], call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    let batch = region.rank() - 2;
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (a, b) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut c = outs.take::<T>();
    let terms = sides[0].order([0, 1]).map(|axis| a.shape()[batch + axis])[1];
    let all = 0..terms;
    let lengths = Lengths { rows: region.len(batch), columns: region.len(batch + 1), terms };
    // Batches one after the other; a matrix alone is a batch of one.
    for n in if batch == 1 { region.range(0) } else { 0..1 } {
        let matrix = |ranges: [std::ops::Range<usize>; 2]| match batch {
            1 => Region::new(&[n..n + 1, ranges[0].clone(), ranges[1].clone()]),
            _ => Region::new(&ranges),
        };
        let rows = region.range(batch);
        let columns = region.range(batch + 1);
        let (from, strides) = a.raw(&matrix(sides[0].order([rows.clone(), all.clone()])));
        let [lane, term] = sides[0].order([strides[batch], strides[batch + 1]]);
        // SAFETY: the box is in the operand's region.
        let left = unsafe { Matrix::new(from.cast_mut(), lane, term) };
        let (from, strides) = b.raw(&matrix(sides[1].order([all.clone(), columns.clone()])));
        let [term, lane] = sides[1].order([strides[batch], strides[batch + 1]]);
        // SAFETY: as above.
        let right = unsafe { Matrix::new(from.cast_mut(), lane, term) };
        let (to, strides) = c.raw_mut(&matrix([rows, columns]));
        // SAFETY: as above; the call gives exclusive access.
        let result = unsafe { Matrix::new(to, strides[batch], strides[batch + 1]) };
        // SAFETY: the result has the rows and columns of the piece.
        unsafe { gemm::run(isa, lengths, &left, &right, &result, Finish::NOTHING, scratch) };
    }
}

/// y\[m\] = Σ_k a\[m,k\] x\[k\]. Inputs a and x.
pub fn matvec(side: Side, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), matvec_typed(side, call));
}

fn matvec_typed<T: Float>(side: Side, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (a, x) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut y = outs.take::<T>();
    let x = x.line(&[0], 0);
    for m in region.range(0) {
        let row = a.line(&side.order([m, 0]), side.summed(0));
        y.set([m], product(&row, &x));
    }
}

/// Σ_k x\[k\] y\[k\]. Inputs x and y, output a scalar.
pub fn dot(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), dot_typed(call));
}

fn dot_typed<T: Float>(call: &mut Call<'_>) {
    let (ins, mut outs, _) = call.split();
    let (x, y) = (ins.get::<T>(0).line(&[0], 0), ins.get::<T>(1).line(&[0], 0));
    outs.take::<T>().set([], product(&x, &y));
}

/// z\[m,n\] = x\[m\] y\[n\]. Inputs x and y.
pub fn outer(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), outer_typed(call));
}

fn outer_typed<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, y) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut z = outs.take::<T>();
    for m in region.range(0) {
        for n in region.range(1) {
            z.set([m, n], x.at([m]) * y.at([n]));
        }
    }
}

/// y = x · s for a scalar s. Inputs x and s.
pub fn scale_by(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), scale_by_typed(call));
}

fn scale_by_typed<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, s) = (ins.get::<T>(0), ins.get::<T>(1).at([]));
    outs.take::<T>().zip(&region, [&x], |[x], y| {
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * s);
    });
}

/// x = x · s. Input s, output x, updated.
pub fn scale_by_in_place(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), scale_by_in_place_typed(call));
}

fn scale_by_in_place_typed<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let s = ins.get::<T>(0).at([]);
    outs.take::<T>().runs_mut(&region, |_, x| x.iter_mut().for_each(|x| *x *= s));
}
