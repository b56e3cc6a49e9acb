//! Policies that stay within their spaces.

use super::{Policy, Ready};
use crate::units::{Nanos, SpaceId, WorkerId};
use std::collections::VecDeque;
use std::fmt;

/// A policy of its own for the workers of each space, and a list for each lane: a task runs where
/// its operands are, in the space that the plan names, whatever a policy does.
pub struct Confined {
    /// By space.
    policies: Vec<Box<dyn Policy>>,
    space_of: Vec<SpaceId>,
    /// By lane: its moves, in the order in which they became ready.
    lanes: Vec<VecDeque<Ready>>,
}

impl Confined {
    /// A policy for each space, made by `policy` from the workers that it is for; each worker
    /// is in a space, and lanes come behind the workers.
    pub fn new(
        space_of: &[SpaceId],
        lanes: usize,
        policy: &dyn Fn(&[WorkerId]) -> Box<dyn Policy>,
    ) -> Self {
        let spaces = space_of.iter().map(|space| space.index() + 1).max().unwrap_or(1);
        let policies = (0..spaces).map(|s| {
            let own = (0..space_of.len()).filter(|&w| space_of[w].index() == s);
            policy(&own.map(WorkerId::new).collect::<Vec<_>>())
        });
        let lanes = vec![VecDeque::new(); lanes];
        Self { policies: policies.collect(), space_of: space_of.to_vec(), lanes }
    }

    fn lane(&mut self, worker: WorkerId) -> Option<&mut VecDeque<Ready>> {
        self.lanes.get_mut(worker.index().checked_sub(self.space_of.len())?)
    }

    fn of(&mut self, worker: WorkerId) -> Option<&mut Box<dyn Policy>> {
        let space = self.space_of.get(worker.index())?;
        self.policies.get_mut(space.index())
    }
}

impl fmt::Debug for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Confined").field("policy", &self.name()).finish_non_exhaustive()
    }
}

impl Policy for Confined {
    fn name(&self) -> &'static str {
        self.policies[0].name()
    }

    fn ready(&mut self, task: Ready, now: Nanos) {
        if let Some(lane) = self.lane(task.planned) {
            return lane.push_back(task);
        }
        let space = |w: WorkerId| self.space_of.get(w.index());
        let near = task.near.filter(|&near| space(near) == space(task.planned));
        if let Some(policy) = self.of(task.planned) {
            policy.ready(Ready { near, ..task }, now);
        }
    }

    fn next(&mut self, worker: WorkerId, now: Nanos) -> Option<Ready> {
        if let Some(lane) = self.lane(worker) {
            return lane.pop_front();
        }
        self.of(worker)?.next(worker, now)
    }

    fn started(&mut self, task: Ready, worker: WorkerId, now: Nanos) {
        if let Some(policy) = self.of(worker) {
            policy.started(task, worker, now);
        }
    }

    fn ended(&mut self, task: Ready, worker: WorkerId, now: Nanos) {
        if let Some(policy) = self.of(worker) {
            policy.ended(task, worker, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::WorkStealing;
    use crate::units::{ProgramId, TaskId};

    #[test]
    fn nobody_takes_what_is_in_another_space() {
        let spaces = [SpaceId(0), SpaceId(1), SpaceId(1)];
        let mut policy = Confined::new(&spaces, 2, &|_| Box::new(WorkStealing::new(3)));
        let ready = |task, planned, near| Ready {
            step: 0,
            program: ProgramId(0),
            task: TaskId(task),
            near: Some(WorkerId(near)),
            planned: WorkerId(planned),
        };
        // On a worker of space 1 though made near worker 0, and a move to space 1.
        for task in [ready(0, 2, 0), ready(1, 1, 2), ready(2, 4, 0)] {
            policy.ready(task, Nanos(0));
        }
        let mut taken = |w| policy.next(WorkerId(w), Nanos(0)).map(|r| r.task.0);
        assert_eq!([taken(0), taken(3)], [None, None]);
        assert_eq!([taken(4), taken(1), taken(1)], [Some(2), Some(1), Some(0)]);
    }
}
