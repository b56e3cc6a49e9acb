//! The counters of all ranks as those of one session.

use crate::exec::Counters;
use crate::plan::Placement;
use crate::trace::{Activity, CodeletCount, ShapeCount, WorkerCounts, WorkerTime};
use crate::units::SpaceId;
use std::sync::Arc;

/// Workers and copy lanes keep their numbers; behind them come the message lanes, rank by rank.
pub(super) struct OfRanks {
    /// By rank.
    all: Vec<Arc<dyn Counters>>,
    /// How many workers and copy lanes there are.
    shared: usize,
    /// How many workers there are.
    computing: usize,
}

impl OfRanks {
    pub(super) fn new(all: Vec<Arc<dyn Counters>>, placement: &Placement) -> Self {
        Self { all, shared: placement.lanes(), computing: placement.workers }
    }

    /// How many workers and lanes there are.
    pub(super) fn workers(&self) -> usize {
        let ranks = self.all.len();
        self.shared + 2 * ranks * (ranks - 1)
    }

    /// The number of a worker or lane of a rank among those of all ranks; `None` for the lanes of
    /// messages from a rank to itself, which nobody has.
    pub(super) fn lane(&self, rank: u32, worker: usize) -> Option<usize> {
        let Some(lane) = worker.checked_sub(self.shared) else { return Some(worker) };
        let (rank, ranks) = (rank as usize, self.all.len());
        let (direction, peer) = (lane / ranks, lane % ranks);
        let peers = ranks - 1;
        if peer == rank {
            return None;
        }
        let among_peers = peer - usize::from(peer > rank);
        Some(self.shared + (2 * rank + direction) * peers + among_peers)
    }

    /// The time of the clock of rank 0, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        self.all[0].activity().elapsed
    }

    /// The names of all workers and lanes.
    pub(super) fn names(&self, placement: &Placement) -> Vec<String> {
        let rank_of = |space: &SpaceId| placement.rank_of(*space);
        let worker = |(w, space)| format!("rank {} worker {w}", rank_of(space));
        let workers = placement.space_of.iter().enumerate().map(worker);
        let copies = placement.spaces.iter().map(|space| format!("copies to {space}"));
        let ranks = 0..self.all.len();
        let messages = ranks.clone().flat_map(|rank| {
            let peers = || ranks.clone().filter(move |peer| *peer != rank);
            let sends = peers().map(move |peer| format!("rank {rank} sends to rank {peer}"));
            let receives =
                peers().map(move |peer| format!("rank {rank} receives from rank {peer}"));
            sends.chain(receives).collect::<Vec<_>>()
        });
        workers.chain(copies).chain(messages).collect()
    }

    /// Items of each worker of all ranks, from those that each rank has for its own.
    fn merged<T: Copy + Default>(
        &self,
        of: impl Fn(&dyn Counters) -> Vec<T>,
        add: impl Fn(T, T) -> T,
    ) -> Vec<T> {
        self.merged_by(|rank| of(&*self.all[rank]), add)
    }

    /// The same, by the number of the rank.
    fn merged_by<T: Copy + Default>(
        &self,
        of: impl Fn(usize) -> Vec<T>,
        add: impl Fn(T, T) -> T,
    ) -> Vec<T> {
        let mut all = vec![T::default(); self.workers()];
        for rank in 0..self.all.len() {
            for (w, item) in of(rank).into_iter().enumerate() {
                if let Some(at) = self.lane(rank as u32, w) {
                    all[at] = add(all[at], item);
                }
            }
        }
        all
    }
}

impl Counters for OfRanks {
    fn codelets(&self) -> Vec<CodeletCount> {
        let mut all = self.all[0].codelets();
        for rank in &self.all[1..] {
            for (sum, of) in all.iter_mut().zip(rank.codelets()) {
                sum.calls += of.calls;
                sum.time += of.time;
            }
        }
        all
    }

    fn shapes(&self) -> Vec<ShapeCount> {
        let mut all = self.all[0].shapes();
        for rank in &self.all[1..] {
            for (sum, of) in all.iter_mut().zip(rank.shapes()) {
                sum.calls += of.calls;
                sum.nanos += of.nanos;
                sum.times.buckets.extend(of.times.buckets);
                sum.times.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            }
        }
        all
    }

    fn by_worker(&self) -> Vec<WorkerCounts> {
        let add = |a: (u64, u64), b: (u64, u64)| (a.0 + b.0, a.1 + b.1);
        let ranks: Vec<Vec<WorkerCounts>> = self.all.iter().map(|rank| rank.by_worker()).collect();
        let mut all = ranks[0].clone();
        for (cell, sum) in all.iter_mut().enumerate() {
            let of_rank = |rank: usize| ranks[rank][cell].workers.clone();
            sum.workers = self.merged_by(of_rank, add);
        }
        all
    }

    fn activity(&self) -> Activity {
        let add = |a: WorkerTime, b: WorkerTime| WorkerTime {
            busy: a.busy + b.busy,
            spinning: a.spinning + b.spinning,
            parked: a.parked + b.parked,
        };
        let elapsed = self.all[0].activity().elapsed;
        let mut workers = self.merged(|rank| rank.activity().workers, add);
        workers.truncate(self.computing);
        Activity { elapsed, workers }
    }
}
