//! Softmax over rows, and its logarithm.

use crate::element::float_dispatch;
use crate::{Call, Float, math};

/// The largest of a row and Σ exp(x − largest).
pub(crate) fn normaliser<T: Float>(row: &[T]) -> (T, T) {
    let mut max = T::NEG_INFINITY;
    for &x in row {
        if x > max || x.is_nan() {
            max = x;
        }
    }
    (max, math::sum(row.len(), &|i| (row[i] - max).exp()))
}

/// What is made of a row's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Softmax {
    /// exp x / Σ exp x.
    Plain,
    /// x − ln Σ exp x.
    Log,
}

impl Softmax {
    /// An element of the result from the row's normaliser: the one body that
    /// both modes run.
    #[inline(always)]
    fn apply<T: Float>(self, x: T, max: T, sum: T) -> T {
        match self {
            Softmax::Plain => (x - max).exp() / sum,
            Softmax::Log => (x - max) - sum.ln(),
        }
    }
}

/// y\[n,k\] = exp x\[n,k\] / Σ_j exp x\[n,j\], or its logarithm. Input x.
pub fn softmax(kind: Softmax, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), softmax_typed(kind, call));
}

fn softmax_typed<T: Float>(kind: Softmax, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, mut y) = (ins.get::<T>(0), outs.take::<T>());
    if region.is_empty() {
        return;
    }
    for n in region.range(0) {
        let row = x.row([n, 0]);
        let (max, sum) = normaliser(row);
        for k in region.range(1) {
            y.set([n, k], kind.apply(row[k], max, sum));
        }
    }
}

/// x = [`softmax`] of x. Output x, updated; whole rows only.
pub fn softmax_in_place(kind: Softmax, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), softmax_in_place_typed(kind, call));
}

fn softmax_in_place_typed<T: Float>(kind: Softmax, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (_, mut outs, _) = call.split();
    let mut x = outs.take::<T>();
    if region.is_empty() {
        return;
    }
    for n in region.range(0) {
        let row = x.row_mut([n, 0]);
        let (max, sum) = normaliser(row);
        row.iter_mut().for_each(|x| *x = kind.apply(*x, max, sum));
    }
}

/// The gradient from the result y: y (g' − Σ_j g'\[j\] y\[j\]), and for the
/// logarithm g' − exp y Σ_j g'\[j\]. Inputs y and g'.
pub fn softmax_backward(kind: Softmax, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward(kind, call));
}

fn backward<T: Float>(kind: Softmax, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (y, g) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut gx = outs.take::<T>();
    if region.is_empty() {
        return;
    }
    for n in region.range(0) {
        let (y, g) = (y.row([n, 0]), g.row([n, 0]));
        let total = match kind {
            Softmax::Plain => math::dot(g, y),
            Softmax::Log => math::sum_slice(g),
        };
        for k in region.range(1) {
            let grad = match kind {
                Softmax::Plain => y[k] * (g[k] - total),
                Softmax::Log => g[k] - y[k].exp() * total,
            };
            gx.set([n, k], grad);
        }
    }
}
