//! Weights that learned one task start another: the layers of a network that
//! knows digits tell odd digits from even ones after a few samples.
//!
//! `cargo run --release -p dahl --example transfer`

use dahl::data::{Dataset, Order, Part, Pixels, Transform, digits};
use dahl::file::TensorFile;
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::train::{Samples, Trainer};
use dahl::{DType, Result, Shape, native::Native, planner::Grain};

const BATCH: usize = 20;

/// Digits with other classes.
struct Parity(Pixels, [String; 2]);

impl Parity {
    fn new(part: Part) -> Result<Self> {
        Ok(Self(digits(part)?, ["even", "odd"].map(str::to_owned)))
    }
}

impl Dataset for Parity {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn classes(&self) -> &[String] {
        &self.1
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
        Ok(self.0.read(index, out)? % 2)
    }
}

/// The same layers for any number of classes.
fn network(classes: usize) -> Result<Trainer> {
    let model = Model::sequential("digits", &[1, 8, 8], |s| {
        let s = s.conv2d_padded(16, 3, 1).named("conv1").relu().max_pool2d(2);
        let s = s.conv2d_padded(32, 3, 1).named("conv2").relu().max_pool2d(2);
        s.flatten().linear(classes).named("head")
    });
    let spec = TrainSpec {
        eval: vec![BATCH],
        ..TrainSpec::new(BATCH, DType::F32, Optimizer::adam(0.003))
    };
    Trainer::new(&model, &spec, Grain::for_workers(2), &Native::default())
}

/// Samples of a set in this order, all in whole batches.
fn samples<'a>(data: &'a dyn Dataset, transform: &'a Transform, order: &'a Order) -> Samples<'a> {
    Samples { data, transform, order, epoch: 0, batch: BATCH, shared: None }
}

/// How well a network does after learning from a hundred samples.
fn after_a_hundred(mut trainer: Trainer) -> Result<f64> {
    let (train, test) = (Parity::new(Part::Train)?, Parity::new(Part::Test)?);
    let transform = Transform::default();
    let order = Order::sequential(100);
    for _ in 0..5 {
        trainer.train_pass(&samples(&train, &transform, &order), &mut |_| ())?;
    }
    let order = Order::sequential(340);
    Ok(trainer.eval_pass(&samples(&test, &transform, &order), &mut |_| ())?.accuracy())
}

#[cfg_attr(test, test)]
fn main() -> Result<()> {
    let mut source = network(10)?;
    let (data, transform) = (digits(Part::Train)?, Transform::default());
    for epoch in 0..2 {
        let order = Order::shuffled(1000, 7, epoch);
        source.train_pass(&samples(&data, &transform, &order), &mut |_| ())?;
    }
    let path = std::env::temp_dir().join(format!("dahl-transfer-{}", std::process::id()));
    source.save_weights(&path)?;

    let mut target = network(2)?;
    for (name, tensor) in &TensorFile::read(&path)?.tensors {
        // The head has other classes and stays as it is.
        if !name.starts_with("head.") {
            target.write(name, &tensor.to_f64_vec())?;
        }
    }
    let _ = std::fs::remove_file(&path);
    let (with, without) = (after_a_hundred(target)?, after_a_hundred(network(2)?)?);
    println!("odd or even: {:.1} % right with the weights", 100.0 * with);
    println!("             {:.1} % right from scratch", 100.0 * without);
    assert!(with > without, "the weights were of no use");
    Ok(())
}
