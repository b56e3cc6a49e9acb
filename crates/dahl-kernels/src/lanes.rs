//! Sums of many terms in vectors, in an order of their own.
//!
//! Term `i` goes to lane `i % 16`, whatever the vectors' width; lanes are then
//! added in pairs of halves. Multiplications and additions are rounded apart. So
//! the bits depend on the number of terms alone: not on the instruction set.
#![expect(unsafe_code, reason = "vectors are loaded from slices")]

use crate::Float;
use crate::simd::{Lane, Simd, Vector};

/// The lanes of a sum: the widest vector's.
pub(crate) const WIDE: usize = 16;
/// The most vectors that they take: pairs of doubles.
const VECTORS: usize = 8;

/// Σ f(x…) over the elements of `inputs`, which are of one length: `M` sums of
/// `N` operands at once.
#[inline(always)]
pub(crate) fn sums<S: Simd, T: Lane, const N: usize, const M: usize>(
    inputs: [&[T]; N],
    f: impl Fn([T::Vector<S>; N]) -> [T::Vector<S>; M],
) -> [T; M] {
    let lanes = folded::<S, T, N, M>(inputs, |mut sums, operands| {
        for (sum, term) in sums.iter_mut().zip(f(operands)) {
            *sum = sum.add(term);
        }
        sums
    });
    lanes.map(total)
}

/// The `M` numbers of each lane, from zeros, after `step` has met every element of its lane.
#[inline(always)]
pub(crate) fn folded<S: Simd, T: Lane, const N: usize, const M: usize>(
    inputs: [&[T]; N],
    step: impl Fn([T::Vector<S>; M], [T::Vector<S>; N]) -> [T::Vector<S>; M],
) -> [[T; WIDE]; M] {
    let width = <T::Vector<S>>::LANES;
    let length = inputs.iter().map(|x| x.len()).min().unwrap_or(0);
    let mut lanes = [[<T::Vector<S>>::zero(); M]; VECTORS];
    let whole = length - length % WIDE;
    for from in (0..whole).step_by(WIDE) {
        for (v, lanes) in lanes.iter_mut().enumerate().take(WIDE / width) {
            let mut operands = [<T::Vector<S>>::zero(); N];
            for (operand, x) in operands.iter_mut().zip(inputs) {
                // SAFETY: `whole` is a multiple of the lanes and not above any length.
                *operand = unsafe { <T::Vector<S>>::load(x.as_ptr().add(from + v * width)) };
            }
            *lanes = step(*lanes, operands);
        }
    }
    let mut all = [[T::ZERO; WIDE]; M];
    for (m, all) in all.iter_mut().enumerate() {
        *all = stored::<S, T>(&lanes.map(|lanes| lanes[m]));
    }
    let rest = length - whole;
    if rest > 0 {
        // The last lanes' worth of elements, most of which have been met already: only the last
        // lanes count, and go to the first ones.
        let mut padded = [[T::ZERO; WIDE]; N];
        let last = if length >= WIDE {
            inputs.map(|x| x[length - WIDE..length].as_ptr())
        } else {
            for (padded, x) in padded.iter_mut().zip(inputs) {
                for (to, from) in padded[WIDE - rest..].iter_mut().zip(x) {
                    *to = *from;
                }
            }
            padded.each_ref().map(|x| x.as_ptr())
        };
        let mut ends = [[T::ZERO; WIDE]; M];
        for (end, all) in ends.iter_mut().zip(&all) {
            end[WIDE - rest..].copy_from_slice(&all[..rest]);
        }
        let mut lanes = [[<T::Vector<S>>::zero(); M]; VECTORS];
        for (v, lanes) in lanes.iter_mut().enumerate().take(WIDE / width) {
            let mut operands = [<T::Vector<S>>::zero(); N];
            for (operand, x) in operands.iter_mut().zip(last) {
                // SAFETY: there are as many elements as lanes behind each pointer.
                *operand = unsafe { <T::Vector<S>>::load(x.add(v * width)) };
            }
            // SAFETY: vectors inside of the lanes.
            let ends = ends
                .each_ref()
                .map(|end| unsafe { <T::Vector<S>>::load(end.as_ptr().add(v * width)) });
            *lanes = step(ends, operands);
        }
        for (m, all) in all.iter_mut().enumerate() {
            let ends = stored::<S, T>(&lanes.map(|lanes| lanes[m]));
            all[..rest].copy_from_slice(&ends[WIDE - rest..]);
        }
    }
    all
}

#[inline(always)]
fn stored<S: Simd, T: Lane>(vectors: &[T::Vector<S>; VECTORS]) -> [T; WIDE] {
    let width = <T::Vector<S>>::LANES;
    let mut lanes = [T::ZERO; WIDE];
    for (v, vector) in vectors.iter().enumerate().take(WIDE / width) {
        // SAFETY: vectors inside of the lanes.
        unsafe { vector.store(lanes.as_mut_ptr().add(v * width)) };
    }
    lanes
}

/// The sum of the lanes: halves are added until one is left.
#[inline(always)]
pub(crate) fn total<T: Float>(lanes: [T; WIDE]) -> T {
    let eight: [T; 8] = std::array::from_fn(|l| lanes[l] + lanes[l + 8]);
    let four: [T; 4] = std::array::from_fn(|l| eight[l] + eight[l + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// Fewer than sixteen terms, and zeros.
#[inline(always)]
pub(crate) fn padded<T: Lane>(terms: &[T]) -> [T; WIDE] {
    let mut all = [T::ZERO; WIDE];
    all[..terms.len()].copy_from_slice(terms);
    all
}

/// The lanes as `P` vectors.
#[inline(always)]
pub(crate) fn load<S: Simd, T: Lane, const P: usize>(from: &[T; WIDE]) -> [T::Vector<S>; P] {
    let lanes = T::Vector::<S>::LANES;
    assert!(P * lanes == WIDE, "as many vectors as fill the lanes");
    // SAFETY: inside of the array, as asserted.
    unsafe { T::Vector::<S>::load_many(from.as_ptr(), lanes) }
}

/// `P` vectors as lanes.
#[inline(always)]
pub(crate) fn store<S: Simd, T: Lane, const P: usize>(from: [T::Vector<S>; P], to: &mut [T; WIDE]) {
    let lanes = T::Vector::<S>::LANES;
    assert!(P * lanes == WIDE, "as many vectors as fill the lanes");
    for (p, vector) in from.into_iter().enumerate() {
        // SAFETY: inside of the array, as asserted.
        unsafe { vector.store(to.as_mut_ptr().add(p * lanes)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::Work;

    struct Squares<'a, T>([&'a [T]; 2]);

    impl<T: Lane> Work for Squares<'_, T> {
        type Output = [T; 2];
        #[inline(always)]
        fn run<S: Simd>(self) -> [T; 2] {
            sums::<S, T, 2, 2>(self.0, |[x, y]| [x, x.mul(y)])
        }
    }

    fn check<T: Lane>() {
        for n in [0usize, 1, 3, 15, 16, 17, 31, 32, 33, 100, 1000] {
            let terms = |k: usize| -> Vec<T> {
                (0..n).map(|i| T::from_f64(((i * 7919 + k) % 1013) as f64 / 97.0)).collect()
            };
            let (x, y) = (terms(1), terms(2));
            let [plain, products] = Isa::Portable.run(Squares([&x, &y]));
            let near = |a: T, b: f64| (a.to_f64() - b).abs() <= 1e-5 * b.abs();
            assert!(near(plain, x.iter().map(|x| x.to_f64()).sum()), "{n}");
            let exact = x.iter().zip(&y).map(|(x, y)| x.to_f64() * y.to_f64()).sum();
            assert!(near(products, exact), "{n}");
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                assert_eq!(isa.run(Squares([&x, &y])), [plain, products], "{isa} {n}");
            }
        }
    }

    #[test]
    fn all_instruction_sets_give_the_same_bits() {
        check::<f32>();
        check::<f64>();
    }
}
