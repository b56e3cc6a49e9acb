//! Runs as tables and pictures: statistics of traces, files for other tools, one page
//! that compares runs.

mod calls;
pub mod export;
mod stats;

pub use calls::{CallAt, Calls};
pub use stats::{
    CodeletRow, Detail, From, Gap, Level, ProgramPath, ShapeRow, Spread, Stats, WorkerUse, percents,
};
