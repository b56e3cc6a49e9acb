//! The grain with the shortest step.
//!
//! The space is small and documented (docs/grain.md): numbers of workers, pieces of the batch, of
//! channels, of rows, and stages of layers.

use super::{Contest, For, Measurer, choose};
use crate::calibrate::{Racer, Turn, this_machine};
use crate::error::{Error, Result};
use crate::graph::Programs;
use crate::native::{Native, available_bytes};
use crate::perf::{PerfModel, cpu_kind};
use crate::plan::{Numerics, PlannedPrograms};
use crate::planner::{Adapter, Circumstances, Fitted, Grain, Patience, Ran, candidates, fit};
use crate::platform::{Expanded, Platform, UnitId};
use crate::sim::{EngineModel, Known, StepPrediction, Worker, predict};
use crate::units::{Bytes, Nanos, ProgramId};

/// A request to choose a grain.
pub struct GrainRequest<'a> {
    /// The programs.
    pub programs: &'a Programs,
    /// Their numerics.
    pub numerics: Numerics,
    /// The maximum number of workers, and the kernels.
    pub base: Grain,
    /// The samples of a step.
    pub samples: usize,
    /// The maximum memory of a plan.
    pub limit: Option<Bytes>,
    /// The steps of the run that the grain is chosen for; 0 where it is not known.
    pub steps: u64,
}

/// A grain with its plan and the prediction of its step.
#[derive(Clone, Debug)]
pub struct GrainCandidate {
    /// The grain.
    pub grain: Grain,
    /// Its plan.
    pub plan: PlannedPrograms,
    /// The peak of its plan that recomputes nothing.
    pub plain: Bytes,
    /// Its step, predicted.
    pub step: StepPrediction,
    /// Its step as it ran, if it did.
    pub ran: Option<Ran>,
}

impl GrainCandidate {
    /// The time of a step as it ran, if it did.
    pub fn took(&self) -> Option<Nanos> {
        self.ran.map(|ran| Nanos((ran.seconds * 1e9) as u64))
    }
}

/// A choice, and what it rests on.
pub struct ChosenGrain {
    /// All grains that fit, the best first.
    pub candidates: Vec<GrainCandidate>,
    /// Number of candidates that were measured.
    pub learned: usize,
    /// The times of calls that it rests on.
    pub known: PerfModel,
    /// This machine.
    pub platform: Platform,
    limit: Option<Bytes>,
}

impl GrainRequest<'_> {
    /// Chooses. What `known` lacks is measured where there is a measurer.
    ///
    /// # Errors
    /// Where no grain fits into memory, or nobody knows what calls take.
    pub fn choose(
        &self,
        mut known: PerfModel,
        mut measurer: Option<&mut dyn Measurer>,
    ) -> Result<ChosenGrain> {
        let Self { programs, base, samples, .. } = self;
        let kind = cpu_kind(self.numerics.isa);
        let grains = candidates(base.workers, *samples, base);
        let is_known = known.kinds().contains(&kind) && known.bandwidth.is_some();
        if let Some(measurer) = measurer.as_deref_mut().filter(|_| !is_known) {
            let plan = grains[0].plan_with(programs, self.numerics.clone())?;
            measurer.learn(&plan, &kind, &mut known)?;
        }
        let platform = this_machine(&known)?;
        let on = platform.expand();
        let limits = self.limit.into_iter().chain(available_bytes().map(Bytes));
        let limit = limits.min_by_key(|bytes| bytes.0);
        let mut fitting = Vec::new();
        let mut closest: Option<Error> = None;
        for grain in grains.into_iter().filter(|grain| grain.workers <= on.units.len()) {
            match fit(&grain, programs, &self.numerics, limit.unwrap_or(Bytes(u64::MAX))) {
                Ok(Fitted { plan, plain }) => {
                    let step = StepPrediction::default();
                    fitting.push(GrainCandidate { grain, plan, plain, step, ran: None });
                }
                Err(error) => closest = Some(closer(closest, error)?),
            }
        }
        if let (true, Some(error)) = (fitting.is_empty(), closest) {
            return Err(error);
        }
        let contest = Grains { on: &on, engine: Native::default() };
        let of = For { kind: &kind, steps: self.steps, limit };
        let (candidates, learned) = choose(&contest, fitting, &mut known, measurer, of)?;
        drop(on);
        Ok(ChosenGrain { candidates, learned, known, platform, limit })
    }
}

impl ChosenGrain {
    /// The best.
    pub fn best(&self) -> &GrainCandidate {
        &self.candidates[0]
    }

    /// The plan of the best grain with all workers of the request, and what re-chooses the
    /// placement while its run goes on: workers that the best leaves out can get something later.
    pub fn adapting(
        self,
        request: &GrainRequest<'_>,
        patience: Patience,
    ) -> Result<(PlannedPrograms, Adapter)> {
        let Self { candidates, known, platform, limit, .. } = self;
        let best = candidates.into_iter().next().expect("a candidate");
        let units = platform.expand().units.len();
        let wide = best.grain.among(request.base.workers.min(units));
        let within = limit.unwrap_or(Bytes(u64::MAX));
        let (grain, plan) = match fit(&wide, request.programs, &request.numerics, within) {
            Ok(fitted) => (wide, fitted.plan),
            // Every worker has memory of its own.
            Err(Error::Memory { .. }) => (best.grain, best.plan),
            Err(error) => return Err(error),
        };
        let samples = request.samples;
        let about = Circumstances { known, platform, grain, samples, limit };
        Ok((plan, Adapter::new(about, patience)))
    }
}

struct Grains<'a> {
    on: &'a Expanded<'a>,
    engine: Native,
}

impl Contest for Grains<'_> {
    type Candidate = GrainCandidate;

    fn predict(&self, candidate: &mut GrainCandidate, known: &PerfModel) -> Result<()> {
        let units = (0..candidate.grain.workers as u32).map(UnitId);
        let workers = units.map(|unit| Worker { unit, state: None }).collect();
        let what = (&candidate.plan, ProgramId(0));
        let (engine_model, costs) = (EngineModel::measured(known), &mut Known::new(known));
        candidate.step = predict(what, self.on, workers, &engine_model, costs)?;
        Ok(())
    }

    fn step<'a>(&self, of: &'a GrainCandidate) -> Option<&'a StepPrediction> {
        Some(&of.step)
    }

    fn racer<'a>(&'a self, of: &'a GrainCandidate) -> Racer<'a> {
        let steps = &[ProgramId(0)];
        Racer { plan: &of.plan, steps, engine: &self.engine }
    }

    fn ran(&self, of: &GrainCandidate) -> Option<Ran> {
        of.ran
    }

    fn set_ran(&self, of: &mut GrainCandidate, ran: Ran) {
        of.ran = Some(ran);
    }

    fn worth(&self, seconds: f64, _: f64) -> f64 {
        seconds
    }

    fn expected(&self, of: &GrainCandidate) -> [f64; 2] {
        let predicted = [of.step.step.0 as f64 / 1e9, of.step.joules.0];
        of.ran.map_or(predicted, |ran| [ran.seconds, ran.joules])
    }

    fn joules(&self, _: &GrainCandidate, _: &Turn) -> f64 {
        1.0
    }

    fn used(&self, of: &GrainCandidate) -> Vec<bool> {
        vec![true; of.grain.workers]
    }
}

/// Of two errors of memory the one that comes closer to what is allowed; another error as it is.
fn closer(before: Option<Error>, error: Error) -> Result<Error> {
    let least = |error: &Error| match error {
        Error::Memory { needed, least, .. } => Some(least.unwrap_or(*needed)),
        _ => None,
    };
    match (before, least(&error)) {
        (_, None) => Err(error),
        (Some(before), Some(found)) if least(&before) <= Some(found) => Ok(before),
        _ => Ok(error),
    }
}
