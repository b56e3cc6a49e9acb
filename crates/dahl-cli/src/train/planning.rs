//! Which plan a run has: of a file, over units, of a pipeline or of a grain.

use super::Args;
use crate::auto;
use crate::energy::Meters;
use crate::flow::Flowing;
use crate::grain::{Cuts, available};
use crate::limit;
use crate::planfile::PlanFile;
use crate::progress::Show;
use crate::units::{Asked, Goal, Planned};
use dahl::graph::Programs;
use dahl::model::{Lowered, Model, TrainSpec};
use dahl::native::{Native, Scheduling as Own};
use dahl::ops::Target;
use dahl::perf::PerfModel;
use dahl::plan::{Numerics, Plan};
use dahl::planner::{Adapter, Grain, Patience};
use dahl::run as rundir;
use dahl::{Error, Result};
use std::time::Duration;

/// How long plans over units are looked for before a run.
const PLANNING: Duration = Duration::from_secs(20);

impl Args {
    /// The plan. A run that goes on keeps its kernels, be they measured or chosen
    /// by another version or on another machine.
    pub(super) fn plan(
        &self,
        lowered: &Lowered,
        (base, flowing): (Grain, &Flowing),
        show: Show,
    ) -> Result<(Plan, Option<Adapter>)> {
        let programs = &lowered.programs;
        let placed =
            |numerics: Numerics| match flowing.plan(&base, lowered, &numerics, self.memory_limit) {
                Some(fitted) => Ok((limit::told(programs, fitted?, show), None)),
                None => self.placed(base.clone(), programs, numerics, show),
            };
        let run = self.run.resume.as_deref().map(rundir::find);
        match run.map(|run| rundir::numerics(&run, programs)) {
            Some(Ok(numerics)) => {
                available(numerics.isa).map_err(|found| {
                    let expected = format!("{}, which the run began with", numerics.isa);
                    Error::config("isa", expected, found)
                })?;
                placed(numerics)
            }
            Some(Err(error)) if self.tune.tune => Err(error),
            // Without measurements the kernels follow from the flags; those of
            // checkpoints are compared.
            _ => {
                let numerics = self.tune.numerics(&base, programs, show)?;
                placed(numerics)
            }
        }
    }

    /// The best plans over the units of the platform, for so many steps.
    pub(super) fn over_units(
        &self,
        (model, spec, target): (&Model, &TrainSpec, Target),
        steps: u64,
        meters: &Meters,
    ) -> Result<Planned> {
        if self.run.resume.is_some() {
            let expected = "a file, or none: a run that goes on keeps its micro-batches";
            return Err(Error::config("plan", expected, "auto"));
        }
        self.flow.refuse_stages("plan auto, which chooses stages")?;
        if self.scheduling.rule().is_some() {
            let expected = "static with --plan auto, whose plans say who runs what";
            return Err(Error::config("scheduling", expected, "a policy that does"));
        }
        let platform = meters.platform.as_ref().ok_or_else(|| Error::Unsupported {
            what: "planning for a machine that says nothing of itself".to_owned(),
        })?;
        // What is slowed down later is not yet.
        let throttles = self.throttle.iter().filter(|t| t.from_step == 0).cloned().collect();
        let engine = Native { throttles, ..Native::default() };
        let asked = Asked {
            model,
            spec,
            target,
            platform,
            calibration: self.calibration.clone(),
            objective: self.objective.unwrap_or(Goal::Energy).objective(),
            period: None,
            power_cap: None,
            flow: (self.flow.allow_stale, self.flow.micro_batches),
            limit: self.memory_limit,
            engine: Some(&engine),
            steps,
            time: PLANNING,
        };
        asked.deployment(&PerfModel::default()).check()?;
        let units = platform.expand().units.len();
        if let Some(workers) = self.workers.filter(|workers| *workers != units) {
            let expected = format!("{units} with --plan auto, the units of the platform");
            return Err(Error::config("workers", expected, workers));
        }
        self.check_throttles(units)?;
        asked.plan()
    }

    /// Refuses to slow down workers that there are not.
    fn check_throttles(&self, workers: usize) -> Result<()> {
        let Some(throttle) = self.throttle.iter().find(|t| t.worker >= workers) else {
            return Ok(());
        };
        let expected = format!("a worker below {workers}");
        Err(Error::config("throttle", expected, throttle.worker))
    }

    /// The plan of a file.
    pub(super) fn of_file(
        &self,
        file: &PlanFile,
        lowered: &Lowered,
        (base, flowing): (Grain, &Flowing),
    ) -> Result<Plan> {
        let programs = &lowered.programs;
        let numerics = Numerics::default_for(programs, base.target);
        let others = match flowing.plan(&base, lowered, &numerics, None) {
            Some(fitted) => fitted?.plan,
            None => base.plan_with(programs, numerics)?,
        };
        let plan = file.plan(programs, &others)?;
        self.memory_limit.map_or(Ok(()), |limit| plan.check_memory(programs, limit))?;
        Ok(plan)
    }

    /// The plan of the grain that was asked for.
    fn placed(
        &self,
        base: Grain,
        programs: &Programs,
        numerics: Numerics,
        show: Show,
    ) -> Result<(Plan, Option<Adapter>)> {
        let limited = |grain: &Grain, numerics| {
            let plan = limit::plan(grain, (programs, numerics), self.memory_limit, show)?;
            Ok((plan, None))
        };
        let adaptive = match &self.grain {
            None => return limited(&base, numerics),
            Some(Cuts::Given(text)) => return limited(&base.with(text)?, numerics),
            Some(Cuts::Auto) => false,
            Some(Cuts::Adaptive) => true,
        };
        let (samples, limit) = (self.samples.batch, self.memory_limit);
        let calibration = self.calibration.as_deref();
        let wanted = auto::Wanted { programs, numerics, base, samples, limit, calibration };
        let chosen = auto::choice(&wanted, show)?;
        if adaptive {
            let (plan, adapter) = chosen.adapting(&wanted, Patience::default())?;
            return Ok((plan, Some(adapter)));
        }
        let best = chosen.choice.candidates.into_iter().next();
        Ok((best.expect("a candidate").plan, None))
    }

    /// Refuses what does not go together.
    pub(super) fn check_scheduling(&self, workers: usize, flowing: &Flowing) -> Result<()> {
        if flowing.scheduling() == Own::Staged && self.scheduling.rule().is_some() {
            let expected = "static, where a stale pipeline says who runs what";
            return Err(Error::config("scheduling", expected, "a policy that does"));
        }
        if self.grain == Some(Cuts::Adaptive) && self.scheduling.rule().is_some() {
            let expected = "static, where --grain adaptive says who runs what";
            return Err(Error::config("scheduling", expected, "a policy that does"));
        }
        self.check_throttles(workers)
    }
}
