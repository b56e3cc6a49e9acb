//! Runs over several ranks: the bits of one process.

use crate::support::{
    MODELS, Rng, Run, SCHEDULINGS, Setup, engine, grain, random_placement, setup,
};
use dahl::data::{Dataset, Synthetic, Transform};
use dahl::exec::Engine;
use dahl::graph::Shards;
use dahl::model::{Model, TrainSpec};
use dahl::native::{Native, Scheduling, Throttle};
use dahl::plan::{Does, Numerics, PlannedPrograms, Space};
use dahl::planner::{Flow, Gather, Grain, Order, Placer, even, flops};
use dahl::trace::Event;
use dahl::train::{
    EvalSet, Event as TrainEvent, LoopConfig, SampleOrder, SharedSets, TrainLoop, Trainer,
};
use dahl::units::{PersistentId, ProgramId, SpaceId};
use dahl::{DType, Error, Shape};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

fn over_ranks(ranks: usize, workers: usize, pieces: usize) -> Grain {
    Grain { ranks, spaces: ranks, ..grain(workers, pieces, 1, Gather::On) }
}

fn train(setup: &Setup, planned: &PlannedPrograms, engine: &Native) -> dahl::Result<Run> {
    setup.run(&mut setup.trainer(planned.clone(), engine.prepare(planned)?))
}

#[track_caller]
fn assert_same(setup: &Setup, planned: &PlannedPrograms, how: Scheduling) {
    let what = format!("{} on {} ranks, {how:?}", setup.model.name, planned.placement.ranks());
    train(setup, planned, &engine(how)).unwrap().assert_same(&setup.reference(), &what);
}

#[test]
fn ranks_have_the_bits_of_one_process() {
    for (m, name) in MODELS.into_iter().enumerate() {
        for (ranks, shards) in [(1, 1), (2, 1), (2, 2), (3, 3), (4, 4)] {
            let mut setup = setup(name, DType::F32);
            setup.spec.shards = Shards::even(setup.spec.train[0], shards).unwrap();
            // One worker more than ranks: a rank has two.
            let grain = over_ranks(ranks, ranks + m % 2, ranks);
            let planned = grain.plan(&setup.lower().programs).unwrap();
            assert_eq!(planned.placement.ranks() as usize, ranks);
            assert_same(&setup, &planned, SCHEDULINGS[(m + ranks) % 3]);
        }
    }
}

#[test]
fn eight_ranks_have_the_bits_of_one_process() {
    let mut setup = setup("lenet", DType::F64);
    setup.spec.train[0] = 9;
    setup.spec.shards = Shards::even(9, 8).unwrap();
    let planned = over_ranks(8, 8, 8).plan(&setup.lower().programs).unwrap();
    for how in SCHEDULINGS {
        assert_same(&setup, &planned, how);
    }
}

#[test]
fn a_pipeline_over_ranks_has_the_bits_of_one_process() {
    let mut setup = setup("lenet", DType::F32);
    setup.spec = TrainSpec { micro_batches: 2, ..setup.spec };
    for (ranks, spaces, order) in
        [(2, 2, Order::OneForwardOneBackward), (3, 3, Order::AllForward), (2, 4, Order::AllForward)]
    {
        let programs = setup.lower().programs;
        let stages = even(&programs.programs[0].graph, &vec![1.0; ranks], &flops);
        let flow = Flow { stages, order, delays: None, own: Vec::new() };
        let grain = Grain { spaces, ..over_ranks(ranks, spaces, spaces) };
        let placer = (&flow, &grain);
        let numerics = Numerics::default_for(&programs, dahl::Isa::detect());
        let expanded = numerics.expand(&programs).unwrap();
        let placement = placer.placement(&expanded).unwrap();
        let planned = PlannedPrograms::placed(&programs, numerics, placement).unwrap();
        assert_eq!(planned.placement.ranks() as usize, ranks);
        assert_same(&setup, &planned, Scheduling::Static);
        assert_same(&setup, &planned, Scheduling::Staged);
    }
}

/// Any legal placement of ops on workers, of workers in memories, and of memories in ranks.
#[test]
fn random_placements_over_ranks_have_the_bits_of_one_process() {
    for (m, name) in MODELS.into_iter().enumerate() {
        let setup = setup(name, DType::F32);
        let programs = setup.lower().programs;
        for ranks in [2, 3] {
            let mut rng = Rng((m * 10 + ranks) as u64);
            let numerics = Numerics::default_for(&programs, dahl::Isa::detect());
            let spaces = ranks + 1;
            let mut placement =
                random_placement(&numerics.expand(&programs).unwrap(), spaces, &mut rng);
            // The last rank has two memories.
            let space =
                |s: usize| Space::host(s.min(ranks - 1) as u32, s.saturating_sub(ranks - 1) as u32);
            placement.spaces = (0..spaces).map(space).collect();
            placement.space_of = (0..spaces).map(SpaceId::new).collect();
            let planned = PlannedPrograms::placed(&programs, numerics, placement).unwrap();
            assert_same(&setup, &planned, SCHEDULINGS[(m + ranks) % 3]);
        }
    }
}

/// The ranks' parts are the plan: each task in one part, each move between ranks in two.
#[test]
fn the_parts_of_ranks_make_the_whole_plan() {
    let mut setup = setup("seed-cnn", DType::F32);
    setup.spec.shards = Shards::even(5, 3).unwrap();
    let planned = over_ranks(3, 3, 3).plan(&setup.lower().programs).unwrap();
    let parts: Vec<PlannedPrograms> = (0..3).map(|rank| planned.of_rank(rank).unwrap()).collect();
    assert!(planned.of_rank(3).is_err() && parts[0].of_rank(1).is_err());
    let (_, whole) = planned.program(ProgramId(0));
    let mut messages = 0;
    for (t, task) in whole.tasks.iter().enumerate() {
        let of = |part: &PlannedPrograms| part.program(ProgramId(0)).1.tasks[t].does.clone();
        let here: Vec<Does> =
            parts.iter().map(of).filter(|does| !matches!(does, Does::Elsewhere)).collect();
        match (&task.does, &here[..]) {
            (
                Does::Move(whole),
                [Does::Send(a), Does::Receive(b)] | [Does::Receive(b), Does::Send(a)],
            ) => {
                assert!(a == whole && b == whole);
                messages += 1;
            }
            (Does::Calls(_), [Does::Calls(_)]) => {}
            (whole, parts) => panic!("{whole:?} became {parts:?}"),
        }
    }
    assert!(messages > 0);
    let peaks: u64 = parts.iter().map(|part| part.peak().0).sum();
    assert_eq!(peaks, planned.memory.peak().0);
    let session = engine(Scheduling::Static).prepare(&planned).unwrap();
    assert_eq!(session.allocated(), planned.memory.peak());
}

#[test]
fn a_trace_of_ranks_has_the_tasks_of_all_in_one_time() {
    let mut setup = setup("seed-cnn", DType::F32);
    setup.spec.shards = Shards::even(5, 2).unwrap();
    let planned = over_ranks(2, 2, 2).plan(&setup.lower().programs).unwrap();
    let engine = Native { record: true, ..engine(Scheduling::Static) };
    let session = engine.prepare(&planned).unwrap();
    let mut trainer = setup.trainer(planned.clone(), session);
    setup.run(&mut trainer).unwrap();
    let activity = trainer.session().counters().activity();
    assert!(activity.workers[..2].iter().all(|worker| worker.busy > 0));
    let trace = trainer.session().take_trace();
    assert_eq!(dahl::trace::Trace::parse(&trace.to_text(), "x".as_ref()).unwrap(), trace);
    let (_, graph) = planned.program(ProgramId(0));
    for (t, task) in graph.tasks.iter().enumerate() {
        let calls = trace.events.iter().filter_map(|event| match *event {
            Event::Call { program: 0, task, worker, step: 1, from, to, .. }
                if task as usize == t =>
            {
                Some((worker as usize, from, to))
            }
            _ => None,
        });
        let calls: Vec<(usize, u64, u64)> = calls.collect();
        match &task.does {
            Does::Calls(of) => {
                assert_eq!(calls.len(), of.len());
                assert!(calls.iter().all(|(worker, ..)| *worker == task.worker.index()));
            }
            // Both halves, on lanes of their own; what is received has been sent.
            _ => {
                let names: Vec<&str> =
                    calls.iter().map(|(w, ..)| trace.header.units[*w].as_str()).collect();
                assert_eq!(calls.len(), 2, "{names:?}");
                let sends = names.iter().position(|name| name.contains("sends")).unwrap();
                assert!(names[1 - sends].contains("receives"), "{names:?}");
            }
        }
    }
}

/// Samples that know which thread has read them.
struct Watched {
    samples: Synthetic,
    reads: Arc<Mutex<BTreeSet<(usize, String)>>>,
}

impl Dataset for Watched {
    fn shape(&self) -> Shape {
        self.samples.shape()
    }

    fn classes(&self) -> &[String] {
        self.samples.classes()
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn read(&self, index: usize, out: &mut [f32]) -> dahl::Result<usize> {
        let thread = std::thread::current().name().unwrap_or("").to_owned();
        self.reads.lock().unwrap().insert((index, thread));
        self.samples.read(index, out)
    }
}

/// Each rank reads its share of every batch, through stops between batches too.
#[test]
fn each_rank_reads_its_own_samples() {
    let reads = Arc::default();
    let samples = Synthetic::new(Shape::new(&[1, 28, 28]), 10, 12, 7).unwrap();
    let data: Arc<dyn Dataset> = Arc::new(Watched { samples, reads: Arc::clone(&reads) });
    let model = Model::named("seed-cnn").unwrap();
    let mut spec = TrainSpec::new(6, DType::F32, dahl::model::Optimizer::sgd(0.05));
    (spec.shards, spec.eval) = (Shards::new(vec![4, 2]).unwrap(), vec![6]);
    let weights = |grain: Grain, share: bool, stops: bool| {
        let engine = engine(Scheduling::Static);
        let mut trainer = Trainer::new(&model, &spec, grain, &engine).unwrap();
        let transform = Transform::default();
        if share {
            let sets = vec![(data.clone(), transform.clone()), (data.clone(), transform.clone())];
            trainer.session().share(Arc::new(SharedSets(sets))).unwrap();
        }
        let set = EvalSet { name: "test", data: &*data, transform: &transform };
        let config = LoopConfig {
            train: &*data,
            transform: &transform,
            eval_sets: &[set],
            batch: 6,
            seed: 1,
            order: SampleOrder::InOrder,
            epochs: 3,
            canonical: |_, text| text.to_owned(),
            recipe: Default::default(),
            metadata: Default::default(),
        };
        let mut training = TrainLoop::new(&mut trainer, config).unwrap();
        while !training.is_finished() {
            // Stops in the evaluation of each epoch, which then begins anew.
            let mut evaluated = 0;
            training
                .go(&mut |event| {
                    evaluated += usize::from(matches!(event, TrainEvent::Evaluating { .. }));
                    if stops && evaluated == 1 {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })
                .unwrap();
            if stops {
                break;
            }
        }
        drop(training);
        trainer.weights().unwrap().sha256()
    };
    let one = weights(Grain::for_workers(1), false, false);
    assert_eq!(weights(over_ranks(2, 2, 2), false, false), one);
    assert!(reads.lock().unwrap().iter().all(|(_, thread)| !thread.contains("loader-1")));
    reads.lock().unwrap().clear();
    assert_eq!(weights(over_ranks(2, 2, 2), true, false), one);
    // Batches are samples 0 to 5 and 6 to 11; rank 1 has the last two of each.
    let of_rank_1: BTreeSet<usize> =
        reads.lock().unwrap().iter().filter(|r| r.1 == "dahl-loader-1").map(|r| r.0).collect();
    assert_eq!(of_rank_1, BTreeSet::from([4, 5, 10, 11]));
    let of_rank_0: BTreeSet<usize> =
        reads.lock().unwrap().iter().filter(|r| r.1 != "dahl-loader-1").map(|r| r.0).collect();
    assert_eq!(of_rank_0, BTreeSet::from([0, 1, 2, 3, 6, 7, 8, 9]));
    assert_eq!(
        weights(over_ranks(2, 2, 2), true, true),
        weights(Grain::for_workers(1), false, true)
    );
}

#[test]
fn ranks_that_cannot_start_are_refused_before_the_first_step() {
    let mut setup = setup("seed-cnn", DType::F32);
    setup.spec.shards = Shards::even(5, 2).unwrap();
    let planned = over_ranks(2, 2, 2).plan(&setup.lower().programs).unwrap();
    let throttles = vec![Throttle { worker: 0, speed: 2.0, from_step: 0 }];
    let error = Native { throttles, ..Native::default() }.prepare(&planned).err().unwrap();
    assert!(error.to_string().contains("a speed from"), "{error}");
    let small = Model::sequential("small", &[4], |s| s.linear(2));
    let one = Setup { model: small, ..setup };
    let error = over_ranks(3, 2, 2).plan(&one.lower().programs).unwrap_err().to_string();
    assert!(error.contains("spaces"), "{error}");
}

/// Rank 0 sends rows that no pipe holds while steps are under way, and nobody waits for a loss.
#[test]
fn large_batches_are_sent_while_steps_are_under_way() {
    let model = Model::sequential("wide", &[16384], |s| s.linear(5));
    let mut spec = TrainSpec::new(12, DType::F32, dahl::model::Optimizer::sgd(0.01));
    spec.shards = Shards::even(12, 2).unwrap();
    let setup = Setup { model, spec, steps: 0 };
    let run = |grain: Grain| {
        let planned = grain.plan(&setup.lower().programs).unwrap();
        let session = engine(Scheduling::Static).prepare(&planned).unwrap();
        let mut trainer = setup.trainer(planned, session);
        for seed in 0..5 {
            crate::support::feed(&mut trainer, 12, seed).unwrap();
        }
        crate::support::state(&mut trainer).unwrap()
    };
    assert!(run(over_ranks(2, 2, 2)) == run(Grain::for_workers(1)));
}

/// What rank 0 refuses no other rank hears of: the run goes on, to the same bits.
#[test]
fn what_a_session_of_ranks_refuses_changes_nothing() {
    let mut setup = setup("seed-cnn", DType::F32);
    (setup.spec.shards, setup.spec.train) = (Shards::even(5, 2).unwrap(), vec![5, 3]);
    let planned = over_ranks(2, 2, 2).plan(&setup.lower().programs).unwrap();
    let session = engine(Scheduling::Static).prepare(&planned).unwrap();
    let mut trainer = setup.trainer(planned, session);
    let mut plain = setup.trainer(
        Grain::for_workers(1).plan(&setup.lower().programs).unwrap(),
        Box::new(
            engine(Scheduling::Static)
                .prepare_native(&Grain::for_workers(1).plan(&setup.lower().programs).unwrap())
                .unwrap(),
        ),
    );
    for step in 0..3 {
        crate::support::feed(&mut trainer, 5, step).unwrap();
        crate::support::feed(&mut plain, 5, step).unwrap();
        // A snapshot beside one that is held, and a step of a program whose snapshot is held.
        let held = trainer.snapshot().unwrap();
        let snapshot = trainer.lowered().snapshot;
        assert!(matches!(trainer.snapshot(), Err(Error::Config(_))));
        drop(held);
        // A program and values that are not there, a slot of another program.
        let [small, large] = [3, 5].map(|batch| trainer.lowered().train[&batch][0]);
        let session = trainer.session();
        assert!(matches!(session.slot(ProgramId(99)), Err(Error::Config(_))));
        let slot = session.slot(small).unwrap();
        assert!(session.step(large, slot, dahl::StepScalars::default()).is_err());
        let slot = session.slot(small).unwrap();
        assert!(session.step(ProgramId(99), slot, dahl::StepScalars::default()).is_err());
        assert!(matches!(session.snapshot(large), Err(Error::Config(_))));
        assert!(session.read(PersistentId(999), &mut |_| ()).is_err());
        assert!(session.write(PersistentId(999), &mut |_| Ok(())).is_err());
        assert!(session.snapshot(snapshot).is_ok());
    }
    assert!(
        crate::support::state(&mut trainer).unwrap() == crate::support::state(&mut plain).unwrap()
    );
}

/// A part of a plan needs the messages of the other parts.
#[test]
fn a_part_without_its_transport_is_refused() {
    let mut setup = setup("seed-cnn", DType::F32);
    setup.spec.shards = Shards::even(5, 2).unwrap();
    let planned = over_ranks(2, 2, 2).plan(&setup.lower().programs).unwrap();
    let part = planned.of_rank(1).unwrap();
    let alone = engine(Scheduling::Static).prepare_native(&part).err().unwrap();
    assert!(alone.to_string().contains("a transport of rank 1, found none"), "{alone}");
    let transport = dahl::exec::InProcess::new(2).swap_remove(0);
    let other = Native { transport: Some(Arc::new(transport)), ..engine(Scheduling::Static) };
    assert!(other.prepare_native(&part).is_err());
    assert!(dahl::exec::PreparedPrograms::new(&part).is_err());
}

#[test]
fn every_rank_has_the_memory_that_is_planned() {
    let mut setup = setup("lenet", DType::F32);
    setup.spec.shards = Shards::even(4, 2).unwrap();
    let planned = over_ranks(2, 3, 3).plan(&setup.lower().programs).unwrap();
    let transports = dahl::exec::InProcess::new(2);
    for (rank, transport) in transports.into_iter().enumerate() {
        let engine = Native { transport: Some(Arc::new(transport)), ..engine(Scheduling::Static) };
        let session = engine.prepare_native(&planned).unwrap();
        let expected = planned.memory.peak_of(SpaceId(rank as u32));
        assert_eq!(dahl::exec::Session::allocated(&session), expected);
    }
}
