//! What the workers count all the time, for anyone who looks.

use super::sync::{Mutex, lock};
use super::sys::Ticks;
use crate::exec::Counters;
use crate::trace::{
    Activity, CodeletCount, Header, Histogram, ShapeCount, WorkerCounts, WorkerTime,
};
use crate::units::{Nanos, WorkerId};
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

/// The counters of a session, by worker: what its placement counts, and on top of what.
pub(crate) struct WorkerCounters {
    pub(crate) ticks: Arc<Ticks>,
    header: Arc<Header>,
    workers: Vec<OfWorker>,
}

/// Only one worker writes a counter: no read-modify-write.
fn add(to: &AtomicU64, n: u64) {
    to.store(to.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Counter {
    /// Calls and ticks.
    fn read(&self) -> (u64, u64) {
        (self.calls.load(Relaxed), self.ticks.load(Relaxed))
    }

    /// One that goes on from another.
    fn after(before: Option<&Self>) -> Self {
        let of = |n: Option<&AtomicU64>| AtomicU64::new(n.map_or(0, |n| n.load(Relaxed)));
        Self {
            calls: of(before.map(|b| &b.calls)),
            ticks: of(before.map(|b| &b.ticks)),
            times: (0..Histogram::LEN).map(|i| of(before.map(|b| &b.times[i]))).collect(),
        }
    }
}

impl OfWorker {
    /// One of so many cells that goes on from another, whose cells are the first of them.
    fn after(before: Option<&Self>, cells: usize) -> Self {
        let of = |n: Option<&AtomicU64>| AtomicU64::new(n.map_or(0, |n| n.load(Relaxed)));
        let cell = |c| Counter::after(before.and_then(|b| b.cells.get(c)));
        Self {
            cells: (0..cells).map(cell).collect(),
            spinning: of(before.map(|b| &b.spinning)),
            parked: of(before.map(|b| &b.parked)),
        }
    }
}

impl WorkerCounters {
    /// Those of a placement that goes on from another one's, whose workers have ended. The
    /// cells of that are the first of the header's.
    pub(crate) fn new(
        (header, own): (Arc<Header>, &[WorkerId]),
        ticks: Arc<Ticks>,
        before: Option<&Self>,
    ) -> Self {
        let of = |w| before.and_then(|before| before.workers.get(w));
        // Workers and lanes of other ranks, and lanes without tasks, count nothing.
        let cells = |w| if own.contains(&WorkerId::new(w)) { header.cells.len() } else { 0 };
        let worker = |w| OfWorker::after(of(w), cells(w));
        let workers = (0..header.workers).map(worker).collect();
        Self { ticks, workers, header }
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
        let each = self.workers.iter().filter_map(|of| Some(of.cells.get(cell)?.read()));
        each.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }
}

/// The counters of a session, whatever its placement.
pub(crate) struct SessionCounters {
    now: Mutex<Arc<WorkerCounters>>,
}

impl SessionCounters {
    pub(crate) fn new(first: Arc<WorkerCounters>) -> Self {
        Self { now: Mutex::new(first) }
    }

    /// The session goes on by another placement.
    pub(crate) fn go_on(&self, with: Arc<WorkerCounters>) {
        *lock(&self.now) = with;
    }

    /// The counters, and nanoseconds a tick.
    fn look(&self) -> (Arc<WorkerCounters>, f64) {
        let now = lock(&self.now).clone();
        let rate = now.ticks.rate();
        (now, rate)
    }
}

impl Counters for SessionCounters {
    fn codelets(&self) -> Vec<CodeletCount> {
        let (all, rate) = self.look();
        let header = &all.header;
        let mut sums = vec![(0, 0); header.codelets.len()];
        for (c, cell) in header.cells.iter().enumerate() {
            let (calls, ticks) = all.sum(c);
            let sum = &mut sums[cell.codelet as usize];
            *sum = (sum.0 + calls, sum.1 + ticks);
        }
        let count = |(name, (calls, ticks)): (&String, (u64, u64))| CodeletCount {
            name: name.clone(),
            calls,
            time: Nanos((ticks as f64 * rate) as u64),
        };
        header.codelets.iter().zip(sums).map(count).collect()
    }

    fn shapes(&self) -> Vec<ShapeCount> {
        let (all, rate) = self.look();
        let header = &all.header;
        let count = |(c, cell): (usize, &crate::trace::CodeletShape)| {
            let (calls, ticks) = all.sum(c);
            let own = || all.workers.iter().filter_map(|of| of.cells.get(c));
            let bucket = |b: usize| own().map(|cell| cell.times[b].load(Relaxed)).sum();
            ShapeCount {
                codelet: header.codelets[cell.codelet as usize].clone(),
                shape: cell.shape.clone(),
                flops: cell.flops,
                bytes: cell.bytes,
                calls,
                nanos: (ticks as f64 * rate) as u64,
                times: Histogram::of((0..Histogram::LEN).map(bucket), rate),
            }
        };
        header.cells.iter().enumerate().map(count).collect()
    }

    fn by_worker(&self) -> Vec<WorkerCounts> {
        let (all, rate) = self.look();
        let header = &all.header;
        let count = |(c, cell): (usize, &crate::trace::CodeletShape)| {
            let worker = |of: &OfWorker| {
                let (calls, ticks) = of.cells.get(c).map_or((0, 0), Counter::read);
                (calls, (ticks as f64 * rate) as u64)
            };
            WorkerCounts {
                codelet: header.codelets[cell.codelet as usize].clone(),
                shape: cell.shape.clone(),
                workers: all.workers.iter().map(worker).collect(),
            }
        };
        header.cells.iter().enumerate().map(count).collect()
    }

    fn activity(&self) -> Activity {
        let (all, rate) = self.look();
        let nanos = |ticks: u64| (ticks as f64 * rate) as u64;
        let worker = |of: &OfWorker| WorkerTime {
            busy: nanos(of.cells.iter().map(|cell| cell.read().1).sum()),
            spinning: nanos(of.spinning.load(Relaxed)),
            parked: nanos(of.parked.load(Relaxed)),
        };
        // Lanes wait for messages most of their time: they use no unit of their own.
        let workers = all.workers.iter().take(all.header.computing()).map(worker).collect();
        Activity { elapsed: nanos(all.ticks.now()), workers }
    }
}
