//! Signals that end a run early.

use crate::live::Screen;
use dahl::os::threads::spawn;
use dahl::run::StopReason;
use dahl::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The exit code of a run that stopped: stopping where a limit was set is no failure.
pub(crate) fn code(reason: StopReason) -> u8 {
    match reason {
        StopReason::Signal(number) => 128 + number,
        StopReason::MaxTime | StopReason::MaxSteps | StopReason::EnergyBudget => 0,
    }
}

/// The reason why a run stopped, in words.
pub(crate) fn by(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Signal(1) => "by SIGHUP",
        StopReason::Signal(2) => "by SIGINT",
        StopReason::Signal(_) => "by SIGTERM",
        StopReason::MaxTime => "by --max-time",
        StopReason::MaxSteps => "by --max-steps",
        StopReason::EnergyBudget => "by --energy-budget",
    }
}

/// The name of the thread that waits for signals.
const THREAD: &str = "dahl-signals";

/// The signals that have come.
pub(crate) struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// From now on the first SIGINT, SIGTERM or SIGHUP asks to stop, and the second ends
    /// the process at once, with the terminal as it was.
    pub(crate) fn new(screen: Option<Screen>) -> Result<Self> {
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
        Ok(Self(signal))
    }

    /// The first signal that came, if any.
    pub(crate) fn signal(&self) -> Option<u8> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            number => Some(number as u8),
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
