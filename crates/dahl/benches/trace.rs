//! What recording an event costs: the same empty tasks with and without a trace, in turns.
//!
//! `cargo bench -p dahl --bench trace`

use dahl::exec::Session;
use dahl::graph::{Builder, Class, Program, Programs, Store};
use dahl::native::{Native, NativeSession};
use dahl::ops::{Access, Call, Cut, Meta, Metas, Mismatch, Op, Piece};
use dahl::plan::{Group, Numerics, Placement, PlannedPrograms, ProgramPlacement};
use dahl::units::{Flops, NodeId, ProgramId, WorkerId};
use dahl::{DType, Region, StepScalars};
use std::sync::Arc;
use std::time::Instant;

const TASKS: usize = 1_000;
/// A repetition has a million events.
const STEPS: usize = 1_000;
const REPETITIONS: usize = 9;
const PROGRAM: ProgramId = ProgramId(0);

fn main() {
    let silent = Native::default();
    let recording = Native { record: true, ..Native::default() };
    let mut sessions = [&silent, &recording].map(|engine| prepare(engine).expect("a session"));
    let mut extra = Vec::new();
    for repetition in 0..=REPETITIONS {
        let times = sessions.each_mut().map(measure);
        let events = sessions[1].take_trace().events.len();
        assert!(events >= STEPS * (TASKS + 1), "every call and every submission");
        // The first one warmed up.
        if repetition > 0 {
            extra.push((times[1] - times[0]) / events as f64);
        }
    }
    extra.sort_by(f64::total_cmp);
    println!("recording an event, {REPETITIONS} repetitions of {} events: ns", STEPS * TASKS);
    println!("{:>9} {:>9} {:>9}", "best", "median", "worst");
    let (median, worst) = (extra[extra.len() / 2], extra[extra.len() - 1]);
    println!("{:9.1} {median:9.1} {worst:9.1}   (at most 50)", extra[0]);
}

/// Nanoseconds of all steps.
fn measure(session: &mut NativeSession) -> f64 {
    let start = Instant::now();
    let mut last = None;
    for _ in 0..STEPS {
        let slot = session.slot(PROGRAM).expect("a slot");
        last = Some(session.step(PROGRAM, slot, StepScalars::default()).expect("a step"));
    }
    session.wait(last.expect("a step")).expect("no failure");
    start.elapsed().as_nanos() as f64
}

/// An op that does nothing to the value that it claims to update.
#[derive(Debug)]
struct Nothing(Meta);

impl Op for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![self.0])
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn cuts(&self, metas: Metas<'_>) -> Vec<Cut> {
        Cut::everywhere(metas)
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out]
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(0)
    }

    fn run(&self, _: usize, _: &mut Call<'_>) {}
}

fn prepare(engine: &Native) -> dahl::Result<NativeSession> {
    let mut store = Store::default();
    let mut builder = Builder::new(&mut store);
    let meta = Meta::new([], DType::F32);
    let value = builder.persistent("x", meta, Class::Buffer);
    for _ in 0..TASKS {
        builder.ops().update(Arc::new(Nothing(meta)), &[], &[value]);
    }
    let graph = builder.finish()?;
    let group =
        |n: usize| Group::new(vec![NodeId::new(n)], vec![Vec::new()], vec![WorkerId::new(0)]);
    let placed = ProgramPlacement::new((0..TASKS).map(group).collect());
    let program = Program { name: "empty".to_owned(), graph, output_slots: 2, turn: 0 };
    let programs = Programs { store, programs: vec![program], ..Programs::default() };
    let placement = Placement::new(1, vec![placed]);
    let numerics = Numerics::default_for(&programs, dahl::Isa::detect());
    engine.prepare_native(&PlannedPrograms::placed(&programs, numerics, placement)?)
}
