//! The processing units of a platform that a model is trained on, and how.
//!
//! The planner of pipelines ([`solve`]) leaves out what pieces, tasks and waiting cost. The best
//! plans of its front, one plan per type of units, and uneven shares over all units become runs
//! ([`Deployment`]), whose steps are simulated; these are what is chosen from.

use super::{Contest, For, Measurer, choose, is_measured};
use crate::calibrate::{Racer, Turn};
use crate::error::{Error, Result};
use crate::meter::model_of;
use crate::model::{Model, TrainSpec};
use crate::native::{Native, Scheduling};
use crate::ops::Target;
use crate::perf::{PerfModel, cpu_kind};
use crate::plan::{MemoryLimits, PlannedPrograms};
use crate::planner::pipeline::{
    Assignment, Limits, Objective, Problem, Semantics, Solution, Stage, Watts, cost_of, infeasible,
    layers, machinery, objective_value, plan_value, shared_by_all_units, solve,
};
use crate::planner::{Deployed, Deployment, Grain, Ran};
use crate::platform::Platform;
use crate::sim::StepPrediction;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How many plans of the front are deployed at most.
const DEPLOYED: usize = 4;
/// The most units of a plan over several machines that is deployed and simulated.
const MOST_UNITS: usize = 64;
/// Micro-batches of a pipeline where their number is not set: the same for any number of workers,
/// since they decide how sums are rounded.
pub const MICRO_BATCHES: usize = 8;

/// What is planned over the units of a platform.
#[derive(Clone)]
pub struct PlanRequest<'a> {
    /// The model.
    pub model: &'a Model,
    /// What training is made of, the batch in one part.
    pub spec: &'a TrainSpec,
    /// What kernels are chosen for.
    pub target: Target,
    /// The platform.
    pub platform: &'a Platform,
    /// What is to be minimised.
    pub objective: Objective,
    /// The maximum seconds of a step.
    pub period: Option<f64>,
    /// The maximum watts.
    pub power_cap: Option<f64>,
    /// Whether steps may compute with weights that miss some updates.
    pub allow_stale: bool,
    /// The micro-batches of pipelines.
    pub micro_batches: Option<usize>,
    /// The maximum memory of a plan.
    pub limits: MemoryLimits,
    /// The engine that runs here, where the platform is this machine.
    pub engine: Option<&'a Native>,
    /// The steps of the run that is planned for; 0 where it is not known.
    pub steps: u64,
    /// How long plans are searched for.
    pub time: Duration,
}

/// Plans over units.
pub struct PlannedUnits {
    /// The problem.
    pub problem: Problem,
    /// The planner's solution.
    pub found: Solution,
    /// The plans as tasks, the best for the objective first. Where the platform is not one machine
    /// of processors, they are simulated only, and those of very many units are left out.
    pub deployed: Vec<Deployed>,
    /// The times of calls that they rest on.
    pub known: PerfModel,
}

impl PlanRequest<'_> {
    /// Plans over the units, and the best of them as runs. Calls that `known` lacks are
    /// measured, and plans that are close are raced, where there are a measurer and an engine.
    ///
    /// # Errors
    /// Where no plan fits or is fast enough, or nobody knows what calls take.
    pub fn plan(
        &self,
        mut known: PerfModel,
        measurer: Option<&mut dyn Measurer>,
    ) -> Result<PlannedUnits> {
        let one = self.on_one_worker()?;
        let runs_here = self.deployment(&known).check_runs().is_ok();
        let kind = cpu_kind(self.target.isa);
        let mut measurer = measurer.filter(|_| runs_here && self.engine.is_some());
        let is_known = known.kinds().contains(&kind) && known.bandwidth.is_some();
        if let Some(measurer) = measurer.as_deref_mut().filter(|_| !is_known) {
            measurer.learn(&one, &kind, &mut known)?;
        }
        let problem = self.problem(&one, &known)?;
        let from = Instant::now();
        let used = || from.elapsed().as_secs_f64() / self.time.as_secs_f64().max(f64::MIN_POSITIVE);
        let stop = || used() >= 1.0;
        let found = solve(&problem, &Limits { stop: &stop, used: &used, ..Limits::default() })?;
        if found.best.is_none() {
            return Err(infeasible(&problem, &found));
        }
        let plans = finalists(&problem, &found);
        let mut deployed;
        if runs_here {
            let runs = self.deploy_all(&problem, &plans, &known)?;
            let engine = self.engine.cloned().unwrap_or_default();
            let staged = Native { scheduling: Scheduling::Staged, ..engine.clone() };
            let contest = Runs { request: self, problem: &problem, engine, staged };
            let of = For { kind: &kind, steps: self.steps, limit: self.limits.of_host() };
            (deployed, _) = choose(&contest, runs, &mut known, measurer, of)?;
        } else {
            let units = |plan: &Assignment| plan.stages.iter().map(|s| s.replicas).sum::<usize>();
            let few =
                plans.into_iter().filter(|plan| units(plan) <= MOST_UNITS).collect::<Vec<_>>();
            deployed = self.deploy_all(&problem, &few, &known)?;
            let value =
                |run: &Deployed| (run.breaks(&problem).is_some(), run.value(problem.objective));
            deployed.sort_by(|a, b| {
                let (a, b) = (value(a), value(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            });
        }
        Ok(PlannedUnits { problem, found, deployed, known })
    }

    /// The model as a problem over the units.
    pub fn problem_of(&self, known: &PerfModel) -> Result<Problem> {
        let one = self.on_one_worker()?;
        self.problem(&one, known)
    }

    /// The programs on one worker.
    fn on_one_worker(&self) -> Result<PlannedPrograms> {
        let one = Grain { target: self.target, ..Grain::for_workers(1) };
        one.plan(&self.model.lower(self.spec)?.programs)
    }

    /// How its plans become runs.
    pub fn deployment<'a>(&'a self, known: &'a PerfModel) -> Deployment<'a> {
        let Self { model, spec, target, platform, .. } = *self;
        Deployment { model, spec, target, platform, known, limits: &self.limits }
    }

    /// The model as a problem over the units.
    fn problem(&self, one: &PlannedPrograms, known: &PerfModel) -> Result<Problem> {
        let mut machines = machinery(self.platform, Watts::Likely)?;
        if let Some(limit) = self.limits.total {
            machines.limit_memory(limit.0 as f64);
        }
        let samples = self.spec.train.iter().copied().max().unwrap_or(1);
        let (stale, asked) = (self.allow_stale, self.micro_batches);
        let parts = asked.unwrap_or(MICRO_BATCHES.min(samples));
        // Statistics of a batch are those of all its samples: then it stays whole.
        let split = TrainSpec { micro_batches: parts.max(2).min(samples), ..self.spec.clone() };
        let micro_batches = match (self.model.lower(&split), asked) {
            (Ok(_), _) => parts,
            (Err(_), None) => 1,
            (Err(error), Some(_)) => return Err(error),
        };
        Ok(Problem {
            layers: layers(one, (self.platform, &machines), known)?,
            units: machines.units,
            nodes: machines.nodes,
            semantics: match stale {
                true => Semantics::Stale,
                false => Semantics::Synchronous { micro_batches },
            },
            objective: self.objective,
            period_cap: self.period,
            power_cap: self.power_cap,
            samples: Some(samples),
            scopes: machines.scopes,
        })
    }

    /// A plan as a run, with calls that nobody knows measured where there is a measurer.
    ///
    /// # Errors
    /// Where it does not fit into memory.
    pub fn run_of(
        &self,
        problem: &Problem,
        plan: &Assignment,
        known: &mut PerfModel,
        measurer: Option<&mut dyn Measurer>,
    ) -> Result<Deployed> {
        let run = self.deployment(known).deploy(problem, plan)?;
        let Some(measurer) = measurer.filter(|_| run.step.is_none() && run.spec.delays.is_none())
        else {
            return Ok(run);
        };
        let kind = cpu_kind(self.target.isa);
        measurer.learn(&run.plan, &kind, known)?;
        self.deployment(known).deploy(problem, plan)
    }

    /// The plans as runs; those that do not fit into memory are left out.
    fn deploy_all(
        &self,
        problem: &Problem,
        plans: &[Assignment],
        known: &PerfModel,
    ) -> Result<Vec<Deployed>> {
        let (mut all, mut failed): (Vec<Deployed>, Option<Error>) = (Vec::new(), None);
        for plan in plans {
            match self.deployment(known).deploy(problem, plan) {
                // Shares of one sample may come out as those of another plan.
                Ok(new) if all.iter().any(|old| *old.plan == *new.plan) => {}
                Ok(new) => all.push(new),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match (all.is_empty(), failed) {
            (true, Some(error)) => Err(error),
            _ => Ok(all),
        }
    }
}

/// Runs over units.
struct Runs<'a> {
    request: &'a PlanRequest<'a>,
    problem: &'a Problem,
    engine: Native,
    /// The engine of runs with several steps in flight.
    staged: Native,
}

impl Contest for Runs<'_> {
    type Candidate = Deployed;

    fn predict(&self, run: &mut Deployed, known: &PerfModel) -> Result<()> {
        if run.spec.delays.is_some() {
            // Several steps are in flight: what the planner says of it is all that is known.
            return Ok(());
        }
        if !run.step.as_ref().is_some_and(is_measured) {
            // The grain depends on the times too.
            *run = self.request.deployment(known).deploy(self.problem, &run.of)?;
        }
        match (&run.step, self.request.engine) {
            (None, Some(_)) => {
                let what = "a prediction of a step with calls that were never measured";
                Err(Error::Unsupported { what: what.to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn step<'a>(&self, of: &'a Deployed) -> Option<&'a StepPrediction> {
        of.step.as_ref()
    }

    fn racer<'a>(&'a self, of: &'a Deployed) -> Racer<'a> {
        let engine = if of.spec.delays.is_some() { &self.staged } else { &self.engine };
        Racer { plan: &of.plan, steps: of.steps(), engine }
    }

    fn ran(&self, of: &Deployed) -> Option<Ran> {
        of.ran
    }

    fn set_ran(&self, of: &mut Deployed, ran: Ran) {
        of.ran = Some(ran);
    }

    fn worth(&self, seconds: f64, joules: f64) -> f64 {
        objective_value(self.problem.objective, seconds, joules)
    }

    fn expected(&self, of: &Deployed) -> [f64; 2] {
        of.expected()
    }

    fn joules(&self, of: &Deployed, turn: &Turn) -> f64 {
        let all = model_of(self.request.platform, &turn.did, &of.used());
        // Platforms without watts have no joules, and logarithms are taken.
        let all = all.map_or(0.0, |all| all.joules().0) / turn.steps as f64;
        all.max(f64::MIN_POSITIVE)
    }

    fn used(&self, of: &Deployed) -> Vec<bool> {
        of.used()
    }

    fn breaks(&self, of: &Deployed) -> bool {
        of.breaks(self.problem).is_some()
    }

    /// Nobody here sets powers other than the full one.
    fn runs(&self, of: &Deployed) -> bool {
        of.of.stages.iter().all(|stage| stage.power == 0)
    }
}

/// The plans that are deployed: the best of the front, every type of units alone, and all
/// units with shares of the batch.
fn finalists(problem: &Problem, found: &Solution) -> Vec<Assignment> {
    let value = |plan: &Assignment| {
        let late = problem.period_cap.is_some_and(|cap| plan.period_s > cap);
        (late, plan_value(problem, plan))
    };
    let mut front: Vec<Assignment> = found.front.plans().to_vec();
    front.sort_by(|a, b| {
        let (a, b) = (value(a), value(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    front.truncate(DEPLOYED);
    for (unit, of) in problem.units.iter().enumerate().filter(|(_, of)| of.count > 0) {
        let layers: Vec<usize> = (0..problem.layers.len()).collect();
        for replicas in [1, of.count] {
            let stage = Stage { layers: layers.clone(), unit, replicas, power: 0 };
            let (period_s, energy_j) = (0.0, 0.0);
            let mut plan =
                Assignment { stages: vec![stage], shares: Vec::new(), period_s, energy_j };
            [plan.period_s, plan.energy_j] = cost_of(problem, &plan);
            if front.iter().all(|other| other.stages != plan.stages) {
                front.push(plan);
            }
        }
    }
    let all = problem.samples.and_then(|samples| shared_by_all_units(problem, samples));
    front.extend(all.filter(|plan| front.iter().all(|other| other.stages != plan.stages)));
    front
}

/// A deployed plan in words.
pub fn in_words(problem: &Problem, run: &Deployed) -> String {
    let units = |used: &mut dyn Iterator<Item = usize>| -> String {
        let mut used: Vec<usize> = used.map(|worker| run.types()[worker]).collect();
        used.sort_unstable();
        let parts = used.chunk_by(|a, b| a == b);
        let parts = parts.map(|own| format!("{} x{}", problem.units[own[0]].name, own.len()));
        parts.collect::<Vec<_>>().join(" + ")
    };
    let groups = || run.plan.placement.programs[0].groups.iter();
    let used: BTreeSet<usize> =
        groups().flat_map(|group| &group.workers).map(|worker| worker.index()).collect();
    let mut used = used.into_iter();
    match (&run.flow, &run.grain) {
        (Some(flow), _) => {
            let stages: Vec<String> = (0..flow.stages.count())
                .map(|s| {
                    let mut layers = flow.stages.layers(s);
                    let first = layers.next().unwrap_or_default();
                    let last = layers.last().unwrap_or(first);
                    format!("{first} to {last} on {}", units(&mut flow.own[s].clone()))
                })
                .collect();
            let parts = match run.spec.micro_batches {
                1 => String::new(),
                parts => format!("; {parts} micro-batches"),
            };
            format!("stages {}{parts}", stages.join(", "))
        }
        (None, Some(_)) if !run.plan.placement.units.is_empty() => {
            let shards = &run.spec.shards;
            let samples = if shards.count() > 1 {
                format!("; shards of {shards} samples")
            } else {
                String::new()
            };
            format!("{}{samples}", units(&mut used))
        }
        (None, Some(grain)) => format!("{}: {grain}", units(&mut used)),
        (None, None) => units(&mut used),
    }
}
