//! Which meters are read, and what a run may take.

use crate::stop::duration;
use clap::Args;
use dahl::meter::{Battery, Command, Meter, Rapl, Sampler};
use dahl::platform::{Platform, detect};
use dahl::units::Joules;
use dahl::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Meters, watts and limits of a run
#[derive(Args)]
#[command(next_help_heading = "Energy")]
pub(crate) struct EnergyArgs {
    /// The platform whose watts energy is modelled from [default: this machine, with
    /// watts that are guesses]
    #[arg(long, value_name = "FILE")]
    pub(crate) platform: Option<PathBuf>,
    /// Where the processor's energy counters are
    #[arg(long, value_name = "DIR", default_value = "/sys/class/powercap")]
    powercap: PathBuf,
    /// Where batteries are
    #[arg(long, value_name = "DIR", default_value = "/sys/class/power_supply")]
    power_supply: PathBuf,
    /// A command of the shell that prints the machine's watts, or joules so far, line by
    /// line: `42.5 W`, `1200 J`
    #[arg(long, value_name = "COMMAND")]
    meter_cmd: Option<String>,
    /// How often meters are read
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    meter_interval: Duration,
    /// Measure the machine at rest for this time before the first step
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) idle_time: Option<Duration>,
    /// Stop, saved, when this session has taken so much: 500J, 2kJ, 0.1kWh; measured
    /// where something is, else modelled
    #[arg(long, value_name = "ENERGY", value_parser = joules)]
    pub(crate) energy_budget: Option<Joules>,
}

/// An interval that meters can be read in.
fn interval(text: &str) -> std::result::Result<Duration, String> {
    let time = duration(text)?;
    let known = Duration::from_millis(1)..=Duration::from_secs(60);
    if known.contains(&time) { Ok(time) } else { Err("expected 1ms to 60s".to_owned()) }
}

/// An energy: `500J`, `2kJ`, `3Wh`, `0.1kWh`; a number alone is joules.
pub(crate) fn joules(text: &str) -> std::result::Result<Joules, String> {
    let wrong = || "expected an energy such as 500J, 2kJ, 3Wh or 0.1kWh".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "" | "J" => 1.0,
        "mJ" => 1e-3,
        "kJ" => 1e3,
        "MJ" => 1e6,
        "Wh" => 3.6e3,
        "kWh" => 3.6e6,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Some(number * factor).filter(|j| *j > 0.0).map(Joules).ok_or_else(wrong)
}

/// What was opened, and what could not be.
pub(crate) struct Meters {
    pub(crate) sampler: Sampler,
    /// What is wrong with meters that are read.
    pub(crate) warnings: Vec<String>,
    /// Why meters that are there are not read.
    pub(crate) hints: Vec<String>,
    pub(crate) platform: Option<Platform>,
}

impl EnergyArgs {
    /// Opens all meters that there are.
    ///
    /// # Errors
    /// Where a meter that was asked for is not there.
    pub(crate) fn open(&self) -> Result<Meters> {
        let mut meters: Vec<Box<dyn Meter>> = Vec::new();
        let (rapl, notes) = Rapl::open(&self.powercap);
        let asked = self.powercap != Path::new("/sys/class/powercap");
        if rapl.is_empty() && asked {
            let found = notes.first().cloned().unwrap_or_default();
            return Err(Error::config("powercap", "a directory with counters", found));
        }
        let (mut warnings, mut hints) = (Vec::new(), Vec::new());
        if rapl.is_empty() {
            // Most virtual machines have no counters at all: no reason to speak.
            hints.extend(notes.into_iter().filter(|note| note.contains("energy_uj")));
        } else {
            warnings = notes;
            meters.push(Box::new(rapl));
        }
        match Battery::open(&self.power_supply) {
            Ok(battery) => meters.push(Box::new(battery)),
            Err(why) if self.power_supply != Path::new("/sys/class/power_supply") => {
                return Err(Error::config("power-supply", "a directory with batteries", why));
            }
            Err(_) => {}
        }
        // No library is no card, or none that is used.
        #[cfg(feature = "nvml")]
        if let Ok(cards) = dahl::meter::Nvml::open() {
            meters.push(Box::new(cards));
        }
        if let Some(command) = &self.meter_cmd {
            let meter =
                Command::start(command, self.meter_interval.max(Duration::from_millis(100)));
            let failed = |e| Error::config("meter-cmd", "a command of the shell", format!("{e}"));
            meters.push(Box::new(meter.map_err(failed)?));
        }
        let sampler = Sampler::start(meters, self.meter_interval)
            .map_err(|source| Error::thread("dahl-meter", source))?;
        let platform = match &self.platform {
            Some(path) => Some(Platform::read(path)?),
            None => detect(Path::new("/")).ok().map(|found| found.platform),
        };
        Ok(Meters { sampler, warnings, hints, platform })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energies_are_read() {
        for (text, expected) in [
            ("500J", Some(500.0)),
            ("500", Some(500.0)),
            ("2.5kJ", Some(2500.0)),
            ("1 Wh", Some(3600.0)),
            ("0.1kWh", Some(360_000.0)),
            ("0J", None),
            ("-1J", None),
            ("5W", None),
            ("", None),
        ] {
            assert_eq!(joules(text).ok().map(|j| j.0), expected, "{text}");
        }
    }
}
