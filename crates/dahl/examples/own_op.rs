//! An op from outside of the crate, with a parameter, trained on two workers.
//!
//! `cargo run --release -p dahl --example own_op`

use dahl::model::{Init, Loss, Lowering, Model, Module, Optimizer, TrainSpec};
use dahl::ops::{Backprop, Call, Cut, Meta, Metas, Mismatch, Op, Piece, Recorder, Var};
use dahl::{DType, Region, Shape, native::Native, planner::Grain, train::Trainer, units::Flops};

/// x is \[N, C\], a a scalar that is learned.
#[derive(Debug)]
enum Bend {
    /// y = x + a x². Inputs x, a.
    Forward,
    /// The gradient of x, g (1 + 2 a x). Inputs x, a, and the gradient g of y.
    Backward,
}

impl Op for Bend {
    fn name(&self) -> &'static str {
        if matches!(self, Self::Forward) { "bend" } else { "bend_backward" }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let x = inputs[0];
        if x.shape.rank() != 2 || x.dtype != DType::F64 {
            return Err(Mismatch::new("input", "f64 [N, C]", x).guess(x));
        }
        Ok(vec![x])
    }

    fn cuts(&self, metas: Metas<'_>) -> Vec<Cut> {
        Cut::everywhere(metas)
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let operands = 0..metas.inputs.len() + 1;
        operands.map(|i| if i == 1 { Region::new(&[]) } else { piece.out }).collect()
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(4 * piece.out.elements() as u64)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let (x, a, grad) = (at.inputs[0], at.inputs[1], at.grad());
        let of_x = at.when(0, || g.one(Self::Backward, &[x, a, grad]));
        let of_a = at.when(1, || {
            let square = g.mul(x, x);
            let terms = g.mul(square, grad);
            g.sum_all(terms)
        });
        Some(vec![of_x, of_a])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        let piece = call.piece.out;
        let (inputs, mut outputs, _) = call.split();
        let (x, a) = (inputs.get::<f64>(0), inputs.get::<f64>(1).at([]));
        let mut out = outputs.take::<f64>();
        match self {
            Self::Forward => out.zip(&piece, [&x], |[x], y| {
                y.iter_mut().zip(x).for_each(|(y, x)| *y = x + a * x * x);
            }),
            Self::Backward => out.zip(&piece, [&x, &inputs.get(2)], |[x, g], of_x| {
                let terms = x.iter().zip(g).map(|(x, g)| g * (1.0 + 2.0 * a * x));
                of_x.iter_mut().zip(terms).for_each(|(of_x, term)| *of_x = term);
            }),
        }
    }
}

impl Module for Bend {
    fn lower(&self, x: Var, l: &mut Lowering<'_, '_>) -> Var {
        let a = l.parameter("a", Shape::new(&[]), Init::Constant(0.0));
        l.ops().one(Self::Forward, &[x, a])
    }
}

/// Learns y = x + 3 x²: on two workers, half of the batch on each.
#[cfg_attr(test, test)]
fn main() -> dahl::Result<()> {
    let model = Model::sequential("bent", &[1], |s| s.linear(1).custom(Bend::Forward));
    let mut spec = TrainSpec::new(64, DType::F64, Optimizer::adam(0.05));
    spec.loss = Loss::Mse;
    let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(2), &Native::default())?;
    for step in 0..=3000 {
        let mut slot = trainer.slot(64)?;
        let x = (0..64).map(|i| f64::from(i - 32) / 32.0);
        slot.input("input")?.write_f64(x.clone())?;
        slot.input("target")?.write_f64(x.map(|x| x + 3.0 * x * x))?;
        trainer.step(slot)?;
        if step % 500 == 0 {
            println!("step {step}: loss {:.6}", trainer.last_loss()?);
        }
    }
    println!("a = {:.3}, weight = {:.3}", trainer.read("1.a")?[0], trainer.read("0.weight")?[0]);
    assert!(trainer.last_loss()? < 1e-3, "it did not learn");
    Ok(())
}
