//! A scenario for SimGrid: its jobs, hosts and links as JSON, which
//! [`SCRIPT`] replays there.
//!
//! Units become hosts of one core, memories hosts that transfers begin and end at,
//! and every capacity that transfers share a link; a way adds a link of its own, with
//! its latency, that is shared with nobody. What SimGrid has no counterpart for here
//! is left out and named: the bandwidth of memories, spinning, the hop between
//! workers, noise, waking. Collectives are waited for, as long as they take.

use super::scenario::{EngineModel, Job, JobId, Noise, Scenario, Start};
use crate::error::Result;
use crate::platform::{Expanded, Fairness, MemoryId, Route};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Replays an exported scenario with SimGrid's Python bindings (3.32), and prints
/// makespan and joules.
pub const SCRIPT: &str = include_str!("simgrid_replay.py");

/// A scenario as JSON, and what SimGrid will not know of it.
pub fn to_simgrid(
    scenario: &Scenario,
    on: &Expanded<'_>,
    engine_model: &EngineModel,
) -> Result<(String, Vec<&'static str>)> {
    scenario.check(on)?;
    let mut routes: BTreeMap<(MemoryId, MemoryId), Route> = BTreeMap::new();
    for job in &scenario.jobs {
        if let Job::Transfer { from, to, .. } = *job {
            routes.insert((from, to), on.route(from, to)?);
        }
    }
    let capacities: BTreeSet<u32> =
        routes.values().flat_map(|route| &route.capacities).map(|c| c.0).collect();
    let hosts = scenario.workers.iter().map(|worker| {
        let unit = on.unit(worker.unit);
        let state = worker.state.map(|state| &unit.states[state]);
        let speed = unit.speed.value * state.map_or(1.0, |state| state.speed.value);
        let busy = state.map_or(unit.busy_watts, |state| state.busy_watts);
        json!({ "speed": 1e9 * speed, "busy": busy.value, "idle": unit.idle_watts.value })
    });
    let hosts: Vec<Value> = hosts.collect();
    let links =
        capacities.iter().map(|c| json!({ "id": c, "bandwidth": on.capacities[*c as usize] }));
    let ways = routes.iter().map(|((from, to), route)| {
        let shared: Vec<u32> = route.capacities.iter().map(|c| c.0).collect();
        json!({
            "from": from.0, "to": to.0, "links": shared,
            "bandwidth": route.bandwidth, "latency": route.latency,
        })
    });
    let ids = (0..scenario.jobs.len() as u32).map(JobId);
    let jobs = ids.map(|id| {
        let after: Vec<u32> = scenario.preds(id).iter().map(|p| p.0).collect();
        match scenario.jobs[id.0 as usize] {
            Job::Compute { worker, work, .. } => {
                let flops = work.0 as f64;
                json!({ "worker": worker, "flops": flops, "after": after })
            }
            Job::Transfer { from, to, bytes } => {
                json!({ "from": from.0, "to": to.0, "bytes": bytes.0, "after": after })
            }
            Job::Collective { time, .. } | Job::Copy { work: time, .. } => {
                json!({ "seconds": time.0 as f64 / 1e9, "after": after })
            }
        }
    });
    let value = json!({
        "dahl_simgrid": 1,
        "overhead": engine_model.overhead.0 as f64 / 1e9,
        "hosts": hosts,
        "links": links.collect::<Vec<Value>>(),
        "routes": ways.collect::<Vec<Value>>(),
        "jobs": jobs.collect::<Vec<Value>>(),
    });
    Ok((format!("{value}\n"), left_out(scenario, on, engine_model)))
}

fn left_out(
    scenario: &Scenario,
    on: &Expanded<'_>,
    engine_model: &EngineModel,
) -> Vec<&'static str> {
    let moves = |job: &Job| matches!(job, Job::Compute { traffic, .. } if traffic.0 > 0);
    let has = |job: &Job| matches!(job, Job::Transfer { .. });
    let nodes = scenario.nodes(on);
    let base = nodes.iter().any(|n| on.node(*n).base_watts.value > 0.0);
    let all = [
        (scenario.jobs.iter().any(moves), "the bandwidth of memories"),
        (engine_model.spin.0 > 0, "the spinning watts of workers"),
        (engine_model.hop.0 > 0, "the time until a worker sees the end of another's task"),
        (engine_model.noise != Noise::Off, "noise"),
        (engine_model.start == Start::Asleep, "waking"),
        (base, "the base watts of nodes, and the idle watts of units without a worker"),
        (scenario.jobs.iter().any(has), "the joules of bytes"),
        (
            scenario.jobs.iter().any(has) && on.platform.fairness == Fairness::Equal,
            "equal parts of links: SimGrid's are in inverse proportion to latencies",
        ),
    ];
    all.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect()
}
