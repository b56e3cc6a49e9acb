//! Layers of models, and plans over units as runs.

use super::super::*;
use crate::DType;
use crate::model::{Model, Optimizer, TrainSpec};
use crate::ops::Target;
use crate::perf::PerfModel;
use crate::plan::{MemoryLimits, Numerics};
use crate::planner::{Deployment, Grain};
use crate::platform::Platform;

/// A machine with a fast and a slow processor, whose operations per second it says.
fn two(slow: f64) -> Platform {
    let unit = |name: &str, speed: f64, flops: f64, busy: f64| {
        format!(
            "[[node.unit]]\nname = {name:?}\nkind = \"cpu\"\nspeed = {speed:?}\nflops = {flops:?}\n\
             busy_watts = {busy:?}\nspinning_watts = {busy:?}\nidle_watts = 1\n"
        )
    };
    let text = format!(
        "dahl_platform = 1\nname = \"two\"\n[[node]]\nname = \"box\"\nbase_watts = 5\n\
         [[node.memory]]\nname = \"ram\"\nbytes = \"8 GiB\"\nbandwidth = 1e12\n{}{}",
        unit("fast", 1.0, 1e10, 10.0),
        unit("slow", slow, slow * 1e10, 4.0)
    );
    Platform::parse("two.toml", &text).unwrap()
}

fn spec(batch: usize) -> TrainSpec {
    TrainSpec::new(batch, DType::F32, Optimizer::sgd(0.1))
}

fn layers_of(name: &str, platform: &Platform) -> Vec<Layer> {
    let lowered = Model::named(name).unwrap().lower(&spec(8)).unwrap();
    let numerics = Numerics::default_for(&lowered.programs, Target::here());
    let plan = Grain::for_workers(1).plan_with(&lowered.programs, numerics).unwrap();
    let machines = machinery(platform, Watts::Likely).unwrap();
    let what = &plan;
    layers(what, (platform, &machines), &PerfModel::default()).unwrap()
}

#[test]
fn a_model_is_a_graph_of_its_layers() {
    let platform = two(0.5);
    let lenet = layers_of("lenet", &platform);
    for (i, layer) in lenet.iter().enumerate() {
        let before: Vec<usize> = i.checked_sub(1).into_iter().collect();
        assert_eq!(layer.inputs, before, "{}", layer.name);
        // The memory is so fast that flops alone count.
        let ratio = layer.seconds[1] / layer.seconds[0];
        assert!(layer.seconds[0] > 0.0 && (1.2..=2.01).contains(&ratio), "{layer:?}");
    }
    let parameters: f64 = lenet.iter().map(|layer| layer.parameter_bytes).sum();
    assert_eq!(parameters, 4.0 * 61_706.0);
    // The first convolution gives 6 pooled maps of 14x14 to 8 samples.
    assert_eq!(lenet[0].output_bytes, 4.0 * 8.0 * 6.0 * 14.0 * 14.0);
    let resnet = layers_of("resnet18", &platform);
    assert!(resnet.iter().any(|layer| layer.inputs.len() == 2), "residual additions");
}

#[test]
fn plans_over_units_become_runs() {
    let (platform, known) = (two(0.5), PerfModel::default());
    let (model, spec) = (Model::named("lenet").unwrap(), spec(12));
    let about = Deployment {
        model: &model,
        spec: &spec,
        target: Target::here(),
        platform: &platform,
        known: &known,
        limits: &MemoryLimits::default(),
    };
    let machines = machinery(&platform, Watts::Likely).unwrap();
    let p = Problem {
        layers: layers_of("lenet", &platform),
        units: machines.units,
        nodes: machines.nodes,
        semantics: Semantics::Synchronous { micro_batches: 4 },
        objective: Objective::Time,
        period_cap: None,
        power_cap: None,
        samples: Some(12),
        scopes: machines.scopes,
    };
    let last = p.layers.len();
    let stage = |layers: std::ops::Range<usize>, unit| Stage {
        layers: layers.collect(),
        unit,
        replicas: 1,
        power: 0,
    };
    let plan = |stages: Vec<Stage>, shares: Vec<Vec<usize>>| Assignment {
        stages,
        shares,
        period_s: 0.0,
        energy_j: 0.0,
    };
    let workers = |run: &crate::planner::Deployed| {
        let groups = run.plan.placement.programs[0].groups.iter();
        let mut used: Vec<u32> = groups.flat_map(|g| &g.workers).map(|w| w.0).collect();
        used.sort_unstable();
        used.dedup();
        used
    };
    // Side by side: more samples for the faster one.
    let both = plan(vec![stage(0..last, 0), stage(0..last, 1)], vec![vec![8], vec![4]]);
    let shared = about.deploy(&p, &both).unwrap();
    assert_eq!(workers(&shared), [0, 1]);
    assert_eq!((shared.spec.micro_batches, shared.grain.unwrap().shares), (1, vec![2, 1]));
    // One behind the other, the slow one first.
    let stages = plan(vec![stage(0..2, 1), stage(2..last, 0)], Vec::new());
    let piped = about.deploy(&p, &stages).unwrap();
    assert_eq!((workers(&piped), piped.spec.micro_batches), (vec![0, 1], 4));
    assert_eq!(piped.flow.unwrap().own, [1..2, 0..1]);
    // A stale one is not simulated; that it is too slow was not said.
    let late = Problem { semantics: Semantics::Stale, period_cap: Some(1e-12), ..p.clone() };
    let stages = Assignment { period_s: 1.0, ..stages };
    let stale = about.deploy(&late, &stages).unwrap();
    assert_eq!((stale.step.is_none(), stale.breaks(&late)), (true, Some("period")));
    // One alone: the other is off, and draws nothing.
    let alone = about.deploy(&p, &plan(vec![stage(0..last, 1)], Vec::new())).unwrap();
    assert_eq!(workers(&alone), [1]);
    let step = alone.step.unwrap();
    let watts = step.joules.0 / (step.step.0 as f64 / 1e9);
    assert!((watts - (5.0 + 4.0)).abs() < 0.1, "{watts} W of the machine and one that computes");
    // No other machine is run on.
    let lab = Platform::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../platforms/lab.toml"));
    assert!(Deployment { platform: &lab.unwrap(), ..about }.check_runs().is_err());
}
