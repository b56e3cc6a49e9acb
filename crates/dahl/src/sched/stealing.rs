//! Work stealing with locality.

use super::{Policy, Ready};
use crate::units::{Nanos, WorkerId};
use std::collections::VecDeque;

/// A queue per worker: a task goes to the worker that made its last operand, or
/// to the planned one; a worker without tasks steals the newest of the longest
/// queue.
#[derive(Debug)]
pub struct WorkStealing {
    queues: Vec<VecDeque<Ready>>,
}

impl WorkStealing {
    /// For a number of workers.
    pub fn new(workers: usize) -> Self {
        Self { queues: vec![VecDeque::new(); workers.max(1)] }
    }
}

impl Policy for WorkStealing {
    fn name(&self) -> &'static str {
        "work-stealing"
    }

    fn ready(&mut self, task: Ready, _: Nanos) {
        let home = task.near.unwrap_or(task.planned).index() % self.queues.len();
        self.queues[home].push_back(task);
    }

    fn next(&mut self, worker: WorkerId, _: Nanos) -> Option<Ready> {
        let own = worker.index() % self.queues.len();
        if let Some(task) = self.queues[own].pop_front() {
            return Some(task);
        }
        // Ties go to the lowest worker.
        let victim = (0..self.queues.len()).rev().max_by_key(|&w| self.queues[w].len())?;
        self.queues[victim].pop_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{ProgramId, TaskId};

    fn ready(task: u32, near: Option<u32>) -> Ready {
        let near = near.map(WorkerId);
        let program = ProgramId(0);
        Ready { step: 0, program, task: TaskId(task), near, planned: WorkerId(0) }
    }

    #[test]
    fn own_tasks_oldest_first_then_the_newest_of_the_longest_queue() {
        let mut policy = WorkStealing::new(3);
        let near = [Some(1), Some(1), Some(1), Some(2), None];
        for (task, near) in near.into_iter().enumerate() {
            policy.ready(ready(task as u32, near), Nanos(0));
        }
        let mut taken = |w| policy.next(WorkerId(w), Nanos(0)).map(|r| r.task.0);
        assert_eq!(taken(1), Some(0));
        assert_eq!(taken(0), Some(4));
        assert_eq!(taken(0), Some(2), "stolen from worker 1, who has two left");
        assert_eq!(taken(2), Some(3));
        assert_eq!(taken(2), Some(1));
        assert_eq!(taken(2), None);
    }
}
