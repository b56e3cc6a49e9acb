//! `dahl stats`: where the time and the energy of a run went.

use super::read;
use crate::output::{code, fail, show};
use clap::Args as ClapArgs;
use dahl::report::{Detail, Energy, From, RunRecord, Stats, files};
use dahl::{Error, Result};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Say where the time and the energy of a run went
///
/// Codelets by time, with quantiles and speed; why the same codelet takes different
/// times; what the workers did while they ran nothing; the critical path; the largest
/// gaps. Without a trace the counters that are always on tell the first part.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl stats first
  dahl stats first --shapes
  dahl stats first --co2 380 --json

docs/performance.md says how to read it.
Exit codes: 0 ok, 2 usage, 4 a file that is wrong.")]
pub(crate) struct Args {
    /// A run's name or directory, or the file of a trace
    run: PathBuf,
    /// A line a shape too
    #[arg(long)]
    shapes: bool,
    /// What counters say, though there is a trace
    #[arg(long)]
    counters: bool,
    /// Grams of CO2 a kilowatt-hour of the grid
    #[arg(long, value_name = "G/KWH")]
    co2: Option<f64>,
    /// Print one JSON object, with times in nanoseconds
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match text(args).and_then(|text| show(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, code(&error)),
    }
}

fn text(args: &Args) -> Result<String> {
    let run = read(&args.run)?;
    let wanted = if args.counters { From::Counters } else { From::Trace };
    let stats = stats(&run, wanted)?;
    let energies = [Energy::measured(&run), Energy::modelled(&run)];
    if args.json {
        let mut value = serde_json::to_value(&stats).expect("plain data");
        let co2 = |energy: &Option<Energy>| Some(energy.as_ref()?.co2(args.co2?));
        value["efficiency"] = json!(stats.efficiency());
        value["energy"] = json!({
            "measured": energies[0], "modelled": energies[1],
            "measured_co2_grams": co2(&energies[0]), "modelled_co2_grams": co2(&energies[1]),
        });
        return Ok(format!("{value}\n"));
    }
    let mut text = stats.to_text(if args.shapes { Detail::Shapes } else { Detail::Codelets });
    for energy in energies.iter().flatten() {
        text += &format!("\n{}", energy.to_text(args.co2));
    }
    Ok(text)
}

/// What the trace says, where it is wanted and there, or else the counters.
fn stats(run: &RunRecord, wanted: From) -> Result<Stats> {
    match (&run.trace, &run.counted) {
        (Some(trace), _) if wanted == From::Trace => Ok(Stats::of_trace(trace)),
        (_, Some(counted)) => {
            let steps = counted.steps;
            Ok(Stats::of_counters(&counted.shapes, &counted.activity, steps))
        }
        _ => {
            let expected = format!("a run with {} or {}", files::TRACE, files::COUNTERS);
            let found = format!("{}, which another version trained", run.name);
            Err(Error::config("RUN", expected, found))
        }
    }
}
