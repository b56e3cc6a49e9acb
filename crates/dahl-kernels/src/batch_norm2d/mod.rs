//! Batch normalisation in parts: statistics, finish, apply, and the same back.

mod apply;
mod backward;
mod sums;

pub use apply::{batch_norm2d, batch_norm2d_in_place};
pub use backward::batch_norm2d_backward_input;
pub use sums::{
    batch_norm2d_backward_sums, batch_norm2d_backward_sums_plain, batch_norm2d_stats,
    batch_norm2d_stats_plain,
};

use crate::element::float_dispatch;
use crate::simd::{Lane, Simd, Work};
use crate::{Call, Float, Inputs, Region, View, ViewMut};

/// Which statistics normalise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statistics {
    /// Those of the batch: training.
    Batch,
    /// Those that were tracked: evaluation.
    Tracked,
}

/// Merges the statistics of blocks (Chan, Golub, LeVeque 1979) in the tree of
/// [`sum_blocks`](crate::reduce::sum_blocks). Input \[B, 2, C\], output
/// \[2, C\]; `counts` has the elements of each block.
pub fn merge_moments(counts: &[usize], call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), merge(counts, call));
}

/// Channels that are carried through the tree at once, and its levels: enough
/// for 2^32 blocks.
const CHANNELS: usize = 32;
const LEVELS: usize = 33;

fn merge<T: Lane>(counts: &[usize], call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    let (ins, mut outs, _) = call.split();
    isa.run(Merge { counts, x: ins.get::<T>(0), region, out: outs.take() });
}

struct Merge<'a, T> {
    counts: &'a [usize],
    x: View<'a, T>,
    region: Region,
    out: ViewMut<'a, T>,
}

impl<T: Lane> Work for Merge<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let mut counts = [T::ZERO; LEVELS];
        let mut partials = [[[T::ZERO; CHANNELS]; 2]; LEVELS];
        let channels = self.region.range(1);
        for first in channels.clone().step_by(CHANNELS) {
            let length = CHANNELS.min(channels.end - first);
            let mut depth = 0;
            // The tree as a stream, as a binary counter carries.
            for (b, &count) in self.counts.iter().enumerate() {
                counts[depth] = T::from_f64(count as f64);
                for (i, to) in partials[depth].iter_mut().enumerate() {
                    to[..length].copy_from_slice(&self.x.row([b, i, first])[..length]);
                }
                depth += 1;
                let last = b + 1 == self.counts.len();
                let merges = if last { depth - 1 } else { b.trailing_ones() as usize };
                for _ in 0..merges {
                    depth -= 1;
                    let (left, right) = partials.split_at_mut(depth);
                    merge_into(&mut left[depth - 1], &right[0], [counts[depth - 1], counts[depth]]);
                    counts[depth - 1] += counts[depth];
                }
            }
            for (i, from) in partials[0].iter().enumerate() {
                self.out.row_mut([i, first])[..length].copy_from_slice(&from[..length]);
            }
        }
    }
}

/// Means and second moments of two sets of values together.
#[inline(always)]
fn merge_into<T: Float>(
    [mean_a, moment_a]: &mut [[T; CHANNELS]; 2],
    [mean_b, moment_b]: &[[T; CHANNELS]; 2],
    [na, nb]: [T; 2],
) {
    for c in 0..CHANNELS {
        let a = (na, mean_a[c], moment_a[c]);
        (_, mean_a[c], moment_a[c]) = merged(a, (nb, mean_b[c], moment_b[c]));
    }
}

/// Count, mean and second moment of two sets of values together.
#[inline(always)]
fn merged<T: Float>(
    (na, mean_a, moment_a): (T, T, T),
    (nb, mean_b, moment_b): (T, T, T),
) -> (T, T, T) {
    let (n, delta) = (na + nb, mean_b - mean_a);
    (n, mean_a + delta * nb / n, moment_a + moment_b + delta * delta * na * nb / n)
}

/// \[mean, 1/√(variance + eps)\] from \[mean, Σ (x − mean)²\]. Input \[2, C\] in `f64`,
/// output \[2, C\].
pub fn batch_norm2d_finish(count: usize, eps: f64, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(1), batch_norm2d_finish_typed(count, eps, call));
}

fn batch_norm2d_finish_typed<T: Float>(count: usize, eps: f64, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (stats, mut norm) = (ins.get::<f64>(0), outs.take::<T>());
    for c in region.range(1) {
        let variance = stats.at([1, c]) / count as f64;
        norm.set([0, c], T::from_f64(stats.at([0, c])));
        norm.set([1, c], T::from_f64(1.0 / (variance + eps).sqrt()));
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
/// Inputs \[mean, Σ (x − mean)²\] in `f64` and ok; outputs mean, variance, number of
/// batches.
pub fn batch_norm2d_track(count: usize, momentum: f64, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(2), batch_norm2d_track_typed(count, momentum, call));
}

fn batch_norm2d_track_typed<T: Float>(count: usize, momentum: f64, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (stats, ok) = (ins.get::<f64>(0), ins.get::<u8>(1));
    if ok.at([]) == 0 {
        return;
    }
    let (mut mean, mut variance) = (outs.take::<T>(), outs.take::<T>());
    let mut batches = outs.take::<i64>();
    batches.set([], batches.at([]) + 1);
    let moved = |from: T, to: f64| T::from_f64((1.0 - momentum) * from.to_f64() + momentum * to);
    // The tracked variance is the unbiased one.
    let degrees = (count - 1) as f64;
    for c in region.range(0) {
        mean.set([c], moved(mean.at([c]), stats.at([0, c])));
        variance.set([c], moved(variance.at([c]), stats.at([1, c]) / degrees));
    }
}

/// What normalises, from the inputs \[mean, invstd\], w and b.
struct Channels<'a, T> {
    norm: View<'a, T>,
    weight: View<'a, T>,
    bias: View<'a, T>,
}

impl<'a, T: Float> Channels<'a, T> {
    fn new(ins: &Inputs<'a>, [norm, weight, bias]: [usize; 3]) -> Self {
        Self { norm: ins.get(norm), weight: ins.get(weight), bias: ins.get(bias) }
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
    /// Two roundings on every instruction set: the backward pass finds again
    /// what a relu let through.
    #[inline(always)]
    fn apply(self, x: T) -> T {
        (x - self.mean) * self.scale + self.shift
    }

    /// The gradient that a relu of the normalised value lets through.
    #[inline(always)]
    fn gate(self, x: T, g: T) -> T {
        if self.apply(x) <= T::ZERO { T::ZERO } else { g }
    }
}
