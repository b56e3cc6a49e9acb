//! The simulator runs what the formulas say.

use super::super::*;
use crate::platform::{Platform, UnitId};
use crate::sim::pipeline::{self, Schedule};
use crate::sim::{EngineModel, Order, run};
use crate::units::{Bytes, Nanos};
use std::path::Path;

const LAB: &str = r#"
dahl_platform = 1
name = "three"
[[node]]
name = "host"
count = 3
base_watts = 7
memory = [{ name = "ram", bytes = "1 TiB", bandwidth = 1e15 }]
[[node.unit]]
name = "gpu"
kind = "gpu"
busy_watts = 30
spinning_watts = 30
idle_watts = 5
[[link]]
name = "net"
connects = ["host"]
bandwidth = 1e9
latency = 0
joules_per_byte = 0
shared = "ends"
"#;

/// Three unequal stages, eight micro-batches, a third of the time forwards: without
/// transfers a GPipe step takes Σ τ + 7 · max τ = 3 + 6 + 12 + 7 · 12 = 105 s of stages
/// that take τ a micro-batch; 8 · 21 s of work at 25 W above idle, three machines of 12 W.
#[test]
fn a_synchronous_step_takes_what_is_simulated() {
    let platform = Platform::parse(Path::new("lab.toml"), LAB).unwrap();
    let on = platform.expand();
    let tau = [3u64, 6, 12];
    let second = 1_000_000_000;
    let stages: Vec<pipeline::Stage> = (0..3)
        .map(|s| pipeline::Stage {
            units: vec![UnitId(s)],
            times: [Nanos(tau[s as usize] * second / 3), Nanos(2 * tau[s as usize] * second / 3)],
            input: Bytes(0),
            parameters: Bytes(0),
            update: Nanos(0),
        })
        .collect();
    let scenario = pipeline::step(&on, &stages, 8, Schedule::GPipe).unwrap();
    let simulated = run(&scenario, &on, &EngineModel::default(), Order::Static).unwrap();

    let machines = machinery(&platform, Watts::Likely).unwrap();
    let layer = |i: usize| Layer {
        name: format!("layer {i}"),
        seconds: vec![8.0 * tau[i] as f64],
        output_bytes: 0.0,
        parameter_bytes: 0.0,
        inputs: if i == 0 { vec![] } else { vec![i - 1] },
    };
    let problem = Problem {
        layers: (0..3).map(layer).collect(),
        units: machines.units,
        nodes: machines.nodes,
        semantics: Semantics::Synchronous { micro_batches: 8 },
        objective: Objective::Energy,
        period_cap: None,
        power_cap: None,
        samples: None,
        scopes: machines.scopes,
    };
    let stage = |i: usize| Stage { layers: vec![i], unit: 0, replicas: 1, power: 0 };
    let plan = Assignment {
        stages: (0..3).map(stage).collect(),
        shares: Vec::new(),
        period_s: 0.0,
        energy_j: 0.0,
    };
    let [seconds, joules] = cost_of(&problem, &plan);
    assert_eq!(seconds, 105.0);
    assert_eq!(simulated.makespan, Nanos(105 * second));
    assert!((joules - (168.0 * 25.0 + 105.0 * 36.0)).abs() < 1e-9, "{joules}");
    // What waits spins at 30 W in the simulator, and idles here.
    assert!(simulated.joules().0 >= joules);
}
