//! The most memory that a plan may need.

use super::space::Space;
use crate::units::Bytes;
use std::collections::BTreeMap;

/// The most memory that a plan may need: all its spaces together, and single spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Of all spaces together.
    pub total: Option<Bytes>,
    /// Of single spaces.
    pub spaces: BTreeMap<Space, Bytes>,
}

impl MemoryLimits {
    /// Whether there is no limit.
    pub fn is_none(&self) -> bool {
        self.total.is_none() && self.spaces.is_empty()
    }

    /// The limit of a plan whose only space is the first host memory.
    pub fn of_host(&self) -> Option<Bytes> {
        self.total.into_iter().chain(self.spaces.get(&Space::host(0, 0)).copied()).min()
    }

    /// The same where a space may not need more than `bytes` either.
    pub fn within(self, space: &Space, bytes: Bytes) -> Self {
        let Self { total, mut spaces } = self;
        let limit = spaces.entry(space.clone()).or_insert(bytes);
        *limit = bytes.min(*limit);
        Self { total, spaces }
    }
}

impl From<Bytes> for MemoryLimits {
    fn from(total: Bytes) -> Self {
        Self { total: Some(total), spaces: BTreeMap::new() }
    }
}

impl From<Option<Bytes>> for MemoryLimits {
    fn from(total: Option<Bytes>) -> Self {
        Self { total, spaces: BTreeMap::new() }
    }
}
