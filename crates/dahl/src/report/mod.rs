//! Runs and plans as tables and pictures: statistics of traces, files for other tools, one page
//! that compares runs, what is claimed of a plan over units.

mod calls;
mod compare;
mod energy;
pub mod export;
mod page;
mod plan;
mod stats;

pub use calls::{CallAt, Calls};
pub use compare::{Comparison, Reason, Verdict, compare};
pub use energy::{Cause, Energy, Figure, Kind};
pub use page::{Mode, content_security_policy, page, run_json, runs_json};
pub use plan::{PlanReport, front_svg, plan_diff};
pub use stats::{
    CodeletRow, DecisionRow, Detail, From, Gap, Level, ProgramPath, Recorded, ShapeRow, Spread,
    Stats, WorkerUse, percents,
};
