//! Plans over units, as plans that run there.
//!
//! On one machine of processors worker i is unit i, and all share its memory. Where there are
//! several machines or devices, the units that are used are workers, each machine is a process,
//! and each memory a space; moves between them are tasks ([`Machines`]).
//!
//! What [`solve`](super::solve()) plans leaves out what pieces, tasks and waiting cost. Here
//! its plans become tasks, whose steps are simulated on the platform: this is what is compared
//! with a run, and what decides between plans that are about as good.

use super::cost::objective_value;
use super::machines::Machines;
use super::platform_units::{Watts, machinery};
use super::schedule::{Flow, Order};
use super::stages::layer_paths;
use crate::error::{Error, Result};
use crate::graph::Shards;
use crate::model::{Delays, Lowered, Model, Stages, TrainSpec};
use crate::ops::Target;
use crate::perf::PerfModel;
use crate::plan::{Does, MemoryLimits, Numerics, Plan, PlannedPrograms};
use crate::planner::grain::{Grain, apportion, shared};
use crate::planner::recompute::fit;
use crate::platform::{Expanded, NodeId, Platform, UnitId, UnitOf};
use crate::sim::{EngineModel, Known, StepPrediction, Worker, predict};
use crate::units::{Bytes, Joules, ProgramId};
use dahl_certify::{Assignment, Objective, Problem, Semantics, Stage};
use std::collections::BTreeSet;
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
    /// Its machines.
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
    units: Vec<UnitId>,
    types: Vec<usize>,
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

    /// The unit that each worker runs on.
    pub fn units(&self) -> &[UnitId] {
        &self.units
    }

    /// The type of the unit of each worker, in the problem that it comes from.
    pub fn types(&self) -> &[usize] {
        &self.types
    }

    /// The bytes that a training step moves between memories.
    pub fn moved(&self) -> Bytes {
        let (graph, tasks) = self.plan.program(ProgramId(0));
        let bytes = tasks.tasks.iter().map(|task| match &task.does {
            Does::Move(of) => of.bytes(graph).0,
            _ => 0,
        });
        Bytes(bytes.sum())
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
    /// Refuses platforms that are not one machine of processors: no process runs its plans.
    ///
    /// # Errors
    /// Says what the platform has instead.
    pub fn check_runs(&self) -> Result<()> {
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
        let on = self.platform.expand();
        if self.check_runs().is_err() {
            return self.over_machines(problem, of, &on);
        }
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
            let (flow, ran, (units, types)) = (None, None, self.all_units(on)?);
            let deployed =
                Deployed { of, spec, lowered, plan, grain, flow, step, ran, units, types };
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
        let stages = self.stages_of(of)?;
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
        let (of, grain, flow, ran) = (of.clone(), None, Some(flow), None);
        let (units, types) = self.all_units(on)?;
        Ok(Deployed { of, spec, lowered, plan, grain, flow, step, ran, units, types })
    }

    /// The layers of the stages of a plan.
    fn stages_of(&self, of: &Assignment) -> Result<Stages> {
        let plain = self.model.lower(self.spec)?;
        let numerics = Numerics::default_for(&plain.programs, self.target);
        let expanded = numerics.expand(&plain.programs)?;
        let paths = layer_paths(&expanded.programs[0].graph);
        let stage_of = |layer: usize| of.stages.iter().position(|s| s.layers.contains(&layer));
        let layers = paths.iter().enumerate().filter_map(|(i, path)| Some((*path, stage_of(i)?)));
        Ok(Stages::new(layers))
    }

    /// All units, with their types.
    fn all_units(&self, on: &Expanded<'_>) -> Result<(Vec<UnitId>, Vec<usize>)> {
        let units: Vec<UnitId> = (0..on.units.len() as u32).map(UnitId).collect();
        let types = machinery(self.platform, Watts::Likely)?.units_of(on);
        let types = type_of(&types, &units);
        Ok((units, types))
    }

    /// Units of several machines or devices, side by side or one behind the other.
    fn over_machines(
        &self,
        problem: &Problem,
        of: &Assignment,
        on: &Expanded<'_>,
    ) -> Result<Deployed> {
        let types = machinery(self.platform, Watts::Likely)?.units_of(on);
        let machines = Machines::new(&types, of, on);
        let piped = of.shares.is_empty() && of.stages.len() > 1;
        let stale = problem.semantics == Semantics::Stale && piped;
        let stages = if piped { Some(self.stages_of(of)?) } else { None };
        let delays = stages.clone().filter(|_| stale).map(Delays::stashed);
        let micro_batches = match problem.semantics {
            Semantics::Synchronous { micro_batches } if piped => micro_batches,
            _ => 1,
        };
        let shards = self.shards(&machines)?;
        let own = self.spec.clone();
        let spec = TrainSpec { micro_batches, shards, delays: delays.clone(), ..own };
        let lowered = self.model.lower(&spec)?;
        let numerics = Numerics::default_for(&lowered.programs, self.target);
        let count = machines.workers.len();
        let shares = machines.shares.clone();
        let grain = Grain { target: self.target, shares, ..Grain::for_workers(count) };
        let (limits, memories) = (machines.limits(self.limits, on), &machines.memories);
        let order = Order::OneForwardOneBackward;
        let flow = stages.map(|stages| Flow { stages, order, delays, own: machines.own.clone() });
        let fitted = match &flow {
            Some(flow) => fit(&(flow, &grain, memories), &lowered.programs, &numerics, limits)?,
            None => fit(&(&grain, memories), &lowered.programs, &numerics, limits)?,
        };
        let plan = fitted.plan;
        let step = match stale {
            true => None,
            false => match self.predicted(&plan, on, machines.workers.clone()) {
                Ok(step) => Some(step),
                // Nobody knows what some of its calls take.
                Err(Error::Config(_)) => None,
                Err(error) => return Err(error),
            },
        };
        let units: Vec<UnitId> = machines.workers.iter().map(|worker| worker.unit).collect();
        let types = type_of(&types, &units);
        let (of, grain, ran) = (of.clone(), flow.is_none().then_some(grain), None);
        Ok(Deployed { of, spec, lowered, plan, grain, flow, step, ran, units, types })
    }

    /// The shards of a plan over several processes, where the training says none: the samples of
    /// each space that shares a batch; for stages as many as can be dealt evenly to the spaces of
    /// each, and at least one per process.
    fn shards(&self, machines: &Machines) -> Result<Shards> {
        let batch = self.spec.train.iter().copied().max().unwrap_or(1);
        if machines.memories.spaces.len() == 1 || self.spec.shards.count() > 1 {
            return Ok(self.spec.shards.clone());
        }
        let samples = machines.samples();
        if machines.own.len() == 1 && samples.len() <= batch {
            let samples = apportion(batch, &samples);
            return if samples.contains(&0) {
                Shards::even(batch, samples.len())
            } else {
                Shards::new(samples)
            };
        }
        let even =
            |count: usize| machines.spaces_of_stages().all(|spaces| count.is_multiple_of(spaces));
        let least = machines.ranks().min(batch);
        Shards::even(batch, (least..=batch).find(|count| even(*count)).unwrap_or(least))
    }

    /// A step, without the idle watts of units that get nothing: they are off.
    fn predicted(
        &self,
        planned: &PlannedPrograms,
        on: &Expanded<'_>,
        workers: Vec<Worker>,
    ) -> Result<StepPrediction> {
        let engine_model = EngineModel::measured(self.known);
        let units: Vec<UnitId> = workers.iter().map(|worker| worker.unit).collect();
        let known = &mut Known::new(self.known);
        let step = predict((planned, ProgramId(0)), on, workers, &engine_model, known)?;
        let active = used(planned).into_iter().zip(&units).filter(|(used, _)| *used);
        let active: BTreeSet<UnitId> = active.map(|(_, unit)| *unit).collect();
        // Machines without a worker count nothing.
        let nodes: BTreeSet<NodeId> = units.iter().map(|u| on.units[u.0 as usize].node).collect();
        let idle = |(unit, of): (usize, &UnitOf)| {
            let off = nodes.contains(&of.node) && !active.contains(&UnitId(unit as u32));
            if off { on.platform.nodes[of.kind].units[of.unit].idle_watts.value } else { 0.0 }
        };
        let off: f64 = on.units.iter().enumerate().map(idle).sum();
        let joules = Joules(step.joules.0 - off * step.step.0 as f64 / 1e9);
        Ok(StepPrediction { joules, ..step })
    }
}

/// The types of units, by the units of each type.
fn type_of(types: &[Vec<UnitId>], units: &[UnitId]) -> Vec<usize> {
    let of = |unit: &UnitId| types.iter().position(|own| own.contains(unit));
    units.iter().map(|unit| of(unit).unwrap_or(0)).collect()
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
