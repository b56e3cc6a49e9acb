//! Everyone what the plan gives them, of several steps at once.

use super::{Policy, Ready};
use crate::units::{Nanos, WorkerId};
use std::collections::BTreeMap;

/// A list a worker: tasks go to the worker that the plan names. Of those that are ready the
/// earliest step's come first, in the plan's order: a pipeline's stage that has a part to
/// take back does so before it takes a new one in.
#[derive(Debug)]
pub struct Staged {
    ready: Vec<BTreeMap<(u64, u32), Ready>>,
}

impl Staged {
    /// For a number of workers.
    pub fn new(workers: usize) -> Self {
        Self { ready: vec![BTreeMap::new(); workers.max(1)] }
    }
}

impl Policy for Staged {
    fn name(&self) -> &'static str {
        "staged"
    }

    fn ready(&mut self, task: Ready, _: Nanos) {
        let own = task.planned.index() % self.ready.len();
        self.ready[own].insert((task.step, task.task.0), task);
    }

    fn next(&mut self, worker: WorkerId, _: Nanos) -> Option<Ready> {
        let own = worker.index() % self.ready.len();
        self.ready[own].pop_first().map(|(_, task)| task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{ProgramId, TaskId};

    #[test]
    fn the_earliest_step_first_and_nothing_of_others() {
        let mut policy = Staged::new(2);
        for (step, task, worker) in [(1, 0, 0), (0, 3, 0), (0, 1, 1), (0, 2, 0)] {
            let (task, planned) = (TaskId(task), WorkerId(worker));
            let ready = Ready { step, program: ProgramId(0), task, near: None, planned };
            policy.ready(ready, Nanos(0));
        }
        let mut taken = |w| policy.next(WorkerId(w), Nanos(0)).map(|r| (r.step, r.task.0));
        assert_eq!([taken(0), taken(0), taken(0)], [Some((0, 2)), Some((0, 3)), Some((1, 0))]);
        assert_eq!([taken(0), taken(1), taken(1)], [None, Some((0, 1)), None]);
    }
}
