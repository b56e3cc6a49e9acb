//! Datasets that every rank of a run reads by itself.

use super::load::{fill, threads};
use super::pass::Samples;
use crate::data::{Dataset, Order, Transform};
use crate::error::{Error, Result};
use crate::exec::{Batch, BatchSource, Slot};
use std::sync::Arc;

/// The datasets of a training, by number: the training set, then the evaluation sets in order.
pub struct SharedSets(pub Vec<(Arc<dyn Dataset>, Transform)>);

impl BatchSource for SharedSets {
    fn fill(&self, slot: Slot, batch: &Batch) -> Result<Slot> {
        let Some((data, transform)) = self.0.get(batch.set as usize) else {
            let expected = format!("one of {} datasets", self.0.len());
            return Err(Error::config("dataset", expected, batch.set));
        };
        let order = Order::sequential(0);
        let samples = Samples {
            data: &**data,
            transform,
            order: &order,
            epoch: batch.epoch,
            batch: batch.samples.len(),
            shared: None,
        };
        fill(slot, &batch.samples, &samples, threads(&samples))
    }
}
