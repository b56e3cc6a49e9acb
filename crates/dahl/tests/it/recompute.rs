//! What runs again for the backward pass changes memory and time, never a bit.

use crate::support::{
    MODELS, Rng, Run, SCHEDULINGS, Setup, engine, grain, random_placement, setup,
};
use dahl::graph::{Kind, Phase, Programs, needed_again, recomputable};
use dahl::model::{Fusion, Model, Optimizer, TrainSpec};
use dahl::native::Scheduling;
use dahl::ops::Access;
use dahl::plan::{Numerics, PlannedPrograms, Recompute};
use dahl::planner::{Flow, Gather, Grain, Order, Placer, even, fit, flops};
use dahl::units::{Bytes, NodeId, PersistentId};
use dahl::{DType, Error};
use proptest::prelude::*;

/// All nodes of all programs that may run again and are needed again.
fn all(programs: &Programs) -> Recompute {
    chosen(programs, |_| true)
}

fn chosen(programs: &Programs, mut choose: impl FnMut(NodeId) -> bool) -> Recompute {
    let of = programs.programs.iter().map(|program| {
        let mut again = recomputable(&program.graph);
        again.retain(|id| choose(*id));
        needed_again(&program.graph, &again)
    });
    Recompute { programs: of.collect() }
}

fn recomputing(grain: &Grain, programs: &Programs, again: Recompute) -> PlannedPrograms {
    PlannedPrograms::plan(programs, numerics(programs), again, |p| grain.placement(p)).unwrap()
}

fn numerics(programs: &Programs) -> Numerics {
    Numerics::default_for(programs, dahl::Isa::detect())
}

#[test]
fn everything_that_may_run_again_changes_no_bit() {
    for name in MODELS {
        for (dtype, fusion) in [(DType::F32, Fusion::On), (DType::F64, Fusion::Off)] {
            let mut setup = setup(name, dtype);
            setup.spec.fusion = fusion;
            let reference = setup.reference();
            let programs = setup.lower().programs;
            let again = all(&programs);
            assert!(!again.is_empty(), "{name} has something to run again");
            for (workers, pieces, channels, gather) in
                [(1, 1, 1, Gather::On), (2, 2, 1, Gather::On), (2, 3, 2, Gather::Off)]
            {
                let grain = grain(workers, pieces, channels, gather);
                let plan = recomputing(&grain, &programs, again.clone());
                for scheduling in SCHEDULINGS {
                    let run = setup.train(&plan, &engine(scheduling)).unwrap();
                    let what = format!("{name} {dtype} {grain:?} {scheduling:?}");
                    run.assert_same(&reference, &what);
                }
            }
        }
    }
}

#[test]
fn any_nodes_that_run_again_change_no_bit() {
    let setups = MODELS.map(|name| setup(name, DType::F32));
    let references: Vec<Run> = setups.iter().map(Setup::reference).collect();
    let config =
        ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(model in 0..MODELS.len(), seed: u64, workers in 1usize..4)| {
        let (setup, mut rng) = (&setups[model], Rng(seed));
        let programs = setup.lower().programs;
        let part = 1 + rng.below(4);
        let again = chosen(&programs, |_| rng.below(4) < part);
        let numerics = numerics(&programs);
        let placement =
            random_placement(&again.expand(&numerics, &programs).unwrap(), workers, &mut rng);
        let plan = PlannedPrograms::plan(&programs, numerics, again, |_| Ok(placement)).unwrap();
        let scheduling = SCHEDULINGS[rng.below(SCHEDULINGS.len())];
        let run = setup.train(&plan, &engine(scheduling)).unwrap();
        run.assert_same(&references[model], &format!("{} {seed} {workers}", MODELS[model]));
    });
}

/// How many nodes update each persistent value.
fn updates(programs: &Programs) -> Vec<usize> {
    let mut count = vec![0; programs.store.values.len()];
    for node in programs.programs.iter().flat_map(|p| p.graph.nodes.iter().map(move |n| (p, n))) {
        let (program, node) = node;
        for (i, v) in node.outputs.iter().enumerate() {
            if let (Kind::Persistent(PersistentId(id)), Access::Update) =
                (program.graph.value(*v).kind, node.op.access(i))
            {
                count[id as usize] += 1;
            }
        }
    }
    count
}

#[test]
fn what_outlives_a_step_is_updated_once() {
    for name in MODELS {
        let programs = setup(name, DType::F32).lower().programs;
        let again = all(&programs).expand(&numerics(&programs), &programs).unwrap();
        let second = |p: &Programs| {
            p.programs[0].graph.nodes.iter().filter(|n| n.phase == Phase::Recompute).count()
        };
        assert!(second(&again) > 0);
        assert_eq!(updates(&again), updates(&programs), "{name}");
    }
}

#[test]
fn the_text_of_a_plan_says_what_runs_again() {
    let programs = setup("projected", DType::F32).lower().programs;
    let plan = recomputing(&Grain::for_workers(2), &programs, all(&programs));
    let text = plan.to_text();
    assert_eq!(*PlannedPrograms::parse(&text, &programs).unwrap(), *plan);
    let plain = Grain::for_workers(2).plan(&programs).unwrap();
    assert_eq!(plan.numerics_hash(), plain.numerics_hash());
    assert!(!plain.to_text().contains("recompute"));
    let first = plan.recompute.programs[0][0];
    let op = programs.programs[0].graph.node(first).op.name();
    let listed = format!("recompute = [\"{} {op}\"", first.0);
    assert!(text.contains(&listed), "{text}");
    let last = programs.programs[0].graph.nodes.len() - 1;
    let last_op = programs.programs[0].graph.nodes[last].op.name();
    for (to, expected) in [
        (format!("recompute = [\"{} magic\"", first.0), "a node of the lowered graph and its op"),
        ("recompute = [\"9999 relu\"".to_owned(), "a node of the lowered graph and its op"),
        (format!("recompute = [\"{last} {last_op}\""), "a node of the forward pass"),
    ] {
        let error = PlannedPrograms::parse(&text.replacen(&listed, &to, 1), &programs).unwrap_err();
        assert!(matches!(error, Error::Plan { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_plan_fits_from_the_least_on() {
    for name in MODELS {
        let setup = setup(name, DType::F32);
        let (programs, reference) = (setup.lower().programs, setup.reference());
        let numerics = numerics(&programs);
        for grain in [Grain::for_workers(1), grain(2, 2, 1, Gather::On)] {
            let within = |limit: u64| fit(&grain, &programs, &numerics, Bytes(limit));
            let plain = grain.plan(&programs).unwrap().memory.peak();
            let least = |limit: u64| match within(limit).unwrap_err() {
                Error::Memory { needed, limit: found, least: Some(least), largest, .. } => {
                    assert_eq!((needed, found), (plain, Bytes(limit).into()), "{name}");
                    assert!(!largest.is_empty());
                    least
                }
                error => panic!("{name}: {error}"),
            };
            let whole = within(plain.0).unwrap();
            assert!(whole.plan.recompute.is_empty() && whole.plain == plain, "{name}");
            let found = least(1);
            assert!(found <= plain, "{name}: {found} is more than {plain}");
            if found == plain {
                continue;
            }
            assert_eq!(least(plain.0 / 4), found, "{name}");
            for limit in [found.0, (found.0 + plain.0) / 2, plain.0 - 1] {
                let fitted = within(limit).unwrap();
                assert!(fitted.plan.memory.peak() <= Bytes(limit), "{name} within {limit}");
                assert!(!fitted.plan.recompute.is_empty(), "{name} within {limit}");
                let run = setup.train(&fitted.plan, &engine(Scheduling::WorkStealing)).unwrap();
                run.assert_same(&reference, &format!("{name} within {limit}"));
            }
        }
    }
}

/// ResNet-18 within a part of the work memory that it has without recomputation.
fn resnet18(batch: usize, grain: Grain, part: f64) -> (Programs, PlannedPrograms, PlannedPrograms) {
    let model = Model::named("resnet18").unwrap();
    let lowered = model.lower(&TrainSpec::new(batch, DType::F32, Optimizer::sgd(0.1))).unwrap();
    let plain = grain.plan(&lowered.programs).unwrap();
    let work = plain.memory.total_work() as u64;
    let limit = plain.memory.peak().0 - work + (part * work as f64) as u64;
    let numerics = numerics(&lowered.programs);
    let plan = fit(&grain, &lowered.programs, &numerics, Bytes(limit)).unwrap().plan;
    assert!(plan.memory.total_work() as f64 <= part * work as f64);
    (lowered.programs, plain, plan)
}

#[test]
fn resnet18_fits_into_three_fifths_of_its_work_memory() {
    for grain in [Grain::for_workers(1), Grain::for_workers(2)] {
        let (programs, _, plan) = resnet18(32, grain.clone(), 0.6);
        let repeated = plan.recompute.repeated(&programs, 0);
        let percent = repeated.percent();
        println!("{grain}: {} nodes run again, {percent:.2} % more flops", repeated.nodes);
        assert!(percent < 10.0, "{percent} % more flops at {grain}");
    }
}

#[test]
fn resnet18_trains_to_the_same_bits_in_less_memory() {
    let (batch, steps) = (8, 2);
    let model = Model::named("resnet18").unwrap();
    let spec = TrainSpec::new(batch, DType::F32, Optimizer::sgd(0.1));
    let setup = Setup { model, spec, steps };
    let (_, plain, plan) = resnet18(batch, Grain::for_workers(2), 0.75);
    let engine = dahl::native::Native { pin: false, ..dahl::native::Native::default() };
    let reference = setup.train(&plain, &engine).unwrap();
    let run = setup.train(&plan, &engine).unwrap();
    assert!(run.state.iter().any(|(name, _)| name.ends_with("running_mean")));
    run.assert_same(&reference, "resnet18");
}

#[test]
fn calls_of_a_plan_that_recomputes_are_measured() {
    let programs = setup("lenet", DType::F32).lower().programs;
    let again = all(&programs);
    let plan = recomputing(&Grain::for_workers(2), &programs, again);
    let mut known = dahl::perf::PerfModel::default();
    let (step, short) = (dahl::units::ProgramId(0), std::time::Duration::ZERO);
    let measured = dahl::calibrate::steps(&plan, step, short, "cpu", &mut known);
    let graphs = plan.graphs();
    let calls: usize = graphs[0].tasks.iter().map(|task| task.calls().len()).sum();
    assert_eq!(measured.unwrap().calls, calls);
}

#[test]
fn pipelines_fit_into_less_memory_with_the_same_bits() {
    for name in ["projected", "identity", "lenet"] {
        let mut setup = setup(name, DType::F32);
        (setup.spec.micro_batches, setup.spec.norm_over) = (2, dahl::model::NormOver::Part);
        let reference = setup.reference();
        let programs = setup.lower().programs;
        let (numerics, grain) = (numerics(&programs), Grain::for_workers(2));
        let expanded = numerics.expand(&programs).unwrap();
        let stages = even(&expanded.programs[0].graph, &[1.0, 1.0], &flops);
        let flow = Flow { stages, order: Order::AllForward, delays: None, own: Vec::new() };
        let within = |limit: u64| fit(&(&flow, &grain), &programs, &numerics, Bytes(limit));
        let plain = within(u64::MAX).unwrap().plain;
        let Err(Error::Memory { least: Some(least), .. }) = within(1) else {
            panic!("{name}: what is possible is told");
        };
        assert!(least <= plain, "{name}: {least} {plain}");
        let plan = within(least.0).unwrap().plan;
        assert!(plan.memory.peak() <= least, "{name}");
        assert_eq!(plan.recompute.is_empty(), least == plain, "{name}");
        let run = setup.train(&plan, &engine(Scheduling::Static)).unwrap();
        run.assert_same(&reference, name);
    }
}
