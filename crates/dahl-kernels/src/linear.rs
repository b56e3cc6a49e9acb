//! The fully connected layer, plain.

use crate::element::float_dispatch;
use crate::{Call, Float, View, math};

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
