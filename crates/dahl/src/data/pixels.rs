//! Images of bytes in memory, converted when they are read.

use super::{Dataset, check_read};
use crate::error::{Error, Result};
use dahl_kernels::Shape;

/// Images of bytes with a label of a byte each, all in memory: a quarter of the
/// size that they have as floats.
#[derive(Clone, Debug)]
pub struct Pixels {
    name: String,
    shape: Shape,
    classes: Vec<String>,
    pixels: Vec<u8>,
    labels: Vec<u8>,
    /// The byte that becomes 1.
    white: u8,
    notes: Vec<String>,
}

/// The parts of [`Pixels`].
#[derive(Clone, Debug)]
pub struct PixelParts {
    /// The name of the set, for people.
    pub name: String,
    /// The shape of a sample.
    pub shape: Shape,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// The samples, one after the other.
    pub pixels: Vec<u8>,
    /// A label a sample.
    pub labels: Vec<u8>,
    /// The byte that becomes 1.
    pub white: u8,
}

impl Pixels {
    /// A dataset of these images.
    ///
    /// # Errors
    /// [`Error::Shape`] where pixels, labels, shape and classes do not fit
    /// together.
    pub fn new(parts: PixelParts) -> Result<Self> {
        let PixelParts { name, shape, classes, pixels, labels, white } = parts;
        let expected = shape.checked_elements().and_then(|n| n.checked_mul(labels.len()));
        if expected != Some(pixels.len()) {
            let expected = format!("{} samples of {shape}", labels.len());
            return Err(Error::shape("pixels", expected, format!("{} bytes", pixels.len())));
        }
        if let Some(i) = labels.iter().position(|&label| usize::from(label) >= classes.len()) {
            let expected = format!("classes below {}", classes.len());
            let found = format!("{} for sample {i}", labels[i]);
            return Err(Error::shape("labels", expected, found));
        }
        Ok(Self { name, shape, classes, pixels, labels, white: white.max(1), notes: Vec::new() })
    }

    /// Adds what a person should know.
    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }
}

impl Dataset for Pixels {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
        check_read(self, index, out);
        let start = index * out.len();
        let white = f32::from(self.white);
        for (x, &byte) in out.iter_mut().zip(&self.pixels[start..]) {
            *x = f32::from(byte) / white;
        }
        Ok(usize::from(self.labels[index]))
    }

    fn label(&self, index: usize) -> Result<usize> {
        Ok(usize::from(self.labels[index]))
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// The names of classes that are known by their numbers.
pub(super) fn numbered(classes: usize) -> Vec<String> {
    (0..classes).map(|class| class.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> PixelParts {
        PixelParts {
            name: "two".to_owned(),
            shape: Shape::new(&[1, 1, 2]),
            classes: numbered(2),
            pixels: vec![0, 255, 51, 102],
            labels: vec![1, 0],
            white: 255,
        }
    }

    #[test]
    fn bytes_become_floats_up_to_one() {
        let set = Pixels::new(parts()).unwrap();
        let mut out = [0.0; 2];
        assert_eq!(set.read(0, &mut out).unwrap(), 1);
        assert_eq!(out, [0.0, 1.0]);
        assert_eq!(set.read(1, &mut out).unwrap(), 0);
        assert_eq!(out, [0.2, 0.4]);
        assert_eq!(set.place(1), "two, sample 1");
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let check = |change: fn(&mut PixelParts), expected: &str| {
            let mut parts = parts();
            change(&mut parts);
            assert_eq!(Pixels::new(parts).unwrap_err().to_string(), expected);
        };
        check(|p| p.pixels.truncate(3), "pixels: expected 2 samples of [1, 1, 2], found 3 bytes");
        check(|p| p.labels[1] = 2, "labels: expected classes below 2, found 2 for sample 1");
        check(
            |p| p.shape = Shape::new(&[usize::MAX, 2]),
            "pixels: expected 2 samples of [18446744073709551615, 2], found 4 bytes",
        );
    }

    #[test]
    #[should_panic(expected = "expected a sample below 2, found 2")]
    fn a_sample_that_is_not_there_is_a_mistake_of_the_caller() {
        let _ = Pixels::new(parts()).unwrap().read(2, &mut [0.0; 2]);
    }
}
