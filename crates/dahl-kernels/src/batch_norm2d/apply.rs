//! The normalisation itself, with what follows it.

use super::{Channel, Channels};
use crate::conv2d::Rectify;
use crate::element::float_dispatch;
use crate::elementwise::relu;
use crate::planes::{Planes, PlanesMut};
use crate::simd::{Lane, Simd, Work};
use crate::{Call, Float};

/// y = (x − mean) · invstd · w + b by channel, then + r where there is a fifth
/// input, then max(0, y). Inputs x, \[mean, invstd\], w, b and perhaps r.
pub fn batch_norm2d(rectify: Rectify, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), apply(rectify, call));
}

fn apply<T: Lane>(rectify: Rectify, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    let (ins, mut outs, _) = call.split();
    if region.is_empty() {
        return;
    }
    let mut y = outs.take::<T>();
    let x = Planes::new(&ins.get::<T>(0), &region);
    let residual = (ins.len() > 4).then(|| Planes::new(&ins.get::<T>(4), &region));
    let y = PlanesMut::new(&mut y, &region);
    let channels = Channels::new(&ins, [1, 2, 3]);
    let first = region.range(1).start;
    let joined = x.is_joined() && y.is_joined() && residual.is_none_or(|r| r.is_joined());
    isa.run(match joined {
        true => Apply {
            x: x.joined(),
            residual: residual.map(Planes::joined),
            y: y.joined(),
            channels,
            first,
            rectify,
        },
        false => Apply { x, residual, y, channels, first, rectify },
    });
}

struct Apply<'a, T> {
    x: Planes<'a, T>,
    residual: Option<Planes<'a, T>>,
    y: PlanesMut<'a, T>,
    channels: Channels<'a, T>,
    /// The channel of the planes' first.
    first: usize,
    rectify: Rectify,
}

impl<T: Lane> Work for Apply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let [samples, channels, rows] = self.y.lengths();
        for (n, c) in (0..samples).flat_map(|n| (0..channels).map(move |c| (n, c))) {
            let channel = self.channels.get(self.first + c);
            for h in 0..rows {
                let (x, y) = (self.x.row([n, c, h]), self.y.row([n, c, h]));
                let residual = self.residual.map(|r| r.row([n, c, h]));
                normalise(channel, self.rectify, x, residual, y);
            }
        }
    }
}

#[inline(always)]
fn normalise<T: Float>(
    channel: Channel<T>,
    rectify: Rectify,
    x: &[T],
    residual: Option<&[T]>,
    y: &mut [T],
) {
    match (residual, rectify) {
        (None, Rectify::No) => {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = channel.apply(x);
            }
        }
        (None, Rectify::Relu) => {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = relu(channel.apply(x));
            }
        }
        (Some(r), Rectify::No) => {
            for (y, (&x, &r)) in y.iter_mut().zip(x.iter().zip(r)) {
                *y = channel.apply(x) + r;
            }
        }
        (Some(r), Rectify::Relu) => {
            for (y, (&x, &r)) in y.iter_mut().zip(x.iter().zip(r)) {
                *y = relu(channel.apply(x) + r);
            }
        }
    }
}

/// x = [`batch_norm2d`] of x. Inputs \[mean, invstd\], w, b; output x, updated.
pub fn batch_norm2d_in_place(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), apply_in_place(call));
}

fn apply_in_place<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let channels = Channels::new(&ins, [0, 1, 2]);
    let mut x = outs.take::<T>();
    for n in region.range(0) {
        for c in region.range(1) {
            let channel = channels.get(c);
            x.runs_mut(&region.with(0, n..n + 1).with(1, c..c + 1), |_, x| {
                x.iter_mut().for_each(|x| *x = channel.apply(*x));
            });
        }
    }
}
