//! The task on the longest way to the end first.

use super::{Policy, Ready};
use crate::units::{Nanos, WorkerId};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// A lower bound on the time from the beginning of a task to the end of the step.
pub type Rank = Box<dyn Fn(&Ready) -> Nanos + Send>;

/// One list for all workers: the earliest step first, in it the task of the highest
/// rank, of equals the first.
pub struct CriticalPath {
    rank: Rank,
    ready: BTreeMap<(u64, Reverse<u64>, u32), Ready>,
}

impl CriticalPath {
    /// With the rank of every task; see [`ranks`].
    pub fn new(rank: Rank) -> Self {
        Self { rank, ready: BTreeMap::new() }
    }
}

impl fmt::Debug for CriticalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriticalPath").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl Policy for CriticalPath {
    fn name(&self) -> &'static str {
        "critical-path"
    }

    fn ready(&mut self, task: Ready, _: Nanos) {
        let key = (task.step, Reverse((self.rank)(&task).0), task.task.0);
        self.ready.insert(key, task);
    }

    fn next(&mut self, _: WorkerId, _: Nanos) -> Option<Ready> {
        self.ready.pop_first().map(|(_, task)| task)
    }
}

/// The time from the beginning of each task to the end, over the longest way: that of
/// its own and of the longest that waits for it.
pub fn ranks(preds: &[Vec<crate::units::TaskId>], times: &[Nanos]) -> Vec<Nanos> {
    let mut ranks = times.to_vec();
    // Tasks come behind those that they wait for.
    for task in (0..preds.len()).rev() {
        for pred in &preds[task] {
            let through = times[pred.index()].0.saturating_add(ranks[task].0);
            ranks[pred.index()].0 = ranks[pred.index()].0.max(through);
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{ProgramId, TaskId};

    #[test]
    fn the_longest_way_goes_first_and_earlier_steps_before_later_ones() {
        // 0 -> 2 -> 3, 1 -> 3.
        let preds = [vec![], vec![], vec![TaskId(0)], vec![TaskId(1), TaskId(2)]];
        let ranks = ranks(&preds, &[1, 2, 5, 1].map(Nanos));
        assert_eq!(ranks, [7, 3, 6, 1].map(Nanos));
        let mut policy = CriticalPath::new(Box::new(move |ready| ranks[ready.task.index()]));
        let (near, planned, program) = (None, WorkerId(0), ProgramId(0));
        for (step, task) in [(1, 0), (0, 1), (0, 3), (0, 2), (0, 0)] {
            policy.ready(Ready { step, program, task: TaskId(task), near, planned }, Nanos(0));
        }
        let taken = std::iter::from_fn(|| policy.next(WorkerId(0), Nanos(0)));
        let taken: Vec<(u64, u32)> = taken.map(|r| (r.step, r.task.0)).collect();
        assert_eq!(taken, [(0, 0), (0, 2), (0, 1), (0, 3), (1, 0)]);
    }
}
