//! Traces of runs: typed events in one file format, and counters.
//!
//! A trace file is text, one JSON value a line: a [`Header`] that names the
//! codelets and tasks, then an [`Event`] a line in the order of their starts.
//! Times are nanoseconds since the session began.

mod check;
mod counts;
mod follow;

pub(crate) use check::Ordinals;
pub use counts::{Activity, CodeletCount, Histogram, ShapeCount, WorkerCounts, WorkerTime};

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::Path;

/// The version of the file format.
pub const VERSION: u32 = 1;

/// The header of a trace: the lists that the events' numbers are indices of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format.
    pub dahl_trace: u32,
    /// The engine that ran.
    pub engine: String,
    /// The scheduling: `static`, or a policy's name.
    pub scheduling: String,
    /// Number of workers, and of lanes behind them.
    pub workers: usize,
    /// Number of lanes: they move data between memories, and compute nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lanes: usize,
    /// The units of a platform that they were on, where there is a platform.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<String>,
    /// The names of the codelets: an op in one variant.
    pub codelets: Vec<String>,
    /// The programs, with the names of their tasks.
    pub programs: Vec<ProgramHeader>,
    /// The codelets by shape, where it is known what tasks do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CodeletShape>,
    /// The places in the model that calls belong to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// The names of the memories that bytes are moved between, where they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memories: Vec<String>,
    /// The session of the run that it was recorded in, from 1, where there is a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Number of steps of the session, including those that were not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The bound on events that recording ended at, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<u64>,
    /// The placements that the run changed to, in order; it began with another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<PlacementHeader>,
}

pub(crate) fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Header {
    /// How many workers compute.
    pub fn computing(&self) -> usize {
        self.workers.saturating_sub(self.lanes)
    }

    /// The name of a worker: that of its unit, if known, else its number.
    pub fn worker_name(&self, worker: usize) -> String {
        self.units.get(worker).cloned().unwrap_or_else(|| format!("worker {worker}"))
    }
}

/// A placement that a run changed to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementHeader {
    /// Its grain.
    pub name: String,
    /// Why it was taken.
    pub why: String,
    /// The first of its programs; there are as many as at the beginning.
    pub program: u32,
}

/// A program's name and its tasks' names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramHeader {
    /// The program.
    pub name: String,
    /// The tasks, by index.
    pub tasks: Vec<String>,
    /// The calls of each task, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<TaskWork>,
    /// Dependencies of its tasks on the previous step, by the program of that step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub across: Vec<Across>,
}

/// Dependencies of tasks on the previous step, if that step runs a certain program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Across {
    /// The program of the step before.
    pub program: u32,
    /// A task, and one of that program that it waits for.
    pub waits: Vec<(u32, u32)>,
}

/// A codelet on operands of one shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeletShape {
    /// The codelet.
    pub codelet: u32,
    /// The boxes that are read and written, and the op's attributes.
    pub shape: String,
    /// Floating-point operations of a call.
    pub flops: u64,
    /// Bytes that a call reads and writes.
    pub bytes: u64,
}

/// The calls of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskWork {
    /// Its calls in their order, each as cell and layer.
    pub calls: Vec<(u32, u32)>,
    /// The tasks of the same step that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A step was handed to the engine.
    Submit {
        /// The step.
        step: u64,
        /// Its program.
        program: u32,
        /// When.
        at: u64,
    },
    /// A worker ran one op of a task.
    Call {
        /// The step.
        step: u64,
        /// Its program.
        program: u32,
        /// The task.
        task: u32,
        /// The codelet.
        codelet: u32,
        /// The worker.
        worker: u32,
        /// When it began.
        from: u64,
        /// When it ended.
        to: u64,
    },
    /// A worker had nothing to run: it spun, or it was parked.
    Wait {
        /// The worker.
        worker: u32,
        /// When it began.
        from: u64,
        /// When it ended.
        to: u64,
        /// Whether the worker slept during a part of the wait.
        parked: bool,
    },
    /// A worker was off its processor though it had something to run.
    Preempt {
        /// The worker.
        worker: u32,
        /// It was on its processor here.
        from: u64,
        /// And here.
        to: u64,
        /// The time off the processor, in nanoseconds.
        lost: u64,
    },
    /// Bytes were moved from a memory to another.
    Move {
        /// Where they were.
        source: u32,
        /// Where they are now.
        target: u32,
        /// The number of bytes.
        bytes: u64,
        /// When it began.
        from: u64,
        /// When it ended.
        to: u64,
    },
    /// It was decided by which placement the run goes on.
    Replan {
        /// The first step after it.
        step: u64,
        /// The placement: 0 as at the beginning, else one more than the index among the
        /// header's placements.
        placement: u32,
        /// The time of a step before, in nanoseconds.
        measured: u64,
        /// The predicted time of a step from now on.
        predicted: u64,
        /// When the decision began.
        from: u64,
        /// When the run went on.
        to: u64,
    },
}

impl Event {
    /// When it began.
    pub fn start(&self) -> u64 {
        match *self {
            Event::Submit { at, .. } => at,
            Event::Call { from, .. }
            | Event::Wait { from, .. }
            | Event::Preempt { from, .. }
            | Event::Move { from, .. }
            | Event::Replan { from, .. } => from,
        }
    }

    /// When it ended.
    pub fn end(&self) -> u64 {
        match *self {
            Event::Submit { at, .. } => at,
            Event::Call { to, .. }
            | Event::Wait { to, .. }
            | Event::Preempt { to, .. }
            | Event::Move { to, .. }
            | Event::Replan { to, .. } => to,
        }
    }

    /// The event of a rank among those of all ranks: `lane` gives the numbers of workers and lanes
    /// there, and the clock of the rank is so many nanoseconds behind.
    pub(crate) fn of_rank(&self, lane: &dyn Fn(u32) -> u32, behind: i64) -> Self {
        let shift = |t: &mut u64| *t = t.saturating_add_signed(behind);
        let mut event = *self;
        match &mut event {
            Event::Submit { at, .. } => shift(at),
            Event::Call { worker, from, to, .. }
            | Event::Wait { worker, from, to, .. }
            | Event::Preempt { worker, from, to, .. } => {
                *worker = lane(*worker);
                shift(from);
                shift(to);
            }
            Event::Move { from, to, .. } | Event::Replan { from, to, .. } => {
                shift(from);
                shift(to);
            }
        }
        event
    }

    /// Converts its times by a factor: ticks to nanoseconds.
    pub(crate) fn scale(&mut self, factor: f64) {
        let scale = |t: &mut u64| *t = (*t as f64 * factor) as u64;
        match self {
            Event::Submit { at, .. } => scale(at),
            Event::Call { from, to, .. }
            | Event::Wait { from, to, .. }
            | Event::Preempt { from, to, .. }
            | Event::Move { from, to, .. }
            | Event::Replan { from, to, .. } => {
                scale(from);
                scale(to);
            }
        }
    }
}

/// Events with the header that explains them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The header.
    pub header: Header,
    /// The events, ordered by start.
    pub events: Vec<Event>,
}

impl Trace {
    /// The trace as text, a line per event.
    pub fn to_text(&self) -> String {
        let mut text = Vec::new();
        self.write_to(&mut text).expect("memory takes all");
        String::from_utf8(text).expect("JSON is text")
    }

    /// Writes the text of the trace.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(&self.header)?;
        for event in &self.events {
            line.push(b'\n');
            out.write_all(&line)?;
            line.clear();
            serde_json::to_writer(&mut line, event)?;
        }
        line.push(b'\n');
        out.write_all(&line)
    }

    /// Reads the text of a trace; `path` is for the errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let wrong = |line: usize, expected: &str, found: String| {
            Error::data(path, format_args!("line {line}"), expected, found)
        };
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let header: Header =
            serde_json::from_str(first).map_err(|e| wrong(1, "a trace's header", e.to_string()))?;
        if header.dahl_trace != VERSION {
            let expected = format!("a trace of version {VERSION}");
            return Err(wrong(1, &expected, header.dahl_trace.to_string()));
        }
        let events = lines.enumerate().map(|(i, line)| {
            serde_json::from_str(line).map_err(|e| wrong(i + 2, "an event", e.to_string()))
        });
        let trace = Self { header, events: events.collect::<Result<_>>()? };
        trace.check().map_err(|(line, expected, found)| wrong(line, expected, found))?;
        Ok(trace)
    }

    /// Whether all numbers are indices of what the header lists, so that whoever
    /// reads a trace need not ask: else the line, what was expected, and what is there.
    fn check(&self) -> std::result::Result<(), (usize, &'static str, String)> {
        let header = &self.header;
        let within = |index: u32, all: usize| (index as usize) < all;
        for program in &header.programs {
            let calls = || program.work.iter().flat_map(|task| &task.calls);
            let whole = program.work.is_empty() || program.work.len() == program.tasks.len();
            let cells = calls().all(|&(cell, _)| within(cell, header.cells.len()));
            let layers = calls().all(|&(_, layer)| within(layer, header.layers.len()));
            let waits = |(t, task): (usize, &TaskWork)| task.after.iter().all(|&p| within(p, t));
            let waits = program.work.iter().enumerate().all(waits);
            let across = program.across.iter().all(|across| {
                let before = header.programs.get(across.program as usize);
                before.is_some_and(|before| {
                    let (own, others) = (program.tasks.len(), before.tasks.len());
                    across.waits.iter().all(|&(t, u)| within(t, own) && within(u, others))
                })
            });
            if !(whole && cells && layers && waits && across) {
                let expected = "the work of each task, by cells, layers and earlier tasks";
                return Err((1, expected, format!("other numbers in {:?}", program.name)));
            }
        }
        if !header.cells.iter().all(|cell| within(cell.codelet, header.codelets.len())) {
            return Err((1, "cells of the codelets", "other numbers".to_owned()));
        }
        if !header.placements.iter().all(|p| within(p.program, header.programs.len())) {
            return Err((1, "placements of the programs", "other numbers".to_owned()));
        }
        for (i, event) in self.events.iter().enumerate() {
            let of_program = |p: u32| header.programs.get(p as usize);
            let known = match *event {
                Event::Submit { program, .. } => of_program(program).is_some(),
                Event::Call { program, task, codelet, worker, .. } => {
                    of_program(program).is_some_and(|p| within(task, p.tasks.len()))
                        && within(codelet, header.codelets.len())
                        && within(worker, header.workers)
                }
                Event::Wait { worker, .. } | Event::Preempt { worker, .. } => {
                    within(worker, header.workers)
                }
                Event::Move { source, target, .. } => {
                    [source, target].iter().all(|&m| within(m, header.memories.len()))
                }
                Event::Replan { placement, .. } => within(placement, 1 + header.placements.len()),
            };
            if !known || event.end() < event.start() {
                let expected = "numbers of what the header lists, and an end after the start";
                return Err((i + 2, expected, format!("{event:?}")));
            }
        }
        check::calls(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            dahl_trace: VERSION,
            workers: 2,
            codelets: vec!["linear.gemm".to_owned()],
            cells: vec![CodeletShape {
                codelet: 0,
                shape: "f32[2]".to_owned(),
                flops: 4,
                bytes: 8,
            }],
            layers: vec!["fc".to_owned()],
            programs: vec![ProgramHeader {
                name: "train 2".to_owned(),
                tasks: vec!["t0".to_owned(), "t1".to_owned()],
                work: vec![
                    TaskWork { calls: vec![(0, 0)], after: vec![] },
                    TaskWork { calls: vec![(0, 0)], after: vec![0] },
                ],
                across: vec![Across { program: 0, waits: vec![(0, 1)] }],
            }],
            memories: vec!["ram".to_owned(), "gpu".to_owned()],
            placements: vec![PlacementHeader {
                name: "sample=3,shares=2:1".to_owned(),
                why: "worker 1 is slow".to_owned(),
                program: 0,
            }],
            ..Header::default()
        }
    }

    #[test]
    fn text_is_read_back() {
        let events = vec![
            Event::Submit { step: 0, program: 0, at: 5 },
            Event::Call { step: 0, program: 0, task: 1, codelet: 0, worker: 0, from: 6, to: 9 },
            Event::Wait { worker: 1, from: 7, to: 8, parked: true },
            Event::Preempt { worker: 1, from: 7, to: 9, lost: 2 },
            Event::Move { source: 0, target: 1, bytes: 64, from: 8, to: 9 },
            Event::Replan { step: 1, placement: 1, measured: 9, predicted: 6, from: 9, to: 10 },
        ];
        let trace = Trace { header: header(), events };
        assert_eq!(Trace::parse(&trace.to_text(), Path::new("x")).unwrap(), trace);
        let error = Trace::parse("{}", Path::new("x")).unwrap_err();
        assert!(error.to_string().starts_with("x: line 1: expected a trace's header"), "{error}");
    }

    #[test]
    fn times_that_do_not_add_up_are_refused() {
        let parsed = |events: Vec<Event>| {
            let text = Trace { header: header(), events }.to_text();
            Trace::parse(&text, Path::new("x")).map_err(|error| error.to_string())
        };
        let moved = |from, to| Event::Move { source: 0, target: 1, bytes: 64, from, to };
        let half = u64::MAX / 2;
        assert!(parsed(vec![moved(0, half)]).is_ok());
        // A time that two workers cannot both have, and three that are too much together.
        let expected = "expected times whose sum over all workers is below 2^64 ns";
        for events in [vec![moved(1, half + 1)], vec![moved(0, half); 3]] {
            let error = parsed(events).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn numbers_that_mean_nothing_are_refused() {
        let refused = |header: Header, events: Vec<Event>| {
            let text = Trace { header, events }.to_text();
            Trace::parse(&text, Path::new("x")).unwrap_err().to_string()
        };
        let wait = |worker, to| Event::Wait { worker, from: 7, to, parked: false };
        assert!(refused(header(), vec![wait(0, 8), wait(2, 8)]).starts_with("x: line 3: "));
        assert!(refused(header(), vec![wait(0, 6)]).starts_with("x: line 2: "));
        let (step, measured, predicted, from, to) = (0, 1, 1, 7, 8);
        let replan = Event::Replan { step, placement: 2, measured, predicted, from, to };
        assert!(refused(header(), vec![replan]).starts_with("x: line 2: "));
        let mut broken = header();
        broken.programs[0].work[0].after.push(1);
        assert!(refused(broken, vec![]).starts_with("x: line 1: "));
        let mut broken = header();
        broken.programs[0].across[0].waits.push((0, 2));
        assert!(refused(broken, vec![]).starts_with("x: line 1: "));
        let mut broken = header();
        broken.cells.clear();
        assert!(refused(broken, vec![]).starts_with("x: line 1: "));
    }
}
