//! The outputs of a network for each sample.

use super::pass::Use;
use super::{Pass, Samples, Trainer};
use crate::error::Result;
use std::ops::ControlFlow;

impl Trainer {
    /// Evaluates all samples and shows the output of each, its logits, with the
    /// sample's index in the dataset; parameters stay as they are.
    pub fn output_pass(
        &mut self,
        samples: &Samples<'_>,
        each: &mut dyn FnMut(usize, &[f64]) -> Result<()>,
    ) -> Result<Pass> {
        self.output_pass_while(samples, each, &mut || ControlFlow::Continue(()))
    }

    /// The same, until `watch` breaks, which is called after every step.
    pub(super) fn output_pass_while(
        &mut self,
        samples: &Samples<'_>,
        each: &mut dyn FnMut(usize, &[f64]) -> Result<()>,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Pass> {
        let mut batches = samples.order.batches(samples.batch);
        let mut show = |trainer: &mut Trainer, _: &Pass| {
            // A batch a step, in the order in which the pass takes them.
            if let (Some(batch), Some(step)) = (batches.next(), trainer.evaluated) {
                let outputs = trainer.output(step, "output")?;
                let rows = outputs.chunks_exact((outputs.len() / batch.len()).max(1));
                batch.iter().zip(rows).try_for_each(|(&index, row)| each(index, row))?;
            }
            Ok(watch())
        };
        self.pass(samples, Use::Evaluate, Pass::default(), &mut show)
    }
}
