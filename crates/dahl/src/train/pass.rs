//! Passes over a dataset: a loader thread fills slots while steps run.

use super::Trainer;
use super::load::{fill, threads};
use crate::data::{Dataset, Order, Transform};
use crate::error::{Error, Result};
use crate::exec::{Batch, Slot};
use crate::os::threads::spawn_scoped;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread::Scope;

/// The results of a pass over samples so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pass {
    /// Samples that have been through.
    pub samples: usize,
    /// Number of correct predictions.
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
    /// The transform of each sample.
    pub transform: &'a Transform,
    /// In which order they are visited.
    pub order: &'a Order,
    /// Number of earlier passes over all samples.
    pub epoch: u64,
    /// Samples per step; the last step may have fewer.
    pub batch: usize,
    /// The number of the dataset among those that every rank of the session
    /// [reads](crate::train::SharedSets) by itself; `None` where rank 0 reads all samples.
    pub shared: Option<u32>,
}

/// The use of the samples of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Train,
    Evaluate,
}

/// Called after every step; says whether to go on. Where steps are under way at once it is
/// called with each that has ended, of those that were begun also behind the last.
pub(super) type Watch<'w> = dyn FnMut(&mut Trainer, &Pass) -> Result<ControlFlow<()>> + 'w;

impl Trainer {
    /// Trains on all samples once. `progress` is called after every step.
    ///
    /// A step whose loss is not finite ends the pass with
    /// [`Error::NotFinite`]; nothing was learned from it.
    pub fn train_pass(
        &mut self,
        samples: &Samples<'_>,
        progress: &mut dyn FnMut(&Pass),
    ) -> Result<Pass> {
        self.pass(samples, Use::Train, Pass::default(), &mut watched(progress))
    }

    /// Evaluates all samples; parameters stay as they are.
    pub fn eval_pass(
        &mut self,
        samples: &Samples<'_>,
        progress: &mut dyn FnMut(&Pass),
    ) -> Result<Pass> {
        self.pass(samples, Use::Evaluate, Pass::default(), &mut watched(progress))
    }

    /// Goes on with a pass that has come as far as `from`.
    pub(super) fn pass(
        &mut self,
        samples: &Samples<'_>,
        what: Use,
        from: Pass,
        watch: &mut Watch<'_>,
    ) -> Result<Pass> {
        let slot = |trainer: &mut Self, batch: &[usize]| {
            let mut slot = match what {
                Use::Train => trainer.slot(batch.len()),
                Use::Evaluate => trainer.eval_slot(batch.len()),
            }?;
            if let Some(set) = samples.shared {
                let program = match what {
                    Use::Train => trainer.program(batch.len(), 0)?,
                    Use::Evaluate => trainer.eval_program(batch.len())?,
                };
                let batch = Batch { set, epoch: samples.epoch, samples: batch.to_vec() };
                trainer.session.announce(program, &mut slot, &batch)?;
            }
            Ok::<Slot, Error>(slot)
        };
        let mut pass = from;
        let done = from.samples.div_ceil(samples.batch.max(1));
        let mut batches = samples.order.batches(samples.batch).from_batch(done);
        std::thread::scope(|scope| {
            // It goes when this closure returns, which ends its thread.
            let mut loader = Loader::start(scope, samples);
            let (mut open, mut going) = (VecDeque::new(), true);
            let mut next = batches.next();
            if let Some(batch) = next {
                loader.begin(slot(self, batch)?, batch);
            }
            while let Some(batch) = next {
                let ready = loader.wait()?;
                next = batches.next();
                if let Some(batch) = next {
                    loader.begin(slot(self, batch)?, batch);
                }
                let step = match what {
                    Use::Train => self.step(ready)?,
                    Use::Evaluate => self.eval(ready)?,
                };
                open.push_back((step, batch));
                let beside = if what == Use::Train { self.beside() } else { 0 };
                // Of steps that are under way at once all but the first are looked at later;
                // none is left open at the end, nor where something is done between steps.
                while let Some(&(step, batch)) = open.front() {
                    let last = next.is_none() || !going || self.settling;
                    if open.len() <= beside && !last {
                        break;
                    }
                    open.pop_front();
                    self.open = open.len();
                    let loss = self.loss(step)?;
                    if !loss.is_finite() {
                        return Err(match what {
                            Use::Train => Error::NotFinite { step: self.ended(), loss },
                            Use::Evaluate => not_finite(samples.data, batch, loss),
                        });
                    }
                    pass.samples += batch.len();
                    pass.correct += self.scalar(step, "correct")? as u64;
                    pass.total_loss += loss * batch.len() as f64;
                    going &= watch(self, &pass)?.is_continue();
                }
                self.settling = false;
                if !going {
                    break;
                }
            }
            Ok(pass)
        })
    }
}

/// Fills slots, one at a time, while steps run.
enum Loader<'a> {
    Thread {
        work: mpsc::Sender<(Slot, &'a [usize])>,
        filled: mpsc::Receiver<Result<Slot>>,
    },
    /// The system has no thread to give: steps wait.
    Here {
        samples: &'a Samples<'a>,
        filled: Option<Result<Slot>>,
    },
}

impl<'a> Loader<'a> {
    fn start<'scope>(scope: &'scope Scope<'scope, 'a>, samples: &'a Samples<'a>) -> Self {
        let (work, todo) = mpsc::channel::<(Slot, &[usize])>();
        let (done, filled) = mpsc::channel();
        let body = move || {
            let threads = threads(samples);
            for (slot, batch) in todo {
                if done.send(fill(slot, batch, samples, threads)).is_err() {
                    return;
                }
            }
        };
        match spawn_scoped(scope, "dahl-loader", body) {
            Ok(_) => Loader::Thread { work, filled },
            Err(_) => Loader::Here { samples, filled: None },
        }
    }

    fn begin(&mut self, slot: Slot, batch: &'a [usize]) {
        match self {
            // Where it has gone, waiting for it tells.
            Loader::Thread { work, .. } => drop(work.send((slot, batch))),
            Loader::Here { samples, filled } => {
                *filled = Some(fill(slot, batch, samples, threads(samples)));
            }
        }
    }

    fn wait(&mut self) -> Result<Slot> {
        let filled = match self {
            Loader::Thread { filled, .. } => filled.recv().ok(),
            Loader::Here { filled, .. } => filled.take(),
        };
        filled.unwrap_or_else(|| Err(loader_gone()))
    }
}

/// A watch that never stops a pass.
fn watched(
    progress: &mut dyn FnMut(&Pass),
) -> impl FnMut(&mut Trainer, &Pass) -> Result<ControlFlow<()>> {
    |_, pass| {
        progress(pass);
        Ok(ControlFlow::Continue(()))
    }
}

/// A loss of samples that nothing is learned from.
fn not_finite(data: &dyn Dataset, batch: &[usize], loss: f64) -> Error {
    let place = |index: Option<&usize>| index.map_or(String::new(), |&index| data.place(index));
    Error::EvalNotFinite { first: place(batch.first()), last: place(batch.last()), loss }
}

fn loader_gone() -> Error {
    Error::Task { task: "of the loader".to_owned(), message: "it ended early".to_owned() }
}
