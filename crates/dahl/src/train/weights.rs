//! Weights as files: parameters and buffers under their names in PyTorch's
//! state dict.

use super::Trainer;
use crate::error::{Error, Result};
use crate::exec::Snapshot;
use crate::file::{StoredTensor, TensorFile};
use crate::graph::{Class, Store};
use std::path::Path;

impl Trainer {
    /// Parameters and buffers as they are now.
    pub fn weights(&mut self) -> Result<TensorFile> {
        let snapshot = self.snapshot()?;
        let store = &self.lowered().programs.store;
        Ok(stored(&snapshot, store, |class| class != Class::Optimizer))
    }

    /// Writes parameters and buffers to a safetensors file.
    pub fn save_weights(&mut self, path: &Path) -> Result<()> {
        self.weights()?.write(path)
    }

    /// Reads parameters and buffers from a safetensors file, which must have
    /// all of them and nothing else; elements are rounded to the run's type.
    pub fn load_weights(&mut self, path: &Path) -> Result<()> {
        let file = TensorFile::read(path)?;
        let wrong = |what: &str, expected: String, found: String| Error::Data {
            path: path.to_owned(),
            what: what.to_owned(),
            expected,
            found,
        };
        let store = self.lowered().programs.store.clone();
        let wanted: Vec<_> = store.values.iter().filter(|v| v.class != Class::Optimizer).collect();
        if let Some(name) = file.tensors.keys().find(|n| wanted.iter().all(|v| v.name != **n)) {
            let names: Vec<&str> = wanted.iter().map(|v| v.name.as_str()).collect();
            return Err(wrong("tensor", format!("one of {}", names.join(", ")), name.clone()));
        }
        // Everything is looked at before anything is changed.
        for value in &wanted {
            let found = file.tensors.get(&value.name).map(StoredTensor::shape);
            if found != Some(value.meta.shape) {
                let found = found.map_or("nothing".to_owned(), |shape| shape.to_string());
                return Err(wrong(&value.name, value.meta.shape.to_string(), found));
            }
        }
        for value in wanted {
            self.write(&value.name, &file.tensors[&value.name].to_f64_vec())?;
        }
        Ok(())
    }
}

/// The tensors of a snapshot that are of a class that is wanted.
pub(super) fn stored(
    snapshot: &Snapshot,
    store: &Store,
    wanted: impl Fn(Class) -> bool,
) -> TensorFile {
    let class = |name: &str| store.find(name).map(|id| store.get(id).class);
    let mut file = TensorFile::default();
    for (name, tensor) in snapshot.tensors().filter(|(name, _)| class(name).is_some_and(&wanted)) {
        let (shape, dtype) = (tensor.meta.shape, tensor.meta.dtype);
        let stored = StoredTensor::from_bytes(shape, dtype, tensor.bytes.to_vec());
        file.tensors.insert(name.to_owned(), stored);
    }
    file
}
