//! The plan: how sums are taken, where and in what grain every op runs, and in
//! which memory.
//!
//! A [`Plan`] has four sections: [`Numerics`] decide the bits of the result,
//! [`Placement`] decides pieces, tasks and workers, [`Memory`] gives every
//! value its bytes, and [`Prediction`] says what it will cost. Two plans with
//! the same numerics give the same bits. It exists only checked: [`Plan::new`]
//! and [`Plan::parse`] refuse what contradicts the programs.
//!
//! [`TaskGraph`] is what a plan makes of a program: tasks with operands, and
//! edges where the regions of two tasks overlap or one reuses the bytes of the
//! other. How a plan is found, and how it is run, is not known here.

mod bits;
mod edges;
mod header;
mod memory;
mod numerics;
mod placement;
mod print;
mod recompute;
mod show;
mod some;
mod storage;
mod tasks;

pub use edges::Edges;
pub use header::trace_header;
pub use memory::{ALIGN, Memory, ProgramMemory};
pub use numerics::{Numerics, ProgramNumerics};
pub use placement::{Group, MOST_PIECES, MOST_WORKERS, Placement, ProgramPlacement};
pub use print::{VERSION, programs_hash};
pub use recompute::{Recompute, Repeated};
pub use some::Outline;
pub use storage::{Home, Layout, Storage, StorageId};
pub use tasks::{CallSpec, OperandSpec, Task, TaskGraph, Use};

use crate::error::{Error, MemoryLimit, Result};
use crate::graph::Programs;
use crate::units::Nanos;

/// What a plan is expected to cost a step; `None` where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// The time of a training step.
    pub step: Option<Nanos>,
    /// The energy of a training step in joules.
    pub joules: Option<f64>,
}

/// Everything that has to be decided before programs can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What decides the bits.
    pub numerics: Numerics,
    /// What runs again for the backward pass; a part of the placement, since it
    /// changes no bit.
    pub recompute: Recompute,
    /// What decides the grain, the place and the order.
    pub placement: Placement,
    /// What decides the bytes.
    pub memory: Memory,
    /// What it is expected to cost.
    pub prediction: Prediction,
}

impl Plan {
    /// Checks the parts against the programs and plans the memory.
    pub fn new(programs: &Programs, numerics: Numerics, placement: Placement) -> Result<Self> {
        Self::with_recompute(programs, numerics, Recompute::none(programs), placement)
    }

    /// A plan in which some nodes run again for the backward pass; the placement
    /// is that of the graphs that [`Recompute::expand`] gives.
    pub fn with_recompute(
        programs: &Programs,
        numerics: Numerics,
        recompute: Recompute,
        placement: Placement,
    ) -> Result<Self> {
        let expanded = recompute.expand(&numerics, programs)?;
        let graphs = TaskGraph::build(&expanded, &placement)?;
        let memory = Memory::plan(&expanded, &placement, &graphs);
        let prediction = Prediction::default();
        let plan = Self { numerics, recompute, placement, memory, prediction };
        plan.check(programs)?;
        Ok(plan)
    }

    /// The task graphs of all programs, with the edges that the plan's memory
    /// asks for, and the programs with their partial sums and what runs again made
    /// explicit.
    pub fn task_graphs(&self, programs: &Programs) -> Result<(Programs, Vec<TaskGraph>)> {
        let expanded = self.recompute.expand(&self.numerics, programs)?;
        let mut graphs = TaskGraph::build(&expanded, &self.placement)?;
        self.memory.check_sizes(&expanded, &graphs)?;
        for (graph, memory) in graphs.iter_mut().zip(&self.memory.programs) {
            graph.add_reuse(memory)?;
        }
        Ok((expanded, graphs))
    }

    /// Checks that the plan fits the programs and does not contradict itself.
    pub fn check(&self, programs: &Programs) -> Result<()> {
        let (expanded, graphs) = self.task_graphs(programs)?;
        self.memory.check(&expanded, &self.placement, &graphs)
    }

    /// Refuses a plan whose peak is above a limit, naming the largest tensors.
    pub fn check_memory(&self, programs: &Programs, limit: impl Into<MemoryLimit>) -> Result<()> {
        let (needed, limit) = (self.memory.peak(), limit.into());
        if needed <= limit.bytes() {
            return Ok(());
        }
        let (expanded, graphs) = self.task_graphs(programs)?;
        let largest = self.memory.largest(&expanded, &graphs, 5);
        Err(Error::Memory { needed, limit, least: None, largest })
    }
}
