use crate::error::Error;
use crate::exec::Session;
use crate::graph::{Builder, Class, Program, Programs, Store};
use crate::native::{Native, NativeSession};
use crate::ops::{Access, Cut, Meta, Metas, Mismatch, Op};
use crate::plan::{Group, Numerics, Placement, PlannedPrograms, ProgramPlacement};
use crate::units::{Flops, NodeId, PersistentId, ProgramId, WorkerId};
use dahl_kernels::{Call, DType, Piece, Region, StepScalars};
use std::sync::Arc;

/// x ← x + 1.
#[derive(Debug)]
struct Increment;

impl Op for Increment {
    fn name(&self) -> &'static str {
        "increment"
    }

    fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta::new([], DType::I64)])
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
        Flops(1)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        let mut x = call.split().1.take::<i64>();
        let old = x.at([]);
        x.set([], old + 1);
    }
}

/// Two workers; program w increments value w on worker w.
fn session() -> NativeSession {
    let mut store = Store::default();
    let program = |w: usize| {
        let mut builder = Builder::new(&mut store);
        let x = builder.persistent(&format!("x{w}"), Meta::new([], DType::I64), Class::Buffer);
        builder.ops().update(Arc::new(Increment), &[], &[x]);
        let graph = builder.finish().expect("a graph");
        Program { name: format!("on {w}"), graph, output_slots: 2, turn: 0 }
    };
    let all: Vec<Program> = (0..2).map(program).collect();
    let programs = Programs { store, programs: all, ..Programs::default() };
    let placed = (0..2).map(|w| {
        let nodes = vec![NodeId(0)];
        let group = Group::new(nodes, vec![Vec::new()], vec![WorkerId(w)]);
        ProgramPlacement::new(vec![group])
    });
    let placement = Placement::new(2, placed.collect());
    let plan = PlannedPrograms::placed(
        &programs,
        Numerics::default_for(&programs, crate::Isa::detect()),
        placement,
    )
    .expect("a plan");
    let native = Native { spins: 0, ..Native::default() };
    native.prepare_native(&plan).expect("a session")
}

fn step(session: &mut NativeSession, program: u32) -> crate::Result<()> {
    let slot = session.slot(ProgramId(program))?;
    session.step(ProgramId(program), slot, StepScalars::default()).map(|_| ())
}

/// A worker that slept through steps in which it had no task found later ones
/// in their places, and ran those twice.
#[test]
fn a_worker_without_tasks_runs_later_steps_once() {
    let mut session = session();
    for _ in 0..500 {
        for program in [0, 0, 0, 0, 1] {
            step(&mut session, program).expect("a step");
        }
    }
    for (value, expected) in [(0, 2000), (1, 500)] {
        let mut found = 0;
        let read = session.read(PersistentId(value), &mut |x| found = x.as_slice::<i64>()[0]);
        read.expect("a value");
        assert_eq!(found, expected);
    }
}

/// A step could overwrite what a snapshot of the same program still showed.
#[test]
fn a_program_whose_snapshot_is_held_does_not_run() {
    let mut session = session();
    let snapshot = session.snapshot(ProgramId(0)).expect("the first");
    for _ in 0..3 {
        assert!(matches!(step(&mut session, 0), Err(Error::Config { .. })));
    }
    assert!(session.snapshot(ProgramId(0)).is_err());
    step(&mut session, 1).expect("another program runs");
    drop(snapshot);
    step(&mut session, 0).expect("it was dropped");
}
