//! `dahl train`: trains a model on a dataset.

mod planning;

use crate::energy::EnergyArgs;
use crate::flow::{FlowArgs, Flowing};
use crate::grain::{Cuts, KernelArgs, at_least_one, cuts, processors, threads};
use crate::live::Screen;
use crate::normalize::Normalization;
use crate::outcome::{Ended, Failure, Gave, conclude, explained, unplaced, unusable};
use crate::output::{counted, fail, one_line, quoted};
use crate::place::{Place, RunArgs, check_file, check_weights};
use crate::planfile::PlanFile;
use crate::progress::Show;
use crate::recipe::{Learning, RecipeArgs};
use crate::report::{Length, Report, Voice};
use crate::rundir::{self, Log, RunDir};
use crate::samples::{Opened, SampleArgs, gone};
use crate::schedule::Span;
use crate::scheduling::{SchedulingArgs, throttle};
use crate::settings::{Settings, is_given};
use crate::stop::{Reason, Stop};
use crate::tuning::TuneArgs;
use crate::units::{Goal, Planned, flags as flags_of, in_words};
use crate::watch::{WatchArgs, Watched, keep_prediction};
use crate::{forecast, limit, placements};
use clap::{ArgMatches, Args as ClapArgs, Command, FromArgMatches};
use dahl::data::{Order, Transform};
use dahl::exec::Engine;
use dahl::file::TensorFile;
use dahl::model::TrainSpec;
use dahl::native::{Native, Scheduling as Own, Throttle};
use dahl::ops::Target;
use dahl::perf::PerfModel;
use dahl::planner::{Grain, Ran};
use dahl::train::{Card, Course, End, Event, Judge, Run, Samples, Trainer};
use dahl::units::{Bytes, Joules};
use dahl::{Error, Result};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Train a model on a dataset and say how well it does
///
/// Without arguments it trains `digits-cnn` on handwritten digits that come with
/// dahl. A line an epoch says the loss and the accuracy on the training and the
/// test samples. The same command gives the same numbers again, on any number of
/// workers.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl train
  dahl train --model lenet --data path/to/fashion-mnist --limit 6000 --epochs 3
  dahl train --model my.toml --data synthetic:1x28x28:10 --run first
  dahl train --resume first --epochs 20

A run is stopped by Ctrl-C or SIGTERM, saves itself and goes on by --resume to the
same bits.

Exit codes: 0 ok, 1 the run failed or its results cannot be written, 2 usage, 3 no
feasible plan, 4 bad data or model, 5 the loss or a weight is not finite, 128 + n
ended by signal n.")]
pub(crate) struct Args {
    #[command(flatten)]
    samples: SampleArgs,
    /// Passes over the training samples
    #[arg(long, default_value_t = 10, value_parser = at_least_one)]
    epochs: usize,
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Worker threads [default: one per processor]
    #[arg(long, value_parser = threads)]
    workers: Option<usize>,
    /// How ops are cut: auto, adaptive, or pieces such as sample=4,channel=2
    /// (docs/grain.md); it changes no bit [default: one piece of the batch a worker]
    #[arg(long, value_parser = cuts)]
    grain: Option<Cuts>,
    /// Run by a plan of a file, as `dahl plan --show plan` prints it or edited, instead of
    /// one of a grain; programs that it does not have, such as judging, are planned as usual.
    /// With auto, by the best plan over the units of --platform (docs/planner.md)
    #[arg(long, value_name = "FILE|auto", conflicts_with_all = ["grain", "tune", "isa"])]
    plan: Option<PathBuf>,
    /// What is to be least, with --plan auto [default: energy]
    #[arg(long, value_enum, requires = "plan")]
    objective: Option<Goal>,
    /// The most memory that the plan may need, such as 500MiB or 2GiB: activations are
    /// recomputed where it would need more; it changes no bit
    #[arg(long, value_name = "SIZE", value_parser = limit::bytes)]
    memory_limit: Option<Bytes>,
    #[command(flatten)]
    flow: FlowArgs,
    #[command(flatten)]
    scheduling: SchedulingArgs,
    /// An experiment: slow a worker down to a part of its speed, such as 1=0.5, from a
    /// step of this session on, such as 1=0.5@100; several times for several
    #[arg(long, value_name = "WORKER=SPEED[@STEP]", value_parser = throttle)]
    throttle: Vec<Throttle>,
    #[command(flatten)]
    kernels: KernelArgs,
    #[command(flatten)]
    tune: TuneArgs,
    /// Start from the weights of a safetensors file instead of random ones
    #[arg(long, value_name = "FILE")]
    init: Option<PathBuf>,
    /// Write the weights to a safetensors file
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    energy: EnergyArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// Say what a step should take by a file of dahl calibrate, to compare with
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Show at the end which classes of the test were taken for which
    #[arg(long, conflicts_with = "json")]
    confusion: bool,
    /// Print one JSON object an epoch
    #[arg(long)]
    json: bool,
    /// Say nothing but the result
    #[arg(long)]
    quiet: bool,
}

/// Trains with these arguments; `given` are the flags that they come from.
pub(crate) fn run(args: Args, given: &ArgMatches) -> ExitCode {
    match train(args, given) {
        Ok(code) => ExitCode::from(code),
        Err(Failure { message, code }) => fail(message, code),
    }
}

fn train(args: Args, given: &ArgMatches) -> Result<u8, Failure> {
    let begin = Instant::now();
    let flags = <Args as ClapArgs>::augment_args(Command::new("train"));
    let (args, mut settings) = match &args.run.resume {
        Some(name) => resumed(&rundir::find(name), &flags, given)?,
        None => (args, Settings::of(&flags, given)?),
    };
    if let Some(save) = args.save.as_deref() {
        check_file("save", save)?;
        check_weights("save", save)?;
    }
    let place = args.run.place()?;
    let init = match (&args.init, place.has_checkpoint()?) {
        (Some(path), false) => Some((path, TensorFile::read(path)?)),
        _ => None,
    };
    let init_card = match &init {
        Some((path, file)) => Card::of(file, path)?,
        None => None,
    };
    let normalize = args.normalization(&place, init_card.as_ref());
    let Opened { model, train, test, transform } = args.open(given, normalize)?;
    let seed = args.samples.seed;
    let Learning { train, validation: held } = args.recipe.hold_out(train, seed)?;
    let held_out = held.as_ref().map_or(0, |held| held.len());
    let (train, test, batch) = (&*train, &*test, args.samples.batch);
    let augment = args.recipe.augment(train, seed)?;
    let learning = Transform { augment, ..transform.clone() };
    let judge = |name, data| Judge { name, data, transform: &transform };
    let held = held.as_deref().map(|held| judge("validation", held));
    let judges: Vec<Judge<'_>> = held.into_iter().chain([judge("test", test)]).collect();
    let sizes = judges.iter().flat_map(|judge| args.samples.batch_sizes(judge.data.len()));
    let spec = TrainSpec {
        train: args.samples.batch_sizes(train.len()),
        eval: sizes.collect(),
        seed,
        ..args.recipe.spec(batch, args.samples.dtype)?
    };
    let auto = args.plan.as_deref() == Some(Path::new("auto"));
    let file = args.plan.as_deref().filter(|_| !auto).map(PlanFile::read).transpose()?;
    let (workers, target) = match &file {
        Some(file) => {
            let isa = file.outline.isa;
            (file.workers(args.workers)?, Target { isa, ..args.kernels.target() })
        }
        None => (args.workers.unwrap_or_else(processors), args.kernels.target()),
    };
    let base = Grain { target, ..Grain::for_workers(workers) };
    let has_schedule = !args.recipe.is_constant();
    let length = Length { epochs: args.epochs, samples: train.len(), has_schedule };
    let mut report = Report::new(args.voice(), length);
    let meters = args.energy.open()?;
    let mut known = args.calibration.as_deref().map(PerfModel::load).transpose()?;
    let (flowing, lowered, plan, adapter) = if auto {
        let steps = args.epochs.saturating_mul(train.len().div_ceil(batch));
        let steps = args.run.max_steps.map_or(steps, |most| steps.min(most));
        let Planned { problem, deployed, known: learned, .. } =
            args.over_units((&model, &spec, target), steps as u64, &meters)?;
        let tried = deployed.iter().filter(|run| run.ran.is_some()).count();
        let run = deployed.into_iter().next().expect("a plan that runs");
        let trial = run.ran.map_or(String::new(), |Ran { seconds, joules, .. }| {
            format!(
                "; the best of {tried} that were tried: {:.3} ms, about {} modelled per step",
                1e3 * seconds,
                Joules(joules).rounded(2)
            )
        });
        report.log(format_args!("plan: {}{trial}", in_words(&problem, &run)));
        flags_of(&run).iter().for_each(|(key, value)| settings.set(key, value));
        known = Some(learned);
        (Flowing::of(run.spec, run.flow), run.lowered, run.plan, None)
    } else {
        let flowing = args.flow.flowing(&model, spec, &base, args.calibration.as_deref())?;
        if flowing.is_pipeline() && args.grain.is_some() {
            let expected = "none with a pipeline, whose stages are it";
            return Err(Error::config("grain", expected, "one").into());
        }
        let lowered = model.lower(&flowing.spec)?;
        let (plan, adapter) = match &file {
            Some(file) => (args.of_file(file, &lowered, (base, &flowing))?, None),
            None => args.plan(&lowered, (base, &flowing), report.shown())?,
        };
        (flowing, lowered, plan, adapter)
    };
    let (spec, workers) = (&flowing.spec, plan.placement.workers);
    args.check_scheduling(workers, &flowing)?;
    let predicted = match &known {
        // Several steps under way at once are not what is predicted.
        Some(_) if flowing.scheduling() == Own::Staged => None,
        Some(known) => {
            let from = args.calibration.as_deref().map(Path::display);
            let from = from.map_or("steps of this machine".to_owned(), |from| from.to_string());
            Some(forecast::predict((known, &from), (&lowered.programs, &plan), &meters)?)
        }
        None => None,
    };
    meters.hints.iter().for_each(|hint| report.log(format_args!("note: {hint}")));
    meters.warnings.iter().for_each(|text| report.warn(format_args!("warning: {text}")));
    let (record, limit, throttles) = (args.watch.trace, args.watch.limit(), args.throttle.clone());
    let scheduling = flowing.scheduling();
    let native = Native { record, limit, throttles, scheduling, ..Native::default() };
    let calibrations: Vec<PathBuf> = args.calibration.iter().cloned().collect();
    let engine = args.scheduling.engine(native, &calibrations)?;
    let (session, changes) = placements::told(engine.prepare(&lowered.programs, &plan)?);
    let mut trainer = Trainer::with_session(lowered, plan, spec, session)?;
    adapter.into_iter().for_each(|adapter| trainer.adapt(adapter));
    let steps_an_epoch = train.len().div_ceil(batch);
    trainer.set_schedule(args.recipe.schedule(Span { epochs: args.epochs, steps_an_epoch }));
    if let Some((path, file)) = &init {
        trainer.set_weights(file, path)?;
    }
    let held_out = match held_out {
        0 => String::new(),
        samples => format!(", {samples} held out"),
    };
    report.log(format_args!(
        "{} on {}: {} to learn from{held_out}, {} to judge by; batch {}, {}, {}",
        one_line(&model.name),
        one_line(&train.name()),
        train.len(),
        test.len(),
        // A step cannot have more.
        batch.min(train.len()),
        counted(workers, "worker"),
        args.samples.dtype
    ));
    if batch > train.len() && is_given(given, "batch") {
        let all = counted(train.len(), "training sample");
        report.warn(format_args!("note: --batch {batch} is more than the {all}: a step has these"));
    }
    if let Some(text) = flowing.text() {
        report.log(format_args!("pipeline: {text}"));
    }
    if let (Some((path, _)), Some(card)) = (&init, &init_card)
        && card.classes != train.classes()
    {
        let [theirs, ours] = [&card.classes, train.classes()].map(names_of);
        let path = path.display();
        report.warn(format_args!(
            "note: {path} was trained on the classes {theirs}; its outputs now stand for {ours}"
        ));
    }
    if let (Some((path, _)), Some(_), None) = (
        &init,
        init_card.as_ref().and_then(|card| card.normalise.as_ref()),
        &args.samples.normalize,
    ) {
        let path = path.display();
        report.log(format_args!(
            "note: samples are normalised as {path} says; --normalize dataset measures this dataset"
        ));
    }
    for note in train.notes().iter().chain(test.notes()) {
        report.warn(format_args!("note: {note}"));
    }
    let mut card = TensorFile::default();
    args.samples.card(&model, train, &transform).put(&mut card)?;
    let course = Course {
        train,
        transform: &learning,
        judges: &judges,
        batch,
        seed,
        visits: args.recipe.visits(),
        epochs: args.epochs as u64,
        recipe: settings.recipe(),
        metadata: card.metadata.clone(),
    };
    let texts = [
        (rundir::CONFIG, settings.to_toml(&flags)),
        ("model.toml", model.to_toml()?),
        (rundir::PLAN, trainer.plan().to_text(&trainer.lowered().programs)?),
    ];
    let planned = forecast::planned(&trainer.plan().memory);
    let gauge = trainer.session().gauge();
    let mut watched = Watched::begin((gauge, planned), meters);
    let live = args.watch.live.start(&mut watched, &model.name, &settings.to_toml(&flags))?;
    let screen = live.as_ref().and_then(|live| live.tell(&mut report));
    args.energy.idle_time.into_iter().for_each(|time| watched.rest(time));
    watched.limit(args.energy.energy_budget)?;
    let shown = predicted.clone();
    let started = Started { begin, place, texts, predicted: shown, screen, changes };
    let gave = go(&args, started, course, (&mut trainer, &mut watched), &mut report);
    drop(live);
    report.release();
    // A run that failed is looked at most of all.
    let trace = args.watch.trace.then(|| trainer.session().take_trace());
    let bound = trace.as_ref().and_then(dahl::report::Recorded::of_trace);
    if trainer.changes() > 0 {
        watched.replanned(forecast::planned(&trainer.plan().memory));
    }
    if let Some(error) = trainer.stopped_adapting() {
        report.warn(format_args!("warning: --grain adaptive ended early: {error}"));
    }
    let unkept = watched.end(trace);
    watched.unread().iter().for_each(|text| report.warn(format_args!("warning: {text}")));
    let mut gave = gave.inspect_err(|_| {
        unkept.iter().for_each(|error| report.warn(format_args!("warning: {error}")));
    })?;
    gave.errors.extend(unkept);
    if let (Some(directory), true) = (&gave.directory, trainer.changes() > 0) {
        // The one that the run ended with.
        let text = trainer.plan().to_text(&trainer.lowered().programs);
        gave.errors.extend(text.and_then(|text| directory.write(rundir::PLAN, &text)).err());
    }
    if let Some(recorded) = bound.filter(|recorded| recorded.bound.is_some()) {
        report.log(format_args!("note: the trace has {recorded} --trace-events raises it"));
    }
    let weights = TensorFile { tensors: trainer.weights()?.tensors, ..card };
    let confusion = if args.confusion && gave.stopped.is_none() {
        let order = Order::sequential(test.len());
        let transform = &transform;
        let samples = Samples { data: test, transform, order: &order, epoch: 0, batch };
        let signal = || gave.stop.signal();
        let seen = trainer.confusion_pass_while(&samples, &mut || match signal() {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        });
        match seen {
            Ok((pass, confusion)) => {
                let whole = pass.samples == test.len();
                if let (Some(why), false) = (signal(), whole) {
                    report.warn(format_args!(
                        "stopped {why}: not all samples of the table were seen"
                    ));
                }
                // A table of some of them would be taken for one of all.
                Some(confusion).filter(|_| whole)
            }
            // The weights are still to be written.
            Err(error) => {
                gave.errors.push(error);
                None
            }
        }
    } else {
        None
    };
    let planned = trainer.plan().memory.peak();
    let (energy, overspent) = (watched.summary(), watched.overspent());
    let predicted = predicted.map(|predicted| (predicted, batch));
    let ended = Ended { begin, planned, weights, confusion, energy, overspent, predicted };
    conclude(&args, gave, &mut report, ended)
}

/// The arguments of a run that goes on.
/// The first of some names, in a line.
fn names_of(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<_> = names.iter().take(SHOWN).map(|name| one_line(name)).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn resumed(run: &Path, flags: &Command, given: &ArgMatches) -> Result<(Args, Settings)> {
    let path = run.join(rundir::CONFIG);
    if !path.exists() {
        return Err(rundir::no_run("resume", run));
    }
    let stored = Settings::read(&path, flags)?;
    let before = stored.get("epochs").and_then(|epochs| epochs.parse().ok());
    let settings = stored.resumed(flags, given)?;
    if let (Some(save), false) = (settings.get("save"), is_given(given, "save")) {
        rundir::refuse_outside(run, Path::new(save))?;
    }
    let line = settings.to_line(flags, given);
    let args = flags.clone().try_get_matches_from(line);
    let args = args.and_then(|matches| Args::from_arg_matches(&matches)).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Error::data(&path, "configuration", "flags of dahl train", first)
    })?;
    if let Some(before) = before.filter(|&before| !args.may_end_after(before)) {
        let expected = format!("{before} as in the run, whose --schedule runs over them");
        return Err(Error::config("epochs", expected, args.epochs));
    }
    Ok((args, settings))
}

/// How and where a run starts.
struct Started {
    begin: Instant,
    place: Place,
    /// The files of the run directory that are known beforehand.
    texts: [(&'static str, String); 3],
    predicted: Option<dahl::report::Predicted>,
    /// The terminal, where it is drawn on.
    screen: Option<Screen>,
    /// By which placements the run goes on.
    changes: placements::Changes,
}

/// Trains, and keeps the run directory up to date.
fn go(
    args: &Args,
    started: Started,
    course: Course<'_>,
    (trainer, watched): (&mut Trainer, &mut Watched),
    report: &mut Report,
) -> Result<Gave, Failure> {
    let Started { begin, place, texts, predicted, screen, changes } = started;
    // A time beyond all clocks never comes.
    let deadline = args.run.max_time.and_then(|time| begin.checked_add(time));
    let of = course.train.len();
    let mut run = Run::new(trainer, course)?;
    let mut directory: Option<RunDir> = None;
    let mut session = 0;
    let mut logs: Vec<Log> = Vec::new();
    let mut stop = Stop::new(deadline, screen)?;
    let taken = args.run.take(place, &args.samples).map_err(|error| unplaced(error, &args.run))?;
    if let Some((taken, checkpoints)) = taken {
        let all = checkpoints.list()?;
        if args.run.resume.is_some() && all.is_empty() {
            let place = checkpoints.directory().display();
            if taken.has_result() {
                // To train it anew would undo what it gave.
                let config = taken.path().join(rundir::CONFIG);
                let found = format!(
                    "none, though it has ended; train it anew with: dahl train --config {}",
                    quoted(&config)
                );
                let expected = format!("a checkpoint in {place}");
                return Err(Error::config("resume", expected, found).into());
            }
            report
                .warn(format_args!("warning: no checkpoint in {place}: starts from the beginning"));
        }
        run.save_to(checkpoints, args.run.every())
            .map_err(|error| unusable(error, &all, taken.path()))?;
        let state = run.state();
        logs.push(taken.metrics());
        logs.extend(args.run.tensorboard.then(|| taken.tensorboard()));
        let idle = run.is_finished() && taken.has_result();
        if !idle {
            session = taken.begin(&texts, args.samples.seed, state.steps)?;
        }
        logs.iter_mut().try_for_each(|log| log.rewrite(&state.history))?;
        if idle {
            taken.configure(&texts[0].1)?;
            state.history.last().into_iter().for_each(|last| report.epoch(last));
            let (steps, history) = (state.steps, state.history.clone());
            let (directory, from, stopped, unsaved) = (Some(taken), steps, None, None);
            let errors = Vec::new();
            return Ok(Gave {
                directory,
                history,
                from,
                steps,
                stop,
                stopped,
                idle,
                unsaved,
                errors,
            });
        }
        if let Some(predicted) = &predicted {
            keep_prediction(&taken, predicted)?;
        }
        report.place(taken.path(), state);
        directory = Some(taken);
    }
    report.begin(run.state());
    let (mut history, from) = (run.state().history.clone(), run.state().steps);
    // Where no step is left to be made after the last that is allowed, the run ends as all do.
    let all = args.epochs.saturating_mul(of.div_ceil(args.samples.batch.max(1)));
    stop.limit_steps(
        args.run.max_steps.filter(|most| from.saturating_add(*most as u64) < all as u64),
    );
    watched.go_on(run.state(), directory.as_ref().map(|directory| (directory, session)))?;
    let mut why = None;
    let end = run.go(&mut |event| {
        match event {
            Event::Step { epoch, pass } => {
                stop.count_step();
                watched.step(epoch, pass, of);
                changes.take().iter().for_each(|line| report.aside(line));
                report.step(epoch, pass);
            }
            Event::Judging { name, pass, of } => {
                watched.pause();
                report.judging(name, pass, of);
            }
            Event::Epoch(record) => {
                history.push(record.clone());
                for error in logs.iter_mut().filter_map(|log| log.add(record).err()) {
                    report.warn(format_args!("warning: {error}; the run goes on"));
                }
                report.epoch(record);
                // The last: what follows is the next epoch.
                if let Err(error) = watched.epoch(record) {
                    report.warn(format_args!("warning: {error}; the run goes on"));
                }
            }
            Event::Saved(_) => {
                if let Err(error) = watched.saved() {
                    report.warn(format_args!("warning: {error}; the run goes on"));
                }
            }
            Event::NotSaved(error) => {
                report.warn(format_args!("warning: no checkpoint: {error}; the run goes on"));
            }
            _ => {}
        }
        why = stop.reason().or(watched.is_over_budget().then_some(Reason::EnergyBudget));
        if why.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    report.clear();
    let errors: Vec<Error> = logs.iter_mut().filter_map(|log| log.finish().err()).collect();
    let finished = run.is_finished();
    let explain = |error| explained(error, directory.as_ref(), run.last_checkpoint());
    let (end, unsaved) = match end {
        Ok(end) => (end, None),
        // What it has learned may still be written elsewhere.
        Err(error @ Error::NotSaved { .. }) => {
            (if finished { End::Finished } else { End::Stopped }, Some(explain(error)))
        }
        Err(error) => {
            errors.iter().for_each(|error| report.warn(format_args!("warning: {error}")));
            return Err(explain(error));
        }
    };
    let stopped = why.filter(|_| end == End::Stopped);
    let (steps, idle) = (run.state().steps, false);
    Ok(Gave { directory, history, from, steps, stop, stopped, idle, unsaved, errors })
}

impl Args {
    /// Whether the run learns the same where it ends after so many epochs: the
    /// schedule of the learning rate may run over them.
    pub(crate) fn may_end_after(&self, epochs: usize) -> bool {
        let schedule = |epochs| self.recipe.schedule(Span { epochs, steps_an_epoch: 1000 });
        schedule(epochs) == schedule(self.epochs)
    }

    /// How samples are normalised: as the checkpoint says that a run goes on from, as the
    /// arguments say, as the weights say that it starts from, else by the dataset.
    fn normalization(&self, place: &Place, init: Option<&Card>) -> Normalization {
        match (place.card(), &self.samples.normalize, init) {
            (Some(card), _, _) => card.normalise.into(),
            (None, Some(given), _) => given.clone(),
            (None, None, Some(card)) => card.normalise.clone().into(),
            (None, None, None) => Normalization::Dataset,
        }
    }

    /// Opens the samples. Those of a run that goes on may have been moved.
    fn open(&self, given: &ArgMatches, normalize: Normalization) -> Result<Opened> {
        let show = if self.quiet { Show::Nothing } else { Show::on_stderr() };
        self.samples.open(normalize, show).map_err(|error| match &self.run.resume {
            Some(run) if !is_given(given, "data") => {
                let whose = format!("the dataset of the run {}", run.display());
                gone(error, self.samples.names().1, &whose)
            }
            _ => error,
        })
    }

    fn voice(&self) -> Voice {
        match (self.quiet, self.json) {
            (true, true) => Voice::LastJson,
            (true, false) => Voice::Quiet,
            (false, true) => Voice::Json,
            (false, false) => Voice::Text,
        }
    }
}
