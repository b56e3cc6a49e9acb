//! The time of workers without a codelet, by cause, and the largest gaps.
//!
//! | cause | is |
//! |---|---|
//! | no work | the step of the next call was not submitted yet: batches, the caller |
//! | transfer | it waited while bytes were moved |
//! | spinning | it waited for another worker's task, looking all the time |
//! | waiting | the same, and it slept for a part of it |
//! | overhead | the engine between submission and call, and between tasks; of worker 0 what the caller did then too, whose thread it is |

use super::super::calls::{CallAt, Calls};
use crate::trace::{Activity, Event};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of listed gaps.
const SHOWN: usize = 10;

/// The time of a worker by state, in nanoseconds; the parts sum to the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerUse {
    /// It ran codelets.
    pub busy: u64,
    /// Nothing was submitted that it could have run.
    pub no_work: u64,
    /// It slept until another worker's task had ended.
    pub waiting: u64,
    /// It waited while bytes were moved.
    pub transfer: u64,
    /// It looked for the end of another worker's task.
    pub spinning: u64,
    /// The engine itself; of worker 0 what the caller did after submissions too.
    pub overhead: u64,
}

/// A time in which a worker ran nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The worker.
    pub worker: u32,
    /// When it began.
    pub from: u64,
    /// When it ended.
    pub to: u64,
    /// Its main cause.
    pub cause: String,
    /// The step of the call that followed.
    pub step: u64,
    /// The event that ended it: the last task that the next one waited for, or a submission.
    pub ended_by: String,
    /// The task that followed.
    pub then: String,
}

/// A time without a call, before it is known what follows.
#[derive(Clone, Copy)]
enum Kind {
    Gap,
    Wait { parked: bool },
}

/// Where bytes are moved, as sums up to a time.
struct Moves(Vec<(u64, u64, u64)>);

impl Moves {
    fn of(calls: &Calls<'_>) -> Self {
        let moves = calls.trace.events.iter().filter_map(|event| match *event {
            Event::Move { from, to, .. } => Some((from, to)),
            _ => None,
        });
        let mut spans: Vec<(u64, u64)> = moves.collect();
        spans.sort_unstable();
        let mut merged: Vec<(u64, u64, u64)> = Vec::new();
        for (from, to) in spans {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to, 0)),
            }
        }
        let mut sum = 0;
        for span in &mut merged {
            span.2 = sum;
            sum += span.1 - span.0;
        }
        Self(merged)
    }

    /// Nanoseconds of transfers up to a time.
    fn up_to(&self, at: u64) -> u64 {
        let next = self.0.partition_point(|span| span.0 <= at);
        match next.checked_sub(1).map(|i| self.0[i]) {
            Some((from, to, before)) => before + at.min(to) - from,
            None => 0,
        }
    }
}

/// The state of one worker while events go by.
struct Line {
    free: u64,
    idle: Vec<(u64, u64, Kind)>,
    used: WorkerUse,
}

impl Line {
    /// Files the times since the last call; `submitted` is when the next call could have
    /// been run at the earliest. Gives the cause that took longest.
    fn file(&mut self, submitted: u64, moves: &Moves) -> &'static str {
        let before = self.used;
        for (from, to, kind) in self.idle.drain(..) {
            let ready = submitted.clamp(from, to);
            self.used.no_work += ready - from;
            let rest = to - ready;
            let moved = match kind {
                Kind::Wait { .. } => moves.up_to(to) - moves.up_to(ready),
                Kind::Gap => 0,
            };
            self.used.transfer += moved;
            let to = match kind {
                Kind::Gap => &mut self.used.overhead,
                Kind::Wait { parked: true } => &mut self.used.waiting,
                Kind::Wait { parked: false } => &mut self.used.spinning,
            };
            *to += rest - moved;
        }
        let now = self.used;
        let causes = [
            (now.no_work - before.no_work, "no work"),
            (now.waiting - before.waiting, "waiting"),
            (now.transfer - before.transfer, "transfer"),
            (now.spinning - before.spinning, "spinning"),
            (now.overhead - before.overhead, "overhead"),
        ];
        // The first of equal ones.
        causes.iter().rev().max_by_key(|cause| cause.0).map_or("", |cause| cause.1)
    }
}

pub(super) fn idle(calls: &Calls<'_>) -> (Vec<WorkerUse>, Vec<Gap>) {
    let (begin, end) = calls.window;
    let moves = Moves::of(calls);
    let mut submitted: BTreeMap<u64, u64> = BTreeMap::new();
    let mut lines: Vec<Line> = (0..calls.trace.header.workers)
        .map(|_| Line { free: begin, idle: Vec::new(), used: WorkerUse::default() })
        .collect();
    let mut gaps: Vec<(u64, u64, &'static str, usize)> = Vec::new();
    let mut next = 0;
    for event in &calls.trace.events {
        match *event {
            Event::Submit { step, at, .. } => {
                submitted.insert(step, at);
            }
            Event::Wait { worker, from, to, parked } => {
                let line = &mut lines[worker as usize];
                if from > line.free {
                    line.idle.push((line.free, from, Kind::Gap));
                }
                let from = from.max(line.free);
                if to > from {
                    line.idle.push((from, to, Kind::Wait { parked }));
                    line.free = to;
                }
            }
            Event::Call { step, worker, from, to, .. } => {
                let line = &mut lines[worker as usize];
                if from > line.free {
                    line.idle.push((line.free, from, Kind::Gap));
                }
                if let Some(&(first, ..)) = line.idle.first() {
                    let at = submitted.get(&step).copied().unwrap_or(0);
                    let cause = line.file(at, &moves);
                    gaps.push((first, from, cause, next));
                }
                line.used.busy += to.saturating_sub(from.max(line.free));
                line.free = line.free.max(to);
                next += 1;
            }
            Event::Move { .. } | Event::Preempt { .. } | Event::Replan { .. } => {}
        }
    }
    for line in &mut lines {
        if end > line.free {
            line.idle.push((line.free, end, Kind::Gap));
        }
        line.file(u64::MAX, &moves);
    }
    gaps.sort_by_key(|&(from, to, _, call)| (std::cmp::Reverse(to - from), from, call));
    gaps.truncate(SHOWN);
    let ends = if gaps.is_empty() { BTreeMap::new() } else { task_ends(calls, &gaps) };
    let shown = gaps.iter().map(|&(from, to, cause, index)| {
        let call = &calls.all[index];
        Gap {
            worker: call.worker,
            from,
            to,
            cause: match (cause, call.worker) {
                ("overhead", 0) => "the caller, or overhead".to_owned(),
                _ => cause.to_owned(),
            },
            step: call.step,
            ended_by: ended_by((calls, &ends), call, submitted.get(&call.step).copied()),
            then: calls.task(call).to_owned(),
        }
    });
    (lines.iter().map(|line| line.used).collect(), shown.collect())
}

/// When the tasks of some steps ended, and on which worker.
type Ends = BTreeMap<(u64, u32), (u64, u32)>;

fn task_ends(calls: &Calls<'_>, gaps: &[(u64, u64, &'static str, usize)]) -> Ends {
    let steps: std::collections::BTreeSet<u64> =
        gaps.iter().map(|gap| calls.all[gap.3].step).collect();
    let mut ends = BTreeMap::new();
    for call in calls.all.iter().filter(|call| steps.contains(&call.step)) {
        ends.insert((call.step, call.task), (call.to, call.worker));
    }
    ends
}

fn ended_by((calls, ends): (&Calls<'_>, &Ends), call: &CallAt, submitted: Option<u64>) -> String {
    let header = &calls.trace.header.programs[call.program as usize];
    let work = header.work.get(call.task as usize);
    let preds = work.into_iter().flat_map(|work| &work.after);
    let last = preds
        .filter_map(|&pred| ends.get(&(call.step, pred)).map(|&(to, worker)| (to, worker, pred)))
        .filter(|&(to, ..)| to <= call.from)
        .max();
    match (last, submitted) {
        (Some((to, ..)), Some(at)) if at > to => format!("submission of step {}", call.step),
        (None, Some(_)) => format!("submission of step {}", call.step),
        (Some((_, worker, pred)), _) => {
            format!("{} on worker {worker}", header.tasks[pred as usize])
        }
        (None, None) => String::new(),
    }
}

/// The states that counters have: the rest of the time is idle time and the engine's overhead,
/// which they do not tell apart.
pub(super) fn of_counters(activity: &Activity) -> Vec<WorkerUse> {
    let of = |worker: &crate::trace::WorkerTime| WorkerUse {
        busy: worker.busy,
        waiting: worker.parked,
        spinning: worker.spinning,
        no_work: activity.elapsed.saturating_sub(worker.busy + worker.parked + worker.spinning),
        ..WorkerUse::default()
    };
    activity.workers.iter().map(of).collect()
}
