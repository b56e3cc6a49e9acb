//! Events of a run, and its outcome.

use super::metered::Spent;
use super::record::{Predicted, RunRecord};
use crate::error::Error;
use crate::trace::Trace;
use crate::train::{Confusion, EpochRecord, Pass, State};
use crate::units::{Bytes, Joules};
use std::path::{Path, PathBuf};

/// Why a run stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A signal, by its number.
    Signal(u8),
    /// Its session took the maximum time.
    MaxTime,
    /// Its session took the maximum number of steps.
    MaxSteps,
    /// Its session took the maximum energy.
    EnergyBudget,
}

/// An event of a run.
pub enum Event<'a> {
    /// Its directory is taken, and it starts, or goes on, from a state.
    Directory {
        /// The directory.
        path: &'a Path,
        /// The state.
        state: &'a State,
    },
    /// Training begins, or goes on, from a state.
    Begin(&'a State),
    /// A training step has ended.
    Step {
        /// The epoch, from 1.
        epoch: u64,
        /// Loss and accuracy of the epoch so far.
        pass: &'a Pass,
    },
    /// A step of an evaluation has ended.
    Evaluating {
        /// The name of the set.
        name: &'a str,
        /// Loss and accuracy so far.
        pass: &'a Pass,
        /// Number of samples of the set.
        of: usize,
    },
    /// The placement changes.
    Placement(&'a str),
    /// An epoch and its evaluation have ended.
    Epoch(&'a EpochRecord),
    /// No step is under way any more.
    Ended,
    /// The trace of the session, before it is written.
    Trace(&'a Trace),
    /// Something is wrong, and the run goes on.
    Warning(Warning<'a>),
}

/// Something that is wrong with a run that goes on.
pub enum Warning<'a> {
    /// There is no checkpoint in a directory: the run starts from the beginning.
    NoCheckpoint(&'a Path),
    /// Something that is kept of the run could not be written.
    Unwritten(&'a Error),
    /// Something that is kept of a run that has failed could not be written.
    AfterFailure(&'a Error),
    /// A checkpoint could not be written.
    NotSaved(&'a Error),
    /// The placement is not re-chosen any more.
    AdaptingEnded(&'a Error),
    /// A meter read nothing, or not all: the session's energy so far tells.
    Energy(&'a RunRecord),
    /// The confusion matrix was stopped before all samples were seen.
    Confusion(StopReason),
}

/// Where a run failed.
pub struct Failed {
    /// What went wrong.
    pub error: Error,
    /// At what.
    pub at: Box<Stage>,
}

/// The stage in which a run failed.
pub enum Stage {
    /// Its directory was taken.
    Placing,
    /// It was resumed from the newest of these checkpoints.
    Resuming {
        /// The directory of the run.
        run: PathBuf,
        /// Its checkpoints, the oldest first.
        checkpoints: Vec<PathBuf>,
    },
    /// It trained.
    Training {
        /// The directory of the run, if it has one.
        run: Option<PathBuf>,
        /// Its newest whole checkpoint.
        last: Option<PathBuf>,
    },
    /// Anything else.
    Other,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, at: Box::new(Stage::Other) }
    }
}

/// The end of a run.
pub struct Outcome {
    /// Its directory, if it has one.
    pub directory: Option<PathBuf>,
    /// The records of its epochs.
    pub history: Vec<EpochRecord>,
    /// The step that this session began after.
    pub from: u64,
    /// Its steps so far.
    pub steps: u64,
    /// Why it stopped, if it did.
    pub stopped: Option<StopReason>,
    /// The signal that came, even after the last step.
    pub signal: Option<StopReason>,
    /// The run had ended before: nothing was trained.
    pub idle: bool,
    /// The last state could not be saved.
    pub unsaved: Option<Failed>,
    /// The files that could not be written.
    pub errors: Vec<Error>,
    /// The hash of the weights.
    pub sha256: String,
    /// The file of the weights that was set, where it was written.
    pub save: Option<PathBuf>,
    /// The file of the weights in the run directory, where it was written.
    pub kept: Option<PathBuf>,
    /// The confusion matrix.
    pub confusion: Option<Confusion>,
    /// The energy of the session.
    pub energy: RunRecord,
    /// The energy when the budget was exceeded, and what was spent after that.
    pub overspent: Option<(Spent, Joules)>,
    /// The memory of the plan.
    pub planned: Bytes,
    /// The predicted time of a step.
    pub predicted: Option<Predicted>,
    /// The samples of a step.
    pub batch: usize,
    /// Duration of the session.
    pub seconds: f64,
}
