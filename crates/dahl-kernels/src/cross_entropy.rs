//! Cross entropy of logits and labels, and whether a loss is finite.

use crate::element::float_dispatch;
use crate::reduce_axes::Extreme;
use crate::softmax::normaliser;
use crate::{Call, Float};

/// l\[n\] = ln Σ_k exp x\[n,k\] − x\[n, label\[n\]\]; NaN for a label that is no
/// class. Inputs x \[N, K\] and labels \[N\].
pub fn cross_entropy(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), cross_entropy_typed(call));
}

fn cross_entropy_typed<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, labels) = (ins.get::<T>(0), ins.get::<i64>(1));
    let mut losses = outs.take::<T>();
    for n in region.range(0) {
        let row = x.row([n, 0]);
        let (max, sum) = normaliser(row);
        let logit = usize::try_from(labels.at([n])).ok().and_then(|l| row.get(l)).copied();
        losses.set([n], logit.map_or(T::from_f64(f64::NAN), |x| sum.ln() - (x - max)));
    }
}

/// g\[n,k\] = g'\[n\] (exp x\[n,k\] / Σ exp x\[n\] − 1 where k is the label).
/// Inputs x, labels and g' \[N\].
pub fn cross_entropy_backward(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), cross_entropy_backward_typed(call));
}

fn cross_entropy_backward_typed<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, labels, g) = (ins.get::<T>(0), ins.get::<i64>(1), ins.get::<T>(2));
    let mut gx = outs.take::<T>();
    for n in region.range(0) {
        let row = x.row([n, 0]);
        let (max, sum) = normaliser(row);
        let (label, g) = (labels.at([n]), g.at([n]));
        for k in region.range(1) {
            let hit = if label == k as i64 { T::ONE } else { T::ZERO };
            gx.set([n, k], g * ((row[k] - max).exp() / sum - hit));
        }
    }
}

/// 1 where the largest logit of a sample (the first of equal ones; NaN is the
/// largest of all) is its label, else 0. Inputs x \[N, K\] and labels \[N\].
pub fn correct(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), correct_typed(call));
}

fn correct_typed<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, labels) = (ins.get::<T>(0), ins.get::<i64>(1));
    let mut hits = outs.take::<T>();
    for n in region.range(0) {
        let row = x.row([n, 0]);
        let (best, _) = Extreme::Max.of(row.len(), |k| row[k]);
        hits.set([n], if best as i64 == labels.at([n]) { T::ONE } else { T::ZERO });
    }
}

/// 1 where a scalar is finite, else 0.
pub fn is_finite(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), is_finite_typed(call));
}

fn is_finite_typed<T: Float>(call: &mut Call<'_>) {
    let (ins, mut outs, _) = call.split();
    let x = ins.get::<T>(0).at([]);
    outs.take::<u8>().set([], u8::from(x.is_finite()));
}
