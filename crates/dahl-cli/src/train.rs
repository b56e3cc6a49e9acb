//! `dahl train`: trains a model on a dataset.

use crate::args::{All, Settings};
use crate::files::{Shown, calibrations, reading};
use crate::live::{Live, LiveArgs};
use crate::outcome::{Failure, conclude, failure};
use crate::output::{counted, fail, one_line};
use crate::progress::{Show, Waiting};
use crate::report::{Length, OutputMode, Report};
use crate::stop::{Stop, by};
use clap::Args as ClapArgs;
use dahl::calibrate::host;
use dahl::model::Fusion;
use dahl::perf::PerfModel;
use dahl::report::{Energy, Recorded};
use dahl::run::{
    Event, Meters, Opened, Prepare, Prepared, Run, RunConfig, RunData, Start, Warning, open,
    prepare,
};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Train a model on a dataset
///
/// Without arguments, `dahl train` trains the model `digits-cnn` on handwritten digits that come with
/// dahl. After each epoch, the loss and the accuracy on the training and the test samples are
/// printed. Training is deterministic: with the same settings and the same instruction set, losses
/// and weights are bit-for-bit identical for any number of workers.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl train
  dahl train --model lenet --data path/to/fashion-mnist --limit 6000 --epochs 3
  dahl train --model my.toml --data synthetic:1x28x28:10 --run first
  dahl train --resume first --epochs 20

Ctrl-C or SIGTERM saves the run after the current step and stops it. --resume continues
the run; the final weights are bit-for-bit identical to those of an uninterrupted run.

Exit codes:
  0        success, or stopped by --max-time, --max-steps or --energy-budget
  1        the run failed, or its results cannot be written
  2        wrong flags or configuration
  3        no feasible plan
  4        invalid data or model
  5        the loss or a weight is not finite
  128 + n  stopped by signal n")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) settings: Settings<All>,
    #[command(flatten)]
    live: LiveArgs,
    /// Print one JSON object per epoch instead of a table
    #[arg(long, conflicts_with = "confusion")]
    json: bool,
    /// Print only the summary at the end, warnings and errors; with --json only the object of the
    /// last epoch, warnings and errors
    #[arg(long)]
    quiet: bool,
}

/// Trains with these arguments.
pub(crate) fn run(args: Args) -> ExitCode {
    match train(args) {
        Ok(code) => ExitCode::from(code),
        Err(Failure { message, code }) => fail(message, code),
    }
}

fn train(args: Args) -> Result<u8, Failure> {
    let begin = Instant::now();
    let output_mode = args.output_mode();
    let show = Show::unless(args.quiet);
    let Args { settings, live, .. } = args;
    let batch_is_given = settings.given.contains(&"batch");
    let opened = open(*settings.config, &settings.given)?;
    let data = opened.data(&mut reading(show))?;
    let mut report = Report::new(output_mode, Length::of(&opened.config, &data));
    let meters = Meters::open(&opened.config)?;
    let known = match opened.config.needs_times() {
        true => calibrations(&opened.config.session.calibration)?,
        false => PerfModel::default(),
    };
    let prepared = {
        let samples = data.counts();
        let (model, platform) = (&data.model, meters.platform.as_ref());
        let (resumed, measurer) = (opened.resumed(), &mut Shown(show));
        let known = known.clone();
        let (fusion, measurer) = (Fusion::On, Some(measurer as _));
        let with = Prepare { model, samples, fusion, platform, known, resumed, measurer };
        let progress = Waiting::begin(show, "preparing the plan".to_owned());
        let prepared = prepare(&opened.config, with)?;
        drop(progress);
        prepared
    };
    prepared.why.iter().for_each(|why| report.log(why));
    let introduction = introduction((&opened, &data), (&prepared, &meters), batch_is_given);
    let config = prepared.config.clone();
    let start = Start {
        about: about(),
        seed: config.identity.seed,
        command: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
    };
    let mut run = Run::new(opened, &data, prepared, (meters, known), (start, begin))?;
    introduction.into_iter().for_each(|line| match line {
        Line::Log(text) => report.log(text),
        Line::Warning(text) => report.warn(text),
    });
    let text = run.config_text().to_owned();
    let live = live.start(run.recorder(), &data.model.name, &text)?;
    let screen = live.as_ref().and_then(|live| live.tell(&mut report));
    let stop = Stop::new(screen)?;
    let ended = run.go(&|| stop.signal(), &mut |event| show_event(&mut report, event));
    drop::<Option<Live>>(live);
    report.release();
    let outcome = ended.map_err(|failed| failure(failed, &config))?;
    conclude(&config, outcome, &mut report)
}

/// The version, the commit that it was built from, and the machine.
pub(crate) fn about() -> serde_json::Value {
    serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": env!("BUILD_COMMIT"),
        "machine": host(),
    })
}

/// A line about a run, before it begins.
enum Line {
    Log(String),
    /// Something that the user should know even of a run that is silent.
    Warning(String),
}

/// The prepared run, with the reasons for its plan.
fn introduction(
    (opened, data): (&Opened, &RunData),
    (prepared, meters): (&Prepared, &Meters),
    batch_is_given: bool,
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    lines.extend(meters.hints.iter().map(|hint| Line::Log(format!("note: {hint}"))));
    lines.extend(meters.warnings.iter().map(|text| Line::Warning(format!("warning: {text}"))));
    let identity = &prepared.config.identity;
    let held_out = match data.validation.as_ref().map_or(0, |held| held.len()) {
        0 => String::new(),
        held => format!("{held} validation, "),
    };
    let workers = match (prepared.active_workers(), prepared.plan.placement.workers) {
        (active, all) if active == all => counted(all, "worker"),
        (active, all) => format!("{active} of {all} workers"),
    };
    lines.push(Line::Log(format!(
        "{} on {}: {} training samples, {held_out}{} test samples; batch {}, {}, {}",
        one_line(&data.model.name),
        one_line(&data.train.name()),
        data.train.len(),
        data.test.len(),
        // A step cannot have more.
        identity.batch.min(data.train.len()),
        workers,
        identity.dtype
    )));
    let ranks = prepared.plan.placement.ranks();
    if ranks > 1 {
        lines.push(Line::Log(format!(
            "note: the {ranks} ranks of the plan run as threads of this process"
        )));
    }
    if identity.batch > data.train.len() && batch_is_given {
        let (batch, all) = (identity.batch, counted(data.train.len(), "training sample"));
        lines.push(Line::Warning(format!(
            "note: --batch {batch} is more than the {all}: each step uses all of them"
        )));
    }
    lines.extend(prepared.pipeline.iter().map(|text| Line::Log(format!("pipeline: {text}"))));
    lines.extend(opened.normalised_by().map(Path::display).map(|path| {
        Line::Log(format!(
            "note: samples are normalised with the mean and standard deviation stored in {path}; \
             --normalize dataset uses those of this dataset"
        ))
    }));
    if let Some((path, theirs)) = opened.other_classes(data) {
        let [theirs, ours] = [theirs, data.train.classes()].map(names_of);
        let path = path.display();
        lines.push(Line::Warning(format!(
            "note: {path} was trained on the classes {theirs}; the outputs of the model now stand for {ours}"
        )));
    }
    let notes = data.train.notes().iter().chain(data.test.notes());
    lines.extend(notes.map(|note| Line::Warning(format!("note: {note}"))));
    lines
}

/// The first of some names, in a line.
fn names_of(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<_> = names.iter().take(SHOWN).map(|name| one_line(name)).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Shows an event of the run.
fn show_event(report: &mut Report, event: Event<'_>) {
    match event {
        Event::Directory { path, state } => report.place(path, state),
        Event::Begin(state) => report.begin(state),
        Event::Step { epoch, pass } => report.step(epoch, pass),
        Event::Evaluating { name, pass, of } => report.evaluating(name, pass, of),
        Event::Placement(line) => report.aside(line),
        Event::Epoch(record) => report.epoch(record),
        Event::Ended => report.clear(),
        Event::Trace(trace) => {
            let recorded = Recorded::of_trace(trace).filter(|of| of.bound.is_some());
            if let Some(recorded) = recorded {
                let text = "--trace-events raises the bound";
                report.log(format_args!("note: the trace has {recorded} {text}"));
            }
        }
        Event::Warning(warning) => warn(report, warning),
    }
}

fn warn(report: &mut Report, warning: Warning<'_>) {
    match warning {
        Warning::NoCheckpoint(path) => {
            let path = path.display();
            let text = "starts from the beginning";
            report.warn(format_args!("warning: no checkpoint in {path}: the run {text}"));
        }
        Warning::Unwritten(error) => {
            report.warn(format_args!("warning: {error}; the run continues"));
        }
        Warning::AfterFailure(error) => report.warn(format_args!("warning: {error}")),
        Warning::NotSaved(error) => {
            report.warn(format_args!("warning: no checkpoint: {error}; the run continues"));
        }
        Warning::AdaptingEnded(error) => {
            report.warn(format_args!("warning: --grain adaptive ended early: {error}"));
        }
        Warning::Energy(session) => {
            for text in [Energy::silent(session), Energy::missed(session)].concat() {
                report.warn(format_args!("warning: {text}"));
            }
        }
        Warning::Confusion(why) => {
            let text = "the confusion matrix does not have all samples";
            report.warn(format_args!("stopped {}: {text}", by(why)));
        }
    }
}

impl Length {
    fn of(config: &RunConfig, data: &RunData) -> Self {
        Self {
            epochs: config.placement.epochs,
            samples: data.train.len(),
            has_schedule: !config.identity.schedule.is_constant(),
        }
    }
}

impl Args {
    fn output_mode(&self) -> OutputMode {
        match (self.quiet, self.json) {
            (true, true) => OutputMode::LastJson,
            (true, false) => OutputMode::Quiet,
            (false, true) => OutputMode::Json,
            (false, false) => OutputMode::Text,
        }
    }
}
