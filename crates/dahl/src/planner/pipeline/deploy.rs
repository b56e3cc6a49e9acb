//! Plans over the units of one machine, as plans that run there: worker i is unit i.
//!
//! What [`solve`](super::solve()) plans leaves out what pieces, tasks and waiting cost. Here
//! its plans become tasks, whose steps are simulated on the platform: this is what is compared
//! with a run, and what decides between plans that are about as good.

use super::cost::objective_value;
use super::schedule::{Flow, Order};
use super::stages::layer_paths;
use crate::error::{Error, Result};
use crate::model::{Delays, Lowered, Model, Stages, TrainSpec};
use crate::ops::Target;
use crate::perf::PerfModel;
use crate::plan::{MemoryLimits, Numerics, Plan, PlannedPrograms};
use crate::planner::grain::{Grain, shared};
use crate::planner::recompute::fit;
use crate::platform::{Expanded, Platform, UnitId};
use crate::sim::{EngineModel, Known, StepPrediction, Worker, predict};
use crate::units::{Bytes, Joules, ProgramId};
use dahl_certify::{Assignment, Objective, Problem, Semantics, Stage};
use std::ops::Range;

/// What is trained, and where.
#[derive(Clone, Copy)]
pub struct Deployment<'a> {
    /// The model.
    pub model: &'a Model,
    /// What training is made of, the batch in one part.
    pub spec: &'a TrainSpec,
    /// What kernels are chosen for.
    pub target: Target,
    /// One machine whose units are processors.
    pub platform: &'a Platform,
    /// What calls take.
    pub known: &'a PerfModel,
    /// The most memory that a plan may need.
    pub limits: &'a MemoryLimits,
}

/// A plan that runs.
pub struct Deployed {
    /// The plan over units that it comes from.
    pub of: Assignment,
    /// What training is made of, with the parts of a batch.
    pub spec: TrainSpec,
    /// Its programs.
    pub lowered: Lowered,
    /// How it runs.
    pub plan: PlannedPrograms,
    /// The grain, of what is no pipeline.
    pub grain: Option<Grain>,
    /// The stages, of a pipeline.
    pub flow: Option<Flow>,
    /// What a step takes, with units that get nothing off; `None` where several steps are
    /// under way at once, or nobody knows what some of its calls take.
    pub step: Option<StepPrediction>,
    /// What a step took in a trial, if there was one.
    pub ran: Option<Ran>,
}

/// A step as it ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ran {
    /// Its time.
    pub seconds: f64,
    /// Its joules, modelled from the watts of the platform and what workers did.
    pub joules: f64,
    /// Whether it had turns to the end; others were worse than one of these.
    pub to_the_end: bool,
}

impl Deployed {
    /// Seconds and joules of a step: as it ran, or else as it was simulated, or else as the
    /// plan over units says.
    pub fn expected(&self) -> [f64; 2] {
        let ran = self.ran.map(|ran| [ran.seconds, ran.joules]);
        let simulated = |step: &StepPrediction| [step.step.0 as f64 / 1e9, step.joules.0];
        let known = ran.or_else(|| self.step.as_ref().map(simulated));
        known.unwrap_or([self.of.period_s, self.of.energy_j])
    }

    /// What it is expected to be worth for an objective.
    pub fn value(&self, objective: Objective) -> f64 {
        let [seconds, joules] = self.expected();
        objective_value(objective, seconds, joules)
    }

    /// The first of the bounds of a problem that a step does not keep: it takes longer, or,
    /// since nothing waits between steps, it draws more.
    pub fn breaks(&self, problem: &Problem) -> Option<&'static str> {
        let [seconds, joules] = self.expected();
        let above = |cap: Option<f64>, found: f64| cap.is_some_and(|cap| found > cap);
        match (above(problem.period_cap, seconds), above(problem.power_cap, joules / seconds)) {
            (true, _) => Some("period"),
            (_, true) => Some("power-cap"),
            _ => None,
        }
    }

    /// The programs of steps of the largest batch, one after the other and again.
    pub fn steps(&self) -> &[ProgramId] {
        self.lowered.train.last_key_value().map_or(&[], |(_, steps)| steps)
    }

    /// Whether each worker gets something in a training step; who does not is off.
    pub fn used(&self) -> Vec<bool> {
        used(&self.plan)
    }
}

fn used(plan: &Plan) -> Vec<bool> {
    let mut used = vec![false; plan.placement.workers];
    let groups = plan.placement.programs[0].groups.iter();
    groups.flat_map(|group| &group.workers).for_each(|w| used[w.index()] = true);
    used
}

impl Deployment<'_> {
    /// Refuses platforms that workers of one machine are not.
    ///
    /// # Errors
    /// Says what the platform has instead.
    pub fn check(&self) -> Result<()> {
        let nodes = &self.platform.nodes;
        let machines: usize = nodes.iter().map(|node| node.count).sum();
        if machines != 1 {
            return Err(Error::platform("nodes", "one machine to run on", machines));
        }
        let other = nodes[0].units.iter().find(|unit| !unit.kind.starts_with("cpu"));
        match other {
            Some(unit) => Err(Error::platform("units", "processors to run on", &unit.kind)),
            None => Ok(()),
        }
    }

    /// The memory that a plan may need: no more than the machine has.
    fn most(&self) -> MemoryLimits {
        let memories = self.platform.nodes.iter().flat_map(|node| &node.memories);
        let all = memories.map(|memory| memory.bytes).reduce(u64::saturating_add);
        let all = all.map(Bytes).into_iter().chain(self.limits.total);
        MemoryLimits { total: all.min(), spaces: self.limits.spaces.clone() }
    }

    /// The plan of a run by a plan over units; of the grains that suit its shares the one
    /// that is best for the objective.
    ///
    /// # Errors
    /// Where it does not fit.
    pub fn deploy(&self, problem: &Problem, of: &Assignment) -> Result<Deployed> {
        self.check()?;
        let on = self.platform.expand();
        let places = places(problem, of);
        match of.shares.is_empty() && of.stages.len() > 1 {
            true => self.stages(problem, of, (&on, &places)),
            false => self.shares(problem, of, (&on, &places)),
        }
    }

    /// Units side by side, each with a share of the batch.
    fn shares(
        &self,
        problem: &Problem,
        of: &Assignment,
        (on, places): (&Expanded<'_>, &[Range<usize>]),
    ) -> Result<Deployed> {
        let samples = self.spec.train.iter().copied().max().unwrap_or(1);
        let speeds = speeds(problem, (of, places), on.units.len());
        let base = Grain { target: self.target, ..Grain::for_workers(on.units.len()) };
        let mut best: Option<Deployed> = None;
        let mut failed = None;
        // A plan of several units is not that of the best of them.
        let mut grains = shared(&speeds, samples, &base);
        if places.iter().map(Range::len).sum::<usize>() > 1 {
            let several = |grain: &Grain| {
                grain.shares.is_empty() || grain.shares.iter().filter(|n| **n > 0).count() > 1
            };
            let kept: Vec<Grain> = grains.iter().filter(|g| several(g)).cloned().collect();
            grains = if kept.is_empty() { grains } else { kept };
        }
        for grain in grains {
            let lowered = self.model.lower(self.spec)?;
            let numerics = Numerics::default_for(&lowered.programs, self.target);
            let plan = match fit(&grain, &lowered.programs, &numerics, self.most()) {
                Ok(fitted) => fitted.plan,
                Err(error) => {
                    failed = failed.or(Some(error));
                    continue;
                }
            };
            let workers = workers((of, places), on.units.len());
            let step = self.predicted(&plan, on, workers).ok();
            let spec = self.spec.clone();
            let (of, grain) = (of.clone(), Some(grain));
            let deployed = Deployed { of, spec, lowered, plan, grain, flow: None, step, ran: None };
            let value = |d: &Deployed| (d.step.is_none(), d.value(problem.objective));
            if best.as_ref().is_none_or(|best| value(&deployed) < value(best)) {
                best = Some(deployed);
            }
        }
        match (best, failed) {
            (Some(best), _) => Ok(best),
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::platform("units", "at least one", 0)),
        }
    }

    /// Stages one behind the other.
    fn stages(
        &self,
        problem: &Problem,
        of: &Assignment,
        (on, places): (&Expanded<'_>, &[Range<usize>]),
    ) -> Result<Deployed> {
        let parts = match problem.semantics {
            Semantics::Synchronous { micro_batches } => micro_batches,
            Semantics::Stale => 1,
        };
        let plain = self.model.lower(self.spec)?;
        let numerics = Numerics::default_for(&plain.programs, self.target);
        let expanded = numerics.expand(&plain.programs)?;
        let paths = layer_paths(&expanded.programs[0].graph);
        let stage_of = |layer: usize| of.stages.iter().position(|s| s.layers.contains(&layer));
        let layers = paths.iter().enumerate().filter_map(|(i, path)| Some((*path, stage_of(i)?)));
        let stages = Stages::new(layers);
        let stale = problem.semantics == Semantics::Stale;
        let delays = stale.then(|| Delays::stashed(stages.clone()));
        let spec = TrainSpec { micro_batches: parts, delays: delays.clone(), ..self.spec.clone() };
        let lowered = self.model.lower(&spec)?;
        let numerics = Numerics::default_for(&lowered.programs, self.target);
        let flow =
            Flow { stages, order: Order::OneForwardOneBackward, delays, own: places.to_vec() };
        // Evaluation has no stages: it is shared like a batch.
        let speeds = speeds(problem, (of, places), on.units.len());
        let samples = spec.eval.iter().chain(&spec.train).copied().max().unwrap_or(1);
        let base = Grain { target: self.target, ..Grain::for_workers(on.units.len()) };
        let grain = shared(&speeds, samples, &base).into_iter().next_back().unwrap_or(base);
        let plan = fit(&(&flow, &grain), &lowered.programs, &numerics, self.most())?.plan;
        let step = match stale {
            true => None,
            false => {
                let workers = workers((of, places), on.units.len());
                self.predicted(&plan, on, workers).ok()
            }
        };
        let (of, flow) = (of.clone(), Some(flow));
        Ok(Deployed { of, spec, lowered, plan, grain: None, flow, step, ran: None })
    }

    /// A step, without the idle watts of units that get nothing: they are off.
    fn predicted(
        &self,
        planned: &PlannedPrograms,
        on: &Expanded<'_>,
        workers: Vec<Worker>,
    ) -> Result<StepPrediction> {
        let engine_model = EngineModel::measured(self.known);
        let known = &mut Known::new(self.known);
        let step = predict((planned, ProgramId(0)), on, workers, &engine_model, known)?;
        let used = used(planned);
        let idle = |(unit, of): (usize, &crate::platform::UnitOf)| match used.get(unit) {
            Some(true) => 0.0,
            _ => on.platform.nodes[of.kind].units[of.unit].idle_watts.value,
        };
        let off: f64 = on.units.iter().enumerate().map(idle).sum();
        let joules = Joules(step.joules.0 - off * step.step.0 as f64 / 1e9);
        Ok(StepPrediction { joules, ..step })
    }
}

/// The units of each stage: the first of its type that no earlier stage has.
fn places(problem: &Problem, of: &Assignment) -> Vec<Range<usize>> {
    let mut next: Vec<usize> = Vec::with_capacity(problem.units.len());
    let mut before = 0;
    for unit in &problem.units {
        next.push(before);
        before += unit.count;
    }
    let place = |stage: &Stage| {
        let first = next[stage.unit];
        next[stage.unit] += stage.replicas;
        first..first + stage.replicas
    };
    of.stages.iter().map(place).collect()
}

/// How fast the units are for the whole model; those that are not used, 0.
fn speeds(
    problem: &Problem,
    (of, places): (&Assignment, &[Range<usize>]),
    units: usize,
) -> Vec<f64> {
    let mut speeds = vec![0.0; units];
    for (stage, place) in of.stages.iter().zip(places) {
        let seconds: f64 = problem.layers.iter().map(|layer| layer.seconds[stage.unit]).sum();
        let speed = problem.units[stage.unit].powers[stage.power].speed;
        speeds[place.clone()].fill(speed / seconds.max(f64::MIN_POSITIVE));
    }
    let most = speeds.iter().copied().fold(0.0, f64::max);
    speeds.iter().map(|speed| speed / most.max(f64::MIN_POSITIVE)).collect()
}

/// A worker a unit, at the power that its stage has.
fn workers((of, places): (&Assignment, &[Range<usize>]), units: usize) -> Vec<Worker> {
    let state = |unit: usize| {
        let stage = places.iter().position(|place| place.contains(&unit))?;
        of.stages[stage].power.checked_sub(1)
    };
    (0..units).map(|unit| Worker { unit: UnitId(unit as u32), state: state(unit) }).collect()
}
