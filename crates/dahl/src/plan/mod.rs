//! The plan: how sums are taken, where and in what grain every op runs, and in
//! which memory.
//!
//! A [`Plan`] is plain data: [`Numerics`] decide the bits of the result,
//! [`Placement`] decides pieces, tasks and workers, and [`Memory`] gives every
//! value its bytes. Two plans with the same numerics give the same bits.
//! [`PlannedPrograms`] is a plan with the programs that it was checked against.
//!
//! [`TaskGraph`] is what a plan makes of a program: tasks with operands, and
//! edges where the regions of two tasks overlap or one reuses the bytes of the
//! other. How a plan is found, and how it is run, is not known here.

mod ancestors;
mod edges;
mod header;
mod limits;
mod memory;
mod moves;
mod numerics;
mod occupants;
mod pack;
mod placement;
mod planned;
mod print;
mod recompute;
mod show;
mod some;
mod space;
mod storage;
mod tasks;

pub use edges::Edges;
pub use limits::MemoryLimits;
pub use memory::{ALIGN, Memory, ProgramMemory, SpaceMemory};
pub use numerics::{Numerics, ProgramNumerics};
pub(crate) use placement::pieces;
pub use placement::{
    AxisCut, Group, MOST_PIECES, MOST_WORKERS, Pieces, Placement, ProgramPlacement,
};
pub use planned::PlannedPrograms;
pub use print::{VERSION, programs_hash};
pub use recompute::{Recompute, Repeated};
pub use some::Outline;
pub use space::{Replica, Space, SpaceKind};
pub use storage::{Home, Layout, Storage, StorageId};
pub use tasks::{CallSpec, Does, Move, OperandSpec, Task, TaskGraph, Use};

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
}
