//! The configuration of a training loop, and its events.

use super::pass::Pass;
use crate::data::{Dataset, Transform};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// The configuration of a [`TrainLoop`](super::TrainLoop).
pub struct LoopConfig<'a> {
    /// The training samples.
    pub train: &'a dyn Dataset,
    /// The transform of each sample.
    pub transform: &'a Transform,
    /// The sets that are evaluated after every epoch.
    pub eval_sets: &'a [EvalSet<'a>],
    /// Samples per step.
    pub batch: usize,
    /// Of the order of samples.
    pub seed: u64,
    /// The order of the training samples.
    pub order: SampleOrder,
    /// Passes over the training samples.
    pub epochs: u64,
    /// The text that equal values of a key of `recipe` have in common: checkpoints may have been
    /// written by a version that spelled them otherwise.
    pub canonical: fn(&str, &str) -> String,
    /// What else must be the same for the bits to be the same, by key. What the
    /// programs, the schedule and the fields above decide is known already.
    pub recipe: BTreeMap<String, String>,
    /// What the weights of checkpoints say of themselves: a
    /// [`Card`](super::Card)'s text, or nothing.
    pub metadata: BTreeMap<String, String>,
}

/// The order of training samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleOrder {
    /// In another one each epoch, by the seed.
    #[default]
    Shuffled,
    /// In that of the dataset.
    InOrder,
}

/// Samples that a model is evaluated by.
pub struct EvalSet<'a> {
    /// Their name: `test`.
    pub name: &'a str,
    /// The samples.
    pub data: &'a dyn Dataset,
    /// The transform of each sample.
    pub transform: &'a Transform,
}

/// When checkpoints are written; one is always written at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// After every epoch, and when so much time has gone by since the last.
    EpochAnd(Duration),
    /// After so many steps.
    Steps(u64),
}

/// The results of an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochRecord {
    /// The epoch, from 1.
    pub epoch: u64,
    /// Training steps taken up to its end.
    pub steps: u64,
    /// The results of training.
    pub train: Pass,
    /// The losses and accuracies of the evaluation sets, by name.
    #[serde(rename = "judged")]
    pub evaluated: Vec<(String, Pass)>,
    /// Duration of training.
    pub seconds: f64,
    /// When it ended, in seconds since 1970.
    pub time: f64,
    /// The learning rate of its last step; checkpoints of earlier versions do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lr: Option<f64>,
}

impl EpochRecord {
    /// Training samples per second.
    pub fn samples_per_second(&self) -> f64 {
        self.train.samples as f64 / self.seconds.max(1e-9)
    }
}

/// An event of a training loop.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A training step has ended.
    Step {
        /// The epoch, from 1.
        epoch: u64,
        /// The results of the epoch so far.
        pass: &'a Pass,
    },
    /// A step of an evaluation has ended.
    Evaluating {
        /// The name of the set.
        name: &'a str,
        /// Loss and accuracy so far.
        pass: &'a Pass,
        /// Number of samples of the evaluation set.
        of: usize,
    },
    /// An epoch and its evaluation have ended.
    Epoch(&'a EpochRecord),
    /// A checkpoint is on the disk.
    Saved(&'a Path),
    /// A checkpoint could not be written. The one before is as it was, and the
    /// run goes on.
    NotSaved(&'a Error),
}

/// The end of a training loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All epochs are done.
    Finished,
    /// It was stopped.
    Stopped,
}

/// Receives every event; says whether to go on.
pub type Watcher<'w> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'w;
