//! Sums in fixed orders.

use crate::element::float_dispatch;
use crate::planes::{CHUNK as TERMS, Planes};
use crate::simd::{Lane, Simd, Work};
use crate::{BlockRuns, Call, Float, Region, View, ViewMut, lanes, math};

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
    let mut partials = [[T::ZERO; CHUNK]; LEVELS];
    outs.take::<T>().zip_blocks(&region, &ins.get::<T>(0), |blocks, out| {
        for from in (0..out.len()).step_by(CHUNK) {
            let to = (from + CHUNK).min(out.len());
            sum_chunk(blocks, from..to, &mut partials, &mut out[from..to]);
        }
    });
}

/// The tree as a stream: a partial of each size, merged as a binary counter
/// carries. What `partials` holds before does not matter.
fn sum_chunk<T: Float>(
    blocks: &BlockRuns<'_, T>,
    chunk: std::ops::Range<usize>,
    partials: &mut [[T; CHUNK]; LEVELS],
    out: &mut [T],
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

/// y\[c\] = Σ_{n,…} x\[n,c,…\] over the samples of the piece's sum. A sample's
/// plane is summed in lanes, chunk by chunk; samples are added in order. Input x.
pub fn sum_channels(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), sum_channels_typed(call));
}

fn sum_channels_typed<T: Lane>(call: &mut Call<'_>) {
    let (region, samples, isa) = (call.piece.out, call.piece.sum.clone(), call.isa);
    let (ins, mut outs, _) = call.split();
    let (x, out) = (ins.get::<T>(0), outs.take::<T>());
    if region.is_empty() {
        return;
    }
    if x.shape().rank() == 2 {
        return isa.run(SumRows { x, samples, region, out });
    }
    let whole = Region::full(&x.shape());
    let planes = Planes::new(&x, &whole.with(0, samples.clone()).with(1, region.range(0)));
    isa.run(SumPlanes { planes, samples: samples.len(), region, out });
}

struct SumPlanes<'a, T> {
    planes: Planes<'a, T>,
    samples: usize,
    region: Region,
    out: ViewMut<'a, T>,
}

impl<T: Lane> Work for SumPlanes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let mut buffer = [T::ZERO; TERMS];
        for (i, c) in self.region.range(0).enumerate() {
            let mut total = T::ZERO;
            for n in 0..self.samples {
                for from in (0..self.planes.elements()).step_by(TERMS) {
                    let chunk = self.planes.chunk([n, i], from, &mut buffer);
                    let [sum] = lanes::sums::<S, T, 1, 1>([chunk], |x| x);
                    total += sum;
                }
            }
            self.out.set([c], total);
        }
    }
}

/// Columns beside each other, sample after sample.
struct SumRows<'a, T> {
    x: View<'a, T>,
    samples: std::ops::Range<usize>,
    region: Region,
    out: ViewMut<'a, T>,
}

impl<T: Lane> Work for SumRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let (first, columns) = (self.region.range(0).start, self.region.len(0));
        let out = &mut self.out.row_mut([first])[..columns];
        out.fill(T::ZERO);
        for n in self.samples {
            for (sum, &x) in out.iter_mut().zip(self.x.row([n, first])) {
                *sum += x;
            }
        }
    }
}

/// [`sum_channels`] in plain loops: each sample's plane is one pairwise sum.
pub fn sum_channels_plain(call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), sum_channels_in_loops(call));
}

fn sum_channels_in_loops<T: Float>(call: &mut Call<'_>) {
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
