//! Datasets by name or path.

use super::folder::subfolders;
use super::idx::dotted;
use super::input::find;
use super::{
    Dataset, Folder, Fractions, IdxSet, ImageOptions, Npy, Part, Subset, Synthetic, TableOptions,
    cifar10, digits, limit, split,
};
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The sets that have a name, with what they are.
pub const NAMES: [(&str, &str); 5] = [
    ("digits", "handwritten digits, 1,438 + 359 images of 1x8x8; needs no files"),
    ("mnist", "handwritten digits, 60,000 + 10,000 images of 1x28x28"),
    ("fashion-mnist", "pieces of clothing, 60,000 + 10,000 images of 1x28x28"),
    ("cifar10", "animals and vehicles, 50,000 + 10,000 images of 3x32x32"),
    ("synthetic:CxHxW:CLASSES", "generated images with a learnable rule; needs no files"),
];

/// Options for opening datasets.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Where sets with a name are looked for: `<root>/<name>`, in this order.
    pub roots: Vec<PathBuf>,
    /// Of splits and of synthetic samples.
    pub seed: u64,
    /// The parts that are set aside; `test` where a set has none of its own.
    pub fractions: Fractions,
    /// No part has more samples than this.
    pub limit: Option<usize>,
    /// Shape and colours that images in folders are converted to.
    pub images: ImageOptions,
    /// The columns of a CSV file.
    pub table: TableOptions,
    /// Number of samples of a synthetic set, all parts together.
    pub samples: usize,
}

impl Default for Options {
    /// Sets in `data`, no validation, a fifth for the test, 64x64 in colour.
    fn default() -> Self {
        Self {
            roots: vec![PathBuf::from("data"), PathBuf::from(".")],
            seed: 0,
            fractions: Fractions { validation: 0.0, test: 0.2 },
            limit: None,
            images: ImageOptions::default(),
            table: TableOptions::default(),
            samples: 10_000,
        }
    }
}

/// Whether a source is the name of a dataset, not a path. A name goes first: a directory of the
/// working directory may be called `digits` too.
pub fn is_name(source: &str) -> bool {
    let named = NAMES.iter().any(|(name, _)| *name == source);
    named || source == "cifar-10" || source.starts_with("synthetic:")
}

/// Opens a part of a dataset: one of [`NAMES`], a directory of its files, a
/// directory of images with a subfolder a class (below `train` and `test`, or
/// not), a CSV file that names images and classes, or a pair of `.npy` files.
///
/// Where a set has no test of its own, a random part is set aside; the
/// validation is always taken from the training part.
///
/// # Errors
/// [`Error::Config`] where there is no such set, [`Error::Missing`] where its
/// files are not there, [`Error::Data`] where they are damaged.
pub fn open(source: &str, part: Part, options: &Options) -> Result<Arc<dyn Dataset>> {
    let mut parts = open_parts(source, &[part], options)?;
    Ok(parts.remove(0))
}

/// Opens several parts of a dataset, reading or listing it once.
///
/// # Errors
/// As [`open`].
pub fn open_parts(
    source: &str,
    parts: &[Part],
    options: &Options,
) -> Result<Vec<Arc<dyn Dataset>>> {
    let mut found = Opened { kind: resolve(source, options)?, options, train: None };
    parts
        .iter()
        .map(|&part| {
            let set = found.part(part)?;
            Ok(match options.limit {
                Some(samples) => limit(set, samples),
                None => set,
            })
        })
        .collect()
}

/// The kind of dataset of a name or path.
enum Kind {
    Digits,
    Idx(IdxSet, Vec<PathBuf>),
    Cifar10(Vec<PathBuf>),
    NpyPairs { train: [PathBuf; 2], test: Option<[PathBuf; 2]> },
    Folders { train: PathBuf, test: PathBuf },
    Folder(PathBuf),
    Table(PathBuf),
    Synthetic(String),
}

struct Opened<'a> {
    kind: Kind,
    options: &'a Options,
    /// The samples outside of the set's own test set, once they are read.
    train: Option<Arc<dyn Dataset>>,
}

impl Opened<'_> {
    fn part(&mut self, part: Part) -> Result<Arc<dyn Dataset>> {
        if part == Part::Test
            && let Some(test) = self.own_test()?
        {
            return Ok(test);
        }
        let train = match &self.train {
            Some(train) => train.clone(),
            None => self.train.insert(self.read_train()?).clone(),
        };
        let test = if self.has_own_test() { 0.0 } else { self.options.fractions.test };
        let validation = self.options.fractions.validation;
        for (which, key, fraction) in
            [(Part::Test, "test", test), (Part::Validation, "validation", validation)]
        {
            if part == which && fraction == 0.0 {
                let expected = "a fraction above 0 where this part is requested";
                return Err(Error::config(key, expected, fraction));
            }
        }
        if test == 0.0 && validation == 0.0 && !self.is_ordered_by_class() {
            return Ok(train);
        }
        let parts = split(train.len(), self.options.seed, Fractions { validation, test })?;
        let indices = parts.part(part).to_vec();
        Ok(Arc::new(Subset::new(train, indices, format!("split {part}"))))
    }

    fn has_own_test(&self) -> bool {
        match &self.kind {
            Kind::Digits | Kind::Idx(..) | Kind::Cifar10(_) | Kind::Folders { .. } => true,
            Kind::NpyPairs { test, .. } => test.is_some(),
            Kind::Folder(_) | Kind::Table(_) | Kind::Synthetic(_) => false,
        }
    }

    /// True where the first samples may all be of one class, so that a limit would
    /// take nothing else.
    fn is_ordered_by_class(&self) -> bool {
        matches!(self.kind, Kind::Folder(_) | Kind::Folders { .. } | Kind::Table(_))
    }

    fn own_test(&self) -> Result<Option<Arc<dyn Dataset>>> {
        Ok(match &self.kind {
            Kind::Digits => Some(Arc::new(digits(Part::Test)?)),
            Kind::Idx(set, directories) => Some(Arc::new(set.read(directories, Part::Test)?)),
            Kind::Cifar10(directories) => Some(Arc::new(cifar10(directories, Part::Test)?)),
            Kind::NpyPairs { train, test: Some(test) } => Some(Arc::new(npy(test, Some(train))?)),
            Kind::Folders { train, test } => {
                let set = Folder::with_classes(test, union(train, test)?, self.options.images)?;
                let none = Fractions { validation: 0.0, test: 0.0 };
                let order = split(set.len(), self.options.seed, none)?;
                let indices = order.part(Part::Train).to_vec();
                Some(Arc::new(Subset::new(Arc::new(set), indices, "in random order")))
            }
            _ => None,
        })
    }

    fn read_train(&self) -> Result<Arc<dyn Dataset>> {
        let images = self.options.images;
        Ok(match &self.kind {
            Kind::Digits => Arc::new(digits(Part::Train)?),
            Kind::Idx(set, directories) => Arc::new(set.read(directories, Part::Train)?),
            Kind::Cifar10(directories) => Arc::new(cifar10(directories, Part::Train)?),
            Kind::NpyPairs { train, test } => Arc::new(npy(train, test.as_ref())?),
            Kind::Folders { train, test } => {
                Arc::new(Folder::with_classes(train, union(train, test)?, images)?)
            }
            Kind::Folder(directory) => Arc::new(Folder::open(directory, images)?),
            Kind::Table(file) => Arc::new(Folder::from_table(file, &self.options.table, images)?),
            Kind::Synthetic(text) => {
                Arc::new(Synthetic::parse(text, self.options.samples, self.options.seed)?)
            }
        })
    }
}

/// A pair of arrays, with the classes of the other part too.
fn npy(own: &[PathBuf; 2], other: Option<&[PathBuf; 2]>) -> Result<Npy> {
    let set = Npy::open(&own[0], &own[1])?;
    Ok(match other {
        Some([samples, labels]) => set.with_classes(Npy::open(samples, labels)?.classes().len()),
        None => set,
    })
}

/// The classes of train and test together.
fn union(train: &Path, test: &Path) -> Result<Vec<String>> {
    let mut classes: BTreeSet<String> = subfolders(train)?.into_iter().collect();
    classes.extend(subfolders(test)?);
    Ok(classes.into_iter().collect())
}

fn resolve(source: &str, options: &Options) -> Result<Kind> {
    let below = |names: &[&str]| -> Vec<PathBuf> {
        options.roots.iter().flat_map(|root| names.iter().map(|n| root.join(n))).collect()
    };
    if let Some(text) = source.strip_prefix("synthetic:") {
        return Ok(Kind::Synthetic(text.to_owned()));
    }
    match source {
        "digits" => return Ok(Kind::Digits),
        "mnist" => return Ok(Kind::Idx(IdxSet::Mnist, below(&["mnist"]))),
        "fashion-mnist" => {
            return Ok(Kind::Idx(IdxSet::FashionMnist, below(&["fashion-mnist"])));
        }
        "cifar10" | "cifar-10" => {
            let names = ["cifar10", "cifar-10", "cifar-10-batches-bin"];
            return Ok(Kind::Cifar10(below(&names)));
        }
        _ => {}
    }
    let path = Path::new(source);
    if path.is_dir() {
        return Ok(in_directory(path));
    }
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    if path.is_file() && name.ends_with(".csv") {
        return Ok(Kind::Table(path.to_owned()));
    }
    if path.is_file() && name.ends_with(".npy") {
        return Ok(Kind::NpyPairs {
            train: [path.to_owned(), labels_of(path, &name)?],
            test: None,
        });
    }
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    let expected = format!("{}, a directory, a .csv or a .npy file", names.join(", "));
    let gone = if path.exists() { "" } else { ", no such file or directory" };
    Err(Error::config("data", expected, format_args!("{source:?}{gone}")))
}

fn in_directory(path: &Path) -> Kind {
    let here = vec![path.to_owned()];
    let has = |file: &str| find(&here, file).or_else(|| find(&here, &dotted(file))).is_some();
    if has("train-images-idx3-ubyte") || has("t10k-images-idx3-ubyte") {
        let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase());
        let fashion = name.is_some_and(|name| name.contains("fashion"));
        return Kind::Idx(if fashion { IdxSet::FashionMnist } else { IdxSet::Mnist }, here);
    }
    if has("data_batch_1.bin") || has("test_batch.bin") {
        return Kind::Cifar10(here);
    }
    let pair = |samples: &str, labels: &str| {
        let pair = [path.join(samples), path.join(labels)];
        pair.iter().all(|file| file.is_file()).then_some(pair)
    };
    let train = pair("train-images.npy", "train-labels.npy")
        .or_else(|| pair("x_train.npy", "y_train.npy"))
        .or_else(|| pair("images.npy", "labels.npy"));
    if let Some(train) = train {
        let test =
            pair("test-images.npy", "test-labels.npy").or_else(|| pair("x_test.npy", "y_test.npy"));
        return Kind::NpyPairs { train, test };
    }
    if path.join("styles.csv").is_file() {
        return Kind::Table(path.join("styles.csv"));
    }
    let [train, test, val] = ["train", "test", "val"].map(|name| path.join(name));
    match (train.is_dir(), test.is_dir(), val.is_dir()) {
        (true, true, _) => Kind::Folders { train, test },
        (true, false, true) => Kind::Folders { train, test: val },
        _ => Kind::Folder(path.to_owned()),
    }
}

/// The file of labels that belongs to a file of samples.
fn labels_of(samples: &Path, name: &str) -> Result<PathBuf> {
    let mut names: Vec<String> = [("images", "labels"), ("x_", "y_"), ("X_", "y_"), ("X", "y")]
        .map(|(from, to)| name.replacen(from, to, 1))
        .into_iter()
        .filter(|other| other != name)
        .collect();
    names.push("labels.npy".to_owned());
    names.dedup();
    let found = names.iter().map(|name| samples.with_file_name(name)).find(|path| path.is_file());
    found.filter(|path| path != samples).ok_or_else(|| Error::Missing {
        set: format!("the labels of {name}"),
        looked_in: vec![samples.parent().unwrap_or(Path::new("")).to_owned()],
        files: vec![names.join(" or ")],
        origin: "labels are an array of whole numbers, one per sample".to_owned(),
    })
}

#[cfg(test)]
mod tests;
