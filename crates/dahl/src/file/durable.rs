//! Files that are there whole or not at all, whatever ends the process.

use crate::error::{Error, Result};
use crate::os::disk::{self, File};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Puts a file in place: it is written to a temporary file beside it and brought
/// to the disk, which then takes its place, and so does the directory's entry.
/// At every moment the old file or the new one is there, whole. A link stays, and
/// what it leads to is replaced; what is no file, such as a device, is written to.
///
/// # Errors
/// [`Error::Io`] where the file cannot be written; the old one is as it was.
pub fn replace(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    let io = |source| Error::Io { path: path.to_owned(), source };
    let real = fs::canonicalize(path);
    if let Ok(real) = &real
        && fs::metadata(real).is_ok_and(|at| !at.is_file())
    {
        let mut out = BufWriter::new(File::open_to_write(real).map_err(io)?);
        return write(&mut out).and_then(|()| out.flush()).map_err(io);
    }
    let path = real.as_deref().unwrap_or(path);
    let (temporary, file) = create_beside(path).map_err(io)?;
    let written = fill(file, write).and_then(|()| disk::rename(&temporary, path));
    if written.is_err() {
        // What went wrong is reported below; a file left over is the lesser harm.
        let _ = disk::remove_file(&temporary);
    }
    written.and_then(|()| sync_entry(path)).map_err(io)
}

/// Writes a new file, brings it to the disk and gives the SHA-256 of its bytes.
pub(crate) fn create(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<String> {
    let mut hash = Sha256::new();
    let written = File::create_new(path)
        .and_then(|file| fill(file, |out| write(&mut Hashed { out, hash: &mut hash })));
    written.map_err(|source| Error::Io { path: path.to_owned(), source })?;
    Ok(hex(hash))
}

/// The SHA-256 of a file's bytes.
pub(crate) fn sha256(path: &Path) -> Result<String> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex(hash)),
            Ok(n) => hash.update(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(io(e)),
        }
    }
}

/// Makes a directory that is not there yet, and brings its entry to the disk.
///
/// # Errors
/// As [`std::fs::create_dir`].
pub fn create_directory(path: impl AsRef<Path>) -> io::Result<()> {
    disk::make_directory(path.as_ref())?;
    sync_entry(path.as_ref())
}

/// Makes a directory and those above it that are not there yet, and brings the
/// entry of each to the disk: a file in it that is on the disk is of no use
/// where the way to it is not.
///
/// # Errors
/// [`Error::Io`] naming the directory that could not be made.
pub fn create_directories(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_directories(parent)?;
    }
    match create_directory(path) {
        // Another process was faster, or it ends in `..`.
        Err(_) if path.is_dir() => Ok(()),
        made => made.map_err(|source| Error::Io { path: path.to_owned(), source }),
    }
}

/// Brings the entry of a file in its directory to the disk.
pub(crate) fn sync_entry(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => disk::sync_directory(Path::new(".")),
        Some(parent) => disk::sync_directory(parent),
        None => Ok(()),
    }
}

/// Lower-case digits of a hash.
pub(crate) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes what goes through.
pub(super) struct Hashed<'a, W: ?Sized> {
    pub(super) out: &'a mut W,
    pub(super) hash: &'a mut Sha256,
}

impl<W: Write + ?Sized> Write for Hashed<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn fill(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync()
}

/// A new file in the directory of `path`, with a name that nobody else has.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut attempt = 0;
    loop {
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.{attempt}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary);
        match File::create_new(&temporary) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => attempt += 1,
            file => return file.map(|file| (temporary, file)),
        }
    }
}

/// Removes what [`replace`] and checkpoints leave in a directory when their
/// process is killed. Only for a directory that nobody else writes to.
///
/// # Errors
/// [`Error::Io`] where the directory cannot be read or something in it removed.
pub fn remove_temporary(directory: &Path) -> Result<()> {
    let io = |source| Error::Io { path: directory.to_owned(), source };
    for entry in disk::list(directory).map_err(io)? {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') && name.ends_with(".tmp") {
            let path = entry.path();
            let removed =
                if path.is_dir() { disk::remove_tree(&path) } else { disk::remove_file(&path) };
            removed.map_err(|source| Error::Io { path, source })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let directory = std::env::temp_dir().join(format!("dahl-link-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (link, file) = (directory.join("link"), directory.join("file"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        fs::remove_dir_all(&directory).unwrap();
    }
}
