//! NumPy's `.npy` files: one of samples, one of labels.

use super::input::open_file;
use super::pixels::numbered;
use super::{Dataset, MAX_CLASSES, Number, check_read};
use crate::error::{Error, Fact, Result};
use dahl_kernels::Shape;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"\x93NUMPY";

/// A longer header is taken for damage.
const MAX_HEADER: u64 = 1 << 16;

/// So many classes may have no sample: more must be backed by samples, so that
/// one wrong label does not make names for thousands of classes.
const FREE_CLASSES: usize = 1000;

/// Samples are converted through a buffer of this size on the stack.
const CHUNK: usize = 1 << 13;

/// Samples and labels in `.npy` files.
///
/// Samples stay in their file and are read one at a time, so the file may be
/// larger than memory. An array of 3 axes holds grey images and gets an axis
/// for the channel; bytes become floats in `0..=1`, other types stay as they
/// are, with all their digits where the network computes in `f64`. Labels are whole numbers from 0.
#[derive(Debug)]
pub struct Npy {
    samples: Array,
    shape: Shape,
    labels: Vec<u32>,
    classes: Vec<String>,
}

impl Npy {
    /// Opens a file of samples and a file of labels.
    ///
    /// # Errors
    /// [`Error::Io`] where a file cannot be read, [`Error::Data`] where one is
    /// no array that dahl reads or they do not fit together.
    pub fn open(samples: &Path, labels: &Path) -> Result<Self> {
        let samples = Array::open(samples)?;
        let labels = Array::open(labels)?;
        let axes = samples.axes.as_slice();
        let shape = match axes {
            [_, rows, columns] => Shape::new(&[1, *rows, *columns]),
            [_, rest @ ..] if (1..=4).contains(&rest.len()) => Shape::new(rest),
            _ => return Err(samples.bad("shape", "2 to 5 axes, samples first", show(axes))),
        };
        if axes.contains(&0) {
            return Err(samples.bad("shape", "no axis of length 0", show(axes)));
        }
        if labels.axes != [axes[0]] {
            let expected = format!("({},), as many as there are samples", axes[0]);
            return Err(labels.bad("shape", expected, show(&labels.axes)));
        }
        let labels = labels.labels()?;
        let classes = labels.iter().max().map_or(0, |&max| max as usize + 1);
        Ok(Self { samples, shape, labels, classes: numbered(classes) })
    }

    /// The same with at least so many classes, so that train and test agree even where
    /// one has no sample of the last ones.
    pub(super) fn with_classes(self, classes: usize) -> Self {
        Self { classes: numbered(classes.max(self.classes.len())), ..self }
    }

    fn read_as<T: Number>(&self, index: usize, out: &mut [T]) -> Result<usize> {
        check_read(self, index, out);
        let size = self.samples.element.size();
        let mut offset = self.samples.start + index as u64 * (out.len() * size) as u64;
        let mut buffer = [0; CHUNK];
        for part in out.chunks_mut(CHUNK / size) {
            let bytes = &mut buffer[..part.len() * size];
            self.samples.read_at(bytes, offset)?;
            offset += bytes.len() as u64;
            self.samples.element.convert(bytes, part);
        }
        self.label(index)
    }
}

impl Dataset for Npy {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
        self.read_as(index, out)
    }

    fn read_f64(&self, index: usize, out: &mut [f64]) -> Result<usize> {
        self.read_as(index, out)
    }

    fn label(&self, index: usize) -> Result<usize> {
        Ok(self.labels[index] as usize)
    }

    fn name(&self) -> String {
        self.samples.path.display().to_string()
    }
}

/// An array in a file, whose header was checked against the file's length.
#[derive(Debug)]
struct Array {
    path: PathBuf,
    file: Shared,
    element: Element,
    axes: Vec<usize>,
    /// Where the elements start.
    start: u64,
}

/// A file that several threads read at places of their own.
#[cfg(unix)]
type Shared = File;
#[cfg(not(unix))]
type Shared = std::sync::Mutex<File>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    F32,
    F64,
    U8,
    I32,
    I64,
}

impl Element {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "<f4" => Some(Element::F32),
            "<f8" => Some(Element::F64),
            "|u1" | "<u1" | "u1" => Some(Element::U8),
            "<i4" => Some(Element::I32),
            "<i8" => Some(Element::I64),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Element::U8 => 1,
            Element::F32 | Element::I32 => 4,
            Element::F64 | Element::I64 => 8,
        }
    }

    /// Elements in little endian to floats. A byte is the same number as in an image
    /// file, which `f32` rounds.
    fn convert<T: Number>(self, bytes: &[u8], out: &mut [T]) {
        let items = out.iter_mut();
        let fours = || bytes.chunks_exact(4).map(|b| b.try_into().expect("4 bytes"));
        let eights = || bytes.chunks_exact(8).map(|b| b.try_into().expect("8 bytes"));
        match self {
            Element::U8 => {
                items.zip(bytes).for_each(|(x, &b)| *x = T::from_f32(f32::from(b) / 255.0));
            }
            Element::F32 => {
                items.zip(fours()).for_each(|(x, b)| *x = T::from_f32(f32::from_le_bytes(b)));
            }
            Element::I32 => items
                .zip(fours())
                .for_each(|(x, b)| *x = T::from_i64(i64::from(i32::from_le_bytes(b)))),
            Element::F64 => {
                items.zip(eights()).for_each(|(x, b)| *x = T::from_f64(f64::from_le_bytes(b)));
            }
            Element::I64 => {
                items.zip(eights()).for_each(|(x, b)| *x = T::from_i64(i64::from_le_bytes(b)));
            }
        }
    }

    /// A whole number in little endian.
    fn whole(self, bytes: &[u8]) -> Option<i64> {
        match self {
            Element::U8 => Some(i64::from(bytes[0])),
            Element::I32 => Some(i64::from(i32::from_le_bytes(bytes.try_into().ok()?))),
            Element::I64 => Some(i64::from_le_bytes(bytes.try_into().ok()?)),
            Element::F32 | Element::F64 => None,
        }
    }
}

impl Array {
    fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let bad = |what: &str, expected: &str, found: &dyn std::fmt::Display| {
            Error::data(path, what, expected, found)
        };
        let (mut file, bytes_there) = open_file(path)?;
        // Magic, two bytes of version, two or four of length.
        let mut start = Vec::with_capacity(12);
        file.by_ref().take(8).read_to_end(&mut start).map_err(io)?;
        if start.len() < 8 || !start.starts_with(MAGIC) {
            return Err(bad("start", "a NumPy array (.npy)", &"something else"));
        }
        let wide = match start[6] {
            1 => 2,
            2 | 3 => 4,
            version => return Err(bad("version", "1, 2 or 3", &version)),
        };
        let mut length = [0; 4];
        file.read_exact(&mut length[..wide])
            .map_err(|e| bad("header's length", "a whole file", &e))?;
        let length = u64::from(u32::from_le_bytes(length));
        let start = 8 + wide as u64;
        let limit = MAX_HEADER.min(bytes_there.saturating_sub(start));
        if length > limit {
            return Err(bad("header's length", &format!("at most {limit} bytes"), &length));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(io)?;
        let header = String::from_utf8_lossy(&header);
        let (element, axes) =
            parse_header(&header).map_err(|(expected, found)| bad("header", &expected, &found))?;
        let start = start + length;
        let bytes = axes.iter().try_fold(element.size() as u64, |n, &d| n.checked_mul(d as u64));
        let there = bytes_there - start;
        if bytes != Some(there) {
            let expected = format!("as many bytes as {element:?} {} takes", show(&axes));
            return Err(bad("elements", &expected, &there));
        }
        #[cfg(not(unix))]
        let file = std::sync::Mutex::new(file);
        Ok(Self { path: path.to_owned(), file, element, axes, start })
    }

    #[cfg(unix)]
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        use std::os::unix::fs::FileExt;
        let read = self.file.read_exact_at(bytes, offset);
        read.map_err(|source| Error::Io { path: self.path.clone(), source })
    }

    #[cfg(not(unix))]
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        use std::io::{Seek, SeekFrom};
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(bytes));
        read.map_err(|source| Error::Io { path: self.path.clone(), source })
    }

    fn labels(&self) -> Result<Vec<u32>> {
        let size = self.element.size();
        let count = self.axes[0];
        let classes = count.clamp(FREE_CLASSES, MAX_CLASSES);
        // No more than the file has bytes, which was checked.
        let mut labels = Vec::with_capacity(count);
        let mut buffer = [0; CHUNK];
        while labels.len() < count {
            let some = (count - labels.len()).min(CHUNK / size);
            let bytes = &mut buffer[..some * size];
            self.read_at(bytes, self.start + (labels.len() * size) as u64)?;
            for item in bytes.chunks_exact(size) {
                let Some(label) = self.element.whole(item) else {
                    let found = format!("{:?}", self.element);
                    return Err(self.bad("labels", "whole numbers (u1, i4, i8)", found));
                };
                if !(0..classes as i64).contains(&label) {
                    let what = format!("label {}", labels.len());
                    let expected = format!("0 to {}", classes - 1);
                    return Err(self.bad(&what, expected, label.to_string()));
                }
                labels.push(label as u32);
            }
        }
        Ok(labels)
    }

    fn bad(&self, what: &str, expected: impl Into<Fact>, found: String) -> Error {
        Error::data(&self.path, what, expected, found)
    }
}

fn show(axes: &[usize]) -> String {
    format!("{axes:?}")
}

/// Element and axes of a header such as
/// `{'descr': '<f4', 'fortran_order': False, 'shape': (100, 28, 28), }`, or
/// what was expected and what was found.
fn parse_header(text: &str) -> Result<(Element, Vec<usize>), (String, String)> {
    let wrong = |expected: &str, found: &str| (expected.to_owned(), found.to_owned());
    let value = |key: &str| {
        let rest = text.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
        rest.ok_or_else(|| wrong(&format!("a dictionary with the key '{key}'"), text.trim_end()))
    };
    let quoted = |rest: &str| Some(rest.strip_prefix('\'')?.split_once('\'')?.0.to_owned());
    let descr = value("descr")?;
    let descr = quoted(descr).ok_or_else(|| wrong("a plain type, as '<f4'", descr))?;
    let element = Element::parse(&descr)
        .ok_or_else(|| wrong("one of '<f4', '<f8', '|u1', '<i4', '<i8'", &descr))?;
    let order = value("fortran_order")?;
    if !order.starts_with("False") {
        return Err(wrong("an array in C order", "one in Fortran order"));
    }
    let shape = value("shape")?;
    let inside = shape.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let inside = inside.ok_or_else(|| wrong("a shape, as (100, 28, 28)", shape))?.0;
    let axes: Option<Vec<usize>> = inside
        .split(',')
        .map(str::trim)
        .filter(|axis| !axis.is_empty())
        .map(|axis| axis.parse().ok())
        .collect();
    let axes = axes.ok_or_else(|| wrong("a shape, as (100, 28, 28)", inside))?;
    Ok((element, axes))
}

#[cfg(test)]
pub(super) mod tests;
