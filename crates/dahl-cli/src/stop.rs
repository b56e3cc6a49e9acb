//! What ends a run early: signals and limits.

use crate::live::Screen;
use dahl::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Why a run stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Signal(u8),
    MaxTime,
    MaxSteps,
    EnergyBudget,
}

impl Reason {
    /// The exit code: stopping when told to beforehand is no failure.
    pub(crate) fn code(self) -> u8 {
        match self {
            Reason::Signal(number) => 128 + number,
            Reason::MaxTime | Reason::MaxSteps | Reason::EnergyBudget => 0,
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Signal(2) => f.write_str("by SIGINT"),
            Reason::Signal(_) => f.write_str("by SIGTERM"),
            Reason::MaxTime => f.write_str("by --max-time"),
            Reason::MaxSteps => f.write_str("by --max-steps"),
            Reason::EnergyBudget => f.write_str("by --energy-budget"),
        }
    }
}

/// Knows whether to stop.
pub(crate) struct Stop {
    signal: Arc<AtomicUsize>,
    deadline: Option<Instant>,
    steps: Option<usize>,
}

impl Stop {
    /// From now on the first SIGINT or SIGTERM asks to stop, and the second ends
    /// the process at once, with the terminal as it was.
    pub(crate) fn new(
        deadline: Option<Instant>,
        steps: Option<usize>,
        screen: Option<Screen>,
    ) -> Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        let failed = |source| Error::Write { path: "signal handler".into(), source };
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let seen = signal.clone();
        let body = move || {
            for number in &mut signals {
                if seen.swap(number as usize, Ordering::Relaxed) != 0 {
                    screen.iter().for_each(Screen::leave);
                    signal_hook::low_level::exit(128 + number);
                }
            }
        };
        let thread = std::thread::Builder::new().name("dahl-signals".to_owned());
        thread.spawn(body).map_err(failed)?;
        Ok(Self { signal, deadline, steps })
    }

    /// Counts a training step.
    pub(crate) fn count_step(&mut self) {
        self.steps = self.steps.map(|left| left.saturating_sub(1));
    }

    /// Why to stop now, if at all.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self.signal() {
            None if self.deadline.is_some_and(|at| Instant::now() >= at) => Some(Reason::MaxTime),
            None if self.steps == Some(0) => Some(Reason::MaxSteps),
            signal => signal,
        }
    }

    /// The signal that has come, if any.
    pub(crate) fn signal(&self) -> Option<Reason> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            number => Some(Reason::Signal(number as u8)),
        }
    }
}

/// A time: `90s`, `10m`, `2h`, `1d`, `500ms`; a number alone is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a time such as 90s, 10m, 2h or 1d".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let check = |text: &str, seconds: Option<f64>| {
            assert_eq!(duration(text).ok().map(|d| d.as_secs_f64()), seconds, "{text}");
        };
        check("90s", Some(90.0));
        check("90", Some(90.0));
        check("1.5m", Some(90.0));
        check("2h", Some(7200.0));
        check("1d", Some(86400.0));
        check("250ms", Some(0.25));
        for wrong in ["", "s", "-1s", "1x", "1e3s", "1..2s", "999999999999999999999d"] {
            check(wrong, None);
        }
    }
}
