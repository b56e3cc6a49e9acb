//! AVX2 with FMA, and AVX-512.

use super::{Simd, Vector, Work};
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx2;

impl Simd for Avx2 {
    type F32 = F32x8;
    type F64 = F64x4;

    #[target_feature(enable = "avx2,fma")]
    #[inline(never)]
    unsafe fn enter<W: Work>(work: W) -> W::Output {
        work.run::<Self>()
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx512;

impl Simd for Avx512 {
    type F32 = F32x16;
    type F64 = F64x8;

    #[target_feature(enable = "avx512f,avx2,fma")]
    #[inline(never)]
    unsafe fn enter<W: Work>(work: W) -> W::Output {
        work.run::<Self>()
    }
}

macro_rules! vector {
    (
        $name:ident, $inner:ident, $elem:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident,
        $add:ident, $mul:ident, $fma:ident, $max:ident, $better:ident,
        $bytes:ident, $unzip:ident
    ) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name($inner);

        // SAFETY (of every block): a value of this type exists only inside of
        // `Simd::enter`, whose callers promise the instructions; loads and
        // stores are promised by their own callers.
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
                Self(unsafe { $fma(self.0, b.0, c.0) })
            }

            #[inline(always)]
            fn relu(self) -> Self {
                // The second operand is the result where one is NaN.
                // SAFETY: see above.
                Self(unsafe { $max($splat(0.0), self.0) })
            }

            #[inline(always)]
            fn better((best, at): (Self, Self), (new, here): (Self, Self)) -> (Self, Self) {
                // SAFETY: see above.
                let (best, at) = unsafe { $better!(best.0, at.0, new.0, here.0) };
                (Self(best), Self(at))
            }

            #[inline(always)]
            unsafe fn store_bytes(self, to: *mut u8) {
                // SAFETY: see above; the caller promises so many bytes.
                unsafe { $bytes!(self.0, to) };
            }

            #[inline(always)]
            fn unzip(self, other: Self) -> (Self, Self) {
                // SAFETY: see above.
                let (even, odd) = unsafe { $unzip!(self.0, other.0) };
                (Self(even), Self(odd))
            }
        }
    };
}

macro_rules! better256_ps {
    ($best:expr, $at:expr, $new:expr, $here:expr) => {{
        let larger = _mm256_cmp_ps::<_CMP_GT_OQ>($new, $best);
        let wins = _mm256_or_ps(larger, _mm256_cmp_ps::<_CMP_UNORD_Q>($new, $new));
        (_mm256_blendv_ps($best, $new, wins), _mm256_blendv_ps($at, $here, wins))
    }};
}

macro_rules! better512_ps {
    ($best:expr, $at:expr, $new:expr, $here:expr) => {{
        let larger = _mm512_cmp_ps_mask::<_CMP_GT_OQ>($new, $best);
        let wins = larger | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>($new, $new);
        (_mm512_mask_blend_ps(wins, $best, $new), _mm512_mask_blend_ps(wins, $at, $here))
    }};
}

macro_rules! better256_pd {
    ($best:expr, $at:expr, $new:expr, $here:expr) => {{
        let larger = _mm256_cmp_pd::<_CMP_GT_OQ>($new, $best);
        let wins = _mm256_or_pd(larger, _mm256_cmp_pd::<_CMP_UNORD_Q>($new, $new));
        (_mm256_blendv_pd($best, $new, wins), _mm256_blendv_pd($at, $here, wins))
    }};
}

macro_rules! better512_pd {
    ($best:expr, $at:expr, $new:expr, $here:expr) => {{
        let larger = _mm512_cmp_pd_mask::<_CMP_GT_OQ>($new, $best);
        let wins = larger | _mm512_cmp_pd_mask::<_CMP_UNORD_Q>($new, $new);
        (_mm512_mask_blend_pd(wins, $best, $new), _mm512_mask_blend_pd(wins, $at, $here))
    }};
}

macro_rules! bytes256_ps {
    ($x:expr, $to:expr) => {{
        let x = _mm256_cvttps_epi32($x);
        let x = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
        _mm_storel_epi64($to.cast(), _mm_packus_epi16(x, x));
    }};
}

macro_rules! bytes256_pd {
    ($x:expr, $to:expr) => {{
        let x = _mm256_cvttpd_epi32($x);
        let x = _mm_packs_epi32(x, x);
        let x = _mm_cvtsi128_si32(_mm_packus_epi16(x, x));
        $to.cast::<[u8; 4]>().write(x.to_le_bytes());
    }};
}

macro_rules! bytes512_ps {
    ($x:expr, $to:expr) => {
        _mm_storeu_si128($to.cast(), _mm512_cvtepi32_epi8(_mm512_cvttps_epi32($x)))
    };
}

macro_rules! bytes512_pd {
    ($x:expr, $to:expr) => {{
        let x = _mm512_castsi256_si512(_mm512_cvttpd_epi32($x));
        _mm_storel_epi64($to.cast(), _mm512_cvtepi32_epi8(x));
    }};
}

macro_rules! unzip256_ps {
    ($a:expr, $b:expr) => {{
        let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>($a, $b));
        let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0xdd>($a, $b));
        (
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(even)),
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(odd)),
        )
    }};
}

macro_rules! unzip256_pd {
    ($a:expr, $b:expr) => {
        (
            _mm256_permute4x64_pd::<0xd8>(_mm256_unpacklo_pd($a, $b)),
            _mm256_permute4x64_pd::<0xd8>(_mm256_unpackhi_pd($a, $b)),
        )
    };
}

macro_rules! unzip512_ps {
    ($a:expr, $b:expr) => {{
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
        (_mm512_permutex2var_ps($a, even, $b), _mm512_permutex2var_ps($a, odd, $b))
    }};
}

macro_rules! unzip512_pd {
    ($a:expr, $b:expr) => {{
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let odd = _mm512_or_si512(even, _mm512_set1_epi64(1));
        (_mm512_permutex2var_pd($a, even, $b), _mm512_permutex2var_pd($a, odd, $b))
    }};
}

vector!(
    F32x8,
    __m256,
    f32,
    8,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_add_ps,
    _mm256_mul_ps,
    _mm256_fmadd_ps,
    _mm256_max_ps,
    better256_ps,
    bytes256_ps,
    unzip256_ps
);
vector!(
    F64x4,
    __m256d,
    f64,
    4,
    _mm256_set1_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_add_pd,
    _mm256_mul_pd,
    _mm256_fmadd_pd,
    _mm256_max_pd,
    better256_pd,
    bytes256_pd,
    unzip256_pd
);
vector!(
    F32x16,
    __m512,
    f32,
    16,
    _mm512_set1_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_add_ps,
    _mm512_mul_ps,
    _mm512_fmadd_ps,
    _mm512_max_ps,
    better512_ps,
    bytes512_ps,
    unzip512_ps
);
vector!(
    F64x8,
    __m512d,
    f64,
    8,
    _mm512_set1_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_add_pd,
    _mm512_mul_pd,
    _mm512_fmadd_pd,
    _mm512_max_pd,
    better512_pd,
    bytes512_pd,
    unzip512_pd
);
