//! `dahl train`: trains a model on a dataset.

use crate::grain::at_least_one;
use crate::output::{FAILED, code, fail};
use crate::place::{Place, RunArgs};
use crate::recipe::{Learning, RecipeArgs};
use crate::report::{Conclusion, Length, Report, Voice};
use crate::rundir::{self, Log, RunDir};
use crate::samples::{Opened, SampleArgs};
use crate::schedule::Span;
use crate::settings::Settings;
use crate::stop::{Reason, Stop};
use clap::{ArgMatches, Args as ClapArgs, Command, FromArgMatches};
use dahl::data::{Order, Transform};
use dahl::file::TensorFile;
use dahl::model::TrainSpec;
use dahl::native::Native;
use dahl::planner::Grain;
use dahl::train::{Confusion, Course, End, EpochRecord, Event, Judge, Run, Samples, Trainer};
use dahl::units::Bytes;
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

Exit codes: 0 ok, 1 the run failed, 2 usage, 3 no feasible plan, 4 bad data or
model, 5 the loss is not finite, 128 + n ended by signal n.")]
pub(crate) struct Args {
    #[command(flatten)]
    samples: SampleArgs,
    /// Passes over the training samples
    #[arg(long, default_value_t = 10, value_parser = at_least_one)]
    epochs: usize,
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Worker threads [default: one a processor]
    #[arg(long, value_parser = at_least_one)]
    workers: Option<usize>,
    /// Start from the weights of a safetensors file instead of random ones
    #[arg(long, value_name = "FILE")]
    init: Option<PathBuf>,
    /// Write the weights to a safetensors file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
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

/// Why a run failed, what to do about it, and the code to end with.
struct Failure {
    message: String,
    code: u8,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { message: error.to_string(), code: code(&error) }
    }
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
    let (args, settings) = match &args.run.resume {
        Some(name) => resumed(&rundir::find(name), &flags, given)?,
        None => (args, Settings::of(&flags, given)),
    };
    let place = args.run.place()?;
    let Opened { model, train, test, transform } = args.samples.open()?;
    let seed = args.samples.seed;
    let Learning { train, validation: held } = args.recipe.hold_out(train, seed)?;
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
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = args.workers.unwrap_or(processors);
    let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(workers), &Native::default())?;
    let steps_an_epoch = train.len().div_ceil(batch);
    trainer.set_schedule(args.recipe.schedule(Span { epochs: args.epochs, steps_an_epoch }));
    if let (Some(path), false) = (&args.init, place.has_checkpoint()?) {
        trainer.load_weights(path)?;
    }
    let length = Length { epochs: args.epochs, samples: train.len() };
    let mut report = Report::new(args.voice(), length);
    report.log(format_args!(
        "{} on {}: {} to learn from, {} to judge by; batch {batch}, {workers} workers, {}",
        model.name,
        train.name(),
        train.len(),
        test.len(),
        args.samples.dtype
    ));
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
        ("plan.txt", trainer.plan().to_text(&trainer.lowered().programs)?),
    ];
    let gave = go(&args, Started { begin, place, texts }, course, &mut trainer, &mut report)?;
    let weights = TensorFile { tensors: trainer.weights()?.tensors, ..card };
    let confusion = if args.confusion && gave.stopped.is_none() {
        let order = Order::sequential(test.len());
        let transform = &transform;
        let samples = Samples { data: test, transform, order: &order, epoch: 0, batch };
        Some(trainer.confusion_pass(&samples)?.1)
    } else {
        None
    };
    let planned = trainer.plan().memory.peak();
    conclude(&args, gave, &report, Ended { begin, planned, weights, confusion })
}

/// The arguments of a run that goes on.
fn resumed(run: &Path, flags: &Command, given: &ArgMatches) -> Result<(Args, Settings)> {
    let path = run.join(rundir::CONFIG);
    if !path.exists() {
        let found = format!("{}, which has no {}", run.display(), rundir::CONFIG);
        return Err(Error::config("resume", "the directory of a run, or its name in runs", found));
    }
    let stored = Settings::read(&path, flags)?;
    let before = stored.get("epochs").and_then(|epochs| epochs.parse().ok());
    let settings = stored.resumed(flags, given)?;
    let line = settings.to_line(flags, given);
    let args = flags.clone().try_get_matches_from(line);
    let args = args.and_then(|matches| Args::from_arg_matches(&matches)).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Error::data(&path, "configuration", "flags of dahl train", first)
    })?;
    let schedule = |epochs| args.recipe.schedule(Span { epochs, steps_an_epoch: 1000 });
    if let Some(before) = before.filter(|&before| schedule(before) != schedule(args.epochs)) {
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
}

/// What is known when training has ended.
struct Gave {
    directory: Option<RunDir>,
    history: Vec<EpochRecord>,
    steps: u64,
    /// `None` where all epochs are done.
    stopped: Option<Reason>,
    /// Nothing was to be done.
    idle: bool,
}

/// Trains, and keeps the run directory up to date.
fn go(
    args: &Args,
    started: Started,
    course: Course<'_>,
    trainer: &mut Trainer,
    report: &mut Report,
) -> Result<Gave, Failure> {
    let Started { begin, place, texts } = started;
    let mut run = Run::new(trainer, course)?;
    let mut directory = None;
    let mut logs: Vec<Log> = Vec::new();
    if let Some((taken, checkpoints)) = args.run.take(place, &args.samples)? {
        let all = checkpoints.list()?;
        run.save_to(checkpoints, args.run.every()).map_err(|error| unusable(error, &all))?;
        let state = run.state();
        if run.is_finished() && taken.has_result() {
            let (steps, history) = (state.steps, state.history.clone());
            let directory = Some(taken);
            return Ok(Gave { directory, history, steps, stopped: None, idle: true });
        }
        logs.push(taken.metrics());
        logs.extend(args.run.tensorboard.then(|| taken.tensorboard()));
        taken
            .begin(&texts, args.samples.seed, state.steps)
            .and_then(|()| logs.iter_mut().try_for_each(|log| log.rewrite(&state.history)))
            .map_err(|error| Failure { message: error.to_string(), code: FAILED })?;
        report.place(taken.path(), state);
        directory = Some(taken);
    }
    report.begin(run.state());
    let mut history = run.state().history.clone();
    let mut stop = Stop::new(args.run.max_time.map(|time| begin + time), args.run.max_steps)?;
    let (mut why, mut failed) = (None, None);
    let end = run.go(&mut |event| {
        match event {
            Event::Step { epoch, pass } => {
                stop.count_step();
                report.step(epoch, pass);
            }
            Event::Judging { name, pass, of } => report.judging(name, pass, of),
            Event::Epoch(record) => {
                history.push(record.clone());
                for error in logs.iter_mut().filter_map(|log| log.add(&history).err()) {
                    report.warn(format_args!("warning: {error}; the run goes on"));
                }
                failed = report.epoch(record).err();
            }
            Event::NotSaved(error) => {
                report.warn(format_args!("warning: no checkpoint: {error}; the run goes on"));
            }
            _ => {}
        }
        why = stop.reason();
        let go_on = why.is_none() && failed.is_none();
        if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    report.clear();
    let end = end.map_err(|error| explained(error, directory.as_ref(), run.last_checkpoint()))?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let stopped = why.filter(|_| end == End::Stopped);
    Ok(Gave { directory, history, steps: run.state().steps, stopped, idle: false })
}

/// What is left when training has ended.
struct Ended {
    begin: Instant,
    planned: Bytes,
    weights: TensorFile,
    confusion: Option<Confusion>,
}

/// Writes what the run gave, and says so. Returns the exit code.
fn conclude(args: &Args, gave: Gave, report: &Report, end: Ended) -> Result<u8, Failure> {
    let Ended { begin, planned, weights, confusion } = end;
    let run = gave.directory.as_ref();
    let on = |run: &RunDir| format!("dahl train --resume {}", run.path().display());
    if let (true, Some(run)) = (gave.idle, run) {
        let epochs = gave.history.len();
        let more = format!("for more: {} --epochs {}", on(run), 2 * epochs);
        report
            .log(format_args!("{} has finished its {epochs} epochs; {more}", run.path().display()));
        return Ok(0);
    }
    let unsaved = |error: Error| {
        let next = run.map(|run| format!("; all else is saved: make room, then {}", on(run)));
        Failure { message: format!("{error}{}", next.unwrap_or_default()), code: FAILED }
    };
    // A signal is no end that was asked for: the file stays as it is.
    let save = args.save.as_ref().filter(|_| gave.stopped.is_none_or(|why| why.code() == 0));
    if let Some(path) = save {
        weights.write(path).map_err(unsaved)?;
    }
    if let Some(why) = gave.stopped {
        report.stopped(why, gave.steps, run.map(RunDir::path));
        return Ok(why.code());
    }
    let Some(last) = gave.history.last() else { return Ok(0) };
    let conclusion = Conclusion {
        last,
        planned,
        sha256: weights.sha256(),
        run: run.map(RunDir::path),
        file: save.cloned().or(run.map(RunDir::weights)),
        seconds: begin.elapsed().as_secs_f64(),
        speed: speed_of(&gave.history),
        confusion,
    };
    if let Some(run) = run {
        run.conclude(&weights, &conclusion.to_json()).map_err(unsaved)?;
    }
    report.conclude(&conclusion)?;
    Ok(0)
}

/// Training samples a second, over all epochs.
fn speed_of(history: &[EpochRecord]) -> f64 {
    let samples: usize = history.iter().map(|record| record.train.samples).sum();
    samples as f64 / history.iter().map(|record| record.seconds).sum::<f64>().max(1e-9)
}

/// What to do about a newest checkpoint that is damaged.
fn unusable(error: Error, all: &[PathBuf]) -> Failure {
    let damaged = |last: &Path| match &error {
        Error::Data { path, .. } | Error::Io { path, .. } => path.parent() == Some(last),
        _ => false,
    };
    let hint = match all {
        [.., before, last] if damaged(last) => {
            format!("; remove {} to go on from {}", last.display(), before.display())
        }
        [last] if damaged(last) => {
            format!("; remove {} to start from the beginning", last.display())
        }
        _ => String::new(),
    };
    Failure { message: format!("{error}{hint}"), code: code(&error) }
}

/// An error of a run, with what is left of it.
fn explained(error: Error, run: Option<&RunDir>, last: Option<&Path>) -> Failure {
    let hint = match (&error, run, last) {
        (Error::NotFinite { .. }, Some(_), Some(last)) => {
            format!("; the last good checkpoint is {}", last.display())
        }
        (Error::NotFinite { .. }, Some(_), None) => "; there is no checkpoint yet".to_owned(),
        (Error::NotSaved { .. }, Some(run), _) => {
            format!(": dahl train --resume {}", run.path().display())
        }
        _ => String::new(),
    };
    Failure { message: format!("{error}{hint}"), code: code(&error) }
}

impl Args {
    fn voice(&self) -> Voice {
        match (self.quiet, self.json) {
            (true, true) => Voice::LastJson,
            (true, false) => Voice::Quiet,
            (false, true) => Voice::Json,
            (false, false) => Voice::Text,
        }
    }
}
