//! Policies that know what tasks take.

use super::{CriticalPath, EarliestFinish, Ready, ranks};
use crate::units::{Joules, Nanos, TaskId, WorkerId};

/// Expected times of tasks, and speed and power of workers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations {
    /// By program.
    pub programs: Vec<TaskTimes>,
    /// By worker.
    pub workers: Vec<WorkerFigures>,
    /// The workers that may run tasks; empty if all may.
    pub own: Vec<WorkerId>,
}

/// The tasks of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskTimes {
    /// The time of each at a speed of 1.
    pub times: Vec<Nanos>,
    /// The tasks of the same step that each waits for, which come before it.
    pub preds: Vec<Vec<TaskId>>,
}

/// Speed and power of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerFigures {
    /// Its speed.
    pub speed: f64,
    /// The watts of a busy one beyond those of an idle one.
    pub watts: f64,
}

impl Expectations {
    /// Workers that are alike, of which no task is known.
    pub fn of_workers(count: usize) -> Self {
        let workers = vec![WorkerFigures { speed: 1.0, watts: 0.0 }; count];
        Self { programs: Vec::new(), workers, own: Vec::new() }
    }

    /// The same for tasks that only some of the workers may run.
    pub fn among(&self, own: &[WorkerId]) -> Self {
        Self { own: own.to_vec(), ..self.clone() }
    }

    /// The task on the longest way to the end of its step first.
    pub fn critical_path(&self) -> CriticalPath {
        let ranks = self.programs.iter().map(|program| ranks(&program.preds, &program.times));
        let ranks: Vec<Vec<Nanos>> = ranks.collect();
        CriticalPath::new(Box::new(move |ready| ranks[ready.program.index()][ready.task.index()]))
    }

    /// Each task to the worker that ends it first; a joule beyond idling is worth `price`
    /// nanoseconds.
    pub fn earliest_finish(&self, price: f64) -> EarliestFinish {
        let workers = self.workers.clone();
        let times = self.programs.iter().map(|program| program.times.clone());
        let times: Vec<Vec<Nanos>> = times.collect();
        let expected = move |ready: &Ready, worker: WorkerId| {
            let WorkerFigures { speed, watts } = workers[worker.index()];
            let nanos = times[ready.program.index()][ready.task.index()].0 as f64 / speed;
            (Nanos(nanos.round() as u64), Joules(watts * nanos / 1e9))
        };
        let own = match &self.own[..] {
            [] => (0..self.workers.len()).collect(),
            own => own.iter().map(|w| w.index()).collect(),
        };
        EarliestFinish::among(own, self.workers.len(), Box::new(expected), price)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Rule;
    use crate::units::ProgramId;

    #[test]
    fn tasks_are_those_of_their_program() {
        let tasks = |times: [u64; 2]| TaskTimes {
            times: times.map(Nanos).to_vec(),
            preds: vec![Vec::new(); 2],
        };
        let worker = |speed| WorkerFigures { speed, watts: 1.0 };
        let known = Expectations {
            programs: vec![tasks([1, 9]), tasks([9, 1])],
            workers: vec![worker(1.0), worker(0.5)],
            own: Vec::new(),
        };
        let policy = |rule: Rule| rule.policy(&known, 0.0).expect("a policy");
        for (program, first) in [(0, 1), (1, 0)] {
            let program = ProgramId(program);
            let ready = |task| {
                let (near, planned) = (None, WorkerId(0));
                Ready { step: 0, program, task: TaskId(task), near, planned }
            };
            let mut longest = policy(Rule::CriticalPath);
            (0..2).for_each(|task| longest.ready(ready(task), Nanos(0)));
            assert_eq!(longest.next(WorkerId(1), Nanos(0)).map(|r| r.task.0), Some(first));
            let mut soonest = policy(Rule::EarliestFinish);
            soonest.ready(ready(first), Nanos(0));
            assert_eq!(soonest.next(WorkerId(1), Nanos(0)), None, "the first is faster");
            assert_eq!(soonest.next(WorkerId(0), Nanos(0)).map(|r| r.task.0), Some(first));
            let slow = known.among(&[WorkerId(1)]);
            let mut other = Rule::EarliestFinish.policy(&slow, 0.0).expect("a policy");
            other.ready(ready(first), Nanos(0));
            assert_eq!(other.next(WorkerId(0), Nanos(0)), None, "it is in another space");
            assert_eq!(other.next(WorkerId(1), Nanos(0)).map(|r| r.task.0), Some(first));
        }
    }
}
