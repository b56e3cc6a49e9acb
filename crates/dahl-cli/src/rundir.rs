//! The directory of a run: what it was, how it went, where it goes on.

use crate::machine;
use crate::output::quoted;
use crate::place::takes_weights;
use crate::samples::SampleArgs;
use crate::tensorboard;
use dahl::file::{create_directories, create_directory, remove_temporary, replace};
use dahl::graph::Programs;
use dahl::os::disk::{self, File};
use dahl::plan::{Numerics, Plan};
use dahl::train::{Checkpoints, EpochRecord};
use dahl::{Error, Result};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where runs are that have a name only.
const RUNS: &str = "runs";
/// The configuration of a run.
pub(crate) const CONFIG: &str = "config.toml";
/// The plan of a run.
pub(crate) const PLAN: &str = "plan.txt";
pub(crate) const RESULT: &str = "result.json";
/// The final weights of a run.
pub(crate) const WEIGHTS: &str = "weights.safetensors";
/// The directory of its checkpoints.
pub(crate) const CHECKPOINTS: &str = "checkpoints";

/// A run's directory, which no other process trains in.
#[derive(Clone)]
pub(crate) struct RunDir {
    path: PathBuf,
}

/// The directory of a run by its name, or by its path where there is a separator.
pub(crate) fn resolve(name: &Path) -> PathBuf {
    let bare = name.components().count() == 1
        && matches!(name.components().next(), Some(std::path::Component::Normal(_)));
    if bare { Path::new(RUNS).join(name) } else { name.to_owned() }
}

/// The directory of a run that is there: one of another place may be named too.
pub(crate) fn find(name: &Path) -> PathBuf {
    let path = resolve(name);
    if !path.is_dir() && name.is_dir() { name.to_owned() } else { path }
}

/// Refuses a file to write whose name is that of a run: it would be taken for it from then on.
pub(crate) fn check_no_run(flag: &str, path: &Path) -> Result<()> {
    let run = resolve(path);
    if run == path || !run.join(CONFIG).exists() {
        return Ok(());
    }
    let expected = "a name that no run has, such as one with an extension";
    let found = format!("{}, which is the run {}", path.display(), run.display());
    Err(Error::config(flag, expected, found))
}

/// What to say of a directory without a run: which runs there are.
pub(crate) fn no_run(key: &str, path: &Path) -> Error {
    const SHOWN: usize = 10;
    let entries = disk::list(Path::new(RUNS)).into_iter().flatten();
    let runs = entries.filter(|entry| entry.path().join(CONFIG).exists());
    let mut names: Vec<String> =
        runs.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let there = match (names.is_empty(), more) {
        (true, _) => format!("there is no run in {RUNS}"),
        (false, 0) => format!("{RUNS} has {}", names.join(", ")),
        (false, more) => format!("{RUNS} has {} and {more} more", names.join(", ")),
    };
    let lacks = if path.is_dir() { format!("has no {CONFIG}") } else { "is not there".to_owned() };
    let found = format!("{}, which {lacks}; {there}", path.display());
    Error::config(key, "the directory of a run, or its name in runs", found)
}

/// Whether the run of a directory has ended: its final weights are there.
pub(crate) fn has_result(path: &Path) -> bool {
    path.join(RESULT).exists() && path.join(WEIGHTS).exists()
}

/// The numerics of a run's plan.
///
/// # Errors
/// Where it cannot be read or is of other programs.
pub(crate) fn numerics(run: &Path, programs: &Programs) -> Result<Numerics> {
    let path = run.join(PLAN);
    let text = disk::read_to_string(&path);
    let text = text.map_err(|source| Error::Io { path: path.clone(), source })?;
    let plan = Plan::parse(&text, programs).map_err(|error| {
        Error::data(&path, "plan", "that of the run, with the kernels that it has", error)
    })?;
    Ok(plan.numerics)
}

/// The hash of the tensors that a run has ended with.
pub(crate) fn weights_sha256(run: &Path) -> Result<String> {
    let path = run.join(RESULT);
    let text = disk::read(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    let result: Value = serde_json::from_slice(&text)
        .map_err(|e| Error::data(&path, "result", "a JSON object", e))?;
    let hash = result["weights_sha256"].as_str().map(str::to_owned);
    hash.ok_or_else(|| Error::data(&path, "weights_sha256", "a hash", "none"))
}

/// Refuses a directory that has a run.
pub(crate) fn refuse_old(path: &Path) -> Result<()> {
    if !path.join(CONFIG).exists() {
        return Ok(());
    }
    let next = format!("go on with it by --resume {}, or take another name", quoted(path));
    let path = path.display();
    Err(Error::config("run", "a directory without a run", format!("{path}, which has one; {next}")))
}

/// Refuses to write to a file that a run's configuration names, unless it is in the run's
/// directory or the current one: a run that somebody else made names what they like.
pub(crate) fn refuse_outside(run: &Path, save: &Path) -> Result<()> {
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
    let expected =
        "a file in the run directory, or weights in the current one, or the file given anew";
    let again = format!("{} in {}", save.display(), run.join(CONFIG).display());
    Err(Error::config(
        "save",
        expected,
        format!("{again}; to write there: --save {}", quoted(save)),
    ))
}

/// Refuses a run's directory with a link in it, or in its directory of checkpoints: a run that
/// goes on would write and remove files elsewhere.
fn refuse_links(run: &Path) -> Result<()> {
    for directory in [run.to_owned(), run.join(CHECKPOINTS)] {
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

impl RunDir {
    /// A new directory with a name of its own.
    pub(crate) fn numbered(samples: &SampleArgs) -> Result<PathBuf> {
        let stem = |text: &str| {
            let name = Path::new(text).file_stem().unwrap_or_default().to_string_lossy();
            let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
            name.chars().map(plain).collect::<String>()
        };
        let (model, data) = samples.names();
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
    pub(crate) fn take(path: PathBuf, keep: usize) -> Result<(Self, Checkpoints)> {
        refuse_links(&path)?;
        let checkpoints = Checkpoints::open(path.join(CHECKPOINTS), keep).map_err(|e| match e {
            Error::Config { key, expected, .. } => Error::config(&key, expected, path.display()),
            error => error,
        })?;
        remove_temporary(&path)?;
        Ok((Self { path }, checkpoints))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the run has ended.
    pub(crate) fn has_result(&self) -> bool {
        has_result(&self.path)
    }

    /// Writes a file whole.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        // What is there already needs no room.
        if disk::read(&self.path.join(name)).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        replace(self.path.join(name), |out| out.write_all(text.as_bytes()))
            .map_err(Error::while_writing)
    }

    /// Removes a file, where it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match disk::remove_file(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|source| Error::Write { path, source }),
        }
    }

    /// Writes what is known beforehand, and notes who starts the run, or goes on
    /// with it, from which step. Gives the number of the session, from 1.
    pub(crate) fn begin(&self, texts: &[(&str, String)], seed: u64, step: u64) -> Result<u64> {
        // What an earlier end said is true no more.
        self.remove(RESULT)?;
        texts.iter().try_for_each(|(name, text)| self.write(name, text))?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut line = machine::about();
        line["started"] = json!(now.map_or(0, |d| d.as_secs()));
        line["from_step"] = json!(step);
        line["seed"] = json!(seed);
        line["command"] = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
        let path = self.path.join("sessions.jsonl");
        // A process that was killed may have left half a line.
        mend(&path, "{\"damaged\":true}\n")?;
        mend(&self.path.join(dahl::report::files::ENERGY), "")?;
        let before = disk::read_to_string(&path).unwrap_or_default();
        let mut sessions = Growing::open(path);
        sessions.add(format!("{line}\n").as_bytes()).and_then(|()| sessions.finish())?;
        Ok(before.lines().count() as u64 + 1)
    }

    /// A file of lines, which more are added to.
    pub(crate) fn growing(&self, name: &str) -> Growing {
        Growing::open(self.path.join(name))
    }

    /// Notes what may be given anew of a run that has ended.
    pub(crate) fn configure(&self, config: &str) -> Result<()> {
        self.write(CONFIG, config)
    }

    /// Writes what there is to say about a run that has ended, behind its weights.
    pub(crate) fn conclude(&self, result: &Value) -> Result<()> {
        self.write(RESULT, &format!("{result:#}\n"))
    }

    /// The file of the final weights.
    pub(crate) fn weights(&self) -> PathBuf {
        self.path.join(WEIGHTS)
    }

    /// `metrics.jsonl`: a line an epoch.
    pub(crate) fn metrics(&self) -> Log {
        let line = |record: &EpochRecord| format!("{}\n", metrics(record)).into_bytes();
        Log { file: self.growing("metrics.jsonl"), head: Vec::new(), line }
    }

    /// TensorBoard's file.
    pub(crate) fn tensorboard(&self) -> Log {
        let file = self.growing(tensorboard::FILE);
        Log { file, head: tensorboard::head(), line: tensorboard::epoch }
    }
}

/// A file that grows by a record an epoch.
pub(crate) struct Log {
    file: Growing,
    head: Vec<u8>,
    line: fn(&EpochRecord) -> Vec<u8>,
}

impl Log {
    /// Makes the file say what the run knows: nothing of what an earlier process
    /// did after its last checkpoint.
    pub(crate) fn rewrite(&mut self, history: &[EpochRecord]) -> Result<()> {
        let mut bytes = self.head.clone();
        bytes.extend(history.iter().flat_map(self.line));
        self.file.rewrite(&bytes)
    }

    /// Adds an epoch.
    pub(crate) fn add(&mut self, record: &EpochRecord) -> Result<()> {
        self.file.add(&(self.line)(record))
    }

    /// Brings all epochs to the disk.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.file.finish()
    }
}

/// A file that grows by records, each of which is in it whole and once.
///
/// A record that could not be written is kept and written before the next; what there is of
/// it in the file is cut off first.
#[derive(Debug)]
pub(crate) struct Growing {
    path: PathBuf,
    /// The length of the file without what was written of `pending`.
    whole: u64,
    pending: Vec<u8>,
}

impl Growing {
    /// The file as it is, or one that the first record makes.
    fn open(path: PathBuf) -> Self {
        let whole = fs::metadata(&path).map_or(0, |about| about.len());
        Self { path, whole, pending: Vec::new() }
    }

    /// Makes the file hold these bytes alone.
    fn rewrite(&mut self, bytes: &[u8]) -> Result<()> {
        replace(&self.path, |out| out.write_all(bytes)).map_err(Error::while_writing)?;
        (self.whole, self.pending) = (bytes.len() as u64, Vec::new());
        Ok(())
    }

    /// Adds a record, behind those that could not be written before.
    pub(crate) fn add(&mut self, record: &[u8]) -> Result<()> {
        self.pending.extend_from_slice(record);
        self.write().map(drop)
    }

    /// Writes what is left to be written, and brings the file to the disk.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let file = self.write()?;
        file.sync().map_err(|source| Error::Write { path: self.path.clone(), source })
    }

    fn write(&mut self) -> Result<File> {
        let written = || {
            let mut file = File::append(&self.path)?;
            let length = file.metadata()?.len();
            if length > self.whole {
                file.cut(self.whole)?;
            }
            if let Err(error) = file.write_all(&self.pending) {
                // Where this fails too, it is done before the next record.
                let _ = file.cut(self.whole);
                return Err(error);
            }
            Ok((file, length.min(self.whole) + self.pending.len() as u64))
        };
        let (file, whole) =
            written().map_err(|source| Error::Write { path: self.path.clone(), source })?;
        (self.whole, self.pending) = (whole, Vec::new());
        Ok(file)
    }
}

/// Replaces a last line that is not whole.
fn mend(path: &Path, by: &str) -> Result<()> {
    let bytes = match disk::read(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(|source| Error::Io { path: path.to_owned(), source })?,
    };
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    if whole == bytes.len() {
        return Ok(());
    }
    let bytes = [&bytes[..whole], by.as_bytes()].concat();
    replace(path, |out| out.write_all(&bytes)).map_err(Error::while_writing)
}

/// The numbers of an epoch; `seconds`, `samples_per_second` and `time` are the
/// only ones that differ from run to run.
pub(crate) fn metrics(record: &EpochRecord) -> Value {
    let train = &record.train;
    let mut line = json!({
        "epoch": record.epoch,
        "steps": record.steps,
        "loss": train.loss(),
        "accuracy": train.accuracy(),
        "seconds": record.seconds,
        "samples_per_second": speed(record),
        "time": record.time,
    });
    if let Some(lr) = record.lr {
        line["lr"] = json!(lr);
    }
    for (name, pass) in &record.judged {
        line[format!("{name}_loss")] = json!(pass.loss());
        line[format!("{name}_accuracy")] = json!(pass.accuracy());
    }
    line
}

/// Training samples a second.
pub(crate) fn speed(record: &EpochRecord) -> f64 {
    record.train.samples as f64 / record.seconds.max(1e-9)
}
