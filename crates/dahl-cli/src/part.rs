//! Which part of a dataset weights are used on.

use crate::weights::Weights;
use clap::ValueEnum;
use dahl::data::{Access, Dataset, Part};
use dahl::{Result, Shape};
use std::sync::Arc;

/// A part of a dataset, as flags name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartName {
    Train,
    Test,
    /// Both
    All,
}

/// Samples, and what they are of their dataset.
pub(crate) struct Chosen {
    pub(crate) set: Arc<dyn Dataset>,
    pub(crate) part: PartName,
    /// The number of samples of the dataset, if the part was split off at random.
    pub(crate) of: Option<usize>,
}

impl Chosen {
    /// The name of the whole dataset.
    pub(crate) fn name(&self) -> String {
        let name = self.set.name();
        let suffixes = [", split train", ", split test", ", train", ", test", ", in random order"];
        let bare = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
        bare.unwrap_or(&name).to_owned()
    }
}

impl PartName {
    /// The part in words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            PartName::Train => "the training part",
            PartName::Test => "the test part",
            PartName::All => "all parts",
        }
    }

    /// The part as its flag names it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            PartName::Train => "train",
            PartName::Test => "test",
            PartName::All => "all",
        }
    }

    /// Opens the part of the dataset that weights are used on.
    ///
    /// # Errors
    /// As [`Weights::part`].
    pub(crate) fn open(self, weights: &Weights) -> Result<Chosen> {
        let set = match self {
            PartName::Train => weights.part(Part::Train)?,
            PartName::Test => weights.part(Part::Test)?,
            PartName::All => {
                let [train, test] = [weights.part(Part::Train)?, weights.part(Part::Test)?];
                Arc::new(Joined { train, test })
            }
        };
        // Those of a set with a test of its own would be read for nothing.
        let other = match self {
            PartName::Train => Part::Test,
            _ => Part::Train,
        };
        let split = self != PartName::All && is_split(&*set);
        let other = split.then(|| weights.part(other)).transpose()?;
        let of = other.map(|other| set.len() + other.len());
        Ok(Chosen { set, part: self, of })
    }
}

/// Whether a part was split off at random, so that the dataset has no test of its own.
pub(crate) fn is_split(part: &dyn Dataset) -> bool {
    part.name().contains(", split ")
}

/// Both parts of a dataset, the training samples first.
struct Joined {
    train: Arc<dyn Dataset>,
    test: Arc<dyn Dataset>,
}

impl Joined {
    /// The dataset that contains a sample, and the index of the sample in it.
    fn find(&self, index: usize) -> (&dyn Dataset, usize) {
        match index.checked_sub(self.train.len()) {
            Some(index) => (&*self.test, index),
            None => (&*self.train, index),
        }
    }
}

impl Dataset for Joined {
    fn len(&self) -> usize {
        self.train.len() + self.test.len()
    }

    fn shape(&self) -> Shape {
        self.train.shape()
    }

    fn classes(&self) -> &[String] {
        // One part may know fewer of them.
        let (train, test) = (self.train.classes(), self.test.classes());
        if test.len() > train.len() { test } else { train }
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
        let (set, index) = self.find(index);
        set.read(index, out)
    }

    fn read_f64(&self, index: usize, out: &mut [f64]) -> Result<usize> {
        let (set, index) = self.find(index);
        set.read_f64(index, out)
    }

    fn label(&self, index: usize) -> Result<usize> {
        let (set, index) = self.find(index);
        set.label(index)
    }

    fn name(&self) -> String {
        self.train.name()
    }

    fn place(&self, index: usize) -> String {
        let (set, index) = self.find(index);
        set.place(index)
    }

    fn access(&self) -> Access {
        self.train.access()
    }
}
