//! Model checks of the engine's protocols: every interleaving of a few threads
//! that loom finds, with a bound on preemptions.
//!
//! [`Cell`] is data that nothing but the protocol under test protects: loom
//! fails the model where two accesses of it are not ordered.
#![expect(unsafe_code, reason = "cells that the protocols under test make exclusive")]

use super::dynamic::{Asking, Next, Queue};
use super::gate::{Gate, Stopped, Waited};
use super::memory::Token;
use super::runner::StepRecord;
use super::{Native, NativeSession, Scheduling};
use crate::error::Error;
use crate::exec::{Session, Slots};
use crate::graph::{Builder, Class, Program, Programs, Store};
use crate::ops::{Access, Cut, Meta, Metas, Mismatch, Op};
use crate::plan::{
    Does, Edges, Group, Layout, Numerics, Placement, PlannedPrograms, ProgramPlacement, Task,
    TaskGraph,
};
use crate::sched::{FirstCome, Policy, Ready, WorkStealing};
use crate::units::{Flops, Nanos, NodeId, ProgramId, SpaceId, TaskId, WorkerId};
use dahl_kernels::{Call, DType, Piece, Region, StepScalars};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::sync::Arc as StdArc;

/// A number that is read and written without any ordering of its own.
#[derive(Debug)]
struct Cell(UnsafeCell<u64>);

// SAFETY: loom checks that accesses are ordered; that is the test.
unsafe impl Sync for Cell {}
// SAFETY: as above.
unsafe impl Send for Cell {}

impl Cell {
    fn new() -> StdArc<Self> {
        StdArc::new(Self(UnsafeCell::new(0)))
    }

    fn add(&self, n: u64) {
        // SAFETY: loom fails the model where this is not exclusive.
        self.0.with_mut(|p| unsafe { *p += n });
    }

    fn get(&self) -> u64 {
        // SAFETY: loom fails the model where somebody writes meanwhile.
        self.0.with(|p| unsafe { *p })
    }
}

/// Runs `body` in every interleaving with at most `preemptions` preemptions.
fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(body);
}

// The gate.

#[test]
fn a_published_value_carries_what_was_written_before() {
    for spins in [0, 1] {
        model(4, move || {
            let (gate, cell) = (Arc::new(Gate::new(1, spins)), Cell::new());
            let waiter = thread::spawn({
                let (gate, cell) = (gate.clone(), cell.clone());
                move || {
                    gate.wait(0, 2).expect("nobody stops");
                    cell.get()
                }
            });
            gate.publish(0, 1);
            cell.add(7);
            gate.publish(0, 2);
            assert_eq!(waiter.join().expect("no panic"), 7);
        });
    }
}

#[test]
fn two_workers_wait_for_each_other_in_turn() {
    for spins in [0, 1] {
        model(3, move || {
            let (gate, cell) = (Arc::new(Gate::new(2, spins)), Cell::new());
            let other = thread::spawn({
                let (gate, cell) = (gate.clone(), cell.clone());
                move || {
                    for turn in 1..=2 {
                        gate.wait(0, turn).expect("nobody stops");
                        cell.add(1);
                        gate.publish(1, turn);
                    }
                }
            });
            for turn in 1..=2 {
                cell.add(1);
                gate.publish(0, turn);
                gate.wait(1, turn).expect("nobody stops");
            }
            assert_eq!(cell.get(), 4);
            other.join().expect("no panic");
        });
    }
}

#[test]
fn two_waiters_for_different_values_are_both_woken() {
    model(2, || {
        let gate = Arc::new(Gate::new(1, 0));
        let waiters: Vec<_> = [1, 2]
            .into_iter()
            .map(|value| {
                let gate = gate.clone();
                thread::spawn(move || gate.wait(0, value).expect("nobody stops"))
            })
            .collect();
        gate.publish(0, 1);
        gate.publish(0, 2);
        waiters.into_iter().for_each(|w| assert_ne!(w.join().expect("no panic"), Waited::Spun));
    });
}

#[test]
fn a_stop_ends_waiting_and_a_reached_value_wins() {
    for spins in [0, 1] {
        model(3, move || {
            let (gate, cell) = (Arc::new(Gate::new(2, spins)), Cell::new());
            let never = thread::spawn({
                let gate = gate.clone();
                move || gate.wait(1, 1)
            });
            let maybe = thread::spawn({
                let (gate, cell) = (gate.clone(), cell.clone());
                move || gate.wait(0, 1).map(|_| assert_eq!(cell.get(), 1))
            });
            cell.add(1);
            gate.publish(0, 1);
            gate.stop();
            assert_eq!(never.join().expect("no panic"), Err(Stopped));
            let _ = maybe.join().expect("no panic");
            assert_eq!(gate.wait(1, 1), Err(Stopped));
        });
    }
}

// The token.

#[test]
fn a_dropped_token_orders_the_reads_before_the_next_write() {
    model(4, || {
        let (token, cell) = (Token::new(), Cell::new());
        let reader = thread::spawn({
            let (held, cell) = (token.hold(), cell.clone());
            move || {
                assert_eq!(cell.get(), 0);
                drop(held);
            }
        });
        if !token.is_held() {
            cell.add(1);
        }
        reader.join().expect("no panic");
        assert!(!token.is_held());
    });
}

// The dynamic queue.

/// A task graph of which the queue sees only workers, 0 and 1 in turn, and
/// edges.
fn tasks(preds: &[&[usize]]) -> TaskGraph {
    let edges = edges(preds);
    let task = |(piece, _)| Task {
        does: Does::Calls(Vec::new()),
        group: 0,
        piece,
        pieces: preds.len(),
        worker: WorkerId::new(piece % 2),
        space: SpaceId(0),
        copy: false,
    };
    let tasks = preds.iter().enumerate().map(task).collect();
    let layout = Layout { storages: Vec::new(), of_value: Vec::new() };
    TaskGraph { tasks, edges, layout }
}

fn edges(preds: &[&[usize]]) -> Edges {
    let of = |preds: &&[usize]| preds.iter().map(|&p| TaskId::new(p)).collect();
    Edges { preds: preds.iter().map(of).collect() }
}

fn record(number: u64) -> StdArc<StepRecord> {
    StdArc::new(StepRecord {
        number,
        program: 0,
        before: (number > 0).then_some(0),
        slots: Slots { input: 0, output: 0 },
        scalars: StepScalars::default(),
        recorded: false,
        base: Vec::new(),
        base_before: Vec::new(),
    })
}

/// Takes tasks until `until` or a stop; each task adds to its cell.
fn work(queue: &Queue, worker: u32, until: Option<u64>, cells: &[StdArc<Cell>]) -> Option<Stopped> {
    let mut asking = Asking { worker: WorkerId(worker), ended: None, until };
    loop {
        match queue.next(asking, &|| Nanos(0)) {
            Ok((Next::Task(ready, _), _)) => {
                cells[ready.task.index()].add(1);
                asking.ended = Some(ready);
            }
            Ok((Next::Ended, _)) => return None,
            Err(stopped) => return Some(stopped),
        }
    }
}

/// A driver that submits `steps` steps and up to two further workers; `cell_of`
/// says which tasks share a cell, which only edges protect.
fn check_queue(
    (preds, across, cell_of): (
        &'static [&'static [usize]],
        &'static [&'static [usize]],
        &'static [usize],
    ),
    policy: fn() -> Box<dyn Policy>,
    (steps, others, spins, preemptions): (u64, u32, u32, usize),
) {
    model(preemptions, move || {
        let (graph, across) = (tasks(preds), edges(across));
        let space_of = vec![SpaceId(0); 2.max(1 + others as usize)];
        let queue = Queue::new(&[graph], &|_, _| &across, policy(), spins, space_of);
        let queue = Arc::new(queue);
        let distinct: Vec<_> = preds.iter().map(|_| Cell::new()).collect();
        let cells: Vec<_> = cell_of.iter().map(|&c| distinct[c].clone()).collect();
        let workers: Vec<_> = (1..=others)
            .map(|w| {
                let (queue, cells) = (queue.clone(), cells.clone());
                thread::spawn(move || work(&queue, w, None, &cells))
            })
            .collect();
        for step in 0..steps {
            queue.submit(record(step), Nanos(0));
            if step > 0 {
                assert_eq!(work(&queue, 0, Some(step - 1), &cells), None);
            }
        }
        assert_eq!(work(&queue, 0, Some(steps - 1), &cells), None);
        let ran: u64 = distinct.iter().map(|cell| cell.get()).sum();
        assert_eq!(ran, steps * preds.len() as u64, "every task ran once a step");
        queue.stop();
        workers.into_iter().for_each(|w| assert_eq!(w.join().expect("no panic"), Some(Stopped)));
    });
}

fn first_come() -> Box<dyn Policy> {
    Box::new(FirstCome::default())
}

fn stealing() -> Box<dyn Policy> {
    Box::new(WorkStealing::new(2))
}

#[test]
fn a_queue_runs_a_fork_and_a_join_once_each() {
    let diamond: (&[&[usize]], &[&[usize]], &[usize]) =
        (&[&[], &[0], &[0], &[1, 2]], &[&[], &[], &[], &[]], &[0, 1, 2, 0]);
    for spins in [0, 1] {
        check_queue(diamond, first_come, (1, 1, spins, 2));
        check_queue(diamond, stealing, (1, 1, spins, 2));
    }
}

#[test]
fn steps_of_a_queue_overlap_but_for_their_edges() {
    // Task 0 of a step follows task 1 of the step before: one cell for both.
    let chain: (&[&[usize]], &[&[usize]], &[usize]) = (&[&[], &[0]], &[&[1], &[]], &[0, 0]);
    check_queue(chain, first_come, (3, 1, 0, 2));
    // Independent tasks, each after itself.
    let wide: (&[&[usize]], &[&[usize]], &[usize]) = (&[&[], &[]], &[&[0], &[1]], &[0, 1]);
    check_queue(wide, stealing, (2, 1, 0, 2));
}

/// Gives each task to the worker that the plan names, and to nobody else.
#[derive(Default)]
struct AsPlanned(Vec<Ready>);

impl Policy for AsPlanned {
    fn name(&self) -> &'static str {
        "as-planned"
    }

    fn ready(&mut self, task: Ready, _: Nanos) {
        self.0.push(task);
    }

    fn next(&mut self, worker: WorkerId, _: Nanos) -> Option<Ready> {
        let at = self.0.iter().position(|task| task.planned == worker)?;
        Some(self.0.remove(at))
    }
}

#[test]
fn a_task_that_only_another_worker_may_run_wakes_it() {
    let chain: (&[&[usize]], &[&[usize]], &[usize]) = (&[&[], &[0]], &[&[1], &[]], &[0, 0]);
    check_queue(chain, || Box::new(AsPlanned::default()), (2, 1, 0, 2));
}

#[test]
fn a_queue_wakes_and_stops_two_sleepers() {
    check_queue((&[&[], &[0]], &[&[], &[]], &[0, 0]), first_come, (1, 2, 0, 1));
}

// Whole sessions.

/// Adds one to a cell; panics instead where told to.
#[derive(Debug)]
struct Count {
    cell: StdArc<Cell>,
    panics: bool,
}

impl Op for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta::new([], DType::F32)])
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out]
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(0)
    }

    fn run(&self, _: usize, _: &mut Call<'_>) {
        assert!(!self.panics, "told to");
        self.cell.add(1);
    }
}

/// One task of a program: the value that it updates (which is also the number
/// of its cell), its worker, and whether it panics.
type Spec = (usize, u32, bool);

/// A session of two workers over programs of such tasks, and its cells.
fn session(scheduling: Scheduling, programs: &[&[Spec]]) -> (NativeSession, Vec<StdArc<Cell>>) {
    let cells: Vec<_> = (0..2).map(|_| Cell::new()).collect();
    let mut store = Store::default();
    let mut all = Vec::new();
    let mut placed = Vec::new();
    for specs in programs {
        let mut builder = Builder::new(&mut store);
        for &(value, _, panics) in *specs {
            let meta = Meta::new([], DType::F32);
            let var = builder.persistent(&format!("v{value}"), meta, Class::Buffer);
            let cell = cells[value].clone();
            builder.ops().update(StdArc::new(Count { cell, panics }), &[], &[var]);
        }
        let graph = builder.finish().expect("a graph");
        let groups = specs.iter().enumerate().map(|(n, &(_, worker, _))| {
            Group::new(vec![NodeId::new(n)], vec![Vec::new()], vec![WorkerId(worker)])
        });
        placed.push(ProgramPlacement::new(groups.collect()));
        all.push(Program { name: format!("p{}", all.len()), graph, output_slots: 2, turn: 0 });
    }
    let programs = Programs { store, programs: all, ..Programs::default() };
    let placement = Placement::new(2, placed);
    let numerics = Numerics::default_for(&programs, crate::Isa::detect());
    let planned = PlannedPrograms::placed(&programs, numerics, placement).expect("a plan");
    let native = Native { scheduling, pin: false, spins: 0, ..Native::default() };
    (native.prepare_native(&planned).expect("a session"), cells)
}

fn step(session: &mut NativeSession, program: u32) -> crate::Result<()> {
    let program = ProgramId(program);
    let slot = session.slot(program)?;
    session.step(program, slot, StepScalars::default()).map(|_| ())
}

#[test]
fn a_replay_orders_tasks_within_and_between_steps() {
    model(2, || {
        let chain: &[Spec] = &[(0, 0, false), (0, 1, false)];
        let (mut session, cells) = session(Scheduling::Static, &[chain]);
        for _ in 0..2 {
            step(&mut session, 0).expect("a step");
        }
        let all = session.read(crate::units::PersistentId(0), &mut |_| ());
        all.expect("no failure");
        assert_eq!(cells[0].get(), 4);
    });
}

#[test]
fn a_worker_without_tasks_does_not_miss_steps() {
    model(2, || {
        // Four steps in which worker 1 has nothing to do, as many as the ring
        // of steps has places, then one in which it has.
        let programs: [&[Spec]; 2] = [&[(0, 0, false)], &[(1, 1, false)]];
        let (mut session, cells) = session(Scheduling::Static, &programs);
        for program in [0, 0, 0, 0, 1] {
            step(&mut session, program).expect("a step");
        }
        drop(session);
        assert!(cells[1].get() <= 1, "a step ran twice");
    });
}

#[test]
fn a_panic_on_any_worker_ends_the_session_with_its_name() {
    for scheduling in [Scheduling::Static, Scheduling::FirstCome] {
        for worker in [0, 1] {
            model(2, move || {
                // The task after it waits for ever on the other worker.
                let fails: &[Spec] = &[(0, worker, true), (0, 1 - worker, false)];
                let (mut session, cells) = session(scheduling, &[fails]);
                let ended =
                    step(&mut session, 0).and_then(|()| session.wait(crate::exec::StepId(0)));
                assert!(matches!(ended, Err(Error::Task { .. })), "{ended:?}");
                drop(session);
                assert_eq!(cells[0].get(), 0);
            });
        }
    }
}

#[test]
fn a_snapshot_that_is_read_elsewhere_keeps_its_program_from_running() {
    model(2, || {
        let (mut session, cells) = session(Scheduling::Static, &[&[(0, 1, false)]]);
        let snapshot = session.snapshot(ProgramId(0)).expect("the first");
        let reader = thread::spawn({
            let cell = cells[0].clone();
            move || {
                assert_eq!(cell.get(), 1);
                drop(snapshot);
            }
        });
        // Refused while it is read, by either way to run the program.
        if session.snapshot(ProgramId(0)).is_err() {
            let _ = step(&mut session, 0);
        }
        reader.join().expect("no panic");
        session.snapshot(ProgramId(0)).expect("it was dropped");
    });
}
