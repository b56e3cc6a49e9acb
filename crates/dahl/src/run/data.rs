//! The model and the datasets of a run.

use super::config::{IdentitySettings, RunConfig};
use super::prepare::SampleCounts;
use crate::data::{
    self, Access, Augment, Dataset, HoldOut, ImageOptions, Normalization, Part, TableOptions,
    Transform,
};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::train::{Card, EvalSet, Origin, SharedSets};
use std::path::Path;
use std::sync::Arc;

/// The model of a run and its samples.
pub struct RunData {
    /// The model.
    pub model: Model,
    /// The training samples.
    pub train: Arc<dyn Dataset>,
    /// The samples that are held out of the training set.
    pub validation: Option<Arc<dyn Dataset>>,
    /// The test samples.
    pub test: Arc<dyn Dataset>,
    /// The transform of every sample.
    pub transform: Transform,
    /// The same with the random changes of training samples.
    pub training: Transform,
}

/// Samples of files that were read to measure their mean: their number, and how many of all.
pub type Reading<'a> = dyn FnMut(usize, usize) + 'a;

impl RunData {
    /// Finds the model and opens the dataset.
    ///
    /// The mean and the deviation of a training set are those of the whole set, limited or not,
    /// so that weights see the same numbers whenever they are evaluated.
    ///
    /// # Errors
    /// Where there is no such model or dataset, they do not fit each other, or a part is empty.
    pub fn open(
        config: &RunConfig,
        normalize: Normalization,
        reading: &mut Reading<'_>,
    ) -> Result<Self> {
        let (identity, source) = (&config.identity, config.placement.data.0.as_str());
        let model = Model::open(&identity.model.0)?;
        let options = data::Options {
            seed: identity.seed,
            table: identity.table(None),
            ..options_for(&model)
        };
        let parts = data::open_parts(source, &[Part::Train, Part::Test], &options)?;
        for (part, name) in parts.iter().zip(["training", "test"]) {
            if part.is_empty() {
                let samples: usize = parts.iter().map(|part| part.len()).sum();
                let expected = format!("at least 1 {name} sample: add some");
                let found = format!("none of {samples} in all");
                return Err(Error::data(source, "samples", expected, found));
            }
        }
        check_fit(&model, &*parts[0])?;
        check_outputs(&model, &*parts[0], &*parts[1])?;
        let of = data::measured(&*parts[0]);
        let normalise = normalize.of(&*parts[0], identity.dtype, &mut |read| {
            if parts[0].access() == Access::File {
                reading(read, of);
            }
        })?;
        let limited = |set: &Arc<dyn Dataset>| match identity.limit {
            Some(samples) => data::limit(set.clone(), samples),
            None => set.clone(),
        };
        let (all, test) = (limited(&parts[0]), limited(&parts[1]));
        let (train, validation) = match identity.validation {
            Some(held) => {
                let [train, validation] = HoldOut::split(held, all, identity.seed)?;
                (train, Some(validation))
            }
            None => (all, None),
        };
        let transform = Transform { normalise, augment: None };
        let training = Transform { augment: augment(identity, &*train)?, ..transform.clone() };
        Ok(Self { model, train, validation, test, transform, training })
    }

    /// The sets that are evaluated after every epoch; the last one decides.
    pub fn eval_sets(&self) -> Vec<EvalSet<'_>> {
        let set = |name, data| EvalSet { name, data, transform: &self.transform };
        let validation = self.validation.as_deref().map(|held| set("validation", held));
        validation.into_iter().chain([set("test", &*self.test)]).collect()
    }

    /// The same sets, and the training set before them, for ranks that read their samples by
    /// themselves.
    pub fn shared(&self) -> SharedSets {
        let train = (self.train.clone(), self.training.clone());
        let evaluated = self.validation.iter().chain([&self.test]);
        let evaluated = evaluated.map(|set| (set.clone(), self.transform.clone()));
        SharedSets(std::iter::once(train).chain(evaluated).collect())
    }

    /// The numbers of training samples and of evaluated samples.
    pub fn counts(&self) -> SampleCounts {
        let eval = self.eval_sets().iter().map(|set| set.data.len()).collect();
        SampleCounts { train: self.train.len(), eval }
    }

    /// The metadata of the weights of this training.
    pub fn card(&self, config: &RunConfig) -> Card {
        let (data, seed) = (config.placement.data.0.clone(), config.identity.seed);
        let origin = Some(Origin { data, seed, table: config.identity.table(None) });
        Card { origin, ..Card::new(&self.model, &*self.train, &self.transform) }
    }
}

impl IdentitySettings {
    /// The columns of a CSV file that are set; the rest is as in `known`, or as by default.
    pub fn table(&self, known: Option<&TableOptions>) -> TableOptions {
        let known = known.cloned().unwrap_or_default();
        let or = |given: &Option<String>, known| given.clone().unwrap_or(known);
        TableOptions {
            name: or(&self.image_column, known.name),
            class: or(&self.class_column, known.class),
            images: or(&self.image_dir, known.images),
            extension: or(&self.image_extension, known.extension),
        }
    }
}

/// The options with which datasets are opened for a model: images are resized to its input.
pub fn options_for(model: &Model) -> data::Options {
    let images = match model.input[..] {
        [channels @ (1 | 3), height, width] => {
            ImageOptions { channels, height, width, ..ImageOptions::default() }
        }
        _ => ImageOptions::default(),
    };
    data::Options { images, ..data::Options::default() }
}

/// An error of opening a dataset that nobody named now: it may have been moved. `whose` is
/// whose it is, such as `of the run a`.
pub fn moved(error: Error, data: &str, whose: &str) -> Error {
    let is_gone = match &error {
        Error::Missing { .. } => true,
        _ => !data::is_name(data) && !Path::new(data).exists(),
    };
    match is_gone {
        true => Error::Moved { data: data.to_owned(), whose: whose.to_owned() },
        false => error,
    }
}

/// Refuses samples that the model does not take.
pub fn check_fit(model: &Model, data: &dyn Dataset) -> Result<()> {
    // Equal numbers of elements fit too: an MLP takes images as rows.
    let elements = model.input.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if model.input == data.shape().axes() || elements == Some(data.shape().elements()) {
        return Ok(());
    }
    let expected = format!("samples of {:?} for {}", model.input, model.name);
    Err(Error::config("data", expected, format_args!("{} in {}", data.shape(), data.name())))
}

/// Refuses more classes than the model has outputs. A test sample of a class that no training
/// sample has is more likely a wrong label than a reason for another model.
fn check_outputs(model: &Model, train: &dyn Dataset, test: &dyn Dataset) -> Result<()> {
    let outputs = model.lower_one()?.outputs();
    let classes = train.classes().len().max(test.classes().len());
    if classes <= outputs {
        return Ok(());
    }
    let beyond = |set: &dyn Dataset| -> Result<Option<(usize, usize)>> {
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
    let expected = format!("at least {classes} outputs, one per class of {}", train.name());
    Err(Error::config("model", expected, format_args!("{outputs} in {}", model.name)))
}

/// The random changes of training images.
fn augment(identity: &IdentitySettings, data: &dyn Dataset) -> Result<Option<Augment>> {
    let (crop, flip) = (identity.crop, identity.flip.0);
    let key = match (crop, flip) {
        (None, false) => return Ok(None),
        (Some(_), _) => "crop",
        (None, true) => "flip",
    };
    if data.shape().rank() < 2 {
        let found = format!("samples of {} in {}", data.shape(), data.name());
        return Err(Error::config(key, "images", found));
    }
    let side = data.shape().axes().iter().rev().take(2).copied().min().unwrap_or(0);
    if let Some(crop) = crop.filter(|&crop| crop >= side) {
        let images = data.name();
        let expected =
            format!("fewer than the {side} pixels of the shorter side of images of {images}");
        return Err(Error::config("crop", expected, crop));
    }
    Ok(Some(Augment { seed: identity.seed, padding: crop.unwrap_or(0), flip }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;

    #[test]
    fn images_are_moved_and_mirrored() {
        let set = digits(Part::Train).unwrap();
        let augmented = |set: &dyn Dataset, settings: &[(&str, &str)]| {
            let mut config = RunConfig::default();
            for (name, value) in settings.iter().chain(&[("seed", "3")]) {
                config.set(name, &[value]).unwrap();
            }
            augment(&config.identity, set).map_err(|error| error.to_string())
        };
        let augment = |settings: &[(&str, &str)]| augmented(&set, settings);
        assert_eq!(augment(&[]), Ok(None));
        let shifted = Augment { seed: 3, padding: 2, flip: false };
        assert_eq!(augment(&[("crop", "2")]), Ok(Some(shifted)));
        let flipped = Augment { seed: 3, padding: 0, flip: true };
        assert_eq!(augment(&[("flip", "true")]), Ok(Some(flipped)));
        augment(&[("crop", "7")]).unwrap();
        for crop in ["8", "1000000000"] {
            let expected = "crop: expected fewer than the 8 pixels of the shorter side of \
                            images of digits, train";
            assert_eq!(augment(&[("crop", crop)]), Err(format!("{expected}, found {crop}")));
        }
        let thin = data::Synthetic::new(dahl_kernels::Shape::new(&[1, 2, 28]), 2, 10, 0).unwrap();
        let error = augmented(&thin, &[("crop", "2")]).unwrap_err();
        assert!(error.starts_with("crop: expected fewer than the 2 pixels"), "{error}");
        let rows = data::Synthetic::new(dahl_kernels::Shape::new(&[5]), 2, 10, 0).unwrap();
        let error = augmented(&rows, &[("flip", "true")]).unwrap_err();
        assert!(error.starts_with("flip: expected images, found samples of [5]"), "{error}");
    }

    #[test]
    fn samples_are_held_out() {
        let set: Arc<dyn Dataset> = Arc::new(digits(Part::Test).unwrap());
        let sizes = |text: &str| {
            let [train, held] = HoldOut::parse(text).unwrap().split(set.clone(), 1)?;
            Ok::<_, Error>((train.len(), held.len()))
        };
        assert_eq!(sizes("0.1").unwrap(), (323, 36));
        assert_eq!(sizes("100").unwrap(), (259, 100));
        let expected = "validation: expected 1 to 358 of the training samples, found";
        for (text, found) in [("359", 359), ("0.0001", 0)] {
            assert_eq!(sizes(text).unwrap_err().to_string(), format!("{expected} {found}"));
        }
    }
}
