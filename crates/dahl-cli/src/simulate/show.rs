//! The result of a simulation, as text and as JSON.

use super::Simulated;
use crate::output::Colour;
use crate::table::{facts, table};
use dahl::platform::Origin;
use dahl::sim::WorkerUse;
use dahl::units::{Joules, Nanos};
use serde_json::{Value, json};

/// Maximum number of units that are listed individually.
const UNITS: usize = 16;

/// The joules of a run, by cause.
fn causes(of: &Simulated<'_>) -> [(&'static str, Joules); 6] {
    let outcome = &of.outcome;
    let units = |i: usize| outcome.workers.iter().map(|w| w.joules[i]).sum();
    [
        ("busy", units(0)),
        ("spinning", units(1)),
        ("idle", units(2)),
        ("base", outcome.nodes.iter().map(|n| n.base).sum()),
        ("wake", outcome.nodes.iter().map(|n| n.wake).sum()),
        ("transfer", outcome.moved.joules),
    ]
}

fn part(a: f64, b: f64) -> f64 {
    if b > 0.0 { 100.0 * a / b } else { 0.0 }
}

pub(super) fn text(of: &Simulated<'_>, colour: Colour) -> String {
    let (outcome, joules) = (&of.outcome, of.outcome.joules());
    let guessed = of.on.platform.figures().any(|figure| figure.from == Origin::Guess);
    // Of a guess the first digits say something at most.
    let amount = |joules: Joules| match guessed {
        true => joules.rounded(2),
        false => joules.to_string(),
    };
    let about = if guessed { "about " } else { "" };
    let mut known: Vec<(&str, String)> = Vec::new();
    if let Some(step) = &of.step {
        let [low, high] = step.interval;
        known.push(("step", format!("{} (95 % interval {low} to {high})", step.step)));
        known.push(("", format!("{about}{} modelled", amount(step.joules))));
        let from = step.sources.iter().map(|(s, p)| format!("{:.0} % {}", 100.0 * p, s.name()));
        known.push(("times from", from.collect::<Vec<_>>().join(", ")));
    }
    known.push(("run", format!("{} for {} jobs", outcome.makespan, of.scenario.jobs.len())));
    let from = if guessed { ", from figures some of which are guesses" } else { "" };
    known.push(("energy", format!("{about}{} modelled{from}", amount(joules))));
    for (cause, of_cause) in causes(of).iter().filter(|(_, j)| j.0 > 0.0) {
        let part = part(of_cause.0, joules.0);
        known.push(("", format!("{cause:10} {:>11}  {part:5.1} %", amount(*of_cause))));
    }
    if outcome.moved.bytes.0 > 0 {
        known.push(("moved", format!("{} in {} in all", outcome.moved.bytes, outcome.moved.time)));
    }
    let percent = |time: Nanos| format!("{:.1}", part(time.0 as f64, outcome.makespan.0 as f64));
    let workers = of.scenario.workers.iter().zip(&outcome.workers).take(UNITS);
    let rows = workers.map(|(worker, used)| {
        vec![
            of.on.name_of(worker.unit),
            used.busy.to_string(),
            percent(used.busy),
            percent(used.spinning),
            percent(used.idle),
            amount(of_worker(used)),
        ]
    });
    let heads = ["unit", ">busy", ">busy %", ">spinning %", ">idle %", ">energy"];
    let table = table(&heads, &rows.collect::<Vec<_>>(), colour);
    let mut text = format!("{}\n{table}", facts(&known, colour));
    if outcome.workers.len() > UNITS {
        text += &format!("and {} others: --json has all\n", outcome.workers.len() - UNITS);
    }
    text
}

fn of_worker(used: &WorkerUse) -> Joules {
    used.joules.iter().copied().sum()
}

pub(super) fn object(of: &Simulated<'_>) -> Value {
    let outcome = &of.outcome;
    let units = of.scenario.workers.iter().zip(&outcome.workers).map(|(worker, used)| {
        json!({
            "unit": of.on.name_of(worker.unit),
            "busy_ns": used.busy.0,
            "spinning_ns": used.spinning.0,
            "idle_ns": used.idle.0,
            "busy_j": used.joules[0].0,
            "spinning_j": used.joules[1].0,
            "idle_j": used.joules[2].0,
        })
    });
    let nodes = outcome.nodes.iter().map(|node| {
        json!({ "node": of.on.name_of_node(node.node), "base_j": node.base.0, "wake_j": node.wake.0 })
    });
    let causes = causes(of).map(|(cause, joules)| (cause.to_owned(), json!(joules.0)));
    let step = of.step.as_ref().map(|step| {
        let sources = step.sources.iter().map(|(s, part)| (s.name().to_owned(), json!(part)));
        json!({
            "ns": step.step.0,
            "interval_ns": step.interval.map(|ns| ns.0),
            "joules": step.joules.0,
            "times_from": sources.collect::<serde_json::Map<String, Value>>(),
        })
    });
    json!({
        "makespan_ns": outcome.makespan.0,
        "joules": outcome.joules().0,
        "joules_are": "modelled",
        "causes_j": causes.into_iter().collect::<serde_json::Map<String, Value>>(),
        "step": step,
        "jobs": of.scenario.jobs.len(),
        "moved": {
            "bytes": outcome.moved.bytes.0,
            "ns": outcome.moved.time.0,
            "joules": outcome.moved.joules.0,
        },
        "units": units.collect::<Vec<Value>>(),
        "nodes": nodes.collect::<Vec<Value>>(),
    })
}
