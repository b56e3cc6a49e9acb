//! Reads meters again and again, and keeps what they said.

use super::{Meter, Total};
use crate::os::threads::{JoinHandle, spawn};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How many samples are kept: then every second one goes, and they are taken half as
/// often.
const KEPT: usize = 4096;

/// The power of what was measured over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Power {
    /// The measured domain, as in [`Total::name`].
    pub names: Vec<String>,
    /// Intervals that follow each other, with the mean watts of each domain; `None` where
    /// something was not read.
    pub samples: Vec<Sample>,
}

/// The mean watts of an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When it began, in nanoseconds since the sampler did.
    pub from: u64,
    /// When it ended.
    pub to: u64,
    /// Watts by domain.
    pub watts: Vec<Option<f64>>,
}

impl Sample {
    /// One interval instead of two.
    fn joined(&self, next: &Self) -> Self {
        let part = |sample: &Self| (sample.to - sample.from) as f64;
        let mean = |(a, b): (&Option<f64>, &Option<f64>)| {
            let joules = (*a)? * part(self) + (*b)? * part(next);
            Some(joules / (part(self) + part(next)).max(1.0))
        };
        let watts = self.watts.iter().zip(&next.watts).map(mean).collect();
        Self { from: self.from, to: next.to, watts }
    }
}

struct State {
    meters: Vec<Box<dyn Meter>>,
    totals: Vec<Total>,
    power: Power,
    /// When the last sample ended, and what the totals were then.
    sampled: (u64, Vec<Total>),
    /// Readings a sample, and those since the last.
    every: usize,
    since: usize,
    ended: bool,
}

/// A thread that reads meters.
pub struct Sampler {
    shared: Arc<(Mutex<State>, Condvar)>,
    begin: Instant,
    interval: Duration,
    thread: Option<JoinHandle<()>>,
}

fn lock(shared: &(Mutex<State>, Condvar)) -> MutexGuard<'_, State> {
    shared.0.lock().unwrap_or_else(|e| e.into_inner())
}

impl State {
    fn read(&mut self) {
        let now = Instant::now();
        self.totals = self.meters.iter_mut().flat_map(|meter| meter.read(now)).collect();
    }

    fn sample(&mut self, at: Duration) {
        self.since += 1;
        if self.since < self.every {
            return;
        }
        self.since = 0;
        let to = at.as_nanos() as u64;
        let (from, before) = std::mem::replace(&mut self.sampled, (to, self.totals.clone()));
        let watts = self.totals.iter().zip(&before).map(|(now, before)| {
            let between = now.since(Some(before));
            let whole = between.seconds > 0.0 && !between.is_partial();
            whole.then(|| between.joules / between.seconds)
        });
        self.power.samples.push(Sample { from, to, watts: watts.collect() });
        if self.power.samples.len() >= KEPT {
            let halved = self.power.samples.chunks(2).map(|pair| match pair {
                [one, next] => one.joined(next),
                rest => rest[0].clone(),
            });
            self.power.samples = halved.collect();
            self.every *= 2;
        }
    }
}

impl Sampler {
    /// Begins to read meters every `interval`.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub fn start(meters: Vec<Box<dyn Meter>>, interval: Duration) -> std::io::Result<Self> {
        let begin = Instant::now();
        let mut state = State {
            meters,
            totals: Vec::new(),
            power: Power::default(),
            sampled: (0, Vec::new()),
            every: 1,
            since: 0,
            ended: false,
        };
        state.read();
        state.power.names = state.totals.iter().map(|total| total.name.clone()).collect();
        state.sampled = (0, state.totals.clone());
        let idle = state.meters.is_empty();
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let inside = shared.clone();
        let body = move || {
            let mut state = lock(&inside);
            while !state.ended {
                let waited = inside.1.wait_timeout(state, interval);
                state = waited.unwrap_or_else(|e| e.into_inner()).0;
                if !state.ended {
                    state.read();
                    state.sample(begin.elapsed());
                }
            }
        };
        let thread = if idle { None } else { Some(spawn("dahl-meter", body)?) };
        Ok(Self { shared, begin, interval, thread })
    }

    /// Interval between readings.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// When it began.
    pub fn begin(&self) -> Instant {
        self.begin
    }

    /// Reads all meters now: what they have read since they began.
    pub fn read(&self) -> Vec<Total> {
        let mut state = lock(&self.shared);
        state.read();
        state.totals.clone()
    }

    /// The last readings.
    pub fn last(&self) -> Vec<Total> {
        lock(&self.shared).totals.clone()
    }

    /// The power over time.
    pub fn power(&self) -> Power {
        lock(&self.shared).power.clone()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        lock(&self.shared).ended = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::{Covers, Source};

    /// Ten watts, exactly.
    struct Ten {
        total: Total,
        last: Option<Instant>,
    }

    impl Meter for Ten {
        fn read(&mut self, now: Instant) -> Vec<Total> {
            let time = self.last.map_or(Duration::ZERO, |last| now - last);
            self.total.add(10.0 * time.as_secs_f64(), time);
            self.last = Some(now);
            vec![self.total.clone()]
        }
    }

    fn ten() -> Box<dyn Meter> {
        let total = Total::new("ten".to_owned(), Source::Command, Covers::Machine);
        Box::new(Ten { total, last: None })
    }

    #[test]
    fn power_is_energy_by_time() {
        let sampler = Sampler::start(vec![ten()], Duration::from_millis(1)).unwrap();
        while sampler.power().samples.len() < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let total = sampler.read().remove(0);
        assert!((total.joules - 10.0 * total.seconds).abs() < 1e-9);
        let power = sampler.power();
        assert_eq!(power.names, ["ten"]);
        for pair in power.samples.windows(2) {
            assert!((pair[0].watts[0].unwrap() - 10.0).abs() < 1e-6);
            assert_eq!(pair[0].to, pair[1].from, "they follow each other");
        }
        assert_eq!(power.samples[0].from, 0);
    }

    #[test]
    fn samples_are_bounded() {
        let mut state = State {
            meters: vec![ten()],
            totals: vec![Total::new("ten".to_owned(), Source::Command, Covers::Machine)],
            power: Power::default(),
            sampled: (0, vec![Total::new("ten".to_owned(), Source::Command, Covers::Machine)]),
            every: 1,
            since: 0,
            ended: false,
        };
        for i in 0..100_000 {
            match i {
                0..50_000 => state.totals[0].add(10.0, Duration::from_secs(1)),
                _ => state.totals[0].miss(Duration::from_secs(1), "gone"),
            }
            state.sample(Duration::from_secs(i + 1));
        }
        let samples = &state.power.samples;
        assert!(samples.len() < KEPT && samples.len() > KEPT / 4);
        assert!(samples.windows(2).all(|pair| pair[0].to == pair[1].from));
        // What was missed is not filled by what was read beside it.
        let half = samples.partition_point(|sample| sample.to <= 50_000_000_000_000);
        assert!(samples[..half].iter().all(|s| (s.watts[0].unwrap() - 10.0).abs() < 1e-6));
        assert!(samples[half..].iter().all(|s| s.watts[0].is_none()));
    }

    #[test]
    fn without_meters_there_is_no_thread() {
        let sampler = Sampler::start(Vec::new(), Duration::from_secs(1)).unwrap();
        assert!(sampler.thread.is_none() && sampler.read().is_empty());
    }
}
