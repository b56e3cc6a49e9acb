//! Within what figures lie that make sense.

use std::fmt;

/// What a figure counts, and within what it lies. The bounds are far beyond all
/// machines: they catch slips, and keep sums finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantity {
    /// Its name.
    pub(super) is: &'static str,
    /// The least that it may be.
    pub(super) least: f64,
    /// The most that it may be.
    pub(super) most: f64,
}

pub(super) const WATTS: Quantity = Quantity { is: "watts", least: 0.0, most: 1e9 };
pub(super) const SECONDS: Quantity = Quantity { is: "seconds", least: 0.0, most: 1e6 };
pub(super) const JOULES: Quantity = Quantity { is: "joules", least: 0.0, most: 1e12 };
pub(super) const JOULES_PER_BYTE: Quantity =
    Quantity { is: "joules per byte", least: 0.0, most: 1.0 };
pub(super) const BANDWIDTH: Quantity = Quantity { is: "bytes per second", least: 1.0, most: 1e18 };
pub(super) const MESSAGE: Quantity = Quantity { is: "bytes", least: 1.0, most: 1e18 };
pub(super) const ARRIVAL: Quantity = Quantity { is: "seconds", least: 1e-9, most: 1e6 };
pub(super) const PRICE: Quantity = Quantity { is: "money", least: 0.0, most: 1e9 };
pub(super) const PRICE_PER_BYTE: Quantity =
    Quantity { is: "money per byte", least: 0.0, most: 1.0 };
pub(super) const FLOPS: Quantity = Quantity { is: "operations per second", least: 1.0, most: 1e21 };
pub(super) const SPEED: Quantity = Quantity { is: "a speed", least: 1e-6, most: 1e6 };

/// Units, memories and ends of links, all counted out: what `u32` ids and the
/// memory of a machine can hold.
pub(super) const MOST_PARTS: u64 = 10_000_000;

/// The largest memory: 1 EiB.
pub(super) const MOST_BYTES: u64 = 1 << 60;

/// The longest name, in characters.
pub(super) const LONGEST_NAME: usize = 100;

impl Quantity {
    pub(super) fn contains(&self, value: f64) -> bool {
        (self.least..=self.most).contains(&value)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}", self.is, number(self.least), number(self.most))
    }
}

/// A number as people write it, and as TOML reads it back to the last bit.
pub(super) fn number(x: f64) -> String {
    if x == 0.0 || (1e-3..1e6).contains(&x.abs()) { format!("{x}") } else { format!("{x:e}") }
}

/// Suffixes of amounts of memory; the first are those that are written.
pub(super) const BYTE_UNITS: [(&str, u64); 10] = [
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("B", 1),
];
