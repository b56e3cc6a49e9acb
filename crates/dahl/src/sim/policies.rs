//! What policies expect: of a scenario's jobs, and of a plan's tasks.

use super::scenario::{Job, JobId, Scenario, Worker};
use super::steps::{Costs, task_costs};
use crate::error::Result;
use crate::plan::PlannedPrograms;
use crate::platform::Expanded;
use crate::sched::{CriticalPath, EarliestFinish, Expectations, TaskTimes, WorkerFigures};
use crate::units::{Nanos, ProgramId, TaskId};

impl Scenario {
    /// What the jobs are expected to take, as the tasks of one program.
    pub fn expectations(&self, on: &Expanded<'_>) -> Expectations {
        Expectations {
            programs: vec![self.times()],
            workers: figures(on, &self.workers),
            own: Vec::new(),
        }
    }

    /// The policy that takes the job on the longest way to the end first.
    pub fn critical_path(&self) -> CriticalPath {
        Expectations { programs: vec![self.times()], ..Expectations::default() }.critical_path()
    }

    /// The policy that gives a job to the worker that ends it first; a joule beyond
    /// idling is worth `price` nanoseconds.
    pub fn earliest_finish(&self, on: &Expanded<'_>, price: f64) -> EarliestFinish {
        self.expectations(on).earliest_finish(price)
    }

    fn times(&self) -> TaskTimes {
        let ids = (0..self.jobs.len() as u32).map(JobId);
        let preds = ids.map(|id| self.preds(id).iter().map(|p| TaskId(p.0)).collect());
        TaskTimes { times: self.jobs.iter().map(time).collect(), preds: preds.collect() }
    }
}

/// What the tasks of a plan are expected to take on workers, program by program.
///
/// # Errors
/// Where nobody knows what a call takes.
pub fn expectations(
    planned: &PlannedPrograms,
    (on, workers): (&Expanded<'_>, &[Worker]),
    costs: &mut dyn Costs,
) -> Result<Expectations> {
    let mut all = Vec::with_capacity(planned.graphs().len());
    for (p, tasks) in planned.graphs().iter().enumerate() {
        let costs = task_costs((planned, ProgramId::new(p)), (on, workers), costs)?;
        let sum = |calls: &Vec<super::Cost>| calls.iter().map(|call| call.nanos).sum::<f64>();
        let times = costs.iter().map(|calls| Nanos(sum(calls).round() as u64)).collect();
        all.push(TaskTimes { times, preds: tasks.edges.preds.clone() });
    }
    Ok(Expectations { programs: all, workers: figures(on, workers), own: Vec::new() })
}

fn figures(on: &Expanded<'_>, workers: &[Worker]) -> Vec<WorkerFigures> {
    let of = |worker: &Worker| {
        let unit = on.unit(worker.unit);
        let state = worker.state.map(|state| &unit.states[state]);
        let speed = unit.speed.value * state.map_or(1.0, |state| state.speed.value);
        let busy = state.map_or(unit.busy_watts, |state| state.busy_watts).value;
        WorkerFigures { speed, watts: busy - unit.idle_watts.value }
    };
    workers.iter().map(of).collect()
}

/// What a job takes at a speed of 1; transfers have their own time, which depends on
/// others.
fn time(job: &Job) -> Nanos {
    match *job {
        Job::Compute { work, .. } | Job::Copy { work, .. } => work,
        Job::Collective { time, .. } => time,
        Job::Transfer { .. } => Nanos(0),
    }
}
