//! Pipelines over unequal units: which layers run where, at what power, for the least
//! energy or time, with proof (docs/planner.md).
//!
//! A [`Problem`] has layers, units and watts; [`solve`] finds the whole front of period
//! and energy. 'Optimal' refers to the cost model of `cost.rs` and to plans whose stages
//! have units of one type each.

mod bounds;
mod cells;
mod cost;
mod front;
mod groups;
mod import;
mod labels;
mod lattice;
mod maxload;
mod pipedream;
mod solve;
mod space;
mod table;
#[cfg(test)]
mod tests;
mod types;

pub use front::Front;
pub use import::{Imported, Operator, Operators, Profile, ProfileNode};
pub use maxload::{Device, Load, MaxLoad, max_load};
pub use pipedream::{DreamPlan, Machines, pipedream};
pub use solve::{Limits, Solution, solve};
pub use space::Cuts;
pub use table::Replicas;
pub use types::{
    Layer, NodeType, Objective, Pipeline, Power, Problem, Semantics, Stage, UnitType, Way,
};
