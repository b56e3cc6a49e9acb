//! `dahl simulate`: a plan on a platform, on virtual time.

mod show;

use crate::args::{Settings, Simulated as Group};
use crate::files::{calibrations, check_outputs, given_grain, read, write};
use crate::output::{Colour, say, show as print, show_json};
use clap::{Args as ClapArgs, ValueEnum};
use dahl::calibrate::this_machine;
use dahl::model::{Fusion, Model, TrainSpec};
use dahl::native::Scheduling;
use dahl::plan::{MemoryLimits, Numerics, Placement, PlannedPrograms};
use dahl::planner::Grain;
use dahl::platform::{Expanded, Platform, UnitId, UnitOf};
use dahl::run::RunConfig;
use dahl::run::config::at_least_one;
use dahl::run::in_file;
use dahl::sim::{
    EngineModel, Known, Noise, Order, Outcome, SCRIPT, Scenario, Start, StepPrediction, Steps,
    Tasks, Worker, run as simulated, to_simgrid,
};
use dahl::units::ProgramId;
use dahl::{Error, Result};
use std::path::{Path, PathBuf};

/// Simulate a plan on a platform, in virtual time
///
/// `dahl simulate` executes the steps of a model, or the tasks of a file, in virtual time on the
/// processing units of a platform. The output is the time of a step, the activity of every processing
/// unit and the energy by cause. The times of calls come from calibration files, else from the speeds
/// in the platform file; the output names the source. Energy is modelled from the power values of the
/// platform. Simulation is deterministic: the same input gives the same output, byte for byte.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl calibrate lenet --batch 64 && dahl simulate lenet --batch 64 --workers 2
  dahl simulate vgg-small --workers 4 --platform platforms/laptop.toml
  dahl simulate lenet --workers 2 --on 'desktop/core,laptop/core' --platform lab.toml
  dahl simulate --tasks diamond.toml --platform lab.toml --trace diamond.trace
  dahl simulate --tasks diamond.toml --platform lab.toml --export simgrid --output replay
  python3 replay/replay.py replay/scenario.json

docs/simulation.md has the model, its limits, and the format of tasks.
Exit codes: 0 ok, 1 a result cannot be written, 2 usage or a call of unknown duration,
3 a plan that does not fit, 4 a file that cannot be read or is wrong.")]
pub(crate) struct Args {
    /// Model name or TOML file
    #[arg(required_unless_present = "tasks", conflicts_with = "tasks")]
    model: Option<String>,
    /// File with tasks, instead of a model (docs/simulation.md)
    #[arg(long, value_name = "FILE", requires = "platform")]
    tasks: Option<PathBuf>,
    /// Number of workers [default: one per unit of --on, else one per unit of the first type of
    /// the platform's first node]
    #[arg(long, value_parser = at_least_one)]
    workers: Option<usize>,
    #[command(flatten)]
    settings: Settings<Group>,
    /// Do not fuse ops
    #[arg(long)]
    no_fusion: bool,
    /// Plan file (output of `dahl plan --show plan`, which may be edited) [default: a plan by --grain]
    #[arg(long, value_name = "FILE", conflicts_with = "tasks")]
    plan: Option<PathBuf>,
    /// Platform file (TOML) [default: this machine, with estimated power values]
    #[arg(long, value_name = "FILE")]
    platform: Option<PathBuf>,
    /// Calibration file (of `dahl calibrate`); repeatable: for each kind of unit the first file that
    /// has it is used [default: calibration.json, if it exists]
    #[arg(long, value_name = "FILE", conflicts_with = "tasks")]
    calibration: Vec<PathBuf>,
    /// Unit of each worker, such as desktop[2]/core[5] [default: the platform's first units]
    #[arg(long, value_name = "UNIT", value_delimiter = ',', conflicts_with = "tasks")]
    on: Vec<String>,
    /// Power state of the workers' units [default: full speed]
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Number of consecutive steps
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "tasks")]
    steps: u16,
    /// Noise of durations: standard deviation over mean [default: as measured]
    #[arg(long, value_parser = deviation)]
    noise: Option<f64>,
    /// Random seed of the noise
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Start with all nodes asleep that can sleep
    #[arg(long)]
    asleep: bool,
    /// Write the trace (docs/trace-format.md)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Export the scenario for another simulator, with a script that replays it
    #[arg(long, value_enum, requires = "output")]
    export: Option<Export>,
    /// Output directory of --export
    #[arg(long, value_name = "DIR", requires = "export")]
    output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Export {
    /// SimGrid 3.32
    Simgrid,
}

/// Reads a standard deviation over the mean.
fn deviation(text: &str) -> std::result::Result<f64, String> {
    let value = text.parse().ok().filter(|x: &f64| (0.0..=10.0).contains(x));
    value.ok_or_else(|| "expected a number from 0 to 10, such as 0.05".to_owned())
}

/// A simulation and its result.
struct Simulated<'a> {
    on: &'a Expanded<'a>,
    scenario: &'a Scenario,
    outcome: Outcome,
    /// Of steps alone.
    step: Option<StepPrediction>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    check_outputs(&[("trace", args.trace.as_ref())])?;
    match &args.tasks {
        Some(path) => of_tasks(args, path),
        None => of_model(args, args.model.as_deref().unwrap_or_default()),
    }
}

fn of_tasks(args: &Args, path: &Path) -> Result<()> {
    let platform = Platform::read(args.platform.as_deref().unwrap_or(Path::new("")))?;
    let on = platform.expand();
    let text = read(path)?;
    let mut tasks = Tasks::parse(&text, path, &on)?;
    let engine_model = args.engine_model(EngineModel::default());
    for worker in &mut tasks.scenario.workers {
        worker.state = args.state(&on, worker.unit)?;
    }
    let outcome = args.simulated(&tasks.scenario, &on, &engine_model)?;
    args.write_trace(|| Ok(tasks.trace(&on, &outcome, &engine_model).to_text()))?;
    args.export(&tasks.scenario, &on, &engine_model)?;
    args.print(&Simulated { on: &on, scenario: &tasks.scenario, outcome, step: None })
}

fn of_model(args: &Args, name: &str) -> Result<()> {
    let model = Model::open(name)?;
    let RunConfig { identity, placement, .. } = &*args.settings.config;
    let fusion = if args.no_fusion { Fusion::Off } else { Fusion::On };
    let spec = TrainSpec { fusion, ..identity.train_spec()? };
    let known = calibrations(&args.calibration)?;
    let platform = match &args.platform {
        Some(path) => Platform::read(path)?,
        None => {
            say("note: no --platform: using this machine, with estimated power values");
            this_machine(&known)?
        }
    };
    let on = platform.expand();
    let workers = args.default_workers(&on);
    let base = Grain { target: identity.target(), ..Grain::for_workers(workers) };
    let grain = match identity.pipeline {
        Some(_) => placement.workers_of_stages(base)?,
        None => given_grain(base, placement.grain.as_ref())?,
    };
    let flowing = identity.pipelined(&model, spec, &grain, &known)?;
    if flowing.scheduling() == Scheduling::Staged {
        let expected = "gpipe or 1f1b: the others have several steps in flight";
        return Err(Error::config("pipeline", expected, "a stale one"));
    }
    let lowered = model.lower(&flowing.spec)?;
    let numerics = Numerics::default_for(&lowered.programs, grain.target);
    let plan =
        match (&args.plan, flowing.plan(&grain, &lowered, &numerics, &MemoryLimits::default())) {
            (Some(path), _) => PlannedPrograms::parse(&read(path)?, &lowered.programs)
                .map_err(|error| in_file(path, error))?,
            (None, Some(fitted)) => fitted?.plan,
            (None, None) => grain.plan(&lowered.programs)?,
        };
    let workers = args.units_of_workers(&on, &plan.placement)?;
    let engine_model = args.engine_model(EngineModel::measured(&known));
    let what = (&plan, ProgramId(0));
    let steps = Steps::new(what, (&on, workers), args.steps.into(), &mut Known::new(&known))?;
    let outcome = args.simulated(&steps.scenario, &on, &engine_model)?;
    args.write_trace(|| Ok(steps.trace(what, &on, &outcome, &engine_model).to_text()))?;
    args.export(&steps.scenario, &on, &engine_model)?;
    for (kind, machine) in &known.borrowed {
        say(format_args!("note: times of {kind} were measured on another machine: {machine}"));
    }
    let step = Some(steps.predicted(&outcome));
    args.print(&Simulated { on: &on, scenario: &steps.scenario, outcome, step })
}

/// Which units the workers are on, in words.
fn placed(on: &Expanded<'_>, units: &[UnitId]) -> String {
    let name = |unit: &UnitId| on.name_of(*unit);
    match units {
        [one] => format!("the worker is on {}", name(one)),
        [first, .., last] => {
            let workers = units.len();
            format!(
                "the {workers} workers are on the first units, {} to {}",
                name(first),
                name(last)
            )
        }
        [] => "there is no worker".to_owned(),
    }
}

impl Args {
    fn engine_model(&self, of_engine: EngineModel) -> EngineModel {
        let start = if self.asleep { Start::Asleep } else { Start::Awake };
        let noise = match self.noise {
            None => Noise::Own,
            Some(0.0) => Noise::Off,
            Some(deviation) => Noise::All(deviation),
        };
        EngineModel { noise, seed: self.seed, start, ..of_engine }
    }

    /// The power state that was asked for, of a unit.
    fn state(&self, on: &Expanded<'_>, unit: UnitId) -> Result<Option<usize>> {
        let Some(name) = &self.state else { return Ok(None) };
        let states = &on.unit(unit).states;
        let found = states.iter().position(|state| state.name == *name);
        found.map(Some).ok_or_else(|| {
            let names: Vec<&str> = states.iter().map(|state| &*state.name).collect();
            let expected = match names.is_empty() {
                true => format!("no state: {} has none", on.name_of(unit)),
                false => format!("one of {}, of {}", names.join(", "), on.name_of(unit)),
            };
            Error::config("state", expected, format!("{name:?}"))
        })
    }

    /// The number of workers without a plan file.
    fn default_workers(&self, on: &Expanded<'_>) -> usize {
        let like_first = |unit: &&UnitOf| {
            on.units.first().is_some_and(|first| (first.node, first.unit) == (unit.node, unit.unit))
        };
        let of_platform = || on.units.iter().take_while(like_first).count();
        let of_units = Some(self.on.len()).filter(|&units| units > 0);
        self.workers.or(of_units).unwrap_or_else(of_platform)
    }

    fn units_of_workers(&self, on: &Expanded<'_>, placement: &Placement) -> Result<Vec<Worker>> {
        let count = placement.workers;
        let units: Vec<UnitId> = if self.on.is_empty() && !placement.units.is_empty() {
            let find = |name: &String| {
                let found = on.find(name);
                found.map_err(|expected| Error::plan("units", expected, format!("{name:?}")))
            };
            placement.units.iter().map(find).collect::<Result<_>>()?
        } else if self.on.is_empty() {
            let all = on.units.len();
            if count > all {
                let expected = format!("at most {all}, the units of the platform");
                return Err(Error::config("workers", expected, count));
            }
            let units: Vec<UnitId> = (0..count as u32).map(UnitId).collect();
            say(format_args!("note: no --on: {}", placed(on, &units)));
            units
        } else {
            let find = |text: &String| {
                on.find(text).map_err(|expected| Error::config("on", expected, format!("{text:?}")))
            };
            self.on.iter().map(find).collect::<Result<_>>()?
        };
        if units.len() != count {
            let expected = format!("{count} units, as the plan has workers");
            return Err(Error::config("on", expected, units.len()));
        }
        let worker = |unit| Ok(Worker { unit, state: self.state(on, unit)? });
        units.into_iter().map(worker).collect()
    }

    fn simulated(
        &self,
        scenario: &Scenario,
        on: &Expanded<'_>,
        engine_model: &EngineModel,
    ) -> Result<Outcome> {
        let placement = &self.settings.config.placement;
        let Some(mut policy) = placement.policy(&scenario.expectations(on)) else {
            return simulated(scenario, on, engine_model, Order::Static);
        };
        simulated(scenario, on, engine_model, Order::Policy(&mut *policy))
    }

    fn write_trace(&self, text: impl FnOnce() -> Result<String>) -> Result<()> {
        let Some(path) = &self.trace else { return Ok(()) };
        write(path, &text()?)
    }

    fn export(
        &self,
        scenario: &Scenario,
        on: &Expanded<'_>,
        engine_model: &EngineModel,
    ) -> Result<()> {
        let (Some(Export::Simgrid), Some(directory)) = (self.export, &self.output) else {
            return Ok(());
        };
        let (text, left_out) = to_simgrid(scenario, on, engine_model)?;
        dahl::file::create_directories(directory).map_err(Error::while_writing)?;
        write(&directory.join("scenario.json"), &text)?;
        write(&directory.join("replay.py"), SCRIPT)?;
        for what in left_out {
            say(format_args!("note: the export to SimGrid leaves out {what}"));
        }
        Ok(())
    }

    fn print(&self, simulated: &Simulated<'_>) -> Result<()> {
        match self.json {
            true => show_json(&show::object(simulated)),
            false => print(&show::text(simulated, Colour::of_stdout())),
        }
    }
}
