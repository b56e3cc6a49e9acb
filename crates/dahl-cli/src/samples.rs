//! A model and the samples it is trained or judged on, shared by commands.

use crate::grain::at_least_one;
use crate::models;
use crate::normalize::Normalization;
use crate::progress::Show;
use crate::table::{TableArgs, explained};
use clap::Args;
use dahl::data::{self, Dataset, ImageOptions, Part, Transform};
use dahl::model::Model;
use dahl::train::{Card, Origin};
use dahl::{DType, Error};
use std::path::Path;
use std::sync::Arc;

/// Samples per step of a run that was not told how many.
pub(crate) const BATCH: usize = 32;

/// The model and its samples
#[derive(Args)]
pub(crate) struct SampleArgs {
    /// A model's name or TOML file
    #[arg(long, default_value = "digits-cnn")]
    model: String,
    /// A dataset's name, directory or file
    #[arg(long, default_value = "digits")]
    data: String,
    #[command(flatten)]
    table: TableArgs,
    /// Use at most this many training and test samples
    #[arg(long, value_parser = at_least_one)]
    limit: Option<usize>,
    /// Samples per step
    #[arg(long, default_value_t = BATCH, value_parser = at_least_one)]
    pub(crate) batch: usize,
    /// Element type of parameters and activations: f32 or f64
    #[arg(long, default_value = "f32")]
    pub(crate) dtype: DType,
    /// Mean and standard deviation that samples are normalised by: none, dataset (those of
    /// the training part, per channel, or per feature where samples have one axis) or
    /// MEAN,STD [default: those of --init FILE where it has any, else dataset]
    #[arg(
        long,
        value_name = "none|dataset|MEAN,STD",
        value_parser = Normalization::parse,
        allow_hyphen_values = true
    )]
    pub(crate) normalize: Option<Normalization>,
    /// Seed of everything random
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

/// What the arguments name.
pub(crate) struct Opened {
    pub(crate) model: Model,
    pub(crate) train: Arc<dyn Dataset>,
    pub(crate) test: Arc<dyn Dataset>,
    pub(crate) transform: Transform,
}

impl SampleArgs {
    /// Opens the dataset and finds the model.
    ///
    /// Where samples are normalised by the training part it is the whole one, limited or
    /// not, so that weights see the same numbers whenever they are evaluated.
    pub(crate) fn open(&self, normalize: Normalization, show: Show) -> dahl::Result<Opened> {
        let model = models::find(&self.model)?;
        let table = self.table.options(None);
        let options = data::Options { seed: self.seed, table, ..options(&model) };
        let parts = data::open_parts(&self.data, &[Part::Train, Part::Test], &options)
            .map_err(|error| not_there(explained(error), &self.data))?;
        for (part, use_) in parts.iter().zip(["to learn from", "left for the test"]) {
            if part.is_empty() {
                let samples: usize = parts.iter().map(|part| part.len()).sum();
                let expected = format!("at least 1 sample {use_}: add some");
                let found = format!("none of {samples} in all");
                return Err(Error::data(&self.data, "samples", expected, found));
            }
        }
        check_fit(&model, &*parts[0])?;
        check_outputs(&model, &*parts[0], &*parts[1])?;
        let normalise = normalize.of(&*parts[0], self.dtype, show)?;
        let limited = |set: &Arc<dyn Dataset>| match self.limit {
            Some(samples) => data::limit(set.clone(), samples),
            None => set.clone(),
        };
        let (train, test) = (limited(&parts[0]), limited(&parts[1]));
        Ok(Opened { model, train, test, transform: Transform { normalise, augment: None } })
    }

    /// The names of model and dataset, as they were given.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.model, &self.data)
    }

    /// The sizes of the steps over so many samples: the batch and the short
    /// last one.
    pub(crate) fn batch_sizes(&self, samples: usize) -> Vec<usize> {
        let sizes = [self.batch.min(samples), samples % self.batch];
        sizes.into_iter().filter(|&n| n > 0).collect()
    }

    /// What the weights of a training with these arguments say of themselves.
    pub(crate) fn card(&self, model: &Model, data: &dyn Dataset, transform: &Transform) -> Card {
        let (data_name, table) = (self.data.clone(), self.table.options(None));
        let origin = Some(Origin { data: data_name, seed: self.seed, table });
        Card { origin, ..Card::new(model, data, transform) }
    }
}

/// How datasets are opened for a model: images of any size are brought to the
/// one that it takes.
pub(crate) fn options(model: &Model) -> data::Options {
    let images = match model.input[..] {
        [channels @ (1 | 3), height, width] => {
            ImageOptions { channels, height, width, ..ImageOptions::default() }
        }
        _ => ImageOptions::default(),
    };
    data::Options { images, ..data::Options::default() }
}

/// Whether datasets of this text are found by name, not by path. A name goes
/// first: a directory beside may be called `digits` too.
pub(crate) fn is_name(data: &str) -> bool {
    let named = data::NAMES.iter().any(|(name, _)| *name == data);
    named || data == "cifar-10" || data.starts_with("synthetic:")
}

/// Says of a path that is no dataset whether there is anything.
pub(crate) fn not_there(error: Error, data: &str) -> Error {
    match error {
        Error::Config { key, expected, found }
            if key == "data" && !is_name(data) && !Path::new(data).exists() =>
        {
            Error::Config { key, expected, found: format!("{found}, no such file or directory") }
        }
        error => error,
    }
}

/// Says of a dataset that nobody named now that it is not there any more.
pub(crate) fn gone(error: Error, data: &str, whose: &str) -> Error {
    let is_gone = match &error {
        Error::Missing { .. } => true,
        _ => !is_name(data) && !Path::new(data).exists(),
    };
    if !is_gone {
        return error;
    }
    let found = "no such file or directory; give its new place by --data";
    Error::data(data, "data", whose, found)
}

/// Refuses samples that the model does not take.
pub(crate) fn check_fit(model: &Model, data: &dyn Dataset) -> dahl::Result<()> {
    // Equal numbers of elements fit too: an MLP takes images as rows.
    let elements = model.input.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if model.input == data.shape().axes() || elements == Some(data.shape().elements()) {
        return Ok(());
    }
    Err(Error::Config {
        key: "data".to_owned(),
        expected: format!("samples of {:?} for {}", model.input, model.name),
        found: format!("{} in {}", data.shape(), data.name()),
    })
}

/// Refuses more classes than the model has outputs. A test sample of a class that no
/// training sample has is more likely a wrong label than a reason for another model.
fn check_outputs(model: &Model, train: &dyn Dataset, test: &dyn Dataset) -> dahl::Result<()> {
    let outputs = models::outputs(&models::lower(model)?);
    let classes = train.classes().len().max(test.classes().len());
    if classes <= outputs {
        return Ok(());
    }
    let beyond = |set: &dyn Dataset| -> dahl::Result<Option<(usize, usize)>> {
        for index in 0..set.len() {
            match set.label(index)? {
                label if label >= outputs => return Ok(Some((index, label))),
                _ => {}
            }
        }
        Ok(None)
    };
    if let (None, Some((index, label))) = (beyond(train)?, beyond(test)?) {
        let expected = format!("a class below {outputs}, the number of outputs of {}", model.name);
        return Err(Error::data(test.place(index), "label", expected, label));
    }
    let expected = format!("at least {classes} outputs, one a class of {}", train.name());
    Err(Error::config("model", expected, format_args!("{outputs} in {}", model.name)))
}
