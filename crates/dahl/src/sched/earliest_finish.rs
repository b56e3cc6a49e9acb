//! Each task to the worker that will end it first, or for the least energy.

use super::{Policy, Ready};
use crate::units::{Joules, Nanos, WorkerId};
use std::collections::VecDeque;
use std::fmt;

/// The expected time of a task on a worker, and its energy above idle.
pub type Expected = Box<dyn Fn(&Ready, WorkerId) -> (Nanos, Joules) + Send>;

/// A queue per worker. A task goes to the worker of the least cost: when it would end
/// there, and what it would take, as `price` weighs them. Of equals the first.
pub struct EarliestFinish {
    expected: Expected,
    /// The weight of a joule, in nanoseconds.
    price: f64,
    /// The workers that may run tasks.
    own: Vec<usize>,
    queues: Vec<VecDeque<(Ready, Nanos)>>,
    /// When each worker will have ended what it has.
    free: Vec<Nanos>,
}

impl EarliestFinish {
    /// By time alone: earliest finish by the performance model.
    pub fn new(workers: usize, expected: Expected) -> Self {
        Self::weighted(workers, expected, 0.0)
    }

    /// By time and energy: a joule is worth so many nanoseconds.
    pub fn weighted(workers: usize, expected: Expected, price: f64) -> Self {
        let workers = workers.max(1);
        Self::among((0..workers).collect(), workers, expected, price)
    }

    /// The same for tasks that only some of the workers may run: those of one space.
    pub fn among(own: Vec<usize>, workers: usize, expected: Expected, price: f64) -> Self {
        let queues = vec![VecDeque::new(); workers];
        Self { expected, price: price.max(0.0), own, queues, free: vec![Nanos(0); workers] }
    }
}

impl fmt::Debug for EarliestFinish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queues, free) = (&self.queues, &self.free);
        let mut debug = f.debug_struct("EarliestFinish");
        debug.field("price", &self.price).field("queues", queues).field("free", free);
        debug.finish_non_exhaustive()
    }
}

impl Policy for EarliestFinish {
    fn name(&self) -> &'static str {
        if self.price > 0.0 { "energy-weighted" } else { "earliest-finish" }
    }

    fn ready(&mut self, task: Ready, now: Nanos) {
        let cost = |w: usize| {
            let (time, joules) = (self.expected)(&task, WorkerId::new(w));
            let end = self.free[w].0.max(now.0).saturating_add(time.0);
            (end as f64 + self.price * joules.0, end, time)
        };
        let costs = self.own.iter().map(|&w| (w, cost(w)));
        let (best, (_, end, time)) =
            costs.min_by(|a, b| a.1.0.total_cmp(&b.1.0)).expect("a worker");
        self.free[best] = Nanos(end);
        self.queues[best].push_back((task, time));
    }

    fn next(&mut self, worker: WorkerId, now: Nanos) -> Option<Ready> {
        let own = worker.index() % self.queues.len();
        let (task, _) = self.queues[own].pop_front()?;
        // What was foreseen is set right by what has come to pass.
        let left: u64 = self.queues[own].iter().map(|(_, time)| time.0).sum();
        let (time, _) = (self.expected)(&task, worker);
        self.free[own] = Nanos(now.0 + time.0 + left);
        Some(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{ProgramId, TaskId};

    fn ready(task: u32) -> Ready {
        let (near, planned, program) = (None, WorkerId(0), ProgramId(0));
        Ready { step: 0, program, task: TaskId(task), near, planned }
    }

    /// Worker 1 takes twice as long for a tenth of the energy.
    fn expected() -> Expected {
        Box::new(|_, worker| match worker.index() {
            0 => (Nanos(10), Joules(10.0)),
            _ => (Nanos(20), Joules(1.0)),
        })
    }

    #[test]
    fn tasks_go_to_where_they_end_first() {
        let mut policy = EarliestFinish::new(2, expected());
        (0..3).for_each(|task| policy.ready(ready(task), Nanos(0)));
        let mut taken = |w| policy.next(WorkerId(w), Nanos(0)).map(|r| r.task.0);
        // Ends at 10 and 20 on the first, at 20 on the second: of equals the first.
        assert_eq!([taken(0), taken(0), taken(0)], [Some(0), Some(1), None]);
        assert_eq!([taken(1), taken(1)], [Some(2), None]);
    }

    #[test]
    fn what_is_worth_its_energy_waits_for_the_cheap_worker() {
        let mut policy = EarliestFinish::weighted(2, expected(), 100.0);
        (0..3).for_each(|task| policy.ready(ready(task), Nanos(0)));
        assert_eq!(policy.next(WorkerId(0), Nanos(0)), None);
        assert_eq!(policy.next(WorkerId(1), Nanos(0)).map(|r| r.task.0), Some(0));
    }
}
