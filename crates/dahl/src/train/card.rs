//! The metadata of a weights file, so that predictions need no other file.

use super::Trainer;
use crate::data::{Dataset, Fit, ImageOptions, Normalise, TableOptions, Transform};
use crate::error::{Error, Result};
use crate::file::TensorFile;
use crate::model::{Model, Optimizer, TrainSpec};
use dahl_kernels::{DType, MAX_AXES, Shape};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// The keys in the metadata of a safetensors file.
const MODEL: &str = "dahl.model";
const CLASSES: &str = "dahl.classes";
const SHAPE: &str = "dahl.shape";
const FIT: &str = "dahl.fit";
const FILTER: &str = "dahl.filter";
const MEAN: &str = "dahl.mean";
const STD: &str = "dahl.std";
const DATA: &str = "dahl.data";
const SEED: &str = "dahl.seed";
const TABLE: &str = "dahl.table";

/// The filter that images are resized by: a triangle, as wide as the step between the
/// pixels of the smaller of both images.
const TRIANGLE: &str = "triangle";

/// The card of a set of weights: the network they belong to, how a sample has to
/// be prepared for it, and what its outputs mean.
///
/// It is kept as text in the metadata of the safetensors file, beside
/// `format = "pt"`, which is what PyTorch's own tools write.
#[derive(Clone, Debug)]
pub struct Card {
    /// The network.
    pub model: Model,
    /// The names of the classes, in the order of the outputs.
    pub classes: Vec<String>,
    /// The shape of a sample: `[channels, height, width]` of an image, even where
    /// the model takes it as a row.
    pub shape: Shape,
    /// The treatment of images with another aspect ratio.
    pub fit: Fit,
    /// Mean and standard deviation for normalisation.
    pub normalise: Option<Normalise>,
    /// The training data.
    pub origin: Option<Origin>,
}

/// The samples that weights were trained on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The dataset, as [`open`](crate::data::open) takes it.
    pub data: String,
    /// The seed of its split: another one puts training samples into the test.
    pub seed: u64,
    /// The columns of the dataset, where it is a CSV file.
    pub table: TableOptions,
}

impl Card {
    /// The card of a model that is trained on these samples.
    pub fn new(model: &Model, data: &dyn Dataset, transform: &Transform) -> Self {
        Self {
            model: model.clone(),
            classes: data.classes().to_vec(),
            shape: data.shape(),
            fit: ImageOptions::default().fit,
            normalise: transform.normalise.clone(),
            origin: None,
        }
    }

    /// Shape and colours that image files are converted to.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where samples are no images.
    pub fn images(&self) -> Result<ImageOptions> {
        match *self.shape.axes() {
            [channels @ (1 | 3), height, width] => {
                Ok(ImageOptions { height, width, channels, fit: self.fit })
            }
            _ => Err(Error::Unsupported {
                what: format!("image files for a model of samples of {}", self.shape),
            }),
        }
    }

    /// Writes the card into a file's metadata.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the model has no text.
    pub fn put(&self, file: &mut TensorFile) -> Result<()> {
        let mut put = |key: &str, value: String| file.metadata.insert(key.to_owned(), value);
        put("format", "pt".to_owned());
        put(MODEL, self.model.to_toml()?);
        put(CLASSES, json(&self.classes));
        put(SHAPE, json(self.shape.axes()));
        let fit = match self.fit {
            Fit::Stretch => "stretch",
            Fit::Crop => "crop",
        };
        put(FIT, fit.to_owned());
        put(FILTER, TRIANGLE.to_owned());
        if let Some(normalise) = &self.normalise {
            put(MEAN, json(&normalise.mean));
            put(STD, json(&normalise.std));
        }
        if let Some(origin) = &self.origin {
            put(DATA, origin.data.clone());
            put(SEED, origin.seed.to_string());
            if origin.table != TableOptions::default() {
                put(TABLE, json(&origin.table));
            }
        }
        Ok(())
    }

    /// The card in a file's metadata; `None` where another program wrote the
    /// file. `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Data`] where a card is not whole.
    pub fn of(file: &TensorFile, path: &Path) -> Result<Option<Self>> {
        let Some(model) = file.metadata.get(MODEL) else { return Ok(None) };
        let bad = |key: &str, e: &dyn std::fmt::Display| {
            Error::data(path, format_args!("metadata {key}"), "what dahl writes", e)
        };
        let model = Model::parse(model).map_err(|e| bad(MODEL, &e))?;
        // What does not fit together is the file's fault, so it is seen here.
        let spec = TrainSpec::new(2, DType::F32, Optimizer::sgd(0.0));
        model.lower(&spec).map_err(|e| bad(MODEL, &e))?;
        let axes: Vec<usize> = parsed(file, SHAPE).map_err(|e| bad(SHAPE, &e))?;
        let elements = |axes: &[usize]| axes.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if axes.len() > MAX_AXES || elements(&axes) != elements(&model.input) {
            return Err(bad(SHAPE, &format_args!("{axes:?} for {:?}", model.input)));
        }
        let shape = Shape::new(&axes);
        let fit = match file.metadata.get(FIT).map(String::as_str) {
            Some("stretch") => Fit::Stretch,
            Some("crop") => Fit::Crop,
            other => return Err(bad(FIT, &format_args!("{other:?}"))),
        };
        // Older cards do not name it.
        if let Some(other) = file.metadata.get(FILTER).filter(|name| *name != TRIANGLE) {
            return Err(bad(FILTER, &format_args!("{other:?}")));
        }
        let normalise = if file.metadata.contains_key(MEAN) || file.metadata.contains_key(STD) {
            let mean = parsed(file, MEAN).map_err(|e| bad(MEAN, &e))?;
            let std = parsed(file, STD).map_err(|e| bad(STD, &e))?;
            let normalise = Normalise { mean, std };
            normalise.check(shape).map_err(|e| bad(MEAN, &e))?;
            Some(normalise)
        } else {
            None
        };
        let origin = match file.metadata.get(DATA) {
            Some(data) => {
                let seed = parsed(file, SEED).map_err(|e| bad(SEED, &e))?;
                let table = match file.metadata.contains_key(TABLE) {
                    true => parsed(file, TABLE).map_err(|e| bad(TABLE, &e))?,
                    false => TableOptions::default(),
                };
                Some(Origin { data: data.clone(), seed, table })
            }
            None => None,
        };
        let classes = parsed(file, CLASSES).map_err(|e| bad(CLASSES, &e))?;
        Ok(Some(Self { model, classes, shape, fit, normalise, origin }))
    }
}

impl Trainer {
    /// Writes parameters and buffers to a safetensors file with the card, so that
    /// the file is enough to predict with.
    pub fn save_weights_with(&mut self, path: &Path, card: &Card) -> Result<()> {
        let mut file = self.weights()?;
        card.put(&mut file)?;
        file.write(path)
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("names and numbers have a text")
}

fn parsed<T: DeserializeOwned>(file: &TensorFile, key: &str) -> Result<T, String> {
    let text = file.metadata.get(key).ok_or("nothing")?;
    serde_json::from_str(text).map_err(|e| format!("{text:?}: {e}"))
}

#[cfg(test)]
mod tests;
