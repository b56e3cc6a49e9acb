//! Prepared tasks and how a worker runs one.
#![expect(unsafe_code, reason = "calls kernels on operands that the plan has ordered")]

use super::Throttle;
use super::check::Checker;
use super::counters::WorkerCounters;
use super::memory::{Buffer, Buffers};
use super::recording::Watch;
use crate::graph::{Graph, Programs};
use crate::ops::Op;
use crate::plan::{Home, Plan, TaskGraph, Use};
use crate::trace::{Event, Header};
use crate::units::TaskId;
use dahl_kernels::{Call, Isa, Operand, Piece, StepScalars};
use std::sync::Arc;

/// A call with everything that does not change from step to step.
pub(crate) struct PreparedCall {
    op: Arc<dyn Op>,
    variant: usize,
    inputs: usize,
    piece: Piece,
    /// By slots, see [`PreparedProgram::combination`]; one entry where the
    /// call touches no slot.
    operands: Vec<Box<[Operand]>>,
    codelet: u32,
    /// The codelet on this shape: what is counted.
    cell: u32,
    scratch: usize,
}

/// A task: its calls, in order.
pub(crate) struct PreparedTask {
    pub(crate) calls: Box<[PreparedCall]>,
}

/// A program's tasks.
pub(crate) struct PreparedProgram {
    pub(crate) tasks: Vec<PreparedTask>,
    output_slots: usize,
}

impl PreparedProgram {
    /// Prepares the tasks of one program; `header` numbers what they do.
    pub(crate) fn new(
        index: usize,
        expanded: &Programs,
        plan: &Plan,
        graph: &TaskGraph,
        buffers: &Buffers,
        header: &Header,
    ) -> Self {
        let program: &Graph = &expanded.programs[index].graph;
        let memory = &plan.memory.programs[index];
        let output_slots = memory.output_slots;
        // Those of earlier placements come first.
        let earlier = header.programs.len() - expanded.programs.len();
        let work = &header.programs[earlier + index].work;
        let tasks = graph.tasks.iter().zip(work).map(|(task, work)| {
            let calls = task.calls.iter().zip(&work.calls).map(|(spec, &(cell, _))| {
                let node = program.node(spec.node);
                let in_slots = spec.operands.iter().any(|o| {
                    let id = graph.layout.find(o.root, &o.root_region);
                    matches!(graph.layout.storages[id].home, Home::Input | Home::Output)
                });
                let combinations =
                    if in_slots { plan.memory.input_slots * output_slots } else { 1 };
                let operands = (0..combinations).map(|c| {
                    let slots = (c / output_slots, c % output_slots);
                    let of = |o| buffers.operand(index, program, &graph.layout, memory, o, slots);
                    spec.operands.iter().map(of).collect()
                });
                PreparedCall {
                    op: node.op.clone(),
                    variant: node.variant,
                    inputs: spec.operands.iter().filter(|o| o.usage == Use::Read).count(),
                    piece: spec.piece.clone(),
                    operands: operands.collect(),
                    codelet: header.cells[cell as usize].codelet,
                    cell,
                    scratch: spec.scratch,
                }
            });
            PreparedTask { calls: calls.collect() }
        });
        Self { tasks: tasks.collect(), output_slots }
    }

    /// The index of a call's operands for a pair of slots.
    fn combination(&self, input_slot: usize, output_slot: usize) -> usize {
        input_slot * self.output_slots + output_slot
    }
}

/// A step that is under way.
#[derive(Clone, Debug)]
pub(crate) struct StepRecord {
    pub(crate) number: u64,
    pub(crate) program: usize,
    /// The program of the step before, if there was one.
    pub(crate) before: Option<usize>,
    pub(crate) input_slot: usize,
    pub(crate) output_slot: usize,
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
}

impl WorkerState {
    pub(crate) fn new(index: usize, scratch: Arc<Buffer>) -> Self {
        let watch = Watch::default();
        let (events, clock) = (Vec::new(), 0);
        Self { index, scratch, recording: false, events, watch, clock, running: None }
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
    pub(crate) programs: Vec<PreparedProgram>,
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
    pub(crate) fn run(&self, worker: &mut WorkerState, step: &StepRecord, task: TaskId) {
        let program = &self.programs[step.program];
        worker.running = Some(Running { program: step.program, task, call: 0 });
        if let Some(checker) = &self.checker {
            checker.begin(worker.index, (step.program, step.output_slot), task);
        }
        for (i, call) in program.tasks[task.index()].calls.iter().enumerate() {
            worker.running = Some(Running { program: step.program, task, call: i });
            let combination = match call.operands.len() {
                1 => 0,
                _ => program.combination(step.input_slot, step.output_slot),
            };
            let scratch = if call.scratch == 0 {
                &mut [][..]
            } else {
                // SAFETY: each worker has scratch of its own.
                unsafe { worker.scratch.slice_mut(0, call.scratch) }
            };
            let operands = &call.operands[combination];
            // SAFETY: the plan orders this task with all others that touch its
            // operands, and the engine has met its edges.
            let mut args =
                unsafe { Call::new(operands, call.inputs, &call.piece, &step.scalars, scratch) }
                    .on(self.isa);
            call.op.run(call.variant, &mut args);
            let now = self.delayed(worker, step.number);
            let took = now.wrapping_sub(worker.clock);
            self.counters.ran(worker.index, call.cell, took);
            if worker.recording {
                worker.events.push(Event::Call {
                    step: step.number,
                    program: self.earlier + step.program as u32,
                    task: task.0,
                    codelet: call.codelet,
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
            if let Some(checker) = &self.checker {
                checker.after_call(step.program, task, i);
            }
        }
        if let Some(checker) = &self.checker {
            checker.end(worker.index, step.program, task);
        }
        worker.running = None;
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
