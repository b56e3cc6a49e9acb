//! `dahl verify`: golden cases against PyTorch's results.

use crate::args::{Settings as RunSettings, Verified};
use crate::files::{calibrations, given_grain};
use crate::output::{BAD_FILE, Colour, DIFFERENT, fail, show, show_json};
use clap::Args as ClapArgs;
use dahl::Result;
use dahl::model::Fusion;
use dahl::native::{Checks, Native};
use dahl::perf::PerfModel;
use dahl::planner::Grain;
use dahl::run::Scheduled;
use dahl::run::config::at_least_one;
use dahl::sched::Rule;
use dahl::verify::{self, Report, Settings};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run golden cases and compare the results with PyTorch's
///
/// A case is a safetensors file with inputs and PyTorch's results: one op with its gradients, or a
/// whole training run. One line per case: the largest error in units in the last place (ULP) and
/// relative to the tensor's largest magnitude, the tolerance, pass or fail, and a hash of all result
/// bits, which no number of workers or pieces changes. A case that cannot be run fails.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl verify crates/dahl/tests/golden
  dahl verify golden --workers 2 --grain sample=3 --scheduling work-stealing
  dahl verify golden/conv2d_0_f64.safetensors --json

Exit codes: 0 all pass, 1 one fails, 2 usage, 4 nothing to run.")]
pub(crate) struct Args {
    /// Directory of cases, or one case
    path: PathBuf,
    /// Number of worker threads
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    workers: usize,
    #[command(flatten)]
    settings: RunSettings<Verified>,
    /// Do not fuse ops
    #[arg(long)]
    no_fusion: bool,
    /// Check every memory access, and overwrite freed memory
    #[arg(long)]
    checked: bool,
    /// Print one JSON object per case
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let cases = match verify::cases(&args.path) {
        Ok(cases) => cases,
        Err(error) => return Ok(fail(error, BAD_FILE)),
    };
    let checks = if args.checked { Checks::On } else { Checks::Off };
    let placement = &args.settings.config.placement;
    let known = match placement.rule().is_some_and(Rule::expects) {
        true => calibrations(&[])?,
        false => PerfModel::default(),
    };
    let native = Native { checks, ..Native::default() };
    let engine = Scheduled::new(native, placement, known);
    let base = Grain { target: args.settings.target(), ..Grain::for_workers(args.workers) };
    let grain = given_grain(base, placement.grain.as_ref())?;
    let fusion = if args.no_fusion { Fusion::Off } else { Fusion::On };
    let settings = Settings { grain, fusion, engine: &engine };
    let colour = Colour::of_stdout();
    let names: Vec<String> = cases.iter().map(|path| name(path)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0).max(4);
    if !args.json {
        let head = format!("{:width$}    ULP   error limit      bits     worst\n", "case");
        show(&colour.paint("1", &head))?;
    }
    let mut passed = 0;
    for (path, name) in cases.iter().zip(&names) {
        let result = verify::run(path, &settings);
        passed += usize::from(result.as_ref().is_ok_and(Report::passes));
        match args.json {
            true => show_json(&object(name, &result))?,
            false => show(&text_line(name, width, &result, colour))?,
        }
    }
    let wrong = cases.len() - passed;
    if !args.json {
        show(&format!("{passed} passed, {wrong} failed\n"))?;
    }
    Ok(ExitCode::from(if wrong == 0 { 0 } else { DIFFERENT }))
}

fn name(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned())
}

fn text_line(name: &str, width: usize, result: &Result<Report>, colour: Colour) -> String {
    let verdict =
        |ok: bool| if ok { colour.paint("32", "pass") } else { colour.paint("31", "FAIL") };
    match result {
        Err(error) => format!("{name:width$} {} {error}\n", verdict(false)),
        Ok(report) => {
            let Some(worst) = report.worst() else {
                return format!("{name:width$} {} nothing to compare\n", verdict(false));
            };
            let c = &worst.comparison;
            let ulps = if c.ulps > 999_999 { "many".to_owned() } else { c.ulps.to_string() };
            format!(
                "{name:width$} {ulps:>6} {:>7.1e} {:>5} {} {} {}\n",
                c.relative(),
                worst.tolerance.to_string(),
                verdict(report.passes()),
                report.bits(),
                worst.name
            )
        }
    }
}

fn object(name: &str, result: &Result<Report>) -> serde_json::Value {
    match result {
        Err(error) => json!({ "case": name, "pass": false, "error": error.to_string() }),
        Ok(report) => json!({
            "case": name,
            "pass": report.passes(),
            "bits": report.bits(),
            "tensors": report.compared.iter().map(|c| json!({
                "name": c.name,
                "ulp": c.comparison.ulps,
                "relative": c.comparison.relative(),
                "tolerance": c.tolerance.to_string(),
                "pass": c.passes(),
            })).collect::<Vec<_>>(),
        }),
    }
}
