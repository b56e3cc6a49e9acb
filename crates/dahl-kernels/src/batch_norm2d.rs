//! Batch normalisation in parts: statistics, finish, apply, and the same back.

use crate::element::float_dispatch;
use crate::{Call, Float, Inputs, View, math};

/// Which statistics normalise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statistics {
    /// Those of the batch: training.
    Batch,
    /// Those that were tracked: evaluation.
    Tracked,
}

/// The sum of a plane in an order of its own shape.
fn plane<T: Float>(shape: &crate::Shape, row: impl Fn(usize) -> T) -> T {
    if shape[3] == 0 { T::ZERO } else { math::sum(shape[2], &row) }
}

/// \[mean, Σ (x − mean)²\] of each channel over the samples of the piece's sum.
/// Input x \[N, C, H, W\], output \[2, C\].
pub fn batch_norm2d_stats(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), stats(call));
}

fn stats<T: Float>(call: &mut Call<'_>) {
    let (region, samples) = (call.piece.out, call.piece.sum.clone());
    let (ins, mut outs, _) = call.split();
    let (x, mut y) = (ins.get::<T>(0), outs.take::<T>());
    let shape = x.shape();
    let count = T::from_f64((samples.len() * shape[2] * shape[3]) as f64);
    for c in region.range(1) {
        let mut total = T::ZERO;
        for n in samples.clone() {
            total += plane(&shape, |h| math::sum_slice(x.row([n, c, h, 0])));
        }
        let mean = total / count;
        let mut moment = T::ZERO;
        for n in samples.clone() {
            moment += plane(&shape, |h| {
                let row = x.row([n, c, h, 0]);
                math::sum(row.len(), &|i| (row[i] - mean) * (row[i] - mean))
            });
        }
        y.set([0, c], mean);
        y.set([1, c], moment);
    }
}

/// Merges the statistics of blocks (Chan, Golub, LeVeque 1979) in the tree of
/// [`sum_blocks`](crate::reduce::sum_blocks). Input \[B, 2, C\], output
/// \[2, C\]; `counts` has the elements of each block.
pub fn merge_moments(counts: &[usize], call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), merge(counts, call));
}

fn merge<T: Float>(counts: &[usize], call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, mut y) = (ins.get::<T>(0), outs.take::<T>());
    for c in region.range(1) {
        let (_, mean, moment) = merge_tree(&x, counts, 0, c);
        y.set([0, c], mean);
        y.set([1, c], moment);
    }
}

fn merge_tree<T: Float>(x: &View<'_, T>, counts: &[usize], first: usize, c: usize) -> (T, T, T) {
    if let [count] = counts {
        return (T::from_f64(*count as f64), x.at([first, 0, c]), x.at([first, 1, c]));
    }
    let left = counts.len().next_power_of_two() / 2;
    let (na, mean_a, moment_a) = merge_tree(x, &counts[..left], first, c);
    let (nb, mean_b, moment_b) = merge_tree(x, &counts[left..], first + left, c);
    let (n, delta) = (na + nb, mean_b - mean_a);
    (n, mean_a + delta * nb / n, moment_a + moment_b + delta * delta * na * nb / n)
}

/// \[mean, 1/√(variance + eps)\] from \[mean, Σ (x − mean)²\]. Input and output
/// \[2, C\].
pub fn batch_norm2d_finish(count: usize, eps: f64, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), batch_norm2d_finish_typed(count, eps, call));
}

fn batch_norm2d_finish_typed<T: Float>(count: usize, eps: f64, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (stats, mut norm) = (ins.get::<T>(0), outs.take::<T>());
    for c in region.range(1) {
        let variance = stats.at([1, c]) / T::from_f64(count as f64);
        norm.set([0, c], stats.at([0, c]));
        norm.set([1, c], T::ONE / (variance + T::from_f64(eps)).sqrt());
    }
}

/// \[mean, 1/√(variance + eps)\] from tracked statistics. Inputs mean and
/// variance \[C\], output \[2, C\].
pub fn batch_norm2d_tracked(eps: f64, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), batch_norm2d_tracked_typed(eps, call));
}

fn batch_norm2d_tracked_typed<T: Float>(eps: f64, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (mean, variance) = (ins.get::<T>(0), ins.get::<T>(1));
    let mut norm = outs.take::<T>();
    for c in region.range(1) {
        norm.set([0, c], mean.at([c]));
        norm.set([1, c], T::ONE / (variance.at([c]) + T::from_f64(eps)).sqrt());
    }
}

/// Moves the tracked statistics towards the batch's; nothing where `ok` is 0.
/// Inputs \[mean, Σ (x − mean)²\] and ok; outputs mean, variance, number of
/// batches.
pub fn batch_norm2d_track(count: usize, momentum: f64, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), batch_norm2d_track_typed(count, momentum, call));
}

fn batch_norm2d_track_typed<T: Float>(count: usize, momentum: f64, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (stats, ok) = (ins.get::<T>(0), ins.get::<u8>(1));
    if ok.at([]) == 0 {
        return;
    }
    let (mut mean, mut variance) = (outs.take::<T>(), outs.take::<T>());
    let mut batches = outs.take::<i64>();
    batches.set([], batches.at([]) + 1);
    let (keep, take) = (T::from_f64(1.0 - momentum), T::from_f64(momentum));
    // The tracked variance is the unbiased one.
    let degrees = T::from_f64((count - 1) as f64);
    for c in region.range(0) {
        mean.set([c], keep * mean.at([c]) + take * stats.at([0, c]));
        variance.set([c], keep * variance.at([c]) + take * (stats.at([1, c]) / degrees));
    }
}

/// y = (x − mean) · invstd · w + b by channel. Inputs x, \[mean, invstd\], w, b.
pub fn batch_norm2d(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), apply(call));
}

fn apply<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, channels) = (ins.get::<T>(0), Channels::new(&ins, 1));
    let mut y = outs.take::<T>();
    for n in region.range(0) {
        for c in region.range(1) {
            let channel = channels.get(c);
            y.zip(&region.with(0, n..n + 1).with(1, c..c + 1), [&x], |[x], y| {
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = channel.apply(x);
                }
            });
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
    let channels = Channels::new(&ins, 0);
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

/// What normalises, from the inputs \[mean, invstd\], w and b.
struct Channels<'a, T> {
    norm: View<'a, T>,
    weight: View<'a, T>,
    bias: View<'a, T>,
}

impl<'a, T: Float> Channels<'a, T> {
    fn new(ins: &Inputs<'a>, first: usize) -> Self {
        Self { norm: ins.get(first), weight: ins.get(first + 1), bias: ins.get(first + 2) }
    }

    fn get(&self, c: usize) -> Channel<T> {
        let scale = self.norm.at([1, c]) * self.weight.at([c]);
        Channel { mean: self.norm.at([0, c]), scale, shift: self.bias.at([c]) }
    }
}

/// What normalises one channel.
#[derive(Clone, Copy)]
struct Channel<T> {
    mean: T,
    scale: T,
    shift: T,
}

impl<T: Float> Channel<T> {
    #[inline(always)]
    fn apply(self, x: T) -> T {
        (x - self.mean) * self.scale + self.shift
    }
}

/// \[Σ g', Σ g' (x − mean) · invstd\] by channel over the samples of the
/// piece's sum: the gradients of b and w. Inputs x, \[mean, invstd\], g'.
pub fn batch_norm2d_backward_sums(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_sums(call));
}

fn backward_sums<T: Float>(call: &mut Call<'_>) {
    let (region, samples) = (call.piece.out, call.piece.sum.clone());
    let (ins, mut outs, _) = call.split();
    let (x, norm, gy) = (ins.get::<T>(0), ins.get::<T>(1), ins.get::<T>(2));
    let mut sums = outs.take::<T>();
    let shape = x.shape();
    for c in region.range(1) {
        let (mean, invstd) = (norm.at([0, c]), norm.at([1, c]));
        let (mut plain, mut weighted) = (T::ZERO, T::ZERO);
        for n in samples.clone() {
            plain += plane(&shape, |h| math::sum_slice(gy.row([n, c, h, 0])));
            weighted += plane(&shape, |h| {
                let (x, g) = (x.row([n, c, h, 0]), gy.row([n, c, h, 0]));
                math::sum(x.len(), &|i| g[i] * (x[i] - mean))
            });
        }
        sums.set([0, c], plain);
        sums.set([1, c], weighted * invstd);
    }
}

/// The gradient of x. Inputs x, \[mean, invstd\], w, g' and, for batch
/// statistics, the sums of [`batch_norm2d_backward_sums`].
pub fn batch_norm2d_backward_input(statistics: Statistics, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), backward_input(statistics, call));
}

fn backward_input<T: Float>(statistics: Statistics, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, norm, w, gy) = (ins.get::<T>(0), ins.get::<T>(1), ins.get::<T>(2), ins.get::<T>(3));
    let mut gx = outs.take::<T>();
    let shape = x.shape();
    let count = T::from_f64((shape[0] * shape[2] * shape[3]) as f64);
    for n in region.range(0) {
        for c in region.range(1) {
            let (mean, invstd) = (norm.at([0, c]), norm.at([1, c]));
            let scale = invstd * w.at([c]);
            let part = region.with(0, n..n + 1).with(1, c..c + 1);
            if statistics == Statistics::Tracked {
                gx.zip(&part, [&gy], |[g], gx| {
                    for (gx, &g) in gx.iter_mut().zip(g) {
                        *gx = g * scale;
                    }
                });
                continue;
            }
            let sums = ins.get::<T>(4);
            let g_mean = sums.at([0, c]) / count;
            let slope = sums.at([1, c]) / count * invstd;
            gx.zip(&part, [&x, &gy], |[x, g], gx| {
                for (gx, (&x, &g)) in gx.iter_mut().zip(x.iter().zip(g)) {
                    *gx = (g - g_mean - (x - mean) * slope) * scale;
                }
            });
        }
    }
}
