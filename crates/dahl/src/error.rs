//! The errors of the crate, by whose fault they are.

use crate::units::{Bytes, Headroom, NodeId, PersistentId, ProgramId, ValueId, WorkerId};
use dahl_kernels::{DType, Isa, Region, Shape};
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model does not fit together: everything that was found.
    #[error("{}", lines(.0))]
    Model(Vec<ModelError>),

    /// A setting has a value that cannot be.
    #[error("{0}")]
    Config(Unexpected),

    /// Two settings that cannot both be given.
    #[error("{setting} cannot be combined with {other}")]
    Exclusive {
        /// A setting.
        setting: String,
        /// The one that excludes it.
        other: String,
    },

    /// A setting that has no effect without another.
    #[error("{setting} requires {other}")]
    Requires {
        /// The setting.
        setting: String,
        /// The setting that it requires.
        other: String,
    },

    /// A setting that a resumed run cannot change, since its result depends on it.
    #[error(
        "{setting}: expected {run} as in the run, found {found}; start another run to change it"
    )]
    Identity {
        /// The setting.
        setting: String,
        /// Its value in the run.
        run: String,
        /// The value that was given.
        found: String,
    },

    /// Elements or a shape that do not fit a tensor.
    #[error("{0}")]
    Shape(Unexpected),

    /// A plan that contradicts itself or its graph.
    #[error("plan: {0}")]
    Plan(Unexpected),

    /// A platform that lacks something, or contradicts itself.
    #[error("platform: {0}")]
    Platform(Unexpected),

    /// A rank of a run has failed, and the run with it.
    #[error("rank {rank}: {why}")]
    Rank {
        /// The rank.
        rank: u32,
        /// The error of that rank.
        why: String,
    },

    /// The plan does not fit into memory.
    #[error("{}", memory(.space.as_deref(), (*.needed, *.limit, *.least), .largest))]
    Memory {
        /// The space of the plan that has too little; none where it is all of them together.
        space: Option<String>,
        /// The planned peak.
        needed: Bytes,
        /// The limit that it exceeds.
        limit: MemoryLimit,
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
        /// The message of the panic.
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

    /// The loss of samples that a network is evaluated on is not finite, though no loss of
    /// a training step was.
    #[error(
        "the loss of evaluating {first} to {last} is {loss}: look for extreme values in these \
         samples; if there are none, the weights are too large: try a lower learning rate"
    )]
    EvalNotFinite {
        /// The first sample of the batch, in the order of evaluation.
        first: String,
        /// The last sample of the batch.
        last: String,
        /// The loss.
        loss: f64,
    },

    /// A step with a finite loss left a value that is not finite.
    #[error("step {step} left {found} in {value}: it was not saved; try a lower learning rate")]
    Overflow {
        /// The step, from 1.
        step: u64,
        /// The parameter, buffer or optimizer's state.
        value: String,
        /// The first element that is not finite.
        found: f64,
    },

    /// A file that is not what it should be.
    #[error("{}: {fault}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// The fault.
        fault: Unexpected,
    },

    /// A plan or checkpoint of other programs: of another model, batch, element type or optimizer.
    #[error("{}: {fault}", path.as_deref().unwrap_or(Path::new("plan")).display())]
    OtherPrograms {
        /// The file, where it is one.
        path: Option<PathBuf>,
        /// The programs that are run, and those that it is of.
        fault: Unexpected,
    },

    /// A checkpoint of training samples that were transformed in another way.
    #[error("{}: {fault}", path.display())]
    OtherTransform {
        /// The file of the checkpoint.
        path: PathBuf,
        /// The transforms.
        fault: Unexpected,
    },

    /// A CSV file that lacks a column that is looked for.
    #[error("{}: {fault}", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// The column, and those that there are.
        fault: Unexpected,
    },

    /// A CSV file that names images that are not there.
    #[error("{}: {fault}", path.display())]
    Images {
        /// The directory of the images.
        path: PathBuf,
        /// The images, and what there is.
        fault: Unexpected,
    },

    /// A text that people write, and the lines of it that are wrong.
    #[error("{}", at_lines(.path, .errors))]
    Lines {
        /// The file.
        path: PathBuf,
        /// The faults, from the top; at most the first hundred.
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

    /// The dataset of a run, or of weights, that is no longer where it was.
    #[error("{data}: the dataset {whose}: no such file or directory")]
    Moved {
        /// Where it was.
        data: String,
        /// Its owner: `of the run a`.
        whose: String,
    },

    /// A file that cannot be read, or written; what only writes has
    /// [`Error::Write`] where people have to tell them apart.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },

    /// A result that cannot be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file, or `standard output`.
        path: PathBuf,
        /// The error of the system.
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

    /// A path that is not a run directory.
    #[error("{}", no_run(.path, *.exists, .runs))]
    NoRun {
        /// The path.
        path: PathBuf,
        /// Whether there is a directory, without a run.
        exists: bool,
        /// The runs that are known by name.
        runs: Vec<String>,
    },

    /// A directory for a new run that already holds a run.
    #[error("{} already holds a run", path.display())]
    RunExists {
        /// The directory.
        path: PathBuf,
    },

    /// A run that has ended and has no checkpoint to go on from.
    #[error("{} has ended and has no checkpoint to resume from", run.display())]
    NoCheckpoint {
        /// Its directory.
        run: PathBuf,
    },

    /// A run's configuration that writes weights outside its directory, which whoever
    /// resumes the run has to confirm.
    #[error("{} writes weights to {}, which is outside the run directory", config.display(), path.display())]
    SaveOutside {
        /// Where the weights would go.
        path: PathBuf,
        /// The configuration.
        config: PathBuf,
    },

    /// A thread that cannot be started.
    #[error(
        "thread {name} cannot be started: {source}; raise the limit on threads, or end other \
         processes"
    )]
    Thread {
        /// The thread.
        name: String,
        /// The error of the system.
        source: std::io::Error,
    },

    /// Something that dahl does not do.
    #[error("not supported: {what}")]
    Unsupported {
        /// What.
        what: String,
    },
}

/// A fault: a place, the expected value and the one that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Unexpected {
    /// A setting, a place in a plan or platform, a part of a file, an operand; empty where it is
    /// all there is.
    pub what: String,
    /// The expected value.
    pub expected: Fact,
    /// The value that was found.
    pub found: Fact,
}

impl Unexpected {
    /// A fault of `what`.
    pub fn new(what: impl fmt::Display, expected: impl Into<Fact>, found: impl Into<Fact>) -> Self {
        Self { what: what.to_string(), expected: expected.into(), found: found.into() }
    }
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, expected, found } = self;
        let colon = if what.is_empty() { "" } else { ": " };
        write!(f, "{what}{colon}expected {expected}, found {found}")
    }
}

/// A value that an error is about.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fact {
    /// A text, or anything else.
    Text(String),
    /// A whole number from 0 on.
    Whole(u64),
    /// A whole number.
    Signed(i64),
    /// A number.
    Number(f64),
    /// A size in memory.
    Bytes(Bytes),
    /// The shape of a tensor.
    Shape(Box<Shape>),
    /// An element type.
    DType(DType),
    /// Shape and element type of a tensor.
    Tensor(DType, Box<Shape>),
    /// An instruction set.
    Isa(Isa),
    /// A box of a tensor.
    Region(Box<Region>),
    /// A file or directory.
    Path(Box<Path>),
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Text(text) => f.write_str(text),
            Fact::Whole(number) => write!(f, "{number}"),
            Fact::Signed(number) => write!(f, "{number}"),
            Fact::Number(number) => write!(f, "{number}"),
            Fact::Bytes(bytes) => write!(f, "{bytes}"),
            Fact::Shape(shape) => write!(f, "{shape}"),
            Fact::DType(dtype) => write!(f, "{dtype}"),
            Fact::Tensor(dtype, shape) => write!(f, "{dtype} {shape}"),
            Fact::Isa(isa) => write!(f, "{isa}"),
            Fact::Region(region) => write!(f, "{region}"),
            Fact::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// `Variant(how it is made): types;`
macro_rules! facts {
    ($($variant:ident($value:ident => $make:expr): $($type:ty),+;)+) => {$($(
        impl From<$type> for Fact {
            fn from($value: $type) -> Self {
                Fact::$variant($make)
            }
        }
    )+)+};
}

facts! {
    Text(text => text.to_string()): &str, &String, char, Cow<'_, str>, fmt::Arguments<'_>, Error,
        Expected, &toml::Value, serde_json::Value, toml::de::Error, serde_json::Error, std::io::Error, &dyn fmt::Display,
        NodeId, ProgramId, PersistentId, &ValueId, &WorkerId;
    Text(text => text): String;
    Whole(number => number as u64): usize, u8, u32, u64;
    Whole(number => *number as u64): &usize, &u32;
    Signed(number => i64::from(number)): i32;
    Signed(number => number): i64;
    Number(number => number): f64;
    Number(number => *number): &f64;
    Bytes(bytes => bytes): Bytes;
    Shape(shape => shape.into()): Shape;
    Shape(shape => (*shape).into()): &Shape;
    DType(dtype => dtype): DType;
    Isa(isa => isa): Isa;
    Region(region => region.into()): Region;
    Region(region => (*region).into()): &Region;
    Path(path => path.into()): &Path;
    Path(path => path.as_path().into()): &PathBuf;
    Path(path => PathBuf::from(path.to_string()).into()): std::path::Display<'_>;
}

/// The expected form of a text that is no value of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
pub struct Expected(pub Cow<'static, str>);

impl<T: Into<Cow<'static, str>>> From<T> for Expected {
    fn from(text: T) -> Self {
        Expected(text.into())
    }
}

/// As [`Display`](fmt::Display): what `main` prints when it returns an error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Two settings that cannot both be given.
    pub fn exclusive(setting: impl fmt::Display, other: impl fmt::Display) -> Self {
        Error::Exclusive { setting: setting.to_string(), other: other.to_string() }
    }

    /// A file that is not what it should be.
    pub fn data(
        path: impl Into<PathBuf>,
        what: impl fmt::Display,
        expected: impl Into<Fact>,
        found: impl Into<Fact>,
    ) -> Self {
        Error::Data { path: path.into(), fault: Unexpected::new(what, expected, found) }
    }

    /// A plan of other programs.
    pub fn other_programs(expected: impl Into<Fact>, found: impl Into<Fact>) -> Self {
        Error::OtherPrograms { path: None, fault: Unexpected::new("programs", expected, found) }
    }

    /// A thread that cannot be started.
    pub fn thread(name: &str, source: std::io::Error) -> Self {
        Error::Thread { name: name.to_owned(), source }
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
}

/// Makes the variants that are about one thing that is not as expected.
macro_rules! unexpected {
    ($($(#[$doc:meta])* $name:ident $variant:ident;)+) => {
        impl Error {$(
            $(#[$doc])*
            pub fn $name(
                what: impl fmt::Display,
                expected: impl Into<Fact>,
                found: impl Into<Fact>,
            ) -> Self {
                Error::$variant(Unexpected::new(what, expected, found))
            }
        )+}
    };
}

unexpected! {
    /// A setting that cannot be.
    config Config;
    /// Elements or a shape that do not fit a tensor.
    shape Shape;
    /// A platform that lacks something, or contradicts itself.
    platform Platform;
    /// A plan that contradicts itself.
    plan Plan;
}

/// The known name that looks most like a wrong one.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> &'a str {
    let distance = |name: &&str| strsim::damerau_levenshtein(wrong, name);
    known.into_iter().min_by_key(distance).unwrap_or_default()
}

/// A hint at the known name that a wrong one is a slip of; empty where there is none.
pub fn did_you_mean<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = nearest(wrong, known);
    // Half of the name is another name, no slip.
    let letters = wrong.chars().count() / 2;
    let slip = strsim::damerau_levenshtein(wrong, near) <= letters;
    if slip { format!("; did you mean {near}?") } else { String::new() }
}

/// The limit on the memory of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// A limit that was given.
    Given(Bytes),
    /// The memory that the system allows the process.
    Available {
        /// The tightest bound.
        room: Headroom,
        /// The memory that the process needs besides the plan.
        besides: Bytes,
    },
    /// No bound that is known: the system did not allocate it.
    Unknown,
}

impl MemoryLimit {
    /// The maximum memory of the plan.
    pub fn bytes(&self) -> Bytes {
        match self {
            MemoryLimit::Given(limit) => *limit,
            MemoryLimit::Available { room, besides } => {
                Bytes(room.left().0.saturating_sub(besides.0))
            }
            MemoryLimit::Unknown => Bytes(u64::MAX),
        }
    }
}

impl From<Bytes> for MemoryLimit {
    fn from(limit: Bytes) -> Self {
        MemoryLimit::Given(limit)
    }
}

impl From<Headroom> for MemoryLimit {
    fn from(room: Headroom) -> Self {
        MemoryLimit::Available { room, besides: Bytes(0) }
    }
}

/// One thing that is wrong with a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelError {
    /// The op or layer: `conv2d`.
    pub op: String,
    /// Its place in the model: `features.0`.
    pub path: String,
    /// The faulty part, such as its input or kernel.
    pub fault: Unexpected,
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, path, fault } = self;
        write!(f, "{op} {path:?}: {fault}")
    }
}

/// One thing that is wrong with a text.
#[derive(Clone, Debug, PartialEq)]
pub struct LineError {
    /// The line, from 1.
    pub line: usize,
    /// The faulty part, such as `node "laptop": base_watts`.
    pub fault: Unexpected,
}

fn at_lines(path: &Path, errors: &[LineError]) -> String {
    let line =
        |LineError { line, fault }: &LineError| format!("{}:{line}: {fault}", path.display());
    errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn lines(errors: &[ModelError]) -> String {
    errors.iter().map(ModelError::to_string).collect::<Vec<_>>().join("\n")
}

fn memory(
    space: Option<&str>,
    (needed, limit, least): (Bytes, MemoryLimit, Option<Bytes>),
    largest: &[(String, Bytes)],
) -> String {
    let least = match least {
        // To the byte, for a limit that is rounded down would not do.
        Some(least) => {
            format!("; {least} ({} bytes) is the smallest peak found with recomputation", least.0)
        }
        None => String::new(),
    };
    let largest: Vec<String> =
        largest.iter().map(|(name, bytes)| format!("{name} ({bytes})")).collect();
    let limit = match limit {
        MemoryLimit::Given(limit) => format!(", {limit} are allowed"),
        MemoryLimit::Available { room, besides: Bytes(0) } => format!(", {room}"),
        MemoryLimit::Available { room, besides } => {
            format!(" and {besides} for a copy of its persistent values, {room}")
        }
        MemoryLimit::Unknown => ", which the system does not allocate".to_owned(),
    };
    let place = space.map_or(String::new(), |space| format!(" in {space}"));
    format!(
        "the plan needs {needed} of memory{place}{limit}{least}; the largest tensors are {}; \
         try another grain, fewer workers, micro-batches or a smaller batch",
        largest.join(", ")
    )
}

fn not_saved(directory: &Path, kept: &Option<PathBuf>, source: &Error) -> String {
    let kept = match kept {
        Some(kept) => format!("{} is complete", kept.display()),
        None => format!("{} has no earlier checkpoint", directory.display()),
    };
    let cure = if source.lacks_room() { "make room" } else { "remove the cause" };
    format!("the last checkpoint was not written: {source}; {kept}; {cure} and resume the run")
}

fn no_run(path: &Path, exists: bool, runs: &[String]) -> String {
    const SHOWN: usize = 10;
    let found = if exists { "a directory without config.toml" } else { "nothing" };
    let there = match (runs.len(), runs.len().saturating_sub(SHOWN)) {
        (0, _) => "no run has a name yet".to_owned(),
        (_, 0) => format!("known runs: {}", runs.join(", ")),
        (_, more) => format!("known runs: {} and {more} more", runs[..SHOWN].join(", ")),
    };
    format!("{}: expected a run directory, found {found}; {there}", path.display())
}

fn missing(set: &str, looked_in: &[PathBuf], files: &[String], origin: &str) -> String {
    let places: Vec<String> = looked_in.iter().map(|p| p.display().to_string()).collect();
    format!(
        "{set} is not on the disk: expected {} in {}; {origin}",
        files.join(", "),
        places.join(" or ")
    )
}

/// Whether a character may change what a terminal does, or the order in which it shows
/// others: C0, DEL, C1, and what overrides the direction of writing.
pub fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name of a file in one line of text: line ends, tabs and styles are spelled out too, so that
/// no name looks like output of its own.
pub fn one_line(name: &str) -> Cow<'_, str> {
    if !name.contains(is_control) {
        return name.into();
    }
    let spelled = |c: char| match is_control(c) {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    name.chars().map(spelled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_line_without_style() {
        assert_eq!(one_line("Ärger 猫"), "Ärger 猫");
        let forged = "cat\n99.9 % right\t\x1b[31m";
        assert_eq!(one_line(forged), "cat\\u000a99.9 % right\\u0009\\u001b[31m");
    }
}
