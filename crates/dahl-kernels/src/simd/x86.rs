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

    #[inline(always)]
    fn prefetch<T>(at: *const T) {
        // SAFETY: a hint; nothing is read.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
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

    #[inline(always)]
    fn prefetch<T>(at: *const T) {
        // SAFETY: a hint; nothing is read.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}

macro_rules! vector {
    (
        $name:ident, $inner:ident, $elem:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident,
        $add:ident, $sub:ident, $mul:ident, $fma:ident, $max:ident, $better:ident, $transpose:ident
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
            fn sub(self, other: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $sub(self.0, other.0) })
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
            unsafe fn transpose(from: *const $elem, to: *mut $elem, lines: [usize; 2]) {
                // SAFETY: see above; the squares are promised by the caller.
                unsafe { $transpose(from, to, lines) };
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

vector!(
    F32x8,
    __m256,
    f32,
    8,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_fmadd_ps,
    _mm256_max_ps,
    better256_ps,
    transpose8x8
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
    _mm256_sub_pd,
    _mm256_mul_pd,
    _mm256_fmadd_pd,
    _mm256_max_pd,
    better256_pd,
    transpose4x4
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
    _mm512_sub_ps,
    _mm512_mul_ps,
    _mm512_fmadd_ps,
    _mm512_max_ps,
    better512_ps,
    transpose16x16
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
    _mm512_sub_pd,
    _mm512_mul_pd,
    _mm512_fmadd_pd,
    _mm512_max_pd,
    better512_pd,
    transpose8x8_pd
);

/// # Safety
/// Eight rows of eight can be read and written; AVX is there.
#[inline(always)]
unsafe fn transpose8x8(from: *const f32, to: *mut f32, [line, out]: [usize; 2]) {
    // SAFETY: promised by the caller.
    unsafe {
        // Pairs of rows 0 and 4, 1 and 5 …: the halves that stay in their lane.
        let load = |i: usize, half: usize| {
            let low = _mm256_castps128_ps256(_mm_loadu_ps(from.add(i * line + half)));
            _mm256_insertf128_ps::<1>(low, _mm_loadu_ps(from.add((i + 4) * line + half)))
        };
        for half in [0, 4] {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| load(i, half));
            let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
            let (ef, gh) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
            let to = to.add(half * out);
            _mm256_storeu_ps(to, _mm256_shuffle_ps::<0x44>(ab, cd));
            _mm256_storeu_ps(to.add(out), _mm256_shuffle_ps::<0xee>(ab, cd));
            _mm256_storeu_ps(to.add(2 * out), _mm256_shuffle_ps::<0x44>(ef, gh));
            _mm256_storeu_ps(to.add(3 * out), _mm256_shuffle_ps::<0xee>(ef, gh));
        }
    }
}

/// # Safety
/// Four rows of four can be read and written; AVX is there.
#[inline(always)]
unsafe fn transpose4x4(from: *const f64, to: *mut f64, [line, out]: [usize; 2]) {
    // SAFETY: promised by the caller.
    unsafe {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| _mm256_loadu_pd(from.add(i * line)));
        let (ab, cd) = (_mm256_unpacklo_pd(a, b), _mm256_unpacklo_pd(c, d));
        let (ef, gh) = (_mm256_unpackhi_pd(a, b), _mm256_unpackhi_pd(c, d));
        _mm256_storeu_pd(to, _mm256_permute2f128_pd::<0x20>(ab, cd));
        _mm256_storeu_pd(to.add(out), _mm256_permute2f128_pd::<0x20>(ef, gh));
        _mm256_storeu_pd(to.add(2 * out), _mm256_permute2f128_pd::<0x31>(ab, cd));
        _mm256_storeu_pd(to.add(3 * out), _mm256_permute2f128_pd::<0x31>(ef, gh));
    }
}

/// # Safety
/// Sixteen rows of sixteen can be read and written; AVX is there.
#[inline(always)]
unsafe fn transpose16x16(from: *const f32, to: *mut f32, lines: [usize; 2]) {
    for [i, j] in [[0, 0], [0, 8], [8, 0], [8, 8]] {
        // SAFETY: a quarter of the square.
        unsafe {
            transpose8x8(from.add(i * lines[0] + j), to.add(j * lines[1] + i), lines);
        }
    }
}

/// # Safety
/// Eight rows of eight can be read and written; AVX is there.
#[inline(always)]
unsafe fn transpose8x8_pd(from: *const f64, to: *mut f64, lines: [usize; 2]) {
    for [i, j] in [[0, 0], [0, 4], [4, 0], [4, 4]] {
        // SAFETY: a quarter of the square.
        unsafe {
            transpose4x4(from.add(i * lines[0] + j), to.add(j * lines[1] + i), lines);
        }
    }
}
