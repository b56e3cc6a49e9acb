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
        $add:ident, $mul:ident, $fma:ident, $max:ident, $better:ident, $sub:ident,
        $gate:ident, $where_equal:ident, $unzip:ident, $zip:ident, $transpose:ident, $bytes:ident
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
            fn sub(self, other: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $sub(self.0, other.0) })
            }

            #[inline(always)]
            fn gate(self, key: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $gate!(self.0, key.0) })
            }

            #[inline(always)]
            fn where_equal(self, a: Self, b: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $where_equal!(self.0, a.0, b.0) })
            }

            #[inline(always)]
            fn unzip(self, next: Self) -> (Self, Self) {
                // SAFETY: see above.
                let (evens, odds) = unsafe { $unzip!(self.0, next.0) };
                (Self(evens), Self(odds))
            }

            #[inline(always)]
            fn zip(self, other: Self) -> (Self, Self) {
                // SAFETY: see above.
                let (low, high) = unsafe { $zip!(self.0, other.0) };
                (Self(low), Self(high))
            }

            #[inline(always)]
            unsafe fn transpose(from: *const $elem, to: *mut $elem, lines: [usize; 2]) {
                // SAFETY: see above; the squares are promised by the caller.
                unsafe { $transpose(from, to, lines) };
            }

            #[inline(always)]
            unsafe fn store_bytes(self, to: *mut u8) {
                // SAFETY: see above; the caller promises so many bytes.
                unsafe { $bytes!(self.0, to) };
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

macro_rules! gate256_ps {
    ($x:expr, $key:expr) => {
        _mm256_and_ps($x, _mm256_cmp_ps::<_CMP_NLE_UQ>($key, _mm256_setzero_ps()))
    };
}

macro_rules! gate512_ps {
    ($x:expr, $key:expr) => {
        _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLE_UQ>($key, _mm512_setzero_ps()), $x)
    };
}

macro_rules! gate256_pd {
    ($x:expr, $key:expr) => {
        _mm256_and_pd($x, _mm256_cmp_pd::<_CMP_NLE_UQ>($key, _mm256_setzero_pd()))
    };
}

macro_rules! gate512_pd {
    ($x:expr, $key:expr) => {
        _mm512_maskz_mov_pd(_mm512_cmp_pd_mask::<_CMP_NLE_UQ>($key, _mm512_setzero_pd()), $x)
    };
}

macro_rules! where_equal256_ps {
    ($x:expr, $a:expr, $b:expr) => {
        _mm256_and_ps($x, _mm256_cmp_ps::<_CMP_EQ_OQ>($a, $b))
    };
}

macro_rules! where_equal512_ps {
    ($x:expr, $a:expr, $b:expr) => {
        _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>($a, $b), $x)
    };
}

macro_rules! zip256_ps {
    ($a:expr, $b:expr) => {{
        let (low, high) = (_mm256_unpacklo_ps($a, $b), _mm256_unpackhi_ps($a, $b));
        (_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high))
    }};
}

macro_rules! where_equal256_pd {
    ($x:expr, $a:expr, $b:expr) => {
        _mm256_and_pd($x, _mm256_cmp_pd::<_CMP_EQ_OQ>($a, $b))
    };
}

macro_rules! where_equal512_pd {
    ($x:expr, $a:expr, $b:expr) => {
        _mm512_maskz_mov_pd(_mm512_cmp_pd_mask::<_CMP_EQ_OQ>($a, $b), $x)
    };
}

macro_rules! zip256_pd {
    ($a:expr, $b:expr) => {{
        let (low, high) = (_mm256_unpacklo_pd($a, $b), _mm256_unpackhi_pd($a, $b));
        (_mm256_permute2f128_pd::<0x20>(low, high), _mm256_permute2f128_pd::<0x31>(low, high))
    }};
}

// Within halves first, then the halves' quarters in order.
macro_rules! unzip256_ps {
    ($a:expr, $b:expr) => {{
        let evens = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>($a, $b));
        let odds = _mm256_castps_pd(_mm256_shuffle_ps::<0xdd>($a, $b));
        (
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(evens)),
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(odds)),
        )
    }};
}

macro_rules! unzip256_pd {
    ($a:expr, $b:expr) => {{
        (
            _mm256_permute4x64_pd::<0xd8>(_mm256_unpacklo_pd($a, $b)),
            _mm256_permute4x64_pd::<0xd8>(_mm256_unpackhi_pd($a, $b)),
        )
    }};
}

// Indices below the lanes are of the first vector, others of the second.
macro_rules! unzip512_ps {
    ($a:expr, $b:expr) => {{
        let evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
        (_mm512_permutex2var_ps($a, evens, $b), _mm512_permutex2var_ps($a, odds, $b))
    }};
}

macro_rules! zip512_ps {
    ($a:expr, $b:expr) => {{
        let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        (_mm512_permutex2var_ps($a, low, $b), _mm512_permutex2var_ps($a, high, $b))
    }};
}

macro_rules! unzip512_pd {
    ($a:expr, $b:expr) => {{
        let evens = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let odds = _mm512_add_epi64(evens, _mm512_set1_epi64(1));
        (_mm512_permutex2var_pd($a, evens, $b), _mm512_permutex2var_pd($a, odds, $b))
    }};
}

macro_rules! zip512_pd {
    ($a:expr, $b:expr) => {{
        let low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
        let high = _mm512_add_epi64(low, _mm512_set1_epi64(4));
        (_mm512_permutex2var_pd($a, low, $b), _mm512_permutex2var_pd($a, high, $b))
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
    _mm256_sub_ps,
    gate256_ps,
    where_equal256_ps,
    unzip256_ps,
    zip256_ps,
    transpose8x8,
    bytes256_ps
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
    _mm256_sub_pd,
    gate256_pd,
    where_equal256_pd,
    unzip256_pd,
    zip256_pd,
    transpose4x4,
    bytes256_pd
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
    _mm512_sub_ps,
    gate512_ps,
    where_equal512_ps,
    unzip512_ps,
    zip512_ps,
    transpose16x16,
    bytes512_ps
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
    _mm512_sub_pd,
    gate512_pd,
    where_equal512_pd,
    unzip512_pd,
    zip512_pd,
    transpose8x8_pd,
    bytes512_pd
);

/// # Safety
/// Eight rows of eight can be read and written; AVX is there.
#[inline(always)]
unsafe fn transpose8x8(from: *const f32, to: *mut f32, [line, out]: [usize; 2]) {
    // SAFETY: promised by the caller.
    unsafe {
        for half in [0, 4] {
            // Pairs of rows 0 and 4, 1 and 5 …: the halves that stay in their lane.
            let from = from.add(half);
            let (a, b) = (row_pair(from, line), row_pair(from.add(line), line));
            let (c, d) = (row_pair(from.add(2 * line), line), row_pair(from.add(3 * line), line));
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

/// Four elements of a row and of the fourth row behind it.
///
/// # Safety
/// They can be read; AVX is there.
#[inline(always)]
unsafe fn row_pair(from: *const f32, line: usize) -> __m256 {
    // SAFETY: promised by the caller.
    unsafe {
        let low = _mm256_castps128_ps256(_mm_loadu_ps(from));
        _mm256_insertf128_ps::<1>(low, _mm_loadu_ps(from.add(4 * line)))
    }
}

/// # Safety
/// Four rows of four can be read and written; AVX is there.
#[inline(always)]
unsafe fn transpose4x4(from: *const f64, to: *mut f64, [line, out]: [usize; 2]) {
    // SAFETY: promised by the caller.
    unsafe {
        let (a, b) = (_mm256_loadu_pd(from), _mm256_loadu_pd(from.add(line)));
        let (c, d) = (_mm256_loadu_pd(from.add(2 * line)), _mm256_loadu_pd(from.add(3 * line)));
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
    // The far halves of rows first: the next row may begin in them.
    for [i, j] in [[8, 0], [0, 0], [8, 8], [0, 8]] {
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
    // The far halves of rows first: the next row may begin in them.
    for [i, j] in [[4, 0], [0, 0], [4, 4], [0, 4]] {
        // SAFETY: a quarter of the square.
        unsafe {
            transpose4x4(from.add(i * lines[0] + j), to.add(j * lines[1] + i), lines);
        }
    }
}
