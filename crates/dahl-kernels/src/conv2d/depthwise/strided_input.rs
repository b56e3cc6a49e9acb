//! The gradient of the input of a depthwise convolution with a stride.
//!
//! Column x of the padded image, at `x % stride` of its step, is seen by the taps
//! of one *phase* alone: columns of a phase are a convolution of the result's
//! gradient with these taps, one behind the other. Phases are computed apart and
//! then put together.
#![expect(unsafe_code, reason = "vectors are read and written through pointers")]

use super::super::Conv2d;
use super::super::direct::split;
use crate::gemm::LINE;
use crate::simd::{Isa, Lane, Simd, Vector, Work};
use crate::{DType, Region, Shape, View, ViewMut};
use std::ops::Range;

/// Two of the widest vectors: phases are computed in multiples of it.
const WIDEST: usize = 32;

/// How the columns of a piece lie.
#[derive(Clone, Copy)]
struct Columns {
    stride: usize,
    /// The piece's first column in the padded image, and how many there are.
    first: usize,
    count: usize,
    /// How far the last tap reaches back, in steps.
    reach: usize,
}

impl Columns {
    fn new(conv: &Conv2d, taps: usize, columns: Range<usize>) -> Self {
        let (stride, padding, dilation) = conv.axis(1);
        let (first, count) = (columns.start + padding, columns.len());
        Self { stride, first, count, reach: (taps - 1) * dilation / stride }
    }

    /// The first step.
    fn start(&self) -> usize {
        self.first / self.stride
    }

    /// The steps of a phase, in whole vectors.
    fn steps(&self) -> usize {
        let end = (self.first + self.count).div_ceil(self.stride);
        (end - self.start()).next_multiple_of(WIDEST)
    }

    /// A row of the result's gradient with zeros around it.
    fn line(&self) -> usize {
        self.reach + self.steps()
    }
}

/// The elements of scratch: lines of all rows and filters, phases, a row of the
/// result, and weights.
fn lengths(conv: &Conv2d, weight: &Shape, rows: usize, columns: Columns) -> [usize; 4] {
    let filters = weight[0] / conv.groups;
    [
        filters * rows * columns.line(),
        columns.stride * columns.steps(),
        columns.stride * columns.steps(),
        filters * weight[2] * weight[3],
    ]
}

/// The bytes of scratch that [`run`] needs for a piece.
pub(super) fn scratch(
    conv: &Conv2d,
    weight: &Shape,
    outputs: &Shape,
    out: &Region,
    dtype: DType,
) -> usize {
    let columns = Columns::new(conv, weight[3], out.range(3));
    let elements: usize = lengths(conv, weight, outputs[2], columns).iter().sum();
    elements * dtype.size() + 2 * weight[3] * size_of::<usize>() + 6 * LINE
}

/// The gradient of the input over `region`.
pub(super) fn run<T: Lane>(
    isa: Isa,
    conv: &Conv2d,
    (gy, w): (&View<'_, T>, &View<'_, T>),
    gx: &mut ViewMut<'_, T>,
    region: &Region,
    scratch: &mut [u8],
) {
    let weight = w.shape();
    let columns = Columns::new(conv, weight[3], region.range(3));
    let rows = gy.region().range(2);
    let [lines, phases, row, weights] = lengths(conv, &weight, rows.len(), columns);
    let (lines, scratch) = split::<T>(scratch, lines);
    let (phases, scratch) = split::<T>(scratch, phases);
    let (row, scratch) = split::<T>(scratch, row);
    let (weights, scratch) = split::<T>(scratch, weights);
    let (taps, _) = split::<usize>(scratch, 2 * weight[3]);
    for (l, tap) in taps.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let at = l * conv.dilation[1];
        *tap = [at % columns.stride, at / columns.stride];
    }
    let filters = weight[0] / conv.groups;
    for group in region.range(1) {
        let mut next = weights.iter_mut();
        for o in group * filters..(group + 1) * filters {
            for (k, l) in (0..weight[2]).flat_map(|k| (0..weight[3]).map(move |l| (k, l))) {
                if let Some(to) = next.next() {
                    *to = w.at([o, 0, k, l]);
                }
            }
        }
        for sample in region.range(0) {
            pad(gy, [sample, group * filters, filters], columns, lines);
            for y in region.range(2) {
                let of = Row {
                    conv,
                    kernel: [weight[2], weight[3]],
                    columns,
                    rows: rows.clone(),
                    y,
                    taps: taps.as_chunks::<2>().0,
                    weights,
                    lines,
                    phases,
                    row,
                };
                isa.run(of);
                let to = &mut gx.row_mut([sample, group, y, region.range(3).start]);
                let from = columns.first - columns.start() * columns.stride;
                to[..columns.count].copy_from_slice(&row[from..][..columns.count]);
            }
        }
    }
}

/// Copies the rows of some filters of a sample, with zeros around them.
fn pad<T: Lane>(
    gy: &View<'_, T>,
    [sample, first, filters]: [usize; 3],
    columns: Columns,
    lines: &mut [T],
) {
    let (rows, there) = (gy.region().range(2), gy.region().range(3));
    // The column that a line begins with, which may lie before the first.
    let begin = columns.start() as isize - columns.reach as isize;
    let end = (begin + columns.line() as isize).clamp(0, there.end as isize) as usize;
    let start = (begin.max(0) as usize).max(there.start).min(end);
    let places = (0..filters).flat_map(|o| rows.clone().map(move |i| (first + o, i)));
    for (line, (o, i)) in lines.chunks_exact_mut(columns.line()).zip(places) {
        line.fill(T::ZERO);
        if start < end {
            let from = &gy.row([sample, o, i, start])[..end - start];
            line[(start as isize - begin) as usize..][..from.len()].copy_from_slice(from);
        }
    }
}

/// A row of the gradient.
struct Row<'a, T> {
    conv: &'a Conv2d,
    kernel: [usize; 2],
    columns: Columns,
    /// The rows that there are lines of.
    rows: Range<usize>,
    y: usize,
    /// The phase of each column of taps, and how many steps it reaches back.
    taps: &'a [[usize; 2]],
    weights: &'a [T],
    lines: &'a [T],
    phases: &'a mut [T],
    row: &'a mut [T],
}

impl<T: Lane> Work for Row<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self) {
        let lanes = T::Vector::<S>::LANES;
        let (steps, stride) = (self.columns.steps(), self.columns.stride);
        let (phases, row) = (std::mem::take(&mut self.phases), std::mem::take(&mut self.row));
        for (phase, to) in phases.chunks_exact_mut(steps).enumerate() {
            for from in (0..steps).step_by(2 * lanes) {
                let sums = self.sums::<S>(phase, from);
                for (sum, to) in sums.into_iter().zip(to[from..].chunks_exact_mut(lanes)) {
                    // SAFETY: as long as a vector.
                    unsafe { sum.store(to.as_mut_ptr()) };
                }
            }
        }
        match stride {
            1 => row.copy_from_slice(phases),
            2 => {
                let (even, odd) = phases.split_at(steps);
                let pairs = even.chunks_exact(lanes).zip(odd.chunks_exact(lanes));
                for ((even, odd), to) in pairs.zip(row.chunks_exact_mut(2 * lanes)) {
                    // SAFETY: as long as a vector, or as two.
                    unsafe {
                        let a = T::Vector::<S>::load(even.as_ptr());
                        let (a, b) = a.zip(T::Vector::<S>::load(odd.as_ptr()));
                        a.store(to.as_mut_ptr());
                        b.store(to.as_mut_ptr().add(lanes));
                    }
                }
            }
            _ => {
                for (phase, from) in phases.chunks_exact(steps).enumerate() {
                    let to = row[phase..].iter_mut().step_by(stride);
                    to.zip(from).for_each(|(to, x)| *to = *x);
                }
            }
        }
    }
}

impl<T: Lane> Row<'_, T> {
    /// Two vectors of a phase.
    #[inline(always)]
    fn sums<S: Simd>(&self, phase: usize, from: usize) -> [T::Vector<S>; 2] {
        let lanes = T::Vector::<S>::LANES;
        let (stride, padding, dilation) = self.conv.axis(0);
        let [kh, kw] = self.kernel;
        let mut sums = [T::Vector::<S>::zero(); 2];
        for (o, weights) in self.weights.chunks_exact(kh * kw).enumerate() {
            for (k, weights) in weights.chunks_exact(kw).enumerate() {
                let Some(above) = (self.y + padding).checked_sub(k * dilation) else { continue };
                let i = above / stride;
                if above % stride != 0 || !self.rows.contains(&i) {
                    continue;
                }
                let line = o * self.rows.len() + i - self.rows.start;
                let line = &self.lines[line * self.columns.line()..][..self.columns.line()];
                for (&weight, &[there, back]) in weights.iter().zip(self.taps) {
                    if there != phase {
                        continue;
                    }
                    let taps = &line[from + self.columns.reach - back..][..2 * lanes];
                    let weight = T::Vector::<S>::splat(weight);
                    for (sum, tap) in sums.iter_mut().zip(taps.chunks_exact(lanes)) {
                        // SAFETY: as long as a vector.
                        let tap = unsafe { T::Vector::<S>::load(tap.as_ptr()) };
                        *sum = weight.mul_add(tap, *sum);
                    }
                }
            }
        }
        sums
    }
}
