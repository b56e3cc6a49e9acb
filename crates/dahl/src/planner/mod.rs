//! Finding plans, by what is planned.
//!
//! - [`grain`]: a [`Grain`] cuts every op alike along the axes that it offers, and chains of ops
//!   over one piece become one task; [`candidates`] are the grains to choose from; an [`Adapter`]
//!   re-chooses in mid-run.
//! - [`pipeline`]: which layers run on which units, for the least energy or time, with proof; a
//!   [`Deployment`] makes runs of such plans, a [`Flow`] takes micro-batches through stages.
//! - [`baselines`]: PipeDream's planner, the max-load model, and the files of both.
//! - [`advice`]: which units are not worth switching on, and what other units would change.
//! - [`money`]: prices in the place of watts.
//! - [`score`]: prices of plans that other planners made.
//! - `recompute`: [`fit`] finds what has to run again for a plan to fit into less memory.

pub mod advice;
pub mod baselines;
pub mod grain;
pub mod money;
pub mod pipeline;
mod recompute;
pub mod score;

pub use grain::{
    Adapter, Circumstances, Gather, Grain, Memories, Patience, Verdict, Why, candidates, place,
    shared, speeds, why,
};
pub use pipeline::{
    Deployed, Deployment, Flow, NodeCost, Order, Ran, even, flops, layer_count, starting_with,
};
pub use recompute::{Fitted, Placer, fit};
