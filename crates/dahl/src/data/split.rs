//! Parts of a dataset.

use super::order::permutation;
use super::{Access, Dataset, Part, SampleFile, stream};
use crate::error::{Error, Expected, Result};
use dahl_kernels::Shape;
use dahl_kernels::math::uniform;
use std::sync::Arc;

/// Some samples of a dataset, in an order of their own.
#[derive(Clone)]
pub struct Subset {
    of: Arc<dyn Dataset>,
    indices: Vec<usize>,
    label: String,
}

impl Subset {
    /// The samples `indices` of a dataset; `label` is added to its name.
    ///
    /// # Panics
    /// Where an index is not below the number of samples.
    #[track_caller]
    pub fn new(of: Arc<dyn Dataset>, indices: Vec<usize>, label: impl Into<String>) -> Self {
        let samples = of.len();
        if let Some(index) = indices.iter().find(|&&index| index >= samples) {
            panic!("expected samples below {samples}, found {index}");
        }
        Self { of, indices, label: label.into() }
    }
}

impl Dataset for Subset {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn shape(&self) -> Shape {
        self.of.shape()
    }

    fn classes(&self) -> &[String] {
        self.of.classes()
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
        self.of.read(self.indices[index], out)
    }

    fn read_f64(&self, index: usize, out: &mut [f64]) -> Result<usize> {
        self.of.read_f64(self.indices[index], out)
    }

    fn label(&self, index: usize) -> Result<usize> {
        self.of.label(self.indices[index])
    }

    fn name(&self) -> String {
        format!("{}, {}", self.of.name(), self.label)
    }

    fn place(&self, index: usize) -> String {
        self.of.place(self.indices[index])
    }

    fn file(&self, index: usize) -> Option<SampleFile> {
        self.of.file(self.indices[index])
    }

    fn notes(&self) -> &[String] {
        self.of.notes()
    }

    fn access(&self) -> Access {
        self.of.access()
    }
}

/// The first `samples` samples, or all where there are fewer.
pub fn limit(of: Arc<dyn Dataset>, samples: usize) -> Arc<dyn Dataset> {
    if samples >= of.len() {
        return of;
    }
    let label = format!("the first {samples}");
    Arc::new(Subset::new(of, (0..samples).collect(), label))
}

/// The fractions of the samples that are held out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fractions {
    /// The fraction for [`Part::Validation`].
    pub validation: f64,
    /// The fraction for [`Part::Test`].
    pub test: f64,
}

/// Which samples are in which part.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    order: Vec<usize>,
    test: usize,
    validation: usize,
}

/// Splits `samples` samples at random; which are for the test depends on seed
/// and fraction for the test alone.
///
/// # Errors
/// [`Error::Config`] where the fractions are no fractions.
///
/// ```
/// use dahl::data::{Fractions, Part, split};
/// let parts = split(100, 7, Fractions { validation: 0.1, test: 0.2 })?;
/// assert_eq!(parts.part(Part::Train).len(), 70);
/// # Ok::<(), dahl::Error>(())
/// ```
pub fn split(samples: usize, seed: u64, fractions: Fractions) -> Result<Split> {
    let Fractions { validation, test } = fractions;
    for (key, fraction) in [("validation", validation), ("test", test)] {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::config(key, "a fraction from 0 to 1", fraction));
        }
    }
    if validation + test > 1.0 {
        let found = format!("{validation} and {test}");
        return Err(Error::config("validation and test", "at most 1 together", found));
    }
    let count = |fraction: f64| (samples as f64 * fraction).round() as usize;
    let test = count(test).min(samples);
    let validation = count(validation).min(samples - test);
    let order = permutation(samples, |i| uniform(seed, stream::SPLIT, 0, i));
    Ok(Split { order, test, validation })
}

impl Split {
    /// The samples of a part, in random order.
    pub fn part(&self, part: Part) -> &[usize] {
        let (test, rest) = self.order.split_at(self.test);
        let (validation, train) = rest.split_at(self.validation);
        match part {
            Part::Train => train,
            Part::Validation => validation,
            Part::Test => test,
        }
    }
}

/// The training samples that are held out for validation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HoldOut {
    /// A fraction of them.
    Fraction(f64),
    /// A number of them.
    Samples(usize),
}

impl HoldOut {
    /// Reads a fraction between 0 and 1, or a number of samples.
    pub fn parse(text: &str) -> Result<Self, Expected> {
        let fraction = |x: &f64| 0.0 < *x && *x < 1.0;
        let parsed = match text.parse() {
            Ok(samples) => Some(HoldOut::Samples(samples)).filter(|_| samples > 0),
            Err(_) => text.parse().ok().filter(fraction).map(HoldOut::Fraction),
        };
        parsed.ok_or_else(|| "a fraction between 0 and 1, or a number of samples".into())
    }

    /// Splits training samples into those that stay and those that are held out.
    ///
    /// # Errors
    /// [`Error::Config`] where either part would be empty.
    pub fn split(self, train: Arc<dyn Dataset>, seed: u64) -> Result<[Arc<dyn Dataset>; 2]> {
        let samples = train.len();
        let validation = match self {
            HoldOut::Fraction(fraction) => fraction,
            HoldOut::Samples(held) => held as f64 / samples.max(1) as f64,
        };
        let held = (validation * samples as f64).round();
        if held < 1.0 || held >= samples as f64 {
            let expected = format!("1 to {} of the training samples", samples.saturating_sub(1));
            return Err(Error::config("validation", expected, held));
        }
        let parts = split(samples, seed, Fractions { validation, test: 0.0 })?;
        Ok([Part::Train, Part::Validation].map(|part| -> Arc<dyn Dataset> {
            Arc::new(Subset::new(train.clone(), parts.part(part).to_vec(), part.to_string()))
        }))
    }
}

impl std::fmt::Display for HoldOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HoldOut::Fraction(fraction) => write!(f, "{fraction}"),
            HoldOut::Samples(samples) => write!(f, "{samples}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;

    fn parts(n: usize, validation: f64, test: f64) -> [Vec<usize>; 3] {
        let split = split(n, 3, Fractions { validation, test }).unwrap();
        [Part::Train, Part::Validation, Part::Test].map(|part| split.part(part).to_vec())
    }

    #[test]
    fn every_sample_is_in_one_part() {
        for (n, validation, test) in [(0, 0.5, 0.5), (1, 0.5, 0.5), (10, 0.0, 0.0), (97, 0.1, 0.3)]
        {
            let mut all = parts(n, validation, test).concat();
            all.sort_unstable();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_test_does_not_depend_on_the_validation() {
        assert_eq!(parts(100, 0.0, 0.2)[2], parts(100, 0.3, 0.2)[2]);
    }

    #[test]
    fn fractions_are_checked() {
        let check = |validation, test, expected: &str| {
            let error = split(10, 0, Fractions { validation, test }).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check(-0.1, 0.0, "validation: expected a fraction from 0 to 1, found -0.1");
        check(0.0, f64::NAN, "test: expected a fraction from 0 to 1, found NaN");
        check(0.6, 0.5, "validation and test: expected at most 1 together, found 0.6 and 0.5");
    }

    #[test]
    fn a_subset_reads_the_samples_of_the_whole() {
        let whole: Arc<dyn Dataset> = Arc::new(digits(Part::Test).unwrap());
        let part = Subset::new(whole.clone(), vec![5, 2], "two");
        let (mut a, mut b) = ([0.0; 64], [0.0; 64]);
        assert_eq!(part.read(1, &mut a).unwrap(), whole.read(2, &mut b).unwrap());
        assert_eq!(a, b);
        assert_eq!(part.place(0), "digits, test, sample 5");
        assert_eq!(part.name(), "digits, test, two");
        assert_eq!(limit(whole.clone(), 7).len(), 7);
        assert_eq!(limit(whole, 1000).len(), 359);
    }
}
