//! In which order an epoch visits the samples.

use super::stream;
use dahl_kernels::math::uniform;

/// The samples of one epoch in the order in which they are visited.
///
/// It is a function of seed and epoch, so a run that was stopped goes on in the
/// middle of an epoch by making the order again and skipping batches.
///
/// ```
/// use dahl::data::Order;
/// let order = Order::shuffled(10, 7, 3);
/// let sizes: Vec<usize> = order.batches(4).map(<[usize]>::len).collect();
/// assert_eq!(sizes, [4, 4, 2]);
/// assert_eq!(order.batches(4).from_batch(2).next(), order.batches(4).last());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order(Vec<usize>);

impl Order {
    /// A random order of `samples` samples (Fisher and Yates 1938), another
    /// one for every epoch.
    pub fn shuffled(samples: usize, seed: u64, epoch: u64) -> Self {
        Self(permutation(samples, |i| uniform(seed, stream::SHUFFLE, epoch, i)))
    }

    /// The samples as they come.
    pub fn sequential(samples: usize) -> Self {
        Self((0..samples).collect())
    }

    /// The samples, first visited first.
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }

    /// The samples in batches of `size`; the last may be shorter.
    ///
    /// # Panics
    /// Where `size` is 0.
    #[track_caller]
    pub fn batches(&self, size: usize) -> Batches<'_> {
        assert!(size > 0, "expected a batch of at least 1 sample, found 0");
        Batches { rest: &self.0, size }
    }
}

/// The batches of an [`Order`].
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [usize],
    size: usize,
}

impl<'a> Batches<'a> {
    /// Those from batch `batch` on, at no cost.
    pub fn from_batch(self, batch: usize) -> Self {
        let skipped = batch.saturating_mul(self.size).min(self.rest.len());
        Self { rest: &self.rest[skipped..], size: self.size }
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = &'a [usize];

    fn next(&mut self) -> Option<&'a [usize]> {
        if self.rest.is_empty() {
            return None;
        }
        let (batch, rest) = self.rest.split_at(self.size.min(self.rest.len()));
        self.rest = rest;
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let batches = self.rest.len().div_ceil(self.size);
        (batches, Some(batches))
    }
}

impl ExactSizeIterator for Batches<'_> {}

/// A permutation of `0..n` by numbers in [0, 1).
pub(super) fn permutation(n: usize, random: impl Fn(u64) -> f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        // Rounding may give i + 1 for the largest number below 1.
        let j = (random(i as u64) * (i + 1) as f64) as usize;
        order.swap(i, j.min(i));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_visited_once() {
        for n in [0, 1, 2, 3, 100, 1001] {
            let mut seen = Order::shuffled(n, 1, 2).0;
            seen.sort_unstable();
            assert_eq!(seen, Order::sequential(n).0, "{n} samples");
        }
    }

    #[test]
    fn the_order_depends_on_seed_and_epoch_alone() {
        let order = Order::shuffled(100, 1, 0);
        assert_eq!(order, Order::shuffled(100, 1, 0));
        assert_ne!(order, Order::shuffled(100, 1, 1));
        assert_ne!(order, Order::shuffled(100, 2, 0));
    }

    #[test]
    fn all_orders_are_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for epoch in 0..6000 {
            *counts.entry(Order::shuffled(3, 5, epoch).0).or_insert(0u32) += 1;
        }
        // 1,000 each with a standard deviation of 29.
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|n| n.abs_diff(1000) < 150), "{counts:?}");
    }

    #[test]
    fn batches_may_be_taken_from_the_middle() {
        let order = Order::shuffled(10, 3, 1);
        let all: Vec<&[usize]> = order.batches(3).collect();
        assert_eq!(all.iter().map(|b| b.len()).collect::<Vec<_>>(), [3, 3, 3, 1]);
        for from in 0..6 {
            let rest = order.batches(3).from_batch(from);
            assert_eq!(rest.len(), 4usize.saturating_sub(from));
            assert!(rest.eq(all.iter().skip(from).copied()), "from {from}");
        }
    }
}
