//! Why calls of one codelet and shape take different times.
//!
//! The sum of squares around the mean is parted step by step: by whether the worker lost
//! its processor, by worker, by whether data were warm, by whether neighbours ran; what
//! no grouping explains is left. The parts sum up to the whole (a sequential analysis of
//! variance), so an earlier cause gets what a later one would explain too.

use super::super::calls::{CallAt, Calls};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fewer calls say nothing.
const FEWEST: usize = 8;
/// How many spreads are told.
const TOLD: usize = 12;

/// Calls that have something in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// What: `worker 1`, `warm data`.
    pub what: String,
    /// How many calls.
    pub calls: u64,
    /// Their mean in nanoseconds.
    pub mean: f64,
}

/// The times of one codelet and shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The op and its variant.
    pub codelet: String,
    /// The boxes that are read and written.
    pub shape: String,
    /// How many calls.
    pub calls: u64,
    /// Their mean in nanoseconds.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// The parts of the variance: preemption, worker, cold or warm data, neighbours, and
    /// what is left; they sum up to 1.
    pub parts: [f64; 5],
    /// Nanoseconds that workers were off their processors.
    pub lost: u64,
    /// The means of groups, cause by cause.
    pub levels: Vec<Level>,
}

/// The names of the parts.
pub(super) const CAUSES: [&str; 5] =
    ["preemption", "worker", "cold or warm data", "neighbours", "unexplained"];

/// What a call is grouped by.
fn key(call: &CallAt) -> [u32; 4] {
    let beside = call.neighbours >= 0.5;
    [u32::from(call.lost > 0), call.worker, u32::from(call.warm), u32::from(beside)]
}

pub(super) fn spreads(calls: &Calls<'_>) -> Vec<Spread> {
    let mut by_cell: Vec<Vec<&CallAt>> = vec![Vec::new(); calls.cells.len()];
    for call in &calls.all {
        by_cell[call.cell as usize].push(call);
    }
    let mut found: Vec<(f64, Spread)> = Vec::new();
    for (cell, own) in calls.cells.iter().zip(&by_cell).filter(|(_, own)| own.len() >= FEWEST) {
        let codelet = calls.trace.header.codelets[cell.codelet as usize].clone();
        let (squares, spread) = spread(codelet, cell.shape.clone(), own);
        if squares > 0.0 {
            found.push((squares, spread));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.shape.cmp(&b.1.shape)));
    found.into_iter().take(TOLD).map(|(_, spread)| spread).collect()
}

fn spread(codelet: String, shape: String, calls: &[&CallAt]) -> (f64, Spread) {
    let n = calls.len() as f64;
    let mean = calls.iter().map(|c| c.nanos() as f64).sum::<f64>() / n;
    let whole: f64 = calls.iter().map(|c| (c.nanos() as f64 - mean).powi(2)).sum();
    let mut parts = [0.0; 5];
    let mut explained = 0.0;
    for (depth, part) in parts.iter_mut().take(4).enumerate() {
        let mut groups: BTreeMap<&[u32], (f64, f64)> = BTreeMap::new();
        let keys: Vec<[u32; 4]> = calls.iter().map(|c| key(c)).collect();
        for (call, key) in calls.iter().zip(&keys) {
            let group = groups.entry(&key[..=depth]).or_default();
            *group = (group.0 + 1.0, group.1 + call.nanos() as f64);
        }
        let between: f64 = groups.values().map(|(k, sum)| k * (sum / k - mean).powi(2)).sum();
        *part = if whole > 0.0 { ((between - explained) / whole).max(0.0) } else { 0.0 };
        explained = between.max(explained);
    }
    parts[4] = (1.0 - parts.iter().sum::<f64>()).max(0.0);
    let mut levels = Vec::new();
    let mut level = |what: String, of: &dyn Fn(&CallAt) -> bool| {
        let own: Vec<u64> = calls.iter().filter(|c| of(c)).map(|c| c.nanos()).collect();
        if !own.is_empty() && own.len() < calls.len() {
            let mean = own.iter().sum::<u64>() as f64 / own.len() as f64;
            levels.push(Level { what, calls: own.len() as u64, mean });
        }
    };
    level("off the processor".to_owned(), &|c| c.lost > 0);
    let workers: std::collections::BTreeSet<u32> = calls.iter().map(|c| c.worker).collect();
    for worker in workers {
        level(format!("worker {worker}"), &|c| c.worker == worker);
    }
    level("cold data".to_owned(), &|c| !c.warm);
    level("warm data".to_owned(), &|c| c.warm);
    level("alone".to_owned(), &|c| c.neighbours < 0.5);
    level("beside others".to_owned(), &|c| c.neighbours >= 0.5);
    let result = Spread {
        codelet,
        shape,
        calls: calls.len() as u64,
        mean,
        deviation: (whole / n).sqrt(),
        parts,
        lost: calls.iter().map(|c| c.lost).sum(),
        levels,
    };
    (whole, result)
}
