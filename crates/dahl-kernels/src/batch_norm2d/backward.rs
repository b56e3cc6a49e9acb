//! The gradient of what is normalised.

use super::{Channel, Statistics};
use crate::conv2d::Rectify;
use crate::element::float_dispatch;
use crate::planes::{Planes, PlanesMut};
use crate::simd::{Lane, Simd, Work};
use crate::{Call, Float, Inputs, View};

/// The gradient of x. Inputs x, \[mean, invstd\], w, g'; for batch statistics the
/// sums of [`batch_norm2d_backward_sums`](super::batch_norm2d_backward_sums); and
/// with a relu b, for g' then passes only where the normalised value is positive.
pub fn batch_norm2d_backward_input(statistics: Statistics, rectify: Rectify, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_input(statistics, rectify, call));
}

fn backward_input<T: Lane>(statistics: Statistics, rectify: Rectify, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    let (ins, mut outs, _) = call.split();
    if region.is_empty() {
        return;
    }
    let mut gx = outs.take::<T>();
    let x = Planes::new(&ins.get::<T>(0), &region);
    let gy = Planes::new(&ins.get::<T>(3), &region);
    let gx = PlanesMut::new(&mut gx, &region);
    let slopes = Slopes::new(&ins, statistics, rectify);
    let first = region.range(1).start;
    let joined = x.is_joined() && gy.is_joined() && gx.is_joined();
    isa.run(match joined {
        true => Backward { x: x.joined(), gy: gy.joined(), gx: gx.joined(), slopes, first },
        false => Backward { x, gy, gx, slopes, first },
    });
}

/// What the gradients of all channels are made with.
struct Slopes<'a, T> {
    norm: View<'a, T>,
    weight: View<'a, T>,
    sums: Option<View<'a, T>>,
    /// Where a relu followed.
    bias: Option<View<'a, T>>,
    count: T,
}

impl<'a, T: Float> Slopes<'a, T> {
    fn new(ins: &Inputs<'a>, statistics: Statistics, rectify: Rectify) -> Self {
        let shape = ins.get::<T>(0).shape();
        let sums = (statistics == Statistics::Batch).then(|| ins.get(4));
        let bias = (rectify == Rectify::Relu).then(|| ins.get(4 + usize::from(sums.is_some())));
        let count = T::from_f64((shape[0] * shape[2] * shape[3]) as f64);
        Self { norm: ins.get(1), weight: ins.get(2), sums, bias, count }
    }

    fn get(&self, c: usize) -> Slope<T> {
        let (mean, invstd) = (self.norm.at([0, c]), self.norm.at([1, c]));
        let scale = invstd * self.weight.at([c]);
        let gate = self.bias.map(|bias| Channel { mean, scale, shift: bias.at([c]) });
        let through = self.sums.map(|sums| {
            let of = |i: usize| sums.at([i, c]) / self.count;
            (of(0), of(1) * invstd)
        });
        Slope { mean, scale, gate, through }
    }
}

/// What the gradient of one channel is made with.
#[derive(Clone, Copy)]
struct Slope<T> {
    mean: T,
    scale: T,
    gate: Option<Channel<T>>,
    /// What reaches x through the statistics: mean(g') and mean(g' x̂) · invstd.
    through: Option<(T, T)>,
}

impl<T: Float> Slope<T> {
    #[inline(always)]
    fn fill(self, x: &[T], g: &[T], gx: &mut [T]) {
        let items = gx.iter_mut().zip(x.iter().zip(g));
        let Self { mean, scale, gate, through } = self;
        match (through, gate) {
            (None, None) => items.for_each(|(gx, (_, &g))| *gx = g * scale),
            (None, Some(gate)) => items.for_each(|(gx, (&x, &g))| *gx = gate.gate(x, g) * scale),
            (Some((g_mean, slope)), None) => {
                for (gx, (&x, &g)) in items {
                    *gx = (g - g_mean - (x - mean) * slope) * scale;
                }
            }
            (Some((g_mean, slope)), Some(gate)) => {
                for (gx, (&x, &g)) in items {
                    *gx = (gate.gate(x, g) - g_mean - (x - mean) * slope) * scale;
                }
            }
        }
    }
}

struct Backward<'a, T> {
    x: Planes<'a, T>,
    gy: Planes<'a, T>,
    gx: PlanesMut<'a, T>,
    slopes: Slopes<'a, T>,
    /// The channel of the planes' first.
    first: usize,
}

impl<T: Lane> Work for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let [samples, channels, rows] = self.gx.lengths();
        for (n, c) in (0..samples).flat_map(|n| (0..channels).map(move |c| (n, c))) {
            let slope = self.slopes.get(self.first + c);
            for h in 0..rows {
                let at = [n, c, h];
                slope.fill(self.x.row(at), self.gy.row(at), self.gx.row(at));
            }
        }
    }
}
