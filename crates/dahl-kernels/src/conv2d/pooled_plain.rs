//! The fused convolution and maximum, plain: one place after the other.

use super::{Conv2d, Rectify};
use crate::element::float_dispatch;
use crate::pool::Pool2d;
use crate::{Call, Float, View};

/// [`conv2d_max_pool2d`](super::conv2d_max_pool2d), plain.
pub fn conv2d_max_pool2d_plain(conv: &Conv2d, pool: &Pool2d, relu: Rectify, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), forward(conv, pool, relu, call));
}

/// The place of window (i, j) with a number, as place of the convolution's result.
fn place(pool: &Pool2d, [i, j]: [usize; 2], number: usize) -> [usize; 2] {
    let (a, b) = (number / pool.kernel[1], number % pool.kernel[1]);
    [i * pool.stride[0] + a, j * pool.stride[1] + b]
}

/// The input that place (i, j) sees through tap (k, l).
fn seen<T: Float>(
    conv: &Conv2d,
    x: &View<'_, T>,
    [n, c]: [usize; 2],
    [i, j]: [usize; 2],
    [k, l]: [usize; 2],
) -> T {
    let [height, width] = [x.shape()[2], x.shape()[3]];
    match (conv.tap(0, i, k, height), conv.tap(1, j, l, width)) {
        (Some(y), Some(column)) => x.at([n, c, y, column]),
        _ => T::ZERO,
    }
}

fn forward<T: Float>(conv: &Conv2d, pool: &Pool2d, relu: Rectify, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, w) = (ins.get::<T>(0), ins.get::<T>(1));
    let b: Option<View<'_, T>> = (ins.len() > 2).then(|| ins.get(2));
    let (mut y, mut winner) = (outs.take::<T>(), outs.take::<u8>());
    let shape = w.shape();
    crate::region::for_each(&region, |at| {
        let [n, o, i, j] = [at[0], at[1], at[2], at[3]];
        let (mut best, mut won) = (T::NEG_INFINITY, 0);
        for number in 0..pool.kernel[0] * pool.kernel[1] {
            let place = place(pool, [i, j], number);
            let mut sum = T::ZERO;
            for c in 0..shape[1] {
                for k in 0..shape[2] {
                    for l in 0..shape[3] {
                        sum += w.at([o, c, k, l]) * seen(conv, &x, [n, c], place, [k, l]);
                    }
                }
            }
            let sum = b.as_ref().map_or(sum, |b| sum + b.at([o]));
            if sum > best || sum.is_nan() {
                (best, won) = (sum, number);
            }
        }
        let best = match relu {
            Rectify::No => best,
            Rectify::Relu => crate::elementwise::relu(best),
        };
        y.set([n, o, i, j], best);
        winner.set([n, o, i, j], won as u8);
    });
}

/// [`conv2d_max_pool2d_backward_weight`](super::conv2d_max_pool2d_backward_weight),
/// plain.
pub fn conv2d_max_pool2d_backward_weight_plain(conv: &Conv2d, pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_weight(conv, pool, call));
}

fn backward_weight<T: Float>(conv: &Conv2d, pool: &Pool2d, call: &mut Call<'_>) {
    let (region, samples) = (call.piece.out, call.piece.sum.clone());
    let (ins, mut outs, _) = call.split();
    let (x, grad, winner) = (ins.get::<T>(0), ins.get::<T>(1), ins.get::<u8>(2));
    let mut gw = outs.take::<T>();
    let windows = [grad.shape()[2], grad.shape()[3]];
    crate::region::for_each(&region, |at| {
        let [o, c, k, l] = [at[0], at[1], at[2], at[3]];
        let mut sum = T::ZERO;
        for n in samples.clone() {
            for i in 0..windows[0] {
                for j in 0..windows[1] {
                    let number = usize::from(winner.at([n, o, i, j]));
                    let place = place(pool, [i, j], number);
                    sum += grad.at([n, o, i, j]) * seen(conv, &x, [n, c], place, [k, l]);
                }
            }
        }
        gw.set([o, c, k, l], sum);
    });
}

/// [`conv2d_max_pool2d_backward_input`](super::conv2d_max_pool2d_backward_input),
/// plain.
pub fn conv2d_max_pool2d_backward_input_plain(conv: &Conv2d, pool: &Pool2d, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_input(conv, pool, call));
}

fn backward_input<T: Float>(conv: &Conv2d, pool: &Pool2d, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (grad, w, winner) = (ins.get::<T>(0), ins.get::<T>(1), ins.get::<u8>(2));
    let mut gx = outs.take::<T>();
    let (windows, image) = (grad.shape(), gx.shape());
    crate::region::for_each(&region, |at| gx.set([at[0], at[1], at[2], at[3]], T::ZERO));
    if region.is_empty() {
        return;
    }
    for n in region.range(0) {
        for (o, i) in (0..windows[1]).flat_map(|o| (0..windows[2]).map(move |i| (o, i))) {
            for j in 0..windows[3] {
                let g = grad.at([n, o, i, j]);
                let [a, b] = place(pool, [i, j], usize::from(winner.at([n, o, i, j])));
                for (k, l) in (0..w.shape()[2]).flat_map(|k| (0..w.shape()[3]).map(move |l| (k, l)))
                {
                    let seen = (conv.tap(0, a, k, image[2]), conv.tap(1, b, l, image[3]));
                    let (Some(y), Some(x)) = seen else { continue };
                    for c in region.range(1) {
                        gx.set([n, c, y, x], gx.at([n, c, y, x]) + g * w.at([o, c, k, l]));
                    }
                }
            }
        }
    }
}
