//! Plans on virtual time: no data, no threads, no clock.
//!
//! A [`Scenario`] is jobs on the units of a platform; [`run()`] says when each begins
//! and ends, and what it costs, by the same rules and the same policies as a real
//! run.
//!
//! # What the model is
//! - A unit runs one job at a time, for as long as it takes at the unit's speed.
//! - A job that moves bytes between memory and unit shares the memory's bandwidth
//!   with the others, max-min fairly (`sharing.rs`), and slows down where it is not
//!   enough.
//! - A transfer takes the latency of its way, then has its fair part of what it
//!   shares with others on the way.
//! - A collective takes what its closed form says (`collective.rs`).
//!
//! # What it leaves out
//! Caches, and so that a job is faster where its data are near; interrupts and other
//! programs; the protocols of networks, losses and congestion; heat.

mod collective;
mod known;
mod outcome;
pub mod pipeline;
mod policies;
mod predict;
mod run;
mod scenario;
mod sharing;
mod simgrid;
mod spaces;
mod steps;
mod tasks;
mod trace;

pub use collective::all_reduce;
pub use known::Known;
pub use outcome::{Moved, NodeUse, Outcome, WorkerUse};
pub use policies::expectations;
pub use predict::{StepPrediction, predict, predict_at};
pub use run::{Order, run};
pub use scenario::{EngineModel, Job, JobId, Noise, Scenario, Start, Worker};
pub use simgrid::{SCRIPT, to_simgrid};
pub use steps::{Cost, Costs, Steps, Where};
pub use tasks::Tasks;
