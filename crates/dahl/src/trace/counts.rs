//! Counters that are always on: what ran how often and for how long, without a trace.

use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// Calls and time of a codelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeletCount {
    /// The op and its variant.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// For how long, all workers together.
    pub time: Nanos,
}

/// How often a codelet ran on operands of one shape, for how long, and how the times
/// were spread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShapeCount {
    /// The op and its variant.
    pub codelet: String,
    /// The boxes that are read and written, and the op's attributes.
    pub shape: String,
    /// Floating-point operations of a call.
    pub flops: u64,
    /// Bytes that a call reads and writes.
    pub bytes: u64,
    /// Number of calls.
    pub calls: u64,
    /// For how long, in nanoseconds, all workers together.
    pub nanos: u64,
    /// The histogram of times.
    pub times: Histogram,
}

/// Calls and time of a codelet on operands of one shape, by worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// The op and its variant.
    pub codelet: String,
    /// The boxes that are read and written, and the op's attributes.
    pub shape: String,
    /// By worker: calls, and nanoseconds of all of them.
    pub workers: Vec<(u64, u64)>,
}

/// The time of the workers by state since the session began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// The time since then, in nanoseconds.
    pub elapsed: u64,
    /// By worker.
    pub workers: Vec<WorkerTime>,
}

impl Activity {
    /// The difference to an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        let none = WorkerTime::default();
        let workers = self.workers.iter().enumerate().map(|(w, now)| {
            let before = earlier.workers.get(w).unwrap_or(&none);
            WorkerTime {
                busy: now.busy.saturating_sub(before.busy),
                spinning: now.spinning.saturating_sub(before.spinning),
                parked: now.parked.saturating_sub(before.parked),
            }
        });
        Self { elapsed: self.elapsed.saturating_sub(earlier.elapsed), workers: workers.collect() }
    }
}

/// The time of a worker by state, in nanoseconds. The rest of the time it had no step to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerTime {
    /// It ran codelets.
    pub busy: u64,
    /// It waited for other workers, looking all the time.
    pub spinning: u64,
    /// It waited for other workers and slept during a part of the wait.
    pub parked: u64,
}

/// Number of buckets per doubling of time: a time has an error of at most an eighth.
const PARTS: usize = 8;
/// The longest time is about 2^42 ticks, an hour.
const BUCKETS: usize = PARTS * 41;

/// Times in buckets that are an eighth of an octave wide, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// The lower and upper end of each bucket that has any, and how many it has.
    pub buckets: Vec<(f64, f64, u64)>,
}

impl Histogram {
    /// Number of buckets.
    pub const LEN: usize = BUCKETS;

    /// The bucket of a time.
    #[inline]
    pub fn index(time: u64) -> usize {
        if time < PARTS as u64 {
            return time as usize;
        }
        let octave = time.ilog2() as usize;
        let part = (time >> (octave - 3)) as usize & (PARTS - 1);
        ((octave - 2) * PARTS + part).min(BUCKETS - 1)
    }

    /// Where a bucket begins.
    pub fn lower(index: usize) -> u64 {
        if index < PARTS {
            return index as u64;
        }
        let octave = index / PARTS + 2;
        ((PARTS + index % PARTS) as u64) << (octave - 3)
    }

    /// Counts by bucket as times; `rate` is the nanoseconds of a unit of time.
    pub fn of(counts: impl Iterator<Item = u64>, rate: f64) -> Self {
        let used = counts.enumerate().filter(|(_, count)| *count > 0);
        let bucket = |(i, count): (usize, u64)| {
            let ends = [i, i + 1].map(|i| Self::lower(i) as f64 * rate);
            (ends[0], ends[1], count)
        };
        Self { buckets: used.map(bucket).collect() }
    }

    /// The time that a part of the calls did not exceed, such as 0.5, to an eighth.
    pub fn quantile(&self, part: f64) -> Option<Nanos> {
        let all: u64 = self.buckets.iter().map(|b| b.2).sum();
        let mut left = (part * all as f64).ceil().clamp(1.0, all.max(1) as f64);
        for &(low, high, count) in &self.buckets {
            let count = count as f64;
            if left <= count {
                return Some(Nanos((low + (high - low) * (left - 0.5).max(0.0) / count) as u64));
            }
            left -= count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for i in 0..BUCKETS - 1 {
            let (low, next) = (Histogram::lower(i), Histogram::lower(i + 1));
            assert!(low < next);
            assert_eq!(Histogram::index(low), i);
            assert_eq!(Histogram::index(next - 1), i);
            assert!(i < PARTS || (next - low) * 8 <= low, "an eighth at most");
        }
        assert_eq!(Histogram::index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_an_eighth() {
        let mut counts = vec![0; Histogram::LEN];
        for time in 1..=10_000 {
            counts[Histogram::index(time)] += 1;
        }
        let times = Histogram::of(counts.iter().copied(), 2.0);
        for (part, exact) in [(0.5, 10_000.0), (0.9, 18_000.0), (0.99, 19_800.0), (1.0, 20_000.0)] {
            let found = times.quantile(part).unwrap().0 as f64;
            assert!((found / exact - 1.0).abs() < 0.07, "{part}: {found}");
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn activity_is_a_difference() {
        let worker = |busy| WorkerTime { busy, spinning: 1, parked: 0 };
        let early = Activity { elapsed: 10, workers: vec![worker(4)] };
        let late = Activity { elapsed: 25, workers: vec![worker(9)] };
        let between = late.since(&early);
        assert_eq!(between.elapsed, 15);
        assert_eq!(between.workers[0], WorkerTime { busy: 5, spinning: 0, parked: 0 });
        assert_eq!(late.since(&Activity::default()), late);
    }
}
