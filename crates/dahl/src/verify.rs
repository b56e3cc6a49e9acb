//! Golden cases: inputs and what PyTorch made of them, run and compared.
//!
//! A case is a safetensors file whose metadata says what it is: one op with
//! its gradients, or a whole training run. Every case goes the same way as
//! training does: a graph, a plan, an engine.

mod elementary;
mod op_case;
mod train_case;

use crate::compare::{Comparison, Tolerance, compare};
use crate::error::{Error, Fact, Result};
use crate::exec::Engine;
use crate::file::{StoredTensor, TensorFile};
use crate::model::Fusion;
use crate::planner::Grain;
use dahl_kernels::{DType, Shape};
use sha2::{Digest, Sha256};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Options for running cases.
pub struct Settings<'a> {
    /// Workers, pieces, gathering.
    pub grain: Grain,
    /// Whether ops are fused.
    pub fusion: Fusion,
    /// The engine that runs them.
    pub engine: &'a dyn Engine,
}

/// One tensor of a case against PyTorch's.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The tensor.
    pub name: String,
    /// The distance of the two.
    pub comparison: Comparison,
    /// The tolerance.
    pub tolerance: Tolerance,
    /// The SHA-256 of what was found.
    digest: [u8; 32],
}

impl Compared {
    /// Whether the tensor is close enough.
    pub fn passes(&self) -> bool {
        self.tolerance.accepts(&self.comparison)
    }

    /// The error relative to its tolerance; above 1 it fails.
    fn strain(&self) -> f64 {
        match self.tolerance {
            Tolerance::Relative(limit) => self.comparison.relative() / limit,
            _ => f64::from(u8::from(!self.passes())) * f64::INFINITY,
        }
    }
}

/// The result of a case.
#[derive(Clone, Debug)]
pub struct Report {
    /// Every tensor that was compared.
    pub compared: Vec<Compared>,
}

impl Report {
    /// Whether every tensor is close enough.
    pub fn passes(&self) -> bool {
        !self.compared.is_empty() && self.compared.iter().all(Compared::passes)
    }

    /// The first digits of the SHA-256 of everything that was computed: equal
    /// digits, equal bits.
    pub fn bits(&self) -> String {
        let mut hash = Sha256::new();
        self.compared.iter().for_each(|c| hash.update(c.digest));
        hash.finalize().iter().take(4).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }

    /// The tensor whose error uses up the most of its tolerance.
    pub fn worst(&self) -> Option<&Compared> {
        let by_strain = |a: &&Compared, b: &&Compared| a.strain().total_cmp(&b.strain());
        // NaN times zero is NaN, which orders last: no error is no strain.
        self.compared
            .iter()
            .filter(|c| !c.strain().is_nan())
            .max_by(by_strain)
            .or(self.compared.first())
    }
}

/// The cases of a directory, or a single file, by name.
pub fn cases(path: &Path) -> Result<Vec<PathBuf>> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in crate::os::disk::list(path).map_err(io)? {
        let file = entry.path();
        if file.extension().is_some_and(|e| e == "safetensors") {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Error::data(path, "directory", "golden cases, *.safetensors", "none"));
    }
    Ok(files)
}

/// Runs a case and compares every tensor that it holds.
pub fn run(path: &Path, settings: &Settings<'_>) -> Result<Report> {
    let file = TensorFile::read(path)?;
    let case = Case { path, file: &file };
    let op = case.text("op")?;
    // A case that dahl stumbles over is a failed case, not the end of the run.
    let result = catch_unwind(AssertUnwindSafe(|| match op {
        "train" => train_case::run(&case, settings),
        op => op_case::run(&case, op, settings),
    }));
    let compared = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let message = text.unwrap_or("no message").to_owned();
        Err(Error::Task { task: format!("of case {op:?}"), message })
    })?;
    Ok(Report { compared })
}

/// A file and how to read from it.
struct Case<'a> {
    path: &'a Path,
    file: &'a TensorFile,
}

impl Case<'_> {
    fn wrong(&self, what: &str, expected: impl Into<Fact>, found: impl Into<Fact>) -> Error {
        Error::data(self.path, what, expected, found)
    }

    fn text(&self, key: &str) -> Result<&str> {
        let value = self.file.metadata.get(key);
        value.map(String::as_str).ok_or_else(|| self.wrong(key, "metadata", "none"))
    }

    fn json<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<T> {
        let text = self.text(key)?;
        serde_json::from_str(text).map_err(|e| self.wrong(key, e, text))
    }

    fn json_or<T: serde::de::DeserializeOwned>(&self, key: &str, default: T) -> Result<T> {
        if self.file.metadata.contains_key(key) { self.json(key) } else { Ok(default) }
    }

    fn dtype(&self) -> Result<DType> {
        let dtype: DType =
            self.text("dtype")?.parse().map_err(|e| self.wrong("dtype", "f32 or f64", e))?;
        if dtype.is_float() { Ok(dtype) } else { Err(self.wrong("dtype", "f32 or f64", dtype)) }
    }

    /// Refuses options of PyTorch that dahl does not have, unless they are off.
    fn refuse(&self, options: &[(&str, &str)]) -> Result<()> {
        for (key, off) in options {
            if let Some(found) = self.file.metadata.get(*key).filter(|found| found != off) {
                return Err(Error::Unsupported { what: format!("{key} = {found}") });
            }
        }
        Ok(())
    }

    fn tensor(&self, name: &str) -> Result<&StoredTensor> {
        self.file.tensors.get(name).ok_or_else(|| self.wrong(name, "a tensor", "none"))
    }

    /// Compares what was found with a tensor of the file.
    fn compare(
        &self,
        name: &str,
        (shape, found): (Shape, &[f64]),
        tolerance: Tolerance,
    ) -> Result<Compared> {
        let reference = self.tensor(name)?;
        if reference.shape() != shape {
            return Err(self.wrong(name, reference.shape(), shape));
        }
        let comparison = match reference.dtype() {
            DType::F32 => {
                // Every f32 survives the way through f64.
                let found: Vec<f32> = found.iter().map(|&x| x as f32).collect();
                compare(&reference.to_vec::<f32>().unwrap_or_default(), &found)
            }
            _ => compare(&reference.to_f64_vec(), found),
        };
        let mut hash = Sha256::new();
        found.iter().for_each(|x| hash.update(x.to_le_bytes()));
        let digest = hash.finalize().into();
        Ok(Compared { name: name.to_owned(), comparison, tolerance, digest })
    }
}
