//! `dahl plan --score`: another planner's plan, its price, and its distance from the lower bound.

use super::money::{ProblemOn, amount};
use super::pipeline::{PipelineArgs, write_proof};
use super::text::{self, Figures};
use crate::output::{Colour, show, show_json};
use crate::table::facts;
use dahl::planner::advice::TimeLimit;
use dahl::planner::baselines::{MaxLoad, Operators};
use dahl::planner::money::{Bill, PARTS, in_money};
use dahl::planner::pipeline::{
    Assignment, Extent, Limits, Objective, Problem, Semantics, Solution, cost_of, explain,
    in_short, semantics_of, solve,
};
use dahl::planner::score::{ForeignPlan, Loads, Misfit, Score};
use dahl::platform::Platform;
use dahl::report::PlanReport;
use dahl::units::{Bytes, Joules};
use dahl::{Error, Result};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Prints the price of a plan beside what is known of the best one.
pub(super) fn tell(
    args: &PipelineArgs,
    file: &Path,
    (platform, problem_on, from): (&Platform, ProblemOn<'_>, Instant),
) -> Result<()> {
    let foreign = ForeignPlan::read(file)?;
    let plain = problem_on(platform)?;
    let per_kwh = args.prices.prices().per_kwh;
    let priced = args.is_money().then(|| problem_on(&in_money(platform, per_kwh, Bill::Whole)));
    let priced = priced.transpose()?;
    let problem = priced.as_ref().unwrap_or(&plain);
    let score = foreign.score(problem)?;
    let clock = || from.elapsed();
    let time = TimeLimit { clock: &clock, whole: args.max_time };
    let used = time.used(args.search_parts());
    let stop = || used() >= 1.0;
    // The front of other plans is not printed.
    let limits = Limits { extent: Extent::Best, stop: &stop, used: &used, ..Limits::default() };
    let found = solve(problem, &limits)?;
    let proof = match (&args.certificate, &found.best) {
        (Some(path), Some(best)) => {
            write_proof((problem, &found, best), (path, &args.files()), &time.used(1))?
        }
        _ => None,
    };
    let report = found.best.as_ref().map(|best| {
        let report = PlanReport::new(problem, &found, best, proof.as_ref());
        if args.certificate.is_some() { report.only_certified() } else { report }
    });
    let bound = report.as_ref().map_or(found.lower_bound, |report| report.lower_bound);
    let plain = args.is_money().then_some(&plain);
    let of = Scored { foreign: &foreign, score: &score, problem, found: &found, bound, plain };
    if args.json {
        show_json(&of.to_json(report.as_ref()))?;
    } else {
        show(&of.to_text(report.as_ref(), Figures::of(platform), Colour::of_stdout()))?;
    }
    unfit(&score.misfits)
}

/// A plan that does not fit ends the command as one that was not found does.
fn unfit(misfits: &[Misfit]) -> Result<()> {
    match misfits.first() {
        None => Ok(()),
        Some(misfit) => {
            let expected = "a plan that fits; the price above is that of the plan as it is";
            Err(Error::plan("score", expected, misfit.to_string()))
        }
    }
}

struct Scored<'a> {
    foreign: &'a ForeignPlan,
    score: &'a Score,
    problem: &'a Problem,
    found: &'a Solution,
    /// No plan of the space has an objective below it.
    bound: f64,
    /// With joules, if the problem has money in their place.
    plain: Option<&'a Problem>,
}

impl Scored<'_> {
    /// The planner and the file.
    fn origin(&self) -> String {
        let file = self.foreign.path.display();
        match &self.foreign.planner {
            Some(planner) => format!("{planner}, {file}"),
            None => file.to_string(),
        }
    }

    fn objective(&self) -> &'static str {
        if self.plain.is_some() { "money" } else { self.problem.objective.name() }
    }

    /// Joules per batch.
    fn joules(&self) -> f64 {
        let plan = &self.score.plan;
        self.plain.map_or(plan.energy_j, |plain| cost_of(plain, plan)[1])
    }

    fn memory(&self) -> String {
        let misfits = self.score.misfits.iter().filter(|m| matches!(m, Misfit::Memory { .. }));
        let misfits: Vec<String> = misfits.map(Misfit::to_string).collect();
        if !misfits.is_empty() {
            return format!("does not fit: {}", misfits.join("; "));
        }
        match self.score.fullest(self.problem) {
            None => "fits: units have no limit".to_owned(),
            Some((stage, part)) => {
                let needed = Bytes(self.score.costs.stages[stage].memory_bytes as u64);
                format!("fits: stage {stage} needs {needed}, {:.1} % of its unit", 100.0 * part)
            }
        }
    }

    fn gap(&self) -> String {
        match self.score.gap(self.problem, self.bound) {
            Some(gap) => format!("gap of the scored plan {:.3} %", 100.0 * gap),
            None => "the scored plan is below it, since it is outside of that space".to_owned(),
        }
    }

    fn to_text(&self, own: Option<&PlanReport<'_>>, figures: Figures, colour: Colour) -> String {
        let Self { score, problem, found, bound, plain, .. } = *self;
        let plan = &score.plan;
        let objective = self.objective();
        let cost = |x: f64| match plain {
            Some(_) => amount(x / PARTS),
            None => figures.joules(x),
        };
        let value = |x: f64| match problem.objective {
            Objective::Energy => cost(x),
            _ => format!("{x:.6}"),
        };
        let micro = match problem.semantics {
            Semantics::Synchronous { micro_batches } if plan.shares.is_empty() => {
                format!(", {micro_batches} micro-batches")
            }
            _ => String::new(),
        };
        let joules = self.joules();
        let watts = joules / plan.period_s;
        let (joules, costs) = (Joules(joules).rounded(4), explain(plain.unwrap_or(problem), plan));
        let mut claims = vec![
            ("scored", format!("{} ({})", in_short(problem, plan), self.origin())),
            ("semantics", format!("{}{micro}", semantics_of(problem, plan))),
            ("period", format!("{} per batch", text::seconds(plan.period_s))),
            (
                "energy",
                format!(
                    "about {joules} per batch, modelled; {watts:.1} W on average, {:.1} W at most",
                    costs.peak_watts
                ),
            ),
            ("memory", self.memory()),
        ];
        if plain.is_some() {
            claims.insert(3, ("money", format!("{} per batch", cost(plan.energy_j))));
        }
        let caps = score.misfits.iter().filter(|m| !matches!(m, Misfit::Memory { .. }));
        claims.extend(caps.map(|misfit| ("not within", misfit.to_string())));
        let bounded = found.bounded.name();
        claims.push((
            "lower bound",
            format!("of {bounded}: {} ({objective}); {}", value(bound), self.gap()),
        ));
        claims.push(("space", format!("cost model dahl; {}", found.space())));
        let more = |of: fn(&Assignment) -> f64| {
            score
                .more_than(found, of)
                .map_or("-".to_owned(), |more| format!("{:+.1} %", 100.0 * more))
        };
        claims.push(match own {
            None => ("own plan", "none was found in the time given".to_owned()),
            Some(own) => (
                "own plan",
                format!(
                    "{} for {objective}: {}; {} and {} per batch; against it the scored plan takes {} time and {} {}",
                    own.status,
                    in_short(problem, own.best),
                    text::seconds(own.best.period_s),
                    cost(own.best.energy_j),
                    more(|plan| plan.period_s),
                    more(|plan| plan.energy_j),
                    if plain.is_some() { "money" } else { "energy" },
                ),
            ),
        });
        if let Some(proof) = own.and_then(|own| own.proof) {
            let claim = format!(
                "no plan of {} has {objective} below {}",
                found.pipelines(),
                value(proof.value)
            );
            claims.push(("certificate", claim));
        }
        facts(&claims, colour)
            + "\n"
            + &text::stages((plain.unwrap_or(problem), plan, &costs), colour)
    }

    fn to_json(&self, own: Option<&PlanReport<'_>>) -> Value {
        let Self { score, problem, found, bound, plain, .. } = *self;
        let plan = &score.plan;
        let costs = explain(plain.unwrap_or(problem), plan);
        let stages = plan.stages.iter().zip(&costs.stages).enumerate();
        let stages = stages.map(|(i, (stage, cost))| {
            let unit = &problem.units[stage.unit];
            let mut object = json!(cost);
            object["layers"] = json!(stage.layers);
            object["unit"] = json!(unit.name);
            object["replicas"] = json!(stage.replicas);
            object["power"] = json!(unit.powers[stage.power].name);
            object["unit_memory_bytes"] = json!(unit.memory_bytes);
            if let Some(samples) = plan.shares.get(i) {
                object["samples"] = json!(samples);
            }
            object
        });
        let misfits: Vec<String> = score.misfits.iter().map(Misfit::to_string).collect();
        let parts = if plain.is_some() { PARTS } else { 1.0 };
        let mut object = json!({
            "scored": self.foreign.path.display().to_string(),
            "planner": self.foreign.planner,
            "objective": self.objective(),
            "semantics": semantics_of(problem, plan),
            "period_s": plan.period_s,
            "energy_j": self.joules(),
            "value": score.value(problem) / parts,
            "fits": misfits.is_empty(),
            "misfits": misfits,
            "lower_bound": bound / parts,
            "bound_space": found.bounded.name(),
            "plan_space": found.space(),
            "gap": score.gap(problem, bound),
            "certified": own.and_then(|own| own.proof).map(|proof| proof.value),
            "more_time": score.more_than(found, |plan| plan.period_s),
            "more_energy": score.more_than(found, |plan| plan.energy_j),
            "stages": stages.collect::<Vec<_>>(),
            "own_plan": own.map(PlanReport::to_json),
        });
        if let (Some(_), Some(keys)) = (plain, object.as_object_mut()) {
            keys.insert("money".to_owned(), json!(plan.energy_j / PARTS));
            let more = keys.remove("more_energy");
            keys.insert("more_money".to_owned(), json!(more));
            let own = own.map(|own| {
                json!({
                    "status": own.status,
                    "stages": in_short(problem, own.best),
                    "period_s": own.best.period_s,
                    "money": own.best.energy_j / PARTS,
                })
            });
            keys.insert("own_plan".to_owned(), json!(own));
        }
        object
    }
}

/// The same for a split of operators among accelerators and cores.
pub(super) fn tell_loads(
    args: &PipelineArgs,
    (loads, file): (&Loads, &Path),
    (of, found): (&Operators, &MaxLoad),
) -> Result<()> {
    let mut misfits = loads.misfits.clone();
    if let Some(cap) = args.period.filter(|period| loads.load > *period) {
        misfits.push(Misfit::Period { seconds: loads.load, cap });
    }
    let gap = loads.gap(found.lower_bound);
    if args.json {
        let texts: Vec<String> = misfits.iter().map(Misfit::to_string).collect();
        show_json(&json!({
            "scored": file.display().to_string(),
            "cost_model": "max-load",
            "max_load": loads.load,
            "fits": texts.is_empty(),
            "misfits": texts,
            "lower_bound": found.lower_bound,
            "plan_space": text::load_space(found),
            "gap": gap,
            "stages": text::devices_json(of, &loads.devices),
            "own_plan": text::loads_json(of, found),
        }))?;
        return unfit(&misfits);
    }
    let gap = match gap {
        Some(gap) => format!("gap of the scored plan {:.3} %", 100.0 * gap),
        None => "the scored plan is below it, since it is no such placement".to_owned(),
    };
    let mut claims = vec![
        ("scored", file.display().to_string()),
        ("largest load", format!("{:.4}", loads.load)),
    ];
    match misfits.is_empty() {
        true => claims.push(("fits", "yes".to_owned())),
        false => {
            claims.extend(misfits.iter().map(|misfit| ("does not fit", misfit.to_string())));
        }
    }
    claims.push(("lower bound", format!("of any placement: {:.4}; {gap}", found.lower_bound)));
    claims.push(("space", format!("cost model max-load; {}", text::load_space(found))));
    claims.push(("own plan", format!("{}: largest load {:.4}", text::status(found), found.load)));
    let colour = Colour::of_stdout();
    show(&format!(
        "{}\n{}",
        facts(&claims, colour),
        text::device_table(of, &loads.devices, colour)
    ))?;
    unfit(&misfits)
}
