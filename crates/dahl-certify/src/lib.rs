//! Checks certificates of pipelines: claims, with proof, that no plan of a problem is better than
//! a value (docs/planner.md).
//!
//! The crate has the data types of problems, plans and certificates, which the planner of `dahl`
//! uses too, and [`certify`]. It depends on nothing of dahl, and no formula of the planner is in
//! it: a planner that computes a cost wrongly makes certificates that are refused.
//!
//! ```
//! # let text = include_str!("../tests/certificates/alexnet-gpu-server.json");
//! let proof: dahl_certify::Certificate = serde_json::from_str(text)?;
//! let checked = dahl_certify::certify(&proof)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod certificate;
mod checker;
mod problem;

pub use certificate::{CellProof, Certificate, LabelProof, LevelProof, ScopeProof};
pub use checker::{MOST_POTENTIALS, certify, certify_within};
pub use problem::{
    Assignment, Layer, MOST_TYPES, Medium, NodeType, Objective, Power, Problem, Reach, Scope,
    Semantics, Stage, UnitType, Way,
};

/// What is wrong with a problem or a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: expected {expected}, found {found}")]
pub struct Flaw {
    /// Where.
    pub place: String,
    /// What would be right.
    pub expected: String,
    /// What is there.
    pub found: String,
}

fn require(
    holds: bool,
    place: impl ToString,
    expected: impl ToString,
    found: impl ToString,
) -> Result<(), Flaw> {
    if holds { Ok(()) } else { flaw(place, expected, found) }
}

fn flaw<T>(place: impl ToString, expected: impl ToString, found: impl ToString) -> Result<T, Flaw> {
    let (place, expected) = (place.to_string(), expected.to_string());
    Err(Flaw { place, expected, found: found.to_string() })
}
