//! NVIDIA's graphics cards, by their management library, which is loaded at run time:
//! nothing is needed to build or to start without one.

use super::{Covers, Meter, Source, Total};
use std::time::Instant;

/// The cards of this machine.
pub struct Nvml {
    library: nvml_wrapper::Nvml,
    cards: Vec<Card>,
}

struct Card {
    index: u32,
    total: Total,
    /// When it was read, joules so far where it counts them, else watts.
    last: Option<(Instant, Result<Count, String>)>,
}

#[derive(Clone, Copy)]
enum Count {
    Joules(f64),
    /// Of cards before Volta, which do not count.
    Watts(f64),
}

impl Nvml {
    /// Loads the library; says why there is nothing to read.
    ///
    /// # Errors
    /// Where there is no library or no card.
    pub fn open() -> Result<Self, String> {
        // Distributions without development files have no name without a version.
        let library = nvml_wrapper::Nvml::init().or_else(|_| {
            let name = std::ffi::OsStr::new("libnvidia-ml.so.1");
            nvml_wrapper::Nvml::builder().lib_path(name).init()
        });
        let library = library.map_err(|e| format!("NVML: {e}: no figures of NVIDIA's cards"))?;
        let count = library.device_count().map_err(|e| format!("NVML: {e}"))?;
        let card = |index| {
            let name = library.device_by_index(index).and_then(|device| device.name());
            let name = format!("gpu {index} ({})", name.unwrap_or_else(|_| "unknown".to_owned()));
            Card { index, total: Total::new(name, Source::Nvml, Covers::Gpu), last: None }
        };
        let cards: Vec<Card> = (0..count).map(card).collect();
        if cards.is_empty() {
            return Err("NVML: no card".to_owned());
        }
        Ok(Self { library, cards })
    }
}

fn count(library: &nvml_wrapper::Nvml, index: u32) -> Result<Count, String> {
    let device = library.device_by_index(index).map_err(|e| e.to_string())?;
    match device.total_energy_consumption() {
        Ok(millijoules) => Ok(Count::Joules(millijoules as f64 * 1e-3)),
        Err(_) => {
            let milliwatts = device.power_usage().map_err(|e| e.to_string())?;
            Ok(Count::Watts(f64::from(milliwatts) * 1e-3))
        }
    }
}

impl Meter for Nvml {
    fn read(&mut self, now: Instant) -> Vec<Total> {
        for card in &mut self.cards {
            let found = count(&self.library, card.index);
            if let Some((then, before)) = &card.last {
                let time = now.saturating_duration_since(*then);
                match (before, &found) {
                    (Ok(Count::Joules(a)), Ok(Count::Joules(b))) if b >= a => {
                        card.total.add(b - a, time);
                    }
                    (Ok(Count::Watts(a)), Ok(Count::Watts(b))) => {
                        card.total.add((a + b) / 2.0 * time.as_secs_f64(), time);
                    }
                    (_, Err(why)) | (Err(why), _) => card.total.miss(time, why),
                    _ => card.total.miss(time, "its counter was reset"),
                }
            }
            card.last = Some((now, found));
        }
        self.cards.iter().map(|card| card.total.clone()).collect()
    }
}
