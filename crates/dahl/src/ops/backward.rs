//! What a backward rule is handed.

use super::Var;

/// A node seen from its backward rule.
#[derive(Debug)]
pub struct Backprop<'a> {
    /// The node's inputs.
    pub inputs: &'a [Var],
    /// The node's outputs.
    pub outputs: &'a [Var],
    /// The gradient of each output, where one arrives.
    pub grads: &'a [Option<Var>],
    /// Which inputs need a gradient.
    pub needs: &'a [bool],
}

impl Backprop<'_> {
    /// The gradient of the first output.
    pub fn grad(&self) -> Var {
        self.grads[0].expect("a gradient of the first output")
    }

    /// `make()` where input `i` needs a gradient.
    pub fn when(&self, i: usize, make: impl FnOnce() -> Var) -> Option<Var> {
        self.needs.get(i).copied().unwrap_or(false).then(make)
    }
}
