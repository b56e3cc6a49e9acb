//! What happened in a run: typed events in one file format, and counters.
//!
//! A trace file is text, one JSON value a line: a [`Header`] that names the
//! codelets and tasks, then an [`Event`] a line in the order of their starts.
//! Times are nanoseconds since the session began.

use crate::error::{Error, Result};
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the file format.
pub const VERSION: u32 = 1;

/// What the events' numbers mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format.
    pub dahl_trace: u32,
    /// The engine that ran.
    pub engine: String,
    /// How tasks were given to workers: `static`, or a policy's name.
    pub scheduling: String,
    /// How many workers there were.
    pub workers: usize,
    /// The names of the codelets: an op in one variant.
    pub codelets: Vec<String>,
    /// The programs, with the names of their tasks.
    pub programs: Vec<ProgramHeader>,
    /// The names of the memories that bytes are moved between, where they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memories: Vec<String>,
}

/// A program's name and its tasks' names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramHeader {
    /// The program.
    pub name: String,
    /// The tasks, by index.
    pub tasks: Vec<String>,
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
        /// Whether the worker slept for a part of it.
        parked: bool,
    },
    /// Bytes were moved from a memory to another.
    Move {
        /// Where they were.
        source: u32,
        /// Where they are now.
        target: u32,
        /// How many.
        bytes: u64,
        /// When it began.
        from: u64,
        /// When it ended.
        to: u64,
    },
}

impl Event {
    /// When it began.
    pub fn start(&self) -> u64 {
        match *self {
            Event::Submit { at, .. } => at,
            Event::Call { from, .. } | Event::Wait { from, .. } | Event::Move { from, .. } => from,
        }
    }

    /// Converts its times by a factor: ticks to nanoseconds.
    pub(crate) fn scale(&mut self, factor: f64) {
        let scale = |t: &mut u64| *t = (*t as f64 * factor) as u64;
        match self {
            Event::Submit { at, .. } => scale(at),
            Event::Call { from, to, .. }
            | Event::Wait { from, to, .. }
            | Event::Move { from, to, .. } => {
                scale(from);
                scale(to);
            }
        }
    }
}

/// Events with the header that explains them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What the numbers mean.
    pub header: Header,
    /// What happened, by start.
    pub events: Vec<Event>,
}

/// How often a codelet ran and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeletCount {
    /// The op and its variant.
    pub name: String,
    /// How often it ran.
    pub calls: u64,
    /// For how long, all workers together.
    pub time: Nanos,
}

impl Trace {
    /// The trace as text, a line an event.
    pub fn to_text(&self) -> String {
        let line = |value: serde_json::Result<String>| value.expect("events are plain data") + "\n";
        let mut text = line(serde_json::to_string(&self.header));
        for event in &self.events {
            text += &line(serde_json::to_string(event));
        }
        text
    }

    /// Reads the text of a trace; `path` is for the errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let wrong = |line: usize, expected: &str, found: String| Error::Data {
            path: path.to_owned(),
            what: format!("line {line}"),
            expected: expected.to_owned(),
            found,
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
        Ok(Self { header, events: events.collect::<Result<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() {
        let header = Header { dahl_trace: VERSION, workers: 2, ..Header::default() };
        let events = vec![
            Event::Submit { step: 0, program: 1, at: 5 },
            Event::Call { step: 0, program: 1, task: 2, codelet: 3, worker: 0, from: 6, to: 9 },
            Event::Wait { worker: 1, from: 7, to: 8, parked: true },
            Event::Move { source: 0, target: 1, bytes: 64, from: 8, to: 9 },
        ];
        let trace = Trace { header, events };
        assert_eq!(Trace::parse(&trace.to_text(), Path::new("x")).unwrap(), trace);
        let error = Trace::parse("{}", Path::new("x")).unwrap_err();
        assert!(error.to_string().starts_with("x: line 1: expected a trace's header"), "{error}");
    }
}
