//! `dahl trace`: what was recorded, for other tools.

use super::{read, traced};
use crate::output::show;
use clap::{Args as ClapArgs, ValueEnum};
use dahl::platform::Platform;
use dahl::report::export::{self, Watts};
use dahl::run::files;
use dahl::run::{check_no_run, check_writable};
use dahl::{Error, Result};
use std::io::Write;
use std::path::PathBuf;

/// Write the trace of a run in the format of another tool
///
/// perfetto is for ui.perfetto.dev and chrome://tracing, with counters for watts and
/// bytes; paje for ViTE, StarVZ and pajeng; dot is the task graph for Graphviz, with mean
/// times and the critical path in bold; csv has one row per event.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl train --run first --trace && dahl trace first --format perfetto -o first.json
  dahl trace first --format dot | dot -Tsvg > first.svg
  dahl trace first --format paje -o first.paje && pj_dump first.paje > first.csv

Exit codes: 0 ok, 1 the file cannot be written, 2 usage, 4 a file that is wrong.")]
pub(crate) struct Args {
    /// Run name or directory, or a trace file
    run: PathBuf,
    /// Output format
    #[arg(long, value_enum)]
    format: Format,
    /// Output file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Platform file for modelled watts [default: that of the run]
    #[arg(long, value_name = "FILE")]
    platform: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Chrome trace events, as JSON
    Perfetto,
    /// Paje text
    Paje,
    /// Graphviz DOT
    Dot,
    /// CSV table
    Csv,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(path) = &args.output {
        check_writable("output", path)?;
        check_no_run("output", path)?;
    }
    let run = read(&args.run, Some(files::TRACE))?;
    let trace = traced(&run, &args.run)?;
    let platform = args.platform.as_deref().map(Platform::read).transpose()?;
    let measured = run.traced_power().map(|timed| (&timed.power, timed.begin));
    let watts = Watts { platform: platform.as_ref().or(run.traced_platform()), measured };
    let to = |out: &mut dyn Write| match args.format {
        Format::Perfetto => export::perfetto(trace, watts, out),
        Format::Paje => export::paje(trace, watts, out),
        Format::Dot => export::dot(trace, out),
        Format::Csv => export::csv(trace, out),
    };
    match &args.output {
        Some(path) => dahl::file::replace(path, |out| to(out)).map_err(Error::while_writing),
        None => {
            let mut text = Vec::new();
            to(&mut text).expect("memory takes what is written");
            show(&String::from_utf8_lossy(&text))
        }
    }
}
