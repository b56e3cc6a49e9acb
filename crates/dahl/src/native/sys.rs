//! What depends on the operating system and the processor: pinning and ticks.

use crate::platform::headroom as of_root;
use crate::units::Headroom;
use std::path::Path;
use std::time::Instant;

/// Binds the calling thread to one processor, where the system can. Returns
/// whether it did.
#[cfg(target_os = "linux")]
pub(crate) fn pin(processor: usize) -> bool {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    if processor >= CpuSet::MAX_CPU {
        return false;
    }
    set.set(processor);
    sched_setaffinity(None, &set).is_ok()
}

/// Binds the calling thread to one processor, where the system can.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_processor: usize) -> bool {
    false
}

/// The processors that this process may use, in order.
#[cfg(target_os = "linux")]
pub(crate) fn processors() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => fallback_processors(),
    }
}

/// The processors that this process may use, in order.
#[cfg(not(target_os = "linux"))]
pub(crate) fn processors() -> Vec<usize> {
    fallback_processors()
}

fn fallback_processors() -> Vec<usize> {
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}

/// Resident memory of this process in bytes, where the system tells.
#[cfg(target_os = "linux")]
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Resident memory of this process in bytes, where the system tells.
#[cfg(not(target_os = "linux"))]
pub fn resident_bytes() -> Option<u64> {
    None
}

/// The most memory that was resident in this process at any time, in bytes,
/// where the system tells.
pub fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    value.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The tightest bound on the memory of this process, where the system tells.
pub fn headroom() -> Option<Headroom> {
    of_root(Path::new("/"))
}

/// The memory that this process could still have in bytes, where the system tells.
pub fn available_bytes() -> Option<u64> {
    headroom().map(|room| room.left().0)
}

/// How long the calling thread was on a processor, in nanoseconds, where the system
/// tells.
#[cfg(target_os = "linux")]
pub(crate) fn thread_time() -> Option<u64> {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// How long the calling thread was on a processor.
#[cfg(not(target_os = "linux"))]
pub(crate) fn thread_time() -> Option<u64> {
    None
}

/// A cheap monotonic clock: processor ticks, converted to nanoseconds by a
/// rate that is measured against the system's clock over the session's life.
#[derive(Debug)]
pub(crate) struct Ticks {
    start: Instant,
    first: u64,
    /// Nanoseconds a tick, as measured at the start.
    early: f64,
}

impl Ticks {
    pub(crate) fn start() -> Self {
        let mut ticks = Self { start: Instant::now(), first: now(), early: 1.0 };
        ticks.early = ticks.rate();
        ticks
    }

    /// Nanoseconds since the start, by the rate of the start.
    pub(crate) fn nanos(&self) -> u64 {
        (self.now() as f64 * self.early) as u64
    }

    /// A number of ticks in nanoseconds, by the rate of the start.
    pub(crate) fn early_nanos(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.early) as u64
    }

    /// Ticks since the start.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        now().wrapping_sub(self.first)
    }

    /// Nanoseconds a tick.
    pub(crate) fn rate(&self) -> f64 {
        // The longer the session, the better the rate; a young one waits a
        // little so that the rate is good to a part in a thousand.
        while self.start.elapsed().as_micros() < 200 {
            std::hint::spin_loop();
        }
        self.start.elapsed().as_nanos() as f64 / self.now().max(1) as f64
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[expect(unsafe_code, reason = "reading the time stamp counter")]
fn now() -> u64 {
    // SAFETY: every x86_64 processor has the instruction; it has no effect
    // on memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn now() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
