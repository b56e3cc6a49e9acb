//! Runs as tables and pictures: statistics of traces, files for other tools, one page
//! that compares runs.

mod calls;
mod compare;
mod energy;
pub mod export;
mod page;
mod record;
mod stats;

pub use calls::{CallAt, Calls};
pub use compare::{Comparison, Reason, Verdict, compare};
pub use energy::{Energy, EnergyLine, Figure};
pub use page::{Mode, page, run_json, runs_json};
pub use record::{Counted, Predicted, RunRecord, TimedPower, files};
pub use stats::{
    CodeletRow, DecisionRow, Detail, From, Gap, Level, ProgramPath, ShapeRow, Spread, Stats,
    WorkerUse, percents,
};
