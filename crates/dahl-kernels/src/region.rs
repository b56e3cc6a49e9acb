//! Boxes of half-open ranges over a value's axes.

use crate::shape::{MAX_AXES, Shape};
use std::fmt;
use std::ops::Range;

/// A box of half-open ranges, one an axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    rank: u8,
    start: [usize; MAX_AXES],
    end: [usize; MAX_AXES],
}

impl Region {
    /// The whole of a shape.
    pub fn full(shape: &Shape) -> Self {
        let mut end = [1; MAX_AXES];
        end[..shape.rank()].copy_from_slice(shape.axes());
        Self { rank: shape.rank() as u8, start: [0; MAX_AXES], end }
    }

    /// A region from its ranges.
    #[track_caller]
    pub fn new(ranges: &[Range<usize>]) -> Self {
        assert!(ranges.len() <= MAX_AXES, "expected at most {MAX_AXES} axes");
        let mut region =
            Self { rank: ranges.len() as u8, start: [0; MAX_AXES], end: [1; MAX_AXES] };
        for (axis, range) in ranges.iter().enumerate() {
            (region.start[axis], region.end[axis]) = (range.start, range.end);
        }
        region
    }

    /// How many axes there are.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// The range along an axis.
    #[inline]
    #[track_caller]
    pub fn range(&self, axis: usize) -> Range<usize> {
        assert!(axis < self.rank(), "axis {axis} of a region of {} axes", self.rank);
        self.start[axis]..self.end[axis]
    }

    /// The ranges of all axes.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        (0..self.rank()).map(|axis| self.range(axis))
    }

    /// The length along an axis.
    #[inline]
    pub fn len(&self, axis: usize) -> usize {
        self.end[axis].saturating_sub(self.start[axis])
    }

    /// The first coordinate of each axis.
    #[inline]
    pub fn starts(&self) -> [usize; MAX_AXES] {
        self.start
    }

    /// One past the last coordinate of each axis.
    #[inline]
    pub fn ends(&self) -> [usize; MAX_AXES] {
        self.end
    }

    /// The same region with another range along one axis.
    #[must_use]
    #[track_caller]
    pub fn with(&self, axis: usize, range: Range<usize>) -> Self {
        assert!(axis < self.rank(), "axis {axis} of a region of {} axes", self.rank);
        let mut region = *self;
        (region.start[axis], region.end[axis]) = (range.start, range.end);
        region
    }

    /// The lengths of the ranges, as a shape.
    pub fn shape(&self) -> Shape {
        let axes: Vec<usize> = (0..self.rank()).map(|axis| self.len(axis)).collect();
        Shape::new(&axes)
    }

    /// How many elements the box has.
    pub fn elements(&self) -> usize {
        (0..self.rank()).map(|axis| self.len(axis)).product()
    }

    /// Whether the box has no element.
    pub fn is_empty(&self) -> bool {
        (0..self.rank()).any(|axis| self.len(axis) == 0)
    }

    /// Whether the two boxes share an element.
    pub fn overlaps(&self, other: &Self) -> bool {
        debug_assert_eq!(self.rank, other.rank);
        (0..self.rank()).all(|a| self.start[a].max(other.start[a]) < self.end[a].min(other.end[a]))
    }

    /// Whether every element of `other` is in this box.
    pub fn contains(&self, other: &Self) -> bool {
        other.is_empty()
            || (self.rank == other.rank
                && (0..self.rank())
                    .all(|a| self.start[a] <= other.start[a] && other.end[a] <= self.end[a]))
    }

    /// The smallest box around both.
    #[must_use]
    pub fn cover(&self, other: &Self) -> Self {
        if self.is_empty() {
            return *other;
        }
        if other.is_empty() {
            return *self;
        }
        let mut cover = *self;
        for a in 0..self.rank() {
            cover.start[a] = self.start[a].min(other.start[a]);
            cover.end[a] = self.end[a].max(other.end[a]);
        }
        cover
    }

    /// The box of the elements that both have, if there are any.
    pub fn overlap(&self, other: &Self) -> Option<Self> {
        let mut both = *self;
        for a in 0..self.rank() {
            both.start[a] = self.start[a].max(other.start[a]);
            both.end[a] = self.end[a].min(other.end[a]);
        }
        (!both.is_empty() && self.rank == other.rank).then_some(both)
    }

    /// The elements that `other` does not have, as boxes that do not overlap.
    pub fn minus(&self, other: &Self) -> Vec<Self> {
        let Some(both) = self.overlap(other) else {
            return if self.is_empty() { Vec::new() } else { vec![*self] };
        };
        // What lies before and behind along each axis, within the overlap along those before.
        let (mut left, mut rest) = (Vec::new(), *self);
        for a in 0..self.rank() {
            let ends = [rest.start[a]..both.start[a], both.end[a]..rest.end[a]];
            left.extend(ends.into_iter().filter(|r| !r.is_empty()).map(|r| rest.with(a, r)));
            rest = rest.with(a, both.range(a));
        }
        left
    }

    /// The same region without `axis`.
    #[must_use]
    pub fn without(&self, axis: usize) -> Self {
        let ranges: Vec<_> =
            self.ranges().enumerate().filter(|(a, _)| *a != axis).map(|(_, r)| r).collect();
        Self::new(&ranges)
    }

    /// The same region with one more axis in front.
    #[must_use]
    pub fn stacked(&self, range: Range<usize>) -> Self {
        let ranges: Vec<_> = std::iter::once(range).chain(self.ranges()).collect();
        Self::new(&ranges)
    }
}

/// Calls `body` with every coordinate of `region`, in row-major order.
pub(crate) fn for_each(region: &Region, body: impl FnMut([usize; MAX_AXES])) {
    for_each_outer(region, 0, body);
}

/// Calls `body` with the first coordinate of every run of `region`, the
/// innermost `axes` axes being walked as one.
pub(crate) fn for_each_outer(
    region: &Region,
    axes: usize,
    mut body: impl FnMut([usize; MAX_AXES]),
) {
    if region.is_empty() {
        return;
    }
    let outer = region.rank() - axes;
    let (from, to) = (region.starts(), region.ends());
    let mut at = from;
    loop {
        body(at);
        let mut a = outer;
        loop {
            if a == 0 {
                return;
            }
            a -= 1;
            at[a] += 1;
            if at[a] < to[a] {
                break;
            }
            at[a] = from[a];
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, r) in self.ranges().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{}..{}", r.start, r.end)?;
        }
        f.write_str("]")
    }
}
