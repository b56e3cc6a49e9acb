//! Batches in parts, and pipelines over stages of layers.

use crate::support::{Rng, Run, Setup, engine, feed, setup, state};
use dahl::calibrate::{Racer, race};
use dahl::model::{Delays, Model, NormOver, Optimizer, Stages, TrainSpec};
use dahl::native::Scheduling;
use dahl::plan::{Numerics, PlannedPrograms, Recompute};
use dahl::planner::{Flow, Grain, Order, Placer, even, flops, starting_with};
use dahl::train::Trainer;
use dahl::units::ProgramId;
use dahl::{DType, Error};
use std::collections::BTreeMap;
use std::time::Duration;

const ORDERS: [Order; 2] = [Order::AllForward, Order::OneForwardOneBackward];

fn in_micro_batches(setup: &Setup, parts: usize) -> Setup {
    let spec = TrainSpec { micro_batches: parts, norm_over: NormOver::Part, ..setup.spec.clone() };
    Setup { spec, ..setup.clone() }
}

fn stages(setup: &Setup, count: usize) -> Stages {
    even(&setup.lower().programs.programs[0].graph, &vec![1.0; count], &flops)
}

fn flow_plan(setup: &Setup, flow: &Flow, workers: usize) -> PlannedPrograms {
    let (programs, grain) = (setup.lower().programs, Grain::for_workers(workers));
    let numerics = Numerics::default_for(&programs, grain.target);
    let (none, placer) = (Recompute::none(&programs), (flow, &grain));
    PlannedPrograms::plan(&programs, numerics, none, |p| placer.placement(p)).unwrap()
}

/// The largest difference of two runs, of losses and of values.
fn distance(a: &Run, b: &Run) -> f64 {
    let losses = a.losses.iter().zip(&b.losses);
    let losses = losses.map(|(a, b)| (f64::from_bits(*a) - f64::from_bits(*b)).abs());
    let numbers = |bytes: &[u8]| -> Vec<f64> {
        bytes.chunks_exact(8).map(|b| f64::from_ne_bytes(b.try_into().unwrap())).collect()
    };
    let values = a.state.iter().zip(&b.state).filter(|((name, _), _)| name != "updates");
    let values = values.flat_map(|((_, a), (_, b))| {
        let (a, b) = (numbers(a), numbers(b));
        a.into_iter().zip(b).map(|(a, b)| (a - b).abs()).collect::<Vec<_>>()
    });
    losses.chain(values).fold(0.0, f64::max)
}

#[test]
fn a_batch_in_micro_batches_learns_what_a_whole_one_does() {
    // Masks too: they follow the sample, not its part.
    for name in ["seed-cnn", "lenet", "dropout"] {
        let setup = setup(name, DType::F64);
        let whole = setup.reference();
        for parts in [1, 2, 3, 100] {
            let split = in_micro_batches(&setup, parts).reference();
            let distance = distance(&whole, &split);
            assert!(distance < 1e-12, "{name} in {parts} parts: {distance:e}");
        }
    }
}

#[test]
fn a_batch_in_micro_batches_has_the_same_bits_on_any_number_of_workers() {
    for name in ["lenet", "identity"] {
        let setup = in_micro_batches(&setup(name, DType::F32), 2);
        let reference = setup.reference();
        for workers in [2, 3] {
            let run = setup.at(Grain::for_workers(workers), &engine(Scheduling::Static));
            run.assert_same(&reference, &format!("{name} on {workers} workers"));
        }
    }
}

/// Convolutions whose activations are most of the memory.
fn images() -> Setup {
    let model = Model::sequential("images", &[3, 32, 32], |s| {
        let s = s.conv2d_padded(16, 3, 1).relu().conv2d_padded(16, 3, 1).relu();
        s.conv2d_padded(16, 3, 1)
            .relu()
            .conv2d_padded(16, 3, 1)
            .relu()
            .global_avg_pool2d()
            .flatten()
            .linear(5)
    });
    let spec = TrainSpec::new(32, DType::F32, Optimizer::sgd(0.1));
    Setup { model, spec, steps: 2 }
}

#[test]
fn parts_take_less_memory_than_the_whole() {
    let work = |parts| {
        let programs = in_micro_batches(&images(), parts).lower().programs;
        Grain::for_workers(1).plan(&programs).unwrap().memory.total_work()
    };
    let [whole, split] = [1, 8].map(work);
    assert!(5 * split < whole, "{split} of {whole} bytes");
}

#[test]
fn batch_norm_over_parts_is_refused_unless_asked_for() {
    let setup = setup("identity", DType::F32);
    let spec = TrainSpec { micro_batches: 2, ..setup.spec };
    let error = setup.model.lower(&spec).unwrap_err();
    let Error::Config(fault) = error else { panic!("{error}") };
    let found = "batch_norm2d \"1\" and 2 micro-batches".into();
    assert_eq!((&fault.what[..], fault.found), ("micro-batches", found));
    let asked = TrainSpec { norm_over: NormOver::Part, ..spec };
    assert!(setup.model.lower(&asked).is_ok());
}

#[test]
fn a_pipeline_that_waits_has_the_bits_of_a_batch_in_micro_batches() {
    for name in ["lenet", "identity", "projected", "dropout"] {
        for parts in [1, 2, 3] {
            let setup = in_micro_batches(&setup(name, DType::F32), parts);
            let reference = setup.reference();
            for (count, workers) in [(1, 2), (2, 2), (3, 3), (2, 4)] {
                for order in ORDERS {
                    let flow = Flow {
                        stages: stages(&setup, count),
                        order,
                        delays: None,
                        own: Vec::new(),
                    };
                    let plan = flow_plan(&setup, &flow, workers);
                    let what = format!("{name}, {parts} parts, {count} stages, {order:?}");
                    for scheduling in [Scheduling::Static, Scheduling::Staged] {
                        let run = setup.train(&plan, &engine(scheduling)).unwrap();
                        run.assert_same(&reference, &format!("{what}, {scheduling:?}"));
                    }
                }
            }
        }
    }
}

#[test]
fn a_stage_has_tasks_on_its_own_workers_only() {
    let setup = in_micro_batches(&setup("lenet", DType::F32), 4);
    let flow = Flow { stages: stages(&setup, 2), order: ORDERS[1], delays: None, own: Vec::new() };
    let plan = flow_plan(&setup, &flow, 2);
    let (expanded, graphs) = (plan.expanded(), plan.graphs());
    let mut tasks = [0, 0];
    for task in &graphs[0].tasks {
        let stage = task.worker.index();
        tasks[stage] += 1;
        for call in task.calls() {
            let node = expanded.programs[0].graph.node(call.node);
            assert_eq!(flow.stages.of(&node.path), stage, "{}", node.path);
        }
    }
    // Four parts forward and backward, and the update.
    assert_eq!(tasks, [9, 9]);
}

#[test]
fn one_forward_one_backward_keeps_fewer_activations_than_all_forward() {
    let setup = in_micro_batches(&images(), 8);
    let [all, one] = ORDERS.map(|order| {
        let flow = Flow { stages: stages(&setup, 2), order, delays: None, own: Vec::new() };
        flow_plan(&setup, &flow, 2).memory.total_work()
    });
    assert!(3 * one < 2 * all, "{one} of {all} bytes");
}

/// A small network of three layers that learn.
fn chain(optimizer: Optimizer, steps: usize) -> Setup {
    let model = Model::sequential("chain", &[6], |s| {
        s.linear(9).relu().linear(8).relu().linear(7).relu().linear(5)
    });
    let spec = TrainSpec { seed: 5, ..TrainSpec::new(4, DType::F64, optimizer) };
    Setup { model, spec, steps }
}

type Weights = BTreeMap<String, Vec<f64>>;

/// Training with delayed parameters as it is defined: gradients at old parameters, momentum
/// and step at the newest.
fn delayed(setup: &Setup, delays: &Delays, momentum: f64) -> (Vec<f64>, Weights) {
    let lr = setup.spec.optimizer.lr();
    let spec = TrainSpec { delays: None, optimizer: Optimizer::sgd(1.0), ..setup.spec.clone() };
    let grain = Grain::for_workers(1);
    let mut oracle = Trainer::new(&setup.model, &spec, grain, &engine(Scheduling::Static)).unwrap();
    let names: Vec<String> = oracle.weights().unwrap().tensors.keys().cloned().collect();
    let read = |oracle: &mut Trainer| -> Weights {
        names.iter().map(|name| (name.clone(), oracle.read(name).unwrap())).collect()
    };
    let mut versions = vec![read(&mut oracle)];
    let mut velocity: Weights =
        versions[0].iter().map(|(name, w)| (name.clone(), vec![0.0; w.len()])).collect();
    let mut losses = Vec::new();
    for step in 0..setup.steps {
        for name in &names {
            let delay = delays.by_stage[delays.stages.of(name)];
            oracle.write(name, &versions[step.saturating_sub(delay)][name]).unwrap();
        }
        let old = read(&mut oracle);
        let id = feed(&mut oracle, spec.train[0], step as u64).unwrap();
        losses.push(oracle.loss(id).unwrap());
        let moved = read(&mut oracle);
        let mut newest = versions[step].clone();
        for name in &names {
            let v = velocity.get_mut(name).unwrap();
            for i in 0..v.len() {
                v[i] = momentum * v[i] + (old[name][i] - moved[name][i]);
                newest.get_mut(name).unwrap()[i] -= lr * v[i];
            }
        }
        versions.push(newest);
    }
    (losses, versions.pop().unwrap())
}

fn sgd(momentum: f64) -> Optimizer {
    let Optimizer::Sgd { mut sgd, .. } = Optimizer::sgd(0.1) else { unreachable!("sgd is sgd") };
    sgd.momentum = momentum;
    Optimizer::Sgd { lr: 0.1, sgd }
}

/// Every stale variant: its name, its delays, the parts of a batch.
fn stale(stages: &Stages) -> [(&'static str, Delays, usize); 3] {
    [
        ("stashed", Delays::stashed(stages.clone()), 1),
        ("synced", Delays::synced(stages.clone()), 1),
        ("2bw", Delays::double_buffered(stages.clone()), 2),
    ]
}

#[test]
fn stale_pipelines_learn_as_delayed_updates_do() {
    for momentum in [0.0, 0.9] {
        let plain = chain(sgd(momentum), 50);
        for count in 1..=4 {
            for (name, delays, parts) in stale(&stages(&plain, count)) {
                let spec = TrainSpec {
                    micro_batches: parts,
                    delays: Some(delays.clone()),
                    ..plain.spec.clone()
                };
                let setup = Setup { spec, ..plain.clone() };
                let what = format!("{name}, {count} stages, momentum {momentum}");
                let flow = Flow {
                    stages: delays.stages.clone(),
                    order: ORDERS[1],
                    delays: Some(delays.clone()),
                    own: Vec::new(),
                };
                let plan = flow_plan(&setup, &flow, count);
                let run = setup.train(&plan, &engine(Scheduling::Staged)).unwrap();
                let (losses, weights) = delayed(
                    &Setup {
                        spec: TrainSpec { micro_batches: parts, ..plain.spec.clone() },
                        ..plain.clone()
                    },
                    &delays,
                    momentum,
                );
                for (step, (a, b)) in run.losses.iter().zip(&losses).enumerate() {
                    let a = f64::from_bits(*a);
                    assert!((a - b).abs() < 1e-11, "{what}: loss of step {step}: {a}, not {b}");
                }
                for (name, expected) in &weights {
                    let (_, bytes) = run.state.iter().find(|(n, _)| n == name).unwrap();
                    let found =
                        bytes.chunks_exact(8).map(|b| f64::from_ne_bytes(b.try_into().unwrap()));
                    let apart = found.zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    assert!(apart < 1e-11, "{what}: {name} is {apart:e} off");
                }
                // Whoever runs it, whenever.
                for scheduling in [Scheduling::Static, Scheduling::FirstCome] {
                    let other = setup.train(&plan, &engine(scheduling)).unwrap();
                    other.assert_same(&run, &format!("{what}, {scheduling:?}"));
                }
                setup.reference().assert_same(&run, &format!("{what}, one worker"));
            }
        }
    }
}

/// As many steps as a debug build has time for: 50 are run by a release build.
const LONG: usize = if cfg!(debug_assertions) { 3 } else { 50 };

#[test]
fn every_pipeline_of_vgg_small_loses_as_its_reference_over_many_steps() {
    let model = Model::named("vgg-small").unwrap();
    let spec = TrainSpec { seed: 5, ..TrainSpec::new(2, DType::F64, Optimizer::sgd(0.01)) };
    let plain = Setup { model, spec, steps: LONG };
    let stages = stages(&plain, 2);
    let split = in_micro_batches(&plain, 2);
    let reference = split.reference();
    for order in ORDERS {
        let flow = Flow { stages: stages.clone(), order, delays: None, own: Vec::new() };
        let run = split.train(&flow_plan(&split, &flow, 2), &engine(Scheduling::Static)).unwrap();
        run.assert_same(&reference, &format!("{order:?}"));
    }
    for (name, delays, parts) in stale(&stages) {
        let spec =
            TrainSpec { micro_batches: parts, delays: Some(delays.clone()), ..plain.spec.clone() };
        let setup = Setup { spec, ..plain.clone() };
        let flow = Flow {
            stages: stages.clone(),
            order: ORDERS[1],
            delays: Some(delays.clone()),
            own: Vec::new(),
        };
        let plan = flow_plan(&setup, &flow, 2);
        let run = setup.train(&plan, &engine(Scheduling::Staged)).unwrap();
        let oracle = Setup {
            spec: TrainSpec { micro_batches: parts, ..plain.spec.clone() },
            ..plain.clone()
        };
        let (losses, _) = delayed(&oracle, &delays, 0.0);
        for (step, (a, b)) in run.losses.iter().zip(&losses).enumerate() {
            let a = f64::from_bits(*a);
            assert!((a - b).abs() < 1e-10, "{name}: loss of step {step}: {a}, not {b}");
        }
    }
}

#[test]
fn a_stale_pipeline_begins_a_step_before_the_last_has_ended() {
    let plain = chain(sgd(0.0), 12);
    let stages = stages(&plain, 3);
    let delays = Delays::stashed(stages.clone());
    let setup =
        Setup { spec: TrainSpec { delays: Some(delays.clone()), ..plain.spec.clone() }, ..plain };
    let flow = Flow { stages, order: ORDERS[1], delays: Some(delays), own: Vec::new() };
    let plan = flow_plan(&setup, &flow, 3);
    // Stage 0 has three steps under way, which keep four versions, and so on.
    assert_eq!(plan.placement.ahead, [4, 2, 1]);
    assert_eq!(plan.memory.under_way(), 4);
    let across = |a: usize, b: usize| {
        let edges = plan.across(ProgramId::new(a), ProgramId::new(b));
        let of = |worker: usize| {
            let waits = plan.graphs()[b].tasks.iter().zip(&edges.preds);
            waits
                .filter(|(t, _)| t.worker.index() == worker)
                .map(|(_, p)| p.clone())
                .collect::<Vec<_>>()
        };
        // What the first task of each worker waits for.
        [0, 1, 2].map(|w| of(w)[0].len())
    };
    // Forward on the first stage waits for nothing of the step before, nor of the one
    // before that; on the last stage for its update.
    assert_eq!(across(0, 1)[0], 0);
    assert_eq!(across(0, 2)[0], 0);
    assert!(across(0, 1)[2] > 0);
    assert!(across(0, 3)[0] > 0, "the update that it needs");
}

#[test]
fn a_stale_plan_reads_back() {
    let plain = chain(sgd(0.0), 4);
    let delays = Delays::stashed(stages(&plain, 2));
    let setup =
        Setup { spec: TrainSpec { delays: Some(delays.clone()), ..plain.spec.clone() }, ..plain };
    let flow = Flow {
        stages: delays.stages.clone(),
        order: ORDERS[1],
        delays: Some(delays),
        own: Vec::new(),
    };
    let (plan, programs) = (flow_plan(&setup, &flow, 2), setup.lower().programs);
    let text = plan.to_text();
    assert!(text.contains("ahead = [2, 1]"), "{text}");
    assert_eq!(*PlannedPrograms::parse(&text, &programs).unwrap(), *plan);
}

#[test]
fn stages_are_even_or_begin_where_they_are_said_to() {
    let setup = setup("lenet", DType::F32);
    let lowered = setup.lower();
    let graph = &lowered.programs.programs[0].graph;
    let given = starting_with(graph, &["3", "9"]).unwrap();
    let of = ["0", "3.weight", "7", "9", "11"].map(|path| given.of(path));
    assert_eq!(of, [0, 1, 1, 2, 2]);
    let error = starting_with(graph, &["9", "3"]).unwrap_err().to_string();
    assert!(error.contains("layers in their order, of 0, 3, 7"), "{error}");
    // A stage three times as fast gets more.
    let [slow, fast] = [[1.0, 1.0], [1.0, 30.0]].map(|speeds| even(graph, &speeds, &flops));
    assert!(fast.layers(0).count() < slow.layers(0).count());
}

#[test]
fn random_stages_and_parts_give_the_bits_of_one_worker() {
    let mut rng = Rng(7);
    let plain = chain(sgd(0.9), 6);
    for _ in 0..20 {
        let (count, parts) = (1 + rng.below(4), 1 + rng.below(4));
        let stages = stages(&plain, count);
        let by_stage = (0..count).map(|_| rng.below(4)).collect();
        let delays = Delays { stages: stages.clone(), by_stage };
        let spec =
            TrainSpec { micro_batches: parts, delays: Some(delays.clone()), ..plain.spec.clone() };
        let setup = Setup { spec, ..plain.clone() };
        let order = ORDERS[rng.below(2)];
        let flow = Flow { stages, order, delays: Some(delays.clone()), own: Vec::new() };
        let plan = flow_plan(&setup, &flow, count + rng.below(2));
        let run = setup.train(&plan, &engine(Scheduling::Staged)).unwrap();
        setup.reference().assert_same(&run, &format!("{delays:?}, {parts} parts"));
    }
}

/// Steps of a stale pipeline follow each other by turns, each with programs of its own.
#[test]
fn a_stale_pipeline_can_be_tried() {
    let plain = chain(sgd(0.9), 9);
    let delays = Delays::stashed(stages(&plain, 3));
    let setup =
        Setup { spec: TrainSpec { delays: Some(delays.clone()), ..plain.spec.clone() }, ..plain };
    let (stages, own) = (delays.stages.clone(), Vec::new());
    let flow = Flow { stages, order: ORDERS[1], delays: Some(delays), own };
    let (lowered, plan) = (setup.lower(), flow_plan(&setup, &flow, 3));
    let steps = &lowered.train[&setup.spec.train[0]];
    assert!(steps.len() > 1);
    let engine = &engine(Scheduling::Staged);
    let racer = Racer { plan: &plan, steps, engine };
    let turns = race(&[racer], Duration::from_millis(1), &|_, turn| turn.step().0 as f64).unwrap();
    assert!(turns[0].iter().all(|turn| turn.steps.is_multiple_of(steps.len() as u64)));
    assert!(turns[0].iter().all(|turn| turn.did.workers.iter().all(|w| w.busy > 0)));
}

#[test]
fn delayed_updates_survive_a_restart() {
    let plain = chain(sgd(0.9), 9);
    let delays = Delays::stashed(stages(&plain, 3));
    let spec = TrainSpec { delays: Some(delays.clone()), ..plain.spec.clone() };
    let setup = Setup { spec, ..plain };
    let flow = Flow {
        stages: delays.stages.clone(),
        order: ORDERS[1],
        delays: Some(delays),
        own: Vec::new(),
    };
    let plan = flow_plan(&setup, &flow, 3);
    let whole = setup.train(&plan, &engine(Scheduling::Staged)).unwrap();
    let mut first =
        Trainer::with_plan(setup.lower(), plan.clone(), &setup.spec, &engine(Scheduling::Staged))
            .unwrap();
    for step in 0..5 {
        feed(&mut first, setup.spec.train[0], step).unwrap();
    }
    let kept: Vec<(String, Vec<f64>)> = setup
        .lower()
        .programs
        .store
        .values
        .iter()
        .map(|v| (v.name.clone(), first.read(&v.name).unwrap()))
        .collect();
    let mut second =
        Trainer::with_plan(setup.lower(), plan, &setup.spec, &engine(Scheduling::Staged)).unwrap();
    for (name, values) in kept {
        second.write(&name, &values).unwrap();
    }
    second.set_steps(5);
    for step in 5..9 {
        feed(&mut second, setup.spec.train[0], step).unwrap();
    }
    assert_eq!(state(&mut second).unwrap(), whole.state);
}

#[test]
fn a_stage_waits_for_no_other_stages_update() {
    let plain = chain(Optimizer::adam(0.01), 8);
    let stages = stages(&plain, 4);
    let delays = Delays::stashed(stages.clone());
    let spec = TrainSpec { delays: Some(delays.clone()), ..plain.spec.clone() };
    let setup = Setup { spec, ..plain };
    let flow = Flow { stages, order: ORDERS[1], delays: Some(delays), own: Vec::new() };
    let plan = flow_plan(&setup, &flow, 4);
    let (expanded, graphs) = (plan.expanded(), plan.graphs());
    let phase = |program: usize, task: &dahl::plan::Task| {
        expanded.programs[program].graph.node(task.calls()[0].node).phase
    };
    for (a, b) in [(0, 1), (0, 2), (1, 2), (3, 0)] {
        let edges = plan.across(ProgramId::new(a), ProgramId::new(b));
        for (task, preds) in graphs[b].tasks.iter().zip(&edges.preds) {
            for pred in preds.iter().map(|&t| graphs[a].task(t)) {
                let update = phase(a, pred) == dahl::graph::Phase::Update;
                assert!(!update || pred.worker == task.worker, "turn {a} to {b}");
            }
        }
    }
    let run = setup.train(&plan, &engine(Scheduling::Staged)).unwrap();
    setup.reference().assert_same(&run, "adam over four stages");
}

#[test]
fn fewer_workers_than_stages_have_several_each() {
    let plain = chain(sgd(0.9), 7);
    let delays = Delays::stashed(stages(&plain, 4));
    let spec = TrainSpec { delays: Some(delays.clone()), ..plain.spec.clone() };
    let setup = Setup { spec, ..plain };
    let flow = Flow {
        stages: delays.stages.clone(),
        order: ORDERS[1],
        delays: Some(delays),
        own: Vec::new(),
    };
    let reference = setup.reference();
    for workers in 1..=5 {
        let run = setup.train(&flow_plan(&setup, &flow, workers), &engine(Scheduling::Staged));
        run.unwrap().assert_same(&reference, &format!("{workers} workers"));
    }
}

#[test]
fn layers_of_any_name_start_from_numbers_of_their_own() {
    let text = r#"name = "at"
input = [4]
layers = [
  { type = "linear", out = 4, name = "a@1" },
  { type = "linear", out = 4, name = "a@2" },
]"#;
    let model = Model::parse(text).unwrap();
    let lowered = model.lower(&TrainSpec::new(2, DType::F64, Optimizer::sgd(0.1))).unwrap();
    let first = |name: &str| {
        let id = lowered.programs.store.find(name).unwrap();
        lowered.initial(id).next().unwrap()
    };
    assert_ne!(first("a@1.weight"), first("a@2.weight"));
}
