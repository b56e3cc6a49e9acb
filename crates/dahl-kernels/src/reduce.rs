//! Sums in fixed orders.

use crate::element::float_dispatch;
use crate::simd::Lane;
use crate::{BlockRuns, Call, Float, lanes, math};

/// How many elements are carried through the tree at once.
const CHUNK: usize = 32;
/// Levels of the tree: enough for 2^32 blocks.
const LEVELS: usize = 33;

/// y = Σ_b x_b over the first axis, in the binary tree over 0..B whose left
/// side is the largest power of two below B. Input x \[B, …\].
pub fn sum_blocks(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), sum_blocks_typed(call));
}

fn sum_blocks_typed<T: Float>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    // Cleared once: it is longer than what most chunks use of it.
    let mut partials = [[T::ZERO; CHUNK]; LEVELS];
    outs.take::<T>().zip_blocks(&region, &ins.get::<T>(0), |blocks, out| {
        for from in (0..out.len()).step_by(CHUNK) {
            let to = (from + CHUNK).min(out.len());
            sum_chunk(blocks, from..to, &mut out[from..to], &mut partials);
        }
    });
}

/// The tree as a stream: a partial of each size, merged as a binary counter
/// carries.
fn sum_chunk<T: Float>(
    blocks: &BlockRuns<'_, T>,
    chunk: std::ops::Range<usize>,
    out: &mut [T],
    partials: &mut [[T; CHUNK]; LEVELS],
) {
    let mut depth = 0;
    let merge = |depth: &mut usize, partials: &mut [[T; CHUNK]; LEVELS]| {
        let (left, right) = partials.split_at_mut(*depth - 1);
        for (l, r) in left[*depth - 2].iter_mut().zip(&right[0]) {
            *l += *r;
        }
        *depth -= 1;
    };
    for b in 0..blocks.len() {
        partials[depth][..out.len()].copy_from_slice(&blocks.get(b)[chunk.clone()]);
        depth += 1;
        for _ in 0..b.trailing_ones() {
            merge(&mut depth, partials);
        }
    }
    while depth > 1 {
        merge(&mut depth, partials);
    }
    out.copy_from_slice(&partials[0][..out.len()]);
}

/// y\[c\] = Σ_{n,…} x\[n,c,…\] over the samples of the piece's sum. Each
/// sample's plane is one pairwise sum; samples are added in order. Input x.
pub fn sum_channels(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), sum_channels_typed(call));
}

fn sum_channels_typed<T: Float>(call: &mut Call<'_>) {
    let (region, samples) = (call.piece.out, call.piece.sum.clone());
    let (ins, mut outs, _) = call.split();
    let (x, mut y) = (ins.get::<T>(0), outs.take::<T>());
    let shape = x.shape();
    for c in region.range(0) {
        let mut total = T::ZERO;
        for n in samples.clone() {
            total += match shape.rank() {
                2 => x.at([n, c]),
                4 if shape[3] > 0 => math::sum(shape[2], &|h| math::sum_slice(x.row([n, c, h, 0]))),
                4 => T::ZERO,
                rank => panic!("expected 2 or 4 axes, found {rank}"),
            };
        }
        y.set([c], total);
    }
}

/// [`sum_channels`] in vectors: each sample's plane is one sum in the order of
/// `lanes`; samples are added in order.
pub fn sum_channels_lanes(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), sum_channels_lanes_typed(call));
}

fn sum_channels_lanes_typed<T: Lane>(call: &mut Call<'_>) {
    let (region, samples, isa) = (call.piece.out, call.piece.sum.clone(), call.isa);
    let (ins, mut outs, _) = call.split();
    let (x, mut y) = (ins.get::<T>(0), outs.take::<T>());
    if x.shape().rank() == 2 {
        for c in region.range(0) {
            let mut total = T::ZERO;
            samples.clone().for_each(|n| total += x.at([n, c]));
            y.set([c], total);
        }
        return;
    }
    for c in region.range(0) {
        let mut total = T::ZERO;
        for n in samples.clone() {
            total += isa.run(lanes::Plane(&x, [n, c]));
        }
        y.set([c], total);
    }
}

/// y = Σ x over all elements, divided by their number where `mean`: one
/// pairwise sum in row-major order. Input x, output a scalar.
pub fn sum_all(mean: bool, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), sum_all_typed(mean, call));
}

fn sum_all_typed<T: Float>(mean: bool, call: &mut Call<'_>) {
    let (ins, mut outs, _) = call.split();
    let x = ins.get::<T>(0);
    let count = x.shape().elements();
    let total = crate::reduce_axes::sum_over(&x, &crate::Region::full(&x.shape()));
    let divisor = if mean { T::from_f64(count as f64) } else { T::ONE };
    outs.take::<T>().set([], total / divisor);
}

/// y = the scalar in every element, divided by their number where `mean`.
pub fn expand_all(mean: bool, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), expand_all_typed(mean, call));
}

fn expand_all_typed<T: Float>(mean: bool, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let mut y = outs.take::<T>();
    let count = y.shape().elements();
    let divisor = if mean { T::from_f64(count as f64) } else { T::ONE };
    let value = ins.get::<T>(0).at([]) / divisor;
    y.runs_mut(&region, |_, run| run.fill(value));
}
