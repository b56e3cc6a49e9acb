//! Stopping a training and going on with it in another process: parameters,
//! running statistics and the optimizer's state go to a file, and the run that
//! goes on gives the same losses to the last bit.
//!
//! `cargo run --release -p dahl --example resume`

use dahl::data::{Order, Part, Transform, digits};
use dahl::file::{StoredTensor, TensorFile};
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::train::{Samples, Trainer};
use dahl::{DType, Result, native::Native, planner::Grain};
use std::path::Path;

const BATCH: usize = 32;
const SAMPLES: usize = 10 * BATCH;
const SEED: u64 = 7;

fn new_trainer(workers: usize) -> Result<Trainer> {
    let model = Model::named("digits-cnn")?;
    let spec =
        TrainSpec { seed: SEED, ..TrainSpec::new(BATCH, DType::F32, Optimizer::adam(0.003)) };
    Trainer::new(&model, &spec, Grain::for_workers(workers), &Native::default())
}

/// Trains epochs by number and returns their losses. The order of the samples
/// depends on seed and epoch alone.
fn train(trainer: &mut Trainer, epochs: std::ops::Range<u64>) -> Result<Vec<f64>> {
    let (data, transform) = (digits(Part::Train)?, Transform::default());
    let mut losses = Vec::new();
    for epoch in epochs {
        let order = Order::shuffled(SAMPLES, SEED, epoch);
        let samples = Samples {
            data: &data,
            transform: &transform,
            order: &order,
            epoch,
            batch: BATCH,
            shared: None,
        };
        let pass = trainer.train_pass(&samples, &mut |_| ())?;
        println!("epoch {}: loss {:.6}", epoch + 1, pass.loss());
        losses.push(pass.loss());
    }
    Ok(losses)
}

/// Everything that outlives a step.
fn save(trainer: &mut Trainer, path: &Path) -> Result<()> {
    let mut file = TensorFile::default();
    for (name, tensor) in trainer.snapshot()?.tensors() {
        let bytes = tensor.bytes.to_vec();
        let stored = StoredTensor::from_bytes(tensor.meta.shape, tensor.meta.dtype, bytes);
        file.tensors.insert(name.to_owned(), stored);
    }
    file.metadata.insert("steps".to_owned(), trainer.steps().to_string());
    file.write(path)
}

fn restore(trainer: &mut Trainer, path: &Path) -> Result<()> {
    let file = TensorFile::read(path)?;
    for (name, tensor) in &file.tensors {
        trainer.write(name, &tensor.to_f64_vec())?;
    }
    let steps = file.metadata.get("steps").and_then(|text| text.parse().ok());
    let missing = || dahl::Error::data(path, "metadata", "the number of steps", "none");
    trainer.set_steps(steps.ok_or_else(missing)?);
    Ok(())
}

#[cfg_attr(test, test)]
fn main() -> Result<()> {
    let path = std::env::temp_dir().join(format!("dahl-resume-{}", std::process::id()));
    println!("in one go:");
    let whole = train(&mut new_trainer(1)?, 0..3)?;

    println!("stopped after the first epoch:");
    let mut before = new_trainer(2)?;
    train(&mut before, 0..1)?;
    save(&mut before, &path)?;
    drop(before);

    println!("and resumed:");
    let mut after = new_trainer(2)?;
    restore(&mut after, &path)?;
    let rest = train(&mut after, 1..3)?;
    let _ = std::fs::remove_file(&path);
    assert_eq!(rest, whole[1..], "a resumed run gives other losses");
    Ok(())
}
