//! `dahl plan --profile`: a pipeline over the units of a platform.

use super::text::{self, Figures};
use super::{money, score};
use crate::files::{calibrations, check_outputs, write};
use crate::output::{Colour, say, show, show_json};
use clap::{ArgGroup, Args, ValueEnum};
use dahl::choose::{MICRO_BATCHES, PlanRequest, PlannedUnits};
use dahl::model::{Model, TrainSpec};
use dahl::ops::Target;
use dahl::planner::Deployed;
use dahl::planner::advice::{Change, Changed, Prices, TimeLimit, WhatIf, advice, changed, what_if};
use dahl::planner::baselines::{
    Effort, Imported, Machines, Operators, Profile, max_load, pipedream,
};
use dahl::planner::pipeline::{
    Assignment, Certificate, Layer, Limits, Machinery, Objective, Problem, Semantics, Shares,
    Solution, Watts, certificate, in_short, infeasible, machinery, solve,
};
use dahl::planner::score::ForeignPlan;
use dahl::platform::Platform;
use dahl::report::{PlanReport, front_svg};
use dahl::run::RunConfig;
use dahl::run::config::{Value, at_least_one};
use dahl::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pipelines over platforms
#[derive(Args)]
#[command(group(ArgGroup::new("over").args(["profile", "platform"]).multiple(true)))]
pub(crate) struct PipelineArgs {
    /// Measured profile of a network, to plan instead of a MODEL: a graph.txt of PipeDream, a JSON
    /// file of dnn-partitioning, or a profile in dahl's own format (docs/planner.md), as `dahl import`
    /// writes it
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub(crate) profile: Option<PathBuf>,
    /// Platform file (TOML) with the processing units; not needed with --cost-model max-load and a
    /// dnn-partitioning profile, which describes the processing units itself
    #[arg(long, value_name = "FILE")]
    pub(crate) platform: Option<PathBuf>,
    /// Quantity to minimise [default: time with the cost models pipedream and max-load, else energy]
    #[arg(long, value_enum, requires = "over")]
    objective: Option<Least>,
    /// Cost model of plans [default: max-load for dnn-partitioning profiles without --platform, else
    /// dahl]
    #[arg(long, value_enum, requires = "over")]
    cost_model: Option<CostModel>,
    /// Maximum period (time per batch) in seconds [default: no limit]
    #[arg(long, value_name = "SECONDS", requires = "over")]
    pub(super) period: Option<f64>,
    /// Maximum power in watts, averaged over a batch [default: no limit]
    #[arg(long, value_name = "WATTS", requires = "over")]
    power_cap: Option<f64>,
    /// Plan, and also print the cost of another planner's plan (a JSON file, docs/planner.md) and the
    /// gap between this cost and the lower bound
    #[arg(long, value_name = "FILE", requires = "over", conflicts_with_all = ["svg", "what_if", "advice"])]
    pub(crate) score: Option<PathBuf>,
    /// Number of copies of each machine of the platform file
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one, requires = "over")]
    machines: usize,
    /// Ignore power states: all processing units run at full power
    #[arg(long, requires = "over")]
    full_power: bool,
    /// Print one JSON object
    #[arg(long, requires = "over")]
    pub(super) json: bool,
    /// Write an SVG plot of the Pareto front of period and energy to this file
    #[arg(long, value_name = "FILE", requires = "over")]
    svg: Option<PathBuf>,
    /// Write a certificate of the lower bound to this file; `dahl certify` checks the certificate
    #[arg(long, value_name = "FILE", requires = "over")]
    pub(super) certificate: Option<PathBuf>,
    /// Time limit of the search, the certificate, --what-if and --advice together (90s, 10m); at the
    /// limit the best plan found so far is printed. The limit does not include reading the profile,
    /// lowering the model and simulating the best plans
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = <Duration as Value>::parse, requires = "over")]
    pub(super) max_time: Duration,
    /// Also plan for a changed platform: add=1xA40 adds an A40, remove=2xP100 removes two P100s;
    /// repeatable. Each processing unit is added or removed together with its whole machine
    #[arg(long, value_name = "CHANGE", requires = "over")]
    what_if: Vec<Change>,
    /// Report the efficiency that each unused processing unit would need to become part of the plan,
    /// and the effect of errors of the estimated power values on the plan
    #[arg(long, requires = "over")]
    advice: bool,
    #[command(flatten)]
    pub(super) prices: PriceArgs,
}

/// The run and its prices, for --what-if
#[derive(Args)]
pub(super) struct PriceArgs {
    /// Number of batches in a whole training run, for --what-if and --objective money
    #[arg(long, value_name = "N", default_value_t = 100_000.0, requires = "over")]
    batches: f64,
    /// Price of electricity per kilowatt-hour, for --what-if, and for --objective money if the
    /// platform has no such price
    #[arg(long, value_name = "MONEY", default_value_t = 0.25, requires = "over")]
    price: f64,
    /// Emissions of electricity in grams of CO2 per kilowatt-hour, for --what-if
    #[arg(long, value_name = "GRAMS", default_value_t = 350.0, requires = "over")]
    grid: f64,
    /// Total price of the added processing units, for --what-if
    #[arg(long, value_name = "MONEY", default_value_t = 0.0, requires = "over")]
    unit_price: f64,
}

/// What is minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Least {
    /// Energy per batch
    Energy,
    /// Time per batch (period)
    Time,
    /// Energy-delay product: energy per batch times time per batch
    Edp,
    /// Cost in money per batch: rent of machines and processing units, energy and transfers, at the
    /// prices of the platform
    Money,
}

impl Least {
    /// The objective of the problem: on a platform with prices for watts, money is energy.
    fn objective(self) -> Objective {
        match self {
            Self::Energy | Self::Money => Objective::Energy,
            Self::Time => Objective::Time,
            Self::Edp => Objective::Edp,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CostModel {
    /// PipeDream: time on identical machines
    Pipedream,
    /// dnn-partitioning: largest load (time per batch) of an accelerator or CPU core
    MaxLoad,
    /// Time and energy of heterogeneous processing units
    Dahl,
}

/// A plan over the units of a platform.
pub(crate) struct OverUnits {
    problem: Problem,
    found: Solution,
    /// The best plans as tasks.
    pub(crate) deployed: Vec<Deployed>,
    platform: Platform,
    /// The changes that plans are requested for too.
    changes: Vec<Changed>,
    /// When planning began.
    from: Instant,
}

/// Plans a profile and prints the plan.
pub(crate) fn run(args: &PipelineArgs, config: &RunConfig, profile: &Path) -> Result<()> {
    args.check_files()?;
    if !config.placement.limits().spaces.is_empty() {
        let expected = "one size with --profile, the maximum of each unit";
        return Err(Error::config("memory-limit", expected, "those of spaces"));
    }
    let network = Imported::read(profile)?;
    let platform = args.platform()?;
    let model = args.cost_model.unwrap_or(match network {
        Imported::Operators(_) if platform.is_none() => CostModel::MaxLoad,
        _ => CostModel::Dahl,
    });
    args.only_for(model)?;
    let from = Instant::now();
    let clock = || from.elapsed();
    let used = TimeLimit { clock: &clock, whole: args.max_time }.used(args.search_parts());
    let stop = || used() >= 1.0;
    let needed = |name: &str| platform.clone().ok_or_else(|| missing_platform(name));
    match model {
        CostModel::MaxLoad => {
            let operators = match network {
                Imported::Operators(operators) => operators,
                Imported::Measured(_) => return Err(only_dahl("max-load")),
                Imported::Profile(profile) => {
                    Operators::of(&profile, &machinery(&needed("max-load")?, Watts::Likely)?)?
                }
            };
            max_loads(args, config, operators, &stop)
        }
        CostModel::Pipedream => match network {
            Imported::Profile(profile) => dream(args, config, &profile, &needed("pipedream")?),
            Imported::Measured(_) => Err(only_dahl("pipedream")),
            Imported::Operators(_) => {
                let expected = "max-load or dahl for a graph of dnn-partitioning";
                Err(Error::config("cost-model", expected, "pipedream"))
            }
        },
        CostModel::Dahl => {
            let platform = needed("dahl")?;
            let problem_on = |platform: &Platform| {
                let mut machines = machinery(platform, Watts::Likely)?;
                if let Some(memory) = config.placement.limits().total {
                    machines.limit_memory(memory.0 as f64);
                }
                let layers = match &network {
                    Imported::Profile(profile) => profile.layers(&machines.slowdowns),
                    Imported::Operators(operators) => operators.layers(&machines.slowdowns),
                    Imported::Measured(measured) => {
                        let parts = match config.identity.allow_stale.0 {
                            true => 1,
                            false => config.identity.micro_batches.unwrap_or(MICRO_BATCHES),
                        };
                        measured.layers(platform, &mut machines, parts)?
                    }
                };
                Ok(problem(args, config, layers, &machines))
            };
            let problem = problem_on(&platform)?;
            if let Some(file) = &args.score {
                return score::tell(args, file, (&platform, &problem_on, from));
            }
            if args.is_money() {
                return money::tell(args, (&platform, &problem_on, from));
            }
            // Changes that cannot be made are refused before the search.
            let changes = changed(&args.what_if, &platform, &problem_on)?;
            let found = solve(&problem, &Limits { stop: &stop, used: &used, ..Limits::default() })?;
            let deployed = Vec::new();
            tell(args, &OverUnits { problem, found, deployed, platform, changes, from })
        }
    }
}

/// Times by unit type are for unequal units.
fn only_dahl(found: &str) -> Error {
    Error::config("cost-model", "dahl for a profile with times by unit type", found)
}

fn missing_platform(model: &str) -> Error {
    Error::config("platform", format!("a file of units for the cost model {model}"), "none")
}

/// The seam: whatever gives layers with costs by unit type is planned the same way.
fn problem(
    args: &PipelineArgs,
    config: &RunConfig,
    layers: Vec<Layer>,
    machines: &Machinery,
) -> Problem {
    let micro_batches = config.identity.micro_batches.unwrap_or(MICRO_BATCHES);
    Problem {
        layers,
        units: machines.units.clone(),
        nodes: machines.nodes.clone(),
        semantics: match config.identity.allow_stale.0 {
            true => Semantics::Stale,
            false => Semantics::Synchronous { micro_batches },
        },
        objective: args.objective.map_or(Objective::Energy, Least::objective),
        period_cap: args.period,
        power_cap: args.power_cap,
        samples: None,
        scopes: machines.scopes.clone(),
    }
}

/// Plans the training of a model over the units of a platform; nothing if a plan is scored instead.
pub(crate) fn of_model(
    args: &PipelineArgs,
    config: &RunConfig,
    (model, spec, target): (&Model, &TrainSpec, Target),
) -> Result<Option<OverUnits>> {
    args.check_files()?;
    args.check_money()?;
    if args.cost_model.is_some_and(|model| model != CostModel::Dahl) {
        return Err(Error::config("cost-model", "dahl for a model", "another"));
    }
    let from = Instant::now();
    let platform = args.platform()?.ok_or_else(|| missing_platform("dahl"))?;
    let request = PlanRequest {
        model,
        spec,
        target,
        platform: &platform,
        objective: args.objective.map_or(Objective::Energy, Least::objective),
        period: args.period,
        power_cap: args.power_cap,
        allow_stale: config.identity.allow_stale.0,
        micro_batches: config.identity.micro_batches,
        limits: config.placement.limits(),
        engine: None,
        steps: 0,
        time: args.max_time / args.search_parts() as u32,
    };
    let known = calibrations(&config.session.calibration)?;
    // Changes that cannot be made are refused before the search.
    let problem_on =
        |platform: &Platform| PlanRequest { platform, ..request.clone() }.problem_of(&known);
    if let Some(file) = &args.score {
        score::tell(args, file, (&platform, &problem_on, from))?;
        return Ok(None);
    }
    if args.is_money() {
        money::tell(args, (&platform, &problem_on, from))?;
        return Ok(None);
    }
    let changes = changed(&args.what_if, &platform, &problem_on)?;
    let PlannedUnits { problem, found, deployed, .. } = request.plan(known, None)?;
    Ok(Some(OverUnits { problem, found, deployed, platform, changes, from }))
}

impl PipelineArgs {
    /// Refuses files that cannot be written, before anything is planned.
    fn check_files(&self) -> Result<()> {
        check_outputs(&[("svg", self.svg.as_ref()), ("certificate", self.certificate.as_ref())])
    }

    /// The files that a problem is from.
    pub(super) fn files(&self) -> Vec<String> {
        let files = [("profile", &self.profile), ("platform", &self.platform)];
        let name = |(kind, file): (&str, &Option<PathBuf>)| {
            file.as_ref().map(|file| format!("{kind} {}", file.display()))
        };
        files.into_iter().filter_map(name).collect()
    }

    /// Into how many equal shares the time of the command is cut, of which the search has the
    /// first: what else is asked for has the other half.
    pub(super) fn search_parts(&self) -> usize {
        let more = self.certificate.is_some() || !self.what_if.is_empty() || self.advice;
        if more { 2 } else { 1 }
    }

    /// Whether money is minimised.
    pub(super) fn is_money(&self) -> bool {
        self.objective == Some(Least::Money)
    }

    /// Refuses flags that speak of joules or watts, where money takes their place.
    fn check_money(&self) -> Result<()> {
        let given = [
            ("power-cap", self.power_cap.is_some()),
            ("svg", self.svg.is_some()),
            ("certificate", self.certificate.is_some()),
            ("what-if", !self.what_if.is_empty()),
            ("advice", self.advice),
        ];
        match given.iter().find(|(_, given)| *given && self.is_money()) {
            Some((flag, _)) => Err(Error::exclusive(flag, "objective money")),
            None => Ok(()),
        }
    }

    /// Refuses flags that a cost model has no use for.
    fn only_for(&self, model: CostModel) -> Result<()> {
        self.check_money()?;
        let name = match model {
            CostModel::Dahl => return Ok(()),
            CostModel::Pipedream => "pipedream",
            CostModel::MaxLoad => "max-load",
        };
        let period = model == CostModel::Pipedream && self.period.is_some();
        let score = model == CostModel::Pipedream && self.score.is_some();
        let given = [
            ("period", period),
            ("score", score),
            ("power-cap", self.power_cap.is_some()),
            ("objective", self.objective.is_some_and(|objective| objective != Least::Time)),
            ("svg", self.svg.is_some()),
            ("certificate", self.certificate.is_some()),
            ("what-if", !self.what_if.is_empty()),
            ("advice", self.advice),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Error::config(flag, "--cost-model dahl with it", name)),
            None => Ok(()),
        }
    }

    /// The platform, as many times as was asked for.
    fn platform(&self) -> Result<Option<Platform>> {
        let mut platform = self.platform.as_deref().map(Platform::read).transpose()?;
        for node in platform.iter_mut().flat_map(|platform| &mut platform.nodes) {
            node.count = node.count.saturating_mul(self.machines).min(100_000);
            if self.full_power {
                node.units.iter_mut().for_each(|unit| unit.states.clear());
            }
        }
        Ok(platform)
    }
}

/// Prints what was planned, and what follows from it.
pub(crate) fn tell(args: &PipelineArgs, of: &OverUnits) -> Result<()> {
    let OverUnits { problem, found, deployed, platform, changes, from } = of;
    let clock = || from.elapsed();
    let time = TimeLimit { clock: &clock, whole: args.max_time };
    let best = found.best.as_ref().ok_or_else(|| infeasible(problem, found))?;
    // Parts of the command that share what is left of its time.
    let last = usize::from(args.advice);
    let proof = match &args.certificate {
        Some(path) => {
            let used = time.used(1 + changes.len() + last);
            write_proof((problem, found, best), (path, &args.files()), &used)?
        }
        None => None,
    };
    args.svg.iter().try_for_each(|path| write(path, &front_svg(problem, found)))?;
    let mut report = PlanReport::new(problem, found, best, proof.as_ref());
    if args.certificate.is_some() {
        report = report.only_certified();
    }
    let changes = what_if(best, changes, &args.prices.prices(), (time, last))?;
    let advice = args.advice.then(|| advice(problem, best, platform, time)).transpose()?;
    if args.json {
        let mut object = report.to_json();
        if !deployed.is_empty() {
            object["runs"] = deployed.iter().map(|run| text::run_json(problem, run)).collect();
        }
        if !changes.is_empty() {
            object["what_if"] = changes.iter().map(WhatIf::to_json).collect();
        }
        if let Some(advice) = &advice {
            object["advice"] = advice.to_json(problem);
        }
        return show_json(&object);
    }
    let colour = Colour::of_stdout();
    let mut text = text::text(&report, Figures::of(platform), colour);
    text += &text::runs(problem, deployed, colour);
    text.extend(changes.iter().map(WhatIf::to_text));
    text.extend(advice.iter().map(|advice| advice.to_text(problem)));
    show(&text)
}

impl PriceArgs {
    pub(super) fn prices(&self) -> Prices {
        let Self { batches, price, grid, unit_price } = *self;
        Prices { batches, per_kwh: price, grams_per_kwh: grid, once: unit_price }
    }
}

/// Proves what can be proved and writes it; nothing where there is no proof.
pub(super) fn write_proof(
    (problem, found, best): (&Problem, &Solution, &Assignment),
    (path, files): (&Path, &[String]),
    used: &dyn Fn() -> f64,
) -> Result<Option<Certificate>> {
    // Where not all shares were looked at, proofs are about plans without them: of the printed plan,
    // or else of the best of these.
    let all = found.shares != Shares::Some;
    let shared = (!all && !best.shares.is_empty()).then_some(best);
    let plan = if shared.is_some() { found.best_pipeline.as_ref() } else { Some(best) };
    let samples = problem.samples.filter(|_| all && problem.units.len() > 1);
    let pipelines = Problem { samples, ..problem.clone() };
    let stop = || used() >= 1.0;
    let limits = Limits { stop: &stop, used, ..Limits::default() };
    let proof = plan.and_then(|plan| certificate(&pipelines, plan, &limits));
    let not_about = shared.map(|plan| {
        let stages = in_short(problem, plan);
        format!("{stages}: {} s and {} J per batch", plan.period_s, plan.energy_j)
    });
    let proof = proof.map(|proof| Certificate { not_about, files: files.to_vec(), ..proof });
    match &proof {
        Some(proof) => {
            let text = serde_json::to_string(proof)
                .map_err(|error| Error::Write { path: path.to_owned(), source: error.into() })?;
            write(path, &text)?;
        }
        None => say("note: no proof was found in the time given; no certificate was written"),
    }
    Ok(proof)
}

/// PipeDream's plan, costed by the platform's watts too.
fn dream(
    args: &PipelineArgs,
    config: &RunConfig,
    profile: &Profile,
    platform: &Platform,
) -> Result<()> {
    let machines = machinery(platform, Watts::Likely)?;
    let [unit] = &machines.units[..] else {
        let found = format!("{} types", machines.units.len());
        let expected = "one type: PipeDream plans for identical machines";
        return Err(Error::platform("units", expected, found));
    };
    let mut scaled = profile.clone();
    scaled.nodes.iter_mut().for_each(|node| node.seconds *= machines.slowdowns[0]);
    let on = Machines {
        count: unit.count,
        bandwidth: machines.bandwidths[0],
        memory_bytes: config.placement.limits().total.map(|memory| memory.0 as f64),
    };
    let plan = pipedream(&scaled, on)?;
    let layers = Profile::layers(profile, &machines.slowdowns);
    let (semantics, objective) = (Semantics::Stale, Objective::Time);
    let problem = Problem { semantics, objective, ..problem(args, config, layers, &machines) };
    let best = plan.assignment(&problem);
    let found = Solution::single(Some(&best), plan.period_s);
    let report = PlanReport {
        cost_model: "pipedream",
        status: "best of PipeDream's own search",
        space: format!("PipeDream's {} antichains, all machines used", plan.states),
        ..PlanReport::new(&problem, &found, &best, None)
    };
    match args.json {
        true => show_json(&report.to_json()),
        false => show(&text::text(&report, Figures::of(platform), Colour::of_stdout())),
    }
}

/// The least largest load of a graph of operators.
fn max_loads(
    args: &PipelineArgs,
    config: &RunConfig,
    mut operators: Operators,
    stop: &dyn Fn() -> bool,
) -> Result<()> {
    if let Some(memory) = config.placement.limits().total {
        operators.accelerator_bytes = operators.accelerator_bytes.min(memory.0 as f64);
    }
    let loads = |file: &Path| ForeignPlan::read(file)?.loads(&operators);
    let scored =
        args.score.as_deref().map(|file| Ok::<_, Error>((loads(file)?, file))).transpose()?;
    let found = max_load(&operators, &Effort { rounds: usize::MAX, stop, ..Effort::default() })?;
    if let Some((loads, file)) = scored {
        return score::tell_loads(args, (&loads, file), (&operators, &found));
    }
    if let Some(period) = args.period.filter(|period| found.load > *period) {
        let best = format!("{} (no less than {})", found.load, found.lower_bound);
        return Err(Error::plan("period", format!("a largest load of at most {period}"), best));
    }
    match args.json {
        true => show_json(&text::loads_json(&operators, &found)),
        false => show(&text::loads(&operators, &found, Colour::of_stdout())),
    }
}
