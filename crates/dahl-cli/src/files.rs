//! Files that a command reads or writes beside its results.

use crate::output::say;
use crate::progress::{Measuring, Meter, Progress, Show};
use dahl::choose::{GrainRequest, Measurer, ThisMachine};
use dahl::graph::Programs;
use dahl::ops::Target;
use dahl::perf::PerfModel;
use dahl::plan::{Numerics, PlannedPrograms};
use dahl::planner::Grain;
use dahl::run::config::GrainChoice;
use dahl::run::{check_writable, tuned};
use dahl::units::Bytes;
use dahl::{Error, Result, calibrate};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String> {
    dahl::os::disk::read_to_string(path)
        .map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Parses a JSON file; `expected` describes its content in errors.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path, expected: &str) -> Result<T> {
    serde_json::from_str(&read(path)?).map_err(|error| Error::data(path, "file", expected, error))
}

/// Writes a text to a file, which is whole or as it was before.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    dahl::file::replace(path, |out| out.write_all(text.as_bytes())).map_err(Error::while_writing)
}

/// Refuses the files of flags that cannot be written, before a command takes its time.
pub(crate) fn check_outputs(flags: &[(&str, Option<&PathBuf>)]) -> Result<()> {
    flags.iter().try_for_each(|(flag, path)| path.map_or(Ok(()), |path| check_writable(flag, path)))
}

/// The times of calls in calibration files, with notes on standard error.
pub(crate) fn calibrations<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<PerfModel> {
    let paths: Vec<PathBuf> = paths.into_iter().cloned().collect();
    let (known, notes) = calibrate::load(&paths)?;
    notes.iter().for_each(|note| say(format_args!("note: {note}")));
    Ok(known)
}

/// Shows how many samples of files were read to measure their mean.
pub(crate) fn reading(show: Show) -> impl FnMut(usize, usize) {
    let mut meter: Option<Meter> = None;
    move |read, of| {
        let new = || Progress::of_looking(show).look("measure", of);
        meter.get_or_insert_with(new).count(read);
    }
}

/// This machine as what measures; tuning shows the op that is measured.
pub(crate) struct Shown(pub(crate) Show);

impl Measurer for Shown {
    fn learn(&mut self, of: &PlannedPrograms, kind: &str, known: &mut PerfModel) -> Result<()> {
        ThisMachine.learn(of, kind, known)
    }

    fn race(
        &mut self,
        racers: &[calibrate::Racer<'_>],
        budget: Duration,
        value: &dyn Fn(usize, &calibrate::Turn) -> f64,
    ) -> Result<Vec<Vec<calibrate::Turn>>> {
        ThisMachine.race(racers, budget, value)
    }

    fn tune(&mut self, programs: &Programs, target: &Target) -> (Numerics, usize) {
        let (mut measuring, mut ops) = (Measuring::new(self.0, None), 0);
        let numerics = calibrate::tuned(programs, target, |op| {
            measuring.begin(ops, op);
            ops += 1;
        });
        (numerics, ops)
    }
}

/// The grain of `--grain` where none is chosen.
pub(crate) fn given_grain(base: Grain, given: Option<&GrainChoice>) -> Result<Grain> {
    match given {
        None => Ok(base),
        Some(GrainChoice::Given(text)) => base.with(text),
        Some(other) => Err(Error::config("grain", "pieces, such as sample=4", other.to_string())),
    }
}

/// A choice among the grains of some programs.
pub(crate) fn grain_request(
    programs: &Programs,
    base: Grain,
    samples: usize,
    limit: Option<Bytes>,
) -> GrainRequest<'_> {
    let numerics = Numerics::default_for(programs, base.target);
    GrainRequest { programs, numerics, base, samples, limit, steps: 0 }
}

/// The plan of a grain, with kernels that are measured where `tune` says so.
pub(crate) fn plan(
    grain: &Grain,
    programs: &Programs,
    tune: bool,
    show: Show,
) -> Result<PlannedPrograms> {
    if !tune {
        return grain.plan(programs);
    }
    let (numerics, why) = tuned(grain, programs, &mut Shown(show))?;
    if show != Show::Nothing {
        say(why);
    }
    grain.plan_with(programs, numerics)
}
