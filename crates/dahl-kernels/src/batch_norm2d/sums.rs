//! Sums by channel: the statistics, and the gradients of weight and bias.
//!
//! # The order of the tuned sums
//! A plane is taken in chunks of 1024 terms, each summed in [`lanes`](crate::lanes);
//! chunks follow each other, samples too. The statistics of a chunk are its mean
//! and then its second moment, which finds the chunk in the nearest cache, so that
//! memory is read once; chunks are merged as blocks are (Chan, Golub, LeVeque
//! 1979), so that no large terms cancel.
//!
//! Statistics are `f64`, whatever the elements are: in `f32` the mean of a chunk is
//! rounded by 1e-7 of itself, and where that is much of the deviation, so was the
//! variance (4.6e-6 of it off for a mean of 10,000 deviations). Squares are added with what
//! each addition rounds off.

use super::{Channel, Channels, merged};
use crate::conv2d::Rectify;
use crate::element::float_dispatch;
use crate::planes::{CHUNK, Planes};
use crate::simd::{Lane, Simd, Vector, Work};
use crate::{Call, Float, Region, View, ViewMut, lanes, math};

/// \[mean, Σ (x − mean)²\] of each channel over the samples of the piece's sum.
/// Input x \[N, C, H, W\], output \[2, C\] in `f64`.
pub fn batch_norm2d_stats(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), stats(call));
}

/// The planes of the channels and samples that a piece sums over.
fn seen<'a, T: Float>(
    x: &View<'a, T>,
    call: &Region,
    samples: &std::ops::Range<usize>,
) -> Planes<'a, T> {
    let whole = Region::full(&x.shape());
    Planes::new(x, &whole.with(0, samples.clone()).with(1, call.range(1)))
}

fn stats<T: Lane>(call: &mut Call<'_>) {
    let (region, samples, isa) = (call.piece.out, call.piece.sum.clone(), call.isa);
    let (ins, mut outs, _) = call.split();
    let x = seen(&ins.get::<T>(0), &region, &samples);
    isa.run(Stats { x, samples: samples.len(), region, out: outs.take() });
}

struct Stats<'a, T> {
    x: Planes<'a, T>,
    samples: usize,
    region: Region,
    out: ViewMut<'a, f64>,
}

impl<T: Lane> Work for Stats<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let mut buffer = [T::ZERO; CHUNK];
        for (i, c) in self.region.range(1).enumerate() {
            let mut all: Option<(f64, f64, f64)> = None;
            for n in 0..self.samples {
                for from in (0..self.x.elements()).step_by(CHUNK) {
                    let part = moments::<S, T>(self.x.chunk([n, i], from, &mut buffer));
                    all = Some(all.map_or(part, |all| merged(all, part)));
                }
            }
            let (_, mean, moment) = all.unwrap_or_default();
            self.out.set([0, c], mean);
            self.out.set([1, c], moment);
        }
    }
}

/// Count, mean and second moment. The terms are small around the mean as far as the elements'
/// type has it; what that is off by is put right behind.
#[inline(always)]
fn moments<S: Simd, T: Lane>(x: &[T]) -> (f64, f64, f64) {
    let count = x.len() as f64;
    let [total] = lanes::sums::<S, T, 1, 1>([x], |[x]| [x]);
    let near = total / T::from_f64(count);
    let around = <T::Vector<S>>::splat(near);
    let lanes = lanes::folded::<S, T, 1, 3>([x], |[off, squares, lost], [x]| {
        let d = x.sub(around);
        let square = d.mul(d);
        let next = squares.add(square);
        // Dekker's fast two-sum: what the addition rounds off.
        [off.add(d), next, lost.add(square.sub(next.sub(squares)))]
    });
    let [off, squares, lost] =
        lanes.map(|lanes| lanes.iter().map(|lane| lane.to_f64()).sum::<f64>());
    let off = off / count;
    let moment = squares + lost - off * off * count;
    // Roundings may leave less than nothing of equal terms; NaN stays.
    (count, near.to_f64() + off, if moment < 0.0 { 0.0 } else { moment })
}

/// [`batch_norm2d_stats`] in plain loops.
pub fn batch_norm2d_stats_plain(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), stats_plain(call));
}

/// The sum of a plane in an order of its own shape.
fn plane<T: Float>(shape: &crate::Shape, row: impl Fn(usize) -> T) -> T {
    if shape[3] == 0 { T::ZERO } else { math::sum(shape[2], &row) }
}

fn stats_plain<T: Float>(call: &mut Call<'_>) {
    let (region, samples) = (call.piece.out, call.piece.sum.clone());
    let (ins, mut outs, _) = call.split();
    let (x, mut y) = (ins.get::<T>(0), outs.take::<f64>());
    let shape = x.shape();
    let count = (samples.len() * shape[2] * shape[3]) as f64;
    for c in region.range(1) {
        // Σ f(x) over the channel.
        let sum = |f: &dyn Fn(f64) -> f64| -> f64 {
            let row = |n: usize, h: usize| {
                let row = x.row([n, c, h, 0]);
                math::sum(row.len(), &|i| f(row[i].to_f64()))
            };
            samples.clone().map(|n| plane(&shape, |h| row(n, h))).sum()
        };
        let mean = sum(&|x| x) / count;
        let moment = sum(&|x| (x - mean) * (x - mean));
        y.set([0, c], mean);
        y.set([1, c], moment);
    }
}

/// \[Σ g', Σ g' (x − mean) · invstd\] by channel over the samples of the
/// piece's sum: the gradients of b and w. Inputs x, \[mean, invstd\], g' and,
/// where a relu followed, w and b.
pub fn batch_norm2d_backward_sums(rectify: Rectify, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_sums(rectify, call));
}

fn backward_sums<T: Lane>(rectify: Rectify, call: &mut Call<'_>) {
    let (region, samples, isa) = (call.piece.out, call.piece.sum.clone(), call.isa);
    let (ins, mut outs, _) = call.split();
    let gate = (rectify == Rectify::Relu).then(|| Channels::new(&ins, [1, 3, 4]));
    isa.run(BackwardSums {
        x: seen(&ins.get::<T>(0), &region, &samples),
        gy: seen(&ins.get::<T>(2), &region, &samples),
        norm: ins.get(1),
        gate,
        samples: samples.len(),
        region,
        out: outs.take(),
    });
}

struct BackwardSums<'a, T> {
    x: Planes<'a, T>,
    gy: Planes<'a, T>,
    norm: View<'a, T>,
    gate: Option<Channels<'a, T>>,
    samples: usize,
    region: Region,
    out: ViewMut<'a, T>,
}

impl<T: Lane> Work for BackwardSums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let mut buffers = [[T::ZERO; CHUNK]; 2];
        let [for_x, for_g] = &mut buffers;
        for (i, c) in self.region.range(1).enumerate() {
            let (mean, invstd) = (self.norm.at([0, c]), self.norm.at([1, c]));
            let gate = self.gate.as_ref().map(|gate| gate.get(c));
            let (mut plain, mut weighted) = (T::ZERO, T::ZERO);
            for n in 0..self.samples {
                for from in (0..self.x.elements()).step_by(CHUNK) {
                    let x = self.x.chunk([n, i], from, for_x);
                    let g = self.gy.chunk([n, i], from, for_g);
                    let sums = gradients::<S, T>(mean, gate, x, g);
                    (plain, weighted) = (plain + sums[0], weighted + sums[1]);
                }
            }
            self.out.set([0, c], plain);
            self.out.set([1, c], weighted * invstd);
        }
    }
}

/// Σ g' and Σ g' (x − mean).
#[inline(always)]
fn gradients<S: Simd, T: Lane>(mean: T, gate: Option<Channel<T>>, x: &[T], g: &[T]) -> [T; 2] {
    let mean = <T::Vector<S>>::splat(mean);
    let Some(gate) = gate else {
        return lanes::sums::<S, T, 2, 2>([x, g], |[x, g]| [g, g.mul(x.sub(mean))]);
    };
    let (scale, shift) = (<T::Vector<S>>::splat(gate.scale), <T::Vector<S>>::splat(gate.shift));
    lanes::sums::<S, T, 2, 2>([x, g], |[x, g]| {
        let d = x.sub(mean);
        // As `Channel::apply`.
        let g = g.gate(d.mul(scale).add(shift));
        [g, g.mul(d)]
    })
}

/// [`batch_norm2d_backward_sums`] in plain loops.
pub fn batch_norm2d_backward_sums_plain(rectify: Rectify, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_sums_plain(rectify, call));
}

fn backward_sums_plain<T: Float>(rectify: Rectify, call: &mut Call<'_>) {
    let (region, samples) = (call.piece.out, call.piece.sum.clone());
    let (ins, mut outs, _) = call.split();
    let (x, norm, gy) = (ins.get::<T>(0), ins.get::<T>(1), ins.get::<T>(2));
    let gates = (rectify == Rectify::Relu).then(|| Channels::new(&ins, [1, 3, 4]));
    let mut sums = outs.take::<T>();
    let shape = x.shape();
    for c in region.range(1) {
        let (mean, invstd) = (norm.at([0, c]), norm.at([1, c]));
        let gate = gates.as_ref().map(|gates| gates.get(c));
        let through = |x: T, g: T| gate.map_or(g, |gate| gate.gate(x, g));
        let (mut plain, mut weighted) = (T::ZERO, T::ZERO);
        for n in samples.clone() {
            let rows = |h: usize| (x.row([n, c, h, 0]), gy.row([n, c, h, 0]));
            plain += plane(&shape, |h| {
                let (x, g) = rows(h);
                math::sum(x.len(), &|i| through(x[i], g[i]))
            });
            weighted += plane(&shape, |h| {
                let (x, g) = rows(h);
                math::sum(x.len(), &|i| through(x[i], g[i]) * (x[i] - mean))
            });
        }
        sums.set([0, c], plain);
        sums.set([1, c], weighted * invstd);
    }
}
