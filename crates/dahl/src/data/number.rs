//! The numbers of a sample, in the precision that a network computes in.

use super::Dataset;
use crate::error::Result;
use dahl_kernels::Float;

/// An element type that samples are read in.
pub trait Number: Float {
    /// Reads sample `index` of a dataset; its label.
    ///
    /// # Errors
    /// As [`Dataset::read`].
    fn read(dataset: &dyn Dataset, index: usize, out: &mut [Self]) -> Result<usize>;

    /// The number as this type, exactly.
    fn from_f32(x: f32) -> Self;

    /// The nearest number of this type.
    fn from_i64(x: i64) -> Self;
}

impl Number for f32 {
    fn read(dataset: &dyn Dataset, index: usize, out: &mut [Self]) -> Result<usize> {
        dataset.read(index, out)
    }

    #[inline]
    fn from_f32(x: f32) -> Self {
        x
    }

    #[inline]
    fn from_i64(x: i64) -> Self {
        x as f32
    }
}

impl Number for f64 {
    fn read(dataset: &dyn Dataset, index: usize, out: &mut [Self]) -> Result<usize> {
        dataset.read_f64(index, out)
    }

    #[inline]
    fn from_f32(x: f32) -> Self {
        f64::from(x)
    }

    #[inline]
    fn from_i64(x: i64) -> Self {
        x as f64
    }
}
