//! The start of a run: its place, its initial weights and its samples.

use super::config::{GrainChoice, PlanChoice, RunConfig, threads};
use super::data::{Reading, RunData, moved};
use super::directory::{
    RunDirectory, check_weights, check_writable, find, no_run, refuse_old, refuse_outside, resolve,
};
use super::files;
use super::meters::Meters;
use super::prepare::Prepare;
use crate::data::Normalization;
use crate::error::{Error, Expected, Result};
use crate::file::TensorFile;
use crate::model::{Fusion, Span};
use crate::perf::PerfModel;
use crate::sched::Rule;
use crate::train::{Card, Checkpoints};
use std::path::{Path, PathBuf};

/// Where a run is kept.
pub(super) enum Place {
    Nowhere,
    /// A directory that is made when the run starts; `None` finds a name.
    New(Option<PathBuf>),
    /// The directory of a run that goes on.
    Old(RunDirectory, Checkpoints),
}

/// A run whose place is checked, and whose initial weights are read.
pub struct Opened {
    /// The configuration: on a resume, that of the run with what may change.
    pub config: RunConfig,
    pub(super) place: Place,
    /// The initial weights with their file.
    pub(super) init: Option<(PathBuf, TensorFile)>,
    init_card: Option<Card>,
    /// The dataset is named by the run that goes on.
    data_is_stored: bool,
}

/// Opens a run. `given` are the settings that were given now, which matters on a resume. Nothing
/// is written; a run that goes on is this process' own from now on.
///
/// # Errors
/// Where settings exclude each other, the run is there already, or is not there, or cannot go on
/// with these settings, or a file to write to is no place for it.
pub fn open(config: RunConfig, given: &[&str]) -> Result<Opened> {
    let config = match &config.session.resume {
        Some(name) => resumed(&find(name), &config, given)?,
        None => config,
    };
    config.check()?;
    if let Some(workers) = config.placement.workers {
        threads(&workers.to_string())
            .map_err(|Expected(expected)| Error::config("workers", expected, workers))?;
    }
    if let Some(save) = config.placement.save.as_deref() {
        check_writable("save", save)?;
        check_weights("save", save)?;
    }
    let place = Place::of(&config)?;
    let init = match (&config.identity.init, place.has_checkpoint()?) {
        (Some(path), false) => Some((path.clone(), TensorFile::read(path)?)),
        _ => None,
    };
    let init_card = match &init {
        Some((path, file)) => Card::of(file, path)?,
        None => None,
    };
    let data_is_stored = config.session.resume.is_some() && !given.contains(&"data");
    Ok(Opened { config, place, init, init_card, data_is_stored })
}

/// The configuration that a run goes on with.
fn resumed(run: &Path, now: &RunConfig, given: &[&str]) -> Result<RunConfig> {
    let path = run.join(files::CONFIG);
    if !path.exists() {
        return Err(no_run(run));
    }
    let stored = RunConfig::read(&path)?;
    let before = stored.placement.epochs;
    let config = stored.resumed(now, given)?;
    if let (Some(save), false) = (&config.placement.save, given.contains(&"save")) {
        refuse_outside(run, save)?;
    }
    if !config.may_end_after(before) {
        let run = format!("{before}, which its schedule depends on,");
        let found = config.placement.epochs.to_string();
        return Err(Error::Identity { setting: "epochs".to_owned(), run, found });
    }
    Ok(config)
}

impl RunConfig {
    /// Whether times of calls are of use: for a prediction, a choice, stages of equal time, or a
    /// policy.
    pub fn needs_times(&self) -> bool {
        let placement = &self.placement;
        let chosen = matches!(placement.grain, Some(GrainChoice::Auto | GrainChoice::Adaptive))
            || self.session.plan == Some(PlanChoice::Auto);
        let expects = placement.rule().is_some_and(Rule::expects);
        let staged = self.identity.pipeline.is_some_and(|kind| !kind.is_stale());
        self.session.calibration.is_some() || chosen || expects || staged
    }

    /// The steps of all epochs, or of this session where they are limited.
    pub(super) fn steps(&self, samples: usize) -> u64 {
        let epochs = self.placement.epochs;
        let steps = epochs.saturating_mul(samples.div_ceil(self.identity.batch));
        self.session.max_steps.map_or(steps, |most| steps.min(most)) as u64
    }

    /// Whether the weights after each step are the same where the run ends after so many epochs:
    /// the schedule of the learning rate may depend on them.
    pub fn may_end_after(&self, epochs: usize) -> bool {
        let schedule = |epochs| self.identity.schedule.over(Span { epochs, steps_per_epoch: 1000 });
        schedule(epochs) == schedule(self.placement.epochs)
    }
}

impl Opened {
    /// The arguments of [`prepare`](super::prepare) for this run, without a measurer.
    pub fn with<'a>(
        &'a self,
        data: &'a RunData,
        meters: &'a Meters,
        known: &PerfModel,
    ) -> Prepare<'a> {
        Prepare {
            model: &data.model,
            samples: data.counts(),
            fusion: Fusion::On,
            platform: meters.platform.as_ref(),
            known: known.clone(),
            resumed: self.resumed(),
            measurer: None,
        }
    }

    /// Opens the samples, normalised as the checkpoint says that the run goes on from, else as
    /// the settings say, else as the initial weights say, else by the dataset.
    ///
    /// # Errors
    /// As [`RunData::open`].
    pub fn data(&self, reading: &mut Reading<'_>) -> Result<RunData> {
        let card = self.init_card.as_ref();
        let normalize = match (self.place.card(), &self.config.identity.normalize, card) {
            (Some(card), _, _) => card.normalise.into(),
            (None, Some(given), _) => given.clone(),
            (None, None, Some(card)) => card.normalise.clone().into(),
            (None, None, None) => Normalization::Dataset,
        };
        RunData::open(&self.config, normalize, reading).map_err(|error| {
            match (&self.config.session.resume, self.data_is_stored) {
                (Some(run), true) => {
                    let whose = format!("of the run {}", run.display());
                    moved(error, &self.config.placement.data.0, &whose)
                }
                _ => error,
            }
        })
    }

    /// The file of the initial weights whose normalisation is used though nobody set it.
    pub fn normalised_by(&self) -> Option<&Path> {
        let (path, _) = self.init.as_ref()?;
        let has_one = self.init_card.as_ref().is_some_and(|card| card.normalise.is_some());
        (has_one && self.config.identity.normalize.is_none()).then_some(path)
    }

    /// The file of the initial weights that were trained on other classes, and these.
    pub fn other_classes(&self, data: &RunData) -> Option<(&Path, &[String])> {
        let (path, _) = self.init.as_ref()?;
        let card = self.init_card.as_ref().filter(|card| card.classes != data.train.classes())?;
        Some((path, &card.classes))
    }

    /// The directory of a run that goes on.
    pub fn resumed(&self) -> Option<&Path> {
        match &self.place {
            Place::Old(directory, _) => Some(directory.path()),
            _ => None,
        }
    }
}

impl Place {
    fn of(config: &RunConfig) -> Result<Self> {
        let session = &config.session;
        if let Some(name) = &session.resume {
            let taken = RunDirectory::take(find(name), config.placement.keep);
            let (directory, checkpoints) = taken.map_err(Error::while_writing)?;
            return Ok(Place::Old(directory, checkpoints));
        }
        if session.no_run.0 {
            return Ok(Place::Nowhere);
        }
        let path = session.run.as_deref().map(resolve);
        path.as_deref().map_or(Ok(()), refuse_old)?;
        Ok(Place::New(path))
    }

    /// Takes the place for this process alone; makes the directory of a new run.
    pub(super) fn take(self, config: &RunConfig) -> Result<Option<(RunDirectory, Checkpoints)>> {
        let path = match self {
            Place::Nowhere => return Ok(None),
            Place::Old(directory, checkpoints) => return Ok(Some((directory, checkpoints))),
            Place::New(Some(path)) => path,
            Place::New(None) => {
                let (model, data) = (&config.identity.model.0, &config.placement.data.0);
                RunDirectory::numbered(model, data).map_err(Error::while_writing)?
            }
        };
        let taken = RunDirectory::take(path, config.placement.keep);
        let (directory, checkpoints) = taken.map_err(Error::while_writing)?;
        // Another process may have been faster.
        refuse_old(directory.path())?;
        if let Some(found) = checkpoints.list()?.first() {
            return Err(Error::config("run", "a directory without a run", found.display()));
        }
        Ok(Some((directory, checkpoints)))
    }

    /// Whether there is a checkpoint to go on from.
    fn has_checkpoint(&self) -> Result<bool> {
        match self {
            Place::Old(_, checkpoints) => Ok(!checkpoints.list()?.is_empty()),
            _ => Ok(false),
        }
    }

    /// The card of the checkpoint to go on from, which says how samples were normalised. One
    /// that is damaged is an error when the run goes on from it.
    fn card(&self) -> Option<Card> {
        let Place::Old(_, checkpoints) = self else { return None };
        let checkpoint = checkpoints.latest().ok()??;
        Card::of(&checkpoint.weights, checkpoint.path()).ok()?
    }
}
