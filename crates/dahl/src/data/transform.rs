//! What happens to a sample between dataset and network.

use super::check::check_finite;
use super::{Dataset, Normalise, Number, stream};
use crate::error::Result;
use dahl_kernels::math::uniform;
use dahl_kernels::{Float, Shape};

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
    pub fn apply<T: Float>(&self, visit: Visit, shape: Shape, sample: &mut [T]) {
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
            sample.chunks_exact_mut(columns).for_each(<[T]>::reverse);
        }
    }
}

/// Moves an image within its frame.
fn shift<T: Float>(plane: &mut [T], columns: usize, down: isize, right: isize) {
    let rows = plane.len() / columns;
    let (dy, dx) = (down.unsigned_abs().min(rows), right.unsigned_abs().min(columns));
    let kept = (rows - dy) * columns;
    if down >= 0 {
        plane.copy_within(..kept, dy * columns);
        plane[..dy * columns].fill(T::ZERO);
    } else {
        plane.copy_within(dy * columns.., 0);
        plane[kept..].fill(T::ZERO);
    }
    for row in plane.chunks_exact_mut(columns) {
        if right >= 0 {
            row.copy_within(..columns - dx, dx);
            row[..dx].fill(T::ZERO);
        } else {
            row.copy_within(dx.., 0);
            row[columns - dx..].fill(T::ZERO);
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
    /// Reads a sample into `out` as the network gets it, in its precision; returns its
    /// label.
    ///
    /// # Errors
    /// Where the sample cannot be read. [`Error::Data`](crate::Error::Data) where it is not finite: no
    /// loss would be, and the learning rate would be blamed.
    ///
    /// # Panics
    /// As [`Dataset::read`] does.
    pub fn read<T: Number>(
        &self,
        dataset: &dyn Dataset,
        visit: Visit,
        out: &mut [T],
    ) -> Result<usize> {
        let label = T::read(dataset, visit.index, out)?;
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
    use crate::data::{Part, digits};

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
            let mut out = vec![0.0f32; 64];
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
}
