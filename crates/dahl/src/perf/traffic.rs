//! How much of a memory's bandwidth a codelet takes.
//!
//! Memory gives B bytes per second at most, shared max-min fairly: who asks for less
//! than an equal part gets it, the others share the rest. A stream alone takes
//! n ≤ B. A codelet beside it that asks for d gets min(d, max(B / 2, B − n)) and is
//! slowed down by as much as it gets less.
//!
//! - One that is slowed down by s asks for d = s · max(B / 2, B − n).
//! - One that is not asks for no more than its part. If all that it reads and writes
//!   came from memory it would ask for bytes / time: if that is no more than its
//!   part, it is taken; if it is more, the bytes were in a cache.
//!
//! Left out: that a stream takes away what a codelet had in a shared cache, which
//! counts as its demand; that a slow memory slows down before it is used up; more
//! than one memory.

use serde::{Deserialize, Serialize};

/// Bytes a second that streams get from memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// One that is alone.
    #[serde(deserialize_with = "super::text::above_zero")]
    pub one: f64,
    /// Two at once, both together.
    #[serde(deserialize_with = "super::text::above_zero")]
    pub two: f64,
}

/// A slowdown that is more than noise.
const SLOWED: f64 = 1.05;

impl Bandwidth {
    /// All that memory gives.
    pub fn capacity(&self) -> f64 {
        self.two.max(self.one)
    }

    /// What somebody gets beside a stream.
    pub fn beside_a_stream(&self) -> f64 {
        let capacity = self.capacity();
        (capacity / 2.0).max(capacity - self.one)
    }

    /// The bytes a second that a codelet asks for that a stream slows down by a
    /// factor, and that reads and writes `touched` bytes per second.
    pub fn demand(&self, slowdown: f64, touched: f64) -> f64 {
        let part = self.beside_a_stream();
        if slowdown > SLOWED {
            slowdown * part
        } else if touched <= part {
            touched
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demand_gives_the_slowdown_that_it_was_found_by() {
        // One stream takes 15 of 20: beside it there are 10, more than what it leaves.
        let memory = Bandwidth { one: 15.0, two: 20.0 };
        assert_eq!(memory.beside_a_stream(), 10.0);
        assert_eq!(memory.demand(1.5, 12.0), 15.0);
        assert_eq!(memory.demand(1.01, 3.0), 3.0);
        assert_eq!(memory.demand(1.01, 30.0), 0.0);
        // A stream that leaves more than half, and streams that hinder each other.
        assert_eq!(Bandwidth { one: 4.0, two: 20.0 }.beside_a_stream(), 16.0);
        assert_eq!(Bandwidth { one: 12.0, two: 10.0 }.beside_a_stream(), 6.0);
    }
}
