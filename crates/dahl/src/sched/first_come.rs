//! First come, first served.

use super::{Policy, Ready};
use crate::units::{Nanos, WorkerId};
use std::collections::VecDeque;

/// One queue for all workers.
#[derive(Debug, Default)]
pub struct FirstCome {
    queue: VecDeque<Ready>,
}

impl Policy for FirstCome {
    fn name(&self) -> &'static str {
        "first-come"
    }

    fn ready(&mut self, task: Ready, _: Nanos) {
        self.queue.push_back(task);
    }

    fn next(&mut self, _: WorkerId, _: Nanos) -> Option<Ready> {
        self.queue.pop_front()
    }
}
