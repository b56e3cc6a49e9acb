//! How a run ended: what is written and said, and the exit code.

use crate::limit;
use crate::output::{code, counted, quoted};
use crate::place::RunArgs;
use crate::report::{Conclusion, Report};
use crate::rundir::RunDir;
use crate::stop::{Reason, Stop};
use crate::train::Args;
use dahl::file::TensorFile;
use dahl::report::Predicted;
use dahl::train::{Confusion, EpochRecord};
use dahl::units::{Bytes, Joules, Nanos};
use dahl::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Why a run failed, what to do about it, and the code to end with.
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { message: limit::advised(&error), code: code(&error) }
    }
}

/// What is known when training has ended.
pub(crate) struct Gave {
    pub(crate) directory: Option<RunDir>,
    pub(crate) history: Vec<EpochRecord>,
    /// The step that this process went on from.
    pub(crate) from: u64,
    pub(crate) steps: u64,
    pub(crate) stop: Stop,
    /// `None` where all epochs are done.
    pub(crate) stopped: Option<Reason>,
    /// Nothing was to be trained.
    pub(crate) idle: bool,
    /// The state that the run ended with could not be saved, and why.
    pub(crate) unsaved: Option<Failure>,
    /// What else went wrong.
    pub(crate) errors: Vec<Error>,
}

/// What is left when training has ended.
pub(crate) struct Ended {
    pub(crate) begin: Instant,
    pub(crate) planned: Bytes,
    pub(crate) weights: TensorFile,
    pub(crate) confusion: Option<Confusion>,
    /// What the session took, with where that is from.
    pub(crate) energy: Option<String>,
    /// What it took up to the stop by a budget, and after that.
    pub(crate) overspent: Option<String>,
    /// What a step was expected to take, and the samples of one.
    pub(crate) predicted: Option<(Predicted, usize)>,
}

/// Writes what the run gave to every place that it is to be in, and says so. Returns the exit
/// code, or what could not be written.
pub(crate) fn conclude(
    args: &Args,
    mut gave: Gave,
    report: &mut Report,
    end: Ended,
) -> Result<u8, Failure> {
    let Ended { begin, planned, weights, confusion, energy, overspent, predicted } = end;
    let run = gave.directory.as_ref();
    let on = |run: &RunDir| format!("dahl train --resume {}", quoted(run.path()));
    let epochs = gave.history.len();
    let longer = Some(2 * epochs).filter(|&longer| args.may_end_after(longer));
    if let (true, Some(run)) = (gave.idle, run) {
        let more = longer.map(|longer| format!("; for more: {} --epochs {longer}", on(run)));
        let (path, more) = (run.path().display(), more.unwrap_or_default());
        let epochs = counted(epochs, "epoch");
        report.log(format_args!("{path} has finished its {epochs}{more}"));
    }
    let next = run.map(|run| format!("then {}", on(run)));
    let mut errors = std::mem::take(&mut gave.errors);
    // A signal is no end that was asked for: the file stays as it is, unless the state of the
    // run is nowhere else.
    let wanted = gave.unsaved.is_some() || gave.stopped.is_none_or(|why| why.code() == 0);
    let mut save = args.save.clone().filter(|_| wanted);
    if let Some(path) = &save
        && let Err(error) = weights.write(path)
    {
        errors.push(error.while_writing());
        save = None;
    }
    if let Some(why) = gave.stopped {
        match (why, overspent) {
            // Whoever set a limit wants to know, however silent the run is.
            (Reason::EnergyBudget, Some(spent)) => report.warn(format_args!("energy: {spent}")),
            _ => energy.iter().for_each(|text| report.log(format_args!("energy: {text}"))),
        }
        let saved = run.filter(|_| gave.unsaved.is_none());
        report.stopped(why, gave.steps, saved.map(RunDir::path));
        all_of(errors, gave.unsaved, (save.as_deref(), next))?;
        return Ok(why.code().max(report.code()));
    }
    let Some(last) = gave.history.last() else {
        all_of(errors, gave.unsaved, (save.as_deref(), next))?;
        return Ok(report.code());
    };
    if let (Some((step, batch)), false) = (&predicted, gave.idle) {
        let took = *batch as f64 / speed_of(&gave.history);
        report.log(format_args!("{}", beside(step, took)));
    }
    let mut kept = run.filter(|_| gave.idle).map(RunDir::weights);
    if let (Some(run), false) = (run, gave.idle) {
        match weights.write(run.weights()) {
            Ok(()) => kept = Some(run.weights()),
            Err(error) => errors.push(error.while_writing()),
        }
    }
    let conclusion = Conclusion {
        last,
        planned,
        sha256: weights.sha256(),
        // What was not written cannot be evaluated.
        run: run.filter(|_| kept.is_some()).map(RunDir::path),
        file: save.clone().or(kept.clone()),
        seconds: begin.elapsed().as_secs_f64(),
        speed: speed_of(&gave.history),
        from_step: gave.from,
        longer,
        confusion,
        energy: energy.filter(|_| !gave.idle),
    };
    // A run whose last state is not saved has not ended: it goes on from the one before.
    if let (Some(run), false, true, None) = (run, gave.idle, kept.is_some(), &gave.unsaved)
        && let Err(error) = run.conclude(&conclusion.to_json())
    {
        errors.push(error);
    }
    report.conclude(&conclusion);
    all_of(errors, gave.unsaved, (save.or(kept).as_deref(), next))?;
    // Whoever sent it wants nothing to follow, though all epochs are done.
    Ok(gave.stop.signal().map_or(report.code(), Reason::code))
}

/// Everything that went wrong as one failure, with where the weights are and how to go on.
fn all_of(
    errors: Vec<Error>,
    unsaved: Option<Failure>,
    (weights, next): (Option<&Path>, Option<String>),
) -> Result<(), Failure> {
    let hint = match (&unsaved, weights, next) {
        (Some(_), Some(path), _) => format!("; the weights are in {}", path.display()),
        (None, _, Some(next)) => {
            let room = errors.iter().any(Error::lacks_room);
            let cure = if room { "make room" } else { "put that right" };
            format!("; all else is saved: {cure}, {next}")
        }
        _ => String::new(),
    };
    let all: Vec<Failure> =
        unsaved.into_iter().chain(errors.into_iter().map(Failure::from)).collect();
    let Some(Failure { code, .. }) = all.first() else { return Ok(()) };
    let code = *code;
    let messages: Vec<String> = all.into_iter().map(|failure| failure.message).collect();
    Err(Failure { message: messages.join("\n") + &hint, code })
}

/// What a step was expected to take, beside what it took with reading its samples.
fn beside(step: &Predicted, took: f64) -> String {
    let [low, high] = step.interval.map(Nanos);
    format!(
        "a step: {} predicted ({low} to {high}), {} taken with reading samples; about {} predicted",
        Nanos(step.step),
        Nanos((took * 1e9) as u64),
        Joules(step.joules).rounded(2)
    )
}

/// Training samples a second, over all epochs.
fn speed_of(history: &[EpochRecord]) -> f64 {
    let samples: usize = history.iter().map(|record| record.train.samples).sum();
    samples as f64 / history.iter().map(|record| record.seconds).sum::<f64>().max(1e-9)
}

/// What to do about a directory that cannot be made or written to.
pub(crate) fn unplaced(error: Error, args: &RunArgs) -> Failure {
    let hint = match &error {
        Error::Write { .. } if !error.lacks_room() && args.resume.is_none() => {
            "; keep the run elsewhere by --run DIR, or nowhere by --no-run"
        }
        _ => "",
    };
    Failure { message: format!("{error}{hint}"), code: code(&error) }
}

/// What to do about a newest checkpoint that is damaged or of another run.
pub(crate) fn unusable(error: Error, all: &[PathBuf], run: &Path) -> Failure {
    let damaged = |last: &Path| match &error {
        Error::Data { path, .. } => path.parent() == Some(last),
        // One that may not be read is not damaged.
        Error::Io { path, source } => {
            let lacks = [ErrorKind::NotFound, ErrorKind::UnexpectedEof, ErrorKind::InvalidData];
            path.parent() == Some(last) && lacks.contains(&source.kind())
        }
        _ => false,
    };
    // What flags decide was compared before: these come from files.
    let other = match &error {
        Error::Data { what, .. } if what == "programs" => {
            let stored = run.join("model.toml");
            Some(format!("the model is not the one of this run ({} has it)", stored.display()))
        }
        Error::Data { what, .. } if what == "transform" => {
            let changed = "the training images give another mean and deviation";
            Some(format!("{changed}: the dataset has changed"))
        }
        _ => None,
    };
    if let Some(message) = other {
        return Failure { message: format!("{}: {message}", run.display()), code: code(&error) };
    }
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
pub(crate) fn explained(error: Error, run: Option<&RunDir>, last: Option<&Path>) -> Failure {
    let wild = matches!(
        error,
        Error::NotFinite { .. } | Error::EvalNotFinite { .. } | Error::Overflow { .. }
    );
    let hint = match (&error, run, last) {
        (_, Some(_), Some(last)) if wild => {
            format!("; the last good checkpoint is {}", last.display())
        }
        (_, Some(_), None) if wild => "; there is no checkpoint yet".to_owned(),
        (Error::NotSaved { .. }, Some(run), _) => {
            format!(": dahl train --resume {}", quoted(run.path()))
        }
        _ => String::new(),
    };
    Failure { message: format!("{error}{hint}"), code: code(&error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_damaged_is_to_be_removed() {
        let all = ["c/epoch-1", "c/epoch-2"].map(PathBuf::from);
        let io =
            |kind: ErrorKind| Error::Io { path: all[1].join("state.json"), source: kind.into() };
        let advises = |error: Error| {
            unusable(error, &all, Path::new("r")).message.contains("; remove c/epoch-2")
        };
        assert!(advises(io(ErrorKind::NotFound)));
        assert!(advises(Error::data(all[1].join("state.json"), "state", "JSON", "none")));
        assert!(!advises(io(ErrorKind::PermissionDenied)));
        assert!(!advises(Error::data("config.toml", "key", "a flag", "none")));
    }
}
