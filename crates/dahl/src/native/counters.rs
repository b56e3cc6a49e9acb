//! What the workers count all the time, for anyone who looks.

use super::sync::{Mutex, lock};
use super::sys::Ticks;
use crate::exec::Gauge;
use crate::trace::{Activity, CellCount, CodeletCount, Header, Histogram, ShapeCount, WorkerTime};
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

/// The counters of a placement, by worker.
pub(crate) struct Counters {
    pub(crate) ticks: Arc<Ticks>,
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
    pub(crate) fn new(header: Arc<Header>, ticks: Arc<Ticks>) -> Self {
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

    /// Calls and ticks of a cell on a worker.
    fn of(&self, worker: usize, cell: usize) -> (u64, u64) {
        let counter = self.workers.get(worker).and_then(|w| w.cells.get(cell));
        counter.map_or((0, 0), |c| (c.calls.load(Relaxed), c.ticks.load(Relaxed)))
    }
}

/// The counters of a session: of all its placements. The cells of an earlier one are the
/// first of those of a later one.
pub(crate) struct Gauges {
    all: Mutex<Vec<Arc<Counters>>>,
}

impl Gauges {
    pub(crate) fn new(first: Arc<Counters>) -> Self {
        Self { all: Mutex::new(vec![first]) }
    }

    /// The session goes on by another placement.
    pub(crate) fn go_on(&self, with: Arc<Counters>) {
        lock(&self.all).push(with);
    }

    /// The newest header, nanoseconds a tick, and all counters.
    fn look(&self) -> (Arc<Header>, f64, Vec<Arc<Counters>>) {
        let all = lock(&self.all).clone();
        let last = all.last().expect("the first is there from the beginning");
        (last.header.clone(), last.ticks.rate(), all)
    }
}

/// Calls and ticks of a cell, all workers together.
fn sum(all: &[Arc<Counters>], cell: usize) -> (u64, u64) {
    let each = all.iter().flat_map(|c| (0..c.workers.len()).map(move |w| c.of(w, cell)));
    each.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

impl Gauge for Gauges {
    fn codelets(&self) -> Vec<CodeletCount> {
        let (header, rate, all) = self.look();
        let mut sums = vec![(0, 0); header.codelets.len()];
        for (c, cell) in header.cells.iter().enumerate() {
            let (calls, ticks) = sum(&all, c);
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
        let (header, rate, all) = self.look();
        let count = |(c, cell): (usize, &crate::trace::Cell)| {
            let (calls, ticks) = sum(&all, c);
            let cells = || all.iter().flat_map(|of| &of.workers).filter_map(|w| w.cells.get(c));
            let bucket = |b: usize| cells().map(|cell| cell.times[b].load(Relaxed)).sum();
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

    fn cells(&self) -> Vec<CellCount> {
        let (header, rate, all) = self.look();
        let count = |(c, cell): (usize, &crate::trace::Cell)| {
            let worker = |w: usize| {
                let each = all.iter().map(|counters| counters.of(w, c));
                let (calls, ticks) = each.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
                (calls, (ticks as f64 * rate) as u64)
            };
            CellCount {
                codelet: header.codelets[cell.codelet as usize].clone(),
                shape: cell.shape.clone(),
                workers: (0..header.workers).map(worker).collect(),
            }
        };
        header.cells.iter().enumerate().map(count).collect()
    }

    fn activity(&self) -> Activity {
        let (header, rate, all) = self.look();
        let nanos = |ticks: u64| (ticks as f64 * rate) as u64;
        let worker = |w: usize| {
            let each = || all.iter().filter_map(|counters| counters.workers.get(w));
            let busy = |of: &OfWorker| of.cells.iter().map(|c| c.ticks.load(Relaxed)).sum::<u64>();
            WorkerTime {
                busy: nanos(each().map(busy).sum()),
                spinning: nanos(each().map(|of| of.spinning.load(Relaxed)).sum()),
                parked: nanos(each().map(|of| of.parked.load(Relaxed)).sum()),
            }
        };
        let workers = (0..header.workers).map(worker).collect();
        Activity { elapsed: nanos(all[0].ticks.now()), workers }
    }
}
