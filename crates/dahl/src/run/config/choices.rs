//! Settings that name a way to choose: the grain, the stages of a pipeline, the plan.

use crate::error::{Error, Expected, Unexpected};
use crate::planner::Grain;
use std::path::PathBuf;

/// The grain setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrainChoice {
    /// The grain with the shortest predicted step.
    Auto,
    /// The same, re-chosen while the run goes on.
    Adaptive,
    /// Pieces along axes, as [`Grain::with`] reads them.
    Given(String),
}

impl GrainChoice {
    pub(super) fn parse(text: &str) -> Result<Self, Expected> {
        match text {
            "auto" => return Ok(GrainChoice::Auto),
            "adaptive" => return Ok(GrainChoice::Adaptive),
            _ => {}
        }
        match Grain::check_text(text) {
            Ok(_) => Ok(GrainChoice::Given(text.to_owned())),
            Err(Error::Config(Unexpected { expected, found, .. })) => {
                Err(format!("auto, adaptive, or {expected}, found {found}").into())
            }
            Err(error) => Err(error.to_string().into()),
        }
    }
}

impl std::fmt::Display for GrainChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            GrainChoice::Auto => "auto",
            GrainChoice::Adaptive => "adaptive",
            GrainChoice::Given(text) => text,
        })
    }
}

/// The stages of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StagesChoice {
    /// So many, of equal predicted time.
    Count(usize),
    /// Those that begin with these layers.
    Starts(Vec<String>),
}

impl StagesChoice {
    pub(super) fn parse(text: &str) -> Result<Self, Expected> {
        match text.parse() {
            Ok(0) => Err("at least 1".into()),
            Ok(count) => Ok(StagesChoice::Count(count)),
            Err(_) => {
                Ok(StagesChoice::Starts(text.split(',').map(|s| s.trim().to_owned()).collect()))
            }
        }
    }
}

impl std::fmt::Display for StagesChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StagesChoice::Count(count) => write!(f, "{count}"),
            StagesChoice::Starts(layers) => f.write_str(&layers.join(",")),
        }
    }
}

/// Where the plan of a run comes from, if not from a grain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanChoice {
    /// The best plan over the units of the platform.
    Auto,
    /// A file.
    File(PathBuf),
}

impl std::fmt::Display for PlanChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PlanChoice::Auto => f.write_str("auto"),
            PlanChoice::File(path) => write!(f, "{}", path.display()),
        }
    }
}
