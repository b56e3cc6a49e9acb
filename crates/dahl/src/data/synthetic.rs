//! Samples that are computed, of any shape.

use super::pixels::numbered;
use super::{Dataset, MAX_CLASSES, check_read, stream};
use crate::error::{Error, Result};
use dahl_kernels::Shape;
use dahl_kernels::math::{cos, philox, uniform};
use std::f64::consts::TAU;

/// Maximum noise on a value between 0.25 and 0.75.
const NOISE: f64 = 0.25;

/// Up to so many waves fit into an image.
const MAX_WAVES: f64 = 4.0;

/// A wave of a class's own direction, length and phase under noise.
///
/// Every value is a function of seed, sample and place, so that any number of
/// samples takes no memory. The rule can be learnt where a sample has at least
/// a few elements a class; the label of a sample is random.
#[derive(Clone, Debug)]
pub struct Synthetic {
    shape: Shape,
    classes: Vec<String>,
    samples: usize,
    seed: u64,
}

impl Synthetic {
    /// So many samples of a shape.
    ///
    /// # Errors
    /// [`Error::Config`] where there are no elements or classes, or too many.
    pub fn new(shape: Shape, classes: usize, samples: usize, seed: u64) -> Result<Self> {
        if shape.rank() == 0 || !shape.checked_elements().is_some_and(|n| n > 0 && n < 1 << 31) {
            return Err(Error::config("shape", "an axis and from 1 to 2³¹ elements", shape));
        }
        if classes == 0 || classes > MAX_CLASSES {
            return Err(Error::config("classes", format_args!("1 to {MAX_CLASSES}"), classes));
        }
        Ok(Self { shape, classes: numbered(classes), samples, seed })
    }

    /// From a text such as `1x28x28:10`: shape and number of classes.
    ///
    /// # Errors
    /// [`Error::Config`] where it is not such a text.
    pub fn parse(text: &str, samples: usize, seed: u64) -> Result<Self> {
        let wrong =
            || Error::config("synthetic", "a shape and a number of classes, as 1x28x28:10", text);
        let (shape, classes) = text.split_once(':').ok_or_else(wrong)?;
        let axes: Option<Vec<usize>> = shape.split('x').map(|axis| axis.parse().ok()).collect();
        let axes = axes.filter(|axes| axes.len() <= 4).ok_or_else(wrong)?;
        let classes = classes.parse().map_err(|_| wrong())?;
        Self::new(Shape::new(&axes), classes, samples, seed)
    }

    /// A number of class `class`.
    fn of_class(&self, class: usize, which: u64) -> f64 {
        uniform(self.seed, stream::PATTERN, class as u64, which)
    }
}

impl Dataset for Synthetic {
    fn len(&self) -> usize {
        self.samples
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
        check_read(self, index, out);
        let label = self.label(index)?;
        let columns = self.shape[self.shape.rank() - 1];
        let rows = if self.shape.rank() > 1 { self.shape[self.shape.rank() - 2] } else { 1 };
        // The wave turns by a fixed angle from column to column.
        let along = TAU * MAX_WAVES * self.of_class(label, 0) / columns as f64;
        let down = TAU * MAX_WAVES * (2.0 * self.of_class(label, 1) - 1.0) / rows as f64;
        let (turn_re, turn_im) = (cos(along), cos(along - TAU / 4.0));
        for (plane, values) in out.chunks_exact_mut(rows * columns).enumerate() {
            let phase = TAU * self.of_class(label, 2 + plane as u64);
            for (row, values) in values.chunks_exact_mut(columns).enumerate() {
                let angle = phase + down * row as f64;
                let (mut re, mut im) = (cos(angle), cos(angle - TAU / 4.0));
                for x in values {
                    *x = (0.5 + 0.25 * re) as f32;
                    (re, im) = (re * turn_re - im * turn_im, re * turn_im + im * turn_re);
                }
            }
        }
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        for (block, values) in out.chunks_mut(4).enumerate() {
            let counter = [block as u32, stream::NOISE, index as u32, (index as u64 >> 32) as u32];
            for (x, random) in values.iter_mut().zip(philox(counter, key)) {
                let noise = f64::from(random) / f64::from(u32::MAX) * 2.0 - 1.0;
                *x = (*x + (NOISE * noise) as f32).clamp(0.0, 1.0);
            }
        }
        Ok(label)
    }

    fn label(&self, index: usize) -> Result<usize> {
        let random = uniform(self.seed, stream::LABEL, 0, index as u64);
        Ok(((random * self.classes.len() as f64) as usize).min(self.classes.len() - 1))
    }

    fn name(&self) -> String {
        let axes: Vec<String> = self.shape.axes().iter().map(usize::to_string).collect();
        format!("synthetic:{}:{}", axes.join("x"), self.classes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(set: &Synthetic, index: usize) -> (Vec<f32>, usize) {
        let mut out = vec![f32::NAN; set.shape().elements()];
        let label = set.read(index, &mut out).unwrap();
        (out, label)
    }

    #[test]
    fn samples_are_a_function_of_seed_and_index() {
        let set = |seed| Synthetic::parse("3x5x7:4", 1 << 40, seed).unwrap();
        let (image, label) = sample(&set(1), 1 << 39);
        assert_eq!((image.clone(), label), sample(&set(1), 1 << 39));
        assert_ne!(image, sample(&set(1), 0).0);
        assert_ne!(image, sample(&set(2), 1 << 39).0);
        assert!(image.iter().all(|x| (0.0..=1.0).contains(x)));
    }

    /// The nearest of the classes' means, of half of the samples, finds the
    /// class of the other half.
    #[test]
    fn the_rule_can_be_learnt() {
        for text in ["1x28x28:10", "3x8x8:4", "64:5"] {
            let set = Synthetic::parse(text, 400, 3).unwrap();
            let classes = set.classes().len();
            let mut means = vec![vec![0.0f32; set.shape().elements()]; classes];
            let mut counts = vec![0.0f32; classes];
            for i in 0..200 {
                let (image, label) = sample(&set, i);
                counts[label] += 1.0;
                means[label].iter_mut().zip(&image).for_each(|(m, x)| *m += x);
            }
            for (mean, &count) in means.iter_mut().zip(&counts) {
                mean.iter_mut().for_each(|m| *m /= count);
            }
            let distance = |a: &[f32], b: &[f32]| -> f32 {
                a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum()
            };
            let right = (200..400).filter(|&i| {
                let (image, label) = sample(&set, i);
                (0..classes).all(|c| distance(&image, &means[label]) <= distance(&image, &means[c]))
            });
            let right = right.count();
            assert!(right > 190, "{text}: {right} of 200");
        }
    }

    #[test]
    fn shapes_and_classes_are_checked() {
        let check = |text: &str, expected: &str| {
            assert_eq!(Synthetic::parse(text, 1, 0).unwrap_err().to_string(), expected);
        };
        let form = "synthetic: expected a shape and a number of classes, as 1x28x28:10, found";
        check("1x28x28", &format!("{form} 1x28x28"));
        check("1xa:10", &format!("{form} 1xa:10"));
        check("1x2x3x4x5:10", &format!("{form} 1x2x3x4x5:10"));
        check("1x0:10", "shape: expected an axis and from 1 to 2³¹ elements, found [1, 0]");
        check("8:0", "classes: expected 1 to 65536, found 0");
    }
}
