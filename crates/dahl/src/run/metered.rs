//! The energy of a session, by its meters and by the activity of its workers.

use super::meters::Meters;
use super::record::{EnergyLine, TimedPower};
use crate::exec::Counters;
use crate::meter::{Reading, Total, model, widest};
use crate::platform::Platform;
use crate::trace::{Activity, CodeletCount};
use crate::units::Joules;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Readings of meters and counters of workers at one time.
#[derive(Clone)]
struct Observation {
    at: Instant,
    activity: Activity,
    totals: Vec<Total>,
}

/// An amount of energy, and who says so.
#[derive(Clone, Debug)]
pub struct Spent {
    /// The energy.
    pub joules: Joules,
    /// Its source: meters, a model, or both.
    pub how: String,
}

/// The meters of a session, and where its parts began.
pub struct Metered {
    counters: Arc<dyn Counters>,
    meters: Meters,
    /// The start of the sampler on the session's clock, in nanoseconds.
    clock: i64,
    /// Where training began, and where the last line ended.
    observations: Mutex<(Observation, Observation)>,
}

fn since(now: &[Total], before: &[Total]) -> Vec<Total> {
    now.iter().enumerate().map(|(i, total)| total.since(before.get(i))).collect()
}

impl Metered {
    /// The meters of a session whose counters `counters` reads.
    pub fn begin(counters: Arc<dyn Counters>, meters: Meters) -> Self {
        let activity = counters.activity();
        let clock = activity.elapsed as i64 - meters.sampler.begin().elapsed().as_nanos() as i64;
        let observation =
            Observation { at: Instant::now(), activity, totals: meters.sampler.read() };
        Self {
            counters,
            meters,
            clock,
            observations: Mutex::new((observation.clone(), observation)),
        }
    }

    fn observations(&self) -> MutexGuard<'_, (Observation, Observation)> {
        self.observations.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn observation(&self) -> Observation {
        let (at, activity) = (Instant::now(), self.counters.activity());
        Observation { at, activity, totals: self.meters.sampler.read() }
    }

    /// The counters of the session.
    pub fn counters(&self) -> &dyn Counters {
        &*self.counters
    }

    /// The platform whose watts the energy is modelled from.
    pub fn platform(&self) -> Option<&Platform> {
        self.meters.platform.as_ref()
    }

    /// Waits, and says what meters read meanwhile.
    pub fn rest(&self, time: Duration) -> Vec<Total> {
        let before = self.meters.sampler.read();
        std::thread::sleep(time);
        since(&self.meters.sampler.read(), &before)
    }

    /// Training begins here.
    pub fn go_on(&self) {
        let observation = self.observation();
        *self.observations() = (observation.clone(), observation);
    }

    /// The counters so far: workers by state, codelets.
    pub fn counted(&self) -> (Activity, Vec<CodeletCount>) {
        (self.counters.activity(), self.counters.codelets())
    }

    fn between(&self, before: &Observation, now: &Observation) -> EnergyLine {
        let modelled = |platform| model(platform, &now.activity.since(&before.activity));
        EnergyLine {
            seconds: (now.at - before.at).as_secs_f64(),
            measured: since(&now.totals, &before.totals),
            interval: self.meters.sampler.interval().as_secs_f64(),
            modelled: self.platform().and_then(modelled),
            ..EnergyLine::default()
        }
    }

    /// The energy since the last line.
    pub fn line(&self) -> EnergyLine {
        let now = self.observation();
        let mut observations = self.observations();
        let before = std::mem::replace(&mut observations.1, now.clone());
        self.between(&before, &now)
    }

    /// The same, and the next line has it too; meters are not read.
    pub fn peek(&self) -> EnergyLine {
        let (at, activity) = (Instant::now(), self.counters.activity());
        let now = Observation { at, activity, totals: self.meters.sampler.last() };
        self.between(&self.observations().1, &now)
    }

    /// The last readings of the meters.
    pub fn totals(&self) -> Vec<Total> {
        self.meters.sampler.last()
    }

    /// The power over time.
    pub fn power(&self) -> TimedPower {
        let interval = self.meters.sampler.interval().as_secs_f64();
        let power = self.meters.sampler.power();
        TimedPower { session: 0, begin: self.clock, interval, power }
    }

    /// The energy since training began. Time that meters missed is filled by the model, or by
    /// the mean of what they read.
    pub fn spent(&self) -> Option<Spent> {
        let begin = self.observations().0.clone();
        let line = self.between(&begin, &self.observation());
        let modelled = line.modelled.as_ref();
        let by_model = modelled.map(|of| {
            let total = of.total();
            let how = format!(
                "modelled from {:?} (power values: {}), {:.1} to {:.1} J",
                of.platform, of.watts, total.low, total.high
            );
            Spent { joules: of.joules(), how }
        });
        match widest(&line.measured) {
            Some(reading) => Some(bridged(&reading, by_model)),
            None if line.measured.is_empty() => by_model,
            None => by_model.map(|spent| Spent {
                how: format!("{}, as no meter has read anything", spent.how),
                ..spent
            }),
        }
    }
}

/// The energy of meters, with missed time by a model.
fn bridged(reading: &Reading<'_>, model: Option<Spent>) -> Spent {
    let read = reading.joules();
    let mut sources: Vec<String> = reading.of.iter().map(|t| t.source.to_string()).collect();
    sources.dedup();
    let how = format!("measured by {}", sources.join(", "));
    let missed = reading.of.iter().map(|total| total.unseen()).sum::<f64>();
    let missed = missed / reading.of.len() as f64;
    if missed <= 0.0 {
        return Spent { joules: read, how };
    }
    let (more, by) = match model {
        Some(model) => (model.joules.0 * missed, "modelled"),
        None => (read.0 * missed / (1.0 - missed).max(1e-9), "estimated from the rest"),
    };
    let percent = 100.0 * missed;
    let how = format!("{how}, with {} {by} for the {percent:.0} % that was missed", Joules(more));
    Spent { joules: Joules(read.0 + more), how }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::{Covers, Scope, Source};

    #[test]
    fn what_meters_missed_is_bridged_and_said() {
        let total = |joules, seconds, missed| Total {
            name: "package-0".to_owned(),
            source: Source::Rapl,
            covers: Covers::Package,
            joules,
            seconds,
            missed,
            why: None,
        };
        let model = || Some(Spent { joules: Joules(80.0), how: "modelled".to_owned() });
        let check = |totals: &[Total], model: Option<Spent>, expected: f64, how: &str| {
            let spent = bridged(&Reading::of(Scope::Parts, totals).unwrap(), model);
            assert!((spent.joules.0 - expected).abs() < 1e-6, "{spent:?}");
            assert_eq!(spent.how, how);
        };
        check(&[total(30.0, 4.0, 0.0)], model(), 30.0, "measured by RAPL");
        // A quarter of the time, and one of two packages, is the model's.
        let how = "measured by RAPL, with 20 J modelled for the 25 % that was missed";
        check(&[total(30.0, 3.0, 1.0)], model(), 50.0, how);
        let how = "measured by RAPL, with 40 J modelled for the 50 % that was missed";
        check(&[total(30.0, 4.0, 0.0), total(0.0, 0.0, 4.0)], model(), 70.0, how);
        // A counter that stands still would let a budget last for ever.
        let how = "measured by RAPL, with 80 J modelled for the 100 % that was missed";
        check(&[total(0.0, 4.0, 0.0)], model(), 80.0, how);
        let how =
            "measured by RAPL, with 10 J estimated from the rest for the 25 % that was missed";
        check(&[total(30.0, 3.0, 1.0)], None, 40.0, how);
    }
}
