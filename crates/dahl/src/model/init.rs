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
    /// The values of the parameter `name` under a seed: each name has a stream
    /// of its own, so that adding a layer does not change the others.
    pub fn values(self, seed: u64, name: &str) -> impl Iterator<Item = f64> + use<> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // FNV-1a: a number for a name.
        let stream = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        rng.set_stream(stream);
        std::iter::repeat_with(move || match self {
            Init::Constant(x) => x,
            Init::Uniform(bound) => {
                let unit = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
                (2.0 * unit - 1.0) * bound
            }
        })
    }
}
