//! What a run's directory says: its files as data.

use super::energy::EnergyLine;
use crate::error::{Error, Result};
use crate::meter::Power;
use crate::trace::{Activity, ShapeCount, Trace};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The names of files in a run's directory that this module reads or that are written for
/// it.
pub mod files {
    /// What was recorded, where it was asked for.
    pub const TRACE: &str = "trace.jsonl";
    /// Counters of the last session.
    pub const COUNTERS: &str = "counters.json";
    /// A line an epoch: what it took.
    pub const ENERGY: &str = "energy.jsonl";
    /// The power that was measured over the last session.
    pub const POWER: &str = "power.json";
    /// What a step was expected to take.
    pub const PREDICTION: &str = "prediction.json";
}

/// Counters of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The training step that the session went on from.
    pub from_step: u64,
    /// Training steps of it.
    pub steps: u64,
    /// Training samples of it.
    #[serde(default)]
    pub samples: u64,
    /// What workers did.
    pub activity: Activity,
    /// Codelets by shape.
    pub shapes: Vec<ShapeCount>,
    /// The memory that was planned, part by part, in bytes.
    pub planned: Vec<(String, u64)>,
    /// The memory of the process over time: seconds and resident bytes.
    pub resident: Vec<(f64, u64)>,
    /// The most that was ever resident.
    pub peak: Option<u64>,
}

/// Power over time, and when that began on the trace's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimedPower {
    /// Nanoseconds.
    pub begin: i64,
    /// How often it was read, in seconds.
    pub interval: f64,
    /// The power.
    pub power: Power,
}

/// What a training step was expected to take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// Nanoseconds.
    pub step: u64,
    /// What it lies in.
    pub interval: [u64; 2],
    /// Joules, modelled.
    pub joules: f64,
    /// Nanoseconds of a step by codelet.
    pub codelets: Vec<(String, f64)>,
    /// Where it comes from.
    pub from: String,
}

/// A run as its directory tells it.
#[derive(Clone, Debug, Default)]
pub struct RunRecord {
    /// The name of the directory.
    pub name: String,
    /// `config.toml`.
    pub config: String,
    /// `sessions.jsonl`: who ran it, on what.
    pub sessions: Vec<Value>,
    /// `metrics.jsonl`: an object an epoch.
    pub epochs: Vec<Value>,
    /// `result.json`, where it has ended.
    pub result: Option<Value>,
    /// Counters of the last session.
    pub counted: Option<Counted>,
    /// What epochs took.
    pub energy: Vec<EnergyLine>,
    /// The power that was measured.
    pub power: Option<TimedPower>,
    /// What was expected.
    pub predicted: Option<Predicted>,
    /// What was recorded.
    pub trace: Option<Trace>,
}

/// The text of a file, where there is one.
fn text(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { path: path.to_owned(), source }),
    }
}

fn object<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let Some(text) = text(path)? else { return Ok(None) };
    let wrong = |e| Error::data(path, "file", "an object that dahl train wrote", e);
    serde_json::from_str(&text).map(Some).map_err(wrong)
}

/// The objects of a file that grows by lines; a process that was killed may have left
/// half of the last.
fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let text = text(path)?.unwrap_or_default();
    let whole = text.lines().filter(|line| !line.trim().is_empty());
    Ok(whole.filter_map(|line| serde_json::from_str(line).ok()).collect())
}

impl RunRecord {
    /// Reads a run's directory.
    ///
    /// # Errors
    /// Where it is no run's, or a file is not what `dahl train` writes.
    pub fn read(directory: &Path) -> Result<Self> {
        let file = |name: &str| directory.join(name);
        let Some(config) = text(&file("config.toml"))? else {
            let found = format!("{}, which has no config.toml", directory.display());
            return Err(Error::config("run", "the directory of a run", found));
        };
        let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let name = absolute.file_name().map_or_else(String::new, |n| n.to_string_lossy().into());
        let trace = match text(&file(files::TRACE))? {
            Some(text) => Some(Trace::parse(&text, &file(files::TRACE))?),
            None => None,
        };
        Ok(Self {
            name,
            config,
            sessions: lines(&file("sessions.jsonl"))?,
            epochs: lines(&file("metrics.jsonl"))?,
            result: object(&file("result.json"))?,
            counted: object(&file(files::COUNTERS))?,
            energy: lines(&file(files::ENERGY))?,
            power: object(&file(files::POWER))?,
            predicted: object(&file(files::PREDICTION))?,
            trace,
        })
    }

    /// The seconds of all epochs' training.
    pub fn seconds(&self) -> f64 {
        self.epochs.iter().filter_map(|epoch| epoch["seconds"].as_f64()).sum()
    }
}
