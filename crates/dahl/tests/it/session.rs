//! What a session promises: slots, outputs, snapshots, and steps without
//! effect where the loss is not finite.

use crate::support::{Run, SCHEDULINGS, Setup, engine, feed, fill, grain, setup, state};
use dahl::exec::{Slot, StepId};
use dahl::native::Scheduling;
use dahl::planner::{Gather, Grain};
use dahl::train::Trainer;
use dahl::units::ProgramId;
use dahl::{DType, Error, StepScalars};

/// A trainer of two workers with a batch, a short batch and an evaluation.
fn trainer(name: &str, scheduling: Scheduling) -> (Setup, Trainer) {
    let mut setup = setup(name, DType::F64);
    setup.spec.train.push(3);
    setup.spec.eval = vec![setup.spec.train[0]];
    let grain = grain(2, 2, 1, Gather::On);
    let trainer = Trainer::new(&setup.model, &setup.spec, grain, &engine(scheduling)).unwrap();
    (setup, trainer)
}

#[track_caller]
fn check_refused<T>(result: Result<T, Error>, expected: &str) {
    let error = result.err().unwrap_or_else(|| panic!("expected {expected:?} to be refused"));
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(error.to_string().contains(expected), "expected {expected:?} in: {error}");
}

#[test]
fn slots_are_filled_in_any_order_and_stepped_in_any_order() {
    for scheduling in SCHEDULINGS {
        let (_, mut plain) = trainer("seed-cnn", scheduling);
        let (_, mut mixed) = trainer("seed-cnn", scheduling);
        let mut expected = Vec::new();
        for seed in [0, 1, 2, 3] {
            let step = feed(&mut plain, 5, seed).unwrap();
            expected.push(plain.loss(step).unwrap());
        }
        let mut found = Vec::new();
        for seed in [0, 2] {
            let (mut late, mut early) = (mixed.slot(5).unwrap(), mixed.slot(5).unwrap());
            fill(&mut late, seed + 1).unwrap();
            fill(&mut early, seed).unwrap();
            let steps = [mixed.step(early).unwrap(), mixed.step(late).unwrap()];
            found.extend(steps.map(|step| mixed.loss(step).unwrap()));
        }
        assert_eq!(found, expected, "{scheduling:?}");
    }
}

#[test]
fn a_slot_is_filled_on_another_thread_while_a_step_runs() {
    let (_, mut plain) = trainer("lenet", Scheduling::Static);
    let (_, mut loaded) = trainer("lenet", Scheduling::Static);
    let expected: Vec<StepId> = (0..4).map(|seed| feed(&mut plain, 4, seed).unwrap()).collect();
    for seed in 0..4 {
        let mut slot = loaded.slot(4).unwrap();
        let filler = std::thread::spawn(move || {
            fill(&mut slot, seed).unwrap();
            slot
        });
        let slot: Slot = filler.join().unwrap();
        loaded.step(slot).unwrap();
    }
    assert_eq!(loaded.loss(expected[3]).unwrap(), plain.loss(expected[3]).unwrap());
}

#[test]
fn both_slots_taken_is_an_error_and_no_deadlock() {
    let (_, mut trainer) = trainer("seed-cnn", Scheduling::Static);
    let mut first = trainer.slot(5).unwrap();
    let second = trainer.slot(5).unwrap();
    check_refused(trainer.slot(5), "all slots handed out");
    fill(&mut first, 1).unwrap();
    let step = trainer.step(first).unwrap();
    let third = trainer.slot(5).unwrap();
    assert!(trainer.loss(step).unwrap().is_finite());
    drop((second, third));
}

#[test]
fn a_dropped_slot_is_given_back() {
    let (_, mut trainer) = trainer("seed-cnn", Scheduling::Static);
    for _ in 0..5 {
        drop((trainer.slot(5).unwrap(), trainer.slot(3).unwrap()));
    }
    let step = feed(&mut trainer, 5, 1).unwrap();
    assert!(trainer.loss(step).unwrap().is_finite());
}

#[test]
fn a_slot_for_another_program_is_refused_and_free_again() {
    let (_, mut trainer) = trainer("seed-cnn", Scheduling::Static);
    for _ in 0..5 {
        let slot = trainer.slot(5).unwrap();
        let wrong = trainer.session().step(ProgramId(1), slot, StepScalars::default());
        check_refused(wrong, "a slot for \"train 3\"");
    }
    let unknown = trainer.session().slot(ProgramId(9)).map(drop);
    check_refused(unknown, "one of 4 programs");
    check_refused(trainer.slot(4).map(drop), "one of [3, 5] samples");
}

#[test]
fn a_slot_of_another_session_is_refused_and_never_used() {
    let (_, mut one) = trainer("seed-cnn", Scheduling::Static);
    let (_, mut other) = trainer("seed-cnn", Scheduling::Static);
    let (mut kept, _second) = (one.slot(5).unwrap(), one.slot(5).unwrap());
    let foreign = other.slot(5).unwrap();
    check_refused(one.step(foreign), "a slot for \"train 5\"");
    check_refused(one.slot(5).map(drop), "all slots handed out");
    fill(&mut kept, 1).unwrap();
    let step = one.step(kept).unwrap();
    assert!(one.loss(step).unwrap().is_finite());
}

#[test]
fn unknown_names_and_steps_are_refused() {
    let (_, mut trainer) = trainer("seed-cnn", Scheduling::Static);
    let mut slot = trainer.slot(5).unwrap();
    check_refused(slot.input("labels").map(drop), "one of [\"input\", \"target\"]");
    fill(&mut slot, 1).unwrap();
    let step = trainer.step(slot).unwrap();
    check_refused(trainer.output(step, "logits"), "one of [\"correct\", \"loss\", \"output\"]");
    check_refused(trainer.loss(StepId(7)), "one of the 1 steps submitted");
    check_refused(trainer.read("0.wait"), "one of 0.weight, 0.bias");
    check_refused(trainer.write("0.bias", &[1.0]), "0.bias: expected [4], found 1 values");
}

#[test]
fn outputs_are_kept_for_two_steps_of_a_program() {
    for scheduling in SCHEDULINGS {
        let (_, mut trainer) = trainer("seed-cnn", scheduling);
        let first = feed(&mut trainer, 5, 0).unwrap();
        let loss = trainer.loss(first).unwrap();
        let second = feed(&mut trainer, 5, 1).unwrap();
        assert_eq!(trainer.loss(first).unwrap(), loss, "one step later");
        // Another program's steps do not count.
        feed(&mut trainer, 3, 1).unwrap();
        feed(&mut trainer, 3, 1).unwrap();
        assert_eq!(trainer.loss(first).unwrap(), loss, "three steps later");
        feed(&mut trainer, 5, 2).unwrap();
        check_refused(trainer.loss(first), "whose outputs are kept");
        assert!(trainer.loss(second).unwrap().is_finite());
    }
}

#[test]
fn reading_waits_for_the_steps_under_way() {
    for scheduling in SCHEDULINGS {
        let (setup, mut trainer) = trainer("projected", scheduling);
        let single = Setup { steps: 1, ..setup.clone() };
        let grain = Grain::for_workers(1);
        let reference: Run = single.at(grain, &engine(Scheduling::Static));
        feed(&mut trainer, 6, 0).unwrap();
        assert!(state(&mut trainer).unwrap() == reference.state, "{scheduling:?}");
    }
}

#[test]
fn a_snapshot_is_read_on_another_thread_while_training_goes_on() {
    for scheduling in SCHEDULINGS {
        let (_, mut trainer) = trainer("projected", scheduling);
        feed(&mut trainer, 6, 0).unwrap();
        let expected = state(&mut trainer).unwrap();
        let snapshot = trainer.snapshot().unwrap();
        check_refused(trainer.snapshot().map(drop), "it is still held");
        let (ready, go) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || -> Vec<(String, Vec<u8>)> {
            let named: Vec<_> =
                snapshot.tensors().map(|(n, t)| (n.to_owned(), t.bytes.to_vec())).collect();
            go.recv().unwrap();
            let again: Vec<_> =
                snapshot.tensors().map(|(n, t)| (n.to_owned(), t.bytes.to_vec())).collect();
            assert!(named == again, "a snapshot does not change");
            again
        });
        for seed in 1..5 {
            feed(&mut trainer, 6, seed).unwrap();
        }
        assert!(state(&mut trainer).unwrap() != expected, "training went on");
        ready.send(()).unwrap();
        assert!(reader.join().unwrap() == expected, "{scheduling:?}");
        trainer.snapshot().unwrap();
    }
}

#[test]
fn a_snapshots_program_is_not_stepped_while_a_snapshot_is_held() {
    let (_, mut trainer) = trainer("seed-cnn", Scheduling::Static);
    let program = trainer.lowered().snapshot;
    let snapshot = trainer.snapshot().unwrap();
    let slot = trainer.session().slot(program).unwrap();
    let stepped = trainer.session().step(program, slot, StepScalars::default());
    check_refused(stepped, "the last snapshot to be dropped first");
    drop(snapshot);
    let slot = trainer.session().slot(program).unwrap();
    trainer.session().step(program, slot, StepScalars::default()).unwrap();
    check_refused(trainer.session().snapshot(ProgramId(0)).map(drop), "without inputs");
}

#[test]
fn a_loss_that_is_not_finite_changes_nothing() {
    // Running statistics with momentum, Adam's and AdamW's states.
    for name in ["projected", "lenet", "dropout"] {
        for scheduling in SCHEDULINGS {
            let (setup, mut trainer) = trainer(name, scheduling);
            let batch = setup.spec.train[0];
            feed(&mut trainer, batch, 0).unwrap();
            let expected = state(&mut trainer).unwrap();
            for bad in [f64::NAN, f64::INFINITY] {
                let mut slot = trainer.slot(batch).unwrap();
                fill(&mut slot, 1).unwrap();
                slot.input("input").unwrap().as_mut_slice::<f64>()[3] = bad;
                let step = trainer.step(slot).unwrap();
                let loss = trainer.loss(step).unwrap();
                assert!(!loss.is_finite(), "{name}: {bad} gives {loss}");
                for ((name, a), (_, b)) in state(&mut trainer).unwrap().iter().zip(&expected) {
                    assert!(a == b, "{name} changed after a loss of {loss}");
                }
            }
            let step = feed(&mut trainer, batch, 2).unwrap();
            assert!(trainer.loss(step).unwrap().is_finite());
            assert!(state(&mut trainer).unwrap() != expected, "{name} goes on learning");
        }
    }
}

#[test]
fn counters_count_every_call() {
    let (_, mut trainer) = trainer("seed-cnn", Scheduling::WorkStealing);
    for seed in 0..3 {
        feed(&mut trainer, 5, seed).unwrap();
    }
    state(&mut trainer).unwrap();
    let counters = trainer.session().counters().codelets();
    let calls = |prefix: &str| -> u64 {
        counters.iter().filter(|c| c.name.starts_with(prefix)).map(|c| c.calls).sum()
    };
    // Two pieces of the batch, three steps.
    assert_eq!(calls("conv2d_relu_max_pool2d."), 6, "{counters:?}");
    assert_eq!(calls("is_finite."), 3, "{counters:?}");
    assert_eq!(calls("clone."), 0, "no snapshot was taken: {counters:?}");
}
