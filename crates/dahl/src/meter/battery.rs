//! The power that batteries supply, from Linux's power_supply.
//!
//! A battery that is not discharging says nothing of what the machine takes: that time
//! is missed. Batteries tell steps of a watt-hour's hundredths every few seconds, so the
//! figures of short runs are coarse.

use super::{Covers, Meter, Source, Total};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Joules of a microwatt-hour.
const MICROWATT_HOUR: f64 = 3.6e-3;

/// The batteries of a machine.
#[derive(Debug)]
pub struct Battery {
    batteries: Vec<PathBuf>,
    total: Total,
    last: Option<(Instant, f64)>,
}

impl Battery {
    /// Opens the batteries below a directory, such as `/sys/class/power_supply`; `None`
    /// where there are none, with the reason.
    pub fn open(root: &Path) -> Result<Self, String> {
        let entries = fs::read_dir(root).map_err(|e| format!("{}: {e}", root.display()))?;
        let mut batteries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        batteries.retain(|path| field(path, "type").is_some_and(|kind| kind == "Battery"));
        batteries.retain(|path| energy(path).is_some());
        batteries.sort();
        if batteries.is_empty() {
            return Err(format!("{}: no battery in it", root.display()));
        }
        let total = Total::new("battery".to_owned(), Source::Battery, Covers::Machine);
        Ok(Self { batteries, total, last: None })
    }

    /// The joules that are left in all, while they discharge.
    fn left(&self) -> Result<f64, String> {
        let mut sum = 0.0;
        let mut used = false;
        for path in &self.batteries {
            let status = field(path, "status").unwrap_or_default();
            if status == "Charging" {
                return Err(format!("{}: it is charging", path.display()));
            }
            used |= status == "Discharging";
            sum += energy(path).ok_or_else(|| format!("{}: it is gone", path.display()))?;
        }
        if used { Ok(sum) } else { Err("no battery is discharging".to_owned()) }
    }
}

fn field(path: &Path, name: &str) -> Option<String> {
    Some(fs::read_to_string(path.join(name)).ok()?.trim().to_owned())
}

/// The joules that are left in a battery.
fn energy(path: &Path) -> Option<f64> {
    let number = |name: &str| field(path, name)?.parse::<f64>().ok();
    let charge = || Some(number("charge_now")? * number("voltage_now")? * 1e-6);
    Some(number("energy_now").or_else(charge)? * MICROWATT_HOUR)
}

impl Meter for Battery {
    fn read(&mut self, now: Instant) -> Vec<Total> {
        let found = self.left();
        if let Some((then, before)) = self.last {
            let time = now.saturating_duration_since(then);
            match &found {
                Ok(left) if before.is_finite() => self.total.add((before - left).max(0.0), time),
                Ok(_) => self.total.miss(time, "the battery was not discharging"),
                Err(why) => self.total.miss(time, why),
            }
        }
        self.last = Some((now, found.unwrap_or(f64::NAN)));
        vec![self.total.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_left_becomes_less() {
        let root = std::env::temp_dir().join(format!("dahl-battery-{}", std::process::id()));
        let set = |name: &str, file: &str, text: &str| {
            fs::create_dir_all(root.join(name)).unwrap();
            fs::write(root.join(name).join(file), text).unwrap();
        };
        set("AC", "type", "Mains\n");
        assert!(Battery::open(&root).is_err());
        set("BAT0", "type", "Battery\n");
        set("BAT0", "status", "Discharging\n");
        set("BAT0", "energy_now", "50000000\n");
        // A second one that counts charge: 1 Ah at 10 V.
        set("BAT1", "type", "Battery\n");
        set("BAT1", "status", "Unknown\n");
        set("BAT1", "charge_now", "1000000\n");
        set("BAT1", "voltage_now", "10000000\n");
        let mut battery = Battery::open(&root).unwrap();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        battery.read(at(0));
        set("BAT0", "energy_now", "49990000\n");
        set("BAT1", "charge_now", "999000\n");
        let total = battery.read(at(10)).remove(0);
        assert!((total.joules - 72.0).abs() < 1e-6, "10 mWh of each: {total:?}");
        set("BAT0", "status", "Charging\n");
        battery.read(at(20));
        set("BAT0", "status", "Discharging\n");
        let total = battery.read(at(25)).remove(0);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!((total.seconds, total.missed), (10.0, 15.0));
        assert!((total.joules - 72.0).abs() < 1e-6);
    }
}
