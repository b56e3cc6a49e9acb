//! The directory of a run: its writer, and how it is found by name.

use super::files;
use super::growing::{Growing, mend};
use super::record::{EpochMetrics, Predicted};
use super::tensorboard;
use crate::error::{Error, Result};
use crate::file::{TensorFile, create_directories, create_directory, remove_temporary, replace};
use crate::graph::Programs;
use crate::os::disk;
use crate::plan::{Numerics, PlannedPrograms};
use crate::train::{Checkpoints, EpochRecord};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of runs that are known by name alone.
pub const RUNS: &str = "runs";

/// A run's directory, which no other process trains in.
#[derive(Clone)]
pub struct RunDirectory {
    path: PathBuf,
}

/// The directory of a run by its name, or by its path where there is a separator.
pub fn resolve(name: &Path) -> PathBuf {
    let bare = name.components().count() == 1
        && matches!(name.components().next(), Some(std::path::Component::Normal(_)));
    if bare { Path::new(RUNS).join(name) } else { name.to_owned() }
}

/// The directory of a run that is there: one of another place may be named too.
pub fn find(name: &Path) -> PathBuf {
    let path = resolve(name);
    if !path.is_dir() && name.is_dir() { name.to_owned() } else { path }
}

/// The error of a directory without a run; it names the runs that there are.
pub fn no_run(path: &Path) -> Error {
    let entries = disk::list(Path::new(RUNS)).into_iter().flatten();
    let runs = entries.filter(|entry| entry.path().join(files::CONFIG).exists());
    let mut runs: Vec<String> =
        runs.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    runs.sort();
    Error::NoRun { path: path.to_owned(), exists: path.is_dir(), runs }
}

/// Whether the run of a directory has ended: its final weights are there.
pub fn has_result(path: &Path) -> bool {
    path.join(files::RESULT).exists() && path.join(files::WEIGHTS).exists()
}

/// The numerics of a run's plan.
///
/// # Errors
/// Where it cannot be read or is of other programs.
pub fn numerics(run: &Path, programs: &Programs) -> Result<Numerics> {
    let path = run.join(files::PLAN);
    let text = disk::read_to_string(&path);
    let text = text.map_err(|source| Error::Io { path: path.clone(), source })?;
    let planned = PlannedPrograms::parse(&text, programs).map_err(|error| {
        Error::data(&path, "plan", "that of the run, with the kernels that it has", error)
    })?;
    Ok(planned.numerics.clone())
}

/// The hash of the tensors that a run has ended with.
pub fn weights_sha256(run: &Path) -> Result<String> {
    let path = run.join(files::RESULT);
    let text = disk::read(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    let result: Value = serde_json::from_slice(&text)
        .map_err(|e| Error::data(&path, "result", "a JSON object", e))?;
    let hash = result["weights_sha256"].as_str().map(str::to_owned);
    hash.ok_or_else(|| Error::data(&path, "weights_sha256", "a hash", "none"))
}

/// Refuses a directory that has a run.
pub fn refuse_old(path: &Path) -> Result<()> {
    if !path.join(files::CONFIG).exists() {
        return Ok(());
    }
    Err(Error::RunExists { path: path.to_owned() })
}

/// Refuses to write to a file that a run's configuration names, unless it is in the run's
/// directory or the current one: a foreign run directory may name any path.
pub fn refuse_outside(run: &Path, save: &Path) -> Result<()> {
    // Where links lead, and from where the system stands.
    let real = |path: &Path| fs::canonicalize(path).ok();
    let of_parent = || Some(real(save.parent()?)?.join(save.file_name()?));
    let place = real(save).or_else(of_parent);
    let inside = |directory: &Path| {
        real(directory).zip(place.as_ref()).is_some_and(|(at, place)| place.starts_with(at))
    };
    // In the current directory, weights may be written over, and nothing else.
    if inside(run) || inside(Path::new(".")) && takes_weights(save) {
        return Ok(());
    }
    Err(Error::SaveOutside { path: save.to_owned(), config: run.join(files::CONFIG) })
}

/// Whether weights may be written to a path: it is free, empty, or holds other weights.
pub fn takes_weights(path: &Path) -> bool {
    let holds = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0);
    !holds || TensorFile::read(path).is_ok()
}

/// Refuses a file of a setting that could not be written in the end.
pub fn check_writable(setting: &str, path: &Path) -> Result<()> {
    let wrong = |found: String| {
        let expected = "a file in a directory that is there and can be written to";
        Error::config(
            setting,
            expected,
            format!("{}, {found}; make it so, or choose another file", path.display()),
        )
    };
    let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
        return Err(wrong("which is a directory".to_owned()));
    };
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let directory = parent.unwrap_or(Path::new("."));
    if !directory.is_dir() {
        let what = if directory.exists() { "is no directory" } else { "is not there" };
        return Err(wrong(format!("but {} {what}", directory.display())));
    }
    // Permissions do not tell all, such as a file system that is only read.
    let trial = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
    let trial = directory.join(trial);
    let made = disk::File::create(&trial).and_then(|_| disk::remove_file(&trial));
    made.map_err(|error| wrong(format!("where nothing can be written ({error})")))
}

/// Refuses a file to write whose name is that of a run: it would be taken for it from then on.
pub fn check_no_run(setting: &str, path: &Path) -> Result<()> {
    let run = resolve(path);
    if run == path || !run.join(files::CONFIG).exists() {
        return Ok(());
    }
    let expected = "a name that no run has, such as one with an extension";
    let found = format!("{}, which is the run {}", path.display(), run.display());
    Err(Error::config(setting, expected, found))
}

/// Refuses to replace a file that is no weights.
pub fn check_weights(setting: &str, path: &Path) -> Result<()> {
    if takes_weights(path) {
        return Ok(());
    }
    let found = format!("{}, which is something else; choose another file", path.display());
    Err(Error::config(setting, "a new file, or weights to replace", found))
}

/// Refuses a run's directory with a link in it, or in its directory of checkpoints: a run that
/// goes on would write and remove files elsewhere.
fn refuse_links(run: &Path) -> Result<()> {
    for directory in [run.to_owned(), run.join(files::CHECKPOINTS)] {
        let entries = match disk::list(&directory) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            listed => listed.map_err(|source| Error::Io { path: directory, source })?,
        };
        if let Some(link) = entries.iter().map(fs::DirEntry::path).find(|path| path.is_symlink()) {
            let found = format!("{}, which is a link; remove it", link.display());
            return Err(Error::config("run", "files in the directory itself", found));
        }
    }
    Ok(())
}

impl RunDirectory {
    /// A new directory with a name of its own.
    pub fn numbered(model: &str, data: &str) -> Result<PathBuf> {
        let stem = |text: &str| {
            let name = Path::new(text).file_stem().unwrap_or_default().to_string_lossy();
            let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
            name.chars().map(plain).collect::<String>()
        };
        let runs = Path::new(RUNS);
        let io = |source| Error::Io { path: runs.to_owned(), source };
        create_directories(runs)?;
        for number in 1u64.. {
            let path = runs.join(format!("{}-{}-{number}", stem(model), stem(data)));
            match create_directory(&path) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| path).map_err(io),
            }
        }
        Err(io(std::io::ErrorKind::AlreadyExists.into()))
    }

    /// Takes a directory for this process alone; makes it where there is none.
    pub fn take(path: PathBuf, keep: usize) -> Result<(Self, Checkpoints)> {
        refuse_links(&path)?;
        let checkpoints =
            Checkpoints::open(path.join(files::CHECKPOINTS), keep).map_err(|e| match e {
                Error::Config(at) => Error::config(at.what, at.expected, path.display()),
                error => error,
            })?;
        remove_temporary(&path)?;
        Ok((Self { path }, checkpoints))
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the run has ended.
    pub fn has_result(&self) -> bool {
        has_result(&self.path)
    }

    /// Writes a file whole.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        // What is there already needs no room.
        if disk::read(&self.path.join(name)).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        replace(self.path.join(name), |out| out.write_all(text.as_bytes()))
            .map_err(Error::while_writing)
    }

    /// Removes a file, where it is there.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match disk::remove_file(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|source| Error::Write { path, source }),
        }
    }

    /// Writes the files that are known beforehand, and adds a line to the sessions: who
    /// starts or resumes the run, from which step. Returns the session's number, from 1.
    pub fn begin(&self, texts: &[(&str, String)], start: &Start, step: u64) -> Result<u64> {
        // An earlier result is out of date now.
        self.remove(files::RESULT)?;
        texts.iter().try_for_each(|(name, text)| self.write(name, text))?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut line = start.about.clone();
        line["started"] = json!(now.map_or(0, |d| d.as_secs()));
        line["from_step"] = json!(step);
        line["seed"] = json!(start.seed);
        line["command"] = json!(start.command);
        let path = self.path.join(files::SESSIONS);
        // A process that was killed may have left half a line.
        mend(&path, "{\"damaged\":true}\n")?;
        mend(&self.path.join(files::ENERGY), "")?;
        let before = disk::read_to_string(&path).unwrap_or_default();
        let mut sessions = Growing::open(path);
        sessions.add(format!("{line}\n").as_bytes()).and_then(|()| sessions.finish())?;
        Ok(before.lines().count() as u64 + 1)
    }

    /// A file of lines, which more are added to.
    pub fn growing(&self, name: &str) -> Growing {
        Growing::open(self.path.join(name))
    }

    /// Writes what a step is predicted to take.
    pub fn predicted(&self, predicted: &Predicted) -> Result<()> {
        let text = serde_json::to_string(predicted).unwrap_or_default();
        self.write(files::PREDICTION, &(text + "\n"))
    }

    /// Notes what may be given anew of a run that has ended.
    pub fn configure(&self, config: &str) -> Result<()> {
        self.write(files::CONFIG, config)
    }

    /// Writes what there is to say about a run that has ended, behind its weights.
    pub fn conclude(&self, result: &Value) -> Result<()> {
        self.write(files::RESULT, &format!("{result:#}\n"))
    }

    /// The file of the final weights.
    pub fn weights(&self) -> PathBuf {
        self.path.join(files::WEIGHTS)
    }

    /// `metrics.jsonl`: one line per epoch.
    pub fn metrics(&self) -> Log {
        let line = |record: &EpochRecord| EpochMetrics::from(record).line().into_bytes();
        Log { file: self.growing(files::METRICS), head: Vec::new(), line }
    }

    /// TensorBoard's file.
    pub fn tensorboard(&self) -> Log {
        let file = self.growing(files::TENSORBOARD);
        Log { file, head: tensorboard::head(), line: tensorboard::epoch }
    }
}

/// The start of a session: one line of `sessions.jsonl`.
pub struct Start {
    /// Version, commit and machine.
    pub about: Value,
    /// The seed of the run.
    pub seed: u64,
    /// The command line.
    pub command: Vec<String>,
}

/// A file that grows by one record per epoch.
pub struct Log {
    file: Growing,
    head: Vec<u8>,
    line: fn(&EpochRecord) -> Vec<u8>,
}

impl Log {
    /// Makes the file say what the run knows: nothing of what an earlier process
    /// did after its last checkpoint.
    pub fn rewrite(&mut self, history: &[EpochRecord]) -> Result<()> {
        let mut bytes = self.head.clone();
        bytes.extend(history.iter().flat_map(self.line));
        self.file.rewrite(&bytes)
    }

    /// Adds an epoch.
    pub fn add(&mut self, record: &EpochRecord) -> Result<()> {
        self.file.add(&(self.line)(record))
    }

    /// Brings all epochs to the disk.
    pub fn finish(&mut self) -> Result<()> {
        self.file.finish()
    }
}
