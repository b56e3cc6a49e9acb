//! The calls of a plan, measured where they run.
//!
//! A step of the plan is run again and again by one worker that records what each
//! call took, so that its data are as near as the calls before left them. Then the
//! same is done while another processor reads from memory.

use super::engine::{copies, overheads};
use super::stream::{Stream, of_streams};
use crate::error::Result;
use crate::exec::{Session, Slot};
use crate::graph::Class;
use crate::native::{Native, NativeSession, processors};
use crate::ops::Meta;
use crate::perf::{Contention, PerfModel, Series, Work};
use crate::plan::{Placement, PlannedPrograms, TaskGraph};
use crate::trace::Event;
use crate::units::{PersistentId, ProgramId, WorkerId};
use dahl_kernels::StepScalars;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Times of a shape that are kept of a run, alone and beside a stream.
const KEPT: [usize; 2] = [64, 16];
/// The fewest steps that count, and the most.
const STEPS: std::ops::Range<u64> = 2..100_000;
/// The part of the time that a thread has its processor, if nobody else has.
const OWN: f64 = 0.97;
/// Steps between looks at the clock.
const BATCH: u64 = 64;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Steps that count.
    pub steps: u64,
    /// Calls of a step.
    pub calls: usize,
    /// Shapes that were measured, over all codelets.
    pub shapes: usize,
    /// Steps that count beside a stream; 0 where there is one processor, or no time.
    pub steps_beside: u64,
}

/// Measures the calls that a plan's steps of a program consist of, on one worker and
/// for about `budget`, and adds them to a model as those of a kind of unit. A third
/// of the time is spent beside a stream, where there are two processors. Without any
/// time it is a few steps, alone.
///
/// The engine's overheads and the memory's bandwidth are measured where the model
/// does not have them yet, and copies between memories where the plan has several.
pub fn steps(
    planned: &PlannedPrograms,
    program: ProgramId,
    budget: Duration,
    kind: &str,
    into: &mut PerfModel,
) -> Result<Measured> {
    if into.overheads.is_none() {
        into.overheads = Some(overheads()?);
    }
    if into.copies.is_none() && planned.placement.spaces.len() > 1 {
        into.copies = Some(copies()?);
    }
    let overhead = into.overheads.map_or(0.0, |o| o.overhead_ns);
    let planned = on_one_worker(planned)?;
    let (graph, tasks) = planned.program(program);
    let sites = Sites::new(tasks, |call| Work::of_node(graph, call.node, &call.piece));
    let engine = Native { record: true, ..Native::default() };
    let mut session = engine.prepare_native(&planned)?;
    fill(&mut session, &planned, program)?;

    let mut measure =
        |budget: Duration, contention: Contention, into: &mut PerfModel| -> Result<u64> {
            let mut series = vec![Vec::new(); sites.works.len()];
            let steps = run(&mut session, program, budget, |step| {
                sites.file(step, overhead, &mut series);
            })?;
            sites.add(&series, kind, contention, into);
            Ok(steps)
        };
    let accompanied = processors().len() > 1 && !budget.is_zero();
    let part = if accompanied { budget / 3 } else { Duration::ZERO };
    let steps = measure(budget - part, Contention::None, into)?;
    let mut steps_beside = 0;
    if accompanied {
        let stream = Stream::new();
        if into.bandwidth.is_none() {
            into.bandwidth = Some(of_streams([&stream, &Stream::new()])?);
        }
        let measure = || measure(part, Contention::Stream, into);
        steps_beside = stream.beside(10 * budget, measure)?;
    }
    let shapes = sites.count.len();
    Ok(Measured { steps, calls: sites.works.len(), shapes, steps_beside })
}

/// The same plan with all tasks on the first worker, in their order.
fn on_one_worker(planned: &PlannedPrograms) -> Result<PlannedPrograms> {
    let space_of = &planned.placement.space_of;
    let mut placement = Placement::new(1, planned.placement.programs.clone());
    for group in placement.programs.iter_mut().flat_map(|program| &mut program.groups) {
        let copies = group.copies(space_of);
        group.everywhere = false;
        group.workers = vec![WorkerId(0); group.workers.len() / copies];
    }
    // What runs again has tasks of its own in the placement.
    let (numerics, recompute) = (planned.numerics.clone(), planned.recompute.clone());
    PlannedPrograms::plan(planned.programs(), numerics, recompute, |_| Ok(placement))
}

/// A call that was recorded.
#[derive(Clone, Copy)]
struct Ran {
    step: u64,
    task: u32,
    nanos: u64,
}

/// The calls of a program, in the order in which one worker runs them.
struct Sites {
    works: Vec<Work>,
    /// Where the calls of each task begin.
    starts: Vec<usize>,
    /// How many calls have a shape.
    count: BTreeMap<(String, String, String), usize>,
}

impl Sites {
    fn new(graph: &TaskGraph, work: impl Fn(&crate::plan::CallSpec) -> Work) -> Self {
        let (mut works, mut starts) = (Vec::new(), Vec::new());
        for task in &graph.tasks {
            starts.push(works.len());
            works.extend(task.calls().iter().map(&work));
        }
        let mut count = BTreeMap::new();
        works.iter().for_each(|work| *count.entry(name(work)).or_default() += 1);
        Self { works, starts, count }
    }

    /// Files the calls of a recorded step. What the engine takes for a task is taken
    /// off its first call.
    fn file(&self, step: &[Ran], overhead: f64, series: &mut [Vec<u64>]) {
        for task in step.chunk_by(|a, b| a.task == b.task) {
            let start = self.starts[task[0].task as usize];
            for (call, ran) in task.iter().enumerate() {
                let taken = if call == 0 { overhead.round() as u64 } else { 0 };
                series[start + call].push(ran.nanos.saturating_sub(taken).max(1));
            }
        }
    }

    fn add(&self, series: &[Vec<u64>], kind: &str, contention: Contention, into: &mut PerfModel) {
        let kept = KEPT[usize::from(contention == Contention::Stream)];
        for (work, nanos) in self.works.iter().zip(series) {
            // As many of each place, so that the mean is that of a step.
            let most = kept.div_ceil(self.count[&name(work)]);
            into.add(&work.key(kind), work.features, Series { nanos, most, contention });
        }
    }
}

fn name(work: &Work) -> (String, String, String) {
    (work.codelet.clone(), work.variant.clone(), work.shape.clone())
}

/// Runs steps for a time, and hands out the calls of each but those of the first
/// tenth, and of those in which somebody else had the processor; how many there were.
fn run(
    session: &mut NativeSession,
    program: ProgramId,
    budget: Duration,
    mut file: impl FnMut(&[Ran]),
) -> Result<u64> {
    let begin = Instant::now();
    let mut steps = |count: u64| -> Result<(Vec<Ran>, Whose)> {
        let (wall, own) = (Instant::now(), thread_time());
        run_steps(session, &[program], count)?;
        let (wall, own) = (wall.elapsed(), thread_time() - own);
        let whose =
            if own.as_secs_f64() < OWN * wall.as_secs_f64() { Whose::Shared } else { Whose::Own };
        let calls = session.take_trace().events.into_iter().filter_map(|event| match event {
            Event::Call { step, task, from, to, .. } => Some(Ran { step, task, nanos: to - from }),
            _ => None,
        });
        Ok((calls.collect(), whose))
    };
    let mut batch = 1;
    loop {
        let from = Instant::now();
        steps(batch)?;
        if begin.elapsed() >= budget / 10 {
            break;
        }
        // Not so long that it goes far beyond the tenth.
        batch = if from.elapsed() < budget / 40 { (2 * batch).min(BATCH) } else { batch };
    }
    let (mut done, mut disturbed) = (0, Vec::new());
    let mut file = |calls: &[Ran]| calls.chunk_by(|a, b| a.step == b.step).for_each(&mut file);
    loop {
        let enough = begin.elapsed() >= budget || done >= STEPS.end;
        if enough && done + disturbed.len() as u64 >= STEPS.start {
            break;
        }
        // On a machine that is never at rest all steps count.
        match steps(if done < STEPS.start { 1 } else { batch })? {
            (calls, Whose::Own) => {
                file(&calls);
                done += if done < STEPS.start { 1 } else { batch };
            }
            (calls, Whose::Shared) if disturbed.len() < KEPT[0] => disturbed.push(calls),
            (_, Whose::Shared) => {}
        }
    }
    if done < STEPS.start {
        disturbed.iter().for_each(|calls| file(calls));
        done += disturbed.len() as u64;
    }
    Ok(done)
}

/// Runs some steps to their end.
pub(super) fn run_steps(
    session: &mut NativeSession,
    programs: &[ProgramId],
    count: u64,
) -> Result<()> {
    let mut last = None;
    for &program in programs.iter().cycle().take(count as usize) {
        let slot = session.slot(program)?;
        // Learning nothing keeps numbers as they are, for any number of steps.
        last = Some(session.step(program, slot, StepScalars::default())?);
    }
    last.map_or(Ok(()), |step| session.wait(step))
}

/// Whether a thread had its processor to itself.
enum Whose {
    Own,
    Shared,
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Fills what a program reads with numbers that stay finite.
pub(super) fn fill(
    session: &mut NativeSession,
    planned: &PlannedPrograms,
    program: ProgramId,
) -> Result<()> {
    let noise = |i: usize| ((i * 7919) % 2003) as f64 / 1001.0 - 1.0;
    for (i, value) in planned.programs().store.values.iter().enumerate() {
        let elements = value.meta.shape.elements();
        // What is summed over keeps its size: the terms are those of a row.
        let rows = value.meta.shape.axes().first().copied().unwrap_or(1).max(1);
        let scale = match value.class {
            Class::Parameter => (rows as f64 / elements.max(1) as f64).sqrt(),
            Class::Buffer | Class::Optimizer => 0.0,
        };
        let values = (0..elements).map(|i| scale * noise(i));
        session.write(PersistentId::new(i), &mut |mut to| to.write_f64(values.clone()))?;
    }
    let slots: Result<Vec<Slot>> =
        (0..planned.memory.input_slots).map(|_| session.slot(program)).collect();
    for slot in &mut slots? {
        let inputs: Vec<(String, Meta)> =
            slot.inputs().map(|(name, meta)| (name.to_owned(), meta)).collect();
        for (name, meta) in inputs {
            let scale = if meta.dtype.is_float() { 1.0 } else { 0.0 };
            let values = (0..meta.shape.elements()).map(|i| scale * noise(i));
            slot.input(&name)?.write_f64(values)?;
        }
    }
    Ok(())
}
