//! The values that parameters start from.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// What a persistent value starts from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// The same everywhere.
    Constant(f64),
    /// Uniform in (−bound, bound).
    Uniform(f64),
}

impl Init {
    /// The values of parameter number `index` under a seed: each parameter has
    /// a stream of its own, so that adding a layer does not change the others.
    pub fn values(self, seed: u64, index: usize) -> impl Iterator<Item = f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(index as u64);
        std::iter::repeat_with(move || match self {
            Init::Constant(x) => x,
            Init::Uniform(bound) => {
                let unit = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                (2.0 * unit - 1.0) * bound
            }
        })
    }
}
