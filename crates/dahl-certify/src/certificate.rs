//! Certificates as data: a claim and its proof, as a file (docs/planner.md).

use crate::checker::value;
use crate::problem::{Assignment, Problem};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// A claim and its proof.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The version of the format: 3 where the problem has scopes, else 2; 1 had potentials too, which
    /// are not needed.
    pub dahl_certificate: u32,
    /// What the claim is about.
    pub problem: Problem,
    /// The plan that the claim is about.
    pub plan: Assignment,
    /// What the claim is not about: a plan that was printed beside it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_about: Option<String>,
    /// The files that the problem is from, for people; not checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// No plan has an objective below this.
    pub value: f64,
    /// Sets of layers, each behind those that it contains: the first has none, the last
    /// all. Layers by index.
    pub sets: Vec<Vec<usize>>,
    /// Intervals of the period and of the slowest stage, which together cover all of them.
    pub cells: Vec<CellProof>,
    /// The least seconds that add up, from plans of fast stages to all; empty where nothing
    /// adds up.
    pub levels: Vec<LevelProof>,
    /// Partial plans.
    pub labels: Vec<LabelProof>,
    /// The proofs of the problem's scopes, one each. What is listed above is about all units.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<ScopeProof>,
    /// The scope whose ways the plan pays, by index; all units where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_scope: Option<usize>,
}

/// A proof that no plan on the units of one scope has an objective below the value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScopeProof {
    /// Sets of layers.
    pub sets: Vec<Vec<usize>>,
    /// Intervals of the period and of the slowest stage.
    pub cells: Vec<CellProof>,
    /// The least seconds that add up.
    pub levels: Vec<LevelProof>,
    /// Partial plans.
    pub labels: Vec<LabelProof>,
}

impl Certificate {
    /// The proof of one scope as a certificate of its own: what it lists is about all units of its
    /// problem.
    pub(crate) fn of_scope(&self, scope: usize) -> Self {
        let ScopeProof { sets, cells, levels, labels } = self.scopes[scope].clone();
        Self {
            problem: self.problem.in_scope(Some(scope)),
            plan: self.plan.clone(),
            not_about: None,
            files: Vec::new(),
            scopes: Vec::new(),
            plan_scope: None,
            sets,
            cells,
            levels,
            labels,
            ..*self
        }
    }

    /// The value of the objective that the plan has, by its period and energy.
    pub fn plan_value(&self) -> f64 {
        value(self.problem.objective, self.plan.period_s, self.plan.energy_j)
    }
}

/// An interval of the period, and with which multipliers plans in it are bounded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellProof {
    /// Where it begins.
    pub low: f64,
    /// Where it ends, if it does.
    pub high: Option<f64>,
    /// Where the interval of the slowest stage's seconds begins.
    pub most_low: f64,
    /// Where that ends, if it does.
    pub most_high: Option<f64>,
    /// The Lagrange multiplier of a second that adds up, in joules.
    pub theta: f64,
    /// The Lagrange multiplier of a unit of each type, in joules; empty where potentials are by
    /// combination of units.
    #[serde(rename = "prices", default, skip_serializing_if = "Vec::is_empty")]
    pub multipliers: Vec<f64>,
    // Version 1 listed these too.
    #[doc(hidden)]
    #[serde(default, skip_serializing)]
    pub joules: IgnoredAny,
    #[doc(hidden)]
    #[serde(default, skip_serializing)]
    pub by_set: IgnoredAny,
}

/// What adds up at least in plans whose stages are all faster than this.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelProof {
    /// Seconds of the slowest stage, if they are bounded.
    pub most_high: Option<f64>,
    /// The Lagrange multiplier of a unit of each type, in seconds; empty where potentials are by
    /// combination of units.
    #[serde(rename = "prices", default, skip_serializing_if = "Vec::is_empty")]
    pub multipliers: Vec<f64>,
    // Version 1 listed these too.
    #[doc(hidden)]
    #[serde(default, skip_serializing)]
    pub sums: IgnoredAny,
    #[doc(hidden)]
    #[serde(default, skip_serializing)]
    pub by_set: IgnoredAny,
}

/// A partial plan: layers that are left, units in use, seconds, joules, stages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelProof {
    /// The set of layers that are left, by index.
    pub set: usize,
    /// The units in use, as one number: Σ used · Π (counts of earlier types + 1).
    pub used: usize,
    /// Seconds that add up.
    pub sum: f64,
    /// Seconds of the slowest stage.
    pub most: f64,
    /// Joules beyond idle watts.
    pub joules: f64,
    /// How many stages it has.
    pub stages: usize,
}
