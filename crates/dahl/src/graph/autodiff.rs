//! The backward pass: a rewrite that appends the gradients' nodes.

use super::{Builder, Phase};
use crate::ops::{Backprop, Mismatch, Recorder, Var};
use std::collections::BTreeMap;

impl Builder<'_> {
    /// Records the gradients of `wrt`, given the gradients of some values, by
    /// the ops' backward rules. `None` for a value that nothing depends on.
    ///
    /// A value used more than once gets the sum of its gradients, added in the
    /// order in which its users come last to first.
    pub fn backward(&mut self, seeds: &[(Var, Var)], wrt: &[Var]) -> Vec<Option<Var>> {
        if !self.errors().is_empty() {
            return vec![None; wrt.len()];
        }
        self.set_phase(Phase::Backward);
        let mut needed = vec![false; self.graph.values.len()];
        wrt.iter().for_each(|v| needed[v.index()] = true);
        for node in &self.graph.nodes {
            if node.inputs.iter().any(|v| needed[v.index()]) {
                node.outputs.iter().for_each(|v| needed[v.index()] = true);
            }
        }
        let mut grads: BTreeMap<Var, Var> = BTreeMap::new();
        for &(value, grad) in seeds {
            let (expected, found) = (self.meta(value), self.meta(grad));
            if expected != found {
                self.error("backward", Mismatch::new("gradient", expected, found));
                return vec![None; wrt.len()];
            }
            self.accumulate(&mut grads, value, grad);
        }
        for i in (0..self.graph.nodes.len()).rev() {
            let node = self.graph.nodes[i].clone();
            let arriving: Vec<Option<Var>> =
                node.outputs.iter().map(|v| grads.get(v).copied()).collect();
            let needs: Vec<bool> = node.inputs.iter().map(|v| needed[v.index()]).collect();
            if arriving.iter().all(Option::is_none) || !needs.contains(&true) {
                continue;
            }
            let at = Backprop {
                inputs: &node.inputs,
                outputs: &node.outputs,
                grads: &arriving,
                needs: &needs,
            };
            let path = node.path.clone();
            let rule = self.at_path(&path, |b| node.op.backward(b.ops(), &at));
            let Some(gradients) = rule else {
                let missing = Mismatch::new("gradient", "a backward rule", "none");
                self.at_path(&path, |b| b.error(node.op.name(), missing));
                continue;
            };
            for (&input, grad) in node.inputs.iter().zip(gradients) {
                if let Some(grad) = grad.filter(|_| needed[input.index()]) {
                    self.at_path(&path, |b| b.accumulate(&mut grads, input, grad));
                }
            }
        }
        wrt.iter().map(|v| grads.get(v).copied()).collect()
    }

    fn accumulate(&mut self, grads: &mut BTreeMap<Var, Var>, value: Var, grad: Var) {
        let sum = match grads.get(&value) {
            Some(&before) => self.ops().add(before, grad),
            None => grad,
        };
        grads.insert(value, sum);
    }

    fn at_path<R>(&mut self, path: &str, body: impl FnOnce(&mut Self) -> R) -> R {
        self.scope(path, body)
    }
}
