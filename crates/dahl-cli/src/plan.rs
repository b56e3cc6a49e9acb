//! `dahl plan`: what a training run will do, before it does it.

mod advise;
mod compare;
mod explain;
mod pipeline;
mod svg;
mod text;
mod time;

pub(crate) use compare::in_short;

use crate::flow::FlowArgs;
use crate::grain::{Cuts, GrainArgs, at_least_one, processors};
use crate::output::{Colour, counted, fail, failed, one_line, print};
use crate::planfile::in_file;
use crate::progress;
use crate::recipe::{OptimizerName, UpdateArgs};
use crate::samples::BATCH;
use crate::tuning::TuneArgs;
use crate::{auto, limit, machine, models};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use dahl::DType;
use dahl::graph::Programs;
use dahl::model::{Model, TrainSpec};
use dahl::plan::Plan;
use dahl::planner::Grain;
use dahl::platform::UnitId;
use dahl::sim::{Habits, Known, Worker, predict};
use dahl::units::{Bytes, Flops, ProgramId};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the plan of a training run, or the cheapest pipeline over unequal units
///
/// With a model: its pieces, tasks and memory. With --profile and --platform: which
/// layers of a network that others measured run on which units at what power, for the
/// least energy, time or their product, with what no plan can be better than.
///
/// Lowers the model to programs, plans them and checks the plan; nothing is
/// run. Without flags it is the plan that `dahl train` makes. The summary says how many tasks a step has and what memory it needs;
/// `--show` prints the whole plan, the graph, the task graph or the memory.
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
    /// A model's name or TOML file
    #[arg(required_unless_present_any = ["profile", "named"])]
    model: Option<String>,
    /// The same
    #[arg(long = "model", id = "named", value_name = "MODEL", conflicts_with_all = ["model", "profile"])]
    named: Option<String>,
    #[command(flatten)]
    pipeline: pipeline::PipelineArgs,
    #[command(flatten)]
    flow: FlowArgs,
    /// Samples per step
    #[arg(long, default_value_t = BATCH, value_parser = at_least_one)]
    batch: usize,
    /// Element type of parameters and activations: f32 or f64
    #[arg(long, default_value = "f32")]
    dtype: DType,
    /// Optimizer
    #[arg(long, value_enum, default_value_t)]
    optimizer: OptimizerName,
    #[command(flatten)]
    update: UpdateArgs,
    /// Worker threads [default: one per processor]
    #[arg(long, value_parser = at_least_one)]
    workers: Option<usize>,
    #[command(flatten)]
    grain: GrainArgs,
    #[command(flatten)]
    tune: TuneArgs,
    /// The most memory that the plan may need, such as 500MiB or 2GiB: activations are
    /// recomputed where it would need more
    #[arg(long, value_name = "SIZE", value_parser = limit::bytes)]
    memory_limit: Option<Bytes>,
    /// Times of calls, as `dahl calibrate` writes them [default: calibration.json, where it is]
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Read the plan from a file instead, as `--show plan` printed it or edited,
    /// and check it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tune", "conv", "isa"])]
    check: Option<PathBuf>,
    /// Say why the grain was chosen, layer by layer, and what its neighbours cost
    #[arg(long, requires = "grain", conflicts_with_all = ["check", "show"])]
    explain: bool,
    /// What to print
    #[arg(long, value_enum, default_value_t = Show::Summary)]
    show: Show,
    /// Print graph or tasks in Graphviz' language
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
    /// The tasks and what they wait for
    Tasks,
    /// What needs how much memory
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
        return match pipeline::run((&args.pipeline, &args.flow), profile, args.memory_limit) {
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
    let what = (&model, &spec, args.base().target);
    let flow = (&args.pipeline, &args.flow);
    let planned = pipeline::of_model(flow, what, args.calibration.as_deref(), args.memory_limit)?;
    match (args.show, planned.planned.deployed.first()) {
        (Show::Summary, _) => pipeline::tell_model(&args.pipeline, &planned),
        (Show::Plan, Some(run)) => crate::output::show(&run.plan.to_text(&run.lowered.programs)?),
        (Show::Plan, None) => {
            let expected = "one machine of processors, whose workers a plan can be for";
            Err(dahl::Error::config("platform", expected, "another"))
        }
        _ => Err(dahl::Error::config("show", "summary or plan with --platform", "another")),
    }
}

impl Args {
    fn workers(&self) -> usize {
        self.workers.unwrap_or_else(processors)
    }

    /// The grain, before a choice.
    fn base(&self) -> Grain {
        self.grain.base(self.workers())
    }

    /// What is trained.
    fn trained(&self) -> dahl::Result<(Model, TrainSpec)> {
        let model =
            models::find(self.model.as_ref().or(self.named.as_ref()).map_or("", String::as_str))?;
        let spec = self.update.spec((self.batch, self.dtype), (self.optimizer, 0.1))?;
        Ok((model, TrainSpec { fusion: self.grain.fusion(), ..spec }))
    }
}

fn text(args: &Args) -> dahl::Result<String> {
    let (model, spec) = args.trained()?;
    if args.explain && args.grain.cuts() != Some(&Cuts::Auto) {
        let expected = "--grain auto, the choice that it explains";
        return Err(dahl::Error::config("explain", expected, "another grain"));
    }
    let calibration = args.calibration.as_deref();
    let flowing = args.flow.flowing(&model, spec, &args.base(), calibration)?;
    let lowered = model.lower(&flowing.spec)?;
    let plan = match &args.check {
        Some(path) => {
            let text = dahl::os::disk::read_to_string(path)
                .map_err(|source| dahl::Error::Io { path: path.clone(), source })?;
            Plan::parse(&text, &lowered.programs).map_err(|error| in_file(path, error))?
        }
        None => {
            let said = progress::Show::on_stderr();
            let base = args.base();
            let numerics = args.tune.numerics(&base, &lowered.programs, said)?;
            let flowed = flowing.plan(&base, &lowered, &numerics, args.memory_limit);
            match (flowed, args.grain.cuts()) {
                (Some(fitted), None) => limit::told(&lowered.programs, fitted?, said),
                (Some(_), Some(_)) => {
                    let expected = "none with a pipeline, whose stages are it";
                    return Err(dahl::Error::config("grain", expected, "one"));
                }
                (None, Some(Cuts::Auto)) => {
                    let choice = auto::choice(
                        &auto::Wanted {
                            programs: &lowered.programs,
                            numerics,
                            base,
                            samples: args.batch,
                            limit: args.memory_limit,
                            calibration: args.calibration.as_deref(),
                        },
                        said,
                    )?;
                    let choice = choice.choice;
                    if args.explain {
                        return Ok(explain::text(&choice, &lowered.programs));
                    }
                    choice.candidates.into_iter().next().expect("the best").plan
                }
                _ => {
                    let what = (&lowered.programs, numerics);
                    limit::plan(&args.grain.grain(args.workers())?, what, args.memory_limit, said)?
                }
            }
        }
    };
    if let Some(limit) = args.memory_limit {
        plan.check_memory(&lowered.programs, limit)?;
    }
    let (expanded, graphs) = plan.task_graphs(&lowered.programs)?;
    let train = &expanded.programs[0].graph;
    Ok(match (args.show, args.dot) {
        (Show::Graph, true) => train.to_dot(),
        (Show::Graph, false) => train.to_string(),
        (Show::Tasks, true) => graphs[0].to_dot(train),
        (Show::Tasks, false) => graphs[0].to_text(train),
        (Show::Plan, _) => plan.to_text(&lowered.programs)?,
        (Show::Memory, _) => plan.memory.to_text(&expanded, &graphs),
        (Show::Summary, _) => {
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
                    args.batch,
                    args.dtype,
                    args.optimizer.name()
                ),
            );
            line("nodes", train.nodes.len().to_string());
            let edges: usize = graphs[0].edges.preds.iter().map(Vec::len).sum();
            let [edges, workers] =
                [(edges, "edge"), (plan.placement.workers, "worker")].map(|(n, of)| counted(n, of));
            line("tasks a step", format!("{} with {edges}, {workers}", graphs[0].tasks.len()));
            if let Some(text) = flowing.text() {
                line("pipeline", text);
            }
            line("work a step", flops.to_string());
            line("memory", format!("{} in all", plan.memory.peak()));
            let reused = plan.work_without_reuse(&graphs);
            line(
                "  of it reused",
                format!("{} for values of {reused}", Bytes(plan.memory.work() as u64)),
            );
            if let Some(what) = limit::recomputed(&lowered.programs, &plan) {
                line("  recomputed", what);
            }
            line("time, energy", predicted(args, &lowered.programs, &plan)?);
            line("bits", plan.numerics_hash(&lowered.programs));
            text
        }
    })
}

/// What a step takes on this machine, as far as a calibration tells.
fn predicted(args: &Args, programs: &Programs, plan: &Plan) -> dahl::Result<String> {
    if programs.programs.iter().any(|program| program.turn > 0) {
        return Ok("no prediction: several steps are under way at once".to_owned());
    }
    let known = crate::simulate::calibrations(args.calibration.as_slice())?;
    let platform = machine::platform(&known)?;
    let on = platform.expand();
    let workers = plan.placement.workers;
    if known.kinds().is_empty() {
        return Ok("no calibration here: dahl calibrate makes one".to_owned());
    }
    if workers > on.units.len() {
        return Ok(format!("no prediction: this machine has {} cores", on.units.len()));
    }
    let units = (0..workers as u32).map(|unit| Worker { unit: UnitId(unit), state: None });
    let (habits, mut costs) = (Habits::measured(&known), Known::new(&known));
    let step = predict((programs, plan, ProgramId(0)), &on, units.collect(), &habits, &mut costs);
    Ok(match step {
        Ok(step) => {
            let [low, high] = step.interval;
            format!(
                "{} per step, with 95 % in {low} to {high}; about {} modelled, from guessed watts",
                step.step,
                step.joules.rounded(2)
            )
        }
        // What the calibration does not know is no fault of the plan.
        Err(error) => format!("no prediction: {error}"),
    })
}
