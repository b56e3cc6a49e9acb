//! Memory is planned: known before the first step, never shared by values that
//! live at the same time, and flat.

use crate::support::{MODELS, Rng, SCHEDULINGS, engine, feed, grain, random_plan, setup};
use dahl::exec::Session;
use dahl::graph::Programs;
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::native::{Native, resident_bytes};
use dahl::plan::{Group, Home, Numerics, Plan, PlannedPrograms, Storage, TaskGraph, Use};
use dahl::planner::{Gather, Grain};
use dahl::train::Trainer;
use dahl::units::{Bytes, TaskId, WorkerId};
use dahl::{DType, Error};

/// Plans of all models: gathered or not, cut and random.
fn plans() -> Vec<(String, PlannedPrograms)> {
    let mut plans = Vec::new();
    for name in MODELS {
        let mut setup = setup(name, DType::F32);
        setup.spec.train.push(3);
        setup.spec.eval = vec![2];
        let programs = setup.lower().programs;
        for (workers, pieces, channels, gather) in
            [(1, 1, 1, Gather::On), (2, 3, 1, Gather::On), (3, 3, 2, Gather::Off)]
        {
            let plan = grain(workers, pieces, channels, gather).plan(&programs).unwrap();
            plans.push((format!("{name} {pieces}x{channels}"), plan));
        }
        for seed in 0..5 {
            let mut rng = Rng(seed);
            let workers = 1 + rng.below(3);
            let plan = random_plan(&programs, workers, &mut rng).unwrap();
            plans.push((format!("{name} seed {seed}"), plan));
        }
    }
    plans
}

#[test]
fn the_session_has_what_was_planned() {
    for (name, plan) in plans() {
        for scheduling in SCHEDULINGS {
            let session = engine(scheduling).prepare_native(&plan).unwrap();
            assert_eq!(session.allocated(), plan.memory.peak(), "{name} {scheduling:?}");
        }
    }
}

/// Which tasks come before each task, whatever the schedule.
fn ancestors(graph: &TaskGraph) -> Vec<Vec<bool>> {
    let mut all: Vec<Vec<bool>> = Vec::new();
    for preds in &graph.edges.preds {
        let mut before = vec![false; graph.tasks.len()];
        for pred in preds {
            before[pred.index()] = true;
            for (to, from) in before.iter_mut().zip(&all[pred.index()]) {
                *to |= from;
            }
        }
        all.push(before);
    }
    all
}

/// Whether every schedule has done with `a` before it starts with `b`.
fn before(a: &Storage, b: &Storage, ancestors: &[Vec<bool>]) -> bool {
    let starts = b.users.iter().filter(|(_, usage)| *usage == Use::Write);
    let mut pairs = starts.flat_map(|(to, _)| a.users.iter().map(move |(from, _)| (*from, *to)));
    pairs.all(|(from, to): (TaskId, TaskId)| match (&a.inner, &b.inner) {
        (Some((_, x)), Some((_, y))) if from == to => x.end <= y.start,
        _ => ancestors[to.index()][from.index()],
    })
}

/// The pairs of storages that share bytes although some legal schedule has
/// them alive at the same time: found from the edges, not from the planner's
/// lifetimes.
fn shared_bytes(plan: &Plan, graphs: &[TaskGraph]) -> Vec<String> {
    let mut shared = Vec::new();
    for (p, (graph, memory)) in graphs.iter().zip(&plan.memory.programs).enumerate() {
        let ancestors = ancestors(graph);
        let work =
            || graph.layout.storages.iter().enumerate().filter(|(_, s)| s.home == Home::Work);
        for (i, a) in work() {
            for (j, b) in work().filter(|(j, _)| *j > i) {
                let (x, y) = (memory.range(i, a), memory.range(j, b));
                let overlap = x.start < y.end && y.start < x.end;
                if overlap && !before(a, b, &ancestors) && !before(b, a, &ancestors) {
                    shared.push(format!("program {p}: {} and {} in {x:?}", a.root, b.root));
                }
            }
        }
    }
    shared
}

#[test]
fn values_that_live_at_the_same_time_never_share_bytes() {
    for (name, plan) in plans() {
        assert_eq!(shared_bytes(&plan, plan.graphs()), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn without_the_edges_of_reuse_values_would_share_bytes() {
    let mut seen = 0;
    for (_, plan) in plans() {
        let (graphs, _) = TaskGraph::build(plan.expanded(), &plan.placement).unwrap();
        seen += usize::from(!shared_bytes(&plan, &graphs).is_empty());
    }
    assert!(seen > 10, "only {seen} plans need edges of reuse");
}

/// A plan that was changed is refused, with `expected` in the error.
#[track_caller]
fn check_refused(change: impl FnOnce(&mut Plan, &[TaskGraph], &Programs), expected: &str) {
    let programs = setup("projected", DType::F32).lower().programs;
    let planned = grain(2, 2, 1, Gather::On).plan(&programs).unwrap();
    let mut plan = Plan::clone(&planned);
    change(&mut plan, planned.graphs(), planned.expanded());
    let error = PlannedPrograms::new(&programs, plan).expect_err(expected);
    assert!(matches!(error, Error::Plan { .. }), "{error:?}");
    assert!(error.to_string().contains(expected), "expected {expected:?} in: {error}");
}

#[test]
fn two_live_values_in_the_same_bytes_are_refused() {
    let change = |plan: &mut Plan, graphs: &[TaskGraph], _: &Programs| {
        let storages = &graphs[0].layout.storages;
        let work = || (0..storages.len()).filter(|&s| storages[s].home == Home::Work);
        let pair = work().flat_map(|a| work().map(move |b| (a, b)));
        let (a, b) = pair
            .filter(|(a, b)| a != b && storages[*a].coexists(&storages[*b]))
            .find(|(a, b)| storages[*a].bytes == storages[*b].bytes)
            .unwrap();
        plan.memory.programs[0].offsets[a] = plan.memory.programs[0].offsets[b];
    };
    check_refused(change, "bytes of its own");
}

#[test]
fn bytes_outside_of_the_memory_are_refused() {
    let first_work = |graphs: &[TaskGraph]| {
        graphs[0].layout.storages.iter().position(|s| s.home == Home::Work).unwrap()
    };
    let outside = |plan: &mut Plan, graphs: &[TaskGraph], _: &Programs| {
        plan.memory.programs[0].offsets[first_work(graphs)] = 1 << 40;
    };
    check_refused(outside, "aligned bytes within");
    let odd = |plan: &mut Plan, graphs: &[TaskGraph], _: &Programs| {
        plan.memory.programs[0].offsets[first_work(graphs)] += 1;
    };
    check_refused(odd, "aligned bytes within");
}

#[test]
fn a_parameter_in_another_place_than_the_sessions_is_refused() {
    let change = |plan: &mut Plan, graphs: &[TaskGraph], _: &Programs| {
        let storages = &graphs[0].layout.storages;
        let at = storages.iter().position(|s| matches!(s.home, Home::Persistent(_))).unwrap();
        plan.memory.programs[0].offsets[at] += 64;
    };
    check_refused(change, "the offset of");
}

#[test]
fn slots_that_are_too_few_are_refused() {
    check_refused(|plan, _, _| plan.memory.programs[0].output_slots = 0, "slots of outputs");
    check_refused(|plan, _, _| plan.memory.input_slots = 1, "slots of inputs");
}

#[test]
fn an_axis_that_is_cut_twice_is_refused() {
    let change = |plan: &mut Plan, _: &[TaskGraph], _: &Programs| {
        let groups = &mut plan.placement.programs[0].groups;
        let cut = |g: &&mut Group| g.nodes.len() == 1 && g.cuts[0] == [(0, 2).into()];
        let group = groups.iter_mut().find(cut).unwrap();
        group.cuts[0] = vec![(0, 2).into(), (0, 2).into()];
        group.workers = vec![WorkerId(0); 4];
    };
    check_refused(change, "cut once");
}

#[test]
fn a_group_out_of_order_is_refused() {
    let change = |plan: &mut Plan, _: &[TaskGraph], _: &Programs| {
        let groups = &mut plan.placement.programs[0].groups;
        let group = groups.iter_mut().find(|g| g.nodes.len() > 2).unwrap();
        group.nodes.reverse();
        group.cuts.reverse();
    };
    check_refused(change, "nodes in order");
}

#[test]
fn a_node_placed_twice_or_nowhere_is_refused() {
    let twice = |plan: &mut Plan, _: &[TaskGraph], _: &Programs| {
        let groups = &mut plan.placement.programs[0].groups;
        let again = groups[0].clone();
        groups.push(again);
    };
    check_refused(twice, "in 1 groups");
    check_refused(|plan, _, _| drop(plan.placement.programs[0].groups.pop()), "in 1 groups");
    let nobody = |plan: &mut Plan, _: &[TaskGraph], _: &Programs| {
        plan.placement.programs[0].groups[0].workers[0] = WorkerId(9);
    };
    check_refused(nobody, "one of 2 workers");
}

#[test]
fn a_limit_below_the_peak_is_refused_with_the_largest_tensors_named() {
    let programs = setup("lenet", DType::F32).lower().programs;
    let plan = PlannedPrograms::placed(
        &programs,
        Numerics::default_for(&programs, dahl::Isa::detect()),
        Grain::for_workers(1).plan(&programs).unwrap().placement.clone(),
    )
    .unwrap();
    let peak = plan.memory.peak();
    plan.check_memory(peak).unwrap();
    let error = plan.check_memory(Bytes(peak.0 - 1)).unwrap_err();
    let Error::Memory { needed, limit, largest, .. } = &error else { panic!("{error}") };
    assert_eq!((*needed, *limit), (peak, Bytes(peak.0 - 1).into()));
    assert!(largest.iter().any(|(name, _)| name == "7.weight f32 [120, 400]"), "{largest:?}");
    assert_eq!(largest[0].1, Bytes(120 * 400 * 4));
    assert!(largest.len() == 5 && largest.is_sorted_by(|a, b| a.1 >= b.1), "{largest:?}");
    assert!(error.to_string().contains("7.weight f32 [120, 400] (187.5 KiB)"), "{error}");
}

/// Set for the process of its own that the test below measures.
const ALONE: &str = "DAHL_TEST_ALONE";

#[test]
fn resident_memory_is_flat() {
    // The other tests of this binary allocate beside this one.
    if std::env::var_os(ALONE).is_none() {
        let own = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new(own);
        command.args(["--exact", "memory::resident_memory_is_flat", "--nocapture"]);
        let output = command.env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}");
        assert!(text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let model = Model::named("seed-cnn").unwrap();
    let spec = TrainSpec::new(4, DType::F32, Optimizer::sgd(0.01));
    let engine = Native { pin: false, ..Native::default() };
    let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(2), &engine).unwrap();
    let mut steps = |from: u64, to: u64| {
        for step in from..to {
            let id = feed(&mut trainer, 4, step).unwrap();
            trainer.loss(id).unwrap();
        }
        resident_bytes()
    };
    // The first reading pages in its own code, 64 KiB after it has read: more
    // than the 1 % of so small a process, in about four runs of ten.
    resident_bytes();
    let (Some(early), Some(late)) = (steps(0, 50), steps(50, 2000)) else {
        println!("skipped: this system does not tell its resident memory");
        return;
    };
    println!("resident after 50 steps: {early} bytes, after 2,000: {late}");
    assert!(late as f64 <= early as f64 * 1.01, "{early} bytes grew to {late}");
}
