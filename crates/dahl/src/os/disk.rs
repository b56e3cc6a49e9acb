//! Files and directories: thin functions over the standard library's.

use super::{Op, perform, write};
use std::fs::{self, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// An open file.
#[derive(Debug)]
pub struct File {
    file: fs::File,
    path: PathBuf,
}

impl File {
    fn opened(path: &Path, op: Op<'_>, options: &fs::OpenOptions) -> io::Result<Self> {
        let file = perform(op, || options.open(path))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Opens a file to be read.
    ///
    /// # Errors
    /// Where it is a named pipe, a socket or a device, but for what the process itself was
    /// given: opening a pipe would wait for its writer, and a device may have no end.
    pub fn open(path: &Path) -> io::Result<Self> {
        let own = ["/dev/fd", "/dev/stdin", "/proc/self/fd"];
        if !own.iter().any(|own| path.starts_with(own))
            && let Some(kind) = irregular(fs::metadata(path)?.file_type())
        {
            let text = format!("expected a regular file, found {kind}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Self::opened(path, Op::Open(path), fs::OpenOptions::new().read(true))
    }

    /// Makes a file, or empties the one that is there, to be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        Self::opened(path, Op::Create(path), options.write(true).create(true).truncate(true))
    }

    /// Makes a file that is not there yet, to be written.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        Self::opened(path, Op::Create(path), options.write(true).create_new(true))
    }

    /// Opens a file whose end is written to, and makes it where there is none.
    pub fn append(path: &Path) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        Self::opened(path, Op::Append(path), options.append(true).create(true))
    }

    /// Opens something that is there to be written, such as a device.
    pub fn open_to_write(path: &Path) -> io::Result<Self> {
        Self::opened(path, Op::Open(path), fs::OpenOptions::new().write(true))
    }

    /// The metadata of the file.
    pub fn metadata(&self) -> io::Result<fs::Metadata> {
        self.file.metadata()
    }

    /// Cuts it off behind so many bytes.
    pub fn cut(&self, length: u64) -> io::Result<()> {
        perform(Op::Cut(&self.path, length), || self.file.set_len(length))
    }

    /// Brings its bytes to the disk.
    pub fn sync(&self) -> io::Result<()> {
        perform(Op::Sync(&self.path), || self.file.sync_all())
    }

    /// Locks it for this process, until that ends or the file is closed.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] where another process has it.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        let locked = perform(Op::Lock(&self.path), || match self.file.try_lock() {
            Err(TryLockError::Error(error)) => Err(error),
            other => Ok(other),
        });
        locked.unwrap_or_else(|error| Err(TryLockError::Error(error)))
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        perform(Op::Read(&self.path), || self.file.read(buffer))
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write(&self.path, bytes, |bytes| self.file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The kind of a file that is neither a regular one nor a directory.
pub(crate) fn irregular(kind: fs::FileType) -> Option<&'static str> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return Some("a named pipe");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
    }
    (!kind.is_file() && !kind.is_dir()).then_some("a device")
}

/// The bytes of a file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Gives a file or directory another name, in the place of the file that has it.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    perform(Op::Rename(from, to), || fs::rename(from, to))
}

/// Removes a file.
pub fn remove_file(path: &Path) -> io::Result<()> {
    perform(Op::Remove(path), || fs::remove_file(path))
}

/// Removes a directory with all that is in it.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    perform(Op::RemoveTree(path), || fs::remove_dir_all(path))
}

/// Makes a directory.
pub fn make_directory(path: &Path) -> io::Result<()> {
    perform(Op::MakeDirectory(path), || fs::create_dir(path))
}

/// Brings a directory's list of entries to the disk.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    // Elsewhere a directory cannot be opened as a file.
    let sync = || if cfg!(unix) { fs::File::open(path)?.sync_all() } else { Ok(()) };
    perform(Op::SyncDirectory(path), sync)
}

/// The entries of a directory.
pub fn list(path: &Path) -> io::Result<Vec<fs::DirEntry>> {
    perform(Op::List(path), || fs::read_dir(path)?.collect())
}
