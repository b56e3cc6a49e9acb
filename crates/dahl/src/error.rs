//! The errors of the crate, by whose fault they are.

use crate::units::Bytes;
use std::fmt;
use std::path::{Path, PathBuf};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model does not fit together: everything that was found.
    #[error("{}", lines(.0))]
    Model(Vec<ModelError>),

    /// A setting has a value that cannot be.
    #[error("{key}: expected {expected}, found {found}")]
    Config {
        /// The setting.
        key: String,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },

    /// Elements or a shape that do not fit a tensor.
    #[error("{what}: expected {expected}, found {found}")]
    Shape {
        /// What does not fit.
        what: &'static str,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },

    /// A plan that contradicts itself or its graph.
    #[error("plan: {place}: expected {expected}, found {found}")]
    Plan {
        /// Where in the plan.
        place: String,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },

    /// A platform that lacks something, or contradicts itself.
    #[error("platform: {place}: expected {expected}, found {found}")]
    Platform {
        /// Where in the platform.
        place: String,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },

    /// The plan does not fit into memory.
    #[error("{}", memory(*.needed, *.limit, *.least, .largest))]
    Memory {
        /// The planned peak.
        needed: Bytes,
        /// What there is.
        limit: Bytes,
        /// The smallest peak of a plan that was found, with activations recomputed;
        /// none where that was not tried.
        least: Option<Bytes>,
        /// The largest tensors, largest first.
        largest: Vec<(String, Bytes)>,
    },

    /// A task panicked; the run has ended.
    #[error("task {task} panicked: {message}")]
    Task {
        /// The task: its op, its place in the model and its piece.
        task: String,
        /// What the panic said.
        message: String,
    },

    /// The loss of a step is not finite; no update was made with it.
    #[error(
        "the loss of step {step} is {loss}: no update was made with it; try a lower learning rate"
    )]
    NotFinite {
        /// The step, from 1.
        step: u64,
        /// The loss.
        loss: f64,
    },

    /// A step with a finite loss left a value that is not finite.
    #[error("step {step} left {found} in {value}: it was not saved; try a lower learning rate")]
    Overflow {
        /// The step, from 1.
        step: u64,
        /// The parameter, buffer or optimiser's state.
        value: String,
        /// The first element that is not finite.
        found: f64,
    },

    /// A file that is not what it should be.
    #[error("{}: {what}: expected {expected}, found {found}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// Which part of it.
        what: String,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },

    /// A text that people write, and the lines of it that are wrong.
    #[error("{}", at_lines(.path, .errors))]
    Lines {
        /// The file.
        path: PathBuf,
        /// Everything that was found, from the top.
        errors: Vec<LineError>,
    },

    /// A dataset that is not there.
    #[error("{}", missing(.set, .looked_in, .files, .origin))]
    Missing {
        /// The dataset.
        set: String,
        /// The directories where it was looked for.
        looked_in: Vec<PathBuf>,
        /// The files that are expected in one of them.
        files: Vec<String>,
        /// Where people get it.
        origin: String,
    },

    /// A file that cannot be read, or written; what only writes has
    /// [`Error::Write`] where people have to tell them apart.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// A result that cannot be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file, or `standard output`.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// The state that a run ended with could not be saved.
    #[error("{}", not_saved(.directory, .kept, .source))]
    NotSaved {
        /// The directory of checkpoints.
        directory: PathBuf,
        /// The newest checkpoint that is whole.
        kept: Option<PathBuf>,
        /// What went wrong.
        source: Box<Error>,
    },

    /// Something that dahl does not do.
    #[error("not supported: {what}")]
    Unsupported {
        /// What.
        what: String,
    },
}

/// As [`Display`](fmt::Display): what `main` prints when it returns an error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// A setting that cannot be.
    pub fn config(key: &str, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        Error::Config {
            key: key.to_owned(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// A file that is not what it should be.
    pub fn data(
        path: impl Into<PathBuf>,
        what: impl fmt::Display,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        Error::Data {
            path: path.into(),
            what: what.to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// The same of what was being written: [`Error::Io`] becomes
    /// [`Error::Write`].
    pub fn while_writing(self) -> Self {
        match self {
            Error::Io { path, source } => Error::Write { path, source },
            error => error,
        }
    }

    /// Whether a file was not written since there is no room for it.
    pub fn lacks_room(&self) -> bool {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Error::Io { source, .. } | Error::Write { source, .. } => {
                [StorageFull, QuotaExceeded, FileTooLarge].contains(&source.kind())
            }
            Error::NotSaved { source, .. } => source.lacks_room(),
            _ => false,
        }
    }

    /// A platform that lacks something, or contradicts itself.
    pub fn platform(
        place: impl fmt::Display,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        Error::Platform {
            place: place.to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// A plan that contradicts itself.
    pub fn plan(
        place: impl fmt::Display,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        Error::Plan {
            place: place.to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }
}

/// One thing that is wrong with a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelError {
    /// The op or layer: `conv2d`.
    pub op: String,
    /// Its place in the model: `features.0`.
    pub path: String,
    /// What is wrong about it: `input`, `kernel`.
    pub what: String,
    /// What would be right.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, path, what, expected, found } = self;
        write!(f, "{op} {path:?}: {what}: expected {expected}, found {found}")
    }
}

/// One thing that is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong: `node "laptop": base_watts`.
    pub what: String,
    /// What would be right.
    pub expected: String,
    /// What is there.
    pub found: String,
}

fn at_lines(path: &Path, errors: &[LineError]) -> String {
    let line = |error: &LineError| {
        let LineError { line, what, expected, found } = error;
        let what = if what.is_empty() { String::new() } else { format!("{what}: ") };
        format!("{}:{line}: {what}expected {expected}, found {found}", path.display())
    };
    errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn lines(errors: &[ModelError]) -> String {
    errors.iter().map(ModelError::to_string).collect::<Vec<_>>().join("\n")
}

fn memory(
    needed: Bytes,
    limit: Bytes,
    least: Option<Bytes>,
    largest: &[(String, Bytes)],
) -> String {
    let least = match least {
        // To the byte, for a limit that is rounded down would not do.
        Some(least) => {
            format!("; {least} ({} bytes) is the least that was found, with recomputation", least.0)
        }
        None => String::new(),
    };
    let largest: Vec<String> =
        largest.iter().map(|(name, bytes)| format!("{name} ({bytes})")).collect();
    format!(
        "the plan needs {needed} of memory, {limit} are allowed{least}; the largest tensors are {}; \
         try --grain auto, fewer workers, micro-batches or a smaller batch",
        largest.join(", ")
    )
}

fn not_saved(directory: &Path, kept: &Option<PathBuf>, source: &Error) -> String {
    let kept = match kept {
        Some(kept) => format!("{} is whole", kept.display()),
        None => format!("{} has no earlier one", directory.display()),
    };
    let cure = if source.lacks_room() { "make room" } else { "put that right" };
    format!("the last checkpoint was not written: {source}; {kept}; {cure} and resume the run")
}

fn missing(set: &str, looked_in: &[PathBuf], files: &[String], origin: &str) -> String {
    let places: Vec<String> = looked_in.iter().map(|p| p.display().to_string()).collect();
    format!(
        "{set} is not on the disk: expected {} in {}; {origin}",
        files.join(", "),
        places.join(" or ")
    )
}
