//! `dahl plan`: what a training run will do, before it does it.

mod advise;
mod compare;
mod explain;
mod pipeline;
mod svg;
mod text;
mod time;

pub(crate) use compare::in_short;

use crate::args::{Settings, Training};
use crate::files::{Shown, calibrations, read};
use crate::output::{Colour, counted, fail, failed, one_line, print, say};
use crate::progress;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use dahl::calibrate::this_machine;
use dahl::choose::GrainRequest;
use dahl::model::{Fusion, Model, TrainSpec};
use dahl::perf::PerfModel;
use dahl::plan::{Numerics, PlannedPrograms};
use dahl::planner::Grain;
use dahl::run::config::{GrainChoice, Value, processors};
use dahl::run::{
    Prepare, Prepared, RunConfig, SampleCounts, in_file, predict, prepare, recomputed_in_words,
};
use dahl::units::{Bytes, Flops, Joules, Nanos, ProgramId};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show the plan of a training run, or plan a pipeline over unequal processing units
///
/// MODEL: lowers the model to programs, plans them and checks the plan, without running it. The
/// summary has the tasks of a step and its memory; --show prints the plan, the graph, the task
/// graph or the memory. Without flags it is the plan of `dahl train`.
///
/// MODEL --platform FILE, or --profile FILE --platform FILE: assigns layers to processing units,
/// with replicas, uneven shares and power states, for minimum energy, time or energy-delay
/// product. Prints the plan, the Pareto front of period and energy, and a lower bound.
#[derive(ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  dahl plan lenet --batch 64 --workers 2
  dahl plan seed-cnn --batch 10 --show tasks
  dahl plan seed-cnn --batch 10 --show graph --dot | dot -Tsvg > graph.svg
  dahl plan resnet18 --batch 128 --memory-limit 2GiB
  dahl plan lenet --workers 2 --grain sample=4,channel=2
  dahl plan lenet --workers 2 --grain auto --explain
  dahl plan lenet --show plan > my.plan
  dahl plan lenet --check my.plan
  dahl train --model lenet --data mnist --plan my.plan
  dahl plan --profile vgg16.graph.txt --platform platforms/lab.toml --objective energy
  dahl plan --profile resnet50.graph.txt --platform platforms/zeus.toml --allow-stale
    --period 0.3 --svg front.svg --certificate proof.json
  dahl plan --profile bert24_training.json --cost-model max-load

Exit codes: 0 ok, 2 usage, 3 no feasible plan, 4 bad model."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    of: Option<Of>,
    /// Model name or TOML file
    #[arg(required_unless_present_any = ["profile", "named"])]
    model: Option<String>,
    /// Model name or TOML file, as a flag
    #[arg(long = "model", id = "named", value_name = "MODEL", conflicts_with_all = ["model", "profile"])]
    named: Option<String>,
    #[command(flatten)]
    pipeline: pipeline::PipelineArgs,
    #[command(flatten)]
    settings: Settings<Training>,
    /// Do not fuse ops
    #[arg(long)]
    no_fusion: bool,
    /// Check the plan of a file, as --show plan prints it or edited, instead of planning
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tune", "conv", "isa"])]
    check: Option<PathBuf>,
    /// Explain the choice of --grain auto: the predicted step of every grain, and the cut of every
    /// layer
    #[arg(long, requires = "grain", conflicts_with_all = ["check", "show"])]
    explain: bool,
    /// What to print
    #[arg(long, value_enum, default_value_t = Show::Summary)]
    show: Show,
    /// Print the graph or the tasks as Graphviz DOT
    #[arg(long)]
    dot: bool,
}

#[derive(Subcommand)]
enum Of {
    Diff(compare::DiffArgs),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Show {
    /// Tasks, memory and work of a step
    Summary,
    /// The plan's text (docs/plan-format.md)
    Plan,
    /// The program's graph
    Graph,
    /// The tasks and their dependencies
    Tasks,
    /// The memory, value by value
    Memory,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if let Some(Of::Diff(of)) = &args.of {
        let shown = compare::diff(of).and_then(|(text, different)| {
            crate::output::show(&text)?;
            Ok(different)
        });
        return match shown {
            Ok(false) => ExitCode::SUCCESS,
            Ok(true) => ExitCode::from(crate::output::DIFFERENT),
            Err(error) => failed(&error),
        };
    }
    if let Some(profile) = &args.pipeline.profile {
        return match pipeline::run(
            (&args.pipeline, args.config()),
            profile,
            args.config().placement.memory_limit,
        ) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        };
    }
    if args.pipeline.platform.is_some() {
        return match over_units(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        };
    }
    match text(args) {
        Ok(text) => match print(&text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(error, crate::output::DIFFERENT),
        },
        Err(error) => failed(&error),
    }
}

/// The training of a model over the units of a platform.
fn over_units(args: &Args) -> dahl::Result<()> {
    let (model, spec) = args.trained()?;
    let config = args.config();
    let what = (&model, &spec, config.identity.target());
    let limit = config.placement.memory_limit;
    let planned = pipeline::of_model((&args.pipeline, config), what, limit)?;
    match (args.show, planned.planned.deployed.first()) {
        (Show::Summary, _) => pipeline::tell_model(&args.pipeline, &planned),
        (Show::Plan, Some(run)) => crate::output::show(&run.plan.to_text()),
        (Show::Plan, None) => {
            let expected = "one machine of processors, whose workers a plan can be for";
            Err(dahl::Error::config("platform", expected, "another"))
        }
        _ => Err(dahl::Error::config("show", "summary or plan with --platform", "another")),
    }
}

impl Args {
    fn config(&self) -> &RunConfig {
        &self.settings.config
    }

    /// The grain before a choice.
    fn base(&self) -> Grain {
        let workers = self.config().placement.workers.unwrap_or_else(processors);
        Grain { target: self.config().identity.target(), ..Grain::for_workers(workers) }
    }

    fn fusion(&self) -> Fusion {
        if self.no_fusion { Fusion::Off } else { Fusion::On }
    }

    /// What is trained, the batch in one part.
    fn trained(&self) -> dahl::Result<(Model, TrainSpec)> {
        let name = self.model.as_ref().or(self.named.as_ref()).map_or("", String::as_str);
        let spec = self.config().identity.train_spec()?;
        Ok((Model::open(name)?, TrainSpec { fusion: self.fusion(), ..spec }))
    }
}

fn text(args: &Args) -> dahl::Result<String> {
    let (model, spec) = args.trained()?;
    let (config, said) = (args.config(), progress::Show::on_stderr());
    if args.explain && config.placement.grain != Some(GrainChoice::Auto) {
        return Err(dahl::Error::Requires {
            setting: "explain".into(),
            other: "grain auto".into(),
        });
    }
    if config.placement.grain == Some(GrainChoice::Adaptive) {
        let expected = "auto or pieces, such as sample=4; dahl train adapts";
        return Err(dahl::Error::config("grain", expected, "adaptive"));
    }
    let paths: Vec<PathBuf> = config.session.calibration.iter().cloned().collect();
    let known = calibrations(&paths)?;
    if args.explain {
        return explained(args, (&model, &spec), known);
    }
    let shown = match &args.check {
        Some(path) => checked(args, (&model, spec), (path, &known))?,
        None => planned(args, &model, (known.clone(), said))?,
    };
    let plan = &shown.plan;
    if let Some(limit) = config.placement.memory_limit {
        plan.check_memory(limit)?;
    }
    let (train, tasks) = plan.program(ProgramId(0));
    Ok(match (args.show, args.dot) {
        (Show::Graph, true) => train.to_dot(),
        (Show::Graph, false) => train.to_string(),
        (Show::Tasks, true) => tasks.to_dot(train),
        (Show::Tasks, false) => tasks.to_text(train),
        (Show::Plan, _) => plan.to_text(),
        (Show::Memory, _) => plan.memory_text(),
        (Show::Summary, _) => summary(args, &model, &shown, known)?,
    })
}

/// A plan with its programs, and its pipeline in words.
struct Planned {
    plan: PlannedPrograms,
    pipeline: Option<String>,
}

/// The plan of the settings.
fn planned(
    args: &Args,
    model: &Model,
    (known, show): (PerfModel, progress::Show),
) -> dahl::Result<Planned> {
    let samples = SampleCounts { train: args.config().identity.batch, eval: Vec::new() };
    let mut measurer = Shown(show);
    let (fusion, measurer) = (args.fusion(), Some(&mut measurer as _));
    let (platform, resumed) = (None, None);
    let with = Prepare { model, samples, fusion, platform, known, resumed, measurer };
    let progress = progress::Waiting::begin(show, "preparing the plan".to_owned());
    let Prepared { plan, pipeline, why, .. } = prepare(args.config(), with)?;
    drop(progress);
    why.iter().for_each(say);
    Ok(Planned { plan, pipeline })
}

/// The plan of a file.
fn checked(
    args: &Args,
    (model, spec): (&Model, TrainSpec),
    (path, known): (&Path, &PerfModel),
) -> dahl::Result<Planned> {
    let pipelined = args.config().identity.pipelined(model, spec, &args.base(), known)?;
    let lowered = model.lower(&pipelined.spec)?;
    let plan = PlannedPrograms::parse(&read(path)?, &lowered.programs);
    let plan = plan.map_err(|error| in_file(path, error))?;
    Ok(Planned { plan, pipeline: pipelined.text() })
}

/// The sizes of a plan, and its prediction.
fn summary(args: &Args, model: &Model, of: &Planned, known: PerfModel) -> dahl::Result<String> {
    let (config, Planned { plan, pipeline }) = (args.config(), of);
    let (train, tasks) = plan.program(ProgramId(0));
    let colour = Colour::of_stdout();
    let flops: Flops = train
        .nodes
        .iter()
        .map(|node| {
            let (inputs, outputs) = train.metas(node);
            let metas = dahl::ops::Metas { inputs: &inputs, outputs: &outputs };
            node.op.flops(metas, &train.whole(node))
        })
        .sum();
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{} {value}", colour.paint("1", &format!("{key:18}")));
    };
    line(
        "model",
        format!(
            "{} on {:?}, batch {}, {}, {}",
            one_line(&model.name),
            model.input,
            config.identity.batch,
            config.identity.dtype,
            config.identity.optimizer.print()
        ),
    );
    line("nodes", train.nodes.len().to_string());
    let edges: usize = tasks.edges.preds.iter().map(Vec::len).sum();
    let [edges, workers] =
        [(edges, "edge"), (plan.placement.workers, "worker")].map(|(n, of)| counted(n, of));
    line("tasks per step", format!("{} with {edges}, {workers}", tasks.tasks.len()));
    if let Some(text) = pipeline {
        line("pipeline", text.clone());
    }
    line("work per step", flops.to_string());
    line("memory", plan.memory.peak().to_string());
    let reused = plan.work_without_reuse();
    line("  reused", format!("{} for values of {reused}", Bytes(plan.memory.work() as u64)));
    if let Some(what) = recomputed_in_words(plan) {
        line("  recomputed", what);
    }
    line("time, energy", predicted(known, plan)?);
    line("bits", plan.numerics_hash());
    Ok(text)
}

/// Why the grain is chosen.
fn explained(
    args: &Args,
    (model, spec): (&Model, &TrainSpec),
    known: PerfModel,
) -> dahl::Result<String> {
    let config = args.config();
    let base = args.base();
    if config.identity.pipeline.is_some() {
        return Err(dahl::Error::exclusive("grain", "pipeline, whose stages define the cut"));
    }
    let pipelined = config.identity.pipelined(model, spec.clone(), &base, &known)?;
    let lowered = model.lower(&pipelined.spec)?;
    let programs = &lowered.programs;
    let numerics = Numerics::default_for(programs, base.target);
    let (samples, limit) = (config.identity.batch, config.placement.memory_limit);
    let request = GrainRequest { programs, numerics, base, samples, limit, steps: 0 };
    let show = progress::Show::on_stderr();
    let progress = progress::Waiting::begin(show, "choosing the grain".to_owned());
    let choice = request.choose(known, Some(&mut Shown(show)))?;
    drop(progress);
    Ok(explain::text(&choice))
}

/// What a step takes on this machine, as far as a calibration tells.
fn predicted(known: PerfModel, plan: &PlannedPrograms) -> dahl::Result<String> {
    if plan.programs().programs.iter().any(|program| program.turn > 0) {
        return Ok("no prediction: several steps are in flight at once".to_owned());
    }
    if known.kinds().is_empty() {
        return Ok("no calibration here: dahl calibrate makes one".to_owned());
    }
    let platform = this_machine(&known)?;
    let cores = platform.expand().units.len();
    if plan.placement.workers > cores {
        return Ok(format!("no prediction: this machine has {cores} cores"));
    }
    Ok(match predict((&known, ""), plan, Some(&platform)) {
        Ok(step) => {
            let [low, high] = step.interval.map(Nanos);
            format!(
                "{} per step, with 95 % in {low} to {high}; about {} modelled, from guessed watts",
                Nanos(step.step),
                Joules(step.joules).rounded(2)
            )
        }
        // What the calibration does not know is no fault of the plan.
        Err(error) => format!("no prediction: {error}"),
    })
}
