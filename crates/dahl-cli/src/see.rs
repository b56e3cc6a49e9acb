//! `dahl trace`, `dahl stats`, `dahl report`: what happened in runs.

mod report;
mod stats;
mod trace;

pub(crate) use report::{Args as ReportArgs, run as report};
pub(crate) use stats::{Args as StatsArgs, run as stats};
pub(crate) use trace::{Args as TraceArgs, run as trace};

use crate::files::read as read_text;
use crate::output::say;
use dahl::run as rundir;
use dahl::run::{RunRecord, files};
use dahl::trace::Trace;
use dahl::{Error, Result};
use std::path::Path;

/// A run by its name or directory; a file is a trace without a run. It is said which files
/// are left out, but of the one that whoever asks cannot do without: that is an error.
fn read(name: &Path, needed: Option<&str>) -> Result<RunRecord> {
    if name.is_file() {
        let trace = Some(Trace::parse(&read_text(name)?, name)?);
        let name = name.display().to_string();
        return Ok(RunRecord { name, trace, ..RunRecord::default() });
    }
    let path = rundir::find(name);
    if !path.join(rundir::files::CONFIG).exists() {
        return Err(rundir::no_run(&path));
    }
    let run = RunRecord::read(&path)?;
    for (_, problem) in run.problems.iter().filter(|(file, _)| Some(file.as_str()) != needed) {
        say(format_args!("warning: {problem}; it is left out"));
    }
    Ok(run)
}

/// The trace of a run.
fn traced<'a>(run: &'a RunRecord, name: &Path) -> Result<&'a Trace> {
    if run.problem(files::TRACE).is_some() {
        // What is wrong with it is the answer.
        let path = rundir::find(name).join(files::TRACE);
        Trace::parse(&read_text(&path)?, &path)?;
    }
    run.trace.as_ref().ok_or_else(|| {
        let expected = format!("a run with {}, which dahl train --trace writes", files::TRACE);
        Error::config("RUN", expected, &run.name)
    })
}
