//! The element types, as a sealed trait and as a value.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for u8 {}
    impl Sealed for i64 {}
}

/// The type of a tensor's elements, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
    /// Bytes, for images and masks.
    U8,
    /// Labels and indices.
    I64,
}

impl DType {
    /// The size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F64 | DType::I64 => 8,
            DType::U8 => 1,
        }
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64)
    }

    /// The name as it is written in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::U8 => "u8",
            DType::I64 => "i64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for DType {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        [DType::F32, DType::F64, DType::U8, DType::I64]
            .into_iter()
            .find(|d| d.name() == s)
            .ok_or_else(|| format!("unknown element type {s:?}: expected f32, f64, u8 or i64"))
    }
}

/// A type that tensors can hold.
pub trait Element:
    sealed::Sealed
    + bytemuck::Pod
    + Copy
    + Send
    + Sync
    + Default
    + PartialOrd
    + fmt::Debug
    + fmt::Display
    + 'static
{
    /// The type as a value.
    const DTYPE: DType;
    /// The nearest value of this type; integers saturate.
    fn from_f64(x: f64) -> Self;
    /// The value as `f64`, rounded where an `i64` does not fit.
    fn to_f64(self) -> f64;
}

macro_rules! element {
    ($t:ty, $dtype:expr) => {
        impl Element for $t {
            const DTYPE: DType = $dtype;
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    };
}
element!(f32, DType::F32);
element!(f64, DType::F64);
element!(u8, DType::U8);
element!(i64, DType::I64);

/// A floating-point element.
///
/// The functions are pure Rust (the `libm` crate), so that they give the same
/// bits on every platform; `sqrt` is exact by IEEE 754.
pub trait Float:
    Element
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + std::iter::Sum
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Minus infinity.
    const NEG_INFINITY: Self;
    /// Infinity.
    const INFINITY: Self;
    /// The square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// e to the power of `self`.
    fn exp(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// ln(1 + `self`).
    fn ln_1p(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// `self` to the power of `y`.
    fn pow(self, y: Self) -> Self;
    /// The nearest integer, ties to even.
    fn round_ties_even(self) -> Self;
    /// The absolute value.
    fn abs(self) -> Self;
    /// Whether it is neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// Whether it is NaN.
    fn is_nan(self) -> bool;
}

macro_rules! float {
    ($t:ident, $sqrt:ident, $exp:ident, $ln:ident, $ln_1p:ident, $tanh:ident, $erf:ident, $pow:ident) => {
        impl Float for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = $t::NEG_INFINITY;
            const INFINITY: Self = $t::INFINITY;
            #[inline(always)]
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }
            #[inline]
            fn exp(self) -> Self {
                libm::$exp(self)
            }
            #[inline]
            fn ln(self) -> Self {
                libm::$ln(self)
            }
            #[inline]
            fn ln_1p(self) -> Self {
                libm::$ln_1p(self)
            }
            #[inline]
            fn tanh(self) -> Self {
                libm::$tanh(self)
            }
            #[inline]
            fn erf(self) -> Self {
                libm::$erf(self)
            }
            #[inline]
            fn pow(self, y: Self) -> Self {
                libm::$pow(self, y)
            }
            #[inline(always)]
            fn round_ties_even(self) -> Self {
                $t::round_ties_even(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $t::abs(self)
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                $t::is_nan(self)
            }
        }
    };
}
float!(f32, sqrtf, expf, logf, log1pf, tanhf, erff, powf);
float!(f64, sqrt, exp, log, log1p, tanh, erf, pow);

/// Calls a function that is generic in its element type with the one that
/// `$dtype` names.
///
/// The body must be generic: on a concrete `f32` or `f64`, `x.exp()` would be
/// the platform's function and not [`Float::exp`]. An op's shape rule has
/// already refused other types.
macro_rules! float_dispatch {
    ($dtype:expr, $f:ident($($argument:expr),*)) => {
        match $dtype {
            $crate::DType::F32 => $f::<f32>($($argument),*),
            $crate::DType::F64 => $f::<f64>($($argument),*),
            other => panic!("expected f32 or f64, found {other}"),
        }
    };
}
pub(crate) use float_dispatch;
