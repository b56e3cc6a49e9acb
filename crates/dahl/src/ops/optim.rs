//! Updates of parameters, as `torch.optim` defines them.

use super::{Access, Cut, Meta, Metas, Mismatch, Op};
use crate::units::Flops;
use dahl_kernels::optim as kernels;
pub use dahl_kernels::optim::{Adam, Decay, Sgd};
use dahl_kernels::{Call, DType, Piece, Region, Shape};

/// t += 1 where ok is not 0: the number of updates that were made.
#[derive(Clone, Copy, Debug)]
pub struct CountUpdate;

impl Op for CountUpdate {
    fn name(&self) -> &'static str {
        "count_update"
    }

    fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta::new([], DType::I64)])
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out, piece.out]
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(1)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::count_update(call);
    }
}

/// The gradient's box, the scalars ok, t and factor, and the outputs' boxes.
fn regions(metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
    let mut regions = vec![piece.out];
    regions.resize(metas.inputs.len(), Region::full(&Shape::scalar()));
    regions.resize(metas.inputs.len() + metas.outputs.len(), piece.out);
    regions
}

/// p −= η · direction. Inputs gradient, ok, the number of this update and,
/// where gradients are clipped, the factor; outputs p and, with momentum, the direction.
impl Op for Sgd {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = Vec::new();
        for (name, x) in [
            ("momentum", self.momentum),
            ("dampening", self.dampening),
            ("weight_decay", self.weight_decay),
        ] {
            if x != 0.0 {
                attributes.push((name, x.to_string()));
            }
        }
        for (name, on) in [("nesterov", self.nesterov), ("maximize", self.maximize)] {
            if on {
                attributes.push((name, on.to_string()));
            }
        }
        attributes
    }

    fn outputs(&self) -> usize {
        1 + usize::from(self.momentum != 0.0)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[0]; self.outputs()])
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn updates_each(&self) -> bool {
        true
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        regions(metas, piece)
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(8 * piece.out.elements() as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::sgd(self, call);
    }
}

/// p −= η · m̂ / (√v̂ + ε). Inputs as for [`Sgd`]; outputs p, mean, square and,
/// with amsgrad, the largest square.
impl Op for Adam {
    fn name(&self) -> &'static str {
        match self.decay {
            Decay::Gradient => "adam",
            Decay::Parameter => "adamw",
        }
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = vec![
            ("betas", format!("{:?}", self.betas)),
            ("eps", self.eps.to_string()),
            ("weight_decay", self.weight_decay.to_string()),
        ];
        for (name, on) in [("amsgrad", self.amsgrad), ("maximize", self.maximize)] {
            if on {
                attributes.push((name, on.to_string()));
            }
        }
        attributes
    }

    fn outputs(&self) -> usize {
        3 + usize::from(self.amsgrad)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[0]; self.outputs()])
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn updates_each(&self) -> bool {
        true
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        regions(metas, piece)
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(14 * piece.out.elements() as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::adam(self, call);
    }
}
