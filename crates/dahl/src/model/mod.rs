//! Models: layers, losses and optimizers, and their lowering to programs.
//!
//! A [`Model`] is a list of [`Layer`]s over inputs of one shape. It is written
//! with the builder ([`Model::sequential`]), as a TOML file ([`Model::parse`])
//! or taken by name ([`Model::named`]). [`Model::lower`] makes the programs of
//! a session: training steps, evaluations and a snapshot over shared
//! parameters.

mod build;
mod catalogue;
mod init;
mod keys;
mod layer;
mod learn;
mod lower;
mod optimizer;
mod parse;
mod print;
mod schedule;
mod stages;
mod torch;

pub use build::Sequence;
pub use catalogue::NAMES;
pub use init::Init;
pub use keys::layers_as_markdown;
pub use layer::{Layer, LayerKind, Module};
pub use lower::{Fusion, Loss, Lowered, Lowering, Mode, NormOver, TrainSpec};
pub use optimizer::{Optimizer, OptimizerName};
pub use schedule::{Schedule, ScheduleSpec, Span};
pub use stages::{Delays, Stages};

/// A network: what goes in, and what is done to it.
#[derive(Clone, Debug)]
pub struct Model {
    /// What it is called.
    pub name: String,
    /// The shape of one sample.
    pub input: Vec<usize>,
    /// The layers, each of which takes what the one before gives.
    pub layers: Vec<Layer>,
}
