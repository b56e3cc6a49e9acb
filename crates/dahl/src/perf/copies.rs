//! Copies between memories of one machine.

use super::text;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// What a lane takes to copy values from one memory of this machine to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copies {
    /// Until a lane sees that a worker has ended a task, or a worker that a lane has copied. With
    /// lanes there are more threads than processors, and who waits sleeps.
    #[serde(deserialize_with = "text::not_negative")]
    pub hop_ns: f64,
    /// Nanoseconds of a copy of each of [`Copies::SIZES`].
    #[serde(deserialize_with = "text::all_not_negative")]
    pub copy_ns: [f64; 4],
}

impl Copies {
    /// The bytes of the copies that are measured.
    pub const SIZES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];

    /// The nanoseconds of a copy of so many bytes: between two sizes in proportion.
    pub fn nanos(&self, bytes: Bytes) -> f64 {
        let bytes = bytes.0 as f64;
        let points = || {
            let sizes = Self::SIZES.map(|size| size as f64);
            std::iter::once((0.0, 0.0)).chain(sizes.into_iter().zip(self.copy_ns))
        };
        let last = Self::SIZES.len() - 1;
        let largest = Self::SIZES[last] as f64;
        if bytes > largest {
            return self.copy_ns[last] * bytes / largest;
        }
        let after = points().find(|(size, _)| *size >= bytes).unwrap_or((largest, 0.0));
        let before = points().take_while(|(size, _)| *size < bytes).last().unwrap_or((0.0, 0.0));
        let part = (bytes - before.0) / (after.0 - before.0).max(1.0);
        before.1 + part * (after.1 - before.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_between_two_sizes_take_what_lies_between() {
        let copies = Copies { hop_ns: 1.0, copy_ns: [100.0, 1000.0, 1e5, 2e6] };
        let nanos = |bytes| copies.nanos(Bytes(bytes));
        assert_eq!([nanos(0), nanos(2048), nanos(4096)], [0.0, 50.0, 100.0]);
        assert_eq!(nanos(34 << 10), 550.0);
        assert_eq!(nanos(16 << 20), 2e6);
        assert_eq!(nanos(64 << 20), 8e6);
    }
}
