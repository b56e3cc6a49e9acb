//! What shards and spaces cost: steps with and without, in turns.
//!
//! `shards_cost MODEL BATCH SHARDS SPACES [PAIRS]` prints the median of the ratios of the times of
//! two steps, with its 95 % interval.

use dahl::DType;
use dahl::graph::Shards;
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::planner::Grain;
use dahl::train::Trainer;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: usize| args.get(i).map_or(Ok(or), |text| text.parse::<usize>());
    let model = Model::named(args.first().map_or("resnet18", String::as_str))?;
    let (batch, shards) = (number(1, 32)?, number(2, 2)?);
    let (spaces, pairs) = (number(3, 1)?, number(4, 40)?);
    let plain = TrainSpec::new(batch, DType::F32, Optimizer::sgd(0.01));
    let sharded = TrainSpec { shards: Shards::even(batch, shards)?, ..plain.clone() };
    let over = Grain { spaces, ..Grain::for_workers(spaces) };
    let mut with = Trainer::new(&model, &sharded, over, &Native::default())?;
    let mut without = Trainer::new(&model, &plain, Grain::for_workers(spaces), &Native::default())?;
    let step = |trainer: &mut Trainer| -> dahl::Result<f64> {
        let mut slot = trainer.slot(batch)?;
        let mut input = slot.input("input")?;
        let elements = input.meta.shape.elements();
        input.write_f64((0..elements).map(|i| (i % 255) as f64 / 255.0 - 0.5))?;
        slot.input("target")?.write_f64((0..batch).map(|i| (i % 10) as f64))?;
        let begin = Instant::now();
        let id = trainer.step(slot)?;
        trainer.loss(id)?;
        Ok(begin.elapsed().as_secs_f64())
    };
    for _ in 0..3 {
        step(&mut with)?;
        step(&mut without)?;
    }
    let (mut ratios, mut times) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let (a, b) = if pair % 2 == 0 {
            let a = step(&mut with)?;
            (a, step(&mut without)?)
        } else {
            let b = step(&mut without)?;
            (step(&mut with)?, b)
        };
        ratios.push(a / b);
        times.push(b);
    }
    ratios.sort_by(f64::total_cmp);
    times.sort_by(f64::total_cmp);
    // The interval of a median by order statistics.
    let half = (0.98 * (pairs as f64).sqrt()).ceil() as usize;
    let at = |i: usize| ratios[i.min(pairs - 1)];
    let (low, median, high) =
        (at((pairs / 2).saturating_sub(half)), at(pairs / 2), at(pairs / 2 + half));
    println!(
        "{} b{batch}, {shards} shards on {spaces} spaces: {median:.4} [{low:.4}, {high:.4}] of {:.1} ms, {pairs} pairs",
        model.name,
        times[pairs / 2] * 1e3
    );
    Ok(())
}
