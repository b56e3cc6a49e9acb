//! Labels as rows of zeros with a one.

use crate::element::float_dispatch;
use crate::{Call, Float};

/// y\[n,k\] = 1 where k is label\[n\], else 0; NaN in the whole row of a label
/// that is no class. Input labels \[N\], output \[N, K\].
pub fn one_hot(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(1), one_hot_typed(call));
}

fn one_hot_typed<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (labels, mut y) = (ins.get::<i64>(0), outs.take::<T>());
    let classes = y.shape()[1] as i64;
    for n in region.range(0) {
        let label = labels.at([n]);
        let rest = if (0..classes).contains(&label) { T::ZERO } else { T::from_f64(f64::NAN) };
        for k in region.range(1) {
            y.set([n, k], if label == k as i64 { T::ONE } else { rest });
        }
    }
}
