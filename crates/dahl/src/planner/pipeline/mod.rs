//! Pipelines over unequal units: which layers run where, at what power, for the least
//! energy or time, with proof (README.md beside this file, docs/planner.md).
//!
//! A [`Problem`] has layers, units and watts; [`solve`] finds the whole front of period
//! and energy. 'Optimal' refers to the cost model of `cost.rs` and to plans whose stages
//! have units of one type each.

mod bottleneck_bounds;
mod bounds;
mod canonical;
mod cells;
mod certificate;
mod cost;
mod deploy;
mod explain;
mod families;
mod front;
mod ideals;
mod labels;
mod lagrange;
mod local_search;
mod machines;
mod model_layers;
mod platform_scopes;
mod platform_units;
mod refine;
mod schedule;
mod scopes;
mod solve;
mod stage_options;
mod stages;
#[cfg(test)]
pub(crate) mod tests;
mod uneven_shares;
mod unit_counts;

pub use certificate::certificate;
pub use cost::{CostModel, objective_value, plan_value};
pub use dahl_certify::{
    Assignment, CellProof, Certificate, Flaw, LabelProof, Layer, LevelProof, Medium, NodeType,
    Objective, Power, Problem, Reach, Scope, ScopeProof, Semantics, Stage, UnitType, Way, certify,
    certify_within,
};
pub use deploy::{Deployed, Deployment, Ran};
pub use explain::{Explained, StageCost, cost_of, explain, in_short, semantics_of};
pub use front::Front;
pub use ideals::Cuts;
pub use model_layers::layers;
pub use platform_units::{Machinery, Watts, machinery};
pub use schedule::{Flow, Order};
pub use solve::{Bounded, Extent, Limits, Shares, Solution, infeasible, solve};
pub use stage_options::Replicas;
pub use stages::{NodeCost, even, flops, layer_count, starting_with};
pub use uneven_shares::{Dealt, shared_by_all_units, uneven_shares, wide_bound};

impl From<Flaw> for crate::Error {
    fn from(flaw: Flaw) -> Self {
        Self::config(&flaw.place, flaw.expected, flaw.found)
    }
}
