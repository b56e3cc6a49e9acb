//! Policies that know what jobs take, for a scenario.

use super::scenario::{Job, JobId, Scenario};
use crate::platform::Expanded;
use crate::sched::{CriticalPath, EarliestFinish, Ready, ranks};
use crate::units::{Joules, Nanos, TaskId, WorkerId};

impl Scenario {
    /// The policy that takes the job on the longest way to the end first.
    pub fn critical_path(&self) -> CriticalPath {
        let ids = || (0..self.jobs.len() as u32).map(JobId);
        let times: Vec<Nanos> = self.jobs.iter().map(time).collect();
        let preds = ids().map(|id| self.preds(id).iter().map(|p| TaskId(p.0)).collect());
        let ranks = ranks(&preds.collect::<Vec<Vec<TaskId>>>(), &times);
        CriticalPath::new(Box::new(move |ready| ranks[ready.task.index()]))
    }

    /// The policy that gives a job to the worker that ends it first; a joule beyond
    /// idling is worth `price` nanoseconds.
    pub fn earliest_finish(&self, on: &Expanded<'_>, price: f64) -> EarliestFinish {
        let units = self.workers.iter().map(|worker| {
            let unit = on.unit(worker.unit);
            let state = worker.state.map(|state| &unit.states[state]);
            let speed = unit.speed.value * state.map_or(1.0, |state| state.speed.value);
            let busy = state.map_or(unit.busy_watts, |state| state.busy_watts).value;
            (speed, busy - unit.idle_watts.value)
        });
        let units: Vec<(f64, f64)> = units.collect();
        let times: Vec<Nanos> = self.jobs.iter().map(time).collect();
        let expected = move |ready: &Ready, worker: WorkerId| {
            let (speed, watts) = units[worker.index()];
            let nanos = times[ready.task.index()].0 as f64 / speed;
            (Nanos(nanos.round() as u64), Joules(watts * nanos / 1e9))
        };
        EarliestFinish::weighted(self.workers.len(), Box::new(expected), price)
    }
}

/// What a job takes at a speed of 1; transfers have their own time, which depends on
/// others.
fn time(job: &Job) -> Nanos {
    match *job {
        Job::Compute { work, .. } => work,
        Job::Collective { time, .. } => time,
        Job::Transfer { .. } => Nanos(0),
    }
}
