//! Vectors as short arrays, for machines without better ones.

use super::{Simd, Vector, Work};
use crate::Float;

#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Simd for Portable {
    type F32 = Lanes<f32, 4>;
    type F64 = Lanes<f64, 2>;

    #[inline(never)]
    unsafe fn enter<W: Work>(work: W) -> W::Output {
        work.run::<Self>()
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Lanes<T, const N: usize>([T; N]);

impl<T: Float, const N: usize> Lanes<T, N> {
    #[inline(always)]
    fn each(self, other: Self, f: impl Fn(T, T) -> T) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl<T: Float, const N: usize> Vector for Lanes<T, N> {
    type Elem = T;
    const LANES: usize = N;

    #[inline(always)]
    fn splat(x: T) -> Self {
        Self([x; N])
    }

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller promises N elements; an array needs no more
        // alignment than its element.
        Self(unsafe { from.cast::<[T; N]>().read() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: as in `load`.
        unsafe { to.cast::<[T; N]>().write(self.0) };
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.each(other, |a, b| a * b)
    }

    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        // Two roundings: a fused one is a slow call where there is no
        // instruction for it.
        self.mul(b).add(c)
    }

    #[inline(always)]
    fn relu(self) -> Self {
        Self(self.0.map(crate::elementwise::relu))
    }

    #[inline(always)]
    fn better((best, at): (Self, Self), (new, here): (Self, Self)) -> (Self, Self) {
        let wins: [bool; N] = std::array::from_fn(|i| (new.0[i] > best.0[i]) | new.0[i].is_nan());
        let select = |new: Self, old: Self| {
            Self(std::array::from_fn(|i| if wins[i] { new.0[i] } else { old.0[i] }))
        };
        (select(new, best), select(here, at))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.each(other, |a, b| a - b)
    }

    #[inline(always)]
    fn gate(self, key: Self) -> Self {
        self.each(key, |x, key| if key <= T::ZERO { T::ZERO } else { x })
    }

    #[inline(always)]
    fn where_equal(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|i| if a.0[i] == b.0[i] { self.0[i] } else { T::ZERO }))
    }

    #[inline(always)]
    fn unzip(self, next: Self) -> (Self, Self) {
        let at = |i: usize| if i < N { self.0[i] } else { next.0[i - N] };
        (Self(std::array::from_fn(|i| at(2 * i))), Self(std::array::from_fn(|i| at(2 * i + 1))))
    }

    #[inline(always)]
    fn zip(self, other: Self) -> (Self, Self) {
        let at = |i: usize| if i.is_multiple_of(2) { self.0[i / 2] } else { other.0[i / 2] };
        (Self(std::array::from_fn(at)), Self(std::array::from_fn(|i| at(i + N))))
    }

    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8) {
        for (i, x) in self.0.into_iter().enumerate() {
            // SAFETY: the caller promises N bytes.
            unsafe { *to.add(i) = x.to_f64() as u8 };
        }
    }
}
