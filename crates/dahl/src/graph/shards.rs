//! Shards: shares of the batch whose sums are taken apart.

use crate::error::{Error, Result};
use std::fmt;
use std::ops::Range;

/// The shares of the batch that sums over samples are first taken within, and then over, in a
/// fixed tree. A share may lie on another rank or device and no bit changes.
///
/// Shards are a part of the numerics: other shards give other roundings. One shard is the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shards {
    /// The samples of each; empty for one shard.
    shares: Vec<usize>,
}

impl Shards {
    /// Shares of so many samples, in order.
    ///
    /// # Errors
    /// If there is none, or one of no sample.
    pub fn new(shares: Vec<usize>) -> Result<Self> {
        if shares.is_empty() || shares.contains(&0) {
            let found = format!("{shares:?}");
            return Err(Error::config("shards", "shares of at least 1 sample each", found));
        }
        Ok(if shares.len() == 1 { Self::default() } else { Self { shares } })
    }

    /// A batch in shares that differ by at most one sample, larger ones first.
    ///
    /// # Errors
    /// If there are none, or more than samples.
    pub fn even(batch: usize, count: usize) -> Result<Self> {
        if count == 0 || count > batch {
            let expected = format!("1 to {batch} shards of a batch of {batch} samples");
            return Err(Error::config("shards", expected, count));
        }
        Self::new((0..count).map(|i| batch / count + usize::from(i < batch % count)).collect())
    }

    /// Number of shards.
    pub fn count(&self) -> usize {
        self.shares.len().max(1)
    }

    /// The samples of each; empty for one shard.
    pub fn shares(&self) -> &[usize] {
        &self.shares
    }

    /// Number of samples of all shards; `None` for one shard, which fits any batch.
    pub fn samples(&self) -> Option<usize> {
        (!self.shares.is_empty()).then(|| self.shares.iter().sum())
    }

    /// The shares of `length` samples: exactly these where that is how many they have together,
    /// for another batch in proportion, without those that would be empty.
    pub fn split(&self, length: usize) -> Vec<Range<usize>> {
        let whole = || std::iter::once(0..length).collect();
        let Some(total) = self.samples() else { return whole() };
        let (mut all, mut taken, mut from) = (Vec::with_capacity(self.shares.len()), 0, 0);
        for share in &self.shares {
            taken += share;
            let to = (taken * length + total / 2) / total;
            if to > from {
                all.push(from..to);
                from = to;
            }
        }
        all
    }
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares: Vec<String> = self.shares.iter().map(usize::to_string).collect();
        f.write_str(if shares.is_empty() { "1" } else { "" })?;
        f.write_str(&shares.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Shards;

    #[test]
    fn a_batch_is_split_as_it_says_and_others_in_proportion() {
        let shards = Shards::new(vec![21, 11]).unwrap();
        assert_eq!(shards.split(32), [0..21, 21..32]);
        assert_eq!(shards.split(7), [0..5, 5..7]);
        assert_eq!(shards.split(1), std::slice::from_ref(&(0..1)));
        assert_eq!(Shards::default().split(9), std::slice::from_ref(&(0..9)));
        assert_eq!(Shards::even(7, 3).unwrap().shares(), [3, 2, 2]);
        assert_eq!(Shards::even(7, 1).unwrap(), Shards::default());
        assert!(Shards::even(2, 3).is_err() && Shards::new(vec![2, 0]).is_err());
    }
}
