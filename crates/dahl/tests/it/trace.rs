//! Traces tell what happened, and counters agree with them.

use crate::support::feed;
use dahl::DType;
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::native::{Native, Scheduling, TraceLimit};
use dahl::planner::Grain;
use dahl::trace::{Event, Trace};
use dahl::train::Trainer;
use std::collections::BTreeMap;
use std::path::Path;

const STEPS: u64 = 3;

fn traced(scheduling: Scheduling) -> (Trainer, Trace) {
    let spec = TrainSpec::new(4, DType::F32, Optimizer::sgd(0.1));
    let engine = Native { scheduling, record: true, ..Native::default() };
    let model = Model::named("seed-cnn").unwrap();
    let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(2), &engine).unwrap();
    for seed in 0..STEPS {
        feed(&mut trainer, 4, seed).unwrap();
    }
    let trace = trainer.session().take_trace();
    (trainer, trace)
}

fn check(scheduling: Scheduling, name: &str) {
    let (mut trainer, trace) = traced(scheduling);
    assert_eq!((trace.header.scheduling.as_str(), trace.header.workers), (name, 2));
    let graphs = trainer.plan().graphs();
    let expected: usize = graphs[0].tasks.iter().map(|t| t.calls().len()).sum();

    // Every call of every task once a step, and nothing at the same time on
    // one worker.
    let mut calls: BTreeMap<(u64, u32), usize> = BTreeMap::new();
    let mut busy: BTreeMap<u32, u64> = BTreeMap::new();
    let mut by_codelet: BTreeMap<u32, u64> = BTreeMap::new();
    let mut submitted = 0;
    for event in &trace.events {
        match *event {
            Event::Submit { step, .. } => {
                assert_eq!(step, submitted);
                submitted += 1;
            }
            Event::Call { step, task, codelet, worker, from, to, .. } => {
                *calls.entry((step, task)).or_default() += 1;
                *by_codelet.entry(codelet).or_default() += 1;
                let last = busy.entry(worker).or_default();
                assert!(*last <= from && from <= to, "{event:?} begins before {last}");
                *last = to;
            }
            Event::Wait { worker, from, to, .. } => {
                let last = busy.entry(worker).or_default();
                assert!(*last <= from && from <= to, "{event:?} begins before {last}");
                *last = to;
            }
            Event::Preempt { from, to, .. } => assert!(from < to),
            Event::Move { .. } => panic!("{event:?} in a single memory"),
            Event::Replan { .. } => panic!("{event:?} though nothing was to adapt"),
        }
    }
    assert_eq!(submitted, STEPS);
    for step in 0..STEPS {
        let found: usize = calls.iter().filter(|((s, _), _)| *s == step).map(|(_, n)| n).sum();
        assert_eq!(found, expected, "calls of step {step}");
    }
    for (codelet, count) in trainer.session().counters().codelets().iter().enumerate() {
        let traced = by_codelet.get(&(codelet as u32)).copied().unwrap_or(0);
        assert_eq!(count.calls, traced, "{}", count.name);
        assert_eq!(count.name, trace.header.codelets[codelet]);
    }
    assert_eq!(Trace::parse(&trace.to_text(), Path::new("x.trace")).unwrap(), trace);
    assert!(trainer.session().take_trace().events.is_empty(), "a trace is taken once");
}

#[test]
fn a_limit_ends_recording_with_a_whole_step() {
    let spec = TrainSpec::new(4, DType::F32, Optimizer::sgd(0.1));
    let limit = TraceLimit { from_step: 1, events: 1 };
    let engine = Native { record: true, limit, ..Native::default() };
    let model = Model::named("seed-cnn").unwrap();
    let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(2), &engine).unwrap();
    for seed in 0..STEPS {
        feed(&mut trainer, 4, seed).unwrap();
    }
    let trace = trainer.session().take_trace();
    let expected: usize = trace.header.programs[0].work.iter().map(|t| t.calls.len()).sum();
    let steps = trace.events.iter().filter_map(|event| match event {
        Event::Call { step, .. } => Some(*step),
        _ => None,
    });
    assert_eq!(steps.collect::<Vec<_>>(), vec![1; expected], "one step, and all of it");
}

#[test]
fn counters_of_shapes_say_what_those_of_codelets_say() {
    let (mut trainer, trace) = traced(Scheduling::Static);
    let counters = trainer.session().counters();
    let shapes = counters.shapes();
    assert_eq!(shapes.len(), trace.header.cells.len());
    for count in counters.codelets() {
        let of = || shapes.iter().filter(|shape| shape.codelet == count.name);
        assert_eq!(of().map(|shape| shape.calls).sum::<u64>(), count.calls, "{}", count.name);
        for shape in of() {
            let counted: u64 = shape.times.buckets.iter().map(|b| b.2).sum();
            assert_eq!(counted, shape.calls, "{} {}", shape.codelet, shape.shape);
        }
    }
    let activity = counters.activity();
    assert_eq!(activity.workers.len(), 2);
    for worker in &activity.workers {
        assert!(worker.busy > 0 && worker.busy <= activity.elapsed, "{activity:?}");
    }
}

#[test]
fn every_call_is_recorded_once_in_static_replay() {
    check(Scheduling::Static, "static");
}

#[test]
fn every_call_is_recorded_once_under_policies() {
    check(Scheduling::FirstCome, "first-come");
    check(Scheduling::WorkStealing, "work-stealing");
}
