//! The data of the page, as JSON.

use super::gantt::gantt;
use crate::meter::{Sample, unit};
use crate::platform::Platform;
use crate::report::calls::Calls;
use crate::report::compare::compare;
use crate::report::energy::Energy;
use crate::report::export::{Watts, busy_curve, byte_curve, watt_curves};
use crate::report::stats::Stats;
use crate::run::{Predicted, RunRecord, TimedPower};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The data of a run; watts of a trace are modelled from the platform that is
/// given, else from the run's own.
pub fn run_json(run: &RunRecord, platform: Option<&Platform>) -> Value {
    let calls = run.recorded().map(Calls::of);
    let measured = run.traced_power().map(|timed| (&timed.power, timed.begin));
    let platform = platform.or(run.traced_platform());
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
    let stepped = calls.as_ref().zip(run.predicted.as_ref());
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
        "silent": Energy::silent(run),
        "power": run.power.as_ref().map(power),
        "layers": calls.as_ref().map(|calls| layers(calls, platform)),
        "platform": platform.map(|platform| &platform.name),
        "memory": memory,
        "predicted": run.predicted,
        "step_joules": stepped.and_then(|(calls, predicted)| step_joules(calls, predicted, platform?)),
        "gantt": calls.as_ref().map(gantt),
        "curves": curves,
        "problems": run.problems,
    })
}

/// Measured watts over a session: for each domain points of seconds and watts, none where
/// nothing was read.
fn power(timed: &TimedPower) -> Value {
    let domain = |(d, name): (usize, &String)| {
        let point =
            |sample: &Sample| (sample.to as f64 * 1e-9, sample.watts.get(d).copied().flatten());
        let points: Vec<_> = timed.power.samples.iter().map(point).collect();
        json!({ "name": name, "points": points })
    };
    let domains: Vec<Value> = timed.power.names.iter().enumerate().map(domain).collect();
    json!({ "session": timed.session, "interval": timed.interval, "domains": domains })
}

/// The watts that a worker takes beyond idle while it computes.
fn busy_watts(platform: &Platform, worker: u32) -> f64 {
    let watts = |unit: &crate::platform::Unit| unit.busy_watts.value - unit.idle_watts.value;
    unit(platform, worker as usize).map_or(0.0, watts).max(0.0)
}

/// Nanoseconds and, where there are watts, joules of busy workers by place in the model and
/// codelet, in the order of the model.
fn layers(calls: &Calls<'_>, platform: Option<&Platform>) -> Vec<Value> {
    let mut sums: BTreeMap<(u32, &str), (u64, f64)> = BTreeMap::new();
    let mut names: BTreeMap<u32, &str> = BTreeMap::new();
    let workers = 0..calls.trace.header.workers as u32;
    let watts = platform.map(|p| workers.map(|w| busy_watts(p, w)).collect::<Vec<f64>>());
    for call in &calls.all {
        let sum = sums.entry((call.layer, calls.codelet(call))).or_default();
        let watts = watts.as_ref().map_or(0.0, |watts| watts[call.worker as usize]);
        *sum = (sum.0 + call.nanos(), sum.1 + watts * call.nanos() as f64 * 1e-9);
        names.insert(call.layer, calls.layer(call));
    }
    let row = |((layer, codelet), (nanos, joules)): ((u32, &str), (u64, f64))| {
        json!([names[&layer], codelet, nanos, watts.is_some().then_some(joules)])
    };
    sums.into_iter().map(row).collect()
}

/// The modelled joules of a step of the program that was predicted, from what its calls in
/// the trace took: base and idle watts for its median time, busy ones for its calls.
fn step_joules(calls: &Calls<'_>, predicted: &Predicted, platform: &Platform) -> Option<f64> {
    let node = platform.nodes.first()?;
    let programs = &calls.trace.header.programs;
    let program = programs.iter().position(|p| p.name == predicted.program)? as u32;
    let stats = Stats::of_calls(calls);
    let path = stats.paths.iter().find(|path| path.program == predicted.program)?;
    let own = calls.all.iter().filter(|call| call.program == program);
    let busy: f64 =
        own.map(|call| busy_watts(platform, call.worker) * call.nanos() as f64 * 1e-9).sum();
    let idle: f64 = node.units.iter().map(|u| u.count as f64 * u.idle_watts.value).sum();
    let still = (node.base_watts.value + idle) * path.span as f64 * 1e-9;
    Some(still + busy / path.steps.max(1) as f64)
}

/// The data of several runs: each of them, and each compared with the first.
pub fn runs_json(runs: &[RunRecord], platform: Option<&Platform>) -> Value {
    let all: Vec<Value> = runs.iter().map(|run| run_json(run, platform)).collect();
    let compared: Vec<Value> = match runs.split_first() {
        Some((first, others)) => others.iter().map(|run| json!(compare(first, run))).collect(),
        None => Vec::new(),
    };
    json!({ "all": all, "compared": compared })
}
