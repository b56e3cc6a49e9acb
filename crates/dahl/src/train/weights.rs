//! Weights as files: parameters and buffers under their names in PyTorch's
//! state dict.

use super::Trainer;
use crate::error::{Error, Result};
use crate::exec::Snapshot;
use crate::file::{StoredTensor, TensorFile};
use crate::graph::{Class, Persistent, Store};
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
        self.set_weights(&TensorFile::read(path)?, path)
    }

    /// The same from a file that was read; `path` is for messages.
    pub fn set_weights(&mut self, file: &TensorFile, path: &Path) -> Result<()> {
        let store = self.lowered().programs.store.clone();
        // Everything is looked at before anything is changed.
        check_weights(file, &store, path)?;
        for value in wanted(&store) {
            let values = file.tensors[&value.name].to_f64_vec();
            self.write(&value.name, &values)?;
            // Older versions start from the same.
            let parameter = store.find(&value.name);
            let version_of = self.lowered().version_of.clone();
            let old = store.values.iter().zip(version_of).filter(|(_, of)| *of == parameter);
            for (old, _) in old {
                self.write(&old.name, &values)?;
            }
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

/// Checks that a file has the weights of a model, all of them and nothing else,
/// before memory is taken for it; `path` is for messages.
///
/// # Errors
/// [`Error::Data`] naming the first tensor that is missing, too much or of
/// another shape.
pub fn check_weights(file: &TensorFile, store: &Store, path: &Path) -> Result<()> {
    if let Some(name) = file.tensors.keys().find(|n| wanted(store).all(|v| v.name != **n)) {
        let names: Vec<&str> = wanted(store).map(|v| v.name.as_str()).collect();
        return Err(Error::data(path, "tensor", format!("one of {}", names.join(", ")), name));
    }
    for value in wanted(store) {
        let found = file.tensors.get(&value.name).map(StoredTensor::shape);
        if found != Some(value.meta.shape) {
            let found = found.map_or("nothing".to_owned(), |shape| shape.to_string());
            return Err(Error::data(path, &value.name, value.meta.shape, found));
        }
    }
    Ok(())
}

/// The values of a weights file: all except the optimizer state.
fn wanted(store: &Store) -> impl Iterator<Item = &Persistent> {
    store.values.iter().filter(|v| v.class != Class::Optimizer)
}
