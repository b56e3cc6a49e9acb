//! The files of a run directory as data, and their reader.

use super::files;
use crate::error::{Error, Result};
use crate::meter::{Modelled, Power, Total};
use crate::os::disk;
use crate::platform::Platform;
use crate::trace::{Activity, ShapeCount, Trace, WorkerTime};
use crate::train::{EpochRecord, Pass};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Counters of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The session, from 1.
    #[serde(default)]
    pub session: u64,
    /// The training step that the session went on from.
    pub from_step: u64,
    /// Training steps of it.
    pub steps: u64,
    /// Training samples of it.
    #[serde(default)]
    pub samples: u64,
    /// The time of workers by state.
    pub activity: Activity,
    /// Codelets by shape.
    pub shapes: Vec<ShapeCount>,
    /// The memory that was planned, part by part, in bytes.
    pub planned: Vec<(String, u64)>,
    /// The memory of the process over time: seconds and resident bytes.
    pub resident: Vec<(f64, u64)>,
    /// The most that was ever resident.
    pub peak: Option<u64>,
    /// The part of it in which there was training: no evaluation, no checkpoints.
    #[serde(default)]
    pub training: Training,
}

/// Whether a sum of numbers, each of which may be too large itself, fits in 64 bits.
fn fits(terms: impl IntoIterator<Item = Option<u64>>) -> bool {
    terms.into_iter().try_fold(0u64, |sum, term| sum.checked_add(term?)).is_some()
}

impl Counted {
    /// Whether all sums of it fit in 64 bits, so that sums need no check.
    fn adds_up(&self) -> bool {
        let of_shapes = |of: fn(&ShapeCount) -> Option<u64>| fits(self.shapes.iter().map(of));
        let of_workers = |activity: &Activity| {
            let times = |w: &WorkerTime| [Some(w.busy), Some(w.spinning), Some(w.parked)];
            fits(activity.workers.iter().flat_map(times))
        };
        let buckets = self.shapes.iter().flat_map(|shape| &shape.times.buckets);
        let codelets = || self.training.codelets.values();
        fits([Some(self.from_step), Some(self.steps)])
            && of_shapes(|shape| Some(shape.calls))
            && of_shapes(|shape| Some(shape.nanos))
            && of_shapes(|shape| shape.calls.checked_mul(shape.flops))
            && of_shapes(|shape| shape.calls.checked_mul(shape.bytes))
            && fits(buckets.map(|&(_, _, count)| Some(count)))
            && fits(codelets().map(|&(calls, _)| Some(calls)))
            && fits(codelets().map(|&(_, nanos)| Some(nanos)))
            && of_workers(&self.activity)
            && of_workers(&self.training.activity)
            && fits(self.planned.iter().map(|&(_, bytes)| Some(bytes)))
    }
}

/// The counters during training steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// Training samples that are in it.
    pub samples: u64,
    /// The time of workers by state.
    pub activity: Activity,
    /// Calls and nanoseconds by codelet.
    pub codelets: BTreeMap<String, (u64, u64)>,
}

/// The energy since the previous line: of an epoch, a part of one, or the time after the
/// last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyLine {
    /// The session, from 1, as in `sessions.jsonl`.
    #[serde(default)]
    pub session: u64,
    /// The epoch that it is a part of, from 1; none after the last.
    pub epoch: Option<u64>,
    /// Whether that epoch goes on after it.
    #[serde(default)]
    pub unfinished: bool,
    /// Whether the session ended with it.
    #[serde(default)]
    pub last: bool,
    /// Its time from end to end, evaluation included.
    pub seconds: f64,
    /// Training samples that were learned from.
    pub samples: u64,
    /// The readings of meters, each with its source.
    #[serde(default)]
    pub measured: Vec<Total>,
    /// Interval between readings, in seconds.
    #[serde(default)]
    pub interval: f64,
    /// Their readings of the idle machine before the first step, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<Total>,
    /// Modelled energy, by the platform's watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modelled: Option<Modelled>,
}

/// Power over time, and when that began on the trace's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimedPower {
    /// The session, from 1.
    #[serde(default)]
    pub session: u64,
    /// Nanoseconds.
    pub begin: i64,
    /// Interval between readings, in seconds.
    pub interval: f64,
    /// The power.
    pub power: Power,
}

/// The predicted time of a training step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// The program whose step it is.
    #[serde(default)]
    pub program: String,
    /// Nanoseconds.
    pub step: u64,
    /// Its interval.
    pub interval: [u64; 2],
    /// Joules, modelled.
    pub joules: f64,
    /// Nanoseconds of a step by codelet.
    pub codelets: Vec<(String, f64)>,
    /// Where it comes from.
    pub from: String,
}

/// The figures of one epoch, one line of `metrics.jsonl`; `seconds`, `samples_per_second`
/// and `time` are the only ones that differ between runs of one configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochMetrics {
    /// The epoch, from 1.
    pub epoch: u64,
    /// Training steps up to its end.
    #[serde(default)]
    pub steps: u64,
    /// The mean training loss.
    pub loss: f64,
    /// The fraction of training samples classified correctly.
    pub accuracy: f64,
    /// The seconds that its training steps took.
    pub seconds: f64,
    /// Training samples per second.
    pub samples_per_second: f64,
    /// When it ended, in seconds since 1970.
    #[serde(default)]
    pub time: f64,
    /// The learning rate of its last step; files of earlier versions do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lr: Option<f64>,
    /// Losses and accuracies of the evaluation sets: `test_loss`, `validation_accuracy`.
    #[serde(flatten)]
    pub evaluated: BTreeMap<String, f64>,
}

impl From<&EpochRecord> for EpochMetrics {
    fn from(record: &EpochRecord) -> Self {
        let figures = |(name, pass): &(String, Pass)| {
            [(format!("{name}_loss"), pass.loss()), (format!("{name}_accuracy"), pass.accuracy())]
        };
        Self {
            epoch: record.epoch,
            steps: record.steps,
            loss: record.train.loss(),
            accuracy: record.train.accuracy(),
            seconds: record.seconds,
            samples_per_second: record.samples_per_second(),
            time: record.time,
            lr: record.lr,
            evaluated: record.evaluated.iter().flat_map(figures).collect(),
        }
    }
}

impl EpochMetrics {
    /// The accuracy on the test set.
    pub fn test_accuracy(&self) -> Option<f64> {
        self.evaluated.get("test_accuracy").copied()
    }

    /// As a JSON object, its keys in alphabetical order.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// As a line of the file.
    pub(super) fn line(&self) -> String {
        format!("{}\n", self.to_json())
    }
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
    /// `metrics.jsonl`: one record per epoch.
    pub epochs: Vec<EpochMetrics>,
    /// `result.json`, where it has ended.
    pub result: Option<Value>,
    /// Counters of the last session.
    pub counted: Option<Counted>,
    /// The energy of epochs.
    pub energy: Vec<EnergyLine>,
    /// The power that was measured.
    pub power: Option<TimedPower>,
    /// The prediction.
    pub predicted: Option<Predicted>,
    /// The trace.
    pub trace: Option<Trace>,
    /// The platform of the last session.
    pub platform: Option<Platform>,
    /// Errors of files that are ignored, by file.
    pub problems: Vec<(String, String)>,
}

/// The text of a file, where there is one.
fn text(path: &Path) -> Result<Option<String>> {
    match disk::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { path: path.to_owned(), source }),
    }
}

fn parsed<T>(path: &Path, parse: impl FnOnce(&str, &Path) -> Result<T>) -> Result<Option<T>> {
    text(path)?.map(|text| parse(&text, path)).transpose()
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
    let mut found = Vec::new();
    let all: Vec<&str> = text.lines().collect();
    for (i, line) in all.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str(line) {
            Ok(value) => found.push(value),
            Err(_) if i + 1 == all.len() && !text.ends_with('\n') => {}
            Err(e) => {
                let what = format!("line {}", i + 1);
                return Err(Error::data(path, &what, "an object that dahl train wrote", e));
            }
        }
    }
    Ok(found)
}

impl RunRecord {
    /// Reads a run's directory.
    ///
    /// A file that is not what `dahl train` writes is left out, and named in `problems`.
    ///
    /// # Errors
    /// Where it is no run's.
    pub fn read(directory: &Path) -> Result<Self> {
        let file = |name: &str| directory.join(name);
        let Some(config) = text(&file(files::CONFIG))? else {
            let found = format!("{}, which has no config.toml", directory.display());
            return Err(Error::config("run", "the directory of a run", found));
        };
        let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let name = absolute.file_name().map_or_else(String::new, |n| n.to_string_lossy().into());
        let mut run = Self { name, config, ..Self::default() };
        run.sessions = run.kept(files::SESSIONS, lines(&file(files::SESSIONS)));
        run.epochs = run.kept(files::METRICS, lines(&file(files::METRICS)));
        run.result = run.kept(files::RESULT, object(&file(files::RESULT)));
        run.counted = run.kept(files::COUNTERS, Self::read_counters(directory));
        run.energy = run.kept(files::ENERGY, lines(&file(files::ENERGY)));
        run.power = run.kept(files::POWER, object(&file(files::POWER)));
        run.predicted = run.kept(files::PREDICTION, object(&file(files::PREDICTION)));
        let trace = parsed(&file(files::TRACE), Trace::parse);
        run.trace = run.kept(files::TRACE, trace);
        let platform = parsed(&file(files::PLATFORM), |text, path| Platform::parse(path, text));
        run.platform = run.kept(files::PLATFORM, platform);
        Ok(run)
    }

    /// Reads the counters of a run's last session, where there are any.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Data`] where they cannot be read.
    pub fn read_counters(directory: &Path) -> Result<Option<Counted>> {
        let path = directory.join(files::COUNTERS);
        match object::<Counted>(&path)? {
            Some(counted) if !counted.adds_up() => {
                let expected = "counts whose sums are below 2^64";
                Err(Error::data(&path, "file", expected, "larger ones"))
            }
            counted => Ok(counted),
        }
    }

    /// The content of a file; a damaged one is ignored, with a note.
    fn kept<T: Default>(&mut self, file: &str, read: Result<T>) -> T {
        read.unwrap_or_else(|error| {
            self.problems.push((file.to_owned(), error.to_string()));
            T::default()
        })
    }

    /// The error of a file, if there is one.
    pub fn problem(&self, file: &str) -> Option<&str> {
        let found = self.problems.iter().find(|(name, _)| name == file);
        found.map(|(_, what)| what.as_str())
    }

    /// The trace, if it is not empty.
    pub fn recorded(&self) -> Option<&Trace> {
        self.trace.as_ref().filter(|trace| !trace.events.is_empty())
    }

    /// The power that was measured while the trace was recorded.
    pub fn traced_power(&self) -> Option<&TimedPower> {
        let session = self.trace.as_ref()?.header.session?;
        self.power.as_ref().filter(|power| power.session == session)
    }

    /// The platform that energy was modelled from while the trace was recorded.
    pub fn traced_platform(&self) -> Option<&Platform> {
        let session = self.trace.as_ref()?.header.session?;
        let last = self.counted.as_ref().is_some_and(|counted| counted.session == session);
        self.platform.as_ref().filter(|_| last)
    }

    /// The seconds of all epochs' training.
    pub fn seconds(&self) -> f64 {
        self.epochs.iter().map(|epoch| epoch.seconds).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_the_last_line_may_be_torn() {
        let root = std::env::temp_dir().join(format!("dahl-record-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("config.toml"), "").unwrap();
        let line = r#"{"epoch":1,"seconds":1.0,"samples":5}"#;
        let read = |text: String| {
            fs::write(root.join(files::ENERGY), text).unwrap();
            RunRecord::read(&root).unwrap()
        };
        let torn = read(format!("{line}\n{line}\n{}", &line[..9]));
        assert_eq!((torn.energy.len(), torn.problems.len()), (2, 0));
        let damaged = read(format!("{line}\n{}\n{line}\n", &line[..9]));
        assert!(damaged.energy.is_empty(), "a sum without a line would be wrong");
        let problem = damaged.problem(files::ENERGY).unwrap();
        assert!(problem.contains("energy.jsonl: line 2: expected an object"), "{problem}");
        // A last line that is whole and wrong was not torn.
        assert!(read(format!("{line}\nrubbish\n")).problem(files::ENERGY).is_some());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn counters_whose_sums_do_not_fit_are_refused() {
        let root = std::env::temp_dir().join(format!("dahl-counters-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let read = |counted: &Counted| {
            fs::write(root.join(files::COUNTERS), serde_json::to_string(counted).unwrap()).unwrap();
            RunRecord::read_counters(&root).map_err(|error| error.to_string())
        };
        let half = 1 << 63;
        let shape = |calls, flops| ShapeCount { calls, flops, ..ShapeCount::default() };
        let with = |shapes| Counted { shapes, ..Counted::default() };
        let worker = |busy, parked| WorkerTime { busy, spinning: 0, parked };
        let working = |workers| {
            let activity = Activity { workers, ..Activity::default() };
            Counted { activity, ..Counted::default() }
        };
        let fitting = [with(vec![shape(half, 1)]), working(vec![worker(half, 1)])];
        fitting.iter().for_each(|counted| assert!(read(counted).is_ok()));
        let larger = [
            with(vec![shape(2, half)]),
            with(vec![shape(half, 1), shape(half, 0)]),
            working(vec![worker(half, 0), worker(0, half)]),
        ];
        for counted in larger {
            let error = read(&counted).unwrap_err();
            assert!(error.contains("counts whose sums are below 2^64"), "{error}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn watts_belong_to_the_trace_of_their_session() {
        let mut run = RunRecord {
            trace: Some(Trace::default()),
            power: Some(TimedPower { session: 2, ..TimedPower::default() }),
            counted: Some(Counted { session: 2, ..Counted::default() }),
            platform: Some(Platform::default()),
            ..RunRecord::default()
        };
        for (session, expected) in [(None, false), (Some(1), false), (Some(2), true)] {
            run.trace.as_mut().unwrap().header.session = session;
            assert_eq!(run.traced_power().is_some(), expected, "{session:?}");
            assert_eq!(run.traced_platform().is_some(), expected, "{session:?}");
        }
    }
}
