//! Dynamic scheduling: a policy under one lock.

use super::gate::{Stopped, Waited};
use super::runner::StepRecord;
use super::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, lock, spin_loop, wait};
use crate::plan::{Does, Edges, Task, TaskGraph};
use crate::sched::{Policy, Ready};
use crate::units::{Nanos, ProgramId, SpaceId, TaskId, WorkerId};
use std::collections::VecDeque;
use std::sync::Arc;

/// What the tasks of one program wait for and who waits for them.
pub(crate) struct Dependencies {
    waits: Vec<u32>,
    next: Vec<Vec<TaskId>>,
    planned: Vec<WorkerId>,
    /// The tasks that another rank runs.
    elsewhere: Vec<bool>,
}

impl Dependencies {
    /// Of one program's own edges.
    pub(crate) fn new(graph: &TaskGraph) -> Self {
        let mut dependencies = Self::across(&graph.edges, graph.tasks.len());
        dependencies.planned = graph.tasks.iter().map(|t| t.worker).collect();
        let elsewhere = |t: &Task| matches!(t.does, Does::Elsewhere);
        dependencies.elsewhere = graph.tasks.iter().map(elsewhere).collect();
        dependencies
    }

    /// Of the edges from a program with `tasks` tasks.
    pub(crate) fn across(edges: &Edges, tasks: usize) -> Self {
        let mut next = vec![Vec::new(); tasks];
        for (t, preds) in edges.preds.iter().enumerate() {
            preds.iter().for_each(|p| next[p.index()].push(TaskId::new(t)));
        }
        let waits = edges.preds.iter().map(|p| p.len() as u32).collect();
        Self { waits, next, planned: Vec::new(), elsewhere: Vec::new() }
    }
}

/// A step that is under way.
struct Active {
    record: Arc<StepRecord>,
    waits: Vec<u32>,
    /// Given to a worker.
    taken: Vec<bool>,
    ended: Vec<bool>,
    left: usize,
}

impl Active {
    /// Takes a task that is ready and was not taken before.
    fn take(&mut self, task: TaskId) -> bool {
        let ready = self.waits.get(task.index()) == Some(&0);
        ready && !std::mem::replace(&mut self.taken[task.index()], true)
    }
}

struct State {
    policy: Box<dyn Policy>,
    active: VecDeque<Active>,
    /// How many steps have ended.
    ended_steps: u64,
    sleepers: usize,
    /// How many tasks the policy has and nobody has taken.
    ready: usize,
    /// The tasks that the last ended task made ready; kept for its memory.
    made_ready: Vec<Ready>,
}

/// The queue that all workers share.
pub(crate) struct Queue {
    own: Vec<Dependencies>,
    /// By the program before and the program after.
    across: Vec<Vec<Dependencies>>,
    state: Mutex<State>,
    wake: Condvar,
    /// Changes whenever there may be something new to do.
    news: AtomicUsize,
    stopped: AtomicBool,
    spins: u32,
    /// The space of each worker; lanes come behind the workers.
    space_of: Vec<SpaceId>,
}

/// What a worker says when it asks.
#[derive(Clone, Copy)]
pub(crate) struct Asking {
    pub(crate) worker: WorkerId,
    /// The task that it has ended, if it ran one.
    pub(crate) ended: Option<Ready>,
    /// Worker 0 asks until a step has ended; the others until the session
    /// stops.
    pub(crate) until: Option<u64>,
}

/// What a worker is told.
pub(crate) enum Next {
    /// Run this.
    Task(Ready, Arc<StepRecord>),
    /// The step that was waited for has ended.
    Ended,
}

impl Queue {
    /// `across(a, b)` are the edges from program a to program b when b runs next.
    pub(crate) fn new<'a>(
        graphs: &[TaskGraph],
        across: &dyn Fn(usize, usize) -> &'a Edges,
        policy: Box<dyn Policy>,
        spins: u32,
        space_of: Vec<SpaceId>,
    ) -> Self {
        let across = graphs.iter().enumerate().map(|(a, before)| {
            let edges = (0..graphs.len()).map(|b| across(a, b));
            edges.map(|edges| Dependencies::across(edges, before.tasks.len())).collect()
        });
        let state = State {
            policy,
            active: VecDeque::new(),
            ended_steps: 0,
            sleepers: 0,
            ready: 0,
            made_ready: Vec::new(),
        };
        Self {
            own: graphs.iter().map(Dependencies::new).collect(),
            across: across.collect(),
            state: Mutex::new(state),
            wake: Condvar::new(),
            news: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            spins,
            space_of,
        }
    }

    /// Adds a step; the steps before that are still under way are waited for task by
    /// task.
    pub(crate) fn submit(&self, record: Arc<StepRecord>, now: Nanos) {
        let mut state = lock(&self.state);
        let own = &self.own[record.program];
        let mut waits = own.waits.clone();
        for active in &state.active {
            let across = &self.across[active.record.program][record.program];
            for (t, ended) in active.ended.iter().enumerate() {
                if !ended {
                    across.next[t].iter().for_each(|n| waits[n.index()] += 1);
                }
            }
        }
        let here = |&t: &usize| !own.elsewhere[t];
        let left = (0..waits.len()).filter(here).count();
        let ready: Vec<usize> = (0..waits.len()).filter(here).filter(|&t| waits[t] == 0).collect();
        let (step, program) = (record.number, ProgramId::new(record.program));
        state.active.push_back(Active {
            record: record.clone(),
            taken: vec![false; waits.len()],
            ended: vec![false; waits.len()],
            waits,
            left,
        });
        state.ready += ready.len();
        for t in ready {
            let (planned, task) = (own.planned[t], TaskId::new(t));
            state.policy.ready(Ready { step, program, task, near: None, planned }, now);
        }
        if left == 0 {
            self.retire(&mut state);
        }
        self.announce(&state);
    }

    /// A task for a worker, after the one that it has ended, and how it waited for it:
    /// both under one lock, so that nobody else waits for it in between.
    pub(crate) fn next(
        &self,
        Asking { worker, ended, until }: Asking,
        clock: &dyn Fn() -> Nanos,
    ) -> Result<(Next, Waited), Stopped> {
        let mut waited = Waited::Not;
        let mut state = lock(&self.state);
        if let Some(ended) = ended {
            self.end(&mut state, ended, worker, clock());
        }
        let mut unannounced = ended.is_some();
        let mut spun = false;
        loop {
            if self.is_stopped() {
                return Err(Stopped);
            }
            let over = until.is_some_and(|step| state.ended_steps > step);
            let now = clock();
            let taken = if over { None } else { state.policy.next(worker, now) };
            state.ready -= usize::from(taken.is_some());
            // The others are told of what this worker leaves to them only: in
            // a chain that is nothing, and they are not called to the lock.
            if unannounced && state.ready > 0 {
                self.announce(&state);
            }
            unannounced = false;
            if over {
                return Ok((Next::Ended, waited));
            }
            if let Some(ready) = taken {
                let State { policy, active, .. } = &mut *state;
                let active = active.iter_mut().find(|a| a.record.number == ready.step);
                let active = active.and_then(|a| a.take(ready.task).then_some(a));
                let Some(active) = active else {
                    let (name, step) = (policy.name(), ready.step);
                    panic!(
                        "policy {name:?} gave {} of step {step}, which is not ready",
                        ready.task
                    );
                };
                let planned = self.own[active.record.program].planned[ready.task.index()];
                assert!(
                    self.may_run(worker, planned),
                    "policy {:?} gave {} to {worker}, which is in another space",
                    policy.name(),
                    ready.task
                );
                let record = active.record.clone();
                policy.started(ready, worker, now);
                return Ok((Next::Task(ready, record), waited));
            }
            if spun {
                // News come only under the lock that is held here.
                waited = Waited::Parked;
                state.sleepers += 1;
                state = wait(&self.wake, state);
                state.sleepers -= 1;
                spun = false;
                continue;
            }
            if waited == Waited::Not {
                waited = Waited::Spun;
            }
            let seen = self.news.load(Ordering::Acquire);
            drop(state);
            for _ in 0..self.spins {
                if self.news.load(Ordering::Acquire) != seen {
                    break;
                }
                spin_loop();
            }
            spun = true;
            state = lock(&self.state);
        }
    }

    /// A worker has ended a task: whoever waited for it alone is ready, which
    /// is to be announced once the worker has taken its next task.
    fn end(&self, state: &mut State, ready: Ready, worker: WorkerId, now: Nanos) {
        state.policy.ended(ready, worker, now);
        let at = state.active.iter().position(|a| a.record.number == ready.step);
        let at = at.expect("an ended task's step");
        let mut made_ready = std::mem::take(&mut state.made_ready);
        let program = state.active[at].record.program;
        state.active[at].ended[ready.task.index()] = true;
        state.active[at].left -= 1;
        let own = &self.own[program].next[ready.task.index()];
        release(&mut state.active[at], own, &self.own[program].planned, worker, &mut made_ready);
        for after in state.active.range_mut(at + 1..) {
            let next = after.record.program;
            let across = &self.across[program][next].next[ready.task.index()];
            release(after, across, &self.own[next].planned, worker, &mut made_ready);
        }
        state.ready += made_ready.len();
        for task in made_ready.drain(..) {
            state.policy.ready(task, now);
        }
        state.made_ready = made_ready;
        self.retire(state);
    }

    /// Whether a worker is in the space of the one that the plan names; a lane is by itself.
    fn may_run(&self, worker: WorkerId, planned: WorkerId) -> bool {
        let space = |w: WorkerId| self.space_of.get(w.index());
        worker == planned || space(worker).is_some() && space(worker) == space(planned)
    }

    /// Steps leave in order; somebody may wait for that.
    fn retire(&self, state: &mut State) {
        let before = state.ended_steps;
        while state.active.front().is_some_and(|a| a.left == 0) {
            state.active.pop_front();
            state.ended_steps += 1;
        }
        if state.ended_steps > before {
            self.announce(state);
        }
    }

    fn announce(&self, state: &State) {
        self.news.fetch_add(1, Ordering::Release);
        if state.sleepers > 0 {
            self.wake.notify_all();
        }
    }

    /// Ends all waiting, now and later.
    pub(crate) fn stop(&self) {
        let state = lock(&self.state);
        self.stopped.store(true, Ordering::Release);
        self.announce(&state);
    }

    /// Whether [`stop`](Self::stop) was called.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

fn release(
    active: &mut Active,
    next: &[TaskId],
    planned: &[WorkerId],
    worker: WorkerId,
    ready: &mut Vec<Ready>,
) {
    for &task in next {
        let waits = &mut active.waits[task.index()];
        *waits -= 1;
        if *waits == 0 {
            let (step, near) = (active.record.number, Some(worker));
            let (program, planned) = (ProgramId::new(active.record.program), planned[task.index()]);
            ready.push(Ready { step, program, task, near, planned });
        }
    }
}
