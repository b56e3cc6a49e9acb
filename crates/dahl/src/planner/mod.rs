//! Finding plans.
//!
//! [`Grain`] is the default: every op is cut into the same number of pieces
//! along its first axis, and chains of ops over one piece become one task.

mod gather;
pub mod pipeline;

use crate::error::{Error, Result};
use crate::graph::Programs;
use crate::ops::Target;
use crate::plan::{Numerics, Placement, Plan};

pub use gather::place;

/// Whether chains of ops over one piece become one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gather {
    /// They do.
    #[default]
    On,
    /// Every piece of every op is a task.
    Off,
}

/// The grain of a plan: the same for all ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grain {
    /// How many workers there are.
    pub workers: usize,
    /// Into how many pieces the batch is cut.
    pub pieces: usize,
    /// Into how many pieces channels and features are cut.
    pub channels: usize,
    /// Whether chains become one task.
    pub gather: Gather,
    /// What the variants of ops are chosen for.
    pub target: Target,
}

impl Grain {
    /// One piece of the batch for each worker.
    pub fn for_workers(workers: usize) -> Self {
        Self { workers, pieces: workers, channels: 1, gather: Gather::On, target: Target::here() }
    }

    /// The plan of this grain with the default numerics.
    pub fn plan(&self, programs: &Programs) -> Result<Plan> {
        self.plan_with(programs, Numerics::default_for(programs, self.target))
    }

    /// The plan of this grain with given numerics.
    pub fn plan_with(&self, programs: &Programs, numerics: Numerics) -> Result<Plan> {
        for (key, n) in
            [("workers", self.workers), ("pieces", self.pieces), ("channels", self.channels)]
        {
            if n == 0 {
                return Err(Error::config(key, "at least 1", n));
            }
        }
        let expanded = numerics.expand(programs)?;
        let placed = expanded.programs.iter().map(|p| place(&p.graph, self));
        let placement = Placement { workers: self.workers, programs: placed.collect() };
        Plan::new(programs, numerics, placement)
    }
}
