//! What the page shows, as JSON.

use super::gantt::gantt;
use crate::platform::Platform;
use crate::report::calls::Calls;
use crate::report::compare::compare;
use crate::report::energy::Energy;
use crate::report::export::{Watts, busy_curve, byte_curve, watt_curves};
use crate::report::record::RunRecord;
use crate::report::stats::Stats;
use serde_json::{Value, json};

/// What the page shows of a run; watts of a trace are modelled from the platform.
pub fn run_json(run: &RunRecord, platform: Option<&Platform>) -> Value {
    let calls = run.trace.as_ref().map(Calls::of);
    let measured = run.power.as_ref().map(|timed| (&timed.power, timed.begin));
    let watts = Watts { platform, measured };
    let curves = calls.as_ref().map_or_else(Vec::new, |calls| {
        let mut curves = watt_curves(calls, watts);
        curves.extend(byte_curve(calls));
        curves.push(busy_curve(calls));
        curves
    });
    let curves: Vec<Value> =
        curves.iter().map(|c| json!({ "name": c.name, "points": c.points })).collect();
    let counters =
        run.counted.as_ref().map(|c| Stats::of_counters(&c.shapes, &c.activity, c.steps));
    let memory = run
        .counted
        .as_ref()
        .map(|c| json!({ "planned": c.planned, "resident": c.resident, "peak": c.peak }));
    let counted = run.counted.as_ref().map(|c| {
        json!({ "steps": c.steps, "samples": c.samples, "elapsed": c.activity.elapsed,
                "workers": c.activity.workers })
    });
    json!({
        "name": run.name,
        "config": run.config,
        "sessions": run.sessions,
        "epochs": run.epochs,
        "result": run.result,
        "seconds": run.seconds(),
        "stats": calls.as_ref().map(Stats::of_calls),
        "counters": counters,
        "counted": counted,
        "measured": Energy::measured(run),
        "modelled": Energy::modelled(run),
        "memory": memory,
        "predicted": run.predicted,
        "gantt": calls.as_ref().map(gantt),
        "curves": curves,
    })
}

/// What the page shows of runs: each of them, and each beside the first.
pub fn runs_json(runs: &[RunRecord], platform: Option<&Platform>) -> Value {
    let all: Vec<Value> = runs.iter().map(|run| run_json(run, platform)).collect();
    let compared: Vec<Value> = match runs.split_first() {
        Some((first, others)) => others.iter().map(|run| json!(compare(first, run))).collect(),
        None => Vec::new(),
    };
    json!({ "all": all, "compared": compared })
}
