//! Prepared tasks and how a worker runs one.
#![expect(unsafe_code, reason = "calls kernels on operands that the plan has ordered")]

use super::Throttle;
use super::check::Checker;
use super::counters::WorkerCounters;
use super::gate::Stopped;
use super::recording::Watch;
use crate::error::Error;
use crate::exec::{Buffer, PreparedCall, PreparedMessage, Slots, Transport};
use crate::trace::{Event, Header, TaskWork};
use crate::units::TaskId;
use dahl_kernels::{Isa, StepScalars};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A call, and what it is counted as.
pub(crate) struct CountedCall {
    call: PreparedCall,
    codelet: u32,
    /// The codelet on this shape: what is counted.
    cell: u32,
}

/// A message, and what it is counted as.
pub(crate) struct CountedMessage {
    message: PreparedMessage,
    codelet: u32,
    cell: u32,
}

/// Counts the messages of a program as the header of a trace, in which it has number `index`, says.
pub(crate) fn counted_messages(
    messages: BTreeMap<TaskId, PreparedMessage>,
    header: &Header,
    index: usize,
) -> BTreeMap<TaskId, CountedMessage> {
    let of = |(task, message): (TaskId, PreparedMessage)| {
        let half = usize::from(!message.is_sent());
        let (cell, _) = header.programs[index].work[task.index()].calls[half];
        let codelet = header.cells[cell as usize].codelet;
        (task, CountedMessage { message, codelet, cell })
    };
    messages.into_iter().map(of).collect()
}

/// A program's tasks: the calls of each, in order.
pub(crate) type CountedTasks = Vec<Box<[CountedCall]>>;

/// Counts the calls of a program as the header of a trace, in which it has number `index`, says.
pub(crate) fn counted(
    calls: Vec<Box<[PreparedCall]>>,
    header: &Header,
    index: usize,
) -> CountedTasks {
    let task = |(calls, work): (Box<[PreparedCall]>, &TaskWork)| {
        let calls = calls.into_iter().zip(&work.calls);
        let of = |(call, &(cell, _))| CountedCall {
            call,
            codelet: header.cells[cell as usize].codelet,
            cell,
        };
        calls.map(of).collect()
    };
    calls.into_iter().zip(&header.programs[index].work).map(task).collect()
}

/// A step that is under way.
#[derive(Clone, Debug)]
pub(crate) struct StepRecord {
    pub(crate) number: u64,
    pub(crate) program: usize,
    /// The program of the step before, if there was one.
    pub(crate) before: Option<usize>,
    pub(crate) slots: Slots,
    pub(crate) scalars: StepScalars,
    /// Whether its events are recorded.
    pub(crate) recorded: bool,
    /// Where each worker's counter stands when all steps before this one have
    /// ended, and all before the one before.
    pub(crate) base: Vec<u64>,
    pub(crate) base_before: Vec<u64>,
}

/// What a worker is at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) program: usize,
    pub(crate) task: TaskId,
    pub(crate) call: usize,
}

/// What a worker keeps to itself.
pub(crate) struct WorkerState {
    pub(crate) index: usize,
    scratch: Arc<Buffer>,
    /// Whether events of the step are recorded.
    recording: bool,
    pub(crate) events: Vec<Event>,
    watch: Watch,
    /// When the last thing ended: the next begins there.
    pub(crate) clock: u64,
    /// What is being run, for the report of a panic.
    pub(crate) running: Option<Running>,
    /// Why it cannot go on, where a message to or from another rank failed.
    pub(crate) lost: Option<Error>,
}

impl WorkerState {
    pub(crate) fn new(index: usize, scratch: Arc<Buffer>) -> Self {
        let watch = Watch::default();
        let (events, clock) = (Vec::new(), 0);
        let (running, lost) = (None, None);
        Self { index, scratch, recording: false, events, watch, clock, running, lost }
    }

    /// A message failed.
    pub(crate) fn lost(&mut self, error: Error) -> Stopped {
        self.lost = Some(error);
        Stopped
    }

    /// Turns to a step, or to a task of one.
    pub(crate) fn begin(&mut self, counters: &WorkerCounters, step: &StepRecord) {
        self.clock = counters.ticks.now();
        if step.recorded && !self.recording {
            self.watch.look(&counters.ticks, self.clock);
        }
        self.recording = step.recorded;
    }

    /// What follows is no part of a step.
    pub(crate) fn leave(&mut self) {
        self.recording = false;
    }

    /// Records a wait that ended now.
    pub(crate) fn waited(&mut self, counters: &WorkerCounters, parked: bool) {
        let now = counters.ticks.now();
        counters.waited(self.index, now.wrapping_sub(self.clock), parked);
        if self.recording {
            let worker = self.index as u32;
            self.events.push(Event::Wait { worker, from: self.clock, to: now, parked });
            if parked {
                // Whoever sleeps is off its processor too.
                self.watch.look(&counters.ticks, now);
            }
        }
        self.clock = now;
    }
}

/// What all workers share to run tasks.
pub(crate) struct Runner {
    pub(crate) programs: Vec<CountedTasks>,
    /// By program: the tasks that are messages.
    pub(crate) messages: Vec<BTreeMap<TaskId, CountedMessage>>,
    /// What messages go through, where there are other ranks.
    pub(crate) transport: Option<Arc<dyn Transport>>,
    /// What tuned kernels use.
    pub(crate) isa: Isa,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) checker: Option<Checker>,
    /// How many programs of earlier placements traces have.
    pub(crate) earlier: u32,
    /// Who is slowed down.
    pub(crate) throttles: Vec<Throttle>,
}

impl Runner {
    /// Runs a task of a step. Its dependencies have been met, which makes the
    /// access to its operands exclusive.
    ///
    /// # Errors
    /// Those of messages between ranks.
    pub(crate) fn run(
        &self,
        worker: &mut WorkerState,
        step: &StepRecord,
        task: TaskId,
    ) -> Result<(), Error> {
        let program = &self.programs[step.program];
        worker.running = Some(Running { program: step.program, task, call: 0 });
        if let Some(checker) = &self.checker {
            checker.begin(worker.index, (step.program, step.slots.output), task);
        }
        for (i, counted) in program[task.index()].iter().enumerate() {
            let call = &counted.call;
            worker.running = Some(Running { program: step.program, task, call: i });
            let scratch = if call.scratch() == 0 {
                &mut [][..]
            } else {
                // SAFETY: each worker has scratch of its own.
                unsafe { worker.scratch.slice_mut(0, call.scratch()) }
            };
            // SAFETY: the plan orders this task with all others that touch its
            // operands, and the engine has met its edges.
            unsafe { call.run(step.slots, &step.scalars, scratch, self.isa) };
            self.count(worker, step, task, (counted.cell, counted.codelet));
            if let Some(checker) = &self.checker {
                checker.after_call(step.program, task, i);
            }
        }
        if let Some(transport) = &self.transport
            && let Some(counted) = self.messages[step.program].get(&task)
        {
            // SAFETY: the plan orders this task with all others that touch its operands, and the
            // engine has met its edges.
            unsafe { counted.message.run(step.slots, &**transport)? };
            self.count(worker, step, task, (counted.cell, counted.codelet));
        }
        if let Some(checker) = &self.checker {
            checker.end(worker.index, step.program, task);
        }
        worker.running = None;
        Ok(())
    }

    /// Counts a call that has ended now, and records it where the step is recorded.
    #[inline]
    fn count(
        &self,
        worker: &mut WorkerState,
        step: &StepRecord,
        task: TaskId,
        (cell, codelet): (u32, u32),
    ) {
        let now = self.delayed(worker, step.number);
        let took = now.wrapping_sub(worker.clock);
        self.counters.ran(worker.index, cell, took);
        if worker.recording {
            worker.events.push(Event::Call {
                step: step.number,
                program: self.earlier + step.program as u32,
                task: task.0,
                codelet,
                worker: worker.index as u32,
                from: worker.clock,
                to: now,
            });
            if Watch::is_worth_a_look(took)
                && let Some((from, lost)) = worker.watch.look(&self.counters.ticks, now)
            {
                let worker_id = worker.index as u32;
                worker.events.push(Event::Preempt { worker: worker_id, from, to: now, lost });
            }
        }
        worker.clock = now;
    }

    /// Now, at the end of a call; later where the worker is throttled, who looks at the
    /// clock until a slower one would have ended it.
    #[inline]
    fn delayed(&self, worker: &WorkerState, step: u64) -> u64 {
        let ticks = &self.counters.ticks;
        let mut now = ticks.now();
        if self.throttles.is_empty() {
            return now;
        }
        let slow = |t: &&Throttle| t.worker == worker.index && t.from_step <= step;
        if let Some(throttle) = self.throttles.iter().rfind(slow) {
            let end = throttle.end([worker.clock, now]);
            while now < end {
                std::hint::spin_loop();
                now = ticks.now();
            }
        }
        now
    }
}
