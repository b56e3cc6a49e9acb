//! Campaigns against small runs: every operation on files and threads fails once, and the power
//! fails between any two of them.
//!
//! By default some of the points are tried, evenly spread; `CAMPAIGN=all` tries all of them and
//! prints how many there are (`scripts/fault_campaign.sh`).

use crate::disk::{Disk, Entries, Unsynced};
use dahl::file::TensorFile;
use dahl::train::Checkpoint;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

const MODEL: &str = "input = [1, 2, 2]\nlayers = [{ type = \"flatten\" }, \
                     { type = \"linear\", out = 2 }]\n";

/// A run of two epochs with two steps each that writes everything that a run can write.
const TRAIN: [&str; 23] = [
    "train",
    "--model",
    "tiny.toml",
    "--data",
    "synthetic:1x2x2:2",
    "--limit",
    "4",
    "--batch",
    "2",
    "--epochs",
    "2",
    "--workers",
    "2",
    "--checkpoint-every",
    "1",
    "--keep",
    "1",
    "--trace",
    "--tensorboard",
    "--save",
    "w.safetensors",
    "--run",
    "r",
];

/// A run that was moved is told anew where to save to.
const RESUME: [&str; 5] = ["train", "--resume", "r", "--save", "w.safetensors"];

/// Commands that look at a run that has ended, each with the files that it writes.
const LOOK: [(&[&str], &[&str]); 3] = [
    (&["report", "r", "-o", "page.html"], &["page.html"]),
    (&["trace", "r", "--format", "csv", "-o", "trace.csv"], &["trace.csv"]),
    (
        &["export", "--run", "r", "--to", "e.safetensors", "--module", "m.py"],
        &["e.safetensors", "m.py"],
    ),
];

/// What a command did.
struct Ran {
    code: Option<i32>,
    stderr: String,
}

fn dahl(place: &Path, args: &[&str], faults: Option<&str>) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dahl"));
    command.current_dir(place).args(args).env("RUST_BACKTRACE", "0");
    command.envs(faults.map(|faults| ("FAULTS", faults)));
    let output = command.output().expect("dahl runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ran { code: output.status.code(), stderr }
}

/// A directory of a campaign, removed at its end.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("dahl-campaign-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    /// A new directory with a model in it.
    fn place(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir(&path).expect("a directory");
        fs::write(path.join("tiny.toml"), MODEL).expect("a model");
        path
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An operation as it was recorded.
pub(crate) struct Op {
    pub(crate) kind: String,
    pub(crate) path: String,
    pub(crate) more: String,
    pub(crate) bytes: Vec<u8>,
}

/// Runs a command and records its operations.
fn record(place: &Path, args: &[&str]) -> Vec<Op> {
    let log = place.with_extension("log");
    let faults = format!("record {}", log.display());
    let ran = dahl(place, args, Some(&faults));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let bytes = fs::read(&log).expect("a record");
    fs::remove_file(&log).expect("a record");
    // A file that is replaced is named by its whole path.
    let root = fs::canonicalize(place).expect("a directory").display().to_string();
    let near = |path: &str| match path.strip_prefix(&root) {
        Some(inside) => format!(".{inside}"),
        None => path.to_owned(),
    };
    let mut rest = &bytes[..];
    let mut ops = Vec::new();
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let line = std::str::from_utf8(&rest[..end]).expect("text");
        let [kind, path, more, length] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}: expected four fields");
        };
        let (bytes, after) = rest[end + 1..].split_at(length.parse().expect("a length"));
        let (kind, path, more) = (kind.to_owned(), near(path), near(more));
        ops.push(Op { kind, path, more, bytes: bytes.to_vec() });
        rest = after;
    }
    ops
}

/// What a run gave: the hash of its weights, and metrics without times.
fn gave(place: &Path) -> Result<(String, Vec<Value>), String> {
    let read = |file: &str| {
        fs::read_to_string(place.join("runs/r").join(file)).map_err(|e| format!("{file}: {e}"))
    };
    let json = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| format!("{text}: {e}"));
    let result = json(&read("result.json")?)?;
    let hash = result["weights_sha256"].as_str().unwrap_or_default().to_owned();
    for file in ["runs/r/weights.safetensors", "w.safetensors"] {
        let weights = TensorFile::read(place.join(file)).map_err(|e| e.to_string())?;
        if weights.sha256() != hash {
            return Err(format!("{file} has other weights than result.json says"));
        }
    }
    let metrics = read("metrics.jsonl")?.lines().map(json).collect::<Result<Vec<Value>, _>>()?;
    let timeless = |mut line: Value| {
        for key in ["seconds", "samples_per_second", "time"] {
            line[key] = Value::Null;
        }
        line
    };
    Ok((hash, metrics.into_iter().map(timeless).collect()))
}

/// Whether every file of a run that has its name is whole.
fn whole(directory: &Path) -> Result<(), String> {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let wrong = |what: String| format!("{}: {what}", path.display());
        if name.starts_with('.') {
            continue;
        }
        if name.starts_with("epoch-") {
            Checkpoint::read(&path).map_err(|error| error.to_string())?;
        } else if path.is_dir() {
            whole(&path)?;
        } else if name.ends_with(".safetensors") {
            TensorFile::read(&path).map_err(|error| error.to_string())?;
        } else {
            let text = String::from_utf8_lossy(&fs::read(&path).expect("a file")).into_owned();
            let lines = || text.lines().map(serde_json::from_str::<Value>);
            let fine = match name.rsplit('.').next() {
                Some("json") => serde_json::from_str::<Value>(&text).is_ok(),
                Some("jsonl") => {
                    text.is_empty() || text.ends_with('\n') && lines().all(|l| l.is_ok())
                }
                Some("toml") => text.parse::<toml::Table>().is_ok(),
                _ => true,
            };
            if !fine {
                return Err(wrong(format!("is not whole: {text:?}")));
            }
        }
    }
    Ok(())
}

/// Goes on with a run until it has ended, as a person would, and compares what it gave.
fn goes_on(place: &Path, on: &[&str], expected: &(String, Vec<Value>)) -> Result<(), String> {
    let begun = place.join("runs/r/config.toml").exists();
    let ran = dahl(place, if begun { on } else { &TRAIN }, None);
    if ran.code != Some(0) {
        return Err(format!("goes on with {:?}: {}", ran.code, ran.stderr));
    }
    whole(&place.join("runs/r"))?;
    let found = gave(place)?;
    if found == *expected { Ok(()) } else { Err(format!("goes on to {found:?}")) }
}

/// Whether all of them are to be tried.
fn all() -> bool {
    std::env::var_os("CAMPAIGN").is_some_and(|which| which == "all")
}

/// Some of the jobs, evenly spread, or all of them.
fn chosen<T>(jobs: Vec<T>, some: usize) -> Vec<T> {
    let count = jobs.len();
    let some = if all() { count } else { some.min(count) };
    let spread: BTreeSet<usize> = (0..some).map(|i| (2 * i + 1) * count / (2 * some)).collect();
    jobs.into_iter().enumerate().filter(|(i, _)| spread.contains(i)).map(|(_, job)| job).collect()
}

/// Does jobs on all processors; returns what went wrong with which.
fn done<T: Sync>(jobs: &[T], job: impl Fn(usize, &T) -> Result<(), String> + Sync) -> Vec<String> {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((i, of)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, jobs.get(i)?)))
        {
            if let Err(what) = job(i, of) {
                wrong.lock().unwrap_or_else(PoisonError::into_inner).push(what);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    wrong.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The faults that an operation may have, as numbers of the system's errors.
fn faults(kind: &str) -> &'static [&'static str] {
    const EIO: &str = "5";
    const FULL: &str = "28";
    match kind {
        "write" => &["4", EIO, FULL, "short", "torn"],
        "read" => &["4", EIO],
        "create" | "append" | "mkdir" | "rename" | "cut" => &[EIO, FULL],
        "spawn" => &["11"],
        _ => &[EIO],
    }
}

/// The faults of all operations of a record, each alone and, but for what is tried again or
/// goes on anyway, from there on.
fn plans(ops: &[Op]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    ops.iter().for_each(|op| *counts.entry(op.kind.as_str()).or_default() += 1);
    let mut plans = Vec::new();
    for (kind, count) in counts {
        for n in 1..=count {
            for fault in faults(kind) {
                plans.push(format!("fail {kind} * {n} {fault}"));
                if !["4", "short", "torn"].contains(fault) {
                    plans.push(format!("fail {kind} * {n}.. {fault}"));
                }
            }
        }
    }
    plans
}

/// The files and threads of the faults that were injected, as people know them: a temporary
/// file is known by what it becomes.
fn struck(stderr: &str) -> Vec<String> {
    let name = |part: &str| match part.strip_prefix('.').and_then(|part| part.strip_suffix(".tmp"))
    {
        Some(part) => part.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').to_owned(),
        None => part.to_owned(),
    };
    let paths = stderr.lines().filter_map(|line| line.strip_prefix("fault: ")?.split_once(' '));
    paths.filter_map(|(_, path)| path.rsplit('/').next().map(name)).collect()
}

/// What holds of every command that met a fault.
fn fair(ran: &Ran) -> Result<(), String> {
    let told = || format!("{:?}: {}", ran.code, ran.stderr);
    if ran.stderr.contains("panicked") || !ran.code.is_some_and(|code| [0, 1, 2, 4].contains(&code))
    {
        return Err(told());
    }
    let said: Vec<&str> = ran.stderr.lines().filter(|line| !line.starts_with("fault: ")).collect();
    // The current directory has no name.
    let known = |name: &String| name == "." || said.iter().any(|line| line.contains(name));
    let named = struck(&ran.stderr).iter().any(known);
    let error = said.iter().any(|line| line.starts_with("error: "));
    if ran.code != Some(0) && !(error && named) { Err(told()) } else { Ok(()) }
}

/// A run whose operation fails says so, leaves nothing half written and goes on to the same bits.
#[test]
fn every_operation_of_a_run_may_fail() {
    let root = Root::new("train");
    let place = root.place("whole");
    let ops = record(&place, &TRAIN);
    let expected = gave(&place).expect("a run");
    let plans = plans(&ops);
    let points = plans.len();
    let plans = chosen(plans, 14);
    let (hits, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong = done(&plans, |i, plan| {
        let place = root.place(&i.to_string());
        let ran = dahl(&place, &TRAIN, Some(plan));
        hits.fetch_add(usize::from(ran.stderr.contains("fault: ")), Ordering::Relaxed);
        let checked = fair(&ran).and_then(|()| whole(&place.join("runs/r"))).and_then(|()| {
            if ran.code == Some(0) {
                let found = gave(&place)?;
                return if found == expected { Ok(()) } else { Err(format!("gave {found:?}")) };
            }
            failed.fetch_add(1, Ordering::Relaxed);
            goes_on(&place, &RESUME, &expected)
        });
        fs::remove_dir_all(&place).expect("a directory");
        checked.map_err(|what| format!("{plan}: {what}\nafter {:?}: {}", ran.code, ran.stderr))
    });
    println!(
        "train: {} operations, {} of {points} faults tried, {} met, {} runs failed and went on, {} wrong",
        ops.len(),
        plans.len(),
        hits.into_inner(),
        failed.into_inner(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// A command that looks at a run says what it could not read or write, and leaves no half file.
#[test]
fn every_operation_of_a_look_at_a_run_may_fail() {
    let root = Root::new("look");
    let place = root.place("whole");
    assert_eq!(dahl(&place, &TRAIN, None).code, Some(0));
    let mut jobs = Vec::new();
    let mut expected = BTreeMap::new();
    for (args, files) in LOOK {
        let ops = record(&place, args);
        for file in files {
            expected.insert(*file, fs::read(place.join(file)).expect(file));
        }
        jobs.extend(plans(&ops).into_iter().map(|plan| (args, files, plan)));
    }
    let points = jobs.len();
    let jobs = chosen(jobs, 9);
    let runs = place.join("runs");
    let wrong = done(&jobs, |i, (args, files, plan)| {
        let place = root.place(&i.to_string());
        // Nothing is written to it.
        #[cfg(unix)]
        std::os::unix::fs::symlink(&runs, place.join("runs")).expect("a link");
        let ran = dahl(&place, args, Some(plan));
        let same =
            |file: &&str| fs::read(place.join(file)).is_ok_and(|bytes| bytes == expected[*file]);
        let checked = fair(&ran).and_then(|()| {
            let told = ran.stderr.contains("warning: ");
            let there = files.iter().filter(|file| place.join(file).exists());
            if !told && !there.clone().all(same) {
                return Err("left another file".to_owned());
            }
            if ran.code == Some(0) && there.count() < files.len() {
                return Err("left no file".to_owned());
            }
            let again = dahl(&place, args, None);
            let fine = again.code == Some(0) && files.iter().all(same);
            if fine { Ok(()) } else { Err(format!("{:?} then: {}", again.code, again.stderr)) }
        });
        fs::remove_dir_all(&place).expect("a directory");
        checked.map_err(|what| {
            format!("{args:?}: {plan}: {what}\nafter {:?}: {}", ran.code, ran.stderr)
        })
    });
    println!(
        "report, trace, export: {} of {points} faults tried, {} wrong",
        jobs.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Goes on with a run that has ended.
const LONGER: [&str; 7] = ["train", "--resume", "r", "--save", "w.safetensors", "--epochs", "3"];

/// Whatever a loss of power leaves of a run, or of one that is made longer, goes on to the same
/// bits.
#[test]
fn a_run_survives_a_loss_of_power_at_every_point() {
    let root = Root::new("power");
    let place = root.place("whole");
    let mut disk = Disk::new(&[("tiny.toml", MODEL.as_bytes())]);
    let mut jobs = Vec::new();
    let mut expected = Vec::new();
    let mut operations = 0;
    for (session, (args, on)) in
        [(&TRAIN[..], &RESUME[..]), (&LONGER, &LONGER)].into_iter().enumerate()
    {
        let mut states = BTreeSet::new();
        let ops = record(&place, args);
        for op in &ops {
            disk.interrupted(op).into_iter().for_each(|disk| states.extend(disk.states()));
            disk.apply(op);
            states.extend(disk.states());
        }
        // What was reported as done is on the disk.
        let last = root.place(&format!("last-{session}"));
        disk.state(Entries::Lost, Unsynced::Dropped).write(&last);
        expected.push(gave(&place).expect("a run"));
        assert_eq!(gave(&last).as_ref(), Ok(&expected[session]));
        whole(&last).expect("whole files");
        operations += ops.len();
        jobs.extend(states.into_iter().map(|state| (session, on, state)));
    }
    let count = jobs.len();
    let jobs = chosen(jobs, 14);
    let wrong = done(&jobs, |i, (session, on, state)| {
        let place = root.0.join(i.to_string());
        fs::create_dir(&place).expect("a directory");
        state.write(&place);
        let checked = goes_on(&place, on, &expected[*session]);
        fs::remove_dir_all(&place).expect("a directory");
        checked.map_err(|what| format!("{what}\nfrom {state:?}"))
    });
    println!(
        "power: {operations} operations, {} of {count} states tried, {} wrong",
        jobs.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// A loss of power brought the name of an old checkpoint back that was half removed, and took
/// the line of a start.
#[test]
fn what_others_rely_on_is_synced_first() {
    let root = Root::new("order");
    let ops = record(&root.place("whole"), &TRAIN);
    let at = |kind: &str, part: &str, from: usize| {
        let found = ops[from..].iter().position(|op| op.kind == kind && op.path.ends_with(part));
        from + found.unwrap_or_else(|| panic!("no {kind} of {part} from {from} on"))
    };
    let mut removed = 0;
    for (i, op) in ops.iter().enumerate().filter(|(_, op)| op.kind == "remove-tree") {
        let renamed = ops.iter().position(|of| of.kind == "rename" && of.more == op.path);
        assert!(at("sync-directory", "/checkpoints", renamed.expect("a name of its own")) < i);
        removed += 1;
    }
    assert!(removed > 0);
    let first = at("mkdir", ".tmp", 0);
    assert!(at("sync", "sessions.jsonl", 0) < first, "before the first checkpoint");
}
