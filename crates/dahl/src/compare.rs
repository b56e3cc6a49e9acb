//! Distances between numbers and between tensors.
//!
//! Distances come in three units. *ULPs* count the values of the type that lie
//! between two numbers: right for one element, harsh on sums that cancel. The
//! *absolute* error is a plain difference. The *relative* error divides it by
//! the largest magnitude of the reference tensor, not of the element: an
//! element that cancelled to almost zero is held to the accuracy that its sum
//! had.

use dahl_kernels::Element;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

mod digits;

pub use digits::{Aligned, Emphasis, align};

/// An element whose distance to another can be measured.
pub trait Ulp: Element {
    /// How many steps lead from one value to the other, each to the next value
    /// of the type.
    ///
    /// Both zeros are one value, and all NaN are one value; `u64::MAX` where
    /// just one of the two is NaN, or infinite: an overflow is no rounding.
    fn ulps(self, other: Self) -> u64;

    /// The absolute difference; infinite where just one of the two is NaN.
    fn distance(self, other: Self) -> f64;

    /// Whether the bits are the same; all NaN count as one.
    fn identical(self, other: Self) -> bool;
}

macro_rules! float_ulp {
    ($t:ty) => {
        impl Ulp for $t {
            fn ulps(self, other: Self) -> u64 {
                if self == other || (self.is_nan() && other.is_nan()) {
                    return 0;
                }
                if !self.is_finite() || !other.is_finite() {
                    return u64::MAX;
                }
                // Without its sign bit a float's pattern counts the steps from zero.
                let steps = |x: $t| x.abs().to_bits() as u64;
                if self.is_sign_negative() == other.is_sign_negative() {
                    steps(self).abs_diff(steps(other))
                } else {
                    steps(self) + steps(other)
                }
            }

            fn distance(self, other: Self) -> f64 {
                match (self.is_nan(), other.is_nan()) {
                    _ if self == other => 0.0,
                    (true, true) => 0.0,
                    (false, false) => (self as f64 - other as f64).abs(),
                    _ => f64::INFINITY,
                }
            }

            fn identical(self, other: Self) -> bool {
                self.to_bits() == other.to_bits() || (self.is_nan() && other.is_nan())
            }
        }
    };
}
float_ulp!(f32);
float_ulp!(f64);

macro_rules! integer_ulp {
    ($t:ty) => {
        impl Ulp for $t {
            fn ulps(self, other: Self) -> u64 {
                self.abs_diff(other).into()
            }

            fn distance(self, other: Self) -> f64 {
                self.abs_diff(other) as f64
            }

            fn identical(self, other: Self) -> bool {
                self == other
            }
        }
    };
}
integer_ulp!(i64);
integer_ulp!(u8);

/// The distance of a tensor from its reference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Number of elements.
    pub elements: usize,
    /// Number of elements whose bits differ from the reference.
    pub differing: usize,
    /// The largest absolute error.
    pub absolute: f64,
    /// Where the largest absolute error is; the first of equal ones.
    pub worst: Option<usize>,
    /// The largest distance in ULPs.
    pub ulps: u64,
    /// Where the largest distance in ULPs is; the first of equal ones.
    pub worst_ulps: Option<usize>,
    /// The largest finite magnitude of the reference.
    pub magnitude: f64,
}

impl Comparison {
    /// The largest absolute error relative to the reference's largest
    /// magnitude; infinite where the reference is all zero and the other not.
    pub fn relative(&self) -> f64 {
        if self.absolute == 0.0 { 0.0 } else { self.absolute / self.magnitude }
    }
}

/// Compares a tensor with its reference, element by element.
///
/// ```
/// let c = dahl::compare::compare(&[1.0f32, 100.0, 3.0], &[1.0, 101.0, 3.0]);
/// assert_eq!((c.worst, c.absolute, c.relative()), (Some(1), 1.0, 0.01));
/// ```
///
/// # Panics
/// Where the lengths differ.
#[track_caller]
pub fn compare<T: Ulp>(reference: &[T], found: &[T]) -> Comparison {
    same_length(reference, found);
    let mut c = Comparison { elements: reference.len(), ..Comparison::default() };
    for (index, (&r, &f)) in reference.iter().zip(found).enumerate() {
        let magnitude = r.to_f64().abs();
        if magnitude.is_finite() && magnitude > c.magnitude {
            c.magnitude = magnitude;
        }
        if r.identical(f) {
            continue;
        }
        c.differing += 1;
        let (absolute, ulps) = (r.distance(f), r.ulps(f));
        if c.worst.is_none() || absolute > c.absolute {
            (c.absolute, c.worst) = (absolute, Some(index));
        }
        if c.worst_ulps.is_none() || ulps > c.ulps {
            (c.ulps, c.worst_ulps) = (ulps, Some(index));
        }
    }
    c
}

/// The indices of at most `limit` differing elements, the worst first: in the
/// unit of `tolerance`, ties by index.
///
/// # Panics
/// Where the lengths differ.
#[track_caller]
pub fn worst<T: Ulp>(
    reference: &[T],
    found: &[T],
    limit: usize,
    tolerance: Tolerance,
) -> Vec<usize> {
    same_length(reference, found);
    let error = |i: usize| {
        let (absolute, ulps) = (reference[i].distance(found[i]), reference[i].ulps(found[i]));
        match tolerance {
            Tolerance::Ulps(_) => (ulps as f64, absolute),
            Tolerance::Exact | Tolerance::Relative(_) => (absolute, ulps as f64),
        }
    };
    let by_error = |&i: &usize, &j: &usize| {
        error(j).partial_cmp(&error(i)).unwrap_or(Ordering::Equal).then(i.cmp(&j))
    };
    let mut indices: Vec<usize> =
        (0..reference.len()).filter(|&i| !reference[i].identical(found[i])).collect();
    if limit < indices.len() {
        // The rest need no order, and there may be millions of them.
        if limit > 0 {
            indices.select_nth_unstable_by(limit - 1, by_error);
        }
        indices.truncate(limit);
    }
    indices.sort_unstable_by(by_error);
    indices
}

#[track_caller]
fn same_length<T>(reference: &[T], found: &[T]) {
    assert_eq!(reference.len(), found.len(), "expected slices of the same length");
}

/// The tolerance of a comparison.
///
/// As text: `exact` (or 0), `4ulp` or a number such as `1e-6`, which is relative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// The same bits; all NaN count as one, the two zeros do not.
    Exact,
    /// At most so many ULPs in every element.
    Ulps(u64),
    /// An absolute error of at most this fraction of the reference's largest
    /// magnitude.
    Relative(f64),
}

impl Tolerance {
    /// Whether the tensor is close enough to its reference.
    ///
    /// A NaN on one side only is never close enough, and neither is an
    /// infinity.
    pub fn accepts(self, c: &Comparison) -> bool {
        match self {
            Tolerance::Exact => c.differing == 0,
            Tolerance::Ulps(limit) => c.ulps <= limit,
            Tolerance::Relative(limit) => c.absolute.is_finite() && c.relative() <= limit,
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tolerance::Exact => f.pad("exact"),
            Tolerance::Ulps(n) => f.pad(&format!("{n}ulp")),
            Tolerance::Relative(x) => f.pad(&format!("{x:e}")),
        }
    }
}

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let parsed = match s.strip_suffix("ulp") {
            _ if s == "exact" => Some(Tolerance::Exact),
            Some(n) => n.trim_end().parse().ok().map(Tolerance::Ulps),
            None => s
                .parse()
                .ok()
                .filter(|x| (0.0..f64::INFINITY).contains(x))
                .map(|x| if x == 0.0 { Tolerance::Exact } else { Tolerance::Relative(x) }),
        };
        parsed.ok_or_else(|| {
            format!(
                "expected `exact`, ULPs such as `4ulp`, or a fraction such as `1e-6`, found {s:?}"
            )
        })
    }
}

#[cfg(test)]
mod tests;
