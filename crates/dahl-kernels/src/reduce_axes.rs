//! Reductions over given axes.
//!
//! The elements of a reduction are numbered in row-major order of the reduced
//! axes; a sum over them is one pairwise sum, whose order depends on their
//! number alone.

use crate::element::float_dispatch;
use crate::region::for_each;
use crate::shape::MAX_AXES;
use crate::{Call, Float, Region, Shape, View, math};

/// Σ x over a box, as one pairwise sum in row-major order.
pub(crate) fn sum_over<T: Float>(x: &View<'_, T>, region: &Region) -> T {
    fold_over(x, region, |x| x)
}

/// Σ f(x) over a box, as one pairwise sum in row-major order.
pub(crate) fn fold_over<T: Float>(x: &View<'_, T>, region: &Region, f: impl Fn(T) -> T) -> T {
    if let Some(run) = x.run(region) {
        return math::sum(run.len(), &|i| f(run[i]));
    }
    let (starts, rank) = (region.starts(), region.rank());
    math::sum(region.elements(), &|mut i| {
        let mut at = starts;
        for a in (0..rank).rev() {
            at[a] += i % region.len(a);
            i /= region.len(a);
        }
        f(x.at_axes(&at[..rank]))
    })
}

/// Which of several elements is picked; of equal ones the first, and NaN
/// before all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extreme {
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

impl Extreme {
    /// The number and the value of the one picked out of `n` elements.
    #[inline(always)]
    pub(crate) fn of<T: Float>(self, n: usize, element: impl Fn(usize) -> T) -> (usize, T) {
        let (mut index, mut best) = (0, element(0));
        for i in 1..n {
            let x = element(i);
            let wins = match self {
                Extreme::Min => x < best,
                Extreme::Max => x > best,
            };
            if wins || (x.is_nan() && !best.is_nan()) {
                (index, best) = (i, x);
            }
        }
        (index, best)
    }
}

/// How the coordinates of the input follow from those of the result.
struct Axes {
    rank: usize,
    reduced: [bool; MAX_AXES],
    lengths: [usize; MAX_AXES],
}

impl Axes {
    fn new(shape: &Shape, axes: &[usize]) -> Self {
        let (mut reduced, mut lengths) = ([false; MAX_AXES], [1; MAX_AXES]);
        axes.iter().for_each(|&a| reduced[a] = true);
        lengths[..shape.rank()].copy_from_slice(shape.axes());
        Self { rank: shape.rank(), reduced, lengths }
    }

    /// How many elements are reduced to one.
    fn count(&self) -> usize {
        (0..self.rank).filter(|&a| self.reduced[a]).map(|a| self.lengths[a]).product()
    }

    /// The box of the input that makes one element of the result.
    fn region(&self, out: &[usize; MAX_AXES]) -> Region {
        let mut region = Region::full(&Shape::new(&self.lengths[..self.rank]));
        for (k, a) in (0..self.rank).filter(|&a| !self.reduced[a]).enumerate() {
            region = region.with(a, out[k]..out[k] + 1);
        }
        region
    }

    /// The coordinate in the input of element `i` of those that make `out`.
    fn at(&self, out: &[usize; MAX_AXES], mut i: usize) -> [usize; MAX_AXES] {
        let mut at = [0; MAX_AXES];
        for a in (0..self.rank).rev().filter(|&a| self.reduced[a]) {
            // An axis without elements: the coordinate is never looked at.
            let length = self.lengths[a].max(1);
            at[a] = i % length;
            i /= length;
        }
        for (k, a) in (0..self.rank).filter(|&a| !self.reduced[a]).enumerate() {
            at[a] = out[k];
        }
        at
    }

    /// The coordinate in the result, and which of its elements `at` is.
    fn out(&self, at: &[usize; MAX_AXES]) -> ([usize; MAX_AXES], usize) {
        let (mut out, mut k, mut i) = ([0; MAX_AXES], 0, 0);
        for (a, &x) in at[..self.rank].iter().enumerate() {
            if self.reduced[a] {
                i = i * self.lengths[a] + x;
            } else {
                out[k] = x;
                k += 1;
            }
        }
        (out, i)
    }

    fn kept(&self) -> usize {
        (0..self.rank).filter(|&a| !self.reduced[a]).count()
    }
}

/// y = Σ x over `axes`, divided by the number of terms where `mean`. Input x.
pub fn sum_axes(axes: &[usize], mean: bool, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), sum_axes_typed(axes, mean, call));
}

fn sum_axes_typed<T: Float>(axes: &[usize], mean: bool, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, mut y) = (ins.get::<T>(0), outs.take::<T>());
    let split = Axes::new(&x.shape(), axes);
    let divisor = if mean { T::from_f64(split.count() as f64) } else { T::ONE };
    for_each(&region, |out| {
        let total = match *axes {
            [axis] => {
                let line = x.line(&split.at(&out, 0)[..split.rank], axis);
                math::sum(line.len(), &|i| line.get(i))
            }
            _ => sum_over(&x, &split.region(&out)),
        };
        y.set_axes(&out[..region.rank()], total / divisor);
    });
}

/// y = g in every element that was summed, divided by their number where
/// `mean`. Input g, whose axes are those of y without `axes`.
pub fn expand_axes(axes: &[usize], mean: bool, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), expand_axes_typed(axes, mean, call));
}

fn expand_axes_typed<T: Float>(axes: &[usize], mean: bool, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (g, mut y) = (ins.get::<T>(0), outs.take::<T>());
    let split = Axes::new(&y.shape(), axes);
    let divisor = if mean { T::from_f64(split.count() as f64) } else { T::ONE };
    for_each(&region, |at| {
        let (out, _) = split.out(&at);
        y.set_axes(&at[..region.rank()], g.at_axes(&out[..split.kept()]) / divisor);
    });
}

/// The smallest or largest element over `axes`, and its number in row-major
/// order of them. Input x, outputs value and number.
pub fn extreme_axes(axes: &[usize], extreme: Extreme, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), extreme_axes_typed(axes, extreme, call));
}

fn extreme_axes_typed<T: Float>(axes: &[usize], extreme: Extreme, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let x = ins.get::<T>(0);
    let (mut y, mut index) = (outs.take::<T>(), outs.take::<i64>());
    winners(&x, axes, extreme, &region, |at, i, best| {
        y.set_axes(at, best);
        index.set_axes(at, i as i64);
    });
}

/// The number of the largest element over `axes` in row-major order of them.
/// Input x.
pub fn argmax_axes(axes: &[usize], call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), argmax_axes_typed(axes, call));
}

fn argmax_axes_typed<T: Float>(axes: &[usize], call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, mut index) = (ins.get::<T>(0), outs.take::<i64>());
    winners(&x, axes, Extreme::Max, &region, |at, i, _: T| index.set_axes(at, i as i64));
}

fn winners<T: Float>(
    x: &View<'_, T>,
    axes: &[usize],
    extreme: Extreme,
    region: &Region,
    mut body: impl FnMut(&[usize], usize, T),
) {
    let split = Axes::new(&x.shape(), axes);
    for_each(region, |out| {
        let element = |i| x.at_axes(&split.at(&out, i)[..split.rank]);
        let (i, best) = extreme.of(split.count(), element);
        body(&out[..region.rank()], i, best);
    });
}

/// The gradient of a smallest or largest element goes to it alone. Inputs g'
/// and the winners' numbers.
pub fn extreme_axes_backward(axes: &[usize], call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), extreme_axes_backward_typed(axes, call));
}

fn extreme_axes_backward_typed<T: Float>(axes: &[usize], call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (g, index) = (ins.get::<T>(0), ins.get::<i64>(1));
    let mut gx = outs.take::<T>();
    let split = Axes::new(&gx.shape(), axes);
    for_each(&region, |at| {
        let (out, i) = split.out(&at);
        let out = &out[..split.kept()];
        let won = index.at_axes(out) == i as i64;
        gx.set_axes(&at[..region.rank()], if won { g.at_axes(out) } else { T::ZERO });
    });
}
