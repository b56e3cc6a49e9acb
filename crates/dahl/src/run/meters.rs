//! The meters of a run, and the platform whose watts its energy is modelled from.

use super::config::RunConfig;
use crate::error::{Error, Result};
use crate::meter::{Battery, Command, Meter, Rapl, Sampler};
use crate::platform::{Platform, detect};
use std::path::Path;
use std::time::Duration;

/// The meters that could be opened, with notes on those that could not.
pub struct Meters {
    /// The sampler that reads them.
    pub sampler: Sampler,
    /// Errors of meters that are read.
    pub warnings: Vec<String>,
    /// Why meters that are there are not read.
    pub hints: Vec<String>,
    /// The platform whose watts energy is modelled from.
    pub platform: Option<Platform>,
}

impl Meters {
    /// Opens all meters that there are, as the settings of a run say.
    ///
    /// # Errors
    /// Where a meter that was requested is not there.
    pub fn open(config: &RunConfig) -> Result<Self> {
        let settings = &config.session;
        let mut meters: Vec<Box<dyn Meter>> = Vec::new();
        let (rapl, notes) = Rapl::open(&settings.powercap);
        let requested = settings.powercap != Path::new("/sys/class/powercap");
        if rapl.is_empty() && requested {
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
        match Battery::open(&settings.power_supply) {
            Ok(battery) => meters.push(Box::new(battery)),
            Err(why) if settings.power_supply != Path::new("/sys/class/power_supply") => {
                return Err(Error::config("power-supply", "a directory with batteries", why));
            }
            Err(_) => {}
        }
        // No library is no card, or none that is used.
        #[cfg(feature = "nvml")]
        if let Ok(cards) = crate::meter::Nvml::open() {
            meters.push(Box::new(cards));
        }
        if let Some(command) = &settings.meter_cmd {
            let meter =
                Command::start(command, settings.meter_interval.max(Duration::from_millis(100)));
            let failed = |e| Error::config("meter-cmd", "a command of the shell", format!("{e}"));
            meters.push(Box::new(meter.map_err(failed)?));
        }
        let sampler = Sampler::start(meters, settings.meter_interval)
            .map_err(|source| Error::thread("dahl-meter", source))?;
        let platform = match &config.placement.platform {
            Some(path) => Some(Platform::read(path)?),
            None => detect(Path::new("/")).ok().map(|found| found.platform),
        };
        Ok(Meters { sampler, warnings, hints, platform })
    }
}
