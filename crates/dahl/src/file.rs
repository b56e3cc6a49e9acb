//! Tensors in files: safetensors, as a plain struct.
//!
//! A file is refused before memory is taken for what it merely claims to hold:
//! the header's length is checked against the file's, then every tensor's
//! extent against its shape, then their sum against the file.

pub(crate) mod durable;

pub use durable::{create_directories, create_directory, remove_temporary, replace};

use crate::error::{Error, Fact, Result};
use crate::os::disk::File;
use dahl_kernels::{DType, Element, MAX_AXES, Shape};
use safetensors::tensor::{Dtype, Metadata};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

/// The header's length comes first.
const LENGTH_BYTES: u64 = 8;

/// The format's own limit.
const MAX_HEADER: u64 = 100_000_000;

/// The name that the format keeps for the metadata.
const METADATA: &str = "__metadata__";

/// The content of a safetensors file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TensorFile {
    /// Free text by key.
    pub metadata: BTreeMap<String, String>,
    /// Tensors by name.
    pub tensors: BTreeMap<String, StoredTensor>,
}

/// A tensor as bytes in the machine's order, row-major.
#[derive(Clone, PartialEq)]
pub struct StoredTensor {
    shape: Shape,
    dtype: DType,
    bytes: Vec<u8>,
}

/// An element that goes to and from bytes.
pub trait Stored: Element {
    /// The value of so many bytes as the type has, in the machine's order.
    fn from_bytes(bytes: &[u8]) -> Self;
    /// Appends the value's bytes in the machine's order.
    fn append_to(self, bytes: &mut Vec<u8>);
}

macro_rules! stored {
    ($($t:ty),*) => {
        $(impl Stored for $t {
            fn from_bytes(bytes: &[u8]) -> Self {
                <$t>::from_ne_bytes(bytes.try_into().expect("as many bytes as the type has"))
            }

            fn append_to(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_ne_bytes());
            }
        })*
    };
}
stored!(f32, f64, i64, u8);

impl StoredTensor {
    /// A tensor of these values.
    ///
    /// # Panics
    /// Where the shape has another number of elements.
    #[track_caller]
    pub fn new<E: Stored>(shape: impl Into<Shape>, values: &[E]) -> Self {
        let shape = shape.into();
        assert_eq!(shape.elements(), values.len(), "expected as many values as {shape} has");
        let mut bytes = Vec::with_capacity(size_of_val(values));
        values.iter().for_each(|v| v.append_to(&mut bytes));
        Self { shape, dtype: E::DTYPE, bytes }
    }

    /// A tensor of bytes in the machine's order.
    ///
    /// # Panics
    /// Where the shape takes another number of bytes.
    #[track_caller]
    pub fn from_bytes(shape: impl Into<Shape>, dtype: DType, bytes: Vec<u8>) -> Self {
        let shape = shape.into();
        assert_eq!(
            shape.elements() * dtype.size(),
            bytes.len(),
            "expected as many bytes as {dtype} {shape} takes"
        );
        Self { shape, dtype, bytes }
    }

    /// The lengths of the axes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes in the machine's order.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The values, or `None` where they are of another type.
    pub fn to_vec<E: Stored>(&self) -> Option<Vec<E>> {
        (self.dtype == E::DTYPE).then(|| self.values().collect())
    }

    /// The values widened to `f64`; an `i64` beyond 2⁵³ is rounded.
    pub fn to_f64_vec(&self) -> Vec<f64> {
        match self.dtype {
            DType::F32 => self.values::<f32>().map(f64::from).collect(),
            DType::F64 => self.values().collect(),
            DType::I64 => self.values::<i64>().map(|x| x as f64).collect(),
            DType::U8 => self.values::<u8>().map(f64::from).collect(),
        }
    }

    fn values<E: Stored>(&self) -> impl Iterator<Item = E> {
        self.bytes.chunks_exact(self.dtype.size()).map(E::from_bytes)
    }
}

impl std::fmt::Debug for StoredTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)
    }
}

impl TensorFile {
    /// Reads a safetensors file.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be read, [`Error::Data`] where it is
    /// no safetensors file or holds a tensor that dahl has no type for.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let io = |source| Error::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let about = file.metadata().map_err(io)?;
        if about.is_dir() {
            return Err(io(io::ErrorKind::IsADirectory.into()));
        }
        read_from(BufReader::new(file), about.len(), path)
    }

    /// Writes a safetensors file: to a temporary file beside it, which then
    /// takes its place, so that nobody sees half a file and an earlier one
    /// survives a failure.
    ///
    /// The same content gives the same bytes.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be written, [`Error::Data`] where a
    /// tensor has the name that the format keeps for itself.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.tensors.contains_key(METADATA) {
            return Err(bad(path, "name of a tensor", format_args!("not {METADATA}"), METADATA));
        }
        replace(path, |out| self.write_to(out))
    }

    /// The SHA-256 of names, types, shapes and elements, in hexadecimal digits:
    /// that of the file that they make without metadata.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        let sink = durable::Hashed { out: &mut io::sink(), hash: &mut hash };
        self.write_parts(&BTreeMap::new(), sink).expect("a sink takes everything");
        durable::hex(hash)
    }

    /// Writes header and data.
    ///
    /// The header is put together here because the crate's own writer orders
    /// the metadata by a random hash.
    pub(crate) fn write_to(&self, out: impl Write) -> io::Result<()> {
        self.write_parts(&self.metadata, out)
    }

    fn write_parts(
        &self,
        metadata: &BTreeMap<String, String>,
        mut out: impl Write,
    ) -> io::Result<()> {
        // Wide elements first, so that every tensor starts at a multiple of its
        // element's size.
        let mut order: Vec<_> = self.tensors.iter().collect();
        order.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype.size()));
        let mut entries = Vec::new();
        if !metadata.is_empty() {
            entries.push(format!("\"{METADATA}\":{}", serde_json::to_string(metadata)?));
        }
        let mut offset = 0;
        for (name, tensor) in &order {
            let end = offset + tensor.bytes.len();
            entries.push(format!(
                "{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{offset},{end}]}}",
                serde_json::to_string(name)?,
                tensor.dtype.name().to_uppercase(),
                serde_json::to_string(tensor.shape.axes())?,
            ));
            offset = end;
        }
        let mut header = format!("{{{}}}", entries.join(","));
        let padded = header.len().next_multiple_of(LENGTH_BYTES as usize);
        header.push_str(&" ".repeat(padded - header.len()));
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        for (_, tensor) in order {
            if cfg!(target_endian = "big") {
                let mut bytes = tensor.bytes.clone();
                swap_bytes(&mut bytes, tensor.dtype);
                out.write_all(&bytes)?;
            } else {
                out.write_all(&tensor.bytes)?;
            }
        }
        out.flush()
    }
}

/// Reads a file of `length` bytes.
fn read_from(mut reader: impl Read, length: u64, path: &Path) -> Result<TensorFile> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let Some(rest) = length.checked_sub(LENGTH_BYTES) else {
        return Err(bad(path, "file", "at least 8 bytes", length));
    };
    let mut prefix = [0; LENGTH_BYTES as usize];
    reader.read_exact(&mut prefix).map_err(io)?;
    let header_length = u64::from_le_bytes(prefix);
    let limit = rest.min(MAX_HEADER);
    if header_length > limit {
        return Err(bad(
            path,
            "header's length",
            format_args!("at most {limit} bytes"),
            header_length,
        ));
    }
    let mut header = vec![0; header_length as usize];
    reader.read_exact(&mut header).map_err(io)?;
    // The crate's own reader takes the last of several.
    if let Ok(Names { again: Some(name) }) = serde_json::from_slice(&header) {
        return Err(bad(path, "header", "each name once", format_args!("{name:?} again")));
    }
    let header: Metadata = serde_json::from_slice(&header)
        .map_err(|e| bad(path, "header", "a description of tensors as JSON", e))?;
    let data = rest - header_length;
    if header.data_len() as u64 != data {
        return Err(bad(
            path,
            "data",
            format_args!("{} bytes by the header", header.data_len()),
            data,
        ));
    }
    let mut tensors = BTreeMap::new();
    // By offset: the reader only goes forward.
    for name in header.offset_keys() {
        let info = header.info(&name).expect("a name of the header");
        let dtype = dtype_of(info.dtype).ok_or_else(|| {
            bad(
                path,
                format_args!("tensor {name:?}"),
                "F32, F64, I64 or U8",
                format!("{}", info.dtype),
            )
        })?;
        let shape = shape_of(&info.shape).ok_or_else(|| {
            let expected = format_args!("at most {MAX_AXES} axes whose product fits");
            bad(path, format_args!("tensor {name:?}"), expected, format_args!("{:?}", info.shape))
        })?;
        // The sum of the extents is the file's length, so this is no more.
        let mut bytes = vec![0; info.data_offsets.1 - info.data_offsets.0];
        reader.read_exact(&mut bytes).map_err(io)?;
        if cfg!(target_endian = "big") {
            swap_bytes(&mut bytes, dtype);
        }
        tensors.insert(name, StoredTensor { shape, dtype, bytes });
    }
    let metadata = header.metadata().clone().unwrap_or_default().into_iter().collect();
    Ok(TensorFile { metadata, tensors })
}

/// The names of a header.
struct Names {
    /// The first that is there again.
    again: Option<String>,
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Names;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a description of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
        let (mut seen, mut again) = (BTreeSet::new(), None);
        while let Some((name, IgnoredAny)) = map.next_entry::<String, _>()? {
            if let Some(name) = seen.replace(name) {
                again.get_or_insert(name);
            }
        }
        Ok(Names { again })
    }
}

fn dtype_of(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::F64 => Some(DType::F64),
        Dtype::I64 => Some(DType::I64),
        Dtype::U8 => Some(DType::U8),
        _ => None,
    }
}

/// The shape, where its strides can be computed: an axis of length zero must
/// not hide a product that overflows.
fn shape_of(axes: &[usize]) -> Option<Shape> {
    let fits = axes.iter().try_fold(1usize, |n, &d| n.checked_mul(d.max(1))).is_some();
    (axes.len() <= MAX_AXES && fits).then(|| Shape::new(axes))
}

fn swap_bytes(bytes: &mut [u8], dtype: DType) {
    bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
}

fn bad(
    path: &Path,
    what: impl std::fmt::Display,
    expected: impl Into<Fact>,
    found: impl Into<Fact>,
) -> Error {
    Error::data(path, what, expected, found)
}

#[cfg(test)]
mod tests;
