//! Sums that are spread over sixteen lanes, whatever the width of vectors is.
//!
//! # The order of a sum
//! Term i goes to lane i mod [`WIDE`]. The terms are cut into blocks of
//! [`BLOCK`]: in each, a lane starts from zero and takes its terms in order;
//! the lanes of blocks are added in order. At last lane l takes lane l + 8 of the
//! other half, then l + 4, l + 2 and l + 1. That depends on the length alone, and
//! short vectors give the bits of long ones.
#![expect(unsafe_code, reason = "rows are read through pointers")]

use crate::View;
use crate::simd::{Lane, Simd, Vector, Work};

/// Lanes of a sum: those of the widest vector.
pub(crate) const WIDE: usize = 16;
/// Terms of a block.
pub(crate) const BLOCK: usize = 256 * WIDE;

/// The sum of all lanes.
#[inline(always)]
pub(crate) fn total<T: Lane>(mut lanes: [T; WIDE]) -> T {
    let mut half = WIDE / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// The sum of some terms one by one, in the order of [`Sum`].
pub(crate) fn sum_each<T: Lane>(terms: impl Iterator<Item = T>) -> T {
    let (mut all, mut block) = ([T::ZERO; WIDE], [T::ZERO; WIDE]);
    let mut at = 0;
    for x in terms {
        if at == BLOCK {
            all.iter_mut().zip(&block).for_each(|(all, &sum)| *all += sum);
            (block, at) = ([T::ZERO; WIDE], 0);
        }
        block[at % WIDE] += x;
        at += 1;
    }
    all.iter_mut().zip(&block).for_each(|(all, &sum)| *all += sum);
    total(all)
}

/// The sum of a slice.
pub(crate) struct Sum<'a, T>(pub(crate) &'a [T]);

impl<T: Lane> Work for Sum<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run<S: Simd>(self) -> T {
        match WIDE / T::Vector::<S>::LANES {
            1 => self.sized::<S, 1>(),
            2 => self.sized::<S, 2>(),
            4 => self.sized::<S, 4>(),
            _ => self.sized::<S, 8>(),
        }
    }
}

impl<T: Lane> Sum<'_, T> {
    #[inline(always)]
    fn sized<S: Simd, const P: usize>(self) -> T {
        let mut all = [T::Vector::<S>::zero(); P];
        for block in self.0.chunks(BLOCK) {
            let (whole, rest) = block.as_chunks::<WIDE>();
            let mut sums = [T::Vector::<S>::zero(); P];
            for terms in whole {
                let terms = load::<S, T, P>(terms);
                for p in 0..P {
                    sums[p] = sums[p].add(terms[p]);
                }
            }
            if !rest.is_empty() {
                let terms = load::<S, T, P>(&padded(rest));
                for p in 0..P {
                    sums[p] = sums[p].add(terms[p]);
                }
            }
            for p in 0..P {
                all[p] = all[p].add(sums[p]);
            }
        }
        let mut lanes = [T::ZERO; WIDE];
        store::<S, T, P>(all, &mut lanes);
        total(lanes)
    }
}

/// The sum of a plane, rows behind each other.
pub(crate) struct Plane<'a, 'b, T>(pub(crate) &'a View<'b, T>, pub(crate) [usize; 2]);

impl<T: Lane> Work for Plane<'_, '_, T> {
    type Output = T;

    #[inline(always)]
    fn run<S: Simd>(self) -> T {
        let Self(x, [n, c]) = self;
        let [height, width] = [x.shape()[2], x.shape()[3]];
        if height * width == 0 {
            return T::ZERO;
        }
        match x.rows([n, c, 0, 0], height) {
            Some(plane) => Sum(plane).run::<S>(),
            None => sum_each((0..height).flat_map(|h| x.row([n, c, h, 0])).copied()),
        }
    }
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
    std::array::from_fn(|p| unsafe { T::Vector::<S>::load(from.as_ptr().add(p * lanes)) })
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

    /// Vectors of any width give the bits of one element after the other.
    #[test]
    fn the_width_of_vectors_changes_nothing() {
        for n in [0, 1, 3, 15, 16, 17, 100, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7] {
            let x: Vec<f32> = (0..n).map(|i| (i * 7919 % 1009) as f32 / 300.0 - 1.5).collect();
            let expected = sum_each(x.iter().copied());
            let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
            let expected_wide = sum_each(wide.iter().copied());
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                assert_eq!(isa.run(Sum(&x)).to_bits(), expected.to_bits(), "{n} on {isa}");
                assert_eq!(isa.run(Sum(&wide)).to_bits(), expected_wide.to_bits(), "{n} on {isa}");
            }
        }
    }
}
