//! Datasets: from files to samples.
//!
//! A [`Dataset`] knows how many samples there are and reads any of them into a
//! buffer of the caller, on any thread. [`open`] makes one from a name or a
//! path; [`Subset`] is a part of one; [`Transform`] normalises and augments;
//! [`Order`] says in which order an epoch visits the samples. Everything random
//! is a function of seed, epoch and sample, so it does not matter which thread
//! decodes what, nor whether a run was stopped in between.
//!
//! ```
//! use dahl::data::{Order, Part, open};
//! let train = open("digits", Part::Train, &Default::default())?;
//! let mut images = vec![0.0; 100 * train.shape().elements()];
//! let order = Order::shuffled(train.len(), 7, 0);
//! let batch = order.batches(100).next().expect("a batch");
//! for (&index, image) in batch.iter().zip(images.chunks_exact_mut(64)) {
//!     let label = train.read(index, image)?;
//!     assert!(label < train.classes().len());
//! }
//! # Ok::<(), dahl::Error>(())
//! ```

mod check;
mod cifar10;
mod decode;
mod describe;
mod digits;
mod fingerprint;
mod folder;
mod idx;
mod images;
mod in_order;
mod input;
mod normalise;
mod npy;
mod number;
mod open;
mod order;
mod pixels;
mod split;
mod synthetic;
mod table;
mod transform;

use crate::error::Result;
use dahl_kernels::Shape;
use std::path::PathBuf;
use std::sync::Arc;

pub use check::{Check, Problem, check, check_against, check_on};
pub use cifar10::cifar10;
pub use decode::{Fit, ImageOptions};
pub use describe::{Description, describe};
pub use digits::digits;
pub use fingerprint::fingerprint;
pub use folder::Folder;
pub use idx::{IdxSet, idx_pair};
pub use images::Images;
pub use normalise::{Normalise, Normalization, channels, measured};
pub use npy::Npy;
pub use number::Number;
pub use open::{NAMES, Options, is_name, open, open_parts};
pub use order::{Batches, Order};
pub use pixels::{PixelParts, Pixels};
pub use split::{Fractions, HoldOut, Split, Subset, limit, split};
pub use synthetic::Synthetic;
pub use table::TableOptions;
pub use transform::{Augment, Transform, Visit};

/// Samples with a class each.
///
/// Loader threads share a dataset, so reading takes `&self`; a sample goes into
/// a buffer of the caller, so that the input slots of an engine are filled in
/// place and a set that does not fit into memory needs none. Images are in
/// `0..=1`, with the channel first.
///
/// One's own set has to say four things:
///
/// ```
/// use dahl::data::{Dataset, Normalise};
/// use dahl::{Result, Shape};
///
/// /// Is a number odd? Its bits are the sample.
/// struct Parity(Vec<String>);
///
/// impl Dataset for Parity {
///     fn len(&self) -> usize {
///         256
///     }
///     fn shape(&self) -> Shape {
///         Shape::new(&[8])
///     }
///     fn classes(&self) -> &[String] {
///         &self.0
///     }
///     fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
///         for (bit, x) in out.iter_mut().enumerate() {
///             *x = (index >> bit & 1) as f32;
///         }
///         Ok(index % 2)
///     }
/// }
///
/// let set = Parity(vec!["even".to_owned(), "odd".to_owned()]);
/// assert_eq!(set.label(5)?, 1);
/// // Each of the eight bits has a mean of its own.
/// assert_eq!(Normalise::measure(&set, 256)?.mean.len(), 8);
/// # Ok::<(), dahl::Error>(())
/// ```
pub trait Dataset: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;

    /// The shape of a sample: `[channels, height, width]` for images.
    fn shape(&self) -> Shape;

    /// The names of the classes; a label is an index of it.
    fn classes(&self) -> &[String];

    /// Writes sample `index` to `out` and returns its label.
    ///
    /// # Errors
    /// If the sample is damaged, naming its file and place.
    ///
    /// # Panics
    /// Where `index` is not below [`len`](Dataset::len) or `out` has another
    /// number of elements than [`shape`](Dataset::shape): a mistake of the
    /// caller, not of the data.
    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize>;

    /// The same for a network that computes in `f64`; override it where samples have
    /// digits that `f32` does not hold.
    ///
    /// # Errors
    /// As [`read`](Dataset::read).
    ///
    /// # Panics
    /// As [`read`](Dataset::read).
    fn read_f64(&self, index: usize, out: &mut [f64]) -> Result<usize> {
        let mut sample = vec![0.0; out.len()];
        let label = self.read(index, &mut sample)?;
        out.iter_mut().zip(sample).for_each(|(to, from)| *to = f64::from(from));
        Ok(label)
    }

    /// The label of sample `index`; override it where that needs no decoding.
    ///
    /// # Errors
    /// If the sample is damaged.
    fn label(&self, index: usize) -> Result<usize> {
        self.read(index, &mut vec![0.0; self.shape().elements()])
    }

    /// True where there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the set, for people.
    fn name(&self) -> String {
        "dataset".to_owned()
    }

    /// Where sample `index` is found: its file, or its number.
    fn place(&self, index: usize) -> String {
        format!("{}, sample {index}", self.name())
    }

    /// The file that sample `index` has for itself; override it where there is
    /// one.
    fn file(&self, index: usize) -> Option<SampleFile> {
        let _ = index;
        None
    }

    /// Notes for the user before training on it: files that were left
    /// out, parts that are missing.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// The cost of a read; override it if a sample is a file.
    fn access(&self) -> Access {
        Access::Memory
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    fn len(&self) -> usize {
        (**self).len()
    }
    fn shape(&self) -> Shape {
        (**self).shape()
    }
    fn classes(&self) -> &[String] {
        (**self).classes()
    }
    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
        (**self).read(index, out)
    }
    fn read_f64(&self, index: usize, out: &mut [f64]) -> Result<usize> {
        (**self).read_f64(index, out)
    }
    fn label(&self, index: usize) -> Result<usize> {
        (**self).label(index)
    }
    fn name(&self) -> String {
        (**self).name()
    }
    fn place(&self, index: usize) -> String {
        (**self).place(index)
    }
    fn file(&self, index: usize) -> Option<SampleFile> {
        (**self).file(index)
    }
    fn notes(&self) -> &[String] {
        (**self).notes()
    }
    fn access(&self) -> Access {
        (**self).access()
    }
}

/// A file of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its name within the set, which does not depend on the location of the set.
    pub name: String,
}

/// The cost of reading a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Microseconds: it is in memory or computed.
    Memory,
    /// Milliseconds or more: a file is read and decoded.
    File,
}

/// A part of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// To learn from.
    Train,
    /// To choose settings by.
    Validation,
    /// To evaluate at the end.
    Test,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Part::Train => "train",
            Part::Validation => "validation",
            Part::Test => "test",
        })
    }
}

/// More classes than this are taken for a mistake of the labels.
const MAX_CLASSES: usize = 1 << 16;

/// Streams of random numbers, one a purpose.
mod stream {
    pub(super) const SHUFFLE: u32 = 0xda7a_0001;
    pub(super) const SPLIT: u32 = 0xda7a_0002;
    pub(super) const AUGMENT: u32 = 0xda7a_0003;
    pub(super) const LABEL: u32 = 0xda7a_0004;
    pub(super) const PATTERN: u32 = 0xda7a_0005;
    pub(super) const NOISE: u32 = 0xda7a_0006;
}

#[track_caller]
fn check_read<T>(set: &dyn Dataset, index: usize, out: &[T]) {
    assert!(index < set.len(), "expected a sample below {}, found {index}", set.len());
    let elements = set.shape().elements();
    assert_eq!(out.len(), elements, "expected a buffer of {elements}, found {}", out.len());
}

#[cfg(test)]
mod tests;
