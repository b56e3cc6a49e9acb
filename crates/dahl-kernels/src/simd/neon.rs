//! AArch64, where NEON is always there.

use super::{Simd, Vector, Work};
use std::arch::aarch64::*;

#[derive(Clone, Copy)]
pub(crate) struct Neon;

impl Simd for Neon {
    type F32 = F32x4;
    type F64 = F64x2;

    #[inline(never)]
    unsafe fn enter<W: Work>(work: W) -> W::Output {
        work.run::<Self>()
    }
}

macro_rules! vector {
    (
        $name:ident, $inner:ident, $elem:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident,
        $add:ident, $mul:ident, $fma:ident, $less:ident, $select:ident, $greater:ident, $equal:ident,
        $or:ident, $is_zero:ident, $sub:ident, $at_most:ident,
        $evens:ident, $odds:ident, $low:ident, $high:ident
    ) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name($inner);

        // SAFETY (of every block): NEON is part of AArch64; loads and stores
        // are promised by their callers.
        impl Vector for $name {
            type Elem = $elem;
            const LANES: usize = $lanes;

            #[inline(always)]
            fn splat(x: $elem) -> Self {
                // SAFETY: see above.
                Self(unsafe { $splat(x) })
            }

            #[inline(always)]
            unsafe fn load(from: *const $elem) -> Self {
                // SAFETY: see above.
                Self(unsafe { $load(from) })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $elem) {
                // SAFETY: see above.
                unsafe { $store(to, self.0) };
            }

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $add(self.0, other.0) })
            }

            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $mul(self.0, other.0) })
            }

            #[inline(always)]
            fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $fma(c.0, self.0, b.0) })
            }

            #[inline(always)]
            fn better((best, at): (Self, Self), (new, here): (Self, Self)) -> (Self, Self) {
                // SAFETY: see above.
                unsafe {
                    let nan = $is_zero($equal(new.0, new.0));
                    let wins = $or($greater(new.0, best.0), nan);
                    (Self($select(wins, new.0, best.0)), Self($select(wins, here.0, at.0)))
                }
            }

            #[inline(always)]
            fn relu(self) -> Self {
                // SAFETY: see above.
                unsafe {
                    let zero = $splat(0.0);
                    Self($select($less(self.0, zero), zero, self.0))
                }
            }

            #[inline(always)]
            unsafe fn store_bytes(self, to: *mut u8) {
                let mut lanes: [$elem; $lanes] = [0.0; $lanes];
                // SAFETY: see above.
                unsafe { $store(lanes.as_mut_ptr(), self.0) };
                for (i, x) in lanes.into_iter().enumerate() {
                    // SAFETY: the caller promises so many bytes.
                    unsafe { *to.add(i) = x as u8 };
                }
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $sub(self.0, other.0) })
            }

            #[inline(always)]
            fn gate(self, key: Self) -> Self {
                // SAFETY: see above.
                unsafe {
                    let zero = $splat(0.0);
                    Self($select($at_most(key.0, zero), zero, self.0))
                }
            }

            #[inline(always)]
            fn where_equal(self, a: Self, b: Self) -> Self {
                // SAFETY: see above.
                unsafe { Self($select($equal(a.0, b.0), self.0, $splat(0.0))) }
            }

            #[inline(always)]
            fn unzip(self, next: Self) -> (Self, Self) {
                // SAFETY: see above.
                unsafe { (Self($evens(self.0, next.0)), Self($odds(self.0, next.0))) }
            }

            #[inline(always)]
            fn zip(self, other: Self) -> (Self, Self) {
                // SAFETY: see above.
                unsafe { (Self($low(self.0, other.0)), Self($high(self.0, other.0))) }
            }
        }
    };
}

vector!(
    F32x4,
    float32x4_t,
    f32,
    4,
    vdupq_n_f32,
    vld1q_f32,
    vst1q_f32,
    vaddq_f32,
    vmulq_f32,
    vfmaq_f32,
    vcltq_f32,
    vbslq_f32,
    vcgtq_f32,
    vceqq_f32,
    vorrq_u32,
    vceqzq_u32,
    vsubq_f32,
    vcleq_f32,
    vuzp1q_f32,
    vuzp2q_f32,
    vzip1q_f32,
    vzip2q_f32
);
vector!(
    F64x2,
    float64x2_t,
    f64,
    2,
    vdupq_n_f64,
    vld1q_f64,
    vst1q_f64,
    vaddq_f64,
    vmulq_f64,
    vfmaq_f64,
    vcltq_f64,
    vbslq_f64,
    vcgtq_f64,
    vceqq_f64,
    vorrq_u64,
    vceqzq_u64,
    vsubq_f64,
    vcleq_f64,
    vuzp1q_f64,
    vuzp2q_f64,
    vzip1q_f64,
    vzip2q_f64
);
