//! How many units of each type are in use, as one number.

/// Combinations of units in use, each as one number: Σ used · Π (available of earlier types + 1).
#[derive(Clone, Debug)]
pub(super) struct UnitCounts {
    pub(super) available: Vec<usize>,
    pub(super) strides: Vec<usize>,
    /// How many combinations there are; more than a machine word where it is `usize::MAX`.
    pub(super) size: usize,
}

impl UnitCounts {
    pub(super) fn new(available: Vec<usize>) -> Self {
        let mut strides = Vec::new();
        let mut size = 1usize;
        for &count in &available {
            strides.push(size);
            size = size.saturating_mul(count + 1);
        }
        Self { available, strides, size }
    }

    /// How many of a type are in use.
    pub(super) fn used(&self, index: usize, unit: usize) -> usize {
        if index == 0 {
            return 0;
        }
        index / self.strides[unit] % (self.available[unit] + 1)
    }

    /// The same for all types.
    pub(super) fn all_used(&self, index: usize) -> Vec<usize> {
        (0..self.available.len()).map(|unit| self.used(index, unit)).collect()
    }

    /// How many units each combination has.
    pub(super) fn totals(&self) -> Vec<u32> {
        (0..self.size).map(|n| self.all_used(n).iter().sum::<usize>() as u32).collect()
    }

    /// Calls with the ranges of combinations from which so many more of a type can be
    /// used, each with what that adds to them.
    pub(super) fn ranges(&self, unit: usize, more: usize, mut call: impl FnMut(usize, usize)) {
        let stride = self.strides[unit];
        let block = stride * (self.available[unit] + 1);
        let length = (self.available[unit] + 1 - more) * stride;
        let mut first = 0;
        while first < self.size {
            call(first, length);
            first += block;
        }
    }
}
