//! `--grain auto`: the grain whose step is the shortest, of those that are predicted to be.

use crate::output::say;
use crate::progress::{Show, Waiting};
use crate::simulate::calibrations;
use crate::{limit, machine};
use dahl::calibrate::{Racer, Turn, compared, race, to_the_end};
use dahl::graph::Programs;
use dahl::native::{Native, available_bytes};
use dahl::perf::{PerfModel, cpu_kind};
use dahl::plan::{Numerics, Plan};
use dahl::planner::{Adapter, Choice, Circumstances, Grain, Patience, candidates, choose, fit};
use dahl::platform::Platform;
use dahl::units::{Bytes, Nanos, ProgramId};
use dahl::{Error, Result};
use std::path::Path;
use std::time::Duration;

/// How long the calls of a candidate are measured.
const LEARN: Duration = Duration::from_millis(300);
/// How many candidates are measured at most.
const MOST: usize = 8;

/// How many candidates are run at most, besides the best of every number of workers.
const FINALISTS: usize = 5;
/// How long they are run, together.
const FINAL: Duration = Duration::from_secs(1);

/// What a grain is chosen for.
pub(crate) struct Wanted<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) numerics: Numerics,
    /// As many workers at most, and the kernels.
    pub(crate) base: Grain,
    /// The samples of a step.
    pub(crate) samples: usize,
    /// The most memory that a plan may need.
    pub(crate) limit: Option<Bytes>,
    pub(crate) calibration: Option<&'a Path>,
}

/// A choice, and what it rests on.
pub(crate) struct Chosen {
    pub(crate) choice: Choice,
    pub(crate) known: PerfModel,
    pub(crate) platform: Platform,
    /// The most memory that a plan may need.
    limit: Option<Bytes>,
}

impl Chosen {
    /// The plan of the best candidate, with all workers that were asked for, and who
    /// re-chooses the placement while its run goes on: workers that the best leaves out
    /// can get something later.
    pub(crate) fn adapting(
        self,
        wanted: &Wanted<'_>,
        patience: Patience,
    ) -> Result<(Plan, Adapter)> {
        let Self { choice, known, platform, limit } = self;
        let best = choice.candidates.into_iter().next().expect("a candidate");
        let units = platform.expand().units.len();
        let wide = best.grain.among(wanted.base.workers.min(units));
        let within = limit.unwrap_or(Bytes(u64::MAX));
        let (grain, plan) = match fit(&wide, wanted.programs, &wanted.numerics, within) {
            Ok(fitted) => (wide, fitted.plan),
            // Every worker has memory of its own.
            Err(Error::Memory { .. }) => (best.grain, best.plan),
            Err(error) => return Err(error),
        };
        let samples = wanted.samples;
        let about = Circumstances { known, platform, grain, samples, limit };
        Ok((plan, Adapter::new(about, patience)))
    }
}

/// The candidates, the best first. Calls that a calibration of this machine does not
/// know are measured.
pub(crate) fn choice(wanted: &Wanted<'_>, show: Show) -> Result<Chosen> {
    let Wanted { programs, base, samples, .. } = wanted;
    let paths: Vec<_> = wanted.calibration.iter().map(|path| path.to_path_buf()).collect();
    let mut known = calibrations(&paths)?;
    let kind = cpu_kind(wanted.numerics.isa);
    let mut learn = |plan: &Plan, known: &mut PerfModel| -> Result<()> {
        calibrate_steps(programs, plan, &kind, known)
    };
    let grains = candidates(base.workers, *samples, base);
    let progress = Waiting::begin(show, format!("grain: looking at {} grains", grains.len()));
    if !known.kinds().contains(&kind) || known.bandwidth.is_none() {
        learn(&grains[0].plan_with(programs, wanted.numerics.clone())?, &mut known)?;
    }
    let platform = machine::platform(&known)?;
    let on = platform.expand();
    let limit = match (wanted.limit, available_bytes().map(Bytes)) {
        (Some(a), Some(b)) => Some(Bytes(a.0.min(b.0))),
        (a, b) => a.or(b),
    };
    let here = |grain: &&Grain| grain.workers <= on.units.len();
    let grains: Vec<Grain> = grains.iter().filter(here).cloned().collect();
    let learning = (&mut known, &mut learn as &mut dahl::planner::Learn<'_>, MOST);
    let mut choice = choose((programs, &wanted.numerics), &grains, &on, learning, limit)?;
    run_finalists(programs, &mut choice, limit)?;
    drop(progress);
    if show != Show::Nothing {
        let best = choice.best();
        say(format_args!(
            "grain: {} on {} workers, the best of {}: {} a step predicted{}",
            best.grain,
            best.grain.workers,
            choice.candidates.len(),
            best.step.step,
            best.ran.map_or(String::new(), |ran| format!(", {ran} in a trial")),
        ));
        limit::tell(programs, &best.plan, best.plain, show);
    }
    drop(on);
    Ok(Chosen { choice, known, platform, limit })
}

/// Runs what may be best in turns, as many as fit into the limit together.
fn run_finalists(programs: &Programs, choice: &mut Choice, limit: Option<Bytes>) -> Result<()> {
    let mut left = limit.map_or(u64::MAX, |bytes| bytes.0);
    let mut finalists = choice.finalists(FINALISTS);
    finalists.retain(|&i| {
        let rest = left.checked_sub(choice.candidates[i].plan.memory.peak().0);
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    if finalists.len() < 2 {
        return Ok(());
    }
    let (steps, engine) = (&[ProgramId(0)], &Native::default());
    let racer = |&i: &usize| Racer { programs, plan: &choice.candidates[i].plan, steps, engine };
    let step = |_: usize, turn: &Turn| turn.step().0 as f64;
    let turns = race(&finalists.iter().map(racer).collect::<Vec<_>>(), FINAL, &step)?;
    let ran = compared(&turns, &step).into_iter().map(|nanos| Nanos(nanos as u64));
    let ran = finalists.into_iter().zip(ran).zip(to_the_end(&turns));
    let ran: Vec<_> = ran.filter(|(_, last)| *last).map(|(ran, _)| ran).collect();
    choice.settle(&ran);
    Ok(())
}

fn calibrate_steps(
    programs: &Programs,
    plan: &Plan,
    kind: &str,
    known: &mut PerfModel,
) -> Result<()> {
    dahl::calibrate::steps(programs, plan, ProgramId(0), LEARN, kind, known).map(drop)
}
