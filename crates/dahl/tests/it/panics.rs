//! Ops from outside of the crate: one that trains, and one that panics.

use crate::support::{SCHEDULINGS, engine, feed, grain, state};
use dahl::exec::Session;
use dahl::model::{Lowering, Model, Module, Optimizer, TrainSpec};
use dahl::native::Scheduling;
use dahl::ops::{Backprop, Call, Cut, Meta, Metas, Mismatch, Op, Piece, Recorder, Var};
use dahl::plan::{Plan, PlannedPrograms};
use dahl::planner::{Gather, Grain};
use dahl::train::Trainer;
use dahl::units::{Flops, SpaceId};
use dahl::{DType, Error, Region};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// On which thread, and at which call there, something happens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trip {
    Never,
    Driver(usize),
    Worker(usize),
}

/// What the op below asks for: no multiple of anything.
const SCRATCH: usize = 13;

/// y = x².
#[derive(Debug)]
struct Square {
    trip: Trip,
    calls: Arc<AtomicUsize>,
}

impl Op for Square {
    fn name(&self) -> &'static str {
        "square"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[0]])
    }

    fn cuts(&self, metas: Metas<'_>) -> Vec<Cut> {
        Cut::everywhere(metas)
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out; 2]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(piece.out.elements() as u64)
    }

    fn scratch(&self, _: usize, _: Metas<'_>, _: &Piece) -> usize {
        SCRATCH
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let half = g.mul(at.grad(), at.inputs[0]);
        Some(vec![Some(g.add(half, half))])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        let thread = std::thread::current();
        let worker = thread.name().is_some_and(|name| name.starts_with("dahl-"));
        let trips = match self.trip {
            Trip::Never => None,
            Trip::Driver(n) => (!worker).then_some(n),
            Trip::Worker(n) => worker.then_some(n),
        };
        if let Some(n) = trips {
            let calls = self.calls.fetch_add(1, Ordering::Relaxed);
            assert!(calls < n, "call {n} was one too many");
        }
        let region = call.piece.out;
        let (ins, mut outs, scratch) = call.split();
        assert_eq!(scratch.len(), SCRATCH);
        outs.take::<f64>().zip(&region, [&ins.get::<f64>(0)], |[x], y| {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x * x);
        });
    }
}

#[derive(Debug)]
struct SquareLayer(Trip);

impl Module for SquareLayer {
    fn lower(&self, x: Var, l: &mut Lowering<'_, '_>) -> Var {
        let op = Square { trip: self.0, calls: Arc::default() };
        l.ops().apply(Arc::new(op), &[x])[0]
    }
}

/// The same with the crate's own op.
#[derive(Debug)]
struct MulLayer;

impl Module for MulLayer {
    fn lower(&self, x: Var, l: &mut Lowering<'_, '_>) -> Var {
        l.ops().mul(x, x)
    }
}

fn trainer(
    layer: impl Module + 'static,
    scheduling: Scheduling,
    (pieces, gather): (usize, Gather),
) -> Trainer {
    let model = Model::sequential("squares", &[6], |s| {
        s.linear(8).relu().custom(layer).linear(8).relu().linear(5)
    });
    let spec = TrainSpec::new(8, DType::F64, Optimizer::sgd(0.05));
    let engine = engine(scheduling);
    Trainer::new(&model, &spec, grain(2, pieces, 1, gather), &engine).unwrap()
}

#[test]
fn an_op_from_outside_trains_as_the_crates_own() {
    for scheduling in SCHEDULINGS {
        let way = (2, Gather::On);
        let mut own = trainer(MulLayer, scheduling, way);
        let mut outside = trainer(SquareLayer(Trip::Never), scheduling, way);
        for seed in 0..10 {
            feed(&mut own, 8, seed).unwrap();
            feed(&mut outside, 8, seed).unwrap();
        }
        assert!(own.last_loss().unwrap() == outside.last_loss().unwrap());
        assert!(state(&mut own).unwrap() == state(&mut outside).unwrap(), "{scheduling:?}");
    }
}

#[test]
fn a_plan_with_too_little_scratch_is_refused() {
    let trainer = trainer(SquareLayer(Trip::Never), Scheduling::Static, (2, Gather::On));
    let mut plan = Plan::clone(trainer.plan());
    let needed = plan.memory.scratch(SpaceId(0));
    assert!(needed >= SCRATCH && needed.is_multiple_of(64), "whole lines per worker");
    plan.memory.programs[0].spaces[0].scratch = SCRATCH - 1;
    let error = PlannedPrograms::new(&trainer.lowered().programs, plan).unwrap_err().to_string();
    assert!(error.contains("bytes of scratch, found 12"), "{error}");
}

/// Runs `body` on a thread of its own; fails if it takes too long.
fn bounded<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(body());
    });
    match result.recv_timeout(Duration::from_secs(600)) {
        Ok(value) => {
            thread.join().unwrap();
            value
        }
        Err(e) => panic!("hangs or panics: {e}"),
    }
}

fn task_of(error: &Error) -> (String, String) {
    let Error::Task { task, message } = error else { panic!("expected a task's error: {error}") };
    (task.clone(), message.clone())
}

/// A panic ends the run with an error that names the task, again and again.
fn check(trip: Trip, scheduling: Scheduling, (pieces, gather): (usize, Gather)) {
    let errors = bounded(move || {
        let mut trainer = trainer(SquareLayer(trip), scheduling, (pieces, gather));
        // Which worker a dynamic policy gives a task to is its own affair: it
        // takes as many steps as it takes until the one that trips had enough.
        let first = (0..100_000).find_map(|seed| feed(&mut trainer, 8, seed).err());
        let mut errors = vec![first.expect("one of the steps fails")];
        for _ in 0..4 {
            errors.push(trainer.slot(8).map(drop).unwrap_err());
            errors.push(feed(&mut trainer, 8, 0).unwrap_err());
            errors.push(trainer.last_loss().unwrap_err());
            errors.push(trainer.read("0.weight").unwrap_err());
            errors.push(trainer.write("0.bias", &[0.0; 8]).unwrap_err());
            errors.push(trainer.snapshot().map(drop).unwrap_err());
        }
        drop(trainer);
        errors
    });
    let (task, message) = task_of(&errors[0]);
    let what = format!("{trip:?} {scheduling:?} {gather:?}: {task}: {message}");
    assert!(task.contains("square \"2\"") && !task.contains("linear"), "{what}");
    assert!(task.contains(&format!("of {pieces}")), "{what}");
    assert!(message.contains("was one too many"), "{what}");
    for error in &errors {
        assert_eq!(task_of(error), (task.clone(), message.clone()), "{what}");
    }
}

/// A panic on one of two ranks ends both, and the error names the rank and the task.
#[test]
fn a_panic_on_a_rank_ends_all_ranks() {
    for scheduling in SCHEDULINGS {
        // The worker of rank 1 is a thread, that of rank 0 the one that calls.
        for (trip, rank) in [(Trip::Worker(5), Some(1)), (Trip::Driver(5), None)] {
            let errors = bounded(move || {
                let model = Model::sequential("squares", &[6], |s| {
                    s.linear(8).relu().custom(SquareLayer(trip)).linear(5)
                });
                let spec = TrainSpec::new(8, DType::F64, Optimizer::sgd(0.05));
                let over = Grain { ranks: 2, spaces: 2, ..grain(2, 2, 1, Gather::Off) };
                let mut trainer = Trainer::new(&model, &spec, over, &engine(scheduling)).unwrap();
                let first = (0..100_000).find_map(|seed| feed(&mut trainer, 8, seed).err());
                let mut errors = vec![first.expect("one of the steps fails")];
                for _ in 0..3 {
                    errors.push(feed(&mut trainer, 8, 0).unwrap_err());
                    errors.push(trainer.last_loss().unwrap_err());
                    errors.push(trainer.write("0.bias", &[0.0; 8]).unwrap_err());
                    errors.push(trainer.snapshot().map(drop).unwrap_err());
                }
                errors
            });
            for error in &errors {
                let text = error.to_string();
                let found = match error {
                    Error::Rank { rank, .. } => Some(*rank),
                    Error::Task { .. } => None,
                    other => panic!("{other}"),
                };
                assert!(text.contains("square \"2\"") && text.contains("one too many"), "{text}");
                // Rank 0 may hear of its own panic by its messages.
                assert!(found == rank || found == Some(0), "{scheduling:?}: {text}");
            }
        }
    }
}

#[test]
fn a_panic_on_the_calling_worker_ends_the_run() {
    for scheduling in SCHEDULINGS {
        for calls in [0, 5] {
            check(Trip::Driver(calls), scheduling, (4, Gather::Off));
        }
    }
}

#[test]
fn a_panic_on_another_worker_ends_the_run() {
    for scheduling in SCHEDULINGS {
        for calls in [0, 5] {
            check(Trip::Worker(calls), scheduling, (4, Gather::Off));
        }
    }
}

#[test]
fn a_panic_in_a_long_task_names_the_op_that_panicked() {
    check(Trip::Driver(3), Scheduling::Static, (2, Gather::On));
    check(Trip::Worker(3), Scheduling::Static, (2, Gather::On));
}

#[test]
fn a_slot_that_is_held_outlives_a_failed_session() {
    let slot = bounded(|| {
        let mut trainer =
            trainer(SquareLayer(Trip::Driver(0)), Scheduling::Static, (2, Gather::On));
        let slot = trainer.slot(8).unwrap();
        let step = feed(&mut trainer, 8, 0).unwrap();
        trainer.loss(step).unwrap_err();
        Mutex::new(slot)
    });
    let mut slot = slot.into_inner().unwrap();
    slot.input("input").unwrap().write_f64([1.0; 48]).unwrap();
}

#[test]
fn dropping_a_session_with_steps_under_way_does_not_hang() {
    for scheduling in SCHEDULINGS {
        bounded(move || {
            let mut trainer = trainer(SquareLayer(Trip::Never), scheduling, (4, Gather::Off));
            feed(&mut trainer, 8, 0).unwrap();
            feed(&mut trainer, 8, 1).unwrap();
            let session: &mut dyn Session = trainer.session();
            assert!(session.allocated().0 > 0);
        });
    }
}
