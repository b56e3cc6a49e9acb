//! What the workers share, and the threads of those that are not worker 0.

use super::dynamic::{Asking, Next, Queue};
use super::gate::{Gate, Stopped, Waited};
use super::replay::{Lists, replay};
use super::runner::{Runner, Running, StepRecord, WorkerState};
use super::sync::{Mutex, lock};
use crate::error::{Error, Result};
use crate::exec::{Arenas, Buffer};
use crate::os::threads::{JoinHandle, spawn};
use crate::plan::PlannedPrograms;
use crate::trace::Event;
use crate::units::{Nanos, ProgramId, WorkerId};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The worker whose tasks run on the thread that calls the session: the first of its rank.
pub(super) fn driver(shared: &Shared) -> WorkerState {
    let first = shared.own[0].index();
    WorkerState::new(first, scratch_of(shared, first))
}

/// The scratch of a worker. Lanes need none: they copy, and exchange messages.
fn scratch_of(shared: &Shared, worker: usize) -> Arc<Buffer> {
    shared.buffers.scratch.get(worker).unwrap_or(&shared.buffers.scratch[0]).clone()
}

/// How tasks find their workers.
pub(super) enum Mode {
    /// As the plan says.
    Static { lists: Vec<Lists>, gate: Gate },
    /// As a policy says.
    Dynamic { queue: Queue },
}

/// Steps that can be under way, and a margin.
const RING: usize = 4;

/// Why a session has stopped.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// A task panicked, with this message.
    Panic { task: String, message: String },
    /// Another rank ended the run, or its messages cannot be sent.
    Rank { rank: u32, why: String },
}

/// What all workers share.
pub(super) struct Shared {
    pub(super) mode: Mode,
    pub(super) runner: Runner,
    pub(super) buffers: Arenas,
    pub(super) planned: PlannedPrograms,
    /// The first step that this placement runs.
    pub(super) first_step: u64,
    /// Static mode: the steps under way, by number.
    pub(super) steps: Vec<Mutex<Option<Arc<StepRecord>>>>,
    /// The workers and lanes that run here.
    pub(super) own: Vec<WorkerId>,
    /// The first failure.
    pub(super) failed: Mutex<Option<Failure>>,
    /// Events of workers other than 0, flushed a step at a time.
    pub(super) events: Mutex<Vec<Event>>,
}

impl Shared {
    pub(super) fn ring() -> Vec<Mutex<Option<Arc<StepRecord>>>> {
        (0..RING).map(|_| Mutex::new(None)).collect()
    }

    /// The counter of submitted steps stands behind those of the workers.
    fn submissions(&self) -> usize {
        self.planned.lanes()
    }

    /// How far each worker's counter goes on in a step of a program: one for
    /// each task and one for the end; in dynamic mode nobody counts by worker.
    pub(super) fn lengths(&self, program: usize) -> Vec<u64> {
        match &self.mode {
            Mode::Static { lists, .. } => lists[program].lengths().map(|tasks| tasks + 1).collect(),
            Mode::Dynamic { .. } => vec![0; self.planned.lanes()],
        }
    }

    /// How many steps may be under way at once: lists that are replayed know of the step
    /// before only.
    pub(super) fn under_way(&self) -> u64 {
        match &self.mode {
            Mode::Static { .. } => 2,
            Mode::Dynamic { .. } => self.planned.memory.under_way() as u64,
        }
    }

    /// How many waits for no task of its own a step may have: under a policy worker 0 asks
    /// until the step has ended.
    pub(super) fn waits_for_the_end(&self) -> usize {
        match &self.mode {
            Mode::Static { .. } => 0,
            Mode::Dynamic { .. } => 1,
        }
    }

    /// Makes a step known to all workers.
    pub(super) fn submit(&self, record: Arc<StepRecord>) {
        match &self.mode {
            Mode::Static { gate, .. } => {
                let number = record.number;
                *lock(&self.steps[number as usize % RING]) = Some(record);
                gate.publish(self.submissions(), number + 1);
            }
            Mode::Dynamic { queue } => queue.submit(record, self.now()),
        }
    }

    /// Runs worker 0's part of a step; in dynamic mode, whatever the policy
    /// gives it until the step has ended.
    pub(super) fn drive(
        &self,
        worker: &mut WorkerState,
        record: &StepRecord,
    ) -> Result<(), Stopped> {
        match &self.mode {
            Mode::Static { lists, gate } => {
                replay(lists, gate, &self.runner, worker, record, |_| ())
            }
            Mode::Dynamic { queue } => {
                worker.begin(&self.runner.counters, record);
                self.work(queue, worker, Some(record.number))
            }
        }
    }

    /// Waits until a step that worker 0 has driven has ended on all workers.
    pub(super) fn await_step(
        &self,
        step: u64,
        base: &[u64],
        base_before: Option<&[u64]>,
        submitted: u64,
    ) -> Result<()> {
        let Mode::Static { gate, .. } = &self.mode else {
            return self.check();
        };
        // The counters after the last step, or after the one before it; older
        // steps have ended.
        let ends = match (submitted - step, base_before) {
            (1, _) => base,
            (2, Some(before)) => before,
            _ => return self.check(),
        };
        for worker in self.own.iter().map(|w| w.index()) {
            if gate.wait(worker, ends[worker]).is_err() {
                return Err(self.failure());
            }
        }
        self.check()
    }

    /// Runs `body`; a panic in it fails the session.
    pub(super) fn guarded(
        &self,
        worker: &mut WorkerState,
        body: impl FnOnce(&Self, &mut WorkerState) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        match catch_unwind(AssertUnwindSafe(|| body(self, worker))) {
            Ok(result) => {
                if let Some(error) = worker.lost.take() {
                    self.fail_with(match error {
                        Error::Rank { rank, why } => Failure::Rank { rank, why },
                        other => {
                            let rank = self.planned.rank().unwrap_or(0);
                            Failure::Rank { rank, why: other.to_string() }
                        }
                    });
                }
                result
            }
            Err(panic) => {
                self.fail(worker.running, &*panic);
                Err(Stopped)
            }
        }
    }

    fn fail(&self, running: Option<Running>, panic: &(dyn Any + Send)) {
        let task = match running {
            Some(at) => {
                let (graph, tasks) = self.planned.program(ProgramId::new(at.program));
                tasks.call_label(graph, at.task, at.call)
            }
            None => "outside of any task".to_owned(),
        };
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let message = text.unwrap_or_else(|| "no message".to_owned());
        self.fail_with(Failure::Panic { task, message });
    }

    /// Ends the session, and the run on all ranks.
    fn fail_with(&self, failure: Failure) {
        lock(&self.failed).get_or_insert(failure);
        if let Some(transport) = &self.runner.transport {
            transport.abort(&self.failure().to_string());
        }
        self.stop();
    }

    /// The error of a stopped session.
    pub(super) fn failure(&self) -> Error {
        match &*lock(&self.failed) {
            Some(Failure::Panic { task, message }) => {
                Error::Task { task: task.clone(), message: message.clone() }
            }
            Some(Failure::Rank { rank, why }) => Error::Rank { rank: *rank, why: why.clone() },
            None => Error::Unsupported { what: "using a session that was stopped".to_owned() },
        }
    }

    /// The session's error, if it has failed.
    pub(super) fn check(&self) -> Result<()> {
        let stopped = match &self.mode {
            Mode::Static { gate, .. } => gate.is_stopped(),
            Mode::Dynamic { queue } => queue.is_stopped(),
        };
        if stopped { Err(self.failure()) } else { Ok(()) }
    }

    /// Ends all workers.
    pub(super) fn stop(&self) {
        match &self.mode {
            Mode::Static { gate, .. } => gate.stop(),
            Mode::Dynamic { queue } => queue.stop(),
        }
    }

    /// How many events others than worker 0 have recorded of steps that have ended.
    pub(super) fn count_events(&self) -> usize {
        lock(&self.events).len()
    }

    pub(super) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut lock(&self.events))
    }

    fn now(&self) -> Nanos {
        Nanos(self.runner.counters.ticks.nanos())
    }

    /// The life of a worker other than 0.
    fn live(&self, worker: &mut WorkerState) -> Result<(), Stopped> {
        match &self.mode {
            Mode::Static { lists, gate } => {
                for number in self.first_step.. {
                    worker.leave();
                    gate.wait(self.submissions(), number + 1)?;
                    let step = lock(&self.steps[number as usize % RING]).clone();
                    let step = step.expect("a submitted step");
                    // Whoever waits for the end of the step finds its events.
                    replay(lists, gate, &self.runner, worker, &step, |w| self.flush(w))?;
                }
                Ok(())
            }
            Mode::Dynamic { queue } => {
                worker.clock = self.runner.counters.ticks.now();
                self.work(queue, worker, None)
            }
        }
    }

    /// Runs what the policy gives, and files all waits in between.
    fn work(
        &self,
        queue: &Queue,
        worker: &mut WorkerState,
        until: Option<u64>,
    ) -> Result<(), Stopped> {
        let mut asking = Asking { worker: WorkerId::new(worker.index), ended: None, until };
        let clock = || self.now();
        loop {
            let (next, waited) = queue.next(asking, &clock)?;
            if waited != Waited::Not {
                worker.waited(&self.runner.counters, waited == Waited::Parked);
            }
            match next {
                Next::Ended => return Ok(()),
                Next::Task(ready, record) => {
                    worker.begin(&self.runner.counters, &record);
                    let ran = self.runner.run(worker, &record, ready.task);
                    ran.map_err(|error| worker.lost(error))?;
                    asking.ended = Some(ready);
                    if worker.index != self.own[0].index() {
                        self.flush(worker);
                    }
                }
            }
        }
    }

    fn flush(&self, worker: &mut WorkerState) {
        if !worker.events.is_empty() {
            lock(&self.events).append(&mut worker.events);
        }
    }
}

/// The threads of workers 1 and up.
#[derive(Default)]
pub(super) struct Threads {
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts the workers; each is pinned to its processor where there is one
    /// for each.
    pub(super) fn start(shared: &Arc<Shared>, processors: &[usize]) -> Result<Self> {
        let mut threads = Self::default();
        for index in shared.own[1..].iter().map(|worker| worker.index()) {
            let shared_in = shared.clone();
            let processor = processors.get(index).copied();
            let body = move || {
                if let Some(processor) = processor {
                    super::sys::pin(processor);
                }
                let mut worker = WorkerState::new(index, scratch_of(&shared_in, index));
                let _ = shared_in.guarded(&mut worker, |shared, worker| shared.live(worker));
                shared_in.flush(&mut worker);
            };
            let name = format!("dahl-{index}");
            match spawn(&name, body) {
                Ok(handle) => threads.handles.push(handle),
                Err(e) => {
                    shared.stop();
                    threads.join();
                    return Err(Error::thread(&name, e));
                }
            }
        }
        Ok(threads)
    }

    pub(super) fn join(&mut self) {
        for handle in self.handles.drain(..) {
            // A worker's panic was caught and reported by the session.
            let _ = handle.join();
        }
    }
}
