//! Mean and deviation of samples.

use super::check::check_finite;
use super::in_order::in_order;
use super::{Access, Dataset, Number};
use crate::error::{Error, Expected, Result};
use dahl_kernels::{DType, Float, Shape};
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};

/// Mean and deviation are measured on at most so many samples that are files, since
/// decoding them takes milliseconds each.
const MOST_FILES: usize = 4096;

/// Mean and deviation are measured on at most so many numbers in memory, which takes
/// half a second.
const MOST_NUMBERS: usize = 1 << 28;

/// How many channels a sample has, each with a mean and a deviation of its own: the first
/// axis of an image, every feature of a sample of one axis, 1 for others.
pub fn channels(shape: Shape) -> usize {
    if shape.rank() == 2 { 1 } else { shape.axes().first().copied().unwrap_or(1) }
}

/// Subtracts a mean and divides by a standard deviation, channel by channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalise {
    /// One mean per channel, or one for all.
    pub mean: Vec<f64>,
    /// One standard deviation per mean.
    pub std: Vec<f64>,
}

impl Normalise {
    /// Checks that there is a positive deviation for every channel, or one for all.
    ///
    /// # Errors
    /// [`Error::Config`] naming the list that does not fit.
    pub fn check(&self, shape: Shape) -> Result<()> {
        let channels = channels(shape);
        if self.mean.len() != 1 && self.mean.len() != channels {
            let expected = match channels {
                1 => "1 number".to_owned(),
                _ => format!("1 number, or {channels}, one per channel of {shape}"),
            };
            return Err(Error::config("mean", expected, self.mean.len()));
        }
        if self.std.len() != self.mean.len() {
            let expected = format!("{}, as many as there are means", self.mean.len());
            return Err(Error::config("std", expected, self.std.len()));
        }
        if let Some(x) = self.mean.iter().find(|x| !x.is_finite()) {
            return Err(Error::config("mean", "finite numbers", x));
        }
        if let Some(x) = self.std.iter().find(|x| !((**x as f32).is_normal() && **x > 0.0)) {
            return Err(Error::config("std", "positive numbers that f32 has", format!("{x:?}")));
        }
        Ok(())
    }

    /// Measures at most `samples` samples in `f32`, evenly spread over the set. A
    /// channel that never changes gets a deviation of 1.
    ///
    /// # Errors
    /// Where a sample cannot be read, or is not finite.
    pub fn measure(dataset: &dyn Dataset, samples: usize) -> Result<Self> {
        Self::measure_in(DType::F32, dataset, samples, &mut |_| ())
    }

    /// The same for a network of this element type; `progress` receives how many samples
    /// were read.
    ///
    /// # Errors
    /// As [`Normalise::measure`].
    pub fn measure_in(
        dtype: DType,
        dataset: &dyn Dataset,
        samples: usize,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Self> {
        match dtype {
            DType::F32 => Self::measured::<f32>(dataset, samples, progress),
            _ => Self::measured::<f64>(dataset, samples, progress),
        }
    }

    fn measured<T: Number>(
        dataset: &dyn Dataset,
        samples: usize,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Self> {
        let Moments { mean, std, wrong, .. } = Moments::measure::<T>(dataset, samples, progress)?;
        if let Some(error) = wrong {
            return Err(error);
        }
        let std = std.into_iter().map(|x| if T::from_f64(x) > T::ZERO { x } else { 1.0 });
        Ok(Self { mean, std: std.collect() })
    }

    /// Normalises a sample, in its own precision.
    pub fn apply<T: Float>(&self, sample: &mut [T]) {
        if sample.is_empty() || self.mean.is_empty() {
            return;
        }
        let planes = sample.chunks_exact_mut(sample.len() / self.mean.len());
        for ((plane, &mean), &std) in planes.zip(&self.mean).zip(&self.std) {
            let (mean, std) = (T::from_f64(mean), T::from_f64(std));
            plane.iter_mut().for_each(|x| *x = (*x - mean) / std);
        }
    }
}

/// Mean, deviation and range of some samples.
pub(super) struct Moments {
    pub(super) samples: usize,
    pub(super) mean: Vec<f64>,
    pub(super) std: Vec<f64>,
    pub(super) range: (f64, f64),
    /// The first sample that is not finite.
    pub(super) wrong: Option<Error>,
}

impl Moments {
    /// Samples are read on several threads and joined in order, so that no bit
    /// depends on how many there are.
    pub(super) fn measure<T: Number>(
        dataset: &dyn Dataset,
        samples: usize,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Self> {
        let samples = samples.min(dataset.len());
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let work = |range: Range<usize>| {
            let mut seen = Seen::nothing(dataset.shape());
            let mut sample = vec![T::ZERO; dataset.shape().elements()];
            for i in range {
                let index = spread(i, samples, dataset.len());
                T::read(dataset, index, &mut sample)?;
                seen.wrong = seen.wrong.or(check_finite(dataset, index, &sample).err());
                seen.add(&sample);
            }
            Ok(seen)
        };
        let mut all = Ok(Seen::nothing(dataset.shape()));
        in_order(samples, threads, work, &mut |part: Result<Seen>| {
            let Ok(seen) = &mut all else { return ControlFlow::Break(()) };
            match part {
                Ok(part) => {
                    seen.join(part);
                    progress(seen.samples);
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    all = Err(error);
                    ControlFlow::Break(())
                }
            }
        });
        let Seen { plane, mean, squares, range, wrong, .. } = all?;
        let count = (samples * plane).max(1) as f64;
        let std = squares.into_iter().map(|s| (s / count).sqrt()).collect();
        Ok(Self { samples, mean, std, range, wrong })
    }
}

/// What some samples tell: for each channel the mean and the sum of squared distances
/// from it.
struct Seen {
    samples: usize,
    /// Number of values per channel of a sample.
    plane: usize,
    mean: Vec<f64>,
    squares: Vec<f64>,
    range: (f64, f64),
    wrong: Option<Error>,
}

impl Seen {
    fn nothing(shape: Shape) -> Self {
        let channels = channels(shape);
        Self {
            samples: 0,
            plane: (shape.elements() / channels.max(1)).max(1),
            mean: vec![0.0; channels],
            squares: vec![0.0; channels],
            range: (f64::INFINITY, f64::NEG_INFINITY),
            wrong: None,
        }
    }

    fn add<T: Float>(&mut self, sample: &[T]) {
        let n = self.plane as f64;
        for (c, values) in sample.chunks_exact(self.plane).enumerate() {
            let mean = values.iter().map(|x| x.to_f64()).sum::<f64>() / n;
            let squares = values.iter().map(|x| (x.to_f64() - mean).powi(2)).sum::<f64>();
            self.merge(c, (mean, squares), 1);
        }
        let (least, largest) = &mut self.range;
        for x in sample.iter().map(|x| x.to_f64()) {
            *least = least.min(x);
            *largest = largest.max(x);
        }
        self.samples += 1;
    }

    /// Adds what later samples tell.
    fn join(&mut self, later: Seen) {
        for (c, moments) in later.mean.into_iter().zip(later.squares).enumerate() {
            self.merge(c, moments, later.samples);
        }
        self.range = (self.range.0.min(later.range.0), self.range.1.max(later.range.1));
        self.samples += later.samples;
        self.wrong = self.wrong.take().or(later.wrong);
    }

    /// Chan, Golub, LeVeque (1979): the moments of more samples join those of all
    /// before, so that no precision is lost in large sums.
    fn merge(&mut self, c: usize, (mean, squares): (f64, f64), samples: usize) {
        let before = (self.samples * self.plane) as f64;
        let n = (samples * self.plane) as f64;
        let delta = mean - self.mean[c];
        self.mean[c] += delta * n / (before + n);
        self.squares[c] += squares + delta * delta * before * n / (before + n);
    }
}

/// How many samples mean and deviation are measured on: of those that are files at most
/// 4,096, of those in memory as many as have a quarter of a thousand million numbers.
///
/// It depends on the set alone, so that numbers are the same every time. The mean of
/// 4,096 photographs is off by about a hundredth of a deviation.
pub fn measured(dataset: &dyn Dataset) -> usize {
    let most = match dataset.access() {
        Access::Memory => (MOST_NUMBERS / dataset.shape().elements().max(1)).max(16),
        Access::File => MOST_FILES,
    };
    most.min(dataset.len())
}

/// The `i`th of `samples` samples that are evenly spread over `of`.
pub(super) fn spread(i: usize, samples: usize, of: usize) -> usize {
    (i as u128 * of as u128 / samples as u128) as usize
}

/// The mean and the standard deviation that samples are normalised by.
#[derive(Clone, Debug, PartialEq)]
pub enum Normalization {
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
    /// Reads `none`, `dataset`, or a mean and a deviation: a number each, or a number
    /// per channel.
    pub fn parse(text: &str) -> Result<Self, Expected> {
        let wrong = || -> Expected {
            "none, dataset or MEAN,STD such as 0.5,0.25; one number per channel is written \
             0.5:0.4:0.4,0.2:0.2:0.3"
                .into()
        };
        let numbers = |text: &str| -> Result<Vec<f64>, Expected> {
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
                    return Err("standard deviations above 0".into());
                }
                Ok(Normalization::Given(Normalise { mean, std }))
            }
        }
    }

    /// Mean and deviation for the samples of a training set; `progress` gets the number of
    /// samples that were read.
    ///
    /// # Errors
    /// Where those that are given do not fit the samples, or a sample cannot be read.
    pub fn of(
        self,
        train: &dyn Dataset,
        dtype: DType,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Option<Normalise>> {
        match self {
            Normalization::None => Ok(None),
            Normalization::Dataset => {
                Normalise::measure_in(dtype, train, measured(train), progress).map(Some)
            }
            Normalization::Given(normalise) => {
                normalise.check(train.shape())?;
                Ok(Some(normalise))
            }
        }
    }
}

impl std::fmt::Display for Normalization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |numbers: &[f64]| {
            let texts: Vec<String> = numbers.iter().map(f64::to_string).collect();
            texts.join(":")
        };
        match self {
            Normalization::None => f.write_str("none"),
            Normalization::Dataset => f.write_str("dataset"),
            Normalization::Given(Normalise { mean, std }) => {
                write!(f, "{},{}", list(mean), list(std))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Synthetic;

    #[test]
    fn large_sets_are_measured_on_few_samples_of_all_parts() {
        let set = |shape: &[usize]| Synthetic::new(Shape::new(shape), 4, 20_000, 1).unwrap();
        assert_eq!(measured(&set(&[1, 28, 28])), 20_000);
        assert_eq!(measured(&set(&[3, 224, 224])), 1783);
        assert_eq!(measured(&set(&[3, 4096, 4096])), 16);
        struct Files(Synthetic);
        impl Dataset for Files {
            fn len(&self) -> usize {
                self.0.len()
            }
            fn shape(&self) -> Shape {
                self.0.shape()
            }
            fn classes(&self) -> &[String] {
                self.0.classes()
            }
            fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
                self.0.read(index, out)
            }
            fn access(&self) -> Access {
                Access::File
            }
        }
        assert_eq!(measured(&Files(set(&[3, 224, 224]))), 4096);
        let few = Synthetic::new(Shape::new(&[3, 224, 224]), 4, 480, 1).unwrap();
        assert_eq!(measured(&Files(few)), 480, "all of the training part");
        let indices: Vec<usize> = (0..5).map(|i| spread(i, 5, 1000)).collect();
        assert_eq!(indices, [0, 200, 400, 600, 800]);
    }

    #[test]
    fn normalised_samples_have_mean_0_and_deviation_1() {
        let set = Synthetic::new(Shape::new(&[3, 8, 8]), 4, 200, 1).unwrap();
        let normalise = Normalise::measure(&set, 200).unwrap();
        normalise.check(set.shape()).unwrap();
        let (mut sums, mut squares) = ([0.0f64; 3], [0.0f64; 3]);
        let mut out = vec![0.0f32; 192];
        for i in 0..200 {
            set.read(i, &mut out).unwrap();
            normalise.apply(&mut out);
            for (c, plane) in out.chunks_exact(64).enumerate() {
                sums[c] += plane.iter().map(|&x| f64::from(x)).sum::<f64>() / 12800.0;
                squares[c] += plane.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 12800.0;
            }
        }
        // The error of means and deviations that were rounded to f32.
        assert!(sums.iter().all(|m| m.abs() < 1e-6), "{sums:?}");
        assert!(squares.iter().all(|s| (s - 1.0).abs() < 1e-6), "{squares:?}");
    }

    /// Two features whose scales are a million apart, and one that never changes.
    struct Rows;

    impl Dataset for Rows {
        fn len(&self) -> usize {
            100
        }
        fn shape(&self) -> Shape {
            Shape::new(&[3])
        }
        fn classes(&self) -> &[String] {
            &[]
        }
        fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
            let mut sample = [0.0; 3];
            self.read_f64(index, &mut sample)?;
            out.iter_mut().zip(sample).for_each(|(to, from)| *to = from as f32);
            Ok(0)
        }
        fn read_f64(&self, index: usize, out: &mut [f64]) -> Result<usize> {
            let x = index as f64 - 49.5;
            out.copy_from_slice(&[1e8 + 1e-3 * x, 1e3 * x, 7.0]);
            Ok(0)
        }
    }

    #[test]
    fn every_feature_of_a_row_has_its_own_mean_and_deviation() {
        let found = Normalise::measure_in(DType::F64, &Rows, 100, &mut |_| ()).unwrap();
        found.check(Rows.shape()).unwrap();
        // Of 0 to 99: (n² - 1) / 12.
        let deviation = (9999.0f64 / 12.0).sqrt();
        for (found, expected) in found.mean.iter().zip([1e8, 0.0, 7.0]) {
            assert!((found - expected).abs() <= 1e-7, "{found} {expected}");
        }
        for (found, expected) in found.std.iter().zip([1e-3 * deviation, 1e3 * deviation, 1.0]) {
            // The digits that 1e8 leaves to thousandths: 53 bits less 27 and 10.
            assert!((found / expected - 1.0).abs() < 1e-5, "{found} {expected}");
        }
    }

    /// `f32` holds no thousandths beside 1e8: all samples would be the same.
    #[test]
    fn samples_keep_the_digits_that_the_network_has() {
        let normalise = Normalise::measure_in(DType::F64, &Rows, 100, &mut |_| ()).unwrap();
        let mut wide = [0.0f64; 3];
        Rows.read_f64(0, &mut wide).unwrap();
        normalise.apply(&mut wide);
        // 49.5 over the deviation of 0 to 99.
        assert!((wide[0] + 1.7148).abs() < 1e-3, "{wide:?}");
        let narrow = Normalise::measure(&Rows, 100).unwrap();
        assert_eq!((narrow.mean[0], narrow.std[0]), (1e8, 1.0));
    }

    #[test]
    fn one_mean_may_do_for_all_channels() {
        let normalise = Normalise { mean: vec![0.5], std: vec![0.25] };
        normalise.check(Shape::new(&[3, 1, 2])).unwrap();
        let mut sample = [0.5f32, 0.75, 0.0, 1.0, 0.25, 0.5];
        normalise.apply(&mut sample);
        assert_eq!(sample, [0.0, 1.0, -2.0, 2.0, -1.0, 0.0]);
    }

    #[test]
    fn a_normalisation_that_does_not_fit_is_refused() {
        let check = |mean: &[f64], std: &[f64], expected: &str| {
            let normalise = Normalise { mean: mean.to_vec(), std: std.to_vec() };
            let error = normalise.check(Shape::new(&[3, 8, 8])).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        let channels = "mean: expected 1 number, or 3, one per channel of [3, 8, 8], found 2";
        check(&[0.0; 2], &[1.0; 2], channels);
        check(&[0.0; 3], &[1.0], "std: expected 3, as many as there are means, found 1");
        check(&[0.0], &[0.0], "std: expected positive numbers that f32 has, found 0.0");
        // It would be 0 in a network of f32, and a sample not a number.
        let tiny = "std: expected positive numbers that f32 has, found 1e-300";
        check(&[0.5], &[1e-300], tiny);
        check(&[f64::NAN], &[1.0], "mean: expected finite numbers, found NaN");
    }

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
            assert!(parse(text).is_err_and(|e| e.0.contains("none, dataset")), "{text}");
        }
        for text in ["1,0", "1,-1", "1,inf"] {
            assert!(parse(text).is_err_and(|e| e.0.contains("deviations above 0")), "{text}");
        }
    }
}
