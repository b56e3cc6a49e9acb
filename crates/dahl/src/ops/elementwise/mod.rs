//! Element-wise ops: a table of functions, one rule for all.

mod eager;

pub use eager::*;

use super::{Access, Backprop, Meta, Metas, Mismatch, Op, Recorder, Var, expect_floats};
use crate::units::Flops;
use dahl_kernels::elementwise as kernels;
pub use dahl_kernels::elementwise::{Binary, Dropout, Unary};
use dahl_kernels::{Call, Piece};

fn unary_name(f: Unary) -> &'static str {
    match f {
        Unary::Copy => "copy",
        Unary::Fill(_) => "fill",
        Unary::Neg => "neg",
        Unary::Exp => "exp",
        Unary::Log => "log",
        Unary::Sqrt => "sqrt",
        Unary::Round => "round",
        Unary::Power(_) => "power",
        Unary::Clip(..) => "clip",
        Unary::AddScalar(_) => "add_scalar",
        Unary::SubScalar(_) => "sub_scalar",
        Unary::Scale(_) => "scale",
        Unary::DivScalar(_) => "div_scalar",
        Unary::Relu => "relu",
        Unary::LeakyRelu(_) => "leaky_relu",
        Unary::Sigmoid => "sigmoid",
        Unary::Tanh => "tanh",
        Unary::Gelu => "gelu",
    }
}

fn unary_attributes(f: Unary) -> Vec<(&'static str, String)> {
    match f {
        Unary::Fill(a)
        | Unary::AddScalar(a)
        | Unary::SubScalar(a)
        | Unary::Scale(a)
        | Unary::DivScalar(a) => vec![("value", a.to_string())],
        Unary::Power(p) => vec![("exponent", p.to_string())],
        Unary::LeakyRelu(slope) => vec![("slope", slope.to_string())],
        Unary::Clip(low, high) => vec![("low", low.to_string()), ("high", high.to_string())],
        _ => Vec::new(),
    }
}

/// y = f(x) for every element.
impl Op for Unary {
    fn name(&self) -> &'static str {
        unary_name(*self)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        unary_attributes(*self)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_floats(inputs)?;
        Ok(vec![inputs[0]])
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let kept = if self.keeps_output() { at.outputs[0] } else { at.inputs[0] };
        Some(vec![at.when(0, || g.one(UnaryBackward(*self), &[kept, at.grad()]))])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::unary(*self, call);
    }
}

/// f'(x) · g'. Inputs what the function keeps (its input or its output) and g'.
#[derive(Clone, Copy, Debug)]
pub struct UnaryBackward(pub Unary);

impl Op for UnaryBackward {
    fn name(&self) -> &'static str {
        match self.0 {
            Unary::Relu => "relu_backward",
            Unary::LeakyRelu(_) => "leaky_relu_backward",
            Unary::Sigmoid => "sigmoid_backward",
            Unary::Tanh => "tanh_backward",
            Unary::Gelu => "gelu_backward",
            _ => "unary_backward",
        }
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = vec![("of", unary_name(self.0).to_owned())];
        attributes.extend(unary_attributes(self.0));
        attributes
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[1]])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::unary_backward(self.0, call);
    }
}

/// z = f(x, y) for every pair of elements; the shapes are equal.
impl Op for Binary {
    fn name(&self) -> &'static str {
        match self {
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::Div => "div",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_floats(inputs)?;
        if inputs[0] != inputs[1] {
            let expected = format!("two tensors of one shape, the first is {}", inputs[0]);
            return Err(Mismatch::new("inputs", expected, inputs[1]));
        }
        Ok(vec![inputs[0]])
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let (x, y, grad) = (at.inputs[0], at.inputs[1], at.grad());
        let left = at.when(0, || match self {
            Binary::Add | Binary::Sub => grad,
            Binary::Mul => g.mul(grad, y),
            Binary::Div => g.div(grad, y),
        });
        let right = at.when(1, || match self {
            Binary::Add => grad,
            Binary::Sub => g.unary(Unary::Neg, grad),
            Binary::Mul => g.mul(grad, x),
            Binary::Div => {
                // −g x / y² = −(g / y) (x / y).
                let quotient = g.div(grad, y);
                let product = g.mul(quotient, at.outputs[0]);
                g.unary(Unary::Neg, product)
            }
        });
        Some(vec![left, right])
    }

    fn commutes(&self) -> bool {
        matches!(self, Binary::Add | Binary::Mul)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::binary(*self, call);
    }
}

/// y = x / (1 − p) where the element's random number is at least p, else 0.
///
/// The mask is a function of seed, stream, step and index, so that no grain
/// changes it and the gradient finds it again.
impl Op for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let first = (self.first > 0).then(|| ("first", self.first.to_string()));
        let all = [
            ("p", self.p.to_string()),
            ("seed", self.seed.to_string()),
            ("stream", self.stream.to_string()),
        ];
        all.into_iter().chain(first).collect()
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_floats(inputs)?;
        if !(0.0..=1.0).contains(&self.p) {
            return Err(Mismatch::new("p", "a probability", self.p).guess(inputs[0]));
        }
        Ok(vec![inputs[0]])
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        // Ten rounds of the generator.
        Flops(40 * piece.out.elements() as u64)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        Some(vec![at.when(0, || g.one(*self, &[at.grad()]))])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::dropout(self, call);
    }
}

/// An element-wise function in place, for the eager mode.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InPlace {
    /// x = f(x).
    Unary(Unary),
    /// x = f(x, y).
    Binary(Binary),
}

impl Op for InPlace {
    fn name(&self) -> &'static str {
        "in_place"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(inputs.first().copied().into_iter().collect())
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        match self {
            InPlace::Unary(f) => kernels::unary_in_place(*f, call),
            InPlace::Binary(f) => kernels::binary_in_place(*f, call),
        }
    }
}

/// A dropout in place, for the eager mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DropoutInPlace(pub(crate) Dropout);

impl Op for DropoutInPlace {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        self.0.infer(inputs)
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        self.0.flops(metas, piece)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::dropout_in_place(&self.0, call);
    }
}

impl dyn Recorder + '_ {
    /// Records f(x) for every element.
    pub fn unary(&mut self, f: Unary, x: Var) -> Var {
        self.one(f, &[x])
    }

    /// Records the gradient of a relu from its output.
    pub fn relu_backward(&mut self, y: Var, grad: Var) -> Var {
        self.one(UnaryBackward(Unary::Relu), &[y, grad])
    }

    /// Records a dropout.
    pub fn dropout(&mut self, x: Var, dropout: Dropout) -> Var {
        self.one(dropout, &[x])
    }
}
