//! The smallest useful training program: a model as text, batches from a rule,
//! evaluation, and the weights in a safetensors file.
//!
//! `cargo run --release -p dahl --example quickstart`

use dahl::DType;
use dahl::file::{StoredTensor, TensorFile};
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::planner::Grain;
use dahl::train::Trainer;
use std::path::Path;

const BATCH: usize = 32;
const STEPS: u64 = 300;

const MODEL: &str = r#"
    name = "rings"
    input = [2]
    layers = [
        { type = "linear", out = 16 },
        { type = "relu" },
        { type = "linear", out = 2 },
    ]
"#;

fn main() -> dahl::Result<()> {
    let path = std::env::temp_dir().join("dahl-quickstart.safetensors");
    let accuracy = train(&path)?;
    println!("{:.1} % right; weights in {}", 100.0 * accuracy, path.display());
    Ok(())
}

/// Trains, writes the weights to `path` and returns the accuracy on samples
/// that were not trained on.
fn train(path: &Path) -> dahl::Result<f64> {
    let model = Model::parse(MODEL)?;
    let spec =
        TrainSpec { eval: vec![BATCH], ..TrainSpec::new(BATCH, DType::F32, Optimizer::adam(0.02)) };
    let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(2), &Native::default())?;
    for batch in 0..STEPS {
        let mut slot = trainer.slot(BATCH)?;
        fill(&mut slot, batch)?;
        let step = trainer.step(slot)?;
        if batch % 50 == 0 {
            println!("step {batch:3}: loss {:.4}", trainer.loss(step)?);
        }
    }
    let (mut correct, batches) = (0.0, 10);
    for batch in 0..batches {
        let mut slot = trainer.eval_slot(BATCH)?;
        fill(&mut slot, STEPS + batch)?;
        let step = trainer.eval(slot)?;
        correct += trainer.scalar(step, "correct")?;
    }
    let mut file = TensorFile::default();
    for (name, tensor) in trainer.snapshot()?.tensors() {
        let bytes = tensor.bytes.to_vec();
        let stored = StoredTensor::from_bytes(tensor.meta.shape, tensor.meta.dtype, bytes);
        file.tensors.insert(name.to_owned(), stored);
    }
    file.write(path)?;
    Ok(correct / (batches * BATCH as u64) as f64)
}

/// Points of a square; the label says whether a point lies in the circle.
fn fill(slot: &mut dahl::exec::Slot, batch: u64) -> dahl::Result<()> {
    let point = |i: u64| [0, 1].map(|axis| noise(2 * (batch * BATCH as u64 + i) + axis));
    let points = (0..BATCH as u64).map(point);
    let labels = points.clone().map(|[x, y]| f64::from(u8::from(x * x + y * y < 0.6)));
    slot.input("input")?.write_f64(points.flatten())?;
    slot.input("target")?.write_f64(labels)?;
    Ok(())
}

/// Number `i` of a sequence that looks uniform in (−1, 1).
fn noise(i: u64) -> f64 {
    let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    2.0 * ((mixed ^ (mixed >> 29)) >> 11) as f64 / (1u64 << 53) as f64 - 1.0
}

#[test]
fn it_learns_the_rule_and_writes_what_it_learned() {
    let path = std::env::temp_dir().join(format!("dahl-quickstart-{}", std::process::id()));
    assert!(train(&path).expect("it trains") > 0.9);
    let weights = TensorFile::read(&path).expect("a file").tensors;
    assert_eq!(weights["0.weight"].shape().axes(), [16, 2]);
    std::fs::remove_file(&path).expect("it was there");
}
