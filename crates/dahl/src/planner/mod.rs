//! Finding plans.
//!
//! A [`Grain`] cuts every op alike along the axes that it offers, and chains of ops over
//! one piece become one task (`gather.rs`). [`choose`] finds the grain whose step is
//! predicted to be the shortest (`choice.rs`). An [`Adapter`] re-chooses in mid-run (`adapt.rs`).

mod adapt;
mod choice;
mod gather;
mod grain;
pub mod pipeline;
mod shares;
mod stages;

pub use adapt::{Adapter, Circumstances, Patience, Verdict, shared, speeds};
pub use choice::{Candidate, Choice, Learn, candidates, choose};
pub use gather::place;
pub use grain::{Gather, Grain};
