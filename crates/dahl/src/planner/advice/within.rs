//! What-if and advice within a time limit, as text and JSON.

use super::{
    BreakEven, Change, LeftOff, Prices, RunCosts, break_even, left_off, same_types, scenarios,
};
use crate::error::Result;
use crate::planner::pipeline::{Assignment, Extent, Limits, Problem, in_short, infeasible, solve};
use crate::platform::Platform;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// A time limit that several parts share, by a clock that starts with the first.
#[derive(Clone, Copy)]
pub struct TimeLimit<'a> {
    /// The time since the start.
    pub clock: &'a dyn Fn() -> Duration,
    /// The limit.
    pub whole: Duration,
}

impl<'a> TimeLimit<'a> {
    /// What is left of it.
    pub fn left(self) -> Duration {
        self.whole.saturating_sub((self.clock)())
    }

    /// Whether the next of so many parts has had its time: an equal share of what is left now.
    pub fn share(self, parts: usize) -> impl Fn() -> bool + 'a {
        let used = self.used(parts);
        move || used() >= 1.0
    }

    /// Which part of that share is over, from 0 to 1.
    pub fn used(self, parts: usize) -> impl Fn() -> f64 + 'a {
        let (from, share) = ((self.clock)(), self.left() / parts.max(1) as u32);
        move || match share.is_zero() {
            true => 1.0,
            false => (self.clock)().saturating_sub(from).as_secs_f64() / share.as_secs_f64(),
        }
    }
}

/// A change of the units, and the problem that it leads to.
pub struct Changed {
    name: String,
    machines: String,
    problem: Problem,
}

/// The problems that changes of a platform lead to.
///
/// # Errors
/// Where a change cannot be made, or what it leads to cannot be planned.
pub fn changed(
    changes: &[Change],
    platform: &Platform,
    problem_on: &dyn Fn(&Platform) -> Result<Problem>,
) -> Result<Vec<Changed>> {
    let one = |change: &Change| {
        let (kind, machines) = change.machines(platform)?;
        let node = &platform.nodes[kind];
        let units = node.units.iter().map(|unit| format!("{} x{}", unit.name, unit.count));
        let units = units.collect::<Vec<_>>().join(", ");
        let problem = problem_on(&change.apply(platform)?)?;
        problem.check()?;
        let verb = if change.count > 0 { "add" } else { "remove" };
        Ok(Changed {
            name: format!("{verb} {} x {}", change.count.abs(), change.unit),
            machines: format!("{} x {} ({units})", machines.abs(), node.name),
            problem,
        })
    };
    changes.iter().map(one).collect()
}

/// What a change of the units changes.
pub struct WhatIf<'a> {
    change: &'a Changed,
    before: RunCosts,
    once: f64,
    after: After,
}

/// What is known of the units as they would be.
enum After {
    /// A plan, whether it is optimal, and when the change has paid for itself.
    Planned { plan: Assignment, gap: Option<f64>, bill: RunCosts, pay_back: Option<f64> },
    /// Why there is no plan.
    NoPlan(String),
    /// There was no time.
    NotLookedAt,
}

/// Plans for each change of the units; `more` other parts of the command share the time.
pub fn what_if<'a>(
    best: &Assignment,
    changes: &'a [Changed],
    prices: &Prices,
    (time, more): (TimeLimit<'_>, usize),
) -> Result<Vec<WhatIf<'a>>> {
    let mut all = Vec::new();
    for (i, change) in changes.iter().enumerate() {
        let after = match time.left().is_zero() {
            true => After::NotLookedAt,
            false => {
                let used = time.used(changes.len() - i + more);
                planned(best, &change.problem, prices, &used)?
            }
        };
        all.push(WhatIf { change, before: prices.bill(best), once: prices.once, after });
    }
    Ok(all)
}

fn planned(
    best: &Assignment,
    problem: &Problem,
    prices: &Prices,
    used: &dyn Fn() -> f64,
) -> Result<After> {
    let stop = || used() >= 1.0;
    let limits = Limits { extent: Extent::Best, stop: &stop, used, ..Limits::default() };
    let found = solve(problem, &limits)?;
    Ok(match &found.best {
        Some(plan) => After::Planned {
            plan: plan.clone(),
            gap: found.gap(problem),
            bill: prices.bill(plan),
            pay_back: prices.pay_back_hours(best, plan),
        },
        None => After::NoPlan(infeasible(problem, &found).to_string()),
    })
}

impl WhatIf<'_> {
    /// The change, its plan, and what changes.
    pub fn to_text(&self) -> String {
        let Changed { name, machines, problem } = self.change;
        let mut text = format!("\nwhat if: {name}, machines: {machines}\n");
        let (plan, gap, after, pay_back) = match &self.after {
            After::Planned { plan, gap, bill, pay_back } => (plan, gap, bill, pay_back),
            After::NoPlan(why) => return text + &format!("  no plan: {why}\n"),
            After::NotLookedAt => return text + "  not planned: no time was left\n",
        };
        let status = match gap {
            Some(gap) if *gap == 0.0 => "optimal".to_owned(),
            Some(gap) => format!("best found, gap {:.3} %,", 100.0 * gap),
            None => "best found".to_owned(),
        };
        let objective = problem.objective.name();
        let _ = writeln!(text, "  plan: {status} for {objective}: {}", in_short(problem, plan));
        let mut row = |what: &str, before: f64, after: f64| {
            let _ = writeln!(
                text,
                "  {what:12}{before:>14.3} -> {after:<14.3}({:+.3})",
                after - before
            );
        };
        row("energy, MJ", self.before.joules / 1e6, after.joules / 1e6);
        row("hours", self.before.hours, after.hours);
        row("money", self.before.money, after.money);
        row("CO2, kg", self.before.co2_kg, after.co2_kg);
        let verdict = match pay_back {
            Some(hours) if self.once > 0.0 => {
                format!("pays back after {hours:.0} hours of running")
            }
            Some(_) => "saves energy".to_owned(),
            None => "never pays back in energy".to_owned(),
        };
        text + &format!("  {verdict}\n")
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        let Changed { name, machines, problem } = self.change;
        let mut object = json!({
            "change": name,
            "machines": machines,
            "looked_at": !matches!(self.after, After::NotLookedAt),
            "before": self.before,
        });
        match &self.after {
            After::Planned { plan, gap, bill: after, pay_back } => {
                object["after"] = json!(after);
                object["pay_back_hours"] = json!(pay_back);
                object["stages"] = json!(in_short(problem, plan));
                object["period_s"] = json!(plan.period_s);
                object["energy_j"] = json!(plan.energy_j);
                object["gap"] = json!(gap);
            }
            After::NoPlan(why) => object["no_plan"] = json!(why),
            After::NotLookedAt => {}
        }
        object
    }
}

/// Which units are not worth it, and what unknown watts can change. What is `None` was not
/// looked at: there was no time.
pub struct Advice {
    off: Vec<(LeftOff, Option<BreakEven>)>,
    watts: Vec<WithOtherWatts>,
}

/// How a plan fares where watts are others within their intervals.
struct WithOtherWatts {
    watts: String,
    plan_j: f64,
    /// Joules of the best plan, where it is proved to be, and whether it has other unit types.
    best: Option<Option<(f64, bool)>>,
}

/// Looks at one unit type and one end of the intervals after the other, each of which has an
/// equal share of the time that is left.
pub fn advice(
    problem: &Problem,
    best: &Assignment,
    platform: &Platform,
    time: TimeLimit<'_>,
) -> Result<Advice> {
    let (off, scenarios) = (left_off(problem, best), scenarios(problem, platform)?);
    let mut open = off.len() + scenarios.len();
    // The limits of the next question, if there is time for it.
    let mut next = || {
        open -= 1;
        (!time.left().is_zero()).then(|| time.used(open + 1))
    };
    let mut advice = Advice { off: Vec::new(), watts: Vec::new() };
    for left in off {
        let even = next().map(|used| {
            let stop = || used() >= 1.0;
            let limits = Limits { stop: &stop, used: &used, ..Limits::default() };
            break_even(problem, best, left.unit, &limits)
        });
        advice.off.push((left, even.transpose()?));
    }
    for scenario in scenarios {
        let found = next().map(|used| -> Result<_> {
            let stop = || used() >= 1.0;
            let plan = scenario.best(&Limits { stop: &stop, used: &used, ..Limits::default() })?;
            Ok(plan.map(|plan| (plan.energy_j, !same_types(&plan, best))))
        });
        let plan_j = scenario.joules(best);
        advice.watts.push(WithOtherWatts {
            watts: scenario.name,
            plan_j,
            best: found.transpose()?,
        });
    }
    Ok(advice)
}

impl Advice {
    /// A line per unit type that is left off, and per scenario of watts.
    pub fn to_text(&self, problem: &Problem) -> String {
        let mut text = "\nadvice:\n".to_owned();
        for (left, even) in &self.off {
            let unit = &problem.units[left.unit];
            let even = match even {
                Some(BreakEven::At(part)) => format!(
                    "one more would be used at {:.0} % of its watts ({:.0} W busy, {:.0} W idle, {:.0} W for its machine)",
                    100.0 * part,
                    part * unit.powers[0].busy_watts,
                    part * unit.idle_watts,
                    part * problem.nodes[unit.node].base_watts
                ),
                Some(BreakEven::Never) => {
                    "no more would be used even if they drew nothing".to_owned()
                }
                Some(BreakEven::Unknown) => {
                    "break-even watts not proved in the time given".to_owned()
                }
                None => "break-even watts not looked at: no time was left".to_owned(),
            };
            let _ = writeln!(text, "  {} x{} left off: {even}", unit.name, left.off);
        }
        text += "  with other watts within their intervals:\n";
        for case in &self.watts {
            let best = match case.best {
                Some(Some((best, other))) => {
                    let units = if other { ", with other units" } else { "" };
                    let regret = 100.0 * (case.plan_j - best) / best.max(f64::MIN_POSITIVE);
                    format!("best {best:.2} J{units} ({regret:.2} % more)")
                }
                Some(None) => "best plan not proved in the time given".to_owned(),
                None => "best plan not looked at: no time was left".to_owned(),
            };
            let _ = writeln!(text, "    {:40} this plan {:.2} J, {best}", case.watts, case.plan_j);
        }
        text
    }

    /// The same as JSON.
    pub fn to_json(&self, problem: &Problem) -> Value {
        let off = self.off.iter().map(|(left, even)| {
            let (known, part) = match even {
                Some(BreakEven::At(part)) => (true, Some(part)),
                Some(BreakEven::Never) => (true, None),
                Some(BreakEven::Unknown) | None => (false, None),
            };
            json!({
                "unit": problem.units[left.unit].name,
                "off": left.off,
                "looked_at": even.is_some(),
                "known": known,
                "break_even": part,
            })
        });
        let cases = self.watts.iter().map(|case| {
            let best = case.best.flatten();
            json!({
                "watts": case.watts,
                "plan_j": case.plan_j,
                "looked_at": case.best.is_some(),
                "best_j": best.map(|(joules, _)| joules),
                "other_units": best.is_some_and(|(_, other)| other),
            })
        });
        json!({ "left_off": off.collect::<Vec<_>>(), "watts": cases.collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::pipeline::{Layer, Objective, Semantics, Watts, machinery};
    use std::cell::Cell;

    #[test]
    fn parts_share_what_is_left() {
        let now = Cell::new(Duration::ZERO);
        let clock = || now.get();
        let at = |seconds| now.set(Duration::from_secs(seconds));
        let time = TimeLimit { clock: &clock, whole: Duration::from_secs(30) };
        let first = time.share(3);
        at(9);
        assert!(!first());
        at(10);
        assert!(first());
        // The second needs little, so that the third has more than a third.
        let second = time.share(2);
        at(12);
        assert!(!second());
        let third = time.share(1);
        at(29);
        assert!(!third());
        at(30);
        assert!(third() && time.left().is_zero() && time.share(1)());
    }

    /// Two kinds of machines whose watts nobody knows exactly.
    fn platform() -> Platform {
        let kind = |name: &str, speed: f64, busy: f64| {
            format!(
                "[[node]]\nname = {name:?}\ncount = 2\nbase_watts = {{ value = 5, low = 1, high = 9 }}\n\
                 memory = [{{ name = \"ram\", bytes = \"1 GiB\", bandwidth = 1e10 }}]\n\
                 [[node.unit]]\nname = \"core\"\nkind = \"cpu\"\nspeed = {speed:?}\n\
                 busy_watts = {{ value = {busy:?}, low = 10, high = 90 }}\n\
                 spinning_watts = {busy:?}\nidle_watts = 1\n"
            )
        };
        let text = format!(
            "dahl_platform = 1\nname = \"two\"\n{}{}[[link]]\nname = \"net\"\n\
             connects = [\"fast\", \"slow\"]\nbandwidth = 1e9\nlatency = 0\njoules_per_byte = 0\n",
            kind("fast", 1.0, 30.0),
            kind("slow", 0.5, 20.0)
        );
        Platform::parse("two.toml", &text).expect("a platform")
    }

    fn problem(platform: &Platform) -> Result<Problem> {
        let machines = machinery(platform, Watts::Likely)?;
        let layer = |i: usize| Layer {
            name: i.to_string(),
            seconds: machines.slowdowns.clone(),
            output_bytes: 1e6,
            parameter_bytes: 1e6,
            inputs: i.checked_sub(1).into_iter().collect(),
        };
        Ok(Problem {
            layers: (0..4).map(layer).collect(),
            units: machines.units.clone(),
            nodes: machines.nodes.clone(),
            semantics: Semantics::Stale,
            objective: Objective::Energy,
            period_cap: None,
            power_cap: None,
            samples: None,
            scopes: machines.scopes,
        })
    }

    /// The clock goes on by a second whenever somebody looks at it: what is asked in that way is
    /// what a search does between two looks.
    #[test]
    fn what_if_and_advice_keep_to_the_time_of_the_command() {
        let platform = platform();
        let of = problem(&platform).expect("a problem");
        let best = solve(&of, &Limits::default()).expect("a search").best.expect("a plan");
        let change = ["add=1xfast".parse().expect("a change")];
        let changes = changed(&change, &platform, &problem).expect("changes");
        let prices = Prices { batches: 1e5, per_kwh: 0.25, grams_per_kwh: 350.0, once: 0.0 };
        // None, time for the what-if and some of the advice, and for all of it.
        for (seconds, looked_at) in [(0, 0), (60, 1), (1_000_000, 1)] {
            let now = Cell::new(0);
            let clock = || Duration::from_secs(now.replace(now.get() + 1));
            let time = TimeLimit { clock: &clock, whole: Duration::from_secs(seconds) };
            let what_if = what_if(&best, &changes, &prices, (time, 1)).expect("plans");
            let advice = advice(&of, &best, &platform, time).expect("advice");
            // A search that is stopped looks a few times more; of many only the last does so late.
            assert!(now.get() < seconds + 60, "{} of {seconds}", now.get());
            let [if_json, json] = [what_if[0].to_json(), advice.to_json(&of)];
            let (off, watts) = (json["left_off"].as_array(), json["watts"].as_array());
            let cases: Vec<&Value> = off.into_iter().chain(watts).flatten().collect();
            let count = |of: &[&Value]| of.iter().filter(|case| case["looked_at"] == true).count();
            let found = [count(&[&if_json]), count(&cases)];
            assert!(found[0] == looked_at && found[1] >= looked_at, "{seconds}: {found:?}");
            let missed = cases.len() + 1 - found[0] - found[1];
            let said = what_if[0].to_text() + &advice.to_text(&of);
            assert_eq!(said.matches("no time was left").count(), missed, "{said}");
            assert_eq!(missed == 0, seconds > 60, "{said}");
        }
    }
}
