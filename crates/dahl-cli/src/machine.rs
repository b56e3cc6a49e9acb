//! Which program ran on which machine, for those who read a run later.

use dahl::perf::PerfModel;
use dahl::platform::{Figure, Origin, Platform, detect};
use dahl::run::Start;
use serde_json::{Value, json};
use std::path::Path;

/// The version, the commit it was built from, and the machine.
pub(crate) fn about() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kib = memory.and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    // What a system does not tell is null.
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": env!("BUILD_COMMIT"),
        "machine": {
            "cpu": field(&read("/proc/cpuinfo"), "model name"),
            "processors": std::thread::available_parallelism().ok().map(usize::from),
            "memory_bytes": kib.map(|kib| kib * 1024),
            "os": std::env::consts::OS,
            "kernel": Some(kernel).filter(|kernel| !kernel.is_empty()),
            "architecture": std::env::consts::ARCH,
        },
    })
}

/// This process as a session of a run.
pub(crate) fn start(seed: u64) -> Start {
    let command = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    Start { about: about(), seed, command }
}

/// This machine as far as it tells, with the memory's bandwidth that a calibration
/// has measured.
pub(crate) fn platform(known: &PerfModel) -> dahl::Result<Platform> {
    let mut platform = detect(Path::new("/"))?.platform;
    if let Some(bandwidth) = known.bandwidth {
        let measured = Figure::exact(bandwidth.capacity(), Origin::Measured);
        platform.nodes[0].memories[0].bandwidth = measured;
    }
    Ok(platform)
}

/// A time in seconds since 1970 as a day and a time of day (UTC).
pub(crate) fn date(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the odd day is their last; 400 of them have
    // 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = 400 * era + year + next;
    format!("{year}-{month:02}-{day:02} {:02}:{:02}", time / 3600, time % 3600 / 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_date_is_that_of_the_calendar() {
        // As `date -u -d @N` says.
        for (seconds, expected) in [
            (0, "1970-01-01 00:00"),
            (951_782_399, "2000-02-28 23:59"),
            (951_782_400, "2000-02-29 00:00"),
            (1_709_251_199, "2024-02-29 23:59"),
            (1_735_689_599, "2024-12-31 23:59"),
            (4_107_542_400, "2100-03-01 00:00"),
        ] {
            assert_eq!(super::date(seconds), expected);
        }
    }
}
