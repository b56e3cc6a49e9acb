//! Advice as text and JSON.

use dahl::Result;
use dahl::planner::pipeline::{
    Bill, BreakEven, Change, Extent, LeftOff, Limits, Pipeline, Prices, Problem, Scenario,
    infeasible, left_off, sensitivity, solve,
};
use dahl::platform::Platform;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What a change of the units changes.
pub(super) struct ChangeText {
    name: String,
    before: Bill,
    after: Bill,
    pay_back: Option<f64>,
    once: f64,
}

/// Plans for each change of the units.
pub(super) fn changes(
    problem: &Problem,
    best: &Pipeline,
    changes: &[Change],
    prices: &Prices,
    limits: &Limits<'_>,
) -> Result<Vec<ChangeText>> {
    let mut all = Vec::new();
    for change in changes {
        let changed = change.apply(problem)?;
        let found = solve(&changed, &Limits { extent: Extent::Best, ..*limits })?;
        let Some(after) = &found.best else { return Err(infeasible(&changed, &found)) };
        let verb = if change.count > 0 { "add" } else { "remove" };
        all.push(ChangeText {
            name: format!("{verb} {} x {}", change.count.abs(), change.unit),
            before: prices.bill(best),
            after: prices.bill(after),
            pay_back: prices.pay_back_hours(best, after),
            once: prices.once,
        });
    }
    Ok(all)
}

impl ChangeText {
    pub(super) fn text(&self) -> String {
        let mut text = format!("\nwhat if: {}\n", self.name);
        let mut row = |what: &str, before: f64, after: f64| {
            let _ = writeln!(
                text,
                "  {what:12}{before:>14.3} -> {after:<14.3}({:+.3})",
                after - before
            );
        };
        row("energy, MJ", self.before.joules / 1e6, self.after.joules / 1e6);
        row("hours", self.before.hours, self.after.hours);
        row("money", self.before.money, self.after.money);
        row("CO2, kg", self.before.co2_kg, self.after.co2_kg);
        let said = match self.pay_back {
            Some(hours) if self.once > 0.0 => {
                format!("pays back after {hours:.0} hours of running")
            }
            Some(_) => "saves energy".to_owned(),
            None => "never pays back in energy".to_owned(),
        };
        text + &format!("  {said}\n")
    }

    pub(super) fn json(&self) -> Value {
        let bill = |of: &Bill| json!({ "joules": of.joules, "hours": of.hours, "money": of.money, "co2_kg": of.co2_kg });
        json!({
            "change": self.name,
            "before": bill(&self.before),
            "after": bill(&self.after),
            "pay_back_hours": self.pay_back,
        })
    }
}

/// Which units are not worth it, and what unknown watts can change.
pub(super) struct Advice {
    off: Vec<LeftOff>,
    scenarios: Vec<Scenario>,
}

pub(super) fn advice(
    problem: &Problem,
    best: &Pipeline,
    platform: &Platform,
    limits: &Limits<'_>,
) -> Result<Advice> {
    let off = left_off(problem, best, limits)?;
    let scenarios = sensitivity(problem, best, platform, limits)?;
    Ok(Advice { off, scenarios })
}

impl Advice {
    pub(super) fn text(&self, problem: &Problem) -> String {
        let mut text = "\nadvice:\n".to_owned();
        for off in &self.off {
            let unit = &problem.units[off.unit];
            let even = match off.break_even {
                BreakEven::At(part) => format!(
                    "one more would be used at {:.0} % of its watts ({:.0} W busy, {:.0} W idle, {:.0} W for its machine)",
                    100.0 * part,
                    part * unit.powers[0].busy_watts,
                    part * unit.idle_watts,
                    part * problem.nodes[unit.node].base_watts
                ),
                BreakEven::Never => "no more would be used even if they drew nothing".to_owned(),
                BreakEven::Unknown => "from when on was not found out in the time given".to_owned(),
            };
            let _ = writeln!(text, "  {} x{} not worth switching on: {even}", unit.name, off.off);
        }
        text += "  where watts are others within their intervals:\n";
        for case in &self.scenarios {
            let units = if case.other_units { ", with other units" } else { "" };
            let best = match case.best_j {
                Some(best) => {
                    let regret = 100.0 * (case.plan_j - best) / best.max(f64::MIN_POSITIVE);
                    format!("best {best:.2} J{units} ({regret:.2} % more)")
                }
                None => "best not found out in the time given".to_owned(),
            };
            let _ = writeln!(text, "    {:40} this plan {:.2} J, {best}", case.name, case.plan_j);
        }
        text
    }

    pub(super) fn json(&self, problem: &Problem) -> Value {
        let off = self.off.iter().map(|off| {
            let name = &problem.units[off.unit].name;
            let (known, part) = match off.break_even {
                BreakEven::At(part) => (true, Some(part)),
                BreakEven::Never => (true, None),
                BreakEven::Unknown => (false, None),
            };
            json!({ "unit": name, "off": off.off, "known": known, "break_even": part })
        });
        let cases = self.scenarios.iter().map(|case| {
            json!({
                "watts": case.name,
                "plan_j": case.plan_j,
                "best_j": case.best_j,
                "other_units": case.other_units,
            })
        });
        json!({ "left_off": off.collect::<Vec<_>>(), "watts": cases.collect::<Vec<_>>() })
    }
}
