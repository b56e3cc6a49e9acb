//! A run as a whole: configuration, preparation, execution, and its directory.
//!
//! [`RunConfig`] says what to train and how; [`prepare`] chooses what will run, and why; a [`Run`]
//! executes it with meters, budgets and checkpoints, and emits [`Event`]s; [`RunDirectory`] and
//! [`RunRecord`] write and read its files. A front end maps its flags to the configuration and the
//! events to what people see.

pub mod config;
mod data;
mod directory;
mod events;
mod execute;
mod forecast;
mod growing;
mod metered;
mod meters;
mod open;
mod pipelines;
mod placements;
mod prepare;
mod record;
mod recorder;
mod scheduled;
mod tensorboard;
mod view;

pub use config::RunConfig;
pub use data::{Reading, RunData, check_fit, moved, options_for};
pub use directory::{
    Log, RUNS, RunDirectory, Start, check_no_run, check_weights, check_writable, find, has_result,
    no_run, numerics, refuse_old, refuse_outside, resolve, takes_weights, weights_sha256,
};
pub use events::{Event, Failed, Outcome, Stage, StopReason, Warning};
pub use execute::Run;
pub use forecast::{planned_parts, predict};
pub use growing::Growing;
pub use metered::{Metered, Spent};
pub use meters::Meters;
pub use open::{Opened, open};
pub use pipelines::Pipelined;
pub use prepare::{
    PlanFile, Prepare, Prepared, Reason, SampleCounts, in_file, prepare, recomputed_in_words, tuned,
};
pub use record::{Counted, EnergyLine, EpochMetrics, Predicted, RunRecord, TimedPower, Training};
pub use recorder::Recorder;
pub use scheduled::Scheduled;
pub use view::{EarlierSessions, RunState, View};

/// The names of the files in a run directory.
pub mod files {
    /// The configuration of the run.
    pub const CONFIG: &str = "config.toml";
    /// The model.
    pub const MODEL: &str = "model.toml";
    /// The plan.
    pub const PLAN: &str = "plan.txt";
    /// The checkpoints, each a directory.
    pub const CHECKPOINTS: &str = "checkpoints";
    /// One line per start of a process: machine, command, first step.
    pub const SESSIONS: &str = "sessions.jsonl";
    /// One line per epoch: losses, accuracies, time.
    pub const METRICS: &str = "metrics.jsonl";
    /// The same for TensorBoard, which looks for `tfevents` in names.
    pub const TENSORBOARD: &str = "events.out.tfevents.0.dahl";
    /// The final figures of a run that has ended.
    pub const RESULT: &str = "result.json";
    /// The final weights.
    pub const WEIGHTS: &str = "weights.safetensors";
    /// The trace, where one was requested.
    pub const TRACE: &str = "trace.jsonl";
    /// The counters of the last session.
    pub const COUNTERS: &str = "counters.json";
    /// The energy: one line per epoch, per checkpoint and per end of a session.
    pub const ENERGY: &str = "energy.jsonl";
    /// The power that the last session with a meter measured.
    pub const POWER: &str = "power.json";
    /// The platform whose watts the last session's energy was modelled from.
    pub const PLATFORM: &str = "platform.toml";
    /// The predicted time and energy of a step.
    pub const PREDICTION: &str = "prediction.json";
}
