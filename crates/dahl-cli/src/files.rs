//! Files that a command reads or writes beside its results.

use crate::output::say;
use crate::progress::{Meter, Progress, Show};
use dahl::choose::{Measurer, ThisMachine};
use dahl::graph::Programs;
use dahl::ops::Target;
use dahl::perf::PerfModel;
use dahl::plan::{Numerics, PlannedPrograms};
use dahl::planner::Grain;
use dahl::run::tuned;
use dahl::{Error, Result, calibrate};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String> {
    dahl::os::disk::read_to_string(path)
        .map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// The times of calls in calibration files, with notes on standard error.
pub(crate) fn calibrations(paths: &[PathBuf]) -> Result<PerfModel> {
    let (known, notes) = calibrate::load(paths)?;
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
        let (show, mut ops, mut bar) = (self.0, 0, None);
        let numerics = calibrate::tuned(programs, target, |op| {
            ops += 1;
            match show {
                Show::Nothing => {}
                Show::Lines => say(format_args!("measuring {op}")),
                Show::Bar => {
                    let bar: &mut ProgressBar = bar.get_or_insert_with(|| {
                        let style = ProgressStyle::with_template("measuring {msg}");
                        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
                        ProgressBar::no_length().with_style(style)
                    });
                    bar.set_message(op.to_owned());
                    bar.tick();
                }
            }
        });
        bar.iter().for_each(ProgressBar::finish_and_clear);
        (numerics, ops)
    }
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
