//! This machine: what it is called in files, and what is known of it.

use crate::Isa;
use crate::error::Result;
use crate::perf::{About, PerfModel};
use crate::platform::{Figure, Origin, Platform, detect};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The file of a calibration that is read where none is named.
pub const USUAL: &str = "calibration.json";

/// The machine as sessions of runs name it. What a system does not tell is null.
pub fn host() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kib = memory.and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    json!({
        "cpu": field(&read("/proc/cpuinfo"), "model name"),
        "processors": std::thread::available_parallelism().ok().map(usize::from),
        "memory_bytes": kib.map(|kib| kib * 1024),
        "os": std::env::consts::OS,
        "kernel": Some(kernel).filter(|kernel| !kernel.is_empty()),
        "architecture": std::env::consts::ARCH,
    })
}

/// The machine as calibrations name it.
pub fn here() -> About {
    let host = host();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    About {
        cpu: host["cpu"].as_str().unwrap_or("unknown processor").to_owned(),
        processors: host["processors"].as_u64().unwrap_or(1) as usize,
        isa: Isa::detect().to_string(),
        dahl: env!("CARGO_PKG_VERSION").to_owned(),
        date: date(now.map_or(0, |now| now.as_secs())),
    }
}

/// This machine as a platform, as far as it tells, with the bandwidth of memory that a
/// calibration has measured.
///
/// # Errors
/// Where the system tells nothing.
pub fn this_machine(known: &PerfModel) -> Result<Platform> {
    let mut platform = detect(Path::new("/"))?.platform;
    if let Some(bandwidth) = known.bandwidth {
        let measured = Figure::exact(bandwidth.capacity(), Origin::Measured);
        platform.nodes[0].memories[0].bandwidth = measured;
    }
    Ok(platform)
}

/// The times of calls in calibration files: of several, the first that knows a kind of unit
/// counts. Without a path, those of [`USUAL`], if it is there and of this machine. The notes
/// say which files were left out, or are of another machine, and why.
///
/// # Errors
/// Where a file that is named cannot be read.
pub fn load(paths: &[PathBuf]) -> Result<(PerfModel, Vec<String>)> {
    let usual = Path::new(USUAL);
    let Some((first, others)) = paths.split_first() else {
        if !usual.exists() {
            return Ok((PerfModel::default(), Vec::new()));
        }
        let known = PerfModel::load(usual)?;
        // What nobody named is used only where it fits.
        return Ok(match known.is_stale(&here()) {
            None => (known, Vec::new()),
            Some(why) => (PerfModel::new(here()), vec![format!("{USUAL} is not used: {why}")]),
        });
    };
    let mut known = PerfModel::load(first)?;
    let stale = known.is_stale(&here()).map(|why| format!("{}: {why}", first.display()));
    for path in others {
        known.borrow(&PerfModel::load(path)?);
    }
    Ok((known, stale.into_iter().collect()))
}

/// A time in seconds since 1970 as a day and a time of day (UTC).
pub fn date(seconds: u64) -> String {
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
