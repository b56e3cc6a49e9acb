//! The text of a plan, in a session that has more programs than it.

use super::{Plan, PlannedPrograms, Recompute};
use crate::Isa;
use crate::error::{Error, Result};
use crate::graph::Programs;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What a plan's text says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// How many workers it is for.
    pub workers: usize,
    /// The instruction set that its variants may use.
    pub isa: Isa,
    /// The names of its programs.
    pub programs: Vec<String>,
}

#[derive(Deserialize)]
struct Text {
    numerics: NumericsText,
    placement: PlacementText,
}

#[derive(Deserialize)]
struct NumericsText {
    isa: String,
}

#[derive(Deserialize)]
struct PlacementText {
    workers: usize,
    #[serde(default)]
    #[serde(rename = "ahead")]
    _ahead: Vec<usize>,
    #[serde(default, rename = "spaces")]
    _spaces: Vec<String>,
    #[serde(default, rename = "space_of")]
    _space_of: Vec<u32>,
    #[serde(default, rename = "units")]
    _units: Vec<String>,
    #[serde(flatten)]
    programs: BTreeMap<String, toml::Value>,
}

impl Plan {
    /// Reads what a plan's text is for; whether it is a plan is seen when it is parsed.
    pub fn outline(text: &str) -> Result<Outline> {
        let wrong = |place: &str, expected: &str, found: &str| Error::plan(place, expected, found);
        let read: Text =
            toml::from_str(text).map_err(|e| wrong("text", "a plan", e.to_string().trim_end()))?;
        let isa = read.numerics.isa;
        Ok(Outline {
            workers: read.placement.workers,
            isa: isa.parse().map_err(|expected: String| Error::plan("isa", expected, &isa))?,
            programs: read.placement.programs.into_keys().collect(),
        })
    }
}

impl PlannedPrograms {
    /// Reads a plan of all or some of the programs; those that it does not have are as
    /// `others` has them, and then the memory is planned anew.
    ///
    /// # Errors
    /// As [`Self::parse`]; where it has programs that are not there, or none of them; and
    /// where `others` is for other workers or another instruction set.
    pub fn parse_some(text: &str, programs: &Programs, others: &Plan) -> Result<Self> {
        let Outline { workers, isa, programs: names } = Plan::outline(text)?;
        if let Some(name) = names.iter().find(|name| programs.find(name).is_none()) {
            let own: Vec<&str> = programs.programs.iter().map(|p| &*p.name).collect();
            return Err(Error::other_programs(format!("some of {own:?}"), name));
        }
        let has = |name: &str| names.iter().any(|own| own == name);
        let own = programs.programs.iter().filter(|program| has(&program.name));
        let own = programs.with(own.cloned().collect());
        let plan = Self::parse(text, &own)?;
        if own.programs.len() == programs.programs.len() {
            return Ok(plan);
        }
        if (others.placement.workers, others.numerics.isa) != (workers, isa) {
            let expected = format!("{workers} workers and {isa}");
            let found = format!("{} and {}", others.placement.workers, others.numerics.isa);
            return Err(Error::plan("the rest of the plan", expected, found));
        }
        let (mut numerics, mut placement) = (others.numerics.clone(), others.placement.clone());
        let mut recompute = Recompute { programs: others.recompute.programs.clone() };
        placement.ahead.clone_from(&plan.placement.ahead);
        placement.spaces.clone_from(&plan.placement.spaces);
        placement.space_of.clone_from(&plan.placement.space_of);
        placement.units.clone_from(&plan.placement.units);
        let places = programs.programs.iter().enumerate().filter(|(_, p)| has(&p.name));
        for (own, (all, _)) in places.enumerate() {
            numerics.programs[all] = plan.numerics.programs[own].clone();
            recompute.programs[all] = plan.recompute.programs[own].clone();
            placement.programs[all] = plan.placement.programs[own].clone();
        }
        Self::plan(programs, numerics, recompute, |_| Ok(placement))
    }
}
