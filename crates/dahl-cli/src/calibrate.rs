//! `dahl calibrate`: how long codelets take on this machine.

mod cells;
mod show;

use crate::args::{Kernels, Settings};
use crate::bench::seconds;
use crate::output::{say, show as print, show_json};
use crate::progress::{Measuring, Show};
use cells::{Extent, Wanted};
use clap::Args as ClapArgs;
use dahl::calibrate::here;
use dahl::model::{Model, NAMES};
use dahl::perf::PerfModel;
use dahl::run::check_writable;
use dahl::run::config::IdentitySettings;
use dahl::run::config::at_least_one;
use dahl::{DType, Error, Result};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Measure codelets on this machine, for predictions
///
/// Runs training steps of a model, or of the models that come with dahl, with several batch sizes,
/// cuts and kernels, and records the time of every call, alone and while another processor reads
/// memory. Times that the file already has are kept, unless they are of another machine or version.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl calibrate
  dahl calibrate --quick
  dahl calibrate resnet18 --batch 32 --dtypes f32
  dahl calibrate --show

docs/calibration.md describes the measurements and the error of predictions.")]
pub(crate) struct Args {
    /// Model name or TOML file [default: the models that come with dahl]
    model: Option<String>,
    /// Batch size of the model [default: 32]
    #[arg(long, value_parser = at_least_one, requires = "model")]
    batch: Option<usize>,
    /// Element types
    #[arg(long, value_delimiter = ',', default_value = "f32,f64")]
    dtypes: Vec<DType>,
    #[command(flatten)]
    kernels: Settings<Kernels>,
    /// Measure fewer shapes and kernels of each model
    #[arg(long)]
    quick: bool,
    /// Approximate duration in seconds [default: 180; with --quick 90]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Output file
    #[arg(long, value_name = "FILE", default_value = "calibration.json")]
    output: PathBuf,
    /// Print the content of a calibration file instead (calibration.json, if no FILE is given)
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "calibration.json",
        conflicts_with_all = ["model", "quick", "seconds"]
    )]
    show: Option<PathBuf>,
    /// Print only the result
    #[arg(long)]
    quiet: bool,
    /// Print one JSON object; with --show one per codelet
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.show {
        Some(path) => show(path, args),
        None => calibrate(args),
    }
}

fn show(path: &Path, args: &Args) -> Result<()> {
    let model = PerfModel::load(path)?;
    if let Some(why) = model.is_stale(&here()) {
        say(format_args!("note: {} does not describe this machine: {why}", path.display()));
    }
    print(&match args.json {
        true => show::objects(&model),
        false => format!("{}\n{}", show::head(&model), show::table(&model)),
    })
}

fn calibrate(args: &Args) -> Result<()> {
    check_writable("output", &args.output)?;
    let mut model = start(args)?;
    let extent = if args.quick { Extent::Quick } else { Extent::All };
    let named: Vec<Model> = match &args.model {
        Some(name) => vec![Model::open(name)?],
        None => NAMES.iter().map(|name| Model::named(name)).collect::<Result<_>>()?,
    };
    let batch =
        args.model.as_ref().map(|_| args.batch.unwrap_or(IdentitySettings::default().batch));
    let (dtypes, kernels) = (&args.dtypes[..], &args.kernels);
    let cells = Wanted { models: named, batch, dtypes, kernels, extent }.cells()?;

    let total = args.seconds.unwrap_or(if args.quick { 90.0 } else { 180.0 });
    let (begin, total) = (Instant::now(), Duration::from_secs_f64(total));
    let mut measuring = Measuring::new(Show::unless(args.quiet), Some(cells.len()));
    let (mut steps, mut calls, mut skipped) = (0, 0, 0);
    let mut saved = Instant::now();
    for (i, cell) in cells.iter().enumerate() {
        let left = total.saturating_sub(begin.elapsed());
        if left.is_zero() && !cell.is_small() {
            skipped += 1;
            continue;
        }
        measuring.begin(i, &cell.name());
        let budget = left / (cells.len() - i) as u32;
        let measured = match cell.measure(kernels, budget, &mut model) {
            Ok(measured) => measured,
            Err(error @ dahl::Error::Memory { .. }) => {
                say(format_args!("note: {} is left out: {error}", cell.name()));
                skipped += 1;
                continue;
            }
            Err(error) => return Err(error),
        };
        // Whoever stops it keeps what there is.
        if saved.elapsed() >= SAVED {
            model.save(&args.output).map_err(Error::while_writing)?;
            saved = Instant::now();
        }
        let all = measured.steps + measured.steps_beside;
        steps += all;
        calls += all * measured.calls as u64;
    }
    drop(measuring);
    if model.copies.is_none() {
        model.copies = Some(dahl::calibrate::copies()?);
    }
    model.save(&args.output).map_err(Error::while_writing)?;
    let summaries = model.summaries();
    let shapes: usize = summaries.iter().map(|s| s.shapes).sum();
    if args.json {
        return show_json(&json!({
            "file": args.output,
            "seconds": begin.elapsed().as_secs_f64(),
            "programs": cells.len() - skipped,
            "skipped": skipped,
            "steps": steps,
            "calls": calls,
            "codelets": summaries.len(),
            "shapes": shapes,
            "overheads": model.overheads,
            "bandwidth": model.bandwidth,
            "copies": model.copies,
        }));
    }
    if skipped > 0 {
        say(format_args!(
            "note: {skipped} of {} programs were left out for lack of time; --seconds sets the limit",
            cells.len()
        ));
    }
    print(&format!(
        "{}{}: {shapes} shapes of {} codelets; {calls} calls of {steps} steps in {:.0} s\n",
        show::head(&model),
        args.output.display(),
        summaries.len(),
        begin.elapsed().as_secs_f64(),
    ))
}

/// What is in the file, where it is of use here, or nothing; the engine and the
/// memory are measured again in any case.
fn start(args: &Args) -> Result<PerfModel> {
    let now = here();
    if !args.output.exists() {
        return Ok(PerfModel::new(now));
    }
    let mut model = PerfModel::load(&args.output)?;
    if let Some(why) = model.is_stale(&now) {
        say(format_args!("note: {} is replaced: {why}", args.output.display()));
        // What people put in stays.
        let mut anew = PerfModel::new(now);
        anew.profiles = model.profiles;
        return Ok(anew);
    }
    (model.about, model.overheads, model.bandwidth) = (now, None, None);
    model.copies = None;
    Ok(model)
}

/// Interval between writes of the file.
const SAVED: Duration = Duration::from_secs(20);
