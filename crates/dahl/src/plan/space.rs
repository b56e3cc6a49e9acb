//! The memories of a plan, and which values have a replica in each.

use crate::error::{Error, Result};
use crate::graph::Store;
use crate::units::{PersistentId, SpaceId};
use dahl_kernels::Region;
use std::fmt;
use std::str::FromStr;

/// What a memory belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpaceKind {
    /// Processors; by the number of the memory, where a machine has several (NUMA).
    Host(u32),
    /// A device, by name.
    Device(String),
}

/// A memory that workers compute in. What one writes and another in another space reads is moved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Space {
    /// The process that has it.
    pub rank: u32,
    /// What it belongs to.
    pub kind: SpaceKind,
}

impl Space {
    /// A host memory of a process.
    pub fn host(rank: u32, number: u32) -> Self {
        Self { rank, kind: SpaceKind::Host(number) }
    }
}

/// `host`, `host1`, `gpu0` of rank 0; `rank1`, `rank1/host1`, `rank1/gpu0` of others.
impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, &self.kind) {
            (0, SpaceKind::Host(0)) => f.write_str("host"),
            (rank, SpaceKind::Host(0)) => write!(f, "rank{rank}"),
            (0, SpaceKind::Host(number)) => write!(f, "host{number}"),
            (rank, SpaceKind::Host(number)) => write!(f, "rank{rank}/host{number}"),
            (0, SpaceKind::Device(name)) => f.write_str(name),
            (rank, SpaceKind::Device(name)) => write!(f, "rank{rank}/{name}"),
        }
    }
}

impl FromStr for Space {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::plan("spaces", "host, host1, gpu0, rank1 or rank1/gpu0", text);
        let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
        let (rank, name) = match text.strip_prefix("rank") {
            None => (0, text),
            Some(rest) => match rest.split_once('/') {
                None => (number(rest)?, "host"),
                Some((rank, name)) => (number(rank)?, name),
            },
        };
        let kind = match name.strip_prefix("host") {
            Some("") => SpaceKind::Host(0),
            Some(n) => SpaceKind::Host(number(n)?),
            None => SpaceKind::Device(name.to_owned()),
        };
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        let space = Self { rank, kind };
        // One name per space.
        if is_name && space.to_string() == text { Ok(space) } else { Err(wrong()) }
    }
}

/// The rows of a persistent value that a space has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The value.
    pub value: PersistentId,
    /// The space.
    pub space: SpaceId,
    /// The box: all of the value, or a range of its first axis.
    pub region: Region,
}

impl Replica {
    /// The bytes of these rows.
    pub fn bytes(&self, store: &Store) -> usize {
        self.region.elements().saturating_mul(store.get(self.value).meta.dtype.size())
    }
}

#[cfg(test)]
mod tests {
    use super::Space;

    #[test]
    fn a_space_has_one_name() {
        for name in ["host", "host1", "gpu0", "rank1", "rank3/host1", "rank12/gpu0"] {
            assert_eq!(name.parse::<Space>().unwrap().to_string(), name);
        }
        for wrong in
            ["", "rank", "rank0", "rank1/", "rank1/host", "host0", "hostess", "a b", "rank01"]
        {
            assert!(wrong.parse::<Space>().is_err(), "{wrong}");
        }
    }
}
