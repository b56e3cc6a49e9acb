//! A run as a whole: its directory, with every file name, the writer and the reader.

mod directory;
mod growing;
mod record;
mod tensorboard;

pub use directory::{
    Log, RUNS, RunDirectory, Start, find, has_result, no_run, numerics, refuse_old, refuse_outside,
    resolve, takes_weights, weights_sha256,
};
pub use growing::Growing;
pub use record::{Counted, EnergyLine, EpochMetrics, Predicted, RunRecord, TimedPower, Training};

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
