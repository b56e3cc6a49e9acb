//! Ids and quantities, each with one unit.

use std::fmt;

/// A typed index into a `Vec`.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The id of the item at `index`.
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("fewer than 2^32 items"))
            }

            /// The index of the item.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A value of a graph.
    ValueId, "v"
);
id!(
    /// A node of a graph.
    NodeId, "n"
);
id!(
    /// A value that outlives the step: a parameter or a state.
    PersistentId, "p"
);
id!(
    /// A program of a session.
    ProgramId, "g"
);
id!(
    /// A task of a task graph.
    TaskId, "t"
);
id!(
    /// A worker of an engine.
    WorkerId, "w"
);
id!(
    /// A memory of a plan.
    SpaceId, "s"
);
id!(
    /// A kind of work that is counted: an op in one variant.
    CodeletId, "c"
);

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($t:ty) $($more:ident)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, $($more),*)]
        pub struct $name(pub $t);

        impl std::ops::Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::default(), |a, b| a + b)
            }
        }
    };
}

quantity!(
    /// A time in nanoseconds.
    Nanos(u64) Eq Ord Hash
);
quantity!(
    /// An amount of memory or traffic.
    Bytes(u64) Eq Ord Hash
);
quantity!(
    /// Floating-point operations; a multiply-add counts two.
    Flops(u64) Eq Ord Hash
);

quantity!(
    /// An amount of energy.
    Joules(f64)
);

impl fmt::Display for Joules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1.0 {
            scaled(f, 1e6 * self.0, 1000.0, &["µJ", "mJ", "J"])
        } else {
            scaled(f, self.0, 1000.0, &["J", "kJ", "MJ", "GJ", "TJ"])
        }
    }
}

impl Joules {
    /// The amount with so many significant digits: `13 J`.
    pub fn rounded(self, digits: usize) -> String {
        let (scale, unit) = self.unit();
        format!("{} {unit}", significant(self.0 * scale, digits))
    }

    /// The amount with no more digits than are known, where it lies in an interval:
    /// `about 13 J (0.6–89 J)`.
    pub fn about(self, interval: [f64; 2]) -> String {
        if is_exact(self.0, interval) {
            return self.to_string();
        }
        let ((scale, unit), digits) = (self.unit(), digits(self.0, interval));
        let [low, high] = interval.map(|joules| significant(joules * scale, digits));
        format!("about {} ({low}–{high} {unit})", self.rounded(digits))
    }

    /// The factor of joules and its unit.
    fn unit(self) -> (f64, &'static str) {
        match self.0.abs() {
            x if x >= 1e6 => (1e-6, "MJ"),
            x if x >= 1e3 => (1e-3, "kJ"),
            x if x >= 1.0 || x == 0.0 => (1.0, "J"),
            x if x >= 1e-3 => (1e3, "mJ"),
            _ => (1e6, "µJ"),
        }
    }
}

/// Whether an interval says no more than its value.
pub(crate) fn is_exact(value: f64, [low, high]: [f64; 2]) -> bool {
    high - low <= 1e-4 * value.abs()
}

/// How many significant digits of a value say something where it lies in an interval: half of
/// the interval's width begins at the last but one. At least two.
pub(crate) fn digits(value: f64, [low, high]: [f64; 2]) -> usize {
    let certain = (2.0 * value.abs() / (high - low)).log10().ceil();
    // Out of range where there is no width, or no value.
    (certain.clamp(0.0, 10.0) as usize) + 2
}

/// A number with so many significant digits, without zeros at its end.
pub(crate) fn significant(x: f64, digits: usize) -> String {
    if x == 0.0 || !x.is_finite() {
        return x.to_string();
    }
    // As printed: 9.96 has the digits of 10.
    let exponent: i32 = format!("{x:.*e}", digits.saturating_sub(1))
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0);
    let decimals = digits as i32 - 1 - exponent;
    if decimals <= 0 {
        let scale = 10f64.powi(-decimals);
        return format!("{:.0}", (x / scale).round() * scale);
    }
    let text = format!("{x:.*}", decimals as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0 as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
    }
}

/// A kind of bound on the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBound {
    /// The memory of the machine.
    Machine,
    /// A control group that the process is in, its own or one above.
    ControlGroup,
    /// The limit on its address space (`RLIMIT_AS`).
    AddressSpace,
    /// The limit on its private memory (`RLIMIT_DATA`).
    Data,
}

/// A bound on the memory of a process, and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// The kind of the bound.
    pub bound: MemoryBound,
    /// The bound.
    pub limit: Bytes,
    /// Bytes in use, by this process and by others under the same bound.
    pub used: Bytes,
}

impl Headroom {
    /// Bytes that the process can still allocate.
    pub fn left(&self) -> Bytes {
        Bytes(self.limit.0.saturating_sub(self.used.0))
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bound, limit, used } = self;
        let of = match bound {
            MemoryBound::Machine => "the machine has",
            MemoryBound::ControlGroup => "the control group of this process allows",
            MemoryBound::AddressSpace => "the limit on the address space of this process is",
            MemoryBound::Data => "the limit on the private memory of this process is",
        };
        write!(f, "{} are available: {of} {limit}, {used} are in use", self.left())
    }
}

impl fmt::Display for Flops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0 as f64, 1000.0, &["flop", "kflop", "Mflop", "Gflop", "Tflop"])
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0 as f64, 1000.0, &["ns", "µs", "ms", "s"])
    }
}

fn scaled(f: &mut fmt::Formatter<'_>, x: f64, base: f64, names: &[&str]) -> fmt::Result {
    let mut x = x;
    let mut names = names.iter();
    let mut name = names.next().expect("a unit");
    for next in names {
        if x < base {
            break;
        }
        x /= base;
        name = next;
    }
    let text = if x.fract() == 0.0 && x < 1000.0 {
        format!("{x} {name}")
    } else {
        format!("{x:.1} {name}")
    };
    f.pad(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_has_the_digits_that_are_known() {
        for (joules, interval, expected) in [
            (13.04, [0.5992, 89.2379], "about 13 J (0.6–89 J)"),
            (0.0011843, [4.66e-5, 0.0074961], "about 1.2 mJ (0.047–7.5 mJ)"),
            (10.0, [9.9, 10.1], "about 10 J (9.9–10.1 J)"),
            (996.0, [500.0, 9123.0], "about 1000 J (500–9100 J)"),
            (5.0, [0.0, 9.0], "about 5 J (0–9 J)"),
            (5.25, [5.25, 5.25], "5.2 J"),
            (0.0, [0.0, 0.0], "0 µJ"),
        ] {
            assert_eq!(Joules(joules).about(interval), expected);
        }
    }

    #[test]
    fn numbers_are_rounded_to_their_digits() {
        for (x, digits, expected) in [
            (36.3488, 3, "36.3"),
            (0.000123456, 2, "0.00012"),
            (9.96, 2, "10"),
            (12345.0, 2, "12000"),
            (-1.005, 2, "-1"),
            (0.0, 3, "0"),
        ] {
            assert_eq!(significant(x, digits), expected, "{x}");
        }
    }
}
