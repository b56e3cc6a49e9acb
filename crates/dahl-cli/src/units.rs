//! Which units of a platform a model is trained on: `dahl plan MODEL --platform`,
//! `dahl train --plan auto`.

use crate::simulate::calibrations;
use clap::ValueEnum;
use dahl::calibrate::{Racer, Turn, compared, race, to_the_end};
use dahl::graph::Programs;
use dahl::meter::model_of;
use dahl::model::{Lowered, Model, TrainSpec};
use dahl::native::{Native, Scheduling, available_bytes};
use dahl::ops::Target;
use dahl::perf::{PerfModel, Source, cpu_kind};
use dahl::plan::{Numerics, Plan};
use dahl::planner::pipeline::{
    Assignment, Limits, Objective, Problem, Semantics, Solution, Stage, Watts, cost_of, infeasible,
    layers, machinery, objective_value, plan_value, shared_by_all_units, solve,
};
use dahl::planner::{Deployed, Deployment, Flow, Grain, Ran};
use dahl::platform::Platform;
use dahl::units::{Bytes, ProgramId};
use dahl::{Error, Result};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How many plans of the front are made to run, at most.
const FINALISTS: usize = 4;
/// How many of those that are close are tried, at most.
const TRIED: usize = 5;
/// How much worse than the best one may be predicted to be, to be worth a trial.
const CLOSE: f64 = 1.3;
/// The same for the best plan of other units.
const OTHER_UNITS: f64 = 2.0;
/// The part of a run that trials may take, and between how many seconds.
const TRIAL: (f64, [f64; 2]) = (0.05, [1.0, 15.0]);
/// How long the calls of a plan are measured.
const LEARN: Duration = Duration::from_millis(300);
/// A part of the predicted time that may rest on guesses.
const GUESSED: f64 = 0.1;
/// Micro-batches of pipelines, where nobody says how many.
const PARTS: usize = 8;

/// What is to be least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Goal {
    /// Joules
    Energy,
    /// Seconds
    Time,
    /// Their product
    Edp,
}

impl Goal {
    pub(crate) fn objective(self) -> Objective {
        match self {
            Goal::Energy => Objective::Energy,
            Goal::Time => Objective::Time,
            Goal::Edp => Objective::Edp,
        }
    }
}

/// What is planned.
#[derive(Clone)]
pub(crate) struct Asked<'a> {
    pub(crate) model: &'a Model,
    /// What training is made of, the batch in one part.
    pub(crate) spec: &'a TrainSpec,
    pub(crate) target: Target,
    pub(crate) platform: &'a Platform,
    pub(crate) calibration: Option<PathBuf>,
    pub(crate) objective: Objective,
    pub(crate) period: Option<f64>,
    pub(crate) power_cap: Option<f64>,
    /// Whether stale weights are allowed, and how many micro-batches pipelines have.
    pub(crate) flow: (bool, Option<usize>),
    pub(crate) limit: Option<Bytes>,
    /// Who runs here, where the platform is this machine: calls that nobody knows are measured
    /// then, and plans that are close are tried.
    pub(crate) engine: Option<&'a Native>,
    /// The steps of the run that is planned for: trials are worth a part of it.
    pub(crate) steps: u64,
    pub(crate) time: Duration,
}

/// What was found.
pub(crate) struct Planned {
    pub(crate) problem: Problem,
    pub(crate) found: Solution,
    /// The plans that run here, the best for the objective first; none where the platform
    /// is not one machine of processors.
    pub(crate) deployed: Vec<Deployed>,
    /// What the times come from.
    pub(crate) known: PerfModel,
}

impl Asked<'_> {
    /// Plans over the units, and runs of the best of these plans.
    ///
    /// # Errors
    /// Where no plan fits or is fast enough, or nobody knows what calls take.
    pub(crate) fn plan(&self) -> Result<Planned> {
        self.plan_with(self.known()?)
    }

    /// What is known of calls before anything is measured.
    pub(crate) fn known(&self) -> Result<PerfModel> {
        let paths: Vec<PathBuf> = self.calibration.iter().cloned().collect();
        calibrations(&paths)
    }

    /// The model as a problem over the units, by what is known of calls.
    pub(crate) fn problem_of_calls(&self, known: &PerfModel) -> Result<Problem> {
        let (lowered, one) = self.on_one_worker()?;
        self.problem((&lowered.programs, &one), known)
    }

    /// The programs, and their plan on one worker.
    fn on_one_worker(&self) -> Result<(Lowered, Plan)> {
        let lowered = self.model.lower(self.spec)?;
        let numerics = Numerics::default_for(&lowered.programs, self.target);
        let one = Grain { target: self.target, ..Grain::for_workers(1) };
        let one = one.plan_with(&lowered.programs, numerics)?;
        Ok((lowered, one))
    }

    /// The same with what is known of calls already.
    pub(crate) fn plan_with(&self, known: PerfModel) -> Result<Planned> {
        let mut known = known;
        let (lowered, one) = self.on_one_worker()?;
        let runs_here = self.deployment(&known).check().is_ok();
        let kind = cpu_kind(self.target.isa);
        let measures = runs_here && self.engine.is_some();
        if measures && (!known.kinds().contains(&kind) || known.bandwidth.is_none()) {
            learn(&lowered.programs, &one, &kind, &mut known)?;
        }
        let problem = self.problem((&lowered.programs, &one), &known)?;
        let from = Instant::now();
        let stop = || from.elapsed() > self.time;
        let found = solve(&problem, &Limits { stop: &stop, ..Limits::default() })?;
        if found.best.is_none() {
            return Err(infeasible(&problem, &found));
        }
        let mut deployed = Vec::new();
        if runs_here {
            let finalists = finalists(&problem, &found);
            deployed = self.deploy(&problem, &finalists, &mut known)?;
            // What looks best and rests on guesses is measured, and all are predicted again.
            for _ in 0..if measures { FINALISTS } else { 0 } {
                let guessed = |d: &&Deployed| {
                    d.step.as_ref().is_some_and(|step| {
                        let part =
                            step.sources.iter().find(|(source, _)| *source == Source::Measured);
                        part.map_or(0.0, |(_, part)| *part) < 1.0 - GUESSED
                    })
                };
                let Some(next) = deployed.iter().take(2).find(guessed) else { break };
                learn(&next.lowered.programs, &next.plan, &kind, &mut known)?;
                deployed = self.deploy(&problem, &finalists, &mut known)?;
            }
            self.try_close(&problem, &mut deployed)?;
        }
        Ok(Planned { problem, found, deployed, known })
    }

    pub(crate) fn deployment<'a>(&'a self, known: &'a PerfModel) -> Deployment<'a> {
        let Self { model, spec, target, platform, limit, .. } = *self;
        Deployment { model, spec, target, platform, known, limit }
    }

    /// The model as a problem over the units.
    fn problem(&self, what: (&Programs, &Plan), known: &PerfModel) -> Result<Problem> {
        let mut machines = machinery(self.platform, Watts::Likely)?;
        if let Some(limit) = self.limit {
            machines.limit_memory(limit.0 as f64);
        }
        let samples = self.spec.train.iter().copied().max().unwrap_or(1);
        let (stale, asked) = self.flow;
        let parts = asked.unwrap_or(PARTS.min(samples));
        // Statistics of a batch are those of all its samples: then it stays whole.
        let parted = TrainSpec { parts: parts.max(2).min(samples), ..self.spec.clone() };
        let micro_batches = match (self.model.lower(&parted), asked) {
            (Ok(_), _) => parts,
            (Err(_), None) => 1,
            (Err(error), Some(_)) => return Err(error),
        };
        Ok(Problem {
            layers: layers(what, (self.platform, &machines), known)?,
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
        })
    }

    /// A plan as a run; calls that nobody knows are measured, where that is asked for.
    ///
    /// # Errors
    /// Where it does not fit.
    pub(crate) fn run_of(
        &self,
        problem: &Problem,
        plan: &Assignment,
        known: &mut PerfModel,
    ) -> Result<Deployed> {
        let run = self.deployment(known).deploy(problem, plan)?;
        if run.step.is_some() || run.spec.delays.is_some() || self.engine.is_none() {
            return Ok(run);
        }
        learn(&run.lowered.programs, &run.plan, &cpu_kind(self.target.isa), known)?;
        self.deployment(known).deploy(problem, plan)
    }

    /// The plans as runs, the best first; those that do not fit are left out.
    fn deploy(
        &self,
        problem: &Problem,
        plans: &[Assignment],
        known: &mut PerfModel,
    ) -> Result<Vec<Deployed>> {
        let (mut all, mut failed): (Vec<Deployed>, Option<Error>) = (Vec::new(), None);
        for plan in plans {
            match self.run_of(problem, plan, known) {
                // Shares of one sample may come out as those of another plan.
                Ok(new) if all.iter().any(|old| old.plan == new.plan) => {}
                Ok(new) => all.push(new),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let (true, Some(error)) = (all.is_empty(), failed) {
            return Err(error);
        }
        rank(problem, &mut all);
        Ok(all)
    }

    /// Runs what may be the best, in turns: predictions are no surer than the calls that they
    /// rest on.
    fn try_close(&self, problem: &Problem, deployed: &mut [Deployed]) -> Result<()> {
        let Some(engine) = self.engine else { return Ok(()) };
        let (part, [least, most]) = TRIAL;
        let best_seconds = deployed.first().map_or(0.0, |best| best.expected()[0]);
        let budget = (part * best_seconds * self.steps as f64).clamp(least, most);
        let tried = self.worth_a_trial(problem, deployed, budget);
        if tried.len() < 2 {
            return Ok(());
        }
        let staged = Native { scheduling: Scheduling::Staged, ..engine.clone() };
        let racer = |&i: &usize| {
            let Deployed { lowered, plan, spec, .. } = &deployed[i];
            let engine = if spec.delays.is_some() { &staged } else { engine };
            Racer { programs: &lowered.programs, plan, steps: deployed[i].steps(), engine }
        };
        let racers: Vec<Racer<'_>> = tried.iter().map(racer).collect();
        let used: Vec<Vec<bool>> = tried.iter().map(|&i| deployed[i].used()).collect();
        let seconds = |_: usize, turn: &Turn| turn.step().0 as f64 / 1e9;
        let joules = |i: usize, turn: &Turn| {
            let all = model_of(self.platform, &turn.did, &used[i]);
            // Platforms without watts have no joules, and logarithms are taken.
            let all = all.map_or(0.0, |all| all.joules().0) / turn.steps as f64;
            all.max(f64::MIN_POSITIVE)
        };
        let value = |i: usize, turn: &Turn| {
            objective_value(problem.objective, seconds(i, turn), joules(i, turn))
        };
        let turns = race(&racers, Duration::from_secs_f64(budget), &value)?;
        let ran = compared(&turns, &seconds).into_iter().zip(compared(&turns, &joules));
        for ((&i, (seconds, joules)), to_the_end) in tried.iter().zip(ran).zip(to_the_end(&turns)) {
            deployed[i].ran = Some(Ran { seconds, joules, to_the_end });
        }
        rank(problem, deployed);
        Ok(())
    }

    /// Plans that are predicted to be about as good as the best, and the best of every set of
    /// units; as many as there is memory for at once, and time for some steps of each. Powers
    /// other than the full one are not set by anyone here: such plans are not tried, and nothing
    /// is where the best is one of them.
    fn worth_a_trial(&self, problem: &Problem, deployed: &[Deployed], budget: f64) -> Vec<usize> {
        let Some(best) = deployed.first() else { return Vec::new() };
        let comparable = |d: &Deployed| {
            let at_full_power = d.of.stages.iter().all(|stage| stage.power == 0);
            at_full_power && d.breaks(problem).is_some() == best.breaks(problem).is_some()
        };
        let within = |d: &Deployed, times: f64| {
            d.value(problem.objective) <= times * best.value(problem.objective)
        };
        let used: Vec<Vec<bool>> = deployed.iter().map(Deployed::used).collect();
        let first_of_its_units = |i: usize| used[..i].iter().all(|other| *other != used[i]);
        let all = (0..deployed.len()).filter(|&i| comparable(&deployed[i]));
        let mut tried: Vec<usize> =
            all.clone().filter(|&i| within(&deployed[i], CLOSE)).take(TRIED).collect();
        tried.extend(all.filter(|&i| first_of_its_units(i) && within(&deployed[i], OTHER_UNITS)));
        tried.sort_unstable();
        tried.dedup();
        let limits = self.limit.map(|limit| limit.0).into_iter().chain(available_bytes());
        let (mut bytes, mut seconds) = (limits.min().unwrap_or(u64::MAX), budget);
        tried.retain(|&i| {
            let run = &deployed[i];
            let rest = bytes.checked_sub(run.plan.memory.peak().0);
            let takes = run.expected()[0] * run.steps().len() as f64;
            let fits = rest.is_some() && takes <= seconds;
            if fits {
                (bytes, seconds) = (rest.unwrap_or(0), seconds - takes);
            }
            fits
        });
        // What looks best would be behind all that ran.
        if tried.first() == Some(&0) { tried } else { Vec::new() }
    }
}

/// The best first: what keeps to the bounds, then what was tried to the end, and at all.
fn rank(problem: &Problem, deployed: &mut [Deployed]) {
    deployed.sort_by(|a, b| {
        let tried = |d: &Deployed| d.ran.map_or(2, |ran| usize::from(!ran.to_the_end));
        let key = |d: &Deployed| (d.breaks(problem).is_some(), tried(d));
        let value = |d: &Deployed| d.value(problem.objective);
        key(a).cmp(&key(b)).then(value(a).total_cmp(&value(b)))
    });
}

/// The plans that are made to run: the best of the front, every type of units alone, and all
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
    front.truncate(FINALISTS);
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

fn learn(programs: &Programs, plan: &Plan, kind: &str, known: &mut PerfModel) -> Result<()> {
    dahl::calibrate::steps(programs, plan, ProgramId(0), LEARN, kind, known).map(drop)
}

/// What a plan that runs is, in short.
pub(crate) fn in_words(problem: &Problem, run: &Deployed) -> String {
    let units = |used: &mut dyn Iterator<Item = usize>| -> String {
        let mut used: Vec<usize> = used.collect();
        used.sort_unstable();
        used.dedup();
        let mut first = 0;
        let mut parts = Vec::new();
        for unit in &problem.units {
            let own = used.iter().filter(|u| (first..first + unit.count).contains(*u)).count();
            if own > 0 {
                parts.push(format!("{} x{own}", unit.name));
            }
            first += unit.count;
        }
        parts.join(" + ")
    };
    let groups = || run.plan.placement.programs[0].groups.iter();
    let mut used = groups().flat_map(|group| &group.workers).map(|worker| worker.index());
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
            let parts = match run.spec.parts {
                1 => String::new(),
                parts => format!("; {parts} micro-batches"),
            };
            format!("stages {}{parts}", stages.join(", "))
        }
        (None, Some(grain)) => format!("{}: {grain}", units(&mut used)),
        (None, None) => units(&mut used),
    }
}

/// The flags of `dahl train` that say what is learned, beside model and recipe, so that a run
/// can go on by another placement.
pub(crate) fn flags(run: &Deployed) -> Vec<(&'static str, String)> {
    let mut flags = Vec::new();
    if run.spec.parts > 1 {
        flags.push(("micro-batches", run.spec.parts.to_string()));
    }
    if let Some(Flow { stages, delays: Some(_), .. }) = &run.flow {
        let first = |s| stages.layers(s).next().unwrap_or_default().to_owned();
        let starts: Vec<String> = (0..stages.count()).map(first).collect();
        flags.push(("pipeline", "pipedream".to_owned()));
        flags.push(("stages", starts.join(",")));
        flags.push(("allow-stale", "true".to_owned()));
    }
    flags
}
