//! The end of a run: output and exit code.

use crate::advice::advised;
use crate::output::{code, counted, quoted};
use crate::report::Report;
use crate::stop;
use dahl::report::Energy;
use dahl::run::{Failed, Outcome, Predicted, RunConfig, Stage, StopReason, files};
use dahl::train::EpochRecord;
use dahl::units::{Joules, Nanos};
use dahl::{Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Why there is no result, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { message: advised(&error), code: code(&error) }
    }
}

/// Prints what a run gave. Returns the exit code, or what could not be written.
pub(crate) fn conclude(
    config: &RunConfig,
    mut outcome: Outcome,
    report: &mut Report,
) -> Result<u8, Failure> {
    let run = outcome.directory.clone();
    let resume = |run: &PathBuf| format!("dahl train --resume {}", quoted(run));
    let epochs = outcome.history.len();
    let longer = Some(2 * epochs).filter(|&longer| config.may_end_after(longer));
    if let (true, Some(run)) = (outcome.idle, &run) {
        let more = longer.map(|longer| format!("; for more: {} --epochs {longer}", resume(run)));
        let (path, more) = (run.display(), more.unwrap_or_default());
        let epochs = counted(epochs, "epoch");
        report.log(format_args!("{path} has finished its {epochs}{more}"));
    }
    let next = run.as_ref().map(|run| format!("then {}", resume(run)));
    let errors = std::mem::take(&mut outcome.errors);
    let unsaved = outcome.unsaved.take().map(|failed| failure(failed, config));
    let energy = Energy::best(&outcome.energy).map(|energy| energy.headline());
    let save = outcome.save.clone();
    if let Some(why) = outcome.stopped {
        match (why, &outcome.overspent) {
            // Whoever set a limit wants to know, even if the run is silent.
            (StopReason::EnergyBudget, Some((at, more))) => report.warn(format_args!(
                "energy: {} at the stop, {}; {more} more to save the run",
                at.joules, at.how
            )),
            _ => energy.iter().for_each(|text| report.log(format_args!("energy: {text}"))),
        }
        let saved = run.as_deref().filter(|_| unsaved.is_none());
        report.stopped(why, outcome.steps, saved);
        all_of(errors, unsaved, (save.as_deref(), next))?;
        return Ok(stop::code(why).max(report.code()));
    }
    if outcome.history.is_empty() {
        all_of(errors, unsaved, (save.as_deref(), next))?;
        return Ok(report.code());
    }
    let speed = speed_of(&outcome.history);
    if let (Some(step), false) = (&outcome.predicted, outcome.idle) {
        report.log(format_args!("{}", beside(step, outcome.batch as f64 / speed)));
    }
    let energy = energy.filter(|_| !outcome.idle);
    report.conclude(&outcome, speed, energy, longer);
    let weights = save.or(outcome.kept);
    all_of(errors, unsaved, (weights.as_deref(), next))?;
    // Whoever sent it wants nothing to follow, though all epochs are done.
    Ok(outcome.signal.map_or(report.code(), stop::code))
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
            let cure = if room { "make room" } else { "remove the cause" };
            format!("; everything else is saved: {cure}, {next}")
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

/// The predicted time of a step beside the measured one, which includes reading of samples.
fn beside(step: &Predicted, took: f64) -> String {
    let [low, high] = step.interval.map(Nanos);
    format!(
        "step: {} predicted ({low} to {high}), {} measured, including the reading of samples; energy about \
         {} predicted",
        Nanos(step.step),
        Nanos((took * 1e9) as u64),
        Joules(step.joules).rounded(2)
    )
}

/// Training samples per second, over all epochs.
fn speed_of(history: &[EpochRecord]) -> f64 {
    let samples: usize = history.iter().map(|record| record.train.samples).sum();
    samples as f64 / history.iter().map(|record| record.seconds).sum::<f64>().max(1e-9)
}

/// Advice if the newest checkpoint is damaged or belongs to another run.
fn unusable(error: Error, all: &[PathBuf], run: &Path) -> Failure {
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
        Error::OtherPrograms { .. } => {
            let stored = run.join(files::MODEL);
            Some(format!("the model differs from that of this run ({})", stored.display()))
        }
        Error::OtherTransform { .. } => {
            let changed = "the training images have another mean and standard deviation";
            Some(format!("{changed}: the dataset has changed"))
        }
        _ => None,
    };
    if let Some(message) = other {
        return Failure { message: format!("{}: {message}", run.display()), code: code(&error) };
    }
    let hint = match all {
        [.., before, last] if damaged(last) => {
            format!("; remove {} to continue from {}", last.display(), before.display())
        }
        [last] if damaged(last) => {
            format!("; remove {} to start from the beginning", last.display())
        }
        _ => String::new(),
    };
    Failure { message: format!("{error}{hint}"), code: code(&error) }
}

/// A run that failed, with what to do about it.
pub(crate) fn failure(failed: Failed, config: &RunConfig) -> Failure {
    let Failed { error, at } = failed;
    match *at {
        Stage::Other => error.into(),
        Stage::Resuming { run, checkpoints } => unusable(error, &checkpoints, &run),
        Stage::Placing => {
            let elsewhere = matches!(error, Error::Write { .. }) && !error.lacks_room();
            let hint = match elsewhere && config.session.resume.is_none() {
                true => "; keep the run elsewhere by --run DIR, or nowhere by --no-run",
                false => "",
            };
            Failure { message: format!("{}{hint}", advised(&error)), code: code(&error) }
        }
        Stage::Training { run, last } => {
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
                    format!(": dahl train --resume {}", quoted(&run))
                }
                _ => String::new(),
            };
            Failure { message: format!("{}{hint}", advised(&error)), code: code(&error) }
        }
    }
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
