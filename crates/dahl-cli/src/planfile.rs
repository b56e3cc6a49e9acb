//! `--plan FILE`: a run by a plan that was printed, and maybe edited, before.

use crate::grain::{available, threads};
use dahl::graph::Programs;
use dahl::plan::{Outline, Plan};
use dahl::{Error, Result};
use std::path::{Path, PathBuf};

/// What is wrong with a plan of a file.
pub(crate) fn in_file(path: &Path, error: Error) -> Error {
    match error {
        Error::Plan { place, expected, found } if place == "programs" => {
            let expected = format!(
                "{expected}: dahl plan MODEL --show plan takes --batch, --dtype, --optimizer, \
                 --micro-batches as dahl train does"
            );
            Error::data(path, place, expected, found)
        }
        Error::Plan { place, expected, found } => Error::data(path, place, expected, found),
        error => error,
    }
}

/// The text of a plan, before it is known what programs there are.
pub(crate) struct PlanFile {
    path: PathBuf,
    text: String,
    pub(crate) outline: Outline,
}

impl PlanFile {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = dahl::os::disk::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let outline = Plan::outline(&text).map_err(|error| {
            Error::data(path, "plan", "what dahl plan --show plan prints", error)
        })?;
        available(outline.isa).map_err(|found| {
            Error::data(path, "isa", "an instruction set of this machine", found)
        })?;
        threads(&outline.workers.to_string()).map_err(|expected| {
            let expected = expected.trim_start_matches("expected ").to_owned();
            Error::data(path, "workers", expected, outline.workers)
        })?;
        Ok(Self { path: path.to_owned(), text, outline })
    }

    /// How many workers it is for; others cannot be asked for.
    pub(crate) fn workers(&self, asked: Option<usize>) -> Result<usize> {
        let own = self.outline.workers;
        match asked.filter(|asked| *asked != own) {
            None => Ok(own),
            Some(asked) => Err(Error::config("workers", format!("{own}, as the plan has"), asked)),
        }
    }

    /// The plan; what it does not have is as `others` has it.
    pub(crate) fn plan(&self, programs: &Programs, others: &Plan) -> Result<Plan> {
        Plan::parse_some(&self.text, programs, others).map_err(|error| in_file(&self.path, error))
    }
}
