//! What the engine takes besides kernels: tasks that do nothing.

use crate::error::Result;
use crate::exec::Session;
use crate::graph::{Builder, Class, Program, Programs, Store};
use crate::native::{Native, NativeSession, processors};
use crate::ops::{Access, Cut, Meta, Metas, Mismatch, Op};
use crate::perf::{Copies, Overheads};
use crate::plan::{Group, Numerics, Placement, PlannedPrograms, ProgramPlacement, Space};
use crate::trace::Event;
use crate::units::{Flops, NodeId, ProgramId, SpaceId, WorkerId};
use dahl_kernels::{Call, DType, Isa, Piece, Region, StepScalars};
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Tasks, or calls of a task, of a step. Code that is not optimised takes too long for figures
/// that anyone uses: it measures a few.
const CALLS: usize = if cfg!(debug_assertions) { 64 } else { 256 };
/// Steps of a repetition, and repetitions: their median counts.
const STEPS: usize = if cfg!(debug_assertions) { 4 } else { 20 };
const REPETITIONS: usize = 9;

const PROGRAM: ProgramId = ProgramId(0);

/// Measures them, in some milliseconds.
pub fn overheads() -> Result<Overheads> {
    let own = Native::default();
    let stepped = |session: &mut NativeSession| stepped(session, STEPS);
    let recording = Native { record: true, ..own.clone() };
    // What a call of a trace lasts that does nothing, in a task of its own and
    // among others in one task.
    let apart = called(&mut prepare(&recording, Shape::Tasks { workers: 1 }, CALLS)?)?;
    let together = called(&mut prepare(&recording, Shape::Together, CALLS)?)?;
    let task = stepped(&mut prepare(&own, Shape::Together, 1)?)?;
    let hop_ns = if processors().len() > 1 {
        let [here, there] = [1, 2].map(|workers| -> Result<f64> {
            let shape = Shape::Tasks { workers };
            Ok(stepped(&mut prepare(&own, shape, CALLS)?)? / CALLS as f64)
        });
        Some((there? - here?).max(0.0))
    } else {
        None
    };
    Ok(Overheads {
        overhead_ns: (apart - together).max(0.0),
        step_ns: (task - apart).max(0.0),
        hop_ns,
        spin_ns: spun(own.spins),
    })
}

/// Moves of a step, and steps of a repetition, with which copies are measured.
const MOVES: usize = 8;
const STEPS_OF_MOVES: usize = 2;
/// A value that takes no time to copy.
const SMALL: usize = 64;

/// Measures what copies between two memories of this machine take, in about a second: a value is
/// updated in the one and in the other in turn, by tasks that do nothing.
pub fn copies() -> Result<Copies> {
    let own = Native::default();
    let moved = |bytes: usize, calls: usize| -> Result<f64> {
        let session = &mut prepare(&own, Shape::Spaces { bytes }, calls)?;
        Ok(stepped(session, STEPS_OF_MOVES)? / calls as f64)
    };
    // From a worker to the lane, and from the lane to the other worker.
    let waited = moved(SMALL, CALLS)?;
    let mut copy_ns = [0.0; Copies::SIZES.len()];
    for (size, ns) in Copies::SIZES.into_iter().zip(&mut copy_ns) {
        *ns = (moved(size, MOVES)? - waited).max(0.0);
    }
    Ok(Copies { hop_ns: waited / 2.0, copy_ns })
}

/// How calls that do nothing, one after the other, become tasks.
#[derive(Clone, Copy)]
enum Shape {
    /// Each is one, on the workers in turn.
    Tasks { workers: usize },
    /// All are one.
    Together,
    /// Each is one, on two workers in two memories in turn, on a value of so many bytes.
    Spaces { bytes: usize },
}

fn prepare(engine: &Native, shape: Shape, calls: usize) -> Result<NativeSession> {
    let mut store = Store::default();
    let mut builder = Builder::new(&mut store);
    let meta = match shape {
        Shape::Spaces { bytes } => Meta::new([bytes / DType::F32.size()], DType::F32),
        _ => Meta::new([], DType::F32),
    };
    let value = builder.persistent("x", meta, Class::Buffer);
    for _ in 0..calls {
        builder.ops().update(Arc::new(Nothing(meta)), &[], &[value]);
    }
    let graph = builder.finish()?;
    let group = |nodes: std::ops::Range<usize>, worker: usize| {
        let cuts = vec![Vec::new(); nodes.len()];
        Group::new(nodes.map(NodeId::new).collect(), cuts, vec![WorkerId::new(worker)])
    };
    let in_turn = |workers| (0..calls).map(|n| group(n..n + 1, n % workers)).collect();
    let (workers, groups) = match shape {
        Shape::Together => (1, vec![group(0..calls, 0)]),
        Shape::Tasks { workers } => (workers, in_turn(workers)),
        Shape::Spaces { .. } => (2, in_turn(2)),
    };
    let program = Program { name: "nothing".to_owned(), graph, output_slots: 2, turn: 0 };
    let programs = Programs { store, programs: vec![program], ..Programs::default() };
    let placement = Placement::new(workers, vec![ProgramPlacement::new(groups)]);
    let placement = match shape {
        Shape::Spaces { .. } => Placement {
            spaces: vec![Space::host(0, 0), Space::host(0, 1)],
            space_of: vec![SpaceId(0), SpaceId(1)],
            ..placement
        },
        _ => placement,
    };
    let numerics = Numerics::default_for(&programs, Isa::detect());
    engine.prepare_native(&PlannedPrograms::placed(&programs, numerics, placement)?)
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

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out]
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(0)
    }

    fn run(&self, _: usize, _: &mut Call<'_>) {}
}

/// Nanoseconds of a step, of so many at a time.
fn stepped(session: &mut NativeSession, steps: usize) -> Result<f64> {
    median(|| {
        let begin = Instant::now();
        run(session, steps)?;
        Ok(begin.elapsed().as_nanos() as f64 / steps as f64)
    })
}

/// Nanoseconds of a call of a trace but for the first of each step.
fn called(session: &mut NativeSession) -> Result<f64> {
    median(|| {
        run(session, STEPS)?;
        let (mut time, mut calls, mut last) = (0.0, 0.0, None);
        for event in session.take_trace().events {
            if let Event::Call { step, from, to, .. } = event
                && last.replace(step) == Some(step)
            {
                time += (to - from) as f64;
                calls += 1.0;
            }
        }
        Ok(time / calls)
    })
}

fn run(session: &mut NativeSession, steps: usize) -> Result<()> {
    let mut last = None;
    for _ in 0..steps {
        let slot = session.slot(PROGRAM)?;
        last = Some(session.step(PROGRAM, slot, StepScalars::default())?);
    }
    last.map_or(Ok(()), |step| session.wait(step))
}

/// The median of some repetitions after one that warms up.
fn median(mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    measure()?;
    let times: Result<Vec<f64>> = (0..REPETITIONS).map(|_| measure()).collect();
    let mut times = times?;
    times.sort_by(f64::total_cmp);
    Ok(times[REPETITIONS / 2])
}

/// Nanoseconds of so many looks at a counter, as a worker has them before it sleeps.
fn spun(looks: u32) -> f64 {
    let (counter, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let (counter, stopped) = (black_box(&counter), black_box(&stopped));
    let begin = Instant::now();
    for _ in 0..looks {
        if counter.load(Ordering::Acquire) > 0 || stopped.load(Ordering::Acquire) {
            break;
        }
        spin_loop();
    }
    begin.elapsed().as_nanos() as f64
}
