//! The same numerics give the same bits, however a plan is placed and run.

use crate::support::{
    MODELS, Rng, Run, SCHEDULINGS, Setup, engine, feed, fill, grain, random_plan, setup, state,
};
use dahl::DType;
use dahl::graph::{Graph, Shards};
use dahl::model::Fusion;
use dahl::native::Scheduling;
use dahl::plan::PlannedPrograms;
use dahl::planner::{Gather, Grain};
use dahl::train::Trainer;

const DTYPES: [DType; 2] = [DType::F32, DType::F64];

/// Every model in both element types gives the reference's bits at some grains.
#[track_caller]
fn check(grains: impl Fn(&Setup) -> Vec<(Grain, Scheduling)>) {
    for name in MODELS {
        for dtype in DTYPES {
            let setup = setup(name, dtype);
            let reference = setup.reference();
            assert!(
                reference.losses.windows(2).all(|w| w[0] != w[1]),
                "{name} learns: {:?}",
                reference.losses
            );
            for (grain, scheduling) in grains(&setup) {
                let run = setup.at(grain.clone(), &engine(scheduling));
                run.assert_same(&reference, &format!("{name} {dtype} {grain:?} {scheduling:?}"));
            }
        }
    }
}

#[test]
fn any_number_of_workers_gives_the_same_bits() {
    check(|_| [2, 3, 8].map(|w| (Grain::for_workers(w), Scheduling::Static)).to_vec());
}

#[test]
fn every_cut_of_the_batch_gives_the_same_bits() {
    check(|setup| {
        let pieces = 1..=setup.spec.train[0];
        pieces.map(|p| (grain(2, p, 1, Gather::On), Scheduling::Static)).collect()
    });
}

#[test]
fn cuts_of_channels_give_the_same_bits() {
    let cuts = [(1, 2), (1, 3), (2, 2), (3, 4)];
    check(|_| {
        let grains = cuts.map(|(p, c)| (grain(2, p, c, Gather::Off), Scheduling::Static));
        grains.to_vec()
    });
}

#[test]
fn gathering_and_scheduling_change_no_bit() {
    check(|_| {
        let ways = SCHEDULINGS
            .into_iter()
            .flat_map(|s| [Gather::On, Gather::Off].map(move |g| (grain(3, 3, 1, g), s)));
        ways.collect()
    });
}

#[test]
fn the_same_command_again_gives_the_same_bits() {
    check(|_| vec![(grain(2, 2, 1, Gather::On), Scheduling::WorkStealing); 3]);
}

#[test]
fn fusing_changes_no_bit_forwards_and_little_backwards() {
    for name in ["seed-cnn", "lenet", "projected", "identity"] {
        for dtype in DTYPES {
            let fused = setup(name, dtype);
            let mut unfused = fused.clone();
            unfused.spec.fusion = Fusion::Off;
            let nodes = |s: &Setup| s.lower().programs.programs[0].graph.nodes.len();
            assert!(nodes(&fused) < nodes(&unfused), "{name} has something to fuse");
            // The first loss is the forward pass alone; the weight's gradient at
            // the winners is summed in another order.
            let (fused, unfused) = (fused.reference().losses, unfused.reference().losses);
            assert_eq!(fused[0], unfused[0], "{name} {dtype}: the first loss");
            let tolerance = if dtype == DType::F64 { 1e-13 } else { 1e-5 };
            for (step, losses) in fused.iter().zip(&unfused).enumerate() {
                let (a, b) = (f64::from_bits(*losses.0), f64::from_bits(*losses.1));
                assert!((a - b).abs() <= tolerance * b, "{name} {dtype} step {step}: {a}, {b}");
            }
        }
    }
}

/// The axes of the first output along which some node is cut.
fn axes_cut(graph: &Graph, plan: &dahl::plan::ProgramPlacement) -> Vec<usize> {
    let mut axes: Vec<usize> = Vec::new();
    for group in &plan.groups {
        let rank =
            |id: dahl::units::NodeId| graph.value(graph.node(id).outputs[0]).meta.shape.rank();
        for (&node, cuts) in group.nodes.iter().zip(&group.cuts) {
            axes.extend(cuts.iter().filter(|_| rank(node) == 4).map(|cut| cut.axis));
        }
    }
    axes.sort_unstable();
    axes.dedup();
    axes
}

#[test]
fn random_placements_give_the_same_bits() {
    for name in MODELS {
        let setup = setup(name, DType::F32);
        let reference = setup.reference();
        let programs = setup.lower().programs;
        let mut axes = Vec::new();
        for seed in 0..6 {
            let mut rng = Rng(seed);
            let workers = 1 + rng.below(4);
            let plan = random_plan(&programs, workers, &mut rng).unwrap();
            let expanded = plan.numerics.expand(&programs).unwrap();
            axes.extend(axes_cut(&expanded.programs[0].graph, &plan.placement.programs[0]));
            let scheduling = SCHEDULINGS[rng.below(3)];
            let run = setup.train(&plan, &engine(scheduling)).unwrap();
            run.assert_same(&reference, &format!("{name} seed {seed} {scheduling:?}"));
        }
        if name != "dropout" {
            assert!((0..4).all(|axis| axes.contains(&axis)), "{name}: images are cut too");
        }
    }
}

#[test]
fn shards_have_bits_of_their_own_that_no_placement_changes() {
    for name in MODELS {
        for dtype in DTYPES {
            let plain = setup(name, dtype);
            let batch = plain.spec.train[0];
            for shares in [vec![batch - 1, 1], vec![1, batch - 3, 2]] {
                let mut setup = plain.clone();
                setup.spec.shards = Shards::new(shares.clone()).unwrap();
                let (one, reference) = (plain.reference(), setup.reference());
                let what = format!("{name} {dtype} {shares:?}");
                let tolerance = if dtype == DType::F64 { 1e-11 } else { 1e-3 };
                for (a, b) in one.losses.iter().zip(&reference.losses) {
                    let (a, b) = (f64::from_bits(*a), f64::from_bits(*b));
                    assert!((a - b).abs() <= tolerance * b.abs(), "{what}: {a}, {b}");
                }
                assert_ne!(one.state, reference.state, "{what}: other roundings");
                let grains = [Grain::for_workers(2), grain(3, 3, 2, Gather::Off)];
                for (grain, scheduling) in grains.into_iter().zip(SCHEDULINGS) {
                    setup.at(grain, &engine(scheduling)).assert_same(&reference, &what);
                }
                let programs = setup.lower().programs;
                let plan = random_plan(&programs, 3, &mut Rng(1)).unwrap();
                let run = setup.train(&plan, &engine(Scheduling::WorkStealing)).unwrap();
                run.assert_same(&reference, &what);
                let text = plan.to_text();
                assert!(text.contains(&format!("shards = {shares:?}")), "{what}");
                let read = PlannedPrograms::parse(&text, &programs).unwrap();
                assert_eq!(*read, *plan);
                assert!(PlannedPrograms::parse(&text, &plain.lower().programs).is_err());
            }
        }
    }
}

#[test]
fn another_seed_gives_other_bits() {
    for name in MODELS {
        let one = setup(name, DType::F64);
        let mut other = one.clone();
        other.spec.seed += 1;
        assert_ne!(one.reference().losses, other.reference().losses, "{name}");
    }
}

/// What happens between the steps of a training.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    Nothing,
    Evaluation,
    Snapshot,
    Everything,
}

/// Trains on three batches and a short one, twice over.
fn epochs(setup: &Setup, grain: Grain, scheduling: Scheduling, between: Between) -> Run {
    let (batch, short) = (setup.spec.train[0], setup.spec.train[1]);
    let mut trainer = Trainer::new(&setup.model, &setup.spec, grain, &engine(scheduling)).unwrap();
    let mut losses = Vec::new();
    for step in 0..6 {
        let size = if step % 3 == 2 { short } else { batch };
        let id = feed(&mut trainer, size, step).unwrap();
        if matches!(between, Between::Evaluation | Between::Everything) {
            let mut slot = trainer.eval_slot(short).unwrap();
            fill(&mut slot, 100 + step).unwrap();
            let eval = trainer.eval(slot).unwrap();
            assert!(trainer.loss(eval).unwrap().is_finite());
        }
        if matches!(between, Between::Snapshot | Between::Everything) {
            let snapshot = trainer.snapshot().unwrap();
            let named: Vec<(String, Vec<u8>)> =
                snapshot.tensors().map(|(n, t)| (n.to_owned(), t.bytes.to_vec())).collect();
            assert_eq!(named, state(&mut trainer).unwrap(), "a snapshot is the state");
        }
        losses.push(trainer.loss(id).unwrap().to_bits());
    }
    Run { losses, state: state(&mut trainer).unwrap() }
}

#[test]
fn evaluations_snapshots_and_short_batches_change_no_bit_of_training() {
    for name in MODELS {
        let mut setup = setup(name, DType::F32);
        setup.spec.train.push(3);
        setup.spec.eval = vec![setup.spec.train[0], 3];
        let one = Grain::for_workers(1);
        let reference = epochs(&setup, one.clone(), Scheduling::Static, Between::Nothing);
        for between in [Between::Evaluation, Between::Snapshot, Between::Everything] {
            let run = epochs(&setup, one.clone(), Scheduling::Static, between);
            run.assert_same(&reference, &format!("{name} {between:?}"));
        }
        for scheduling in SCHEDULINGS {
            let run = epochs(&setup, grain(3, 2, 2, Gather::On), scheduling, Between::Everything);
            run.assert_same(&reference, &format!("{name} {scheduling:?}"));
        }
    }
}
