//! dahl trains neural networks on the machines that people already have.
//!
//! A [`model`] is lowered to a [`graph`] of ops; a [`plan`] says how sums are
//! taken (its numerics) and where, in what grain and in which memory every op
//! runs (its placement); the [`native`] engine replays the plan on worker
//! threads; a [`trace`] records the events. Each of these is plain data that
//! prints, compares and checks itself.
//!
//! ```
//! use dahl::prelude::*;
//!
//! # fn main() -> dahl::Result<()> {
//! // Settings are those of docs/settings.md; by default digits-cnn learns handwritten digits.
//! let mut config = RunConfig::default();
//! for (setting, value) in [("epochs", "1"), ("grain", "auto"), ("no-run", "true")] {
//!     config.set(setting, &[value])?;
//! }
//! let opened = open(config, &[])?;
//! let data = opened.data(&mut |_, _| ())?;
//! let (meters, known) = (Meters::open(&opened.config)?, PerfModel::default());
//!
//! let with = opened.with(&data, &meters, &known);
//! let with = Prepare { measurer: Some(&mut ThisMachine), ..with };
//! let prepared = prepare(&opened.config, with)?;
//! prepared.why.iter().for_each(|why| println!("{why}"));
//!
//! let start = Start { about: "an example".into(), seed: 1, command: Vec::new() };
//! let run = Run::new(opened, &data, prepared, (meters, known), (start, Instant::now()))?;
//! let outcome = run.go(&|| None, &mut |event| {
//!     if let Event::Epoch(epoch) = event {
//!         println!("epoch {}: loss {:.4}", epoch.epoch, epoch.train.loss());
//!     }
//! });
//! let outcome = outcome.map_err(|failed| failed.error)?;
//! Energy::best(&outcome.energy).iter().for_each(|energy| println!("{}", energy.headline()));
//! # Ok(())
//! # }
//! ```
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

/// The items that a program which trains, plans and reports uses.
pub mod prelude {
    pub use crate::choose::ThisMachine;
    pub use crate::model::{Model, Optimizer, TrainSpec};
    pub use crate::native::Native;
    pub use crate::perf::PerfModel;
    pub use crate::plan::Plan;
    pub use crate::planner::Grain;
    pub use crate::platform::Platform;
    pub use crate::report::Energy;
    pub use crate::run::{Event, Meters, Prepare, Run, RunConfig, Start, open, prepare};
    pub use crate::train::Trainer;
    pub use crate::{DType, Error, Result, Shape};
    pub use std::time::Instant;
}

pub use dahl_kernels::{DType, Element, Float, Isa, Region, Shape, StepScalars, peak};
pub use error::{Error, Result};
