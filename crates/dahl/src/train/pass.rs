//! Passes over a dataset: a loader thread fills slots while steps run.

use super::Trainer;
use crate::data::{Dataset, Order, Transform, Visit};
use crate::error::{Error, Result};
use crate::exec::{Slot, StepId};
use dahl_kernels::DType;
use std::sync::mpsc;

/// What a pass over samples gave so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pass {
    /// Samples that have been through.
    pub samples: usize,
    /// How many of them were right.
    pub correct: u64,
    /// The sum of their losses: means of batches, each weighted by its samples.
    pub total_loss: f64,
}

impl Pass {
    /// The mean loss.
    pub fn loss(&self) -> f64 {
        self.total_loss / self.samples.max(1) as f64
    }

    /// The part that was right.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.samples.max(1) as f64
    }
}

/// Which samples a pass visits, and how they are read.
pub struct Samples<'a> {
    /// The samples.
    pub data: &'a dyn Dataset,
    /// What is done to each.
    pub transform: &'a Transform,
    /// In which order they are visited.
    pub order: &'a Order,
    /// How often all samples were seen before.
    pub epoch: u64,
    /// Samples a step; the last step may have fewer.
    pub batch: usize,
}

impl Trainer {
    /// Trains on all samples once. `progress` is told after every step.
    ///
    /// A step whose loss is not finite ends the pass with
    /// [`Error::NotFinite`]; nothing was learned from it.
    pub fn train_pass(
        &mut self,
        samples: &Samples<'_>,
        progress: &mut dyn FnMut(&Pass),
    ) -> Result<Pass> {
        self.pass(samples, &mut |_, _, pass| told(progress, pass), Self::slot, Self::step)
    }

    /// Evaluates all samples; parameters stay as they are.
    pub fn eval_pass(
        &mut self,
        samples: &Samples<'_>,
        progress: &mut dyn FnMut(&Pass),
    ) -> Result<Pass> {
        self.pass(samples, &mut |_, _, pass| told(progress, pass), Self::eval_slot, Self::eval)
    }

    /// Evaluates all samples and shows the output of each, its logits, with the
    /// sample's index in the dataset; parameters stay as they are.
    pub fn output_pass(
        &mut self,
        samples: &Samples<'_>,
        each: &mut dyn FnMut(usize, &[f64]) -> Result<()>,
    ) -> Result<Pass> {
        let mut show = |trainer: &mut Self, (step, batch): Done<'_>, _: &Pass| {
            let outputs = trainer.output(step, "output")?;
            let rows = outputs.chunks_exact((outputs.len() / batch.len()).max(1));
            batch.iter().zip(rows).try_for_each(|(&index, row)| each(index, row))
        };
        self.pass(samples, &mut show, Self::eval_slot, Self::eval)
    }

    fn pass(
        &mut self,
        samples: &Samples<'_>,
        after: &mut dyn FnMut(&mut Self, Done<'_>, &Pass) -> Result<()>,
        slot: fn(&mut Self, usize) -> Result<Slot>,
        run: fn(&mut Self, Slot) -> Result<StepId>,
    ) -> Result<Pass> {
        let mut pass = Pass::default();
        let mut batches = samples.order.batches(samples.batch);
        std::thread::scope(|scope| {
            // Both ends go when this closure returns, which ends the loader.
            let (to_loader, work) = mpsc::channel::<(Slot, &[usize])>();
            let (filled_out, filled) = mpsc::channel::<Result<Slot>>();
            scope.spawn(move || {
                let mut scratch = vec![0.0; samples.data.shape().elements()];
                for (slot, batch) in work {
                    let result = fill(slot, batch, samples, &mut scratch);
                    if filled_out.send(result).is_err() {
                        return;
                    }
                }
            });
            let mut next = batches.next();
            if let Some(batch) = next {
                let _ = to_loader.send((slot(self, batch.len())?, batch));
            }
            while let Some(batch) = next {
                let ready = filled.recv().unwrap_or_else(|_| Err(loader_gone()))?;
                next = batches.next();
                if let Some(batch) = next {
                    let _ = to_loader.send((slot(self, batch.len())?, batch));
                }
                let step = run(self, ready)?;
                let loss = self.loss(step)?;
                if !loss.is_finite() {
                    return Err(Error::NotFinite { step: self.steps(), loss });
                }
                pass.samples += batch.len();
                pass.correct += self.scalar(step, "correct")? as u64;
                pass.total_loss += loss * batch.len() as f64;
                after(self, (step, batch), &pass)?;
            }
            Ok(pass)
        })
    }
}

/// A step that was taken, and its samples.
type Done<'a> = (StepId, &'a [usize]);

fn told(progress: &mut dyn FnMut(&Pass), pass: &Pass) -> Result<()> {
    progress(pass);
    Ok(())
}

/// Reads the samples of a batch into a slot.
fn fill(slot: Slot, batch: &[usize], samples: &Samples<'_>, scratch: &mut [f32]) -> Result<Slot> {
    let mut slot = slot;
    let mut labels = Vec::with_capacity(batch.len());
    let mut input = slot.input("input")?;
    let size = scratch.len();
    for (i, &index) in batch.iter().enumerate() {
        let visit = Visit { epoch: samples.epoch, index };
        let place = i * size..(i + 1) * size;
        let label = match input.meta.dtype {
            DType::F32 => {
                let out = &mut input.as_mut_slice::<f32>()[place];
                samples.transform.read(samples.data, visit, out)?
            }
            _ => {
                let label = samples.transform.read(samples.data, visit, scratch)?;
                let out = &mut input.as_mut_slice::<f64>()[place];
                for (to, &from) in out.iter_mut().zip(scratch.iter()) {
                    *to = f64::from(from);
                }
                label
            }
        };
        labels.push(label as f64);
    }
    slot.input("target")?.write_f64(labels)?;
    Ok(slot)
}

fn loader_gone() -> Error {
    Error::Task { task: "of the loader".to_owned(), message: "it ended early".to_owned() }
}
