//! `dahl bench unequal`: workers that are not alike, and what the planner makes of them.

use super::measure::{Bench, Racer, least, median};
use super::workloads::{Workload, WorkloadArgs};
use crate::args::{Kernels, Settings};
use crate::files::calibrations;
use crate::output::{Colour, show, show_json};
use crate::table::table;
use clap::Args as ClapArgs;
use dahl::choose::{PlanRequest, ThisMachine, in_words};
use dahl::meter::model_of;
use dahl::model::{Optimizer, TrainSpec};
use dahl::native::{Native, Throttle};
use dahl::plan::MemoryLimits;
use dahl::planner::Deployed;
use dahl::planner::pipeline::{Assignment, Objective, Problem, Stage, cost_of};
use dahl::platform::Platform;
use dahl::run::config::at_least_one;
use dahl::{DType, Result};
use serde_json::json;
use std::time::Duration;

/// Run one of two workers slower, and compare the planner's choice with other plans
///
/// The workers are two types of units with given watts. The best plans for energy and for time are
/// compared with uneven shares of the batch, a pipeline, and each worker alone, all in turns on real
/// threads. Joules are modelled from these watts and the activity of the workers. Times and joules
/// are medians of the repetitions.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl bench unequal vgg-small-b32
  dahl bench unequal lenet-b64 --speeds 0.25 --busy 12,3 --idle 2,0.5 --base 4")]
pub(crate) struct Args {
    #[command(flatten)]
    workloads: WorkloadArgs,
    /// Speeds of the second worker, as fractions of full speed
    #[arg(long, value_delimiter = ',', default_value = "0.5,0.25", value_parser = dahl::run::config::throttle_speed)]
    speeds: Vec<f64>,
    /// Power of each worker while it computes, in watts
    #[arg(long, value_delimiter = ',', num_args = 1, default_values_t = [12.0, 6.0], value_parser = watts)]
    busy: Vec<f64>,
    /// Power of each worker while it spins for work, in watts
    #[arg(long, value_delimiter = ',', default_values_t = [8.0, 4.0], value_parser = watts)]
    spinning: Vec<f64>,
    /// Power of each worker while it sleeps, in watts
    #[arg(long, value_delimiter = ',', default_values_t = [2.0, 1.0], value_parser = watts)]
    idle: Vec<f64>,
    /// Power of the machine without the workers, in watts
    #[arg(long, default_value_t = 5.0, value_parser = watts)]
    base: f64,
    /// Number of micro-batches of the pipeline
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    micro_batches: usize,
    /// Element type
    #[arg(long, default_value = "f32", value_parser = super::floats)]
    dtype: DType,
    #[command(flatten)]
    kernels: Settings<Kernels>,
    /// Number of steps of the planned run. Plans with similar predictions are measured for a twentieth
    /// of the run (1 to 15 seconds)
    #[arg(long, default_value_t = 1_000_000)]
    steps: u64,
    /// Number of repetitions of each plan; the plans alternate
    #[arg(long, default_value_t = 15, value_parser = at_least_one)]
    rounds: usize,
    /// Approximate seconds per repetition
    #[arg(long, default_value_t = 0.3, value_parser = super::seconds)]
    seconds: f64,
    /// Print one JSON object per workload and speed
    #[arg(long)]
    json: bool,
}

/// Watts from 0 on.
fn watts(text: &str) -> std::result::Result<f64, String> {
    let watts = text.trim().parse().ok().filter(|w: &f64| w.is_finite() && *w >= 0.0);
    watts.ok_or_else(|| "expected watts from 0 on".to_owned())
}

/// A way to train.
struct Way {
    what: String,
    predicted: Option<(f64, f64)>,
    /// Which workers it uses; the others are off.
    used: Vec<bool>,
    /// Joules per step of each repetition.
    joules: Vec<f64>,
    /// The objectives that the planner chose it for.
    chosen: Vec<Objective>,
}

impl Racer<Way> {
    fn seconds(&self) -> f64 {
        median(self.timings.0.iter().map(|timing| timing.wall).collect())
    }

    fn joules(&self) -> f64 {
        median(self.of.joules.clone())
    }

    fn chosen_for(&self) -> Vec<&'static str> {
        self.of.chosen.iter().map(|objective| objective.name()).collect()
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    for workload in &args.workloads.all()? {
        for &speed in &args.speeds {
            measured(args, workload, speed)?;
        }
    }
    Ok(())
}

/// The two workers as a platform.
fn platform(args: &Args, speed: f64) -> Result<Platform> {
    let of = |values: &[f64], w: usize| values.get(w).or(values.last()).copied().unwrap_or(0.0);
    let kind = dahl::perf::cpu_kind(args.kernels.target().isa);
    let unit = |w: usize, name: &str, speed: f64| {
        let (busy, idle) = (of(&args.busy, w), of(&args.idle, w));
        let spinning = of(&args.spinning, w).clamp(idle, busy.max(idle));
        format!(
            "[[node.unit]]\nname = {name:?}\nkind = {kind:?}\nspeed = {speed:?}\n\
             busy_watts = {busy:?}\nspinning_watts = {spinning:?}\nidle_watts = {idle:?}\n"
        )
    };
    let text = format!(
        "dahl_platform = 1\nname = \"two workers\"\n[[node]]\nname = \"machine\"\nbase_watts = {:?}\n\
         [[node.memory]]\nname = \"ram\"\nbytes = \"64 GiB\"\nbandwidth = 2e10\n{}{}",
        args.base,
        unit(0, "fast", 1.0),
        unit(1, "slow", speed)
    );
    Platform::parse("two workers", &text)
}

fn measured(args: &Args, workload: &Workload, speed: f64) -> Result<()> {
    let Workload { model, batch, name } = workload;
    let platform = platform(args, speed)?;
    let spec = TrainSpec::new(*batch, args.dtype, Optimizer::sgd(0.01));
    let throttles = vec![Throttle { worker: 1, speed, from_step: 0 }];
    let engine = Native { throttles, ..Native::default() };
    let request = |objective: Objective| PlanRequest {
        model,
        spec: &spec,
        target: args.kernels.target(),
        platform: &platform,
        objective,
        period: None,
        power_cap: None,
        allow_stale: false,
        micro_batches: Some(args.micro_batches.min(*batch)).filter(|m| *m > 1),
        limits: MemoryLimits::default(),
        engine: Some(&engine),
        steps: args.steps,
        time: Duration::from_secs(20),
    };
    let mut runs: Vec<(Deployed, Vec<Objective>)> = Vec::new();
    let mut add = |run: Deployed, chosen: Option<Objective>| match runs
        .iter_mut()
        .find(|(known, _)| *known.plan == *run.plan)
    {
        Some((_, all)) => all.extend(chosen),
        None => runs.push((run, chosen.into_iter().collect())),
    };
    let mut planned = request(Objective::Time).plan(calibrations(&[])?, Some(&mut ThisMachine))?;
    let known = planned.known.clone();
    let energy = request(Objective::Energy).plan(known, Some(&mut ThisMachine))?;
    let chosen_first = |i: usize, objective| (i == 0).then_some(objective);
    let time = std::mem::take(&mut planned.deployed).into_iter().enumerate();
    time.for_each(|(i, run)| add(run, chosen_first(i, Objective::Time)));
    let cheap = energy.deployed.into_iter().enumerate();
    cheap.for_each(|(i, run)| add(run, chosen_first(i, Objective::Energy)));
    // What the planner may have left out.
    let (problem, mut known) = (&planned.problem, energy.known);
    let of_time = request(Objective::Time);
    if let Some(plan) = pipeline(problem) {
        add(of_time.run_of(problem, &plan, &mut known, Some(&mut ThisMachine))?, None);
    }
    let mut all = Vec::new();
    for (run, chosen) in runs {
        let what = in_words(problem, &run);
        let predicted = run.step.as_ref().map(|s| (s.step.0 as f64 / 1e9, s.joules.0));
        let used = run.used();
        let bench = Bench::of(run.lowered, run.plan, &run.spec, (&engine, *batch))?;
        let way = Way { what, predicted, used, joules: Vec::new(), chosen };
        all.push(Racer::new(way, bench, args.seconds)?);
    }
    for _ in 0..args.rounds {
        for way in &mut all {
            let counters = way.bench.trainer().session().counters();
            let before = counters.activity();
            way.run()?;
            let did = counters.activity().since(&before);
            let spent = model_of(&platform, &did, &way.of.used).map_or(0.0, |all| all.joules().0);
            way.of.joules.push(spent / way.steps as f64);
        }
    }
    tell(args, (name, speed), &all)
}

/// The fastest pipeline of two stages, if there are two layers.
fn pipeline(problem: &Problem) -> Option<Assignment> {
    let layers = problem.layers.len();
    let cut = |(at, first): (usize, usize)| {
        let stage = |layers: std::ops::Range<usize>, unit| {
            let layers = layers.collect();
            Stage { layers, unit, replicas: 1, power: 0 }
        };
        let stages = vec![stage(0..at, first), stage(at..layers, 1 - first)];
        let mut plan = Assignment { stages, shares: Vec::new(), period_s: 0.0, energy_j: 0.0 };
        [plan.period_s, plan.energy_j] = cost_of(problem, &plan);
        plan
    };
    let all = (1..layers).flat_map(|at| [(at, 0), (at, 1)]).map(cut);
    all.min_by(|a, b| a.period_s.total_cmp(&b.period_s))
}

fn tell(args: &Args, (name, speed): (&str, f64), all: &[Racer<Way>]) -> Result<()> {
    let over = |objective: Objective, of: fn(&Racer<Way>) -> f64| {
        let chosen = all.iter().filter(|way| way.of.chosen.contains(&objective));
        least(chosen.map(of)) / least(all.iter().map(of)) - 1.0
    };
    let slower = over(Objective::Time, Racer::<Way>::seconds);
    let dearer = over(Objective::Energy, Racer::<Way>::joules);
    if args.json {
        let way = |way: &Racer<Way>| {
            json!({
                "way": way.of.what, "chosen_for": way.chosen_for(), "ms": 1e3 * way.seconds(),
                "joules": way.joules(), "spread": way.timings.spread(),
                "predicted_ms": way.of.predicted.map(|p| 1e3 * p.0),
                "predicted_joules": way.of.predicted.map(|p| p.1),
            })
        };
        return show_json(&json!({
            "workload": name, "speed": speed, "ways": all.iter().map(way).collect::<Vec<_>>(),
            "time_over_best": slower, "energy_over_best": dearer,
        }));
    }
    let predicted = |of: Option<String>| of.unwrap_or_else(|| "-".to_owned());
    let row = |way: &Racer<Way>| {
        vec![
            way.of.what.clone(),
            predicted(way.of.predicted.map(|p| format!("{:.3}", 1e3 * p.0))),
            format!("{:.3}", 1e3 * way.seconds()),
            format!("{:.1} %", 100.0 * way.timings.spread()),
            predicted(way.of.predicted.map(|p| format!("{:.5}", p.1))),
            format!("{:.5}", way.joules()),
            way.chosen_for().join(", "),
        ]
    };
    let heads =
        ["", ">predicted ms", ">ms", ">spread", ">predicted J", ">J, modelled", "chosen for"];
    let rows: Vec<_> = all.iter().map(row).collect();
    show(&format!(
        "{name}, second worker at {speed} of its speed\n{}\
         the choice for time is {:.1} % above the best, the choice for energy {:.1} %\n\
         (joules are modelled from the same watts: compare them only with each other)\n\n",
        table(&heads, &rows, Colour::of_stdout()),
        100.0 * slower,
        100.0 * dearer
    ))
}
