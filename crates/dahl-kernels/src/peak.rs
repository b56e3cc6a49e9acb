//! The most that a processor can do, as a measure for kernels.
#![expect(unsafe_code, reason = "a vector is stored")]

use crate::DType;
use crate::element::float_dispatch;
use crate::simd::{Isa, Lane, Simd, Vector, Work};

/// Vectors that are multiplied and added to at the same time: enough to wait for
/// nothing.
const CHAINS: usize = 12;
const ROUNDS: usize = 200_000;

/// Multiplies and adds vectors for some milliseconds; the floating-point
/// operations that were done.
pub fn burst(isa: Isa, dtype: DType) -> u64 {
    float_dispatch!(dtype, burst_typed(isa))
}

fn burst_typed<T: Lane>(isa: Isa) -> u64 {
    let lanes = isa.run(Burst::<T>(std::hint::black_box(T::ONE)));
    (2 * lanes * CHAINS * ROUNDS) as u64
}

struct Burst<T>(T);

impl<T: Lane> Work for Burst<T> {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self) -> usize {
        let factor = T::Vector::<S>::splat(self.0);
        let mut sums = [T::Vector::<S>::splat(T::ZERO); CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = sum.mul_add(factor, factor);
            }
        }
        let total = sums.into_iter().fold(T::Vector::<S>::zero(), T::Vector::<S>::add);
        let mut out = [T::ZERO; 64];
        // SAFETY: no vector has more lanes.
        unsafe { total.store(out.as_mut_ptr()) };
        assert!(out[0].is_finite(), "a sum of ones");
        T::Vector::<S>::LANES
    }
}
