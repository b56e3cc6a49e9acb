//! A dataset of one's own: it says how many samples there are, what shape they
//! have, what their classes are called, and writes any of them into a buffer.
//!
//! `cargo run --release -p dahl --example own_dataset`

use dahl::data::{Dataset, Normalise, Order, Transform};
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::train::{Samples, Trainer};
use dahl::{DType, Result, Shape, native::Native, planner::Grain};

const SIZE: usize = 12;

/// Lines on noise: across, down or slanting. A set on disk would open its files
/// in `read`, which loader threads call while the network computes.
struct Lines {
    classes: [String; 3],
    first: usize,
    len: usize,
}

impl Lines {
    fn new(samples: std::ops::Range<usize>) -> Self {
        let classes = ["across", "down", "slanting"].map(str::to_owned);
        Self { classes, first: samples.start, len: samples.len() }
    }
}

impl Dataset for Lines {
    fn len(&self) -> usize {
        self.len
    }

    fn shape(&self) -> Shape {
        Shape::new(&[1, SIZE, SIZE])
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
        let sample = self.first + index;
        let (label, place) = (sample % 3, noise(sample, 0) * SIZE as f32);
        for (i, x) in out.iter_mut().enumerate() {
            let (row, column) = (i / SIZE, i % SIZE);
            let on = match label {
                0 => row == place as usize,
                1 => column == place as usize,
                _ => (row + place as usize) % SIZE == column,
            };
            *x = 0.4 * noise(sample, i + 1) + if on { 0.6 } else { 0.0 };
        }
        Ok(label)
    }

    fn name(&self) -> String {
        "lines".to_owned()
    }
}

/// A number that looks uniform in [0, 1).
fn noise(sample: usize, i: usize) -> f32 {
    let mixed = ((sample * 1000 + i + 1) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 29)) >> 40) as f32 / (1u64 << 24) as f32
}

#[cfg_attr(test, test)]
fn main() -> Result<()> {
    let (train, test) = (Lines::new(0..600), Lines::new(600..750));
    let transform = Transform { normalise: Some(Normalise::measure(&train, 600)?), augment: None };
    let model = Model::sequential("lines", &[1, SIZE, SIZE], |s| {
        s.conv2d_padded(8, 3, 1).relu().max_pool2d(2).flatten().linear(3)
    });
    let batch = 50;
    let spec =
        TrainSpec { eval: vec![batch], ..TrainSpec::new(batch, DType::F32, Optimizer::adam(0.01)) };
    let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(2), &Native::default())?;
    for epoch in 0..4 {
        let order = Order::shuffled(train.len(), 7, epoch);
        let samples = Samples {
            data: &train,
            transform: &transform,
            order: &order,
            epoch,
            batch,
            shared: None,
        };
        let pass = trainer.train_pass(&samples, &mut |_| ())?;
        println!("epoch {}: loss {:.4}", epoch + 1, pass.loss());
    }
    let order = Order::sequential(test.len());
    let samples = Samples {
        data: &test,
        transform: &transform,
        order: &order,
        epoch: 0,
        batch,
        shared: None,
    };
    let (pass, confusion) = trainer.confusion_pass(&samples)?;
    println!("{confusion}{:.1} % right", 100.0 * pass.accuracy());
    assert!(pass.accuracy() > 0.9, "it did not learn");
    Ok(())
}
