//! dahl trains neural networks on the machines that people already have.
//!
//! A [`model`] is lowered to a [`graph`] of ops; a [`plan`] says how sums are
//! taken (its numerics) and where, in what grain and in which memory every op
//! runs (its placement); the [`native`] engine replays the plan on worker
//! threads; a [`trace`] tells what happened. Each of these is plain data that
//! prints, compares and checks itself.
//!
//! The modules are layers: each uses only those below it (ARCHITECTURE.md).
//!
//! # Debug builds
//!
//! Cargo builds the dependencies of a debug build without optimisation, in which training is about
//! 60 times slower. Either build with `--release`, or have the program's `Cargo.toml` optimise
//! its dependencies (in a workspace, that of the workspace):
//!
//! ```toml
//! [profile.dev.package."*"]
//! opt-level = 3
//! ```

pub mod error;
pub mod names;
pub mod units;

pub mod compare;
pub mod file;
pub mod os;
pub mod tensor;

pub mod data;
pub mod ops;
pub mod platform;

pub mod graph;
pub mod trace;

pub mod meter;
pub mod perf;

pub mod model;
pub mod plan;
pub mod sched;

pub mod exec;

pub mod native;
pub mod sim;

pub mod calibrate;
pub mod planner;

pub mod choose;

pub mod train;
pub mod verify;

pub mod run;

pub mod report;

pub use dahl_kernels::{DType, Element, Float, Isa, Region, Shape, StepScalars, peak};
pub use error::{Error, Result};
