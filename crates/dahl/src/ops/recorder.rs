//! Recording ops: what a model's lowering and a backward rule write to.

use super::{Meta, Op};
use crate::units::ValueId;
use std::sync::Arc;

/// A value while a graph is being recorded.
pub type Var = ValueId;

/// Something that ops are recorded on, the graph under construction.
///
/// Each op adds a method of its own name, so that `g.conv2d(..)` records what
/// `conv2d(..)` computes at once.
pub trait Recorder {
    /// Records `op` on `inputs`; the values that come out are new.
    fn apply(&mut self, op: Arc<dyn Op>, inputs: &[Var]) -> Vec<Var>;

    /// Records `op` on `inputs` with existing values as outputs: for ops that
    /// update in place.
    fn update(&mut self, op: Arc<dyn Op>, inputs: &[Var], outputs: &[Var]);

    /// What is known of a value.
    fn meta(&self, var: Var) -> Meta;
}

impl dyn Recorder + '_ {
    /// Records an op with one output.
    pub fn one(&mut self, op: impl Op, inputs: &[Var]) -> Var {
        self.apply(Arc::new(op), inputs)[0]
    }
}
