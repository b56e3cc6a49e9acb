//! The fully connected layer: plain, and in tiles.
#![expect(unsafe_code, reason = "tiles are read and written through pointers")]

pub use crate::linear_small::{linear_dot, linear_dot_scratch};

use crate::element::float_dispatch;
use crate::gemm::{self, Finish, Lengths, Matrix};
use crate::linear_small::{Rows, few};
use crate::simd::Lane;
use crate::{Call, DType, Float, Piece, Region, View, ViewMut, math};

/// y\[n,o\] = b\[o\] + Σ_i w\[o,i\] x\[n,i\]. Inputs x, w and, where there are
/// three, b.
pub fn linear(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), forward(call));
}

fn forward<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let b: Option<View<'_, T>> = (ins.len() > 2).then(|| ins.get(2));
    let mut y = outs.take::<T>();
    let features = x.shape()[1];
    for n in region.range(0) {
        for o in region.range(1) {
            let sum = if features == 0 { T::ZERO } else { math::dot(x.row([n, 0]), w.row([o, 0])) };
            y.set([n, o], b.as_ref().map_or(sum, |b| sum + b.at([o])));
        }
    }
}

/// g\[n,i\] = Σ_o g'\[n,o\] w\[o,i\], in the order of o. Inputs g', w.
pub fn linear_backward_input(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_input(call));
}

fn backward_input<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (gy, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gx = outs.take::<T>();
    if region.is_empty() {
        return;
    }
    let first = region.range(1).start;
    for n in region.range(0) {
        let row = &mut gx.row_mut([n, first])[..region.len(1)];
        row.fill(T::ZERO);
        for o in 0..w.shape()[0] {
            let g = gy.at([n, o]);
            for (sum, &weight) in row.iter_mut().zip(w.row([o, first])) {
                *sum += g * weight;
            }
        }
    }
}

/// g\[o,i\] = Σ_n g'\[n,o\] x\[n,i\] over the samples of the piece's sum, in
/// their order. Inputs x, g'.
pub fn linear_backward_weight(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_weight(call));
}

fn backward_weight<T: Float>(call: &mut Call<'_>) {
    let (region, samples) = (call.piece.out, call.piece.sum.clone());
    let (ins, mut outs, _) = call.split();
    let (x, gy) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gw = outs.take::<T>();
    if region.is_empty() {
        return;
    }
    let first = region.range(1).start;
    for o in region.range(0) {
        let row = &mut gw.row_mut([o, first])[..region.len(1)];
        row.fill(T::ZERO);
        for n in samples.clone() {
            let g = gy.at([n, o]);
            for (sum, &feature) in row.iter_mut().zip(x.row([n, first])) {
                *sum += g * feature;
            }
        }
    }
}

/// The bytes of scratch that the tiled kernels need for a piece that sums over so
/// many terms.
pub fn linear_gemm_scratch(piece: &Piece, terms: usize, dtype: DType) -> usize {
    gemm::scratch_bytes(lengths(&piece.out, terms), dtype)
}

fn lengths(out: &Region, terms: usize) -> Lengths {
    Lengths { rows: out.len(0), columns: out.len(1), terms }
}

/// [`linear`] in tiles.
pub fn linear_gemm(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), forward_tiled(call));
}

fn forward_tiled<T: Lane>(call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let bias: Option<View<'_, T>> = (ins.len() > 2).then(|| ins.get(2));
    let features = 0..x.shape()[1];
    let left = operand(&x, [region.range(0), features.clone()], [0, 1]);
    let right = operand(&w, [region.range(1), features.clone()], [0, 1]);
    let outputs = region.range(1);
    let bias = bias.as_ref().map(|b| &b.row([outputs.start])[..outputs.len()]);
    let finish = Finish { bias, rectify: crate::conv2d::Rectify::No };
    let to = result(&mut outs.take::<T>(), &region);
    // SAFETY: the result has the rows and columns of the piece.
    unsafe {
        gemm::run(isa, lengths(&region, features.len()), &left, &right, &to, finish, scratch);
    }
}

/// [`linear_backward_input`] in tiles.
pub fn linear_backward_input_gemm(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_input_tiled(call));
}

fn backward_input_tiled<T: Lane>(call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (gy, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let outputs = 0..w.shape()[0];
    let lengths = lengths(&region, outputs.len());
    let mut gx = outs.take::<T>();
    let whole = [region.range(0), outputs.clone()];
    let taken = [outputs.clone(), region.range(1)];
    if few(lengths) {
        let (a, a_strides) = gy.raw(&Region::new(&whole));
        let rows = rows((a, a_strides[0], a_strides[1]), &w, &taken, &mut gx, &region, lengths);
        if let Some(rows) = rows {
            return isa.run(rows);
        }
    }
    let left = operand(&gy, whole, [0, 1]);
    let right = operand(&w, taken, [1, 0]);
    let to = result(&mut gx, &region);
    // SAFETY: the result has the rows and columns of the piece.
    unsafe { gemm::run(isa, lengths, &left, &right, &to, Finish::NOTHING, scratch) };
}

/// [`linear_backward_weight`] in tiles.
pub fn linear_backward_weight_gemm(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_weight_tiled(call));
}

fn backward_weight_tiled<T: Lane>(call: &mut Call<'_>) {
    let (region, samples, isa) = (call.piece.out, call.piece.sum.clone(), call.isa);
    if region.is_empty() {
        return;
    }
    let (ins, mut outs, scratch) = call.split();
    let (x, gy) = (ins.get::<T>(0), ins.get::<T>(1));
    let lengths = lengths(&region, samples.len());
    let mut gw = outs.take::<T>();
    let whole = [samples.clone(), region.range(0)];
    let taken = [samples.clone(), region.range(1)];
    if few(lengths) {
        let (a, a_strides) = gy.raw(&Region::new(&whole));
        let rows = rows((a, a_strides[1], a_strides[0]), &x, &taken, &mut gw, &region, lengths);
        if let Some(rows) = rows {
            return isa.run(rows);
        }
    }
    let left = operand(&gy, whole, [1, 0]);
    let right = operand(&x, taken, [1, 0]);
    let to = result(&mut gw, &region);
    // SAFETY: the result has the rows and columns of the piece.
    unsafe { gemm::run(isa, lengths, &left, &right, &to, Finish::NOTHING, scratch) };
}

/// The product by rows, where rows of the right operand and of the result lie in
/// one piece.
fn rows<T: Lane>(
    a: (*const T, usize, usize),
    right: &View<'_, T>,
    taken: &[std::ops::Range<usize>; 2],
    to: &mut ViewMut<'_, T>,
    region: &Region,
    lengths: Lengths,
) -> Option<Rows<T>> {
    let (b, b_strides) = right.raw(&Region::new(taken));
    let (c, c_strides) = to.raw_mut(region);
    let whole = lengths.columns <= 1 || (b_strides[1] == 1 && c_strides[1] == 1);
    whole.then_some(Rows { a, b: (b, b_strides[0]), c: (c, c_strides[0]), lengths })
}

/// A box of a matrix as an operand; `axes` says which axis is the lanes' and
/// which the terms'.
fn operand<'a, T: Lane>(
    view: &View<'a, T>,
    ranges: [std::ops::Range<usize>; 2],
    axes: [usize; 2],
) -> Matrix<'a, T> {
    let (first, strides) = view.raw(&Region::new(&ranges));
    // SAFETY: the box is in the operand's region.
    unsafe { Matrix::new(first.cast_mut(), strides[axes[0]], strides[axes[1]]) }
}

fn result<'a, T: Lane>(view: &mut ViewMut<'a, T>, region: &Region) -> Matrix<'a, T> {
    let (first, strides) = view.raw_mut(region);
    // SAFETY: as above; the call gives exclusive access.
    unsafe { Matrix::new(first, strides[0], strides[1]) }
}
