//! `dahl plan`: what a training run will do, before it does it.

mod explain;
mod money;
mod pipeline;
mod score;
mod text;

use crate::args::{Settings, Training};
use crate::files::{Shown, calibrations, grain_request, read};
use crate::output::{Colour, DIFFERENT, counted, one_line, say, show};
use crate::progress;
use crate::table::facts;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use dahl::calibrate::this_machine;
use dahl::model::{Fusion, Model, TrainSpec};
use dahl::perf::PerfModel;
use dahl::plan::PlannedPrograms;
use dahl::planner::Grain;
use dahl::report::plan_diff;
use dahl::run::config::{GrainChoice, IdentitySettings, Value, processors};
use dahl::run::{
    Prepare, Prepared, RunConfig, SampleCounts, in_file, predict, prepare, recomputed_in_words,
};
use dahl::units::{Bytes, Joules, Nanos, ProgramId};
use dahl::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show the plan of a training run, or plan training on heterogeneous processing units
///
/// `dahl plan MODEL` makes and checks the plan of a training run without running it, and prints a
/// summary of the tasks and the memory of a training step. --show prints the whole plan, the graph
/// of ops, the task graph or the memory. Without other flags, the plan is the one that `dahl train
/// --model MODEL` runs.
///
/// `dahl plan MODEL --platform FILE` and `dahl plan --profile FILE --platform FILE` assign the layers
/// of a network to the processing units of a platform, with replicas, uneven shares of the batch and
/// power states. The planner minimises energy, time or the energy-delay product. The commands print
/// the best plan found, the Pareto front of period (time per batch) and energy, and a lower bound on
/// the minimised quantity.
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
  dahl plan --profile vgg16.graph.txt --platform platforms/lab.toml --score other.json

Exit codes:
  0  success
  2  wrong flags or configuration
  3  no feasible plan, or the plan of --score does not fit
  4  invalid model, profile, platform or plan file"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    of: Option<Of>,
    /// Model name or TOML file
    #[arg(required_unless_present_any = ["profile", "named"])]
    model: Option<String>,
    /// Model name or TOML file; the same as the argument MODEL
    #[arg(long = "model", id = "named", value_name = "MODEL", conflicts_with_all = ["model", "profile"])]
    named: Option<String>,
    #[command(flatten)]
    pipeline: pipeline::PipelineArgs,
    #[command(flatten)]
    settings: Settings<Training>,
    /// Do not fuse ops
    #[arg(long)]
    no_fusion: bool,
    /// Check a plan file (output of --show plan, which may be edited) instead of making a plan
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tune", "conv", "isa"])]
    check: Option<PathBuf>,
    /// Explain the choice of --grain auto: print the predicted step time of every candidate, and the
    /// number of pieces of every layer
    #[arg(long, requires = "grain", conflicts_with_all = ["check", "show"])]
    explain: bool,
    /// Output of `dahl plan MODEL`
    #[arg(long, value_enum, default_value_t = Show::Summary)]
    show: Show,
    /// Print the output of --show graph or --show tasks as Graphviz DOT
    #[arg(long)]
    dot: bool,
}

#[derive(Subcommand)]
enum Of {
    /// Compare two plans for heterogeneous processing units, and show the effect of each difference
    /// on time and energy
    #[command(after_help = "Examples:
  dahl plan --profile vgg16.graph.txt --platform lab.toml --json > a.json
  dahl plan --profile vgg16.graph.txt --platform lab.toml --objective time --json > b.json
  dahl plan diff a.json b.json

Exit codes:
  0  the plans have the same stages
  1  the stages differ
  4  a file cannot be read")]
    Diff {
        /// File with the first plan (output of `dahl plan --json`)
        a: PathBuf,
        /// File with the second plan (output of `dahl plan --json`)
        b: PathBuf,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Show {
    /// Tasks, memory and floating-point operations of a training step
    Summary,
    /// The whole plan as text (docs/plan-format.md)
    Plan,
    /// The graph of ops of a training step
    Graph,
    /// The tasks and their dependencies
    Tasks,
    /// Memory by kind of value, and the largest tensors
    Memory,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if let Some(Of::Diff { a, b }) = &args.of {
        let (text, different) = plan_diff(a, b)?;
        show(&text)?;
        return Ok(ExitCode::from(if different { DIFFERENT } else { 0 }));
    }
    match &args.pipeline.profile {
        Some(profile) => pipeline::run(&args.pipeline, args.config(), profile)?,
        None if args.pipeline.platform.is_some() => over_units(args)?,
        None => show(&text(args)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The training of a model over the units of a platform.
fn over_units(args: &Args) -> Result<()> {
    let (model, spec) = args.trained()?;
    let what = (&model, &spec, args.config().identity.target());
    let Some(planned) = pipeline::of_model(&args.pipeline, args.config(), what)? else {
        return Ok(());
    };
    match (args.show, planned.deployed.first()) {
        (Show::Summary, _) => pipeline::tell(&args.pipeline, &planned),
        (Show::Plan, Some(run)) => {
            note_settings(&run.spec);
            show(&run.plan.to_text())
        }
        (Show::Plan, None) => {
            let expected = "a platform with a plan of few enough units to be simulated";
            Err(Error::config("platform", expected, "another"))
        }
        (show, _) => {
            let found = show.to_possible_value().map(|value| value.get_name().to_owned());
            let expected = "summary or plan with --platform";
            Err(Error::config("show", expected, found.unwrap_or_default()))
        }
    }
}

/// Says what of the training a planner chose, which a run by its plan has to have too.
fn note_settings(spec: &TrainSpec) {
    let shards = Some(&spec.shards).filter(|shards| shards.count() > 1);
    let shards = shards.map(|shards| format!("--shards {shards}"));
    let parts = Some(spec.micro_batches).filter(|parts| *parts > 1);
    let flags: Vec<String> =
        shards.into_iter().chain(parts.map(|n| format!("--micro-batches {n}"))).collect();
    if !flags.is_empty() {
        say(format_args!("note: the plan is for a training with {}", flags.join(" ")));
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

    /// The programs of the training, with one micro-batch.
    fn trained(&self) -> Result<(Model, TrainSpec)> {
        let name = self.model.as_ref().or(self.named.as_ref()).map_or("", String::as_str);
        let spec = self.config().identity.train_spec()?;
        Ok((Model::open(name)?, TrainSpec { fusion: self.fusion(), ..spec }))
    }
}

fn text(args: &Args) -> Result<String> {
    let (model, spec) = args.trained()?;
    let (config, on_stderr) = (args.config(), progress::Show::on_stderr());
    if args.explain && config.placement.grain != Some(GrainChoice::Auto) {
        return Err(Error::Requires { setting: "explain".into(), other: "grain auto".into() });
    }
    if config.placement.grain == Some(GrainChoice::Adaptive) {
        let expected = "auto or pieces, such as sample=4; dahl train adapts";
        return Err(Error::config("grain", expected, "adaptive"));
    }
    let known = calibrations(&config.session.calibration)?;
    if args.explain {
        return explained(args, (&model, &spec), known);
    }
    let shown = match &args.check {
        Some(path) => checked(args, (&model, spec), (path, &known))?,
        None => planned(args, &model, (known.clone(), on_stderr))?,
    };
    let plan = &shown.plan;
    plan.check_limits(&config.placement.limits())?;
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
) -> Result<Planned> {
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
) -> Result<Planned> {
    let pipelined = args.config().identity.pipelined(model, spec, &args.base(), known)?;
    let lowered = model.lower(&pipelined.spec)?;
    let plan = PlannedPrograms::parse(&read(path)?, &lowered.programs);
    let plan = plan.map_err(|error| in_file(path, error))?;
    Ok(Planned { plan, pipeline: pipelined.text() })
}

/// The sizes of a plan, and its prediction.
fn summary(args: &Args, model: &Model, of: &Planned, known: PerfModel) -> Result<String> {
    let (config, Planned { plan, pipeline }) = (args.config(), of);
    let (train, graph) = plan.program(ProgramId(0));
    let [edges, workers] = [
        (graph.edges.preds.iter().map(Vec::len).sum(), "edge"),
        (plan.placement.workers, "worker"),
    ]
    .map(|(n, of)| counted(n, of));
    let (name, input) = (one_line(&model.name), &model.input);
    let IdentitySettings { batch, dtype, optimizer, .. } = &config.identity;
    let optimizer = optimizer.print();
    let mut lines = vec![
        ("model", format!("{name} on {input:?}, batch {batch}, {dtype}, {optimizer}")),
        ("nodes", train.nodes.len().to_string()),
        ("tasks per step", format!("{} with {edges}, {workers}", graph.tasks.len())),
    ];
    lines.extend(pipeline.iter().map(|text| ("pipeline", text.clone())));
    lines.push(("work per step", train.flops().to_string()));
    lines.push(("memory", plan.memory.peak().to_string()));
    let (own, reused) = (Bytes(plan.memory.total_work() as u64), plan.work_without_reuse());
    lines.push(("  reused", format!("{own} hold {reused} of values")));
    lines.extend(recomputed_in_words(plan).map(|what| ("  recomputed", what)));
    lines.push(("time, energy", predicted(known, plan)?));
    lines.push(("bits", plan.numerics_hash()));
    Ok(facts(&lines, Colour::of_stdout()))
}

/// Why the grain is chosen.
fn explained(args: &Args, (model, spec): (&Model, &TrainSpec), known: PerfModel) -> Result<String> {
    let config = args.config();
    let base = args.base();
    if config.identity.pipeline.is_some() {
        return Err(Error::exclusive("grain", "pipeline, whose stages define the cut"));
    }
    let pipelined = config.identity.pipelined(model, spec.clone(), &base, &known)?;
    let lowered = model.lower(&pipelined.spec)?;
    let programs = &lowered.programs;
    let (samples, limit) = (config.identity.batch, config.placement.limits().of_host());
    let request = grain_request(programs, base, samples, limit);
    let show = progress::Show::on_stderr();
    let progress = progress::Waiting::begin(show, "choosing the grain".to_owned());
    let choice = request.choose(known, Some(&mut Shown(show)))?;
    drop(progress);
    Ok(explain::text(&choice))
}

/// The predicted time and energy of a step on this machine, if there is a calibration.
fn predicted(known: PerfModel, plan: &PlannedPrograms) -> Result<String> {
    if plan.programs().programs.iter().any(|program| program.turn > 0) {
        return Ok("not predicted: several steps are in flight at once".to_owned());
    }
    if known.kinds().is_empty() {
        return Ok("not predicted: run dahl calibrate first".to_owned());
    }
    let platform = this_machine(&known)?;
    let cores = platform.expand().units.len();
    if plan.placement.workers > cores {
        return Ok(format!("not predicted: this machine has only {cores} cores"));
    }
    Ok(match predict((&known, ""), plan, Some(&platform)) {
        Ok(step) => {
            let [low, high] = step.interval.map(Nanos);
            format!(
                "{} per step (95 % interval {low} to {high}); about {} per step, with estimated power \
                 values",
                Nanos(step.step),
                Joules(step.joules).rounded(2)
            )
        }
        // What the calibration does not know is no fault of the plan.
        Err(error) => format!("not predicted: {error}"),
    })
}
