//! Run-time policies: which ready task a worker takes next.
//!
//! A [`Policy`] receives the tasks that became ready, started and ended, with
//! timestamps; it owns no thread, clock or lock, so that every engine can use
//! it.

mod confined;
mod critical_path;
mod earliest_finish;
mod expected;
mod first_come;
mod staged;
mod stealing;

pub use confined::Confined;
pub use critical_path::{CriticalPath, Rank, ranks};
pub use earliest_finish::{EarliestFinish, Expected};
pub use expected::{Expectations, TaskTimes, WorkerFigures};
pub use first_come::FirstCome;
pub use staged::Staged;
pub use stealing::WorkStealing;

use crate::names::named;
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
    /// The worker that ran the last task that it waited for: its caches may have the data.
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

/// The scheduling rule: the plan, or a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// The plan.
    #[default]
    Static,
    /// [`FirstCome`].
    FirstCome,
    /// [`WorkStealing`].
    WorkStealing,
    /// [`CriticalPath`].
    CriticalPath,
    /// [`EarliestFinish`].
    EarliestFinish,
    /// [`EarliestFinish`] with a weight of energy above idle.
    LeastEnergy,
}

named! {
    Rule {
        Static = "static": "The plan assigns each task to a worker and sets the order",
        FirstCome = "first-come": "A free worker takes the task that became ready first",
        WorkStealing = "work-stealing" | "stealing": "One queue of ready tasks per \
            worker; a worker with an empty queue takes a task from the longest queue",
        CriticalPath = "critical-path": "A free worker takes the ready task with the longest remaining \
            path in the task graph",
        EarliestFinish = "earliest-finish": "Each ready task goes to the worker with the earliest \
            expected finish time",
        LeastEnergy = "least-energy": "Each ready task goes to the worker with the least expected \
            finish time + `joule-seconds` x energy above idle",
    }
}

impl Rule {
    /// Whether the policy needs the times of tasks.
    pub fn expects(self) -> bool {
        !matches!(self, Rule::Static | Rule::FirstCome | Rule::WorkStealing)
    }

    /// The policy; a joule beyond idling is worth `joule` nanoseconds. `None` where the plan
    /// places tasks.
    pub fn policy(self, expected: &Expectations, joule: f64) -> Option<Box<dyn Policy>> {
        Some(match self {
            Rule::Static => return None,
            Rule::FirstCome => Box::new(FirstCome::default()),
            Rule::WorkStealing => Box::new(WorkStealing::new(expected.workers.len())),
            Rule::CriticalPath => Box::new(expected.critical_path()),
            Rule::EarliestFinish => Box::new(expected.earliest_finish(0.0)),
            Rule::LeastEnergy => Box::new(expected.earliest_finish(joule)),
        })
    }
}
