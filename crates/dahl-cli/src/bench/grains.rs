//! `dahl bench grains`: every grain that `--grain auto` chooses from, predicted and run.

use super::measure::{Bench, Timings};
use super::workloads::{Workload, WorkloadArgs};
use crate::args::{Kernels, Settings};
use crate::files::calibrations;
use crate::output::show;
use clap::Args as ClapArgs;
use dahl::choose::{GrainCandidate, GrainRequest, ThisMachine};
use dahl::model::{Lowered, Optimizer, TrainSpec};
use dahl::plan::Numerics;
use dahl::planner::Grain;
use dahl::run::config::{at_least_one, threads};
use dahl::{DType, Result};
use serde_json::json;

/// Run every grain that --grain auto chooses from, and compare its choice with the best
///
/// The grains of a workload take turns, so that all see the same machine; the best
/// repetition of each counts.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl bench grains lenet-b64
  dahl bench grains seed-28-b10 seed-512-b16 --threads 2 --rounds 15

docs/grain.md has the space of grains.")]
pub(crate) struct Args {
    #[command(flatten)]
    workloads: WorkloadArgs,
    /// Maximum number of workers [default: one per processor]
    #[arg(long, value_parser = threads)]
    threads: Option<usize>,
    /// Element type
    #[arg(long, default_value = "f32", value_parser = super::floats)]
    dtype: DType,
    #[command(flatten)]
    kernels: Settings<Kernels>,
    /// Repetitions of each grain, in turns
    #[arg(long, default_value_t = 9, value_parser = at_least_one)]
    rounds: usize,
    /// Seconds that a repetition takes about
    #[arg(long, default_value_t = 0.1, value_parser = super::seconds)]
    seconds: f64,
    /// Print one JSON object a grain, and one a workload
    #[arg(long)]
    json: bool,
}

/// A candidate, and how long its step took.
struct Ran {
    candidate: GrainCandidate,
    bench: Bench,
    steps: u64,
    timings: Timings,
}

impl Ran {
    fn best(&self) -> f64 {
        self.timings.best().wall
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    args.workloads.all()?.iter().try_for_each(|workload| sweep(args, workload))
}

fn sweep(args: &Args, workload: &Workload) -> Result<()> {
    let Workload { model, batch, name } = workload;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = args.threads.unwrap_or(processors);
    let base = Grain { target: args.kernels.target(), ..Grain::for_workers(workers) };
    let lowered = model.lower(&TrainSpec::new(*batch, args.dtype, Optimizer::sgd(0.01)))?;
    let programs = &lowered.programs;
    let numerics = Numerics::default_for(programs, base.target);
    let (samples, limit) = (*batch, None);
    let request = GrainRequest { programs, numerics, base, samples, limit, steps: 0 };
    let choice = request.choose(calibrations(&[])?, Some(&mut ThisMachine))?;
    let mut all = Vec::new();
    for candidate in choice.candidates {
        let plan = candidate.plan.clone();
        let mut bench = Bench::new(model, *batch, args.dtype, |_: &Lowered| Ok(plan))?;
        let steps = bench.steps_of(args.seconds)?;
        all.push(Ran { candidate, bench, steps, timings: Timings::default() });
    }
    for _ in 0..args.rounds {
        for ran in &mut all {
            let timing = ran.bench.run(ran.steps)?;
            ran.timings.0.push(timing);
        }
    }
    // The first is what was chosen.
    let chosen = all[0].best();
    let best = all.iter().map(Ran::best).fold(f64::INFINITY, f64::min);
    let single = all.iter().filter(|ran| ran.candidate.grain.workers == 1);
    let single = single.map(Ran::best).fold(f64::INFINITY, f64::min);
    if args.json {
        for ran in &all {
            let (grain, step) = (&ran.candidate.grain, &ran.candidate.step);
            let value = json!({
                "workload": name, "grain": grain.to_string(), "workers": grain.workers,
                "predicted_ms": step.step.0 as f64 / 1e6, "measured_ms": 1e3 * ran.best(),
                "spread": ran.timings.spread(),
            });
            show(&format!("{value}\n"))?;
        }
        let value = json!({
            "workload": name, "chosen_ms": 1e3 * chosen, "best_ms": 1e3 * best,
            "over_best": chosen / best - 1.0, "over_one_worker": chosen / single - 1.0,
        });
        return show(&format!("{value}\n"));
    }
    let mut text = format!(
        "{name}\n  {:28} {:>7} {:>12} {:>12} {:>7}\n",
        "grain", "workers", "predicted ms", "measured ms", "spread"
    );
    for (i, ran) in all.iter().enumerate() {
        let (grain, step) = (&ran.candidate.grain, &ran.candidate.step);
        let mark = if i == 0 { "*" } else { " " };
        text += &format!(
            "{mark} {:28} {:>7} {:>12.3} {:>12.3} {:>5.1} %\n",
            grain.to_string(),
            grain.workers,
            step.step.0 as f64 / 1e6,
            1e3 * ran.best(),
            100.0 * ran.timings.spread(),
        );
    }
    text += &format!(
        "  the choice (*) is {:.1} % above the best, and {:.2} times one worker\n\n",
        100.0 * (chosen / best - 1.0),
        chosen / single,
    );
    show(&text)
}
