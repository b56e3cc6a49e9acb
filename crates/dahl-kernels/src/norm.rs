//! Norms, and the factor that clips gradients by them.

use crate::element::float_dispatch;
use crate::reduce_axes::fold_over;
use crate::{Call, Float, Region, math};

/// √Σ x² over all elements; over the rows of the piece's sum where the input
/// has more than one axis. Input x, output a scalar.
pub fn norm(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), norm_typed(call));
}

fn norm_typed<T: Float>(call: &mut Call<'_>) {
    let rows = call.piece.sum.clone();
    let (ins, mut outs, _) = call.split();
    let x = ins.get::<T>(0);
    let mut region = Region::full(&x.shape());
    if region.rank() > 1 {
        region = region.with(0, rows);
    }
    outs.take::<T>().set([], fold_over(&x, &region, |x| x * x).sqrt());
}

/// min(1, max_norm / (√Σ x² + 1e-6)) over the scalars x; NaN stays NaN.
/// Inputs scalars, output a scalar.
pub fn clip_factor(max_norm: f64, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), clip_factor_typed(max_norm, call));
}

fn clip_factor_typed<T: Float>(max_norm: f64, call: &mut Call<'_>) {
    let (ins, mut outs, _) = call.split();
    let total = math::sum(ins.len(), &|i| {
        let norm = ins.get::<T>(i).at([]);
        norm * norm
    });
    let factor = T::from_f64(max_norm) / (total.sqrt() + T::from_f64(1e-6));
    outs.take::<T>().set([], if factor > T::ONE { T::ONE } else { factor });
}
