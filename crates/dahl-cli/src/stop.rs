//! What ends a run early: signals and limits.

use crate::live::Screen;
use dahl::os::threads::spawn;
use dahl::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
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
            Reason::Signal(1) => f.write_str("by SIGHUP"),
            Reason::Signal(2) => f.write_str("by SIGINT"),
            Reason::Signal(_) => f.write_str("by SIGTERM"),
            Reason::MaxTime => f.write_str("by --max-time"),
            Reason::MaxSteps => f.write_str("by --max-steps"),
            Reason::EnergyBudget => f.write_str("by --energy-budget"),
        }
    }
}

/// The name of the thread that waits for signals.
const THREAD: &str = "dahl-signals";

/// Knows whether to stop.
pub(crate) struct Stop {
    signal: Arc<AtomicUsize>,
    deadline: Option<Instant>,
    steps: Option<usize>,
}

impl Stop {
    /// From now on the first SIGINT, SIGTERM or SIGHUP asks to stop, and the second ends
    /// the process at once, with the terminal as it was.
    pub(crate) fn new(deadline: Option<Instant>, screen: Option<Screen>) -> Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        let failed = |source| Error::Write { path: "signal handler".into(), source };
        let hangup = hangs_up().then_some(SIGHUP);
        let mut signals =
            Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup)).map_err(failed)?;
        let seen = signal.clone();
        let body = move || {
            for number in &mut signals {
                if seen.swap(number as usize, Ordering::Relaxed) != 0 {
                    screen.iter().for_each(Screen::leave);
                    signal_hook::low_level::exit(128 + number);
                }
            }
        };
        spawn(THREAD, body).map_err(|source| Error::thread(THREAD, source))?;
        Ok(Self { signal, deadline, steps: None })
    }

    /// Stops after so many steps.
    pub(crate) fn limit_steps(&mut self, steps: Option<usize>) {
        self.steps = steps;
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

/// Whether SIGHUP ends the process: under `nohup` it is ignored, and stays so. Where the
/// system does not tell, it keeps its effect.
fn hangs_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) == 0)
}

/// From now on a file that grows beyond the limit of `ulimit -f` is a write that fails, as
/// on a full disk, instead of a signal that ends the process.
pub(crate) fn outgrow_files() -> std::io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
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
