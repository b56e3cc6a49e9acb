//! Finding plans.
//!
//! A [`Grain`] cuts every op alike along the axes that it offers, and chains of ops over
//! one piece become one task (`gather.rs`). [`choose`] finds the grain whose step is
//! predicted to be the shortest (`choice.rs`); an [`Adapter`] re-chooses in mid-run
//! (`adapt.rs`); [`fit`] finds what has to run again for a plan to fit into less memory
//! (`recompute/`); a [`Deployment`] makes runs of plans over units
//! ([`pipeline`], `deploy.rs`); a [`Flow`] takes the parts of a batch through stages of layers
//! (`flow.rs`, `stages.rs`).

mod adapt;
mod choice;
mod deploy;
mod flow;
mod gather;
mod grain;
pub mod pipeline;
mod recompute;
mod shares;
mod stages;

pub use adapt::{Adapter, Circumstances, Patience, Verdict, shared, speeds};
pub use choice::{Candidate, Choice, Learn, candidates, choose};
pub use deploy::{Deployed, Deployment, Ran};
pub use flow::{Flow, Order};
pub use gather::{Why, place, why};
pub use grain::{Gather, Grain};
pub use recompute::{Fitted, Placer, fit};
pub use stages::{NodeCost, even, flops, layer_count, starting_with};
