//! `dahl bench grains`: every grain that `--grain auto` chooses from, predicted and run.

use super::measure::{Bench, Racer, least};
use super::workloads::{Workload, WorkloadArgs};
use crate::args::{Kernels, Settings};
use crate::files::{calibrations, grain_request};
use crate::output::{show, show_json};
use crate::table::Columns;
use clap::Args as ClapArgs;
use dahl::choose::{GrainCandidate, ThisMachine};
use dahl::model::{Lowered, Optimizer, TrainSpec};
use dahl::planner::Grain;
use dahl::run::config::{at_least_one, processors, threads};
use dahl::{DType, Result};
use serde_json::json;

/// Run every grain that --grain auto chooses from, and compare its choice with the best one
///
/// The grains of a workload take turns; the best repetition of each counts.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl bench grains lenet-b64
  dahl bench grains seed-28-b10 seed-512-b16 --threads 2 --rounds 15

docs/grain.md describes the grains.")]
pub(crate) struct Args {
    #[command(flatten)]
    workloads: WorkloadArgs,
    /// Maximum number of workers [default: one per logical CPU]
    #[arg(long, value_parser = threads)]
    threads: Option<usize>,
    /// Element type
    #[arg(long, default_value = "f32", value_parser = super::floats)]
    dtype: DType,
    #[command(flatten)]
    kernels: Settings<Kernels>,
    /// Number of repetitions of each grain; the grains alternate
    #[arg(long, default_value_t = 9, value_parser = at_least_one)]
    rounds: usize,
    /// Approximate seconds per repetition
    #[arg(long, default_value_t = 0.1, value_parser = super::seconds)]
    seconds: f64,
    /// Print one JSON object per grain and per workload
    #[arg(long)]
    json: bool,
}

type Ran = Racer<GrainCandidate>;

const COLUMNS: Columns = Columns(&[
    ("", 1),
    ("grain", -28),
    ("workers", 7),
    ("predicted ms", 12),
    ("measured ms", 12),
    ("spread", 7),
]);

fn cells(chosen: bool, ran: &Ran) -> Vec<String> {
    vec![
        if chosen { "*" } else { "" }.to_owned(),
        ran.of.grain.to_string(),
        ran.of.grain.workers.to_string(),
        format!("{:.3}", ran.of.step.step.0 as f64 / 1e6),
        format!("{:.3}", 1e3 * ran.best()),
        format!("{:.1} %", 100.0 * ran.timings.spread()),
    ]
}

pub(super) fn run(args: &Args) -> Result<()> {
    args.workloads.all()?.iter().try_for_each(|workload| sweep(args, workload))
}

fn sweep(args: &Args, workload: &Workload) -> Result<()> {
    let Workload { model, batch, name } = workload;
    let workers = args.threads.unwrap_or_else(processors);
    let base = Grain { target: args.kernels.target(), ..Grain::for_workers(workers) };
    let lowered = model.lower(&TrainSpec::new(*batch, args.dtype, Optimizer::sgd(0.01)))?;
    let request = grain_request(&lowered.programs, base, *batch, None);
    let choice = request.choose(calibrations(&[])?, Some(&mut ThisMachine))?;
    let mut all = Vec::new();
    for candidate in choice.candidates {
        let plan = candidate.plan.clone();
        let bench = Bench::new(model, *batch, args.dtype, |_: &Lowered| Ok(plan))?;
        all.push(Ran::new(candidate, bench, args.seconds)?);
    }
    for _ in 0..args.rounds {
        all.iter_mut().try_for_each(|ran| ran.run().map(drop))?;
    }
    // The first is what was chosen.
    let chosen = all[0].best();
    let best = least(all.iter().map(Ran::best));
    let single = least(all.iter().filter(|ran| ran.of.grain.workers == 1).map(Ran::best));
    if args.json {
        for ran in &all {
            show_json(&json!({
                "workload": name, "grain": ran.of.grain.to_string(), "workers": ran.of.grain.workers,
                "predicted_ms": ran.of.step.step.0 as f64 / 1e6, "measured_ms": 1e3 * ran.best(),
                "spread": ran.timings.spread(),
            }))?;
        }
        return show_json(&json!({
            "workload": name, "chosen_ms": 1e3 * chosen, "best_ms": 1e3 * best,
            "over_best": chosen / best - 1.0, "over_one_worker": chosen / single - 1.0,
        }));
    }
    let mut text = format!("{name}\n{}", COLUMNS.row(&COLUMNS.heads(6)));
    text.extend(all.iter().enumerate().map(|(i, ran)| COLUMNS.row(&cells(i == 0, ran))));
    text += &format!(
        "  the choice (*) is {:.1} % above the best, and {:.2} times one worker\n\n",
        100.0 * (chosen / best - 1.0),
        chosen / single,
    );
    show(&text)
}
