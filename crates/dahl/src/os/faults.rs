//! Faults that are injected on purpose, and a record of what was done.
//!
//! The only state of the crate that is the process' own: it is set once, before anything else
//! is done, and is not there without the feature `faults`.

use super::Op;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The injected faults.
enum Plan {
    Fail(Fail),
    Record(File),
}

/// An operation that fails.
struct Fail {
    kind: String,
    /// A part of its path; all have the empty one.
    part: String,
    /// The number of operations before it.
    left: u64,
    /// Whether later ones fail, too.
    lasts: bool,
    how: How,
    /// The next write finds no room.
    torn: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Error(i32),
    Short,
    Torn,
}

/// The system's number of a disk that is full.
const FULL: i32 = 28;

static PLAN: OnceLock<Mutex<Plan>> = OnceLock::new();

fn plan() -> Option<MutexGuard<'static, Plan>> {
    PLAN.get().map(|plan| plan.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn inject(text: &str) -> Result<(), String> {
    let words: Vec<&str> = text.split(' ').collect();
    let wrong = || format!("{text}: expected fail KIND PART N ERROR or record FILE");
    let plan = match words[..] {
        ["record", file] => {
            let file = fs::OpenOptions::new().append(true).create(true).open(file);
            Plan::Record(file.map_err(|error| error.to_string())?)
        }
        ["fail", kind, part, count, how] => {
            let (count, lasts) = match count.strip_suffix("..") {
                Some(count) => (count, true),
                None => (count, false),
            };
            let how = match how {
                "short" => How::Short,
                "torn" => How::Torn,
                number => How::Error(number.parse().map_err(|_| wrong())?),
            };
            let part = part.trim_matches('*').to_owned();
            let left = count.parse().map_err(|_| wrong())?;
            let kind = kind.to_owned();
            Plan::Fail(Fail { kind, part, left, lasts, how, torn: false })
        }
        _ => return Err(wrong()),
    };
    PLAN.set(Mutex::new(plan)).map_err(|_| "faults are injected already".to_owned())
}

impl Fail {
    /// Whether this operation is the one.
    fn hits(&mut self, kind: &str, path: &Path) -> bool {
        if kind != self.kind || !path.to_string_lossy().contains(&self.part) {
            return false;
        }
        let hit = self.left == 1 || (self.left == 0 && self.lasts);
        self.left = self.left.saturating_sub(1);
        if hit {
            // Whoever injects it wants to know whether it came, and where.
            let _ = writeln!(io::stderr(), "fault: {kind} {}", path.display());
        }
        hit
    }
}

pub(super) fn perform<T>(op: Op<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let (kind, path, more) = described(&op);
    if let Some(mut plan) = plan()
        && let Plan::Fail(fail) = &mut *plan
        && fail.hits(kind, path)
        && let How::Error(number) = fail.how
    {
        return Err(io::Error::from_raw_os_error(number));
    }
    let done = act()?;
    record(kind, path, &more, &[]);
    Ok(done)
}

/// Writes bytes, or a part of them.
pub(super) fn write(
    path: &Path,
    bytes: &[u8],
    act: impl FnOnce(&[u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut bytes = bytes;
    if let Some(mut plan) = plan()
        && let Plan::Fail(fail) = &mut *plan
    {
        if std::mem::take(&mut fail.torn) {
            return Err(io::Error::from_raw_os_error(FULL));
        }
        if !bytes.is_empty() && fail.hits("write", path) {
            match fail.how {
                How::Error(number) => return Err(io::Error::from_raw_os_error(number)),
                how => {
                    bytes = &bytes[..bytes.len().div_ceil(2)];
                    fail.torn = how == How::Torn;
                }
            }
        }
    }
    let written = act(bytes)?;
    record("write", path, "", &bytes[..written]);
    Ok(written)
}

/// An operation in words: its kind, its path and what else it has.
fn described<'a>(op: &Op<'a>) -> (&'static str, &'a Path, String) {
    let none = String::new;
    match *op {
        Op::Create(path) => ("create", path, none()),
        Op::Append(path) => ("append", path, none()),
        Op::Open(path) => ("open", path, none()),
        Op::Read(path) => ("read", path, none()),
        Op::Cut(path, length) => ("cut", path, length.to_string()),
        Op::Sync(path) => ("sync", path, none()),
        Op::Lock(path) => ("lock", path, none()),
        Op::Rename(from, to) => ("rename", from, to.display().to_string()),
        Op::Remove(path) => ("remove", path, none()),
        Op::RemoveTree(path) => ("remove-tree", path, none()),
        Op::MakeDirectory(path) => ("mkdir", path, none()),
        Op::SyncDirectory(path) => ("sync-directory", path, none()),
        Op::List(path) => ("list", path, none()),
        Op::Spawn(name) => ("spawn", Path::new(name), none()),
    }
}

/// One line of four fields, and the bytes that were written.
fn record(kind: &str, path: &Path, more: &str, bytes: &[u8]) {
    if let Some(mut plan) = plan()
        && let Plan::Record(file) = &mut *plan
    {
        let mut line =
            format!("{kind}\t{}\t{more}\t{}\n", path.display(), bytes.len()).into_bytes();
        line.extend_from_slice(bytes);
        file.write_all(&line).expect("the record can be written");
    }
}
