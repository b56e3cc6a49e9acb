//! Programs, plans and policies that would touch what is not theirs are
//! refused, and values are what they say.

use crate::support::feed;
use dahl::exec::{Engine, Session};
use dahl::graph::{Builder, Class, Program, Programs, Store};
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::ops::optim::Sgd;
use dahl::ops::{Meta, Recorder};
use dahl::plan::{Plan, PlannedPrograms};
use dahl::planner::Grain;
use dahl::sched::{Policy, Ready};
use dahl::train::Trainer;
use dahl::units::{Bytes, Nanos, ProgramId, TaskId, WorkerId};
use dahl::{DType, Error, Shape, StepScalars};
use std::sync::Arc;

fn programs(build: impl FnOnce(&mut Builder<'_>)) -> dahl::Result<Programs> {
    let mut store = Store::default();
    let mut b = Builder::new(&mut store);
    build(&mut b);
    let graph = b.finish()?;
    Ok(Programs {
        store,
        programs: vec![Program { name: "p".into(), graph, output_slots: 2, turn: 0 }],
        ..Programs::default()
    })
}

fn trainer(optimizer: Optimizer) -> Trainer {
    let model = Model::sequential("m", &[6], |s| s.linear(4).relu().linear(5));
    let spec = TrainSpec::new(4, DType::F64, optimizer);
    Trainer::new(&model, &spec, Grain::for_workers(1), &Native::default()).unwrap()
}

#[track_caller]
fn check_refused<T>(result: dahl::Result<T>, expected: &str) {
    let error = result.err().expect("a refusal").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_node_that_reads_what_it_writes_is_refused() {
    let sgd = |b: &mut Builder<'_>, twice: bool| {
        let w = b.persistent("w", Meta::new([4], DType::F64), Class::Parameter);
        let g = b.input("g", Meta::new([4], DType::F64));
        let ok = b.ops().constant(Meta::new([], DType::U8), 1.0);
        let t = b.ops().constant(Meta::new([], DType::I64), 1.0);
        let plain = Sgd {
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        };
        if twice {
            b.update(Arc::new(Sgd { momentum: 0.9, ..plain }), &[g, ok, t], &[w, w]);
        } else {
            b.update(Arc::new(plain), &[w, ok, t], &[w]);
        }
    };
    for twice in [false, true] {
        check_refused(programs(|b| sgd(b, twice)), "outputs apart from all other operands");
    }
}

#[test]
fn offsets_that_overflow_or_are_not_aligned_are_refused() {
    let lowered = Model::named("seed-cnn").unwrap();
    let lowered = lowered.lower(&TrainSpec::new(2, DType::F32, Optimizer::sgd(0.1))).unwrap();
    let plan = Grain::for_workers(1).plan(&lowered.programs).unwrap();
    for offset in [usize::MAX - 63, usize::MAX, 2] {
        for s in 0..plan.memory.programs[0].offsets.len() {
            let mut wrong = Plan::clone(&plan);
            wrong.memory.programs[0].offsets[s] = offset;
            assert!(
                PlannedPrograms::new(&lowered.programs, wrong).is_err(),
                "storage {s} at {offset}"
            );
        }
        let mut wrong = Plan::clone(&plan);
        wrong.memory.persistent[0] = offset;
        assert!(
            PlannedPrograms::new(&lowered.programs, wrong).is_err(),
            "persistent value at {offset}"
        );
    }
}

#[test]
fn memory_that_is_not_there_is_an_error_that_names_tensors() {
    let model = Model::named("mlp").unwrap();
    let lowered = model.lower(&TrainSpec::new(1 << 38, DType::F32, Optimizer::sgd(0.1))).unwrap();
    let plan = Grain::for_workers(1).plan(&lowered.programs).unwrap();
    assert!(plan.memory.peak() > Bytes(1 << 48), "no sum wraps: {}", plan.memory.peak());
    let error = Native::default().prepare(&plan).err().expect("an error");
    assert!(matches!(error, Error::Memory { .. }), "{error}");
}

/// Gives a task that nobody declared ready.
struct Wrong {
    ready: Vec<Ready>,
    by: u32,
}

impl Policy for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn ready(&mut self, task: Ready, _: Nanos) {
        self.ready.push(task);
    }

    fn next(&mut self, _: WorkerId, _: Nanos) -> Option<Ready> {
        let ready = self.ready.last().copied()?;
        Some(Ready { task: TaskId(ready.task.0 + self.by), ..ready })
    }
}

#[test]
fn a_policy_that_gives_tasks_that_are_not_ready_is_named() {
    for by in [0, 1, 1000] {
        let model = Model::named("seed-cnn").unwrap();
        let spec = TrainSpec::new(4, DType::F32, Optimizer::sgd(0.1));
        let lowered = model.lower(&spec).unwrap();
        let plan = Grain { gather: dahl::planner::Gather::Off, ..Grain::for_workers(2) };
        let plan = plan.plan(&lowered.programs).unwrap();
        let policy = Box::new(Wrong { ready: Vec::new(), by });
        let session = Native::default().prepare_with(&plan, policy).unwrap();
        let mut trainer = Trainer::with_session(lowered, plan, &spec, Box::new(session)).unwrap();
        let result = feed(&mut trainer, 4, 1).and_then(|step| trainer.loss(step));
        check_refused(result, "policy \"wrong\" gave t");
    }
}

#[test]
fn inputs_persistent_values_and_views_can_be_fetched() {
    let programs = programs(|b| {
        let x = b.input("x", Meta::new([2, 3], DType::F64));
        let w = b.persistent("w", Meta::new([3], DType::F64), Class::Parameter);
        let y = b.ops().relu(x);
        let column = b.ops().select(y, 1, 1);
        let flat = b.ops().reshape(x, Shape::new(&[6]));
        for (name, var) in [("x", x), ("w", w), ("y", y), ("column", column), ("flat", flat)] {
            b.fetch(name, var);
        }
    })
    .unwrap();
    let plan = Grain::for_workers(1).plan(&programs).unwrap();
    let mut session = Native::default().prepare_native(&plan).unwrap();
    let w = programs.store.find("w").unwrap();
    session.write(w, &mut |mut to| to.write_f64([7.0, 8.0, 9.0])).unwrap();
    let mut slot = session.slot(ProgramId(0)).unwrap();
    slot.input("x").unwrap().write_f64([-1.0, 2.0, 3.0, 4.0, -5.0, 6.0]).unwrap();
    let step = session.step(ProgramId(0), slot, StepScalars::default()).unwrap();
    for (name, expected) in [
        ("x", &[-1.0, 2.0, 3.0, 4.0, -5.0, 6.0][..]),
        ("w", &[7.0, 8.0, 9.0]),
        ("y", &[0.0, 2.0, 3.0, 4.0, 0.0, 6.0]),
        ("column", &[2.0, 0.0]),
        ("flat", &[-1.0, 2.0, 3.0, 4.0, -5.0, 6.0]),
    ] {
        session.output(step, name, &mut |t| assert_eq!(t.to_f64(), expected, "{name}")).unwrap();
    }
}

#[test]
fn inputs_of_another_length_and_labels_that_are_no_class_are_refused() {
    let mut trainer = trainer(Optimizer::sgd(0.1));
    let mut slot = trainer.slot(4).unwrap();
    check_refused(
        slot.input("input").unwrap().write_f64([1.0]),
        "24 elements of f64, found only 1",
    );
    check_refused(slot.input("input").unwrap().write_f64([1.0; 25]), "found more than that");
    check_refused(slot.input("target").unwrap().write_f64([0.5; 4]), "found 0.5 at index 0");
    slot.input("target").unwrap().write_f64([0.0, 4.0, 5.0, 0.0]).unwrap();
    check_refused(trainer.step(slot), "target: expected a class below 5, found 5 for sample 2");
}

/// A step whose loss is not finite leaves no trace, not even in Adam's t.
#[test]
fn a_skipped_step_leaves_no_trace() {
    let momentum = match Optimizer::sgd(0.1) {
        Optimizer::Sgd { lr, sgd } => {
            Optimizer::Sgd { lr, sgd: Sgd { momentum: 0.9, dampening: 0.5, ..sgd } }
        }
        other => other,
    };
    for optimizer in [Optimizer::adam(0.1), Optimizer::adamw(0.1), momentum] {
        let (mut plain, mut broken) = (trainer(optimizer), trainer(optimizer));
        let mut slot = broken.slot(4).unwrap();
        slot.input("input").unwrap().write_f64([f64::NAN; 24]).unwrap();
        slot.input("target").unwrap().write_f64([0.0; 4]).unwrap();
        broken.step(slot).unwrap();
        for seed in 0..2 {
            feed(&mut plain, 4, seed).unwrap();
            feed(&mut broken, 4, seed).unwrap();
        }
        assert_eq!(plain.read("0.weight").unwrap(), broken.read("0.weight").unwrap());
        assert_eq!(broken.read("updates").unwrap(), [2.0]);
    }
}

/// What a run needs to go on: its persistent values and the number of steps.
#[test]
fn a_run_goes_on_from_its_values() {
    let (mut whole, mut first) = (trainer(Optimizer::adam(0.1)), trainer(Optimizer::adam(0.1)));
    for seed in 0..6 {
        feed(&mut whole, 4, seed).unwrap();
    }
    for seed in 0..3 {
        feed(&mut first, 4, seed).unwrap();
    }
    let mut second = trainer(Optimizer::adam(0.1));
    let names: Vec<String> =
        first.lowered().programs.store.values.iter().map(|v| v.name.clone()).collect();
    for name in &names {
        let values = first.read(name).unwrap();
        second.write(name, &values).unwrap();
    }
    second.set_steps(first.steps());
    for seed in 3..6 {
        feed(&mut second, 4, seed).unwrap();
    }
    for name in &names {
        assert_eq!(whole.read(name).unwrap(), second.read(name).unwrap(), "{name}");
    }
}

#[test]
fn a_gradient_of_another_shape_is_refused() {
    let result = programs(|b| {
        let x = b.input("x", Meta::new([4, 3], DType::F64));
        let y = b.ops().relu(x);
        let g = b.input("g", Meta::new([2, 3], DType::F64));
        b.backward(&[(y, g)], &[x]);
    });
    check_refused(result, "gradient: expected f64 [4, 3], found f64 [2, 3]");
}

#[test]
fn no_workers_or_pieces_is_an_error() {
    let lowered = Model::named("mlp").unwrap();
    let lowered = lowered.lower(&TrainSpec::new(2, DType::F32, Optimizer::sgd(0.1))).unwrap();
    for (workers, pieces, channels) in [(0, 1, 1), (1, 0, 1), (1, 1, 0)] {
        let grain = Grain { workers, sample: pieces, channel: channels, ..Grain::for_workers(1) };
        check_refused(grain.plan(&lowered.programs), "expected at least 1, found 0");
    }
}

/// Plans take longer than their size: 100,000 layers, or pieces, took minutes.
#[test]
fn what_would_take_too_long_to_plan_is_refused() {
    let deep =
        |layers: usize| Model::sequential("deep", &[2], |s| (0..layers).fold(s, |s, _| s.relu()));
    let spec = |batch| TrainSpec::new(batch, DType::F32, Optimizer::sgd(0.1));
    check_refused(
        deep(10_001).lower(&spec(1)),
        "model \"\": layers: expected at most 10000, found 10001",
    );
    let wide = Model::named("mlp").unwrap().lower(&spec(20_000)).unwrap().programs;
    let grain = |text: &str| Grain::for_workers(1).with(text);
    let expected = "grain: expected a grain that cuts the ops of \"train 20000\" into at most \
                    65536 pieces, found sample=20000, which cuts them into ";
    check_refused(grain("sample=20000").unwrap().plan(&wide), expected);
    check_refused(grain("sample=100000"), "sample: expected at most 65536, found 100000");
    // Of few samples there are few pieces.
    let few = deep(2).lower(&spec(3)).unwrap().programs;
    grain("sample=60000").unwrap().plan(&few).unwrap();
}
