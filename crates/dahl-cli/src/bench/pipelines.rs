//! `dahl bench pipelines`: every pipeline, beside what the formula makes of its stages' times.

use crate::args::{Kernels, Settings};
use crate::output::show;
use clap::Args as ClapArgs;
use dahl::graph::Phase;
use dahl::model::{Model, NormOver};
use dahl::model::{Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::perf::PerfModel;
use dahl::plan::Numerics;
use dahl::planner::Grain;
use dahl::run::Pipelined;
use dahl::run::config::{IdentitySettings, PipelineKind, StagesChoice, Switch, Value};
use dahl::run::config::{at_least_one, threads};
use dahl::trace::Event;
use dahl::train::Trainer;
use dahl::units::Bytes;
use dahl::{DType, Result};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;

/// Run every pipeline over the same stages, and compare it with the formula for them
///
/// The pipelines take turns, so that all see the same machine. The times of the stages are
/// those of the same run: forward and backward of a micro-batch, and the update.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl bench pipelines vgg-small --batch 32 --micro-batches 8
  dahl bench pipelines lenet --stages 2 --rounds 9

docs/pipelines.md has the formulas.")]
pub(crate) struct Args {
    /// A model's name or TOML file
    #[arg(default_value = "vgg-small")]
    model: String,
    /// Samples per step
    #[arg(long, default_value_t = 32, value_parser = at_least_one)]
    batch: usize,
    /// Micro-batches of those pipelines that have any
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    micro_batches: usize,
    /// Stages, of a worker each
    #[arg(long, default_value_t = 2, value_parser = threads)]
    stages: usize,
    /// Element type
    #[arg(long, default_value = "f32", value_parser = super::floats)]
    dtype: DType,
    #[command(flatten)]
    kernels: Settings<Kernels>,
    /// Repetitions of each pipeline, in turns
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    rounds: usize,
    /// Steps of a repetition
    #[arg(long, default_value_t = 10, value_parser = at_least_one)]
    steps: usize,
    /// Print one JSON object a pipeline
    #[arg(long)]
    json: bool,
}

/// A pipeline that is measured.
struct Ran {
    name: &'static str,
    flowing: Pipelined,
    trainer: Trainer,
    /// What each task of each program is, by its first node.
    phases: Vec<Vec<Phase>>,
    rounds: Vec<Round>,
    allocated: Bytes,
}

/// What one repetition took, in seconds a step.
#[derive(Clone)]
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
        let plan = flowing.plan(&base, &lowered, &numerics, None).expect("a pipeline")?.plan;
        let phases = plan.graphs().iter().zip(&plan.expanded().programs).map(|(graph, program)| {
            graph.tasks.iter().map(|t| program.graph.node(t.calls[0].node).phase).collect()
        });
        let phases = phases.collect();
        let scheduling = flowing.scheduling();
        let engine = Native { record: true, scheduling, ..Native::default() };
        let mut trainer = Trainer::with_plan(lowered, plan, &flowing.spec, &engine)?;
        let slots = trainer.plan().memory.input_slots;
        let slots = (0..slots).map(|_| trainer.slot(args.batch)).collect::<Result<Vec<_>>>()?;
        for slot in slots {
            let mut slot = slot;
            let mut input = slot.input("input")?;
            let count = input.meta.shape.elements();
            input.write_f64((0..count).map(|i| ((i * 7919) % 2003) as f64 / 1001.0 - 1.0))?;
            slot.input("target")?.write_f64((0..args.batch).map(|i| (i % 2) as f64))?;
            trainer.step(slot)?;
        }
        trainer.last_loss()?;
        let allocated = trainer.session().allocated();
        all.push(Ran { name, flowing, trainer, phases, rounds: Vec::new(), allocated });
    }
    for _ in 0..args.rounds {
        for ran in &mut all {
            let round = ran.round(args)?;
            ran.rounds.push(round);
        }
    }
    print(args, &all)
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
        drop(self.trainer.session().take_trace());
        let from = Instant::now();
        for _ in 0..args.steps {
            let slot = self.trainer.slot(args.batch)?;
            self.trainer.step(slot)?;
        }
        self.trainer.last_loss()?;
        let steps = args.steps as f64;
        let step = from.elapsed().as_secs_f64() / steps;
        let trace = self.trainer.session().take_trace();
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

fn print(args: &Args, all: &[Ran]) -> Result<()> {
    let mut text = format!(
        "{:10} {:>9} {:>9} {:>13} {:>7} {:>9} {:>12} {:>12}  stages (ms a micro-batch)\n",
        "pipeline", "step ms", "formula", "ratio", "idle", "formula", "planned", "allocated"
    );
    for ran in all {
        let mut rounds = ran.rounds.clone();
        rounds.sort_by(|a, b| (a.step / a.formula).total_cmp(&(b.step / b.formula)));
        let ratio = |r: &Round| r.step / r.formula;
        let (median, low, high) =
            (&rounds[rounds.len() / 2], ratio(&rounds[0]), ratio(&rounds[rounds.len() - 1]));
        let planned = ran.trainer.plan().memory.peak();
        // What the engine has is asked of it, not of the plan.
        let allocated = ran.allocated;
        if args.json {
            let value = json!({
                "pipeline": ran.name, "step_ms": 1e3 * median.step,
                "formula_ms": 1e3 * median.formula, "ratio": [low, ratio(median), high],
                "idle": median.idle, "idle_by_formula": median.idle_by_formula,
                "planned_bytes": planned.0, "allocated_bytes": allocated.0,
                "stages_ms": median.stages.iter().map(|s| 1e3 * s).collect::<Vec<_>>(),
            });
            show(&format!("{value}\n"))?;
            continue;
        }
        let stages: Vec<String> = median.stages.iter().map(|s| format!("{:.2}", 1e3 * s)).collect();
        text += &format!(
            "{:10} {:9.2} {:9.2} {:5.3} {:.2}–{:.2} {:6.1}% {:8.1}% {:>12} {:>12}  {}\n",
            ran.name,
            1e3 * median.step,
            1e3 * median.formula,
            ratio(median),
            low,
            high,
            100.0 * median.idle,
            100.0 * median.idle_by_formula,
            planned.to_string(),
            allocated.to_string(),
            stages.join(", "),
        );
    }
    if args.json { Ok(()) } else { show(&text) }
}
