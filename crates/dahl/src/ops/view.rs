//! Views: the same elements under another shape.

use super::{Backprop, Cut, Meta, Metas, Mismatch, Op, Recorder, Var};
use crate::units::Flops;
use dahl_kernels::{Call, Piece, Region, Shape};
use std::ops::Range;

/// How a view's coordinates relate to those of the value it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewMap {
    /// The same elements in row-major order.
    Reshape,
    /// The elements at one index of an axis.
    Select {
        /// The axis that disappears.
        axis: usize,
        /// The index along it.
        index: usize,
    },
    /// A range of the first axis.
    Slice {
        /// Where it starts.
        start: usize,
    },
}

/// What a region of a view is in the value it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Just this box.
    Exact(Region),
    /// No box; this is the smallest that contains it.
    Cover(Region),
}

impl Mapped {
    /// The box, exact or not.
    pub fn region(self) -> Region {
        match self {
            Mapped::Exact(r) | Mapped::Cover(r) => r,
        }
    }
}

impl ViewMap {
    /// Maps a region of the view to the value of shape `base`.
    pub fn map(self, base: &Shape, view: &Shape, region: &Region) -> Mapped {
        match self {
            ViewMap::Select { axis, index } => {
                let mut ranges: Vec<Range<usize>> = region.ranges().collect();
                ranges.insert(axis, index..index + 1);
                Mapped::Exact(Region::new(&ranges))
            }
            ViewMap::Slice { start } => {
                let first = region.range(0);
                Mapped::Exact(region.with(0, first.start + start..first.end + start))
            }
            ViewMap::Reshape => reshape(base, view, region),
        }
    }
}

fn reshape(base: &Shape, view: &Shape, region: &Region) -> Mapped {
    if region.is_empty() {
        return Mapped::Exact(Region::new(&vec![0..0; base.rank()]));
    }
    let mut ranges = Vec::with_capacity(base.rank());
    let mut exact = true;
    for (b, v) in groups(base.axes(), view.axes()) {
        let inner: Vec<Range<usize>> = v.clone().map(|a| region.range(a)).collect();
        let (from, to, contiguous) = interval(&view.axes()[v], &inner);
        exact &= contiguous & cover(&base.axes()[b], from, to, &mut ranges);
    }
    let region = Region::new(&ranges);
    if exact { Mapped::Exact(region) } else { Mapped::Cover(region) }
}

/// The finest pairs of axis ranges with equal products.
fn groups(base: &[usize], view: &[usize]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut groups = Vec::new();
    let (mut b, mut v) = (0, 0);
    while b < base.len() || v < view.len() {
        let (b0, v0) = (b, v);
        let (mut pb, mut pv) = (1, 1);
        if b < base.len() {
            pb = base[b];
            b += 1;
        }
        if v < view.len() {
            pv = view[v];
            v += 1;
        }
        while pb != pv {
            if pb < pv {
                pb *= base[b];
                b += 1;
            } else {
                pv *= view[v];
                v += 1;
            }
        }
        groups.push((b0..b, v0..v));
    }
    groups
}

/// The linear interval from a box's first element to its last, and whether the
/// box is all of it.
fn interval(axes: &[usize], ranges: &[Range<usize>]) -> (usize, usize, bool) {
    let (mut first, mut last, mut count) = (0, 0, 1);
    for (&axis, range) in axes.iter().zip(ranges) {
        first = first * axis + range.start;
        last = last * axis + range.end - 1;
        count *= range.len();
    }
    (first, last + 1, last + 1 - first == count)
}

/// Appends the smallest box of `axes` around a linear interval; whether it is
/// the interval.
fn cover(axes: &[usize], from: usize, to: usize, ranges: &mut Vec<Range<usize>>) -> bool {
    let Some((&axis, rest)) = axes.split_first() else {
        return true;
    };
    let row: usize = rest.iter().product();
    let (a, b) = (from / row, to.div_ceil(row));
    debug_assert!(b <= axis);
    ranges.push(a..b);
    if b - a == 1 {
        return cover(rest, from - a * row, to - a * row, ranges);
    }
    ranges.extend(rest.iter().map(|&d| 0..d));
    from.is_multiple_of(row) && to.is_multiple_of(row)
}

/// The same elements under another shape, in row-major order, without a copy.
#[derive(Clone, Debug)]
pub struct Reshape {
    /// The new shape.
    pub shape: Shape,
}

impl Op for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("shape", self.shape.to_string())]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let out = Meta { shape: self.shape, dtype: inputs[0].dtype };
        if self.shape.checked_elements() != inputs[0].shape.checked_elements() {
            let expected = format!("a shape of {:?} elements", inputs[0].shape.checked_elements());
            return Err(Mismatch::new("shape", expected, self.shape).guess(out));
        }
        Ok(vec![out])
    }

    fn view(&self) -> Option<ViewMap> {
        Some(ViewMap::Reshape)
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let from = ViewMap::Reshape.map(&metas.inputs[0].shape, &self.shape, &piece.out);
        vec![from.region(), piece.out]
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(0)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let shape = g.meta(at.inputs[0]).shape;
        Some(vec![at.when(0, || g.reshape(at.grad(), shape))])
    }

    fn run(&self, _: usize, _: &mut Call<'_>) {
        unreachable!("a view is never run")
    }
}

/// The elements at one index of an axis, without a copy.
#[derive(Clone, Debug)]
pub struct Select {
    /// The axis that disappears.
    pub axis: usize,
    /// The index along it.
    pub index: usize,
}

impl Op for Select {
    fn name(&self) -> &'static str {
        "select"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("axis", self.axis.to_string()), ("index", self.index.to_string())]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let shape = inputs[0].shape;
        if self.axis >= shape.rank() || self.index >= shape[self.axis] {
            return Err(Mismatch::new(
                "index",
                format!("an index of {shape}"),
                format!("{self:?}"),
            ));
        }
        Ok(vec![Meta { shape: shape.without(self.axis), dtype: inputs[0].dtype }])
    }

    fn view(&self) -> Option<ViewMap> {
        Some(ViewMap::Select { axis: self.axis, index: self.index })
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let map = ViewMap::Select { axis: self.axis, index: self.index };
        let from = map.map(&metas.inputs[0].shape, &metas.out(), &piece.out);
        vec![from.region(), piece.out]
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(0)
    }

    fn run(&self, _: usize, _: &mut Call<'_>) {
        unreachable!("a view is never run")
    }
}

/// A range of the first axis, without a copy.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The range.
    pub range: Range<usize>,
}

impl Op for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("range", format!("{:?}", self.range))]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let shape = inputs[0].shape;
        if shape.rank() == 0 || self.range.start > self.range.end || self.range.end > shape[0] {
            let expected = format!("a range of the first axis of {shape}");
            return Err(Mismatch::new("range", expected, format!("{:?}", self.range)));
        }
        Ok(vec![Meta { shape: shape.with(0, self.range.len()), dtype: inputs[0].dtype }])
    }

    fn view(&self) -> Option<ViewMap> {
        Some(ViewMap::Slice { start: self.range.start })
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let map = ViewMap::Slice { start: self.range.start };
        let from = map.map(&metas.inputs[0].shape, &metas.out(), &piece.out);
        vec![from.region(), piece.out]
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(0)
    }

    fn run(&self, _: usize, _: &mut Call<'_>) {
        unreachable!("a view is never run")
    }
}

impl dyn Recorder + '_ {
    /// Records a view of a range of the first axis of `x`.
    pub fn slice(&mut self, x: Var, range: Range<usize>) -> Var {
        self.one(Slice { range }, &[x])
    }

    /// Records a view of `x` under another shape.
    pub fn reshape(&mut self, x: Var, shape: Shape) -> Var {
        self.one(Reshape { shape }, &[x])
    }

    /// Records a view of `x` with all axes but the first made one.
    pub fn flatten(&mut self, x: Var) -> Var {
        let shape = self.meta(x).shape;
        let Some((&first, rest)) = shape.axes().split_first() else {
            return self.reshape(x, Shape::new(&[1, 1]));
        };
        let features = rest.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).unwrap_or(usize::MAX);
        self.reshape(x, Shape::new(&[first, features]))
    }

    /// Records a view of `x` at one index of an axis.
    pub fn select(&mut self, x: Var, axis: usize, index: usize) -> Var {
        self.one(Select { axis, index }, &[x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(base: &[usize], view: &[usize], region: &[Range<usize>], expected: &str) {
        let mapped =
            ViewMap::Reshape.map(&Shape::new(base), &Shape::new(view), &Region::new(region));
        let found = match mapped {
            Mapped::Exact(r) => format!("{r}"),
            Mapped::Cover(r) => format!("cover {r}"),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn flatten_maps_samples_and_whole_channels() {
        let (base, view) = (&[10, 4, 13, 13][..], &[10, 676][..]);
        check(base, view, &[2..5, 0..676], "[2..5, 0..4, 0..13, 0..13]");
        check(base, view, &[0..10, 169..507], "[0..10, 1..3, 0..13, 0..13]");
        check(base, view, &[0..10, 13..26], "[0..10, 0..1, 1..2, 0..13]");
        check(base, view, &[0..10, 100..300], "cover [0..10, 0..2, 0..13, 0..13]");
    }

    #[test]
    fn unflatten_and_odd_factors() {
        check(&[6, 4], &[3, 2, 4], &[1..2, 0..2, 0..4], "[2..4, 0..4]");
        check(&[6, 4], &[3, 2, 4], &[0..3, 1..2, 0..4], "cover [1..6, 0..4]");
        check(&[4, 6], &[8, 3], &[0..3, 0..3], "cover [0..2, 0..6]");
        check(&[1, 5], &[5], std::slice::from_ref(&(1..3)), "[0..1, 1..3]");
        check(&[], &[1], std::slice::from_ref(&(0..1)), "[]");
    }
}
