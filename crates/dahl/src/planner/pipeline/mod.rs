//! Pipelines over unequal units: which layers run where, at what power, for the least
//! energy or time, with proof (docs/planner.md).
//!
//! A [`Problem`] has layers, units and watts; [`solve`] finds the whole front of period
//! and energy. 'Optimal' refers to the cost model of `cost.rs` and to plans whose stages
//! have units of one type each.

mod advice;
mod bounds;
mod cells;
mod certificate;
pub mod certify;
mod cost;
mod cover;
mod explain;
mod front;
mod groups;
mod import;
mod labels;
mod lattice;
mod levels;
mod machines;
mod maxload;
mod measured;
mod parted;
mod pipedream;
mod prices;
mod proof;
mod solve;
mod space;
mod table;
#[cfg(test)]
mod tests;
mod types;

pub use advice::{
    Bill, BreakEven, Change, LeftOff, Prices, Scenario, break_even, left_off, same_types, scenarios,
};
pub use certificate::certificate;
pub use certify::{Flaw, certify, certify_within};
pub use explain::{Explained, StageCost, cost_of, explain};
pub use front::Front;
pub use import::{Imported, Operator, Operators, Profile, ProfileNode};
pub use machines::{Machinery, Watts, machinery};
pub use maxload::{Device, Load, MaxLoad, max_load};
pub use measured::layers;
pub use parted::{parted, together, wide_bound};
pub use pipedream::{DreamPlan, Machines, pipedream};
pub use proof::{CellProof, Certificate, LabelProof, LevelProof};
pub use solve::{Bounded, Extent, Limits, Solution, infeasible, solve};
pub use space::Cuts;
pub use table::Replicas;
pub use types::{
    Layer, NodeType, Objective, Pipeline, Power, Problem, Semantics, Stage, UnitType, Way,
};
