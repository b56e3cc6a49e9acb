//! Tasks of one's own, as a file: for people who study schedules.
//!
//! ```toml
//! dahl_tasks = 1
//!
//! [[task]]
//! name = "A"
//! on = "desktop/core"       # a unit of the platform; "desktop[2]/core[5]" counts from 0
//! flops = 2e9               # or seconds = 0.04, at a speed of 1
//!
//! [[task]]
//! name = "B"
//! on = "desktop/gpu"
//! seconds = 1.5
//! traffic = 1e9             # bytes between memory and unit
//! after = [{ task = "A", bytes = 5e8 }]      # or just "A"
//! ```

use super::scenario::{Job, JobId, Scenario, Worker};
use crate::error::{Error, Fact, Result};
use crate::platform::{Expanded, UnitId};
use crate::units::{Bytes, Nanos};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// The version of the file format.
const VERSION: u32 = 1;

/// The longest task, and the most bytes: what is beyond is a mistake.
const LONGEST: f64 = 1e9;
const MOST: f64 = 1e18;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    dahl_tasks: Spanned<u32>,
    #[serde(default)]
    task: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    on: Spanned<String>,
    flops: Option<Spanned<f64>>,
    seconds: Option<Spanned<f64>>,
    traffic: Option<Spanned<f64>>,
    #[serde(default)]
    after: Vec<Spanned<After>>,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum After {
    Name(String),
    Bytes { task: String, bytes: f64 },
}

/// Tasks on the units of a platform.
#[derive(Clone, Debug)]
pub struct Tasks {
    /// The jobs: the tasks, and what is moved between them.
    pub scenario: Scenario,
    /// The names of tasks, with their jobs.
    pub names: Vec<(String, JobId)>,
}

struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
    on: &'a Expanded<'a>,
}

impl Tasks {
    /// Reads tasks; `path` is for the errors. A unit's tasks run in their order in
    /// the file; a task comes behind those that it waits for.
    pub fn parse(text: &str, path: &Path, on: &Expanded<'_>) -> Result<Self> {
        let reader = Reader { text, path, on };
        let file: File = toml::from_str(text).map_err(|e| {
            let span = e.span().unwrap_or(0..0);
            reader.wrong(&span, "tasks", "a file of tasks", e.message())
        })?;
        if *file.dahl_tasks.get_ref() != VERSION {
            let (span, found) = (file.dahl_tasks.span(), file.dahl_tasks.get_ref());
            return Err(reader.wrong(&span, "dahl_tasks", format!("{VERSION}"), found));
        }
        // Workers in the order in which tasks name their units.
        let mut workers: BTreeMap<UnitId, u32> = BTreeMap::new();
        let mut units = Vec::new();
        for entry in &file.task {
            let unit = reader.unit(&entry.get_ref().on)?;
            workers.entry(unit).or_insert_with(|| {
                units.push(Worker { unit, state: None });
                units.len() as u32 - 1
            });
        }
        let mut tasks = Self { scenario: Scenario::new(units), names: Vec::new() };
        let mut jobs: BTreeMap<String, (JobId, UnitId)> = BTreeMap::new();
        for entry in &file.task {
            let entry = entry.get_ref();
            let unit = reader.unit(&entry.on)?;
            let mut after = Vec::new();
            for pred in &entry.after {
                let (name, bytes) = match pred.get_ref() {
                    After::Name(name) => (name, 0.0),
                    After::Bytes { task, bytes } => (task, *bytes),
                };
                let bytes = reader.figure(&pred.span(), "bytes", bytes, MOST)?;
                let Some(&(job, from)) = jobs.get(name) else {
                    let expected = "the name of an earlier task";
                    return Err(reader.wrong(&pred.span(), "after", expected, format!("{name:?}")));
                };
                let [from, to] = [from, unit].map(|unit| on.units[unit.0 as usize].memory);
                let bytes = Bytes(bytes.round() as u64);
                after.push(match from == to {
                    true => job,
                    false => tasks.scenario.add(Job::Transfer { from, to, bytes }, &[job]),
                });
            }
            let work = reader.work(entry, unit)?;
            let traffic = match &entry.traffic {
                None => 0.0,
                Some(t) => reader.figure(&t.span(), "traffic", *t.get_ref(), MOST)?,
            };
            let traffic = Bytes(traffic.round() as u64);
            let job = Job::Compute { worker: workers[&unit], work, spread: 0.0, traffic };
            let id = tasks.scenario.add(job, &after);
            let name = entry.name.get_ref().clone();
            if jobs.insert(name.clone(), (id, unit)).is_some() {
                let span = entry.name.span();
                return Err(reader.wrong(&span, "name", "a unique name", format!("{name:?}")));
            }
            tasks.names.push((name, id));
        }
        Ok(tasks)
    }
}

impl Reader<'_> {
    fn wrong(
        &self,
        span: &Range<usize>,
        what: &str,
        expected: impl Into<Fact>,
        found: impl Into<Fact>,
    ) -> Error {
        let line = self.text[..span.start.min(self.text.len())].matches('\n').count() + 1;
        Error::data(self.path, format!("line {line}: {what}"), expected, found)
    }

    fn figure(&self, span: &Range<usize>, what: &str, value: f64, most: f64) -> Result<f64> {
        if value >= 0.0 && value <= most {
            return Ok(value);
        }
        Err(self.wrong(span, what, format!("a number from 0 to {most:e}"), value))
    }

    /// The time of a task at a speed of 1.
    fn work(&self, entry: &Entry, unit: UnitId) -> Result<Nanos> {
        let kind = self.on.unit(unit);
        let seconds = match (&entry.seconds, &entry.flops) {
            (Some(s), None) => self.figure(&s.span(), "seconds", *s.get_ref(), LONGEST)?,
            (None, Some(f)) => {
                let Some(rate) = kind.flops else {
                    let expected = format!("seconds: {:?} has no flops", kind.name);
                    return Err(self.wrong(&f.span(), "flops", expected, f.get_ref()));
                };
                let flops = self.figure(&f.span(), "flops", *f.get_ref(), f64::MAX)?;
                let seconds = flops / rate.value * kind.speed.value;
                self.figure(&f.span(), "flops, in seconds", seconds, LONGEST)?
            }
            _ => {
                let span = entry.name.span();
                return Err(self.wrong(&span, "task", "either seconds or flops", "both or none"));
            }
        };
        Ok(Nanos((1e9 * seconds).round() as u64))
    }

    /// The unit that a text such as `desktop[2]/core[5]` names.
    fn unit(&self, on: &Spanned<String>) -> Result<UnitId> {
        self.on.find(on.get_ref()).map_err(|expected| {
            self.wrong(&on.span(), "on", expected, format!("{:?}", on.get_ref()))
        })
    }
}
