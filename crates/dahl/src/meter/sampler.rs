//! Reads meters again and again, and keeps what they said.

use super::{Meter, Total};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many samples are kept: then every second one goes, and they are taken half as
/// often.
const KEPT: usize = 4096;

/// The power of what was measured over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Power {
    /// What was measured, as in [`Total::name`].
    pub names: Vec<String>,
    /// The ends of intervals in nanoseconds since the sampler began, and the mean watts of
    /// each; `None` where nothing was read.
    pub samples: Vec<(u64, Vec<Option<f64>>)>,
}

struct State {
    meters: Vec<Box<dyn Meter>>,
    totals: Vec<Total>,
    power: Power,
    /// What the totals were at the last sample.
    sampled: Vec<Total>,
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
        let watts = self.totals.iter().zip(&self.sampled).map(|(now, before)| {
            let (joules, seconds) = (now.joules - before.joules, now.seconds - before.seconds);
            (seconds > 0.0).then(|| joules / seconds)
        });
        let watts = watts.collect();
        self.power.samples.push((at.as_nanos() as u64, watts));
        self.sampled = self.totals.clone();
        if self.power.samples.len() >= KEPT {
            let halved = self.power.samples.chunks(2).map(|pair| {
                let last = &pair[pair.len() - 1];
                let mean = |d: usize| {
                    let known: Vec<f64> = pair.iter().filter_map(|(_, w)| w[d]).collect();
                    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
                };
                (last.0, (0..last.1.len()).map(mean).collect())
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
            sampled: Vec::new(),
            every: 1,
            since: 0,
            ended: false,
        };
        state.read();
        state.power.names = state.totals.iter().map(|total| total.name.clone()).collect();
        state.sampled = state.totals.clone();
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
        let builder = || std::thread::Builder::new().name("dahl-meter".to_owned());
        let thread = if idle { None } else { Some(builder().spawn(body)?) };
        Ok(Self { shared, begin, interval, thread })
    }

    /// How often meters are read.
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

    /// What they said last, without asking them.
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
            std::thread::yield_now();
        }
        let total = sampler.read().remove(0);
        assert!((total.joules - 10.0 * total.seconds).abs() < 1e-9);
        let power = sampler.power();
        assert_eq!(power.names, ["ten"]);
        for (_, watts) in &power.samples {
            assert!((watts[0].unwrap() - 10.0).abs() < 1e-6);
        }
    }

    #[test]
    fn samples_are_bounded() {
        let mut state = State {
            meters: vec![ten()],
            totals: vec![Total::new("ten".to_owned(), Source::Command, Covers::Machine)],
            power: Power::default(),
            sampled: vec![Total::new("ten".to_owned(), Source::Command, Covers::Machine)],
            every: 1,
            since: 0,
            ended: false,
        };
        for i in 0..100_000 {
            state.totals[0].add(10.0, Duration::from_secs(1));
            state.sample(Duration::from_secs(i));
        }
        let samples = &state.power.samples;
        assert!(samples.len() < KEPT && samples.len() > KEPT / 4);
        assert!(samples.is_sorted_by_key(|(at, _)| *at));
        assert!(samples.iter().all(|(_, watts)| (watts[0].unwrap() - 10.0).abs() < 1e-6));
    }

    #[test]
    fn without_meters_there_is_no_thread() {
        let sampler = Sampler::start(Vec::new(), Duration::from_secs(1)).unwrap();
        assert!(sampler.thread.is_none() && sampler.read().is_empty());
    }
}
