//! By which mean and deviation samples are normalised.

use crate::progress::{Progress, Show};
use dahl::data::{self, Access, Dataset, Normalise};
use dahl::{DType, Result};

/// Where mean and deviation come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Normalization {
    /// Samples stay as they are.
    None,
    /// They are measured on the training part.
    Dataset,
    /// They are given.
    Given(Normalise),
}

impl From<Option<Normalise>> for Normalization {
    fn from(normalise: Option<Normalise>) -> Self {
        normalise.map_or(Normalization::None, Normalization::Given)
    }
}

impl Normalization {
    /// From `none`, `dataset`, or a mean and a deviation: a number each, or a number
    /// per channel.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected none, dataset or MEAN,STD such as 0.5,0.25; one number per channel is \
             written 0.5:0.4:0.4,0.2:0.2:0.3"
                .to_owned()
        };
        let numbers = |text: &str| -> Result<Vec<f64>, String> {
            let all = text.split(':').map(|number| number.trim().parse().map_err(|_| wrong()));
            all.collect()
        };
        match text {
            "none" => Ok(Normalization::None),
            "dataset" => Ok(Normalization::Dataset),
            _ => {
                let (mean, std) = text.split_once(',').ok_or_else(wrong)?;
                let (mean, mut std) = (numbers(mean)?, numbers(std)?);
                if let [one] = std[..] {
                    std = vec![one; mean.len()];
                }
                if std.len() != mean.len() || mean.iter().any(|x| !x.is_finite()) {
                    return Err(wrong());
                }
                if std.iter().any(|x| !(x.is_finite() && *x > 0.0)) {
                    return Err("expected standard deviations above 0".to_owned());
                }
                Ok(Normalization::Given(Normalise { mean, std }))
            }
        }
    }

    /// Mean and deviation for samples of a training part.
    ///
    /// # Errors
    /// Where those that are given do not fit the samples, or a sample cannot be read.
    pub(crate) fn of(
        self,
        train: &dyn Dataset,
        dtype: DType,
        show: Show,
    ) -> Result<Option<Normalise>> {
        match self {
            Normalization::None => Ok(None),
            Normalization::Dataset => measure(train, dtype, show).map(Some),
            Normalization::Given(normalise) => {
                normalise.check(train.shape())?;
                Ok(Some(normalise))
            }
        }
    }
}

/// Measures mean and deviation of a training part, which takes seconds where samples are
/// files.
pub(crate) fn measure(train: &dyn Dataset, dtype: DType, show: Show) -> Result<Normalise> {
    let samples = data::measured(train);
    let mut meter = meter(train, samples, show);
    Normalise::measure_in(dtype, train, samples, &mut |read| meter.count(read))
}

/// Shows how many samples were measured, where each is a file.
pub(crate) fn meter(set: &dyn Dataset, samples: usize, show: Show) -> crate::progress::Meter {
    let show = if set.access() == Access::File { show } else { Show::Nothing };
    Progress::of_looking(show).look("measure", samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations_are_parsed() {
        let given = |mean: &[f64], std: &[f64]| {
            Ok(Normalization::Given(Normalise { mean: mean.to_vec(), std: std.to_vec() }))
        };
        let parse = Normalization::parse;
        assert_eq!(parse("none"), Ok(Normalization::None));
        assert_eq!(parse("dataset"), Ok(Normalization::Dataset));
        assert_eq!(parse("-0.5,2"), given(&[-0.5], &[2.0]));
        assert_eq!(parse("0.5:0.4,0.2:1"), given(&[0.5, 0.4], &[0.2, 1.0]));
        assert_eq!(parse("0.5:0.4,1"), given(&[0.5, 0.4], &[1.0, 1.0]));
        for text in ["", "all", "1", "1,x", "1,2,3", "1,1:2", "nan,1"] {
            assert!(parse(text).is_err_and(|e| e.contains("expected none")), "{text}");
        }
        for text in ["1,0", "1,-1", "1,inf"] {
            assert!(parse(text).is_err_and(|e| e.contains("deviations above 0")), "{text}");
        }
    }
}
