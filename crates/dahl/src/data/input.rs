//! Files that are read forward once, gzipped or not, without trusting them.
//!
//! Nothing is allocated because a header says so: a part of a file is refused
//! where the file cannot hold it, and memory grows with what was really read.

use crate::error::{Error, Fact, Result};
use crate::os::disk::irregular;
use flate2::bufread::MultiGzDecoder;
use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

/// No stream of deflate expands further: 258 bytes from 2 bits.
pub(super) const MAX_EXPANSION: u64 = 1032;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A file that is being read.
pub(super) struct Input {
    path: PathBuf,
    length: u64,
    reader: Box<dyn Read>,
    zipped: bool,
    /// Number of bytes of the content that were read.
    at: u64,
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (file, length) = open_file(path)?;
        Self::new(path, length, BufReader::with_capacity(1 << 16, file))
    }

    /// The same from bytes; `path` is for messages.
    pub(super) fn from_bytes(path: &Path, bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        let length = bytes.len() as u64;
        Self::new(path, length, Cursor::new(bytes))
    }

    fn new(path: &Path, length: u64, mut reader: impl BufRead + 'static) -> Result<Self> {
        let start = reader.fill_buf();
        let start = start.map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let zipped = start.starts_with(&GZIP_MAGIC);
        let reader: Box<dyn Read> =
            if zipped { Box::new(MultiGzDecoder::new(reader)) } else { Box::new(reader) };
        Ok(Self { path: path.to_owned(), length, reader, zipped, at: 0 })
    }

    /// The most bytes that the file can still give.
    fn most(&self) -> u64 {
        let most =
            if self.zipped { self.length.saturating_mul(MAX_EXPANSION) } else { self.length };
        most.saturating_sub(self.at)
    }

    /// Reads exactly `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let bytes = self.exactly(what, N as u64)?;
        Ok(bytes.try_into().expect("as many bytes as were requested"))
    }

    /// Reads exactly `bytes` bytes.
    pub(super) fn exactly(&mut self, what: &str, bytes: u64) -> Result<Vec<u8>> {
        if bytes > self.most() {
            let found = if self.zipped {
                format!("a gzip stream of {} bytes, which cannot hold them", self.length)
            } else {
                format!("{} bytes", self.most())
            };
            return Err(self.bad(what, format_args!("{bytes} bytes"), found));
        }
        let read = self.up_to(what, bytes)?;
        if (read.len() as u64) < bytes {
            return Err(self.bad(what, format_args!("{bytes} bytes"), read.len()));
        }
        Ok(read)
    }

    /// Reads until the end, but no more than `bytes` bytes.
    pub(super) fn up_to(&mut self, what: &str, bytes: u64) -> Result<Vec<u8>> {
        // A stream that shrinks to less than a quarter grows the buffer as it
        // is read.
        let likely = self.most().min(self.length.saturating_mul(4)).min(bytes);
        let mut out = Vec::with_capacity(likely as usize);
        let read = self.reader.by_ref().take(bytes).read_to_end(&mut out);
        self.at += out.len() as u64;
        match read {
            Ok(_) => Ok(out),
            Err(e) => Err(self.failed(what, e)),
        }
    }

    /// Refuses what comes after the content; checks the checksum of gzip.
    pub(super) fn end(mut self) -> Result<()> {
        let mut more = [0];
        match self.reader.read(&mut more) {
            Ok(0) => Ok(()),
            Ok(_) => {
                let expected = format!("the end after {} bytes", self.at);
                Err(self.bad("content", expected, "more bytes"))
            }
            Err(e) => Err(self.failed("content", e)),
        }
    }

    pub(super) fn bad(
        &self,
        what: impl std::fmt::Display,
        expected: impl Into<Fact>,
        found: impl Into<Fact>,
    ) -> Error {
        Error::data(&self.path, what, expected, found)
    }

    /// A stream that does not decode is the file's fault, other failures are
    /// the system's.
    fn failed(&self, what: &str, e: io::Error) -> Error {
        if self.zipped {
            let found = format!("{e} after {} bytes", self.at);
            self.bad(what, "a whole and undamaged gzip stream", found)
        } else {
            Error::Io { path: self.path.clone(), source: e }
        }
    }
}

/// Opens a regular file; its length.
///
/// # Errors
/// [`Error::Data`] where it is something else: opening a named pipe would wait for
/// its writer, and a device may have no end.
pub(super) fn open_file(path: &Path) -> Result<(File, u64)> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let kind = fs::metadata(path).map_err(io)?.file_type();
    if !kind.is_file() {
        let found = irregular(kind).unwrap_or("a directory");
        return Err(Error::data(path, "file", "a regular file", found));
    }
    let file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    Ok((file, length))
}

/// The file, or the same with `.gz`, in the first directory that has one.
pub(super) fn find(directories: &[PathBuf], file: &str) -> Option<PathBuf> {
    directories
        .iter()
        .flat_map(|directory| [directory.join(file), directory.join(format!("{file}.gz"))])
        .find(|path| path.is_file())
}

#[cfg(test)]
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(bytes: &[u8]) -> Input {
        Input::from_bytes(Path::new("x"), bytes.to_vec()).unwrap()
    }

    #[test]
    fn zipped_and_plain_files_read_alike() {
        for bytes in [b"four five".to_vec(), gzip(b"four five")] {
            let mut input = input(&bytes);
            assert_eq!(&input.array::<4>("word").unwrap(), b"four");
            assert_eq!(input.up_to("rest", 100).unwrap(), b" five");
            input.end().unwrap();
        }
    }

    #[test]
    fn a_claim_beyond_the_file_is_refused_before_memory_is_taken() {
        let check = |bytes: &[u8], claim: u64, expected: &str| {
            assert_eq!(input(bytes).exactly("pixels", claim).unwrap_err().to_string(), expected);
        };
        check(b"12345678", 1 << 60, "x: pixels: expected 1152921504606846976 bytes, found 8 bytes");
        let zipped = gzip(&[0; 1000]);
        let (length, most) = (zipped.len(), zipped.len() as u64 * MAX_EXPANSION);
        check(
            &zipped,
            most + 1,
            &format!(
                "x: pixels: expected {} bytes, found a gzip stream of {length} bytes, \
                 which cannot hold them",
                most + 1
            ),
        );
        check(&zipped, 1001, "x: pixels: expected 1001 bytes, found 1000");
    }

    #[test]
    fn what_is_too_much_or_broken_is_seen_at_the_end() {
        let check = |bytes: &[u8], expected: &str| {
            let mut input = input(bytes);
            input.exactly("pixels", 3).unwrap();
            assert_eq!(input.end().unwrap_err().to_string(), expected);
        };
        check(b"1234", "x: content: expected the end after 3 bytes, found more bytes");
        check(&gzip(b"1234"), "x: content: expected the end after 3 bytes, found more bytes");
        let mut broken = gzip(b"123");
        let last = broken.len() - 6;
        broken[last] ^= 1;
        check(
            &broken,
            "x: content: expected a whole and undamaged gzip stream, \
             found corrupt gzip stream does not have a matching checksum after 3 bytes",
        );
    }
}
