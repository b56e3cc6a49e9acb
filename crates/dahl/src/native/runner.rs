//! Prepared tasks and how a worker runs one.
#![expect(unsafe_code, reason = "calls kernels on operands that the plan has ordered")]

use super::check::Checker;
use super::memory::{Buffer, Buffers};
use super::sys::Ticks;
use crate::graph::{Graph, Programs};
use crate::ops::Op;
use crate::plan::{Home, Plan, TaskGraph, Use};
use crate::trace::Event;
use crate::units::TaskId;
use dahl_kernels::{Call, Isa, Operand, Piece, StepScalars};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Prepares the tasks of one program; `codelets` collects the names of ops
    /// and variants.
    pub(crate) fn new(
        index: usize,
        expanded: &Programs,
        plan: &Plan,
        graph: &TaskGraph,
        buffers: &Buffers,
        codelets: &mut Vec<String>,
    ) -> Self {
        let program: &Graph = &expanded.programs[index].graph;
        let memory = &plan.memory.programs[index];
        let output_slots = memory.output_slots;
        let tasks = graph.tasks.iter().map(|task| {
            let calls = task.calls.iter().map(|spec| {
                let node = program.node(spec.node);
                let variant = node.variant;
                let name = format!("{}.{}", node.op.name(), node.op.variants()[variant]);
                let codelet = codelets.iter().position(|c| *c == name).unwrap_or_else(|| {
                    codelets.push(name);
                    codelets.len() - 1
                });
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
                    variant,
                    inputs: spec.operands.iter().filter(|o| o.usage == Use::Read).count(),
                    piece: spec.piece.clone(),
                    operands: operands.collect(),
                    codelet: codelet as u32,
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
    /// Where each worker's counter stands when all steps before this one have
    /// ended, and all before the one before.
    pub(crate) base: Vec<u64>,
    pub(crate) base_before: Vec<u64>,
}

/// How often a codelet ran and for how many ticks, on one worker.
#[derive(Default)]
pub(crate) struct Counter {
    pub(crate) calls: AtomicU64,
    pub(crate) ticks: AtomicU64,
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
    /// Whether events are recorded.
    recording: bool,
    pub(crate) events: Vec<Event>,
    /// When the last thing ended: the next begins there.
    pub(crate) clock: u64,
    /// What is being run, for the report of a panic.
    pub(crate) running: Option<Running>,
}

impl WorkerState {
    pub(crate) fn new(index: usize, scratch: Arc<Buffer>, recording: bool) -> Self {
        Self { index, scratch, recording, events: Vec::new(), clock: 0, running: None }
    }

    /// Records a wait that ended now.
    pub(crate) fn waited(&mut self, ticks: &Ticks, parked: bool) {
        let now = ticks.now();
        if self.recording {
            let worker = self.index as u32;
            self.events.push(Event::Wait { worker, from: self.clock, to: now, parked });
        }
        self.clock = now;
    }
}

/// What all workers share to run tasks.
pub(crate) struct Runner {
    pub(crate) programs: Vec<PreparedProgram>,
    /// What tuned kernels use.
    pub(crate) isa: Isa,
    pub(crate) ticks: Ticks,
    /// By worker and codelet; a worker writes only its own.
    pub(crate) counters: Vec<Vec<Counter>>,
    pub(crate) checker: Option<Checker>,
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
            let now = self.ticks.now();
            let counter = &self.counters[worker.index][call.codelet as usize];
            // Only this worker writes its counters: no read-modify-write.
            let add = |to: &AtomicU64, n: u64| {
                to.store(to.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
            };
            add(&counter.calls, 1);
            add(&counter.ticks, now.wrapping_sub(worker.clock));
            if worker.recording {
                worker.events.push(Event::Call {
                    step: step.number,
                    program: step.program as u32,
                    task: task.0,
                    codelet: call.codelet,
                    worker: worker.index as u32,
                    from: worker.clock,
                    to: now,
                });
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
}
