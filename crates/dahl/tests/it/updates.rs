//! Updates fused with the gradients they follow: no bit changes, memory falls.

use crate::support::{Run, SCHEDULINGS, Setup, engine, feed, fill, state};
use dahl::DType;
use dahl::graph::{Builder, Class, Shards, Store, fuse_updates};
use dahl::model::{Fusion, Model, Optimizer, TrainSpec};
use dahl::native::Scheduling;
use dahl::ops::linear::LinearBackwardWeight;
use dahl::ops::{Meta, Recorder, Var};
use dahl::planner::Grain;
use dahl::train::Trainer;
use std::sync::Arc;

const DTYPES: [DType; 2] = [DType::F32, DType::F64];

fn optimizers() -> [Optimizer; 4] {
    let mut momentum = Optimizer::sgd(0.05);
    if let Optimizer::Sgd { sgd, .. } = &mut momentum {
        (sgd.momentum, sgd.nesterov, sgd.weight_decay) = (0.9, true, 1e-3);
    }
    let mut amsgrad = Optimizer::adamw(0.01);
    if let Optimizer::Adam { adam, .. } = &mut amsgrad {
        adam.amsgrad = true;
    }
    [Optimizer::sgd(0.05), momentum, Optimizer::adam(0.002), amsgrad]
}

/// A convolution whose gradient has one block, and two linear layers.
fn setup(dtype: DType, optimizer: Optimizer) -> Setup {
    let model = Model::sequential("small", &[3, 6, 6], |s| {
        let s = s.conv2d(48, 3).relu().conv2d_padded(80, 3, 1).relu();
        s.flatten().linear(70).relu().linear(5)
    });
    let spec = TrainSpec { seed: 3, ..TrainSpec::new(6, dtype, optimizer) };
    Setup { model, spec, steps: 4 }
}

fn unfused(setup: &Setup) -> Setup {
    let spec = TrainSpec { fusion: Fusion::Off, ..setup.spec.clone() };
    Setup { spec, ..setup.clone() }
}

/// The names of ops that make a gradient of a weight, or update.
fn names(setup: &Setup) -> Vec<String> {
    let programs = setup.lower().programs;
    let nodes = programs.programs[0].graph.nodes.iter();
    let names = nodes.map(|n| n.op.name().to_owned());
    names.filter(|n| n.contains("backward_weight") || n.ends_with("sgd")).collect()
}

#[test]
fn a_gradient_is_fused_with_its_update_where_nothing_else_reads_it() {
    let mut setup = setup(DType::F32, Optimizer::sgd(0.1));
    let fused = [
        "linear_backward_weight_sgd",
        "sum_channels_sgd",
        "linear_backward_weight_sgd",
        "sum_channels_sgd",
        "conv2d_backward_weight_sgd",
        // Small: summed in blocks that workers share, as two biases are.
        "conv2d_backward_weight",
    ];
    assert_eq!(names(&setup), [&fused[..], &["sgd"; 3]].concat());
    setup.spec.clip_grad_norm = Some(1.0);
    assert!(names(&setup).iter().all(|n| !n.ends_with("_sgd")), "{:?}", names(&setup));
}

/// What is left of a gradient, what `between` records after it, and its update;
/// `between` gets the gradient, the parameter and what the gradient reads.
fn check(between: impl Fn(&mut Builder<'_>, Var, Var, Var), expected: &[&str]) {
    let mut store = Store::default();
    let mut b = Builder::new(&mut store);
    let [x, gy] = [[4, 3], [4, 2]].map(|shape| b.input("x", Meta::new(shape, DType::F32)));
    let ok = b.input("ok", Meta::new([], DType::U8));
    let t = b.input("t", Meta::new([], DType::I64));
    let w = b.persistent_named("w", Meta::new([2, 3], DType::F32), Class::Parameter);
    let gradient = b.ops().one(LinearBackwardWeight, &[x, gy]);
    between(&mut b, gradient, w, x);
    let Optimizer::Sgd { sgd, .. } = Optimizer::sgd(0.1) else { unreachable!("sgd is sgd") };
    b.update(Arc::new(sgd), &[gradient, ok, t], &[w]);
    b.rewrite(|graph| fuse_updates(graph, &Shards::default()));
    let graph = b.finish().unwrap();
    let names: Vec<&str> = graph.nodes.iter().map(|n| n.op.name()).collect();
    assert_eq!(names, expected);
}

#[test]
fn a_fused_update_stands_where_nobody_misses_what_was() {
    let fused = "linear_backward_weight_sgd";
    let clone = |b: &mut Builder<'_>, v: Var| {
        let copy = b.ops().clone_of(v);
        b.fetch("copy", copy);
    };
    check(|_, _, _, _| {}, &[fused]);
    // What reads the parameter reads what it was; others come after.
    check(|b, _, w, _| clone(b, w), &["clone", fused]);
    check(|b, _, _, x| clone(b, x), &[fused, "clone"]);
    // Who else needs the gradient needs it stored.
    check(|b, g, _, _| b.fetch("gradient", g), &["linear_backward_weight", "sgd"]);
    check(|b, g, _, _| clone(b, g), &["linear_backward_weight", "clone", "sgd"]);
    // What the gradient reads is written before the parameter may be.
    let overwrite = |b: &mut Builder<'_>, _, w: Var, x: Var| {
        clone(b, w);
        let Optimizer::Sgd { sgd, .. } = Optimizer::sgd(0.1) else { unreachable!("sgd is sgd") };
        let [ok, t] = [DType::U8, DType::I64].map(|dtype| b.input("s", Meta::new([], dtype)));
        let g = b.ops().constant(Meta::new([4, 3], DType::F32), 1.0);
        b.update(Arc::new(sgd), &[g, ok, t], &[x]);
        clone(b, w);
    };
    let apart = ["linear_backward_weight", "clone", "constant", "sgd", "clone", "sgd"];
    check(overwrite, &apart);
}

#[test]
fn fused_updates_have_the_bits_of_updates_apart() {
    for dtype in DTYPES {
        for optimizer in optimizers() {
            let setup = setup(dtype, optimizer);
            let expected = unfused(&setup).reference();
            for (workers, scheduling) in (1..4).zip(SCHEDULINGS) {
                let run = setup.at(Grain::for_workers(workers), &engine(scheduling));
                run.assert_same(&expected, &format!("{dtype} {optimizer:?} {workers}"));
            }
        }
    }
}

#[test]
fn a_run_goes_on_with_the_bits_of_updates_apart() {
    for optimizer in optimizers() {
        let setup = setup(DType::F32, optimizer);
        let expected = unfused(&setup).reference();
        let trainer = |workers: usize| {
            let engine = engine(Scheduling::Static);
            Trainer::new(&setup.model, &setup.spec, Grain::for_workers(workers), &engine).unwrap()
        };
        let (mut first, mut then) = (trainer(1), trainer(3));
        let mut losses = Vec::new();
        let mut step = |trainer: &mut Trainer, seed: u64| {
            let id = feed(trainer, setup.spec.train[0], seed).unwrap();
            losses.push(trainer.loss(id).unwrap().to_bits());
        };
        (0..2).for_each(|seed| step(&mut first, seed));
        let names: Vec<String> =
            first.lowered().programs.store.values.iter().map(|v| v.name.clone()).collect();
        for name in names {
            let values = first.read(&name).unwrap();
            then.write(&name, &values).unwrap();
        }
        then.set_steps(first.steps());
        (2..4).for_each(|seed| step(&mut then, seed));
        let run = Run { losses, state: state(&mut then).unwrap() };
        run.assert_same(&expected, &format!("{optimizer:?}"));
    }
}

#[test]
fn a_loss_that_is_not_finite_updates_nothing() {
    for optimizer in optimizers() {
        let setup = setup(DType::F64, optimizer);
        let grain = Grain::for_workers(2);
        let mut trainer =
            Trainer::new(&setup.model, &setup.spec, grain, &engine(Scheduling::Static)).unwrap();
        feed(&mut trainer, 6, 0).unwrap();
        let expected = state(&mut trainer).unwrap();
        let mut slot = trainer.slot(6).unwrap();
        fill(&mut slot, 1).unwrap();
        slot.input("input").unwrap().as_mut_slice::<f64>()[3] = f64::NAN;
        let step = trainer.step(slot).unwrap();
        assert!(trainer.loss(step).unwrap().is_nan());
        assert!(state(&mut trainer).unwrap() == expected, "{optimizer:?}");
    }
}

#[test]
fn gradients_that_are_never_stored_take_no_memory() {
    // On several workers the gradients of convolutions were used up at once
    // before, by gathering; a linear layer's are smaller now on any number.
    for (name, most) in [("mlp", 3), ("resnet18", 1)] {
        for workers in 1..=most {
            let spec = TrainSpec::new(2, DType::F32, Optimizer::sgd(0.1));
            let fused = Setup { model: Model::named(name).unwrap(), spec, steps: 0 };
            let peak = |setup: &Setup| {
                let plan = Grain::for_workers(workers).plan(&setup.lower().programs).unwrap();
                plan.memory.peak()
            };
            let (fused, unfused) = (peak(&fused), peak(&unfused(&fused)));
            assert!(fused < unfused, "{name}, {workers} workers: {fused} not below {unfused}");
        }
    }
}
