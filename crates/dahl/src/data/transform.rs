//! What happens to a sample between dataset and network.

use super::check::check_finite;
use super::{Access, Dataset, stream};
use crate::error::{Error, Result};
use dahl_kernels::Shape;
use dahl_kernels::math::uniform;

/// How many channels a sample has: the first axis of an image, 1 for others.
pub fn channels(shape: Shape) -> usize {
    if shape.rank() >= 3 { shape[0] } else { 1 }
}

/// Subtracts a mean and divides by a standard deviation, channel by channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalise {
    /// A mean a channel.
    pub mean: Vec<f32>,
    /// A standard deviation a channel.
    pub std: Vec<f32>,
}

impl Normalise {
    /// Checks that there is a positive deviation for every channel.
    ///
    /// # Errors
    /// [`Error::Config`] naming the list that does not fit.
    pub fn check(&self, shape: Shape) -> Result<()> {
        let channels = channels(shape);
        for (key, values) in [("mean", &self.mean), ("std", &self.std)] {
            if values.len() != channels {
                let expected = format!("{channels} numbers, one a channel");
                return Err(Error::config(key, expected, values.len()));
            }
        }
        if let Some(x) = self.mean.iter().find(|x| !x.is_finite()) {
            return Err(Error::config("mean", "finite numbers", x));
        }
        if let Some(x) = self.std.iter().find(|x| !(x.is_finite() && **x > 0.0)) {
            return Err(Error::config("std", "positive numbers", x));
        }
        Ok(())
    }

    /// Measures at most `samples` samples, evenly spread over the set. A
    /// channel that never changes gets a deviation of 1.
    ///
    /// # Errors
    /// Where a sample cannot be read, or is not finite.
    pub fn measure(dataset: &dyn Dataset, samples: usize) -> Result<Self> {
        let moments = Moments::measure(dataset, samples)?;
        if let Some(error) = moments.wrong {
            return Err(error);
        }
        let std = |x: f64| if x > 0.0 { x as f32 } else { 1.0 };
        Ok(Self {
            mean: moments.mean.iter().map(|&x| x as f32).collect(),
            std: moments.std.into_iter().map(std).collect(),
        })
    }

    /// Normalises a sample of so many channels as there are means.
    pub fn apply(&self, sample: &mut [f32]) {
        if sample.is_empty() || self.mean.is_empty() {
            return;
        }
        let planes = sample.chunks_exact_mut(sample.len() / self.mean.len());
        for ((plane, mean), std) in planes.zip(&self.mean).zip(&self.std) {
            plane.iter_mut().for_each(|x| *x = (*x - mean) / std);
        }
    }
}

/// Mean, deviation and range of some samples.
pub(super) struct Moments {
    pub(super) samples: usize,
    pub(super) mean: Vec<f64>,
    pub(super) std: Vec<f64>,
    pub(super) range: (f32, f32),
    /// The first sample that is not finite.
    pub(super) wrong: Option<Error>,
}

impl Moments {
    /// Samples are read on several threads and joined in order, so that no bit
    /// depends on how many there are.
    pub(super) fn measure(dataset: &dyn Dataset, samples: usize) -> Result<Self> {
        let samples = samples.min(dataset.len());
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let share = samples.div_ceil(processors).max(1);
        let mut seen: Vec<Option<Result<Seen>>> = Vec::new();
        seen.resize_with(samples, || None);
        std::thread::scope(|scope| {
            for (thread, places) in seen.chunks_mut(share).enumerate() {
                scope.spawn(move || {
                    let mut sample = vec![0.0f32; dataset.shape().elements()];
                    for (i, place) in places.iter_mut().enumerate() {
                        let index = spread(thread * share + i, samples, dataset.len());
                        let read = dataset.read(index, &mut sample);
                        *place = Some(read.map(|_| Seen {
                            wrong: check_finite(dataset, index, &sample).err(),
                            ..Seen::new(&sample, dataset.shape())
                        }));
                    }
                });
            }
        });
        let channels = channels(dataset.shape());
        let plane = plane(dataset.shape());
        let n = plane as f64;
        let mut mean = vec![0.0f64; channels];
        let mut squares = vec![0.0f64; channels];
        let mut range = (f32::INFINITY, f32::NEG_INFINITY);
        let mut wrong = None;
        for (i, seen) in seen.into_iter().flatten().enumerate() {
            let seen = seen?;
            wrong = wrong.or(seen.wrong);
            // Chan, Golub, LeVeque (1979): moments of an image join those of
            // all before, so that no precision is lost in large sums.
            for (c, (m, s)) in seen.moments.into_iter().enumerate() {
                let before = i as f64 * n;
                let delta = m - mean[c];
                mean[c] += delta * n / (before + n);
                squares[c] += s + delta * delta * before * n / (before + n);
            }
            range = (range.0.min(seen.range.0), range.1.max(seen.range.1));
        }
        let count = (samples * plane).max(1) as f64;
        let std = squares.into_iter().map(|s| (s / count).sqrt()).collect();
        Ok(Self { samples, mean, std, range, wrong })
    }
}

/// How many values a channel of a sample has.
fn plane(shape: Shape) -> usize {
    (shape.elements() / channels(shape).max(1)).max(1)
}

/// What one sample tells: for each channel the mean and the sum of squared
/// distances from it.
struct Seen {
    moments: Vec<(f64, f64)>,
    range: (f32, f32),
    wrong: Option<Error>,
}

impl Seen {
    fn new(sample: &[f32], shape: Shape) -> Self {
        let planes = sample.chunks_exact(plane(shape));
        let moments = planes.map(|values| {
            let m = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
            (m, values.iter().map(|&x| (f64::from(x) - m).powi(2)).sum::<f64>())
        });
        let least = sample.iter().copied().fold(f32::INFINITY, f32::min);
        let largest = sample.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        Self { moments: moments.collect(), range: (least, largest), wrong: None }
    }
}

/// How many samples mean and deviation are measured on: all where they are in
/// memory, up to a quarter of a thousand million numbers, which takes half a second;
/// 64 where each is a file, since decoding thousands of photographs takes minutes
/// before training starts.
///
/// It depends on the set alone, so that numbers are the same every time. The
/// mean of 64 photographs is off by a few hundredths, a tenth of a deviation.
pub fn measured(dataset: &dyn Dataset) -> usize {
    let most = match dataset.access() {
        Access::Memory => dataset.len(),
        Access::File => 64,
    };
    let fitting = (1 << 28) / dataset.shape().elements().max(1);
    most.min(fitting.max(16))
}

/// The `i`th of `samples` samples that are evenly spread over `of`.
pub(super) fn spread(i: usize, samples: usize, of: usize) -> usize {
    (i as u128 * of as u128 / samples as u128) as usize
}

/// Random changes of images that leave their class alone.
///
/// They depend on seed, epoch and sample: not on the thread that decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Augment {
    /// Of all the random choices.
    pub seed: u64,
    /// Images are moved by up to so many pixels in each direction, with black
    /// where nothing is: a random crop of the padded image.
    pub padding: usize,
    /// Whether half of the images are mirrored left to right.
    pub flip: bool,
}

/// A sample at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// How often all samples were seen before.
    pub epoch: u64,
    /// The sample.
    pub index: usize,
}

impl Augment {
    /// Changes an image in place. A sample that is no image stays as it is.
    pub fn apply(&self, visit: Visit, shape: Shape, sample: &mut [f32]) {
        if shape.rank() < 2 || sample.is_empty() {
            return;
        }
        let (rows, columns) = (shape[shape.rank() - 2], shape[shape.rank() - 1]);
        let random = |purpose: u64| {
            let index = (visit.index as u64) << 2 | purpose;
            uniform(self.seed, stream::AUGMENT, visit.epoch, index)
        };
        // Nothing is left of an image that moves further than its size.
        let padding = self.padding.min(rows.max(columns));
        let step = |purpose| {
            let choices = 2 * padding + 1;
            (random(purpose) * choices as f64) as isize - padding as isize
        };
        if padding > 0 {
            let (down, right) = (step(0), step(1));
            for plane in sample.chunks_exact_mut(rows * columns) {
                shift(plane, columns, down, right);
            }
        }
        if self.flip && random(2) < 0.5 {
            sample.chunks_exact_mut(columns).for_each(<[f32]>::reverse);
        }
    }
}

/// Moves an image within its frame.
fn shift(plane: &mut [f32], columns: usize, down: isize, right: isize) {
    let rows = plane.len() / columns;
    let (dy, dx) = (down.unsigned_abs().min(rows), right.unsigned_abs().min(columns));
    let kept = (rows - dy) * columns;
    if down >= 0 {
        plane.copy_within(..kept, dy * columns);
        plane[..dy * columns].fill(0.0);
    } else {
        plane.copy_within(dy * columns.., 0);
        plane[kept..].fill(0.0);
    }
    for row in plane.chunks_exact_mut(columns) {
        if right >= 0 {
            row.copy_within(..columns - dx, dx);
            row[..dx].fill(0.0);
        } else {
            row.copy_within(dx.., 0);
            row[columns - dx..].fill(0.0);
        }
    }
}

/// Augmentation, then normalisation; either may be absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transform {
    /// Random changes, for training.
    pub augment: Option<Augment>,
    /// Mean and deviation.
    pub normalise: Option<Normalise>,
}

impl Transform {
    /// Reads a sample into `out` as the network gets it; returns its label.
    ///
    /// # Errors
    /// Where the sample cannot be read. [`Error::Data`] where it is not finite: no
    /// loss would be, and the learning rate would be blamed.
    ///
    /// # Panics
    /// As [`Dataset::read`] does.
    pub fn read(&self, dataset: &dyn Dataset, visit: Visit, out: &mut [f32]) -> Result<usize> {
        let label = dataset.read(visit.index, out)?;
        check_finite(dataset, visit.index, out)?;
        if let Some(augment) = &self.augment {
            augment.apply(visit, dataset.shape(), out);
        }
        if let Some(normalise) = &self.normalise {
            normalise.apply(out);
        }
        Ok(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Part, Synthetic, digits};

    #[test]
    fn an_image_moves_within_its_frame() {
        let check = |down, right, expected: [f32; 6]| {
            let mut plane = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
            shift(&mut plane, 3, down, right);
            assert_eq!(plane, expected, "{down} down, {right} right");
        };
        check(0, 0, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        check(1, 0, [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]);
        check(-1, 1, [0.0, 4.0, 5.0, 0.0, 0.0, 0.0]);
        check(0, -2, [3.0, 0.0, 0.0, 6.0, 0.0, 0.0]);
        check(5, -9, [0.0; 6]);
    }

    #[test]
    fn augmentation_depends_on_seed_epoch_and_sample() {
        let augment = Augment { seed: 1, padding: 2, flip: true };
        let set = digits(Part::Train).unwrap();
        let seen = |augment: Augment, epoch, index| {
            let transform = Transform { augment: Some(augment), normalise: None };
            let mut out = vec![0.0; 64];
            transform.read(&set, Visit { epoch, index }, &mut out).unwrap();
            out
        };
        assert_eq!(seen(augment, 3, 5), seen(augment, 3, 5));
        let differ = |f: &dyn Fn(usize) -> bool| (0..100).filter(|&i| f(i)).count();
        let epochs = differ(&|i| seen(augment, 0, i) != seen(augment, 1, i));
        let seeds = differ(&|i| seen(augment, 0, i) != seen(Augment { seed: 2, ..augment }, 0, i));
        assert!(epochs > 80 && seeds > 80, "{epochs} {seeds}");
        let flip = Augment { padding: 0, ..augment };
        let plain = Augment { flip: false, ..flip };
        let flipped = differ(&|i| seen(flip, 0, i) != seen(plain, 0, i));
        assert!((35..=65).contains(&flipped), "{flipped} of 100");
    }

    #[test]
    fn large_sets_are_measured_on_few_samples_of_all_parts() {
        let set = |shape: &[usize]| Synthetic::new(Shape::new(shape), 4, 20_000, 1).unwrap();
        assert_eq!(measured(&set(&[1, 28, 28])), 20_000);
        assert_eq!(measured(&set(&[3, 224, 224])), 1783);
        assert_eq!(measured(&set(&[3, 4096, 4096])), 16);
        let indices: Vec<usize> = (0..5).map(|i| spread(i, 5, 1000)).collect();
        assert_eq!(indices, [0, 200, 400, 600, 800]);
    }

    #[test]
    fn normalised_samples_have_mean_0_and_deviation_1() {
        let set = Synthetic::new(Shape::new(&[3, 8, 8]), 4, 200, 1).unwrap();
        let normalise = Normalise::measure(&set, 200).unwrap();
        normalise.check(set.shape()).unwrap();
        let (mut sums, mut squares) = ([0.0f64; 3], [0.0f64; 3]);
        let mut out = vec![0.0; 192];
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

    #[test]
    fn a_normalisation_that_does_not_fit_is_refused() {
        let check = |mean: &[f32], std: &[f32], expected: &str| {
            let normalise = Normalise { mean: mean.to_vec(), std: std.to_vec() };
            let error = normalise.check(Shape::new(&[1, 8, 8])).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check(&[0.0; 3], &[1.0], "mean: expected 1 numbers, one a channel, found 3");
        check(&[0.0], &[0.0], "std: expected positive numbers, found 0");
        check(&[f32::NAN], &[1.0], "mean: expected finite numbers, found NaN");
    }
}
