//! Times of one codelet on one shape.
//!
//! Times come as series: what one call of a plan took step by step. Those of a
//! series that are far slower than its median were disturbed and are left out, but
//! counted. This is done for each series and not for all times of a shape together:
//! a call that finds its data far away is slow every time, and no exception.

/// How many times are kept, the newest.
const KEPT: usize = 128;

/// How many deviations above the median a time may be.
const DEVIATIONS: f64 = 5.0;

/// From the median absolute deviation to the standard deviation of a normal
/// distribution.
const NORMAL: f64 = 1.4826;

/// Times, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    samples: Vec<u64>,
    rejected: u64,
}

/// What a history says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// How many times there are.
    pub count: usize,
    /// Their mean in nanoseconds.
    pub mean: f64,
    /// Their median.
    pub p50: f64,
    /// What one of a hundred exceeds.
    pub p99: f64,
    /// The standard deviation over the median, from the median absolute deviation: that
    /// of calls that nothing disturbs.
    pub spread: f64,
    /// The standard deviation over the mean, of all.
    pub deviation: f64,
}

impl History {
    /// A history of times that were kept before.
    pub(super) fn restored(samples: Vec<u64>, rejected: u64) -> Self {
        Self { samples, rejected }
    }

    /// Adds a series: at most `most` of its times, evenly spread, without those
    /// that were disturbed.
    pub fn add(&mut self, series: &[u64], most: usize) {
        let limit = limit(series);
        let kept: Vec<u64> = series.iter().copied().filter(|&t| t as f64 <= limit).collect();
        self.rejected += (series.len() - kept.len()) as u64;
        let most = most.clamp(1, KEPT).min(kept.len());
        self.samples.extend((0..most).map(|i| kept[i * kept.len() / most]));
        let old = self.samples.len().saturating_sub(KEPT);
        self.samples.drain(..old);
    }

    /// The times that are kept, the newest last.
    pub fn samples(&self) -> &[u64] {
        &self.samples
    }

    /// How many times were left out since they were disturbed.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// What the times say; `None` where there are none.
    pub fn stats(&self) -> Option<Stats> {
        Stats::of(&self.samples)
    }
}

impl Stats {
    /// What some times say; `None` where there are none.
    pub fn of(samples: &[u64]) -> Option<Self> {
        let sorted = sorted(samples);
        let (count, p50) = (sorted.len(), median(&sorted)?);
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let variance =
            sorted.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (count as f64 - 1.0).max(1.0);
        Some(Self {
            count,
            mean,
            p50,
            p99: sorted[((0.99 * count as f64).ceil() as usize).clamp(1, count) - 1],
            spread: NORMAL * deviation(&sorted, p50) / p50.max(1.0),
            deviation: variance.sqrt() / mean.max(1.0),
        })
    }
}

/// The longest time of a series that counts as undisturbed.
fn limit(series: &[u64]) -> f64 {
    let sorted = sorted(series);
    match median(&sorted) {
        // What is not even twice the median is part of what a call takes: a cache that
        // was cold, a page that was not there.
        Some(p50) => p50 + (DEVIATIONS * deviation(&sorted, p50)).max(p50).max(1.0),
        None => f64::INFINITY,
    }
}

fn sorted(samples: &[u64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().map(|&t| t as f64).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The median of sorted numbers.
pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    let n = sorted.len();
    (n > 0).then(|| (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0)
}

/// The median of the distances from a middle.
fn deviation(sorted: &[f64], middle: f64) -> f64 {
    let mut apart: Vec<f64> = sorted.iter().map(|t| (t - middle).abs()).collect();
    apart.sort_by(f64::total_cmp);
    median(&apart).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(series: &[&[u64]]) -> History {
        let mut history = History::default();
        series.iter().for_each(|s| history.add(s, 64));
        history
    }

    #[test]
    fn what_was_disturbed_is_left_out_and_counted() {
        // Deviations 10 10 0 10 20: their median is 10, so 100 + 50 is the limit.
        let found = history(&[&[90, 110, 100, 110, 120, 5000]]);
        assert_eq!((found.rejected(), found.samples().len()), (1, 5));
        let stats = found.stats().unwrap();
        assert_eq!((stats.count, stats.mean, stats.p50, stats.p99), (5, 106.0, 110.0, 120.0));
        assert!((stats.spread - NORMAL * 10.0 / 110.0).abs() < 1e-12);
        // Too fast is never wrong.
        assert_eq!(history(&[&[1, 100, 100, 100]]).rejected(), 0);
    }

    #[test]
    fn a_slow_place_is_no_exception() {
        let (near, far) = ([100; 40], [300; 10]);
        let found = history(&[&near, &far]);
        assert_eq!(found.rejected(), 0);
        assert_eq!(found.stats().unwrap().mean, 140.0);
        assert_eq!(history(&[&[&near[..], &far].concat()]).rejected(), 10);
    }

    #[test]
    fn the_newest_are_kept_evenly_spread() {
        let series: Vec<u64> = (1000..1400).collect();
        let mut found = History::default();
        found.add(&[7; 100], 64);
        found.add(&series, 64);
        found.add(&series, 64);
        assert_eq!(found.samples().len(), KEPT);
        assert!(!found.samples().contains(&7));
        assert_eq!(found.samples()[64..67], [1000, 1006, 1012]);
    }

    #[test]
    fn nothing_says_nothing() {
        assert_eq!(history(&[]).stats(), None);
        assert_eq!(history(&[&[]]).stats(), None);
        assert_eq!(history(&[&[3]]).stats().unwrap().p99, 3.0);
    }
}
