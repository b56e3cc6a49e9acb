//! `dahl bench predictions`: steps as they were predicted, beside steps that ran.

use super::measure::{Bench, Timing, median};
use super::workloads::{Workload, WorkloadArgs};
use crate::args::{Kernels, Settings};
use crate::output::show;
use clap::Args as ClapArgs;
use dahl::calibrate::this_machine;
use dahl::model::{Lowered, Optimizer, TrainSpec};
use dahl::perf::{PerfModel, Source, cpu_kind};
use dahl::plan::PlannedPrograms;
use dahl::planner::Grain;
use dahl::platform::UnitId;
use dahl::run::check_writable;
use dahl::run::config::{at_least_one, threads};
use dahl::sim::{EngineModel, Known, StepPrediction, Worker, predict};
use dahl::units::ProgramId;
use dahl::{DType, Result, calibrate};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Compare predicted steps with steps that ran
///
/// Of every workload some cuts of the batch are calibrated, then every cut is run, then
/// the same cuts are calibrated again; this in rounds, each with a calibration of its own
/// that predicts its runs, so that the machine's drift is part of neither. A cut that is not calibrated is predicted from the shapes of the others. A step is
/// simulated from the times of its calls, the engine's overheads and the memory's
/// bandwidth: no step time goes into its own prediction.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl bench predictions
  dahl bench predictions lenet-b64 vgg-small-b32 --threads 2
  dahl bench predictions --markdown predictions.md

The error is the median of the rounds'. A prediction is good whose error is at most 5 %,
or twice the spread of the run's own time over the rounds. The order of two cells is wrong where neither the measured nor the predicted
intervals overlap and they do not agree which is faster.")]
pub(crate) struct Args {
    #[command(flatten)]
    workloads: WorkloadArgs,
    /// Numbers of threads [default: one, and one a processor]
    #[arg(long, value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    /// Element types
    #[arg(long, value_delimiter = ',', default_value = "f32", value_parser = super::floats)]
    dtypes: Vec<DType>,
    /// Pieces of the batch that are run
    #[arg(long, value_delimiter = ',', default_value = "2,4,8", value_parser = at_least_one)]
    pieces: Vec<usize>,
    /// Pieces of the batch that are calibrated
    #[arg(long, value_delimiter = ',', default_value = "1,2,8", value_parser = at_least_one)]
    calibrated: Vec<usize>,
    #[command(flatten)]
    kernels: Settings<Kernels>,
    /// Rounds of calibrating, running and calibrating
    #[arg(long, default_value_t = 9, value_parser = at_least_one)]
    rounds: usize,
    /// Seconds that a run takes about, and each calibration of a cut
    #[arg(long, default_value_t = 0.1, value_parser = super::seconds)]
    seconds: f64,
    /// Write a table in Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Print one JSON object a cell, and one in the end
    #[arg(long)]
    json: bool,
}

/// The error that a good prediction has at most.
const GOOD: f64 = 0.05;

/// The part of the time that threads have their processors, if nobody else has.
const OWN: f64 = 0.97;
/// How often that is tried.
const ATTEMPTS: usize = 4;

/// A step in one grain on some threads.
struct Cell {
    workload: String,
    dtype: DType,
    pieces: usize,
    threads: usize,
    /// Seconds a step: the median of the rounds.
    measured: f64,
    /// The standard deviation of the rounds over their median, from the median of
    /// their deviations.
    spread: f64,
    /// The median of the rounds' errors.
    error: f64,
    /// The part of the time that no shape was measured for.
    guessed: f64,
    /// How much the predicted time may be off, relative to it.
    doubt: f64,
}

impl Cell {
    fn new(workload: String, dtype: DType, of: Ready) -> Self {
        let Ready { pieces, threads, .. } = of;
        let measured = median(of.measured.clone());
        let deviations = of.measured.iter().map(|m| (m - measured).abs()).collect();
        let rounds = || of.measured.iter().zip(&of.predicted);
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
            error: median(rounds().map(|(m, p)| time(p) / m - 1.0).collect()),
            guessed: 1.0 - median(of.predicted.iter().map(known).collect()),
            doubt: median(of.predicted.iter().map(doubt).collect()),
        }
    }

    fn seconds(&self) -> f64 {
        (1.0 + self.error) * self.measured
    }

    fn is_good(&self) -> bool {
        self.error.abs() <= GOOD.max(2.0 * self.spread)
    }

    /// What the measured and the predicted time lie in.
    fn intervals(&self) -> [[f64; 2]; 2] {
        let measured = [1.0 - 2.0 * self.spread, 1.0 + 2.0 * self.spread];
        let predicted = [1.0 - self.doubt, 1.0 + self.doubt];
        [measured.map(|factor| factor * self.measured), predicted.map(|f| f * self.seconds())]
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    args.markdown.as_deref().map_or(Ok(()), |path| check_writable("markdown", path))?;
    let workloads = args.workloads.all()?;
    if !args.json {
        show(HEAD)?;
    }
    let mut cells = Vec::new();
    for workload in &workloads {
        for &dtype in &args.dtypes {
            for cell in of_workload(args, workload, dtype)? {
                show(&if args.json { object(&cell) } else { line(&cell) })?;
                cells.push(cell);
                // Whoever stops it keeps what there is.
                write_table(args, &cells)?;
            }
        }
    }
    show(&summary(args, &cells))
}

/// A grain on some threads, ready to be run.
struct Ready {
    pieces: usize,
    threads: usize,
    bench: Bench,
    /// Steps of a repetition.
    steps: u64,
    /// Seconds a step, round by round, and what was predicted for it.
    measured: Vec<f64>,
    predicted: Vec<StepPrediction>,
}

/// Rounds of calibrating, running, calibrating, predicting.
fn of_workload(args: &Args, workload: &Workload, dtype: DType) -> Result<Vec<Cell>> {
    let Workload { model, batch, .. } = workload;
    let lowered = model.lower(&TrainSpec::new(*batch, dtype, Optimizer::sgd(0.01)))?;
    let target = args.kernels.target();
    let grain = |pieces: usize, workers: usize| Grain {
        target,
        sample: pieces,
        ..Grain::for_workers(workers)
    };
    let kind = cpu_kind(target.isa);
    let calibrate = |known: &mut PerfModel| -> Result<()> {
        for &pieces in args.calibrated.iter().filter(|p| **p <= *batch) {
            let plan = grain(pieces, 1).plan(&lowered.programs)?;
            let budget = Duration::from_secs_f64(args.seconds);
            calibrate::steps(&plan, ProgramId(0), budget, &kind, known)?;
        }
        Ok(())
    };
    let mut all = Vec::new();
    for &threads in &super::threads_or_default(&args.threads) {
        for &pieces in args.pieces.iter().filter(|p| **p <= *batch) {
            let make = |lowered: &Lowered| grain(pieces, threads).plan(&lowered.programs);
            let mut bench = Bench::new(model, *batch, dtype, make)?;
            let first = bench.run(1)?;
            let steps = |one: Timing| (args.seconds / one.wall.max(1e-7)).clamp(1.0, 1e6) as u64;
            let steps = steps(bench.run(steps(first).div_ceil(4))?);
            let (measured, predicted) = (Vec::new(), Vec::new());
            all.push(Ready { pieces, threads, bench, steps, measured, predicted });
        }
    }
    for _ in 0..args.rounds {
        let mut known = PerfModel::default();
        calibrate(&mut known)?;
        for ready in &mut all {
            ready.run()?;
        }
        calibrate(&mut known)?;
        let platform = this_machine(&known)?;
        let (on, engine_model) = (platform.expand(), EngineModel::measured(&known));
        for ready in &mut all {
            let plan: PlannedPrograms =
                grain(ready.pieces, ready.threads).plan(&lowered.programs)?;
            let units = (0..ready.threads as u32).map(UnitId);
            let workers = units.map(|unit| Worker { unit, state: None }).collect();
            let what = (&plan, ProgramId(0));
            ready.predicted.push(predict(
                what,
                &on,
                workers,
                &engine_model,
                &mut Known::new(&known),
            )?);
        }
    }
    let name = &workload.name;
    Ok(all.into_iter().map(|ready| Cell::new(name.clone(), dtype, ready)).collect())
}

impl Ready {
    /// Runs until the processors were ours, as they are when calls are measured; of
    /// some attempts the least disturbed.
    fn run(&mut self) -> Result<()> {
        let mut best: Option<(f64, f64)> = None;
        for _ in 0..ATTEMPTS {
            let timing = self.bench.run(self.steps)?;
            let own = timing.cpu / (timing.wall * self.threads as f64);
            if best.is_none_or(|(before, _)| own > before) {
                best = Some((own, timing.wall));
            }
            if own >= OWN {
                break;
            }
        }
        self.measured.extend(best.map(|(_, wall)| wall));
        Ok(())
    }
}

const HEAD: &str = "workload            dtype threads pieces  guessed measured ms  spread predicted ms       interval    error\n";

fn line(cell: &Cell) -> String {
    let [_, [low, high]] = cell.intervals();
    let interval = format!("{:.3}-{:.3}", 1e3 * low, 1e3 * high);
    format!(
        "{:<19} {:>5} {:>7} {:>6} {:>7.0}% {:>11.3} {:>6.1}% {:>12.3} {interval:>17} {:>7.1}%{}\n",
        cell.workload,
        cell.dtype.name(),
        cell.threads,
        cell.pieces,
        100.0 * cell.guessed,
        1e3 * cell.measured,
        100.0 * cell.spread,
        1e3 * cell.seconds(),
        100.0 * cell.error,
        if cell.is_good() { "" } else { " !" },
    )
}

fn object(cell: &Cell) -> String {
    let value = json!({
        "workload": cell.workload,
        "dtype": cell.dtype.name(),
        "threads": cell.threads,
        "pieces": cell.pieces,
        "guessed": cell.guessed,
        "measured_ms": 1e3 * cell.measured,
        "spread": cell.spread,
        "predicted_ms": 1e3 * cell.seconds(),
        "interval_ms": cell.intervals()[1].map(|s| 1e3 * s),
        "error": cell.error,
        "good": cell.is_good(),
    });
    format!("{value}\n")
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

fn summary(args: &Args, cells: &[Cell]) -> String {
    let good = cells.iter().filter(|cell| cell.is_good()).count();
    let (apart, wrong) = orders(cells);
    if args.json {
        let value = json!({
            "cells": cells.len(), "good": good, "pairs_apart": apart, "pairs_wrong": wrong,
        });
        return format!("{value}\n");
    }
    let percent = 100.0 * good as f64 / cells.len().max(1) as f64;
    format!(
        "{good} of {} predictions ({percent:.0} %) are good; of {apart} pairs that can be told apart the order of {wrong} is wrong\n",
        cells.len()
    )
}

fn write_table(args: &Args, cells: &[Cell]) -> Result<()> {
    let Some(path) = &args.markdown else { return Ok(()) };
    let about = crate::train::about();
    let cpu = about["machine"]["cpu"].as_str().unwrap_or("unknown processor");
    let mut text = format!(
        "dahl {} ({}); {cpu}, {} processors; median of {} rounds. {}\n\
         | workload | dtype | threads | pieces | guessed | measured ms | spread | predicted ms | interval | error |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        env!("CARGO_PKG_VERSION"),
        env!("BUILD_COMMIT"),
        about["machine"]["processors"],
        args.rounds,
        summary(args, cells),
    );
    for cell in cells {
        let [_, [low, high]] = cell.intervals();
        text += &format!(
            "| {} | {} | {} | {} | {:.0} % | {:.3} | {:.1} % | {:.3} | {:.3}–{:.3} | {:.1} %{} |\n",
            cell.workload,
            cell.dtype.name(),
            cell.threads,
            cell.pieces,
            100.0 * cell.guessed,
            1e3 * cell.measured,
            100.0 * cell.spread,
            1e3 * cell.seconds(),
            1e3 * low,
            1e3 * high,
            100.0 * cell.error,
            if cell.is_good() { "" } else { " !" },
        );
    }
    dahl::file::replace(path, |out| out.write_all(text.as_bytes()))
}
