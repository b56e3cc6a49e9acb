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

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0 as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
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
