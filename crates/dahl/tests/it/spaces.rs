//! Plans over several memories: the bits of one.

use crate::support::{
    MODELS, Rng, Run, SCHEDULINGS, Setup, engine, grain, random_placement, setup,
};
use dahl::calibrate;
use dahl::exec::PreparedPrograms;
use dahl::graph::Shards;
use dahl::model::TrainSpec;
use dahl::native::Scheduling;
use dahl::perf::PerfModel;
use dahl::plan::{Does, MemoryLimits, Numerics, Placement, PlannedPrograms, Space};
use dahl::planner::{Gather, Grain, fit};
use dahl::units::{Bytes, ProgramId, SpaceId};
use dahl::{DType, Error};
use std::time::Duration;

/// The same placement over so many host memories, each worker in any of them.
fn over(mut placement: Placement, spaces: usize, rng: &mut Rng) -> Placement {
    placement.spaces = (0..spaces).map(|number| Space::host(0, number as u32)).collect();
    // Each space has a worker.
    let of = |w| if w < spaces { w } else { rng.below(spaces) };
    placement.space_of = (0..placement.workers).map(of).map(SpaceId::new).collect();
    placement
}

/// A random placement over random spaces.
fn random(setup: &Setup, spaces: usize, rng: &mut Rng) -> PlannedPrograms {
    let programs = setup.lower().programs;
    let numerics = Numerics::default_for(&programs, dahl::Isa::detect());
    let workers = spaces + rng.below(2);
    let placement = random_placement(&numerics.expand(&programs).unwrap(), workers, rng);
    PlannedPrograms::placed(&programs, numerics, over(placement, spaces, rng)).unwrap()
}

#[track_caller]
fn assert_same(setup: &Setup, planned: &PlannedPrograms, reference: &Run, how: Scheduling) {
    let spaces = planned.placement.spaces.len();
    let what = format!("{} on {spaces} spaces {how:?}", setup.model.name);
    setup.train(planned, &engine(how)).unwrap().assert_same(reference, &what);
}

#[test]
fn random_placements_over_spaces_give_the_bits_of_one() {
    for (m, name) in MODELS.into_iter().enumerate() {
        let mut setup = setup(name, DType::F32);
        let batch = setup.spec.train[0];
        for (i, shards) in
            [Shards::default(), Shards::even(batch, 2).unwrap()].into_iter().enumerate()
        {
            setup.spec.shards = shards;
            let reference = setup.reference();
            for spaces in 2..=4 {
                let mut rng = Rng((m * 100 + i * 10 + spaces) as u64);
                let planned = random(&setup, spaces, &mut rng);
                assert_same(&setup, &planned, &reference, SCHEDULINGS[spaces % 3]);
            }
        }
    }
}

#[test]
fn a_plan_over_spaces_is_read_back_and_says_its_moves() {
    let setup = setup("seed-cnn", DType::F32);
    let planned = random(&setup, 3, &mut Rng(5));
    let text = planned.to_text();
    assert!(text.contains("spaces = [\"host\", \"host1\", \"host2\"]"), "{text}");
    let read = PlannedPrograms::parse(&text, &setup.lower().programs).unwrap();
    assert_eq!(*read, *planned);
    let (graph, tasks) = planned.program(ProgramId(0));
    let moves = tasks.tasks.iter().filter(|task| matches!(task.does, Does::Move(_))).count();
    assert!(moves > 0);
    assert_eq!(tasks.to_text(graph).matches("\n  move s").count(), moves);
    assert!(tasks.to_dot(graph).contains(" from s"));
}

/// A model on a batch that is shared by spaces as `shards` says gives the bits of one space.
#[track_caller]
fn check(name: &str, dtype: DType, shards: &[usize], grains: &[(Grain, Scheduling)]) {
    let mut setup = setup(name, dtype);
    if let [count] = shards {
        setup.spec.shards = Shards::even(setup.spec.train[0], *count).unwrap();
    } else {
        setup.spec.train[0] = shards.iter().sum();
        setup.spec.shards = Shards::new(shards.to_vec()).unwrap();
    }
    let reference = setup.reference();
    for (grain, how) in grains {
        let what = format!("{name} {dtype} shards {shards:?}, {grain}, {how:?}");
        let planned = grain.plan(&setup.lower().programs).unwrap();
        setup.train(&planned, &engine(*how)).unwrap().assert_same(&reference, &what);
    }
}

fn over_spaces(spaces: usize, workers: usize, pieces: usize, gather: Gather) -> Grain {
    Grain { spaces, ..grain(workers, pieces, 1, gather) }
}

#[test]
fn a_batch_shared_by_spaces_has_the_bits_of_one() {
    for name in MODELS {
        for (shards, spaces) in [(&[1][..], 2), (&[2], 2), (&[3], 3), (&[3, 1], 2), (&[2, 3, 1], 2)]
        {
            let grains = [
                (over_spaces(spaces, spaces, spaces, Gather::On), Scheduling::Static),
                (over_spaces(spaces, spaces + 1, 4, Gather::Off), Scheduling::WorkStealing),
            ];
            check(name, DType::F32, shards, &grains);
        }
    }
}

#[test]
fn four_spaces_in_all_ways_have_the_bits_of_one() {
    let mut grains = Vec::new();
    for how in SCHEDULINGS {
        for gather in [Gather::On, Gather::Off] {
            for (workers, pieces) in [(4, 4), (5, 8), (8, 8)] {
                grains.push((over_spaces(4, workers, pieces, gather), how));
            }
        }
    }
    check("seed-cnn", DType::F64, &[4], &grains);
    check("seed-cnn", DType::F32, &[3, 1, 1, 2], &grains);
}

#[test]
fn a_policy_that_reaches_into_another_space_is_stopped() {
    let setup = setup("seed-cnn", DType::F32);
    let planned = random(&setup, 2, &mut Rng(3));
    let policy = Box::new(dahl::sched::FirstCome::default());
    let error = setup.train_with(&planned, &engine(Scheduling::Static), policy).unwrap_err();
    assert!(error.to_string().contains("in another space"), "{error}");
}

#[test]
fn every_space_has_the_memory_that_is_planned() {
    let setup = setup("lenet", DType::F32);
    let programs = setup.lower().programs;
    let one = Grain::for_workers(1).plan(&programs).unwrap().memory.peak();
    for spaces in 2..=4 {
        let plan = over_spaces(spaces, spaces, spaces, Gather::On).plan(&programs).unwrap();
        let prepared = PreparedPrograms::new(&plan).unwrap();
        let of = |space| prepared.allocated_in(space);
        assert!(plan.memory.spaces().all(|space| of(space) == plan.memory.peak_of(space)));
        assert_eq!(prepared.allocated(), plan.memory.peak());
        println!("lenet: {one} in one space, {} in {spaces}", plan.memory.peak());
        assert!(plan.memory.peak() > one, "replicas of parameters");
        assert!(plan.memory.spaces().all(|space| of(space) < one));
    }
}

#[test]
fn a_limit_of_a_space_is_kept_or_refused_with_its_name() {
    let setup = Setup {
        spec: TrainSpec { train: vec![32], ..setup("projected", DType::F32).spec },
        ..setup("projected", DType::F32)
    };
    let programs = setup.lower().programs;
    let grain = over_spaces(2, 2, 2, Gather::On);
    let numerics = Numerics::default_for(&programs, grain.target);
    let [host, second] = [0, 1].map(|number| Space::host(0, number));
    let within = |limits: MemoryLimits| fit(&grain, &programs, &numerics, limits);
    let plain = within(MemoryLimits::default()).unwrap().plan;
    let [first, peak] = [0, 1].map(|space| plain.memory.peak_of(SpaceId(space)));
    // What is enough is enough.
    let enough = MemoryLimits::default().within(&host, first).within(&second, peak);
    assert_eq!(*within(enough).unwrap().plan, *plain);
    let less = MemoryLimits::default().within(&second, Bytes(peak.0 - 1024));
    let fitted = within(less).unwrap().plan;
    assert!(fitted.memory.peak_of(SpaceId(1)).0 <= peak.0 - 1024);
    assert!(fitted.recompute.programs.iter().any(|nodes| !nodes.is_empty()));
    setup
        .train(&fitted, &engine(Scheduling::Static))
        .unwrap()
        .assert_same(&setup.reference(), "with less memory in the second space");
    let error = within(MemoryLimits::default().within(&second, Bytes(1))).unwrap_err();
    let Error::Memory { space, needed, least: Some(least), .. } = &error else { panic!("{error}") };
    assert_eq!((space.as_deref(), *needed), (Some("host1"), peak));
    assert!(least.0 < peak.0);
    let text = format!("the plan needs {needed} of memory in host1, 1 B are allowed");
    assert!(error.to_string().starts_with(&text), "{error}");
    // The smallest that was found is found again.
    let again = within(MemoryLimits::default().within(&second, *least)).unwrap();
    assert!(again.plan.memory.peak_of(SpaceId(1)) <= *least);
    let other = MemoryLimits::default().within(&Space::host(0, 7), Bytes(1));
    let error = plain.check_limited(&other).unwrap_err().to_string();
    assert_eq!(error, "memory-limit: expected spaces of the plan: host, host1, found host7");
}

#[test]
fn copies_between_memories_are_measured_where_a_plan_has_several() {
    let programs = setup("seed-cnn", DType::F32).lower().programs;
    let measured = |spaces| {
        let plan = over_spaces(spaces, 2, 2, Gather::On).plan(&programs).unwrap();
        let mut model = PerfModel::default();
        calibrate::steps(&plan, ProgramId(0), Duration::ZERO, "cpu", &mut model).unwrap();
        model.copies
    };
    assert_eq!(measured(1), None);
    let copies = measured(2).unwrap();
    // Sixteen megabytes take longer than a message.
    assert!(copies.hop_ns > 0.0 && copies.copy_ns[3] > 0.0, "{copies:?}");
}
