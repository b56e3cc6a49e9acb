//! Copies of any element type, and constants.

use super::{Access, Meta, Metas, Mismatch, Op, Recorder, Var};
use crate::units::Flops;
use dahl_kernels::copy as kernels;
use dahl_kernels::{Call, Piece, Region};

/// y = x, whatever the elements are.
#[derive(Clone, Copy, Debug)]
pub struct CloneAny;

impl Op for CloneAny {
    fn name(&self) -> &'static str {
        "clone"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[0]])
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(0)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::clone(call);
    }
}

/// What was there becomes a copy of x: for values that outlive the step.
#[derive(Clone, Copy, Debug)]
pub struct Assign;

impl Op for Assign {
    fn name(&self) -> &'static str {
        "assign"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![inputs[0]])
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(0)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::clone(call);
    }
}

/// The same value in every element; no inputs.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Shape and element type.
    pub meta: Meta,
    /// The value.
    pub value: f64,
}

impl Op for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        vec![("value", self.value.to_string())]
    }

    fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![self.meta])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out]
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(0)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::constant(self.value, call);
    }
}

impl dyn Recorder + '_ {
    /// Records a copy.
    pub fn clone_of(&mut self, x: Var) -> Var {
        self.one(CloneAny, &[x])
    }

    /// Records a tensor with one value in every element.
    pub fn constant(&mut self, meta: Meta, value: f64) -> Var {
        self.one(Constant { meta, value }, &[])
    }
}
