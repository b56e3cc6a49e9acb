//! Sums in a fixed order, and counter-based random numbers.

use crate::element::Float;

/// The terms that are added in lanes before sums are paired.
const LEAF: usize = 128;
const LANES: usize = 8;

/// The sum of `n` terms in an order that depends on `n` alone: eight
/// interleaved lanes over leaves of 128 terms, leaves added in pairs.
///
/// The error grows with log n, not with n (Higham 1993).
pub fn sum<T: Float>(n: usize, term: &impl Fn(usize) -> T) -> T {
    sum_range(0, n, term)
}

fn sum_range<T: Float>(from: usize, n: usize, term: &impl Fn(usize) -> T) -> T {
    if n <= LEAF {
        let mut lanes = [T::ZERO; LANES];
        let whole = n - n % LANES;
        for i in (0..whole).step_by(LANES) {
            for (l, lane) in lanes.iter_mut().enumerate() {
                *lane += term(from + i + l);
            }
        }
        for (l, i) in (whole..n).enumerate() {
            lanes[l] += term(from + i);
        }
        return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6]))
            + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    }
    // The largest power of two of leaves below n: the same tree for any grain.
    let left = LEAF * (n.div_ceil(LEAF)).next_power_of_two() / 2;
    sum_range(from, left, term) + sum_range(from + left, n - left, term)
}

/// The sum of a slice in the order of [`sum`].
pub fn sum_slice<T: Float>(x: &[T]) -> T {
    sum(x.len(), &|i| x[i])
}

/// The dot product of two slices in the order of [`sum`].
///
/// # Panics
/// If the lengths differ.
pub fn dot<T: Float>(x: &[T], y: &[T]) -> T {
    assert_eq!(x.len(), y.len());
    sum(x.len(), &|i| x[i] * y[i])
}

/// Philox 4x32-10 (Salmon et al. 2011): the random block of a counter under a
/// key. The same counter gives the same numbers on every device and in any
/// order.
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut c = counter;
    let mut k = key;
    for _ in 0..10 {
        let a = u64::from(c[0]) * 0xD251_1F53;
        let b = u64::from(c[2]) * 0xCD9E_8D57;
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

/// A number in [0, 1) for element `index` of stream `stream` at step `step`
/// under `seed`.
pub fn uniform(seed: u64, stream: u32, step: u64, index: u64) -> f64 {
    let counter = [index as u32, (index >> 32) as u32, stream, step as u32];
    let key = [seed as u32, (seed >> 32) as u32 ^ (step >> 32) as u32];
    let r = philox(counter, key);
    let bits = (u64::from(r[0]) << 21) ^ (u64::from(r[1]) >> 11);
    (bits & ((1 << 53) - 1)) as f64 / (1u64 << 53) as f64
}

/// The natural logarithm, in pure Rust: the same bits on every platform.
pub fn ln(x: f64) -> f64 {
    libm::log(x)
}

/// The exponential, likewise.
pub fn exp(x: f64) -> f64 {
    libm::exp(x)
}

/// The cosine, likewise.
pub fn cos(x: f64) -> f64 {
    libm::cos(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answer of Random123's test vectors.
    #[test]
    fn philox_known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]
        );
    }

    #[test]
    fn sum_is_exact_on_integers() {
        for n in [0, 1, 7, 8, 9, 127, 128, 129, 255, 256, 257, 1000, 4097] {
            assert_eq!(sum(n, &|i| i as f64), (n * n.saturating_sub(1) / 2) as f64, "n = {n}");
        }
    }
}
