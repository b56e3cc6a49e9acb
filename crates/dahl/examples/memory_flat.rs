//! Trains `seed-cnn` and `lenet` for 5,000 steps and prints the resident memory
//! on the way, beside the plan's peak.
//!
//! ```text
//! cargo run --release -p dahl --example memory_flat
//! ```

use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::native::{Native, resident_bytes};
use dahl::planner::Grain;
use dahl::train::Trainer;
use dahl::units::Bytes;
use dahl::{DType, Error};

const BATCH: usize = 32;
const STEPS: [u64; 3] = [50, 1_000, 5_000];

fn main() -> Result<(), Error> {
    println!("{:<9} {:>12} {:>7} {:>12} {:>8}", "model", "planned peak", "step", "resident", "");
    let mut grew = Vec::new();
    // The first reading pages in its own code.
    resident_bytes();
    for name in ["seed-cnn", "lenet"] {
        let model = Model::named(name)?;
        let spec = TrainSpec::new(BATCH, DType::F32, Optimizer::sgd(0.01));
        let engine = Native::default();
        let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(2), &engine)?;
        let peak = trainer.plan().memory.peak();
        let mut first = None;
        for until in STEPS {
            while trainer.steps() < until {
                step(&mut trainer)?;
            }
            trainer.last_loss()?;
            let Some(resident) = resident_bytes() else {
                println!("{name:<9} {peak:>12} {until:>7} {:>12}", "not known");
                continue;
            };
            let first = *first.get_or_insert(resident);
            let change = 100.0 * (resident as f64 / first as f64 - 1.0);
            println!("{name:<9} {peak:>12} {until:>7} {:>12} {change:>+7.2}%", Bytes(resident));
            if change > 1.0 {
                grew.push(format!("{name} after {until} steps"));
            }
        }
    }
    if grew.is_empty() {
        return Ok(());
    }
    Err(Error::Unsupported { what: format!("memory that grows: {}", grew.join(", ")) })
}

/// One step on numbers that change from step to step.
fn step(trainer: &mut Trainer) -> Result<(), Error> {
    let seed = trainer.steps();
    let mut slot = trainer.slot(BATCH)?;
    let wave = (0..).map(|i| f64::from((i * 31 + seed as i32) % 97) / 97.0);
    slot.input("input")?.write_f64(wave.take(BATCH * 28 * 28))?;
    slot.input("target")?.write_f64((seed..).map(|i| (i % 10) as f64).take(BATCH))?;
    trainer.step(slot)?;
    Ok(())
}
