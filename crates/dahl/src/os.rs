//! Access to the system's files and threads.
//!
//! Every file that is written, every file of dahl's own that is read and every thread goes
//! through the functions of this module (`tests/it/layers.rs` reads the sources), so that with
//! the feature `faults` each of these operations can be made to fail, and what a run did to the
//! disk can be recorded.

pub mod disk;
pub mod threads;

#[cfg(feature = "faults")]
mod faults;

use std::io;
use std::path::Path;

/// The environment variable that describes faults, where they can be injected: with the feature
/// `faults` alone.
pub const FAULTS: Option<&str> = if cfg!(feature = "faults") { Some("FAULTS") } else { None };

/// From now on operations of this process fail, or are recorded, as `text` says.
///
/// `fail KIND PART N ERROR` makes the N-th operation of a kind fail whose path contains PART,
/// `fail KIND PART N.. ERROR` that and all later ones; PART may be `*`. ERROR is the number of
/// the system's error, or `short` (half of the bytes are written) or `torn` (half of the bytes
/// are written and the next write finds the disk full). `record FILE` appends every operation
/// that succeeds to a file.
///
/// # Errors
/// Where it is none of these, is not the first call, or faults cannot be injected.
pub fn inject(text: &str) -> Result<(), String> {
    #[cfg(feature = "faults")]
    return faults::inject(text);
    #[cfg(not(feature = "faults"))]
    Err(format!("{text}: this build injects no faults"))
}

/// An operation that may fail.
#[cfg_attr(not(feature = "faults"), expect(dead_code, reason = "what is recorded"))]
#[derive(Clone, Copy, Debug)]
enum Op<'a> {
    Create(&'a Path),
    Append(&'a Path),
    Open(&'a Path),
    Read(&'a Path),
    Cut(&'a Path, u64),
    Sync(&'a Path),
    Lock(&'a Path),
    Rename(&'a Path, &'a Path),
    Remove(&'a Path),
    RemoveTree(&'a Path),
    MakeDirectory(&'a Path),
    SyncDirectory(&'a Path),
    List(&'a Path),
    Spawn(&'a str),
}

/// Writes bytes, or as many as are to be written; gives their number.
fn write(
    path: &Path,
    bytes: &[u8],
    act: impl FnOnce(&[u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    #[cfg(feature = "faults")]
    return faults::write(path, bytes, act);
    #[cfg(not(feature = "faults"))]
    {
        let _ = path;
        act(bytes)
    }
}

/// Does an operation, unless it is to fail.
fn perform<T>(op: Op<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(feature = "faults")]
    return faults::perform(op, act);
    #[cfg(not(feature = "faults"))]
    {
        let _ = op;
        act()
    }
}
