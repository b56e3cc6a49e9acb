//! `dahl stats`: where the time and the energy of a run went.

use super::{read, traced};
use crate::output::{say, show};
use clap::Args as ClapArgs;
use dahl::report::{Detail, Energy, From, Stats};
use dahl::run as rundir;
use dahl::run::{RunRecord, files};
use dahl::{Error, Result};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Show where the time and the energy of a run went
///
/// Codelets by time, with quantiles and speed; why calls of one codelet differ in time; the idle time
/// of the workers by cause; the critical path; the largest gaps. Without a trace only the codelets are
/// shown, from counters, which are always on.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl stats first
  dahl stats first --shapes
  dahl stats first --co2 380 --json

docs/performance.md explains the output.
Exit codes: 0 ok, 2 usage, 4 a file that is wrong.")]
pub(crate) struct Args {
    /// Run name or directory, or a trace file
    run: PathBuf,
    /// Print one line per shape too
    #[arg(long)]
    shapes: bool,
    /// Use the counters even if the run has a trace
    #[arg(long)]
    counters: bool,
    /// Grams of CO2 per kilowatt-hour of the grid
    #[arg(long, value_name = "G/KWH", value_parser = intensity)]
    co2: Option<f64>,
    /// Print one JSON object, with times in nanoseconds
    #[arg(long)]
    json: bool,
}

/// A grid's intensity.
fn intensity(text: &str) -> std::result::Result<f64, String> {
    let wrong = || "expected grams of CO2 per kilowatt-hour, 0 or more".to_owned();
    let number: f64 = text.parse().map_err(|_| wrong())?;
    if number.is_finite() && number >= 0.0 { Ok(number) } else { Err(wrong()) }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    show(&text(args)?)
}

fn text(args: &Args) -> Result<String> {
    let wanted = if args.counters { From::Counters } else { From::Trace };
    let needed = if wanted == From::Trace { files::TRACE } else { files::COUNTERS };
    let run = read(&args.run, Some(needed))?;
    if wanted == From::Trace && run.problem(files::TRACE).is_some() {
        say(format_args!("note: --counters works without {}", files::TRACE));
        traced(&run, &args.run)?;
    }
    let stats = stats(&run, &args.run, wanted)?;
    let energies = [Energy::measured(&run), Energy::modelled(&run)];
    if args.json {
        let mut value = serde_json::to_value(&stats).expect("plain data");
        let with_co2 = |energies: &[Energy]| {
            let all = energies.iter().map(|energy| {
                let mut value = json!(energy);
                value["co2_grams"] = json!(args.co2.map(|grid| energy.co2(grid)));
                value
            });
            all.collect::<Vec<_>>()
        };
        value["efficiency"] = json!(stats.efficiency());
        value["energy"] = json!({
            "measured": with_co2(&energies[0]), "modelled": with_co2(&energies[1]),
            "silent": Energy::silent(&run),
        });
        return Ok(format!("{value}\n"));
    }
    let mut text = stats.to_text(if args.shapes { Detail::Shapes } else { Detail::Codelets });
    for energy in energies.iter().flatten() {
        text += &format!("\n{}", energy.to_text(args.co2));
    }
    for silent in Energy::silent(&run) {
        text += &format!("\n{silent}\n");
    }
    Ok(text)
}

/// Statistics of the trace, if requested and not empty, else of the counters.
fn stats(run: &RunRecord, name: &Path, wanted: From) -> Result<Stats> {
    match (run.recorded(), &run.counted) {
        (Some(trace), _) if wanted == From::Trace => Ok(Stats::of_trace(trace)),
        (_, Some(counted)) => {
            let steps = counted.steps;
            Ok(Stats::of_counters(&counted.shapes, &counted.activity, steps))
        }
        _ => {
            if run.problem(files::COUNTERS).is_some() {
                // What is wrong with them is the answer.
                RunRecord::read_counters(&rundir::find(name))?;
            }
            let expected = format!("a run with {} or {}", files::TRACE, files::COUNTERS);
            let neither = "which has neither: it was killed before its first epoch had ended";
            Err(Error::config("RUN", expected, format!("{}, {neither}", run.name)))
        }
    }
}
