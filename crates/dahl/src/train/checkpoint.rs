//! One checkpoint: a directory of four files that is there whole or not at all.
//!
//! | file | holds |
//! |---|---|
//! | `weights.safetensors` | parameters and buffers under PyTorch's `state_dict` names |
//! | `optimizer.safetensors` | what the optimizer keeps: `<parameter>.exp_avg`, `updates` |
//! | `state.json` | a [`State`]: how far the run is |
//! | `SHA256SUMS` | the sums of the others, as `sha256sum --check` reads them |

use super::weights::stored;
use super::{EpochRecord, Pass, Trainer};
use crate::error::{Error, Result};
use crate::exec::Snapshot;
use crate::file::{TensorFile, durable};
use crate::graph::{Class, Store};
use crate::os::disk;
use crate::units::PersistentId;
use dahl_kernels::DType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const FORMAT: &str = "dahl checkpoint";
const VERSION: u64 = 1;
const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
const SUMS: &str = "SHA256SUMS";

/// How far a run is: what it needs, besides values, to go on as if it had never
/// stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Training steps taken.
    pub steps: u64,
    /// Epochs finished.
    pub epoch: u64,
    /// Steps taken in the epoch that is not finished.
    pub batch: u64,
    /// Their results.
    pub pass: Pass,
    /// Their duration.
    pub seconds: f64,
    /// The epochs that are finished.
    pub history: Vec<EpochRecord>,
    /// The identity of the run: values that must not change, by key.
    pub recipe: BTreeMap<String, String>,
}

/// A state in its file.
#[derive(Serialize, Deserialize)]
struct Headed {
    format: String,
    version: u64,
    #[serde(flatten)]
    state: serde_json::Value,
}

impl State {
    /// The name of its checkpoint; later ones sort behind earlier ones.
    pub(super) fn name(&self) -> String {
        format!("epoch-{:05}-batch-{:07}", self.epoch, self.batch)
    }
}

/// Epoch and batch of a checkpoint's name.
pub(super) fn position(name: &str) -> Option<(u64, u64)> {
    let (epoch, batch) = name.strip_prefix("epoch-")?.split_once("-batch-")?;
    Some((epoch.parse().ok()?, batch.parse().ok()?))
}

/// The data that all checkpoints of a run share.
pub(super) struct About {
    /// Names, shapes and roles of the values.
    pub(super) store: Store,
    /// Of the weights.
    pub(super) metadata: BTreeMap<String, String>,
}

/// Refuses values that are not finite: training cannot go on from them, and a
/// checkpoint of them would take the place of one that is good.
pub(super) fn check_finite(steps: u64, values: &Snapshot) -> Result<()> {
    for (name, tensor) in values.tensors() {
        let found = match tensor.meta.dtype {
            DType::F32 => first_wild(tensor.as_slice::<f32>().iter().map(|&x| f64::from(x))),
            DType::F64 => first_wild(tensor.as_slice::<f64>().iter().copied()),
            _ => None,
        };
        if let Some(found) = found {
            return Err(Error::Overflow { step: steps, value: name.to_owned(), found });
        }
    }
    Ok(())
}

fn first_wild(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values = values;
    values.find(|x| !x.is_finite())
}

/// Writes a checkpoint into a directory of checkpoints; returns its path.
///
/// The files are made in a directory of another name, which gets its own when
/// everything is on the disk: there is no moment with half a checkpoint.
pub(super) fn write(
    directory: &Path,
    state: &State,
    values: Snapshot,
    about: &About,
) -> Result<PathBuf> {
    check_finite(state.steps, &values)?;
    let (name, process) = (state.name(), std::process::id());
    let (path, temporary) =
        (directory.join(&name), directory.join(format!(".{name}.{process}.tmp")));
    let io = |source| Error::Io { path: path.clone(), source };
    disk::make_directory(&temporary).map_err(io)?;
    let written = write_files(&temporary, state, values, about).and_then(|()| {
        disk::sync_directory(&temporary)
            .and_then(|()| disk::rename(&temporary, &path))
            .and_then(|()| disk::sync_directory(directory))
            .map_err(io)
    });
    if written.is_err() {
        // What went wrong is reported below; files left over are the lesser harm.
        let _ = disk::remove_tree(&temporary);
    }
    written.map(|()| path)
}

fn write_files(directory: &Path, state: &State, values: Snapshot, about: &About) -> Result<()> {
    let mut weights = stored(&values, &about.store, |class| class != Class::Optimizer);
    weights.metadata = about.metadata.clone();
    let optimizer = stored(&values, &about.store, |class| class == Class::Optimizer);
    // From here on the next snapshot may be taken.
    drop(values);
    let state = serde_json::to_value(state).and_then(|state| {
        let (format, version) = (FORMAT.to_owned(), VERSION);
        serde_json::to_string_pretty(&Headed { format, version, state })
    });
    let state = state.map_err(|e| Error::Io { path: directory.join(STATE), source: e.into() })?;
    let mut sums = String::new();
    let mut create = |name: &str, write: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
        let sum = durable::create(&directory.join(name), write)?;
        sums.push_str(&sum_line(&sum, name));
        Ok::<_, Error>(())
    };
    create(OPTIMIZER, &|out| optimizer.write_to(out))?;
    create(STATE, &|out| out.write_all(state.as_bytes()))?;
    create(WEIGHTS, &|out| weights.write_to(out))?;
    durable::create(&directory.join(SUMS), |out| out.write_all(sums.as_bytes())).map(drop)
}

fn sum_line(sum: &str, name: &str) -> String {
    format!("{sum}  {name}\n")
}

/// A checkpoint that was read and found whole.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    path: PathBuf,
    /// The progress of the run.
    pub state: State,
    /// Parameters and buffers.
    pub weights: TensorFile,
    /// The optimizer state.
    pub optimizer: TensorFile,
}

impl Checkpoint {
    /// Reads the checkpoint of a directory and checks its sums.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Data`] naming the file that is missing or not
    /// what it should be.
    pub fn read(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        check_sums(&path)?;
        let weights = TensorFile::read(path.join(WEIGHTS))?;
        let optimizer = TensorFile::read(path.join(OPTIMIZER))?;
        Ok(Self { state: read_state(&path.join(STATE))?, path, weights, optimizer })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts its values into a trainer and sets its steps.
    ///
    /// # Errors
    /// [`Error::Data`] where names, shapes or types are not those of the
    /// trainer, which is then as it was.
    pub fn restore(&self, trainer: &mut Trainer) -> Result<()> {
        let values = trainer.lowered().programs.store.values.clone();
        let file = |class| match file_of(class) {
            OPTIMIZER => &self.optimizer,
            _ => &self.weights,
        };
        for class in [Class::Parameter, Class::Optimizer] {
            let name = file_of(class);
            let known =
                |tensor: &str| values.iter().any(|v| v.name == tensor && file_of(v.class) == name);
            if let Some(tensor) = file(class).tensors.keys().find(|tensor| !known(tensor)) {
                let expected = "only values of this model and optimizer";
                return Err(Error::data(self.path.join(name), "tensor", expected, tensor));
            }
        }
        for value in &values {
            let name = file_of(value.class);
            let found = file(value.class).tensors.get(&value.name).map(|t| (t.dtype(), t.shape()));
            if found != Some((value.meta.dtype, value.meta.shape)) {
                let expected = format!("{} {}", value.meta.dtype, value.meta.shape);
                let found = found.map_or("nothing".to_owned(), |(d, s)| format!("{d} {s}"));
                return Err(Error::data(self.path.join(name), &value.name, expected, found));
            }
        }
        for (i, value) in values.iter().enumerate() {
            let bytes = file(value.class).tensors[&value.name].as_bytes();
            trainer.session().write(PersistentId::new(i), &mut |to| {
                to.bytes.copy_from_slice(bytes);
                Ok(())
            })?;
        }
        trainer.set_steps(self.state.steps);
        Ok(())
    }
}

/// The file that values of a class are in.
fn file_of(class: Class) -> &'static str {
    match class {
        Class::Optimizer => OPTIMIZER,
        _ => WEIGHTS,
    }
}

fn check_sums(path: &Path) -> Result<()> {
    let sums = path.join(SUMS);
    let text = disk::read(&sums).map_err(|source| Error::Io { path: sums.clone(), source })?;
    let text = String::from_utf8_lossy(&text);
    let mut expected = String::new();
    for name in [OPTIMIZER, STATE, WEIGHTS] {
        let sum = durable::sha256(&path.join(name))?;
        let line = sum_line(&sum, name);
        if !text.contains(&line) {
            let listed = text.lines().find_map(|line| line.strip_suffix(&format!("  {name}")));
            let listed = listed.unwrap_or("none");
            let expected = format!("{listed} as {SUMS} says");
            return Err(Error::data(path.join(name), "SHA-256", expected, sum));
        }
        expected.push_str(&line);
    }
    if text != expected {
        let found = format!("{} bytes with another content", text.len());
        return Err(Error::data(sums, "sums", "those of the three files, nothing else", found));
    }
    Ok(())
}

fn read_state(path: &Path) -> Result<State> {
    let text = disk::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let bad = |e: serde_json::Error| Error::data(path, "state", "a run's state as JSON", e);
    let headed: Headed = serde_json::from_slice(&text).map_err(bad)?;
    if headed.format != FORMAT {
        return Err(Error::data(path, "format", FORMAT, headed.format));
    }
    if headed.version != VERSION {
        let expected = format!("{VERSION}, the only one that this version of dahl reads");
        return Err(Error::data(path, "version", expected, headed.version));
    }
    serde_json::from_value(headed.state).map_err(bad)
}
