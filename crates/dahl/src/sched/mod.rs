//! Run-time policies: which ready task a worker takes next.
//!
//! A [`Policy`] is told of tasks that became ready, started and ended, with
//! timestamps; it owns no thread, clock or lock, so that every engine can use
//! it.

mod critical_path;
mod earliest_finish;
mod expected;
mod first_come;
mod staged;
mod stealing;

pub use critical_path::{CriticalPath, Rank, ranks};
pub use earliest_finish::{EarliestFinish, Expected};
pub use expected::{Expectations, Rule, TaskTimes, WorkerFigures};
pub use first_come::FirstCome;
pub use staged::Staged;
pub use stealing::WorkStealing;

use crate::units::{Nanos, ProgramId, TaskId, WorkerId};

/// A task that waits for nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The step it belongs to.
    pub step: u64,
    /// The program of that step.
    pub program: ProgramId,
    /// The task of that program.
    pub task: TaskId,
    /// Who ran the last task that it waited for: the data may be near.
    pub near: Option<WorkerId>,
    /// The worker that the plan names.
    pub planned: WorkerId,
}

/// Decides which ready task a worker takes.
pub trait Policy: Send {
    /// Its name, for traces and reports.
    fn name(&self) -> &'static str;

    /// A task has become ready.
    fn ready(&mut self, task: Ready, now: Nanos);

    /// A worker asks for a task.
    fn next(&mut self, worker: WorkerId, now: Nanos) -> Option<Ready>;

    /// A worker has started a task.
    fn started(&mut self, _task: Ready, _worker: WorkerId, _now: Nanos) {}

    /// A worker has ended a task.
    fn ended(&mut self, _task: Ready, _worker: WorkerId, _now: Nanos) {}
}
