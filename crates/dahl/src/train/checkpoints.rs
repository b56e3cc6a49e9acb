//! A directory of checkpoints, and the thread that writes them.

use super::checkpoint::{About, Checkpoint, State, position, write};
use crate::error::{Error, Result};
use crate::exec::Snapshot;
use crate::file::{create_directories, remove_temporary};
use crate::os::disk::{self, File};
use crate::os::threads::{self, JoinHandle};
use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// A directory of checkpoints that this process alone writes to.
///
/// The system gives the lock back when the process ends, however it ends.
#[derive(Debug)]
pub struct Checkpoints {
    directory: PathBuf,
    /// Number of checkpoints to keep, newest first; at least one.
    keep: usize,
    _lock: File,
}

impl Checkpoints {
    /// Opens the directory, makes it where there is none, and removes what
    /// processes that were killed left half written.
    ///
    /// # Errors
    /// [`Error::Config`] where another process has it open.
    pub fn open(directory: impl Into<PathBuf>, keep: usize) -> Result<Self> {
        let directory = directory.into();
        let path = directory.join("lock");
        let io = |source| Error::Io { path: path.clone(), source };
        create_directories(&directory)?;
        let lock = File::append(&path).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let expected = "a directory that no other process trains in";
                return Err(Error::config("run", expected, directory.display()));
            }
            // A file system without locks: people have to take care themselves.
            Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => return Err(io(e)),
        }
        remove_temporary(&directory)?;
        Ok(Self { directory, keep: keep.max(1), _lock: lock })
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The checkpoints, oldest first.
    pub fn list(&self) -> Result<Vec<PathBuf>> {
        list(&self.directory)
    }

    /// The newest whole checkpoint of a directory, which another process may be
    /// writing to; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Data`] where there are some and none is whole.
    pub fn newest_whole(directory: &Path) -> Result<Option<Checkpoint>> {
        // What is read may be removed meanwhile, when newer ones are there.
        let mut wrong = None;
        for _ in 0..3 {
            let paths = list(directory)?;
            if paths.is_empty() {
                return Ok(None);
            }
            for path in paths.into_iter().rev() {
                match Checkpoint::read(path) {
                    Ok(checkpoint) => return Ok(Some(checkpoint)),
                    // What is wrong with the newest says most.
                    Err(error) => wrong = wrong.or(Some(error)),
                }
            }
        }
        wrong.map_or(Ok(None), Err)
    }

    /// The newest checkpoint.
    pub fn latest(&self) -> Result<Option<Checkpoint>> {
        self.list()?.pop().map(Checkpoint::read).transpose()
    }
}

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let io = |source| Error::Io { path: directory.to_owned(), source };
    let mut found = Vec::new();
    for entry in disk::list(directory).map_err(io)? {
        let name = entry.file_name();
        if let Some(position) = name.to_str().and_then(position) {
            found.push((position, directory.join(name)));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Removes all but the newest. Each gets a name of its own first, and that on the disk, so that
/// no checkpoint is ever seen half removed.
fn prune(directory: &Path, keep: usize) -> Result<()> {
    let all = list(directory)?;
    for path in &all[..all.len().saturating_sub(keep)] {
        let io = |source| Error::Io { path: path.clone(), source };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let doomed = directory.join(format!(".{name}.{}.tmp", std::process::id()));
        disk::rename(path, &doomed)
            .and_then(|()| disk::sync_directory(directory))
            .and_then(|()| disk::remove_tree(&doomed))
            .map_err(io)?;
    }
    Ok(())
}

/// A checkpoint to write.
struct Job {
    state: State,
    values: Snapshot,
}

/// The name of the thread that writes checkpoints.
const THREAD: &str = "dahl-checkpoints";

/// Writes checkpoints on a thread of its own, one at a time.
pub(super) struct Writer {
    checkpoints: Checkpoints,
    jobs: Option<mpsc::Sender<Job>>,
    results: mpsc::Receiver<Result<PathBuf>>,
    thread: Option<JoinHandle<()>>,
    busy: bool,
    last: Option<PathBuf>,
}

impl Writer {
    pub(super) fn new(checkpoints: Checkpoints, about: About) -> Result<Self> {
        let (jobs, work) = mpsc::channel::<Job>();
        let (done, results) = mpsc::channel();
        let (directory, keep) = (checkpoints.directory.clone(), checkpoints.keep);
        let last = checkpoints.list()?.pop();
        let thread = threads::spawn(THREAD, move || {
            for job in work {
                // An old one that cannot be removed does not make the new one bad,
                // and is tried again with the next.
                let result = write(&directory, &job.state, job.values, &about)
                    .inspect(|_| drop(prune(&directory, keep)));
                if done.send(result).is_err() {
                    return;
                }
            }
        });
        let thread = Some(thread.map_err(|source| Error::thread(THREAD, source))?);
        Ok(Self { checkpoints, jobs: Some(jobs), results, thread, busy: false, last })
    }

    pub(super) fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// The newest whole checkpoint.
    pub(super) fn last(&self) -> Option<&Path> {
        self.last.as_deref()
    }

    /// Whether one is being written.
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Starts to write a checkpoint, when none is being written.
    pub(super) fn begin(&mut self, state: State, values: Snapshot) {
        debug_assert!(!self.busy, "one at a time");
        let jobs = self.jobs.as_ref();
        self.busy = jobs.is_some_and(|jobs| jobs.send(Job { state, values }).is_ok());
    }

    /// The result of the write in progress, if it has ended.
    pub(super) fn poll(&mut self) -> Option<Result<PathBuf>> {
        match self.results.try_recv() {
            Ok(result) => Some(self.ended(result)),
            Err(mpsc::TryRecvError::Disconnected) if self.busy => Some(self.ended(Err(gone()))),
            Err(_) => None,
        }
    }

    /// Waits for the one that is being written.
    pub(super) fn wait(&mut self) -> Option<Result<PathBuf>> {
        if !self.busy {
            return None;
        }
        let result = self.results.recv().unwrap_or_else(|_| Err(gone()));
        Some(self.ended(result))
    }

    fn ended(&mut self, result: Result<PathBuf>) -> Result<PathBuf> {
        self.busy = false;
        result.inspect(|path| self.last = Some(path.clone()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported as an error.
            let _ = thread.join();
        }
    }
}

fn gone() -> Error {
    Error::Task { task: "of checkpoints".to_owned(), message: "it ended early".to_owned() }
}
