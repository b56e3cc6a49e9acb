//! `dahl bench predictions`: steps as they were predicted, beside steps that ran.

use super::measure::{Bench, Racer, median};
use super::workloads::{Workload, WorkloadArgs};
use crate::args::{Kernels, Settings};
use crate::files::check_outputs;
use crate::output::{show, show_json};
use crate::table::Columns;
use clap::Args as ClapArgs;
use dahl::calibrate::this_machine;
use dahl::graph::Shards;
use dahl::model::{Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::perf::{PerfModel, Source, cpu_kind};
use dahl::planner::Grain;
use dahl::platform::UnitId;
use dahl::run::config::{at_least_one, threads};
use dahl::sim::{EngineModel, Known, StepPrediction, Worker, predict};
use dahl::units::ProgramId;
use dahl::{DType, Result, calibrate};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Compare predicted with measured step times
///
/// Each round calibrates some cuts of the batch, runs all cuts, calibrates again, and predicts its
/// runs from its own calibration, so that the machine's drift is in neither. A cut that is not
/// calibrated is predicted from the shapes of the others. A step is simulated from the times of its
/// calls, the engine's overheads and the memory bandwidth: no measured step enters its prediction.
/// With --calibration, all runs are predicted from this file instead.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl bench predictions
  dahl bench predictions lenet-b64 vgg-small-b32 --threads 2
  dahl bench predictions --markdown predictions.md
  dahl calibrate --quick && dahl bench predictions --calibration calibration.json
  dahl bench predictions lenet-b64 mlp-b128 --spaces 2 --dtypes f32,f64 --pieces 2,4

The error is the median over the rounds. A prediction is good if its error is at most 5 % (10 % with
several spaces, 15 % with --calibration), or twice the spread of the run over the rounds. The order of two rows is wrong if neither the
measured nor the predicted intervals overlap and they disagree on which is faster.")]
pub(crate) struct Args {
    #[command(flatten)]
    workloads: WorkloadArgs,
    /// Numbers of worker threads [default: 1, and one per logical CPU; with several spaces one per
    /// space]
    #[arg(long, value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    /// Element types
    #[arg(long, value_delimiter = ',', default_value = "f32", value_parser = super::floats)]
    dtypes: Vec<DType>,
    /// Numbers of pieces of the batch to run
    #[arg(long, value_delimiter = ',', default_value = "2,4,8", value_parser = at_least_one)]
    pieces: Vec<usize>,
    /// Numbers of pieces of the batch to calibrate
    #[arg(long, value_delimiter = ',', default_value = "1,2,8", value_parser = at_least_one)]
    calibrated: Vec<usize>,
    /// Predict from this calibration file, and calibrate nothing
    #[arg(long, value_name = "FILE", conflicts_with = "calibrated")]
    calibration: Option<PathBuf>,
    /// Number of host memories that the workers are in, with as many shards of the batch; copies
    /// between them are calibrated too
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    spaces: usize,
    #[command(flatten)]
    kernels: Settings<Kernels>,
    /// Number of rounds
    #[arg(long, default_value_t = 9, value_parser = at_least_one)]
    rounds: usize,
    /// Approximate seconds per run, and per calibration of a cut
    #[arg(long, default_value_t = 0.1, value_parser = super::seconds)]
    seconds: f64,
    /// Write a Markdown table to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Print one JSON object per row, and one for the summary
    #[arg(long)]
    json: bool,
}

/// The error that a good prediction has at most: from a calibration of its own, and from one that
/// was made for all.
const GOOD: [f64; 2] = [0.05, 0.15];
/// The same with several spaces, whose lanes share the processors with the workers.
const GOOD_IN_SPACES: f64 = 0.1;

/// The part of the time that threads have their processors, if nobody else has.
const OWN: f64 = 0.97;
/// Maximum number of attempts.
const ATTEMPTS: usize = 4;

/// A step in one grain on some threads.
struct Cell {
    workload: String,
    dtype: DType,
    pieces: usize,
    threads: usize,
    /// Seconds per step: the median of the rounds.
    measured: f64,
    /// The standard deviation of the rounds over their median, from the median of
    /// their deviations.
    spread: f64,
    /// The median of the rounds' errors.
    error: f64,
    /// The part of the time that no shape was measured for.
    guessed: f64,
    /// The half width of the predicted interval, relative.
    doubt: f64,
    /// The error that it has at most if it is good.
    good: f64,
}

impl Cell {
    fn new(workload: String, dtype: DType, of: Ready, good: f64) -> Self {
        let Place { pieces, threads, measured: rounds, predicted } = of.of;
        let measured = median(rounds.clone());
        let deviations = rounds.iter().map(|m| (m - measured).abs()).collect();
        let errors = rounds.iter().zip(&predicted);
        let time = |p: &StepPrediction| p.step.0 as f64 / 1e9;
        let doubt = |p: &StepPrediction| (p.interval[1].0 as f64 / 1e9 / time(p)) - 1.0;
        let known = |p: &StepPrediction| {
            let measured = |s: &&(Source, f64)| s.0 == Source::Measured;
            p.sources.iter().find(measured).map_or(0.0, |s| s.1)
        };
        Self {
            workload,
            dtype,
            pieces,
            threads,
            measured,
            // From the median deviation to the standard deviation of a normal
            // distribution.
            spread: 1.4826 * median(deviations) / measured,
            error: median(errors.map(|(m, p)| time(p) / m - 1.0).collect()),
            guessed: 1.0 - median(predicted.iter().map(known).collect()),
            doubt: median(predicted.iter().map(doubt).collect()),
            good,
        }
    }

    fn seconds(&self) -> f64 {
        (1.0 + self.error) * self.measured
    }

    fn is_good(&self) -> bool {
        self.error.abs() <= self.good.max(2.0 * self.spread)
    }

    /// Intervals of the measured and of the predicted time.
    fn intervals(&self) -> [[f64; 2]; 2] {
        let measured = [1.0 - 2.0 * self.spread, 1.0 + 2.0 * self.spread];
        let predicted = [1.0 - self.doubt, 1.0 + self.doubt];
        [measured.map(|factor| factor * self.measured), predicted.map(|f| f * self.seconds())]
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    check_outputs(&[("markdown", args.markdown.as_ref())])?;
    let workloads = args.workloads.all()?;
    if !args.json {
        show(&COLUMNS.row(&COLUMNS.heads(10)))?;
    }
    let mut cells = Vec::new();
    for workload in &workloads {
        for &dtype in &args.dtypes {
            for cell in of_workload(args, workload, dtype)? {
                match args.json {
                    true => show_json(&cell.to_json())?,
                    false => show(&COLUMNS.row(&cell.row()))?,
                }
                cells.push(cell);
                let (rounds, rows) = (args.rounds, cells.iter().map(Cell::row).collect());
                let how = format!("median of {rounds} rounds; {}", summary(&cells));
                super::write_table(args.markdown.as_ref(), &how, &COLUMNS, rows)?;
            }
        }
    }
    let (apart, wrong) = orders(&cells);
    match args.json {
        true => show_json(&json!({
            "cells": cells.len(), "good": good(&cells), "pairs_apart": apart, "pairs_wrong": wrong,
        })),
        false => show(&format!("{}\n", summary(&cells))),
    }
}

/// A grain on some threads.
struct Place {
    pieces: usize,
    threads: usize,
    /// Seconds per step, round by round, and what was predicted for it.
    measured: Vec<f64>,
    predicted: Vec<StepPrediction>,
}

type Ready = Racer<Place>;

/// Rounds of calibrating, running, calibrating, predicting.
fn of_workload(args: &Args, workload: &Workload, dtype: DType) -> Result<Vec<Cell>> {
    let Workload { model, batch, .. } = workload;
    let shards = Shards::even(*batch, args.spaces)?;
    let spec = TrainSpec { shards, ..TrainSpec::new(*batch, dtype, Optimizer::sgd(0.01)) };
    let lowered = model.lower(&spec)?;
    let target = args.kernels.target();
    let grain = |pieces: usize, workers: usize| Grain {
        target,
        sample: pieces,
        spaces: args.spaces,
        ..Grain::for_workers(workers)
    };
    let kind = cpu_kind(target.isa);
    let file = args.calibration.as_ref().map(|path| PerfModel::load(path)).transpose()?;
    let calibrate = |known: &mut PerfModel| -> Result<()> {
        for &pieces in args.calibrated.iter().filter(|p| **p <= *batch) {
            let plan = grain(pieces, args.spaces).plan(&lowered.programs)?;
            let budget = Duration::from_secs_f64(args.seconds);
            calibrate::steps(&plan, ProgramId(0), budget, &kind, known)?;
        }
        Ok(())
    };
    let mut all = Vec::new();
    let threads = match &args.threads[..] {
        [] if args.spaces > 1 => vec![args.spaces],
        given => super::threads_or_default(given),
    };
    for threads in threads {
        for &pieces in args.pieces.iter().filter(|p| **p <= *batch) {
            let lowered = model.lower(&spec)?;
            let plan = grain(pieces, threads).plan(&lowered.programs)?;
            let bench = Bench::of(lowered, plan, &spec, (&Native::default(), *batch))?;
            let place = Place { pieces, threads, measured: Vec::new(), predicted: Vec::new() };
            all.push(Ready::new(place, bench, args.seconds)?);
        }
    }
    for _ in 0..args.rounds {
        let mut known = file.clone().unwrap_or_default();
        if file.is_none() {
            calibrate(&mut known)?;
        }
        for ready in &mut all {
            ready.run_undisturbed(args.spaces)?;
        }
        if file.is_none() {
            calibrate(&mut known)?;
        }
        let platform = this_machine(&known)?;
        let (on, engine_model) = (platform.expand(), EngineModel::measured(&known));
        for Racer { of, .. } in &mut all {
            let plan = grain(of.pieces, of.threads).plan(&lowered.programs)?;
            let units = (0..of.threads as u32).map(UnitId);
            let workers = units.map(|unit| Worker { unit, state: None }).collect();
            let (what, times) = ((&plan, ProgramId(0)), &mut Known::new(&known));
            of.predicted.push(predict(what, &on, workers, &engine_model, times)?);
        }
    }
    let name = &workload.name;
    let own = if args.spaces > 1 { GOOD_IN_SPACES } else { GOOD[0] };
    let good = if file.is_some() { own.max(GOOD[1]) } else { own };
    Ok(all.into_iter().map(|ready| Cell::new(name.clone(), dtype, ready, good)).collect())
}

impl Ready {
    /// Runs until the processors were ours, as they are when calls are measured; of
    /// some attempts the least disturbed.
    fn run_undisturbed(&mut self, spaces: usize) -> Result<()> {
        let mut best: Option<(f64, f64)> = None;
        // Threads of several spaces sleep while they wait.
        let attempts = if spaces > 1 { 1 } else { ATTEMPTS };
        for _ in 0..attempts {
            let timing = self.bench.run(self.steps)?;
            let own = timing.cpu / (timing.wall * self.of.threads as f64);
            if best.is_none_or(|(before, _)| own > before) {
                best = Some((own, timing.wall));
            }
            if own >= OWN {
                break;
            }
        }
        self.of.measured.extend(best.map(|(_, wall)| wall));
        Ok(())
    }
}

const COLUMNS: Columns = Columns(&[
    ("workload", -19),
    ("dtype", 5),
    ("threads", 7),
    ("pieces", 6),
    ("guessed", 8),
    ("measured ms", 11),
    ("spread", 7),
    ("predicted ms", 12),
    ("interval", 17),
    ("error", 9),
]);

impl Cell {
    /// The entries of [`COLUMNS`].
    fn row(&self) -> Vec<String> {
        let [_, [low, high]] = self.intervals();
        let mark = if self.is_good() { ' ' } else { '!' };
        vec![
            self.workload.clone(),
            self.dtype.to_string(),
            self.threads.to_string(),
            self.pieces.to_string(),
            format!("{:.0}%", 100.0 * self.guessed),
            format!("{:.3}", 1e3 * self.measured),
            format!("{:.1}%", 100.0 * self.spread),
            format!("{:.3}", 1e3 * self.seconds()),
            format!("{:.3}-{:.3}", 1e3 * low, 1e3 * high),
            format!("{:.1}%{mark}", 100.0 * self.error),
        ]
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "workload": self.workload,
            "dtype": self.dtype.name(),
            "threads": self.threads,
            "pieces": self.pieces,
            "guessed": self.guessed,
            "measured_ms": 1e3 * self.measured,
            "spread": self.spread,
            "predicted_ms": 1e3 * self.seconds(),
            "interval_ms": self.intervals()[1].map(|s| 1e3 * s),
            "error": self.error,
            "good": self.is_good(),
        })
    }
}

/// How many pairs of cells can be told apart, and of how many the order is wrong.
fn orders(cells: &[Cell]) -> (usize, usize) {
    let (mut apart, mut wrong) = (0, 0);
    let below = |a: [f64; 2], b: [f64; 2]| a[1] < b[0];
    for (i, a) in cells.iter().enumerate() {
        for b in cells[i + 1..].iter().filter(|b| b.workload == a.workload && b.dtype == a.dtype) {
            let ([ma, pa], [mb, pb]) = (a.intervals(), b.intervals());
            let agree = (below(ma, mb) && below(pa, pb)) || (below(mb, ma) && below(pb, pa));
            let differ = (below(ma, mb) && below(pb, pa)) || (below(mb, ma) && below(pa, pb));
            apart += usize::from(agree || differ);
            wrong += usize::from(differ);
        }
    }
    (apart, wrong)
}

fn good(cells: &[Cell]) -> usize {
    cells.iter().filter(|cell| cell.is_good()).count()
}

fn summary(cells: &[Cell]) -> String {
    let (good, (apart, wrong)) = (good(cells), orders(cells));
    let percent = 100.0 * good as f64 / cells.len().max(1) as f64;
    format!(
        "{good} of {} predictions ({percent:.0} %) are good; the order of {wrong} of {apart} \
         distinguishable pairs is wrong",
        cells.len()
    )
}
