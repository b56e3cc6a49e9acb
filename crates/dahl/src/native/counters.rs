//! What the workers count all the time, for anyone who looks.

use super::sys::Ticks;
use crate::exec::Gauge;
use crate::trace::{Activity, CodeletCount, Header, Histogram, ShapeCount, WorkerTime};
use crate::units::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often a cell ran and for how many ticks, on one worker.
struct Counter {
    calls: AtomicU64,
    ticks: AtomicU64,
    times: Box<[AtomicU64]>,
}

/// What one worker counts; nobody else writes it.
struct OfWorker {
    cells: Vec<Counter>,
    spinning: AtomicU64,
    parked: AtomicU64,
}

/// The counters of a session, by worker.
pub(crate) struct Counters {
    pub(crate) ticks: Ticks,
    header: Arc<Header>,
    workers: Vec<OfWorker>,
}

/// Only one worker writes a counter: no read-modify-write.
fn add(to: &AtomicU64, n: u64) {
    to.store(to.load(Relaxed).wrapping_add(n), Relaxed);
}

fn zeros(n: usize) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

impl Counters {
    pub(crate) fn new(header: Arc<Header>) -> Self {
        let counter = || Counter {
            calls: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            times: zeros(Histogram::LEN),
        };
        let worker = |_| OfWorker {
            cells: header.cells.iter().map(|_| counter()).collect(),
            spinning: AtomicU64::new(0),
            parked: AtomicU64::new(0),
        };
        let workers = (0..header.workers).map(worker).collect();
        Self { ticks: Ticks::start(), workers, header }
    }

    /// A worker has run a cell for so many ticks.
    #[inline]
    pub(crate) fn ran(&self, worker: usize, cell: u32, ticks: u64) {
        let counter = &self.workers[worker].cells[cell as usize];
        add(&counter.calls, 1);
        add(&counter.ticks, ticks);
        add(&counter.times[Histogram::index(ticks)], 1);
    }

    /// A worker has waited for so many ticks.
    pub(crate) fn waited(&self, worker: usize, ticks: u64, parked: bool) {
        let of = &self.workers[worker];
        add(if parked { &of.parked } else { &of.spinning }, ticks);
    }

    /// Calls and ticks of a cell, all workers together.
    fn sum(&self, cell: usize) -> (u64, u64) {
        let of = |w: &OfWorker| {
            let counter = &w.cells[cell];
            (counter.calls.load(Relaxed), counter.ticks.load(Relaxed))
        };
        self.workers.iter().map(of).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }
}

impl Gauge for Counters {
    fn codelets(&self) -> Vec<CodeletCount> {
        let rate = self.ticks.rate();
        let mut sums = vec![(0, 0); self.header.codelets.len()];
        for (c, cell) in self.header.cells.iter().enumerate() {
            let (calls, ticks) = self.sum(c);
            let sum = &mut sums[cell.codelet as usize];
            *sum = (sum.0 + calls, sum.1 + ticks);
        }
        let count = |(name, (calls, ticks)): (&String, (u64, u64))| CodeletCount {
            name: name.clone(),
            calls,
            time: Nanos((ticks as f64 * rate) as u64),
        };
        self.header.codelets.iter().zip(sums).map(count).collect()
    }

    fn shapes(&self) -> Vec<ShapeCount> {
        let rate = self.ticks.rate();
        let count = |(c, cell): (usize, &crate::trace::Cell)| {
            let (calls, ticks) = self.sum(c);
            let bucket = |b: usize| {
                let of = |w: &OfWorker| w.cells[c].times[b].load(Relaxed);
                self.workers.iter().map(of).sum()
            };
            ShapeCount {
                codelet: self.header.codelets[cell.codelet as usize].clone(),
                shape: cell.shape.clone(),
                flops: cell.flops,
                bytes: cell.bytes,
                calls,
                nanos: (ticks as f64 * rate) as u64,
                times: Histogram::of((0..Histogram::LEN).map(bucket), rate),
            }
        };
        self.header.cells.iter().enumerate().map(count).collect()
    }

    fn activity(&self) -> Activity {
        let rate = self.ticks.rate();
        let nanos = |ticks: u64| (ticks as f64 * rate) as u64;
        let worker = |of: &OfWorker| WorkerTime {
            busy: nanos(of.cells.iter().map(|c| c.ticks.load(Relaxed)).sum()),
            spinning: nanos(of.spinning.load(Relaxed)),
            parked: nanos(of.parked.load(Relaxed)),
        };
        let workers = self.workers.iter().map(worker).collect();
        Activity { elapsed: nanos(self.ticks.now()), workers }
    }
}
