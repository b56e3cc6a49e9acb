//! `dahl bench pipelines`: every pipeline, beside what the formula makes of its stages' times.

use super::measure::Bench;
use crate::args::{Kernels, Settings};
use crate::output::{Colour, show, show_json};
use crate::table::table;
use clap::Args as ClapArgs;
use dahl::graph::Phase;
use dahl::model::{Model, NormOver};
use dahl::model::{Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::perf::PerfModel;
use dahl::plan::{MemoryLimits, Numerics};
use dahl::planner::Grain;
use dahl::run::Pipelined;
use dahl::run::config::{IdentitySettings, PipelineKind, StagesChoice, Switch, Value};
use dahl::run::config::{at_least_one, threads};
use dahl::trace::Event;
use dahl::units::Bytes;
use dahl::{DType, Result};
use serde_json::json;
use std::collections::BTreeMap;

/// Run every pipeline over the same stages, and compare the step with its formula
///
/// The pipelines take turns. The formula uses the times of the stages in the same run: forward and
/// backward of a micro-batch, and the update.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl bench pipelines vgg-small --batch 32 --micro-batches 8
  dahl bench pipelines lenet --stages 2 --rounds 9

docs/pipelines.md has the formulas.")]
pub(crate) struct Args {
    /// Model name or TOML file
    #[arg(default_value = "vgg-small")]
    model: String,
    /// Batch size: samples per step
    #[arg(long, default_value_t = 32, value_parser = at_least_one)]
    batch: usize,
    /// Number of micro-batches of the pipelines that have them
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    micro_batches: usize,
    /// Number of stages, one worker each
    #[arg(long, default_value_t = 2, value_parser = threads)]
    stages: usize,
    /// Element type
    #[arg(long, default_value = "f32", value_parser = super::floats)]
    dtype: DType,
    #[command(flatten)]
    kernels: Settings<Kernels>,
    /// Number of repetitions of each pipeline; the pipelines alternate
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    rounds: usize,
    /// Number of steps per repetition
    #[arg(long, default_value_t = 10, value_parser = at_least_one)]
    steps: usize,
    /// Print one JSON object per pipeline
    #[arg(long)]
    json: bool,
}

/// A pipeline that is measured.
struct Ran {
    name: &'static str,
    flowing: Pipelined,
    bench: Bench,
    /// The kind of each task of each program, by its first node.
    phases: Vec<Vec<Phase>>,
    rounds: Vec<Round>,
    allocated: Bytes,
}

/// The time of one repetition, in seconds per step.
struct Round {
    step: f64,
    formula: f64,
    /// The part of the workers' time in which they did nothing.
    idle: f64,
    idle_by_formula: f64,
    /// Forward and backward of a micro-batch, by stage.
    stages: Vec<f64>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let model = Model::open(&args.model)?;
    let base = Grain { target: args.kernels.target(), ..Grain::for_workers(args.stages) };
    let mut all = Vec::new();
    for (name, micro_batches) in args.pipelines() {
        let spec = TrainSpec::new(args.batch, args.dtype, Optimizer::sgd(0.01));
        let mut identity = IdentitySettings { micro_batches, ..IdentitySettings::default() };
        identity.pipeline = Some(PipelineKind::parse(name).expect("a pipeline"));
        identity.stages = Some(StagesChoice::Count(args.stages));
        (identity.bn, identity.allow_stale) = (NormOver::Part, Switch(true));
        let flowing = identity.pipelined(&model, spec, &base, &PerfModel::default())?;
        let lowered = model.lower(&flowing.spec)?;
        let numerics = Numerics::default_for(&lowered.programs, base.target);
        let plan = flowing
            .plan(&base, &lowered, &numerics, &MemoryLimits::default())
            .expect("a pipeline")?
            .plan;
        let phases = plan.graphs().iter().zip(&plan.expanded().programs).map(|(graph, program)| {
            graph.tasks.iter().map(|t| program.graph.node(t.calls()[0].node).phase).collect()
        });
        let phases = phases.collect();
        let scheduling = flowing.scheduling();
        let engine = Native { record: true, scheduling, ..Native::default() };
        let mut bench = Bench::of(lowered, plan, &flowing.spec, (&engine, args.batch))?;
        let allocated = bench.trainer().session().allocated();
        all.push(Ran { name, flowing, bench, phases, rounds: Vec::new(), allocated });
    }
    for _ in 0..args.rounds {
        for ran in &mut all {
            let round = ran.round(args)?;
            ran.rounds.push(round);
        }
    }
    print(args, all)
}

impl Args {
    /// Every pipeline with its micro-batches.
    fn pipelines(&self) -> [(&'static str, Option<usize>); 4] {
        let parts = self.micro_batches;
        [
            ("gpipe", Some(parts)),
            ("1f1b", Some(parts)),
            ("pipedream", None),
            ("2bw", Some(parts.max(self.stages))),
        ]
    }
}

impl Ran {
    fn round(&mut self, args: &Args) -> Result<Round> {
        drop(self.bench.trainer().session().take_trace());
        let steps = args.steps as f64;
        let step = self.bench.run(args.steps as u64)?.wall;
        let trace = self.bench.trainer().session().take_trace();
        let mut busy: BTreeMap<(usize, Phase), f64> = BTreeMap::new();
        for event in &trace.events {
            if let Event::Call { program, task, worker, from, to, .. } = *event {
                let phase = self.phases[program as usize][task as usize];
                *busy.entry((worker as usize, phase)).or_default() += (to - from) as f64 / 1e9;
            }
        }
        let stages = args.stages;
        let parts = self.flowing.spec.micro_batches as f64;
        let of = |phase: Phase, count: f64| -> Vec<f64> {
            (0..stages)
                .map(|s| busy.get(&(s, phase)).copied().unwrap_or(0.0) / (steps * count))
                .collect()
        };
        let (f, b) = (of(Phase::Forward, parts), of(Phase::Backward, parts));
        let u = of(Phase::Update, 1.0);
        let both: Vec<f64> = f.iter().zip(&b).map(|(f, b)| f + b).collect();
        let max = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
        let through = |times: &[f64]| times.iter().sum::<f64>() + (parts - 1.0) * max(times);
        let with_update: Vec<f64> = both.iter().zip(&u).map(|(t, u)| parts * t + u).collect();
        let formula = match self.name {
            "gpipe" => through(&f) + through(&b) + u[0],
            "1f1b" => through(&both) + u[0],
            // Nothing waits for an update: the slowest stage alone counts.
            _ => max(&with_update),
        };
        let work: f64 = with_update.iter().sum();
        let idle = |step: f64| 1.0 - work / (stages as f64 * step);
        Ok(Round { step, formula, idle: idle(step), idle_by_formula: idle(formula), stages: both })
    }
}

fn print(args: &Args, all: Vec<Ran>) -> Result<()> {
    let mut rows = Vec::new();
    for Ran { name, mut bench, mut rounds, allocated, .. } in all {
        let ratio = |round: &Round| round.step / round.formula;
        rounds.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let middle = &rounds[rounds.len() / 2];
        let ratios = [&rounds[0], middle, &rounds[rounds.len() - 1]].map(ratio);
        let planned = bench.trainer().plan().memory.peak();
        if args.json {
            show_json(&json!({
                "pipeline": name, "step_ms": 1e3 * middle.step,
                "formula_ms": 1e3 * middle.formula, "ratio": ratios,
                "idle": middle.idle, "idle_by_formula": middle.idle_by_formula,
                "planned_bytes": planned.0, "allocated_bytes": allocated.0,
                "stages_ms": middle.stages.iter().map(|s| 1e3 * s).collect::<Vec<_>>(),
            }))?;
            continue;
        }
        let stages: Vec<String> = middle.stages.iter().map(|s| format!("{:.2}", 1e3 * s)).collect();
        rows.push(vec![
            name.to_owned(),
            format!("{:.2}", 1e3 * middle.step),
            format!("{:.2}", 1e3 * middle.formula),
            format!("{:.3} {:.2}–{:.2}", ratios[1], ratios[0], ratios[2]),
            format!("{:.1}%", 100.0 * middle.idle),
            format!("{:.1}%", 100.0 * middle.idle_by_formula),
            planned.to_string(),
            allocated.to_string(),
            stages.join(", "),
        ]);
    }
    let heads = [
        "pipeline",
        ">step ms",
        ">formula",
        ">ratio",
        ">idle",
        ">formula",
        ">planned",
        ">allocated",
        "stages (ms per micro-batch)",
    ];
    if args.json { Ok(()) } else { show(&table(&heads, &rows, Colour::of_stdout())) }
}
