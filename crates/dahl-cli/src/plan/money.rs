//! `dahl plan --objective money`: the plan with the least rent, energy and transfers.

use super::pipeline::PipelineArgs;
use super::text;
use crate::output::{Colour, show, show_json};
use crate::table::{facts, table};
use dahl::planner::advice::TimeLimit;
use dahl::planner::money::{Bill, PARTS, in_money};
use dahl::planner::pipeline::{
    Assignment, Explained, Limits, Problem, Solution, cost_of, explain, in_short, infeasible,
    semantics_of, solve,
};
use dahl::platform::Platform;
use dahl::report::PlanReport;
use dahl::units::Joules;
use dahl::{Error, Result};
use serde_json::{Value, json};
use std::time::Instant;

/// Money per batch, by part of the bill.
struct Money {
    rent: f64,
    energy: f64,
    transfers: f64,
}

impl Money {
    fn whole(&self) -> f64 {
        self.rent + self.energy + self.transfers
    }
}

/// What is known of the cheapest plan.
struct Cheapest<'a> {
    /// With money in the place of joules.
    priced: &'a Problem,
    found: &'a Solution,
    best: &'a Assignment,
    /// With joules.
    plain: &'a Problem,
    money: Money,
    /// Batches of the run.
    batches: f64,
}

/// The problem on a platform.
pub(super) type ProblemOn<'a> = &'a dyn Fn(&Platform) -> Result<Problem>;

/// Plans for the least money and prints the plan.
pub(super) fn tell(
    args: &PipelineArgs,
    (platform, problem_on, from): (&Platform, ProblemOn<'_>, Instant),
) -> Result<()> {
    let prices = args.prices.prices();
    if !(0.0..=1e9).contains(&prices.per_kwh) {
        return Err(Error::config("price", "a price from 0 to 1e9", prices.per_kwh));
    }
    let on = |bill| problem_on(&in_money(platform, prices.per_kwh, bill));
    let priced = on(Bill::Whole)?;
    let clock = || from.elapsed();
    let used = TimeLimit { clock: &clock, whole: args.max_time }.used(1);
    let stop = || used() >= 1.0;
    let found = solve(&priced, &Limits { stop: &stop, used: &used, ..Limits::default() })?;
    let best = found.best.as_ref().ok_or_else(|| infeasible(&priced, &found))?;
    let part = |bill| Ok::<_, Error>(cost_of(&on(bill)?, best)[1] / PARTS);
    let money = Money {
        rent: part(Bill::Rent)?,
        energy: part(Bill::Energy)?,
        transfers: part(Bill::Transfers)?,
    };
    let plain = problem_on(platform)?;
    let of = Cheapest {
        priced: &priced,
        found: &found,
        best,
        plain: &plain,
        money,
        batches: prices.batches,
    };
    match args.json {
        true => show_json(&of.to_json()),
        false => show(&of.to_text(Colour::of_stdout())),
    }
}

impl Cheapest<'_> {
    /// Period, money and joules of the plans of the front.
    fn front(&self) -> Vec<(&Assignment, f64, f64)> {
        let joules = |plan: &Assignment| cost_of(self.plain, plan)[1];
        let plans = self.found.front.distinct(self.best).into_iter();
        plans.map(|plan| (plan, plan.energy_j / PARTS, joules(plan))).collect()
    }

    fn to_text(&self, colour: Colour) -> String {
        let Self { priced, found, best, plain, money, batches } = self;
        let report = PlanReport::new(priced, found, best, None);
        let micro =
            report.micro_batches().map_or(String::new(), |m| format!(", {m} micro-batches"));
        let costs: Explained = explain(plain, best);
        let joules = Joules(costs.total[1]).rounded(4);
        let (hour, run) = (3600.0 / best.period_s, batches * best.period_s / 3600.0);
        let gap = report.gap.map_or("unknown".to_owned(), |gap| format!("{:.3} %", 100.0 * gap));
        let claims = [
            ("plan", format!("{} for money: {}", report.status, in_short(priced, best))),
            ("space", format!("cost model dahl; {}", report.space)),
            ("semantics", format!("{}{micro}", semantics_of(priced, best))),
            ("period", format!("{} per batch", text::seconds(best.period_s))),
            (
                "money",
                format!(
                    "{} per batch: rent {}, energy {}, transfers {}",
                    amount(money.whole()),
                    amount(money.rent),
                    amount(money.energy),
                    amount(money.transfers)
                ),
            ),
            (
                "",
                format!(
                    "{} per hour; {} for {batches} batches in {run:.2} hours",
                    amount(money.whole() * hour),
                    amount(money.whole() * batches)
                ),
            ),
            ("energy", format!("about {joules} per batch, modelled")),
            (
                "lower bound",
                format!(
                    "of {}: {} (money), gap {gap}",
                    found.bounded.name(),
                    amount(report.lower_bound / PARTS)
                ),
            ),
        ];
        let mut text = facts(&claims, colour) + "\n" + &text::stages((plain, best, &costs), colour);
        let whole = if found.whole { "complete" } else { "incomplete" };
        text += &format!("\nPareto front of period and money, {whole}:\n");
        let rows = self.front().into_iter().map(|(plan, money, joules)| {
            let chosen = plan.period_s == best.period_s && plan.energy_j == best.energy_j;
            vec![
                if chosen { "*" } else { "" }.to_owned(),
                format!("{:.9}", plan.period_s),
                amount(money),
                Joules(joules).rounded(4),
                in_short(priced, plan),
            ]
        });
        let heads = ["", "period, s", "money", "energy, about", "stages"];
        text + &table(&heads, &rows.collect::<Vec<_>>(), colour)
    }

    fn to_json(&self) -> Value {
        let Self { priced, found, best, plain, money, .. } = self;
        let [period_s, energy_j] = cost_of(plain, best);
        let repriced = Assignment { period_s, energy_j, ..(*best).clone() };
        let alone = Solution::single(Some(&repriced), 0.0);
        // Stages, units and watts as with other objectives.
        let mut object = PlanReport::new(plain, &alone, &repriced, None).to_json();
        let report = PlanReport::new(priced, found, best, None);
        let point = |(plan, money, joules): (&Assignment, f64, f64)| {
            json!({
                "period_s": plan.period_s,
                "money": money,
                "energy_j": joules,
                "semantics": semantics_of(priced, plan),
                "stages": in_short(priced, plan),
            })
        };
        object["objective"] = "money".into();
        object["status"] = report.status.into();
        object["plan_space"] = report.space.clone().into();
        object["money"] = money.whole().into();
        object["money_rent"] = money.rent.into();
        object["money_energy"] = money.energy.into();
        object["money_transfers"] = money.transfers.into();
        object["money_per_hour"] = (money.whole() * 3600.0 / best.period_s).into();
        object["lower_bound"] = (report.lower_bound / PARTS).into();
        object["gap"] = json!(report.gap);
        object["bound_space"] = found.bounded.name().into();
        object["front"] = self.front().into_iter().map(point).collect();
        object["front_is_whole"] = found.whole.into();
        object
    }
}

/// An amount of money with digits that people read.
pub(super) fn amount(money: f64) -> String {
    match money {
        0.0 => "0".to_owned(),
        x if x >= 1.0 => format!("{x:.4}"),
        x if x >= 1e-4 => format!("{x:.7}"),
        x => format!("{x:.4e}"),
    }
}
