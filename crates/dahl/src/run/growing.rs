//! Files that grow by records.

use crate::error::{Error, Result};
use crate::file::replace;
use crate::os::disk::{self, File};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file that grows by records, each of which is in it whole and once.
///
/// A record that could not be written is kept and written before the next; what there is of
/// it in the file is cut off first.
#[derive(Debug)]
pub struct Growing {
    path: PathBuf,
    /// The length of the file without what was written of `pending`.
    whole: u64,
    pending: Vec<u8>,
}

impl Growing {
    /// The file as it is, or one that the first record makes.
    pub(super) fn open(path: PathBuf) -> Self {
        let whole = fs::metadata(&path).map_or(0, |about| about.len());
        Self { path, whole, pending: Vec::new() }
    }

    /// Makes the file hold these bytes alone.
    pub(super) fn rewrite(&mut self, bytes: &[u8]) -> Result<()> {
        replace(&self.path, |out| out.write_all(bytes)).map_err(Error::while_writing)?;
        (self.whole, self.pending) = (bytes.len() as u64, Vec::new());
        Ok(())
    }

    /// Adds a record, behind those that could not be written before.
    pub fn add(&mut self, record: &[u8]) -> Result<()> {
        self.pending.extend_from_slice(record);
        self.write().map(drop)
    }

    /// Writes what is left to be written, and brings the file to the disk.
    pub fn finish(&mut self) -> Result<()> {
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
pub(super) fn mend(path: &Path, by: &str) -> Result<()> {
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
