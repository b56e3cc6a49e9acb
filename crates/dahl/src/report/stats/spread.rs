//! Why calls of one codelet and shape take different times.
//!
//! The sum of squares around the mean is split step by step. Calls in which the worker lost
//! its processor are set apart: what the squares are less without them is preemption. The
//! others are grouped by worker, by whether data were warm, by whether neighbours ran; what
//! no grouping explains is left. Groups differ by chance too: what as many groups of no
//! meaning would explain on average (their degrees of freedom times the variance that is
//! left) is taken off and counts as unexplained. The parts sum up to the whole (a sequential
//! analysis of variance), so an earlier cause gets what a later one would explain too.

use super::super::calls::{CallAt, Calls};
use crate::trace::{CodeletShape, Header};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fewer calls say nothing.
const FEWEST: usize = 8;
/// Number of listed spreads.
const SHOWN: usize = 12;

/// Calls that have something in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The group: `worker 1`, `warm data`.
    pub what: String,
    /// Number of calls.
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
    /// Number of calls.
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

/// A property that calls are grouped by.
fn key(call: &CallAt) -> [u32; 3] {
    let beside = call.neighbours >= 0.5;
    [call.worker, u32::from(call.warm), u32::from(beside)]
}

/// The parts of the variance, in the order of [`CAUSES`].
fn parts(calls: &[&CallAt]) -> [f64; 5] {
    let squares = |calls: &[&CallAt]| {
        let mean = calls.iter().map(|c| c.nanos() as f64).sum::<f64>() / calls.len().max(1) as f64;
        let sum: f64 = calls.iter().map(|c| (c.nanos() as f64 - mean).powi(2)).sum();
        (mean, sum)
    };
    let (_, whole) = squares(calls);
    if whole <= 0.0 {
        return [0.0, 0.0, 0.0, 0.0, 1.0];
    }
    let rest: Vec<&CallAt> = calls.iter().copied().filter(|call| call.lost == 0).collect();
    let (mean, left) = squares(&rest);
    let keys: Vec<[u32; 3]> = rest.iter().map(|call| key(call)).collect();
    // What the groups explain up to a depth, and how many there are.
    let explained = (1..=3).map(|depth| {
        let mut groups: BTreeMap<&[u32], (f64, f64)> = BTreeMap::new();
        for (call, key) in rest.iter().zip(&keys) {
            let group = groups.entry(&key[..depth]).or_default();
            *group = (group.0 + 1.0, group.1 + call.nanos() as f64);
        }
        let between: f64 = groups.values().map(|(k, sum)| k * (sum / k - mean).powi(2)).sum();
        (between, groups.len() as f64)
    });
    let explained: Vec<(f64, f64)> = explained.collect();
    let (all, groups) = explained[2];
    let freedom = rest.len() as f64 - groups;
    let chance = if freedom > 0.0 { (left - all).max(0.0) / freedom } else { f64::INFINITY };
    let mut parts = [1.0 - left / whole, 0.0, 0.0, 0.0, 0.0];
    let mut before = (0.0, 1.0);
    for (part, &(between, groups)) in parts[1..].iter_mut().zip(&explained) {
        let by_chance = if groups > before.1 { (groups - before.1) * chance } else { 0.0 };
        *part = ((between - before.0 - by_chance) / whole).max(0.0);
        before = (between, groups);
    }
    parts[4] = (1.0 - parts.iter().sum::<f64>()).max(0.0);
    parts
}

pub(super) fn spreads(calls: &Calls<'_>) -> Vec<Spread> {
    let mut by_cell: Vec<Vec<&CallAt>> = vec![Vec::new(); calls.cells.len()];
    for call in &calls.all {
        by_cell[call.cell as usize].push(call);
    }
    let mut found: Vec<(f64, Spread)> = Vec::new();
    for (cell, own) in calls.cells.iter().zip(&by_cell).filter(|(_, own)| own.len() >= FEWEST) {
        let (squares, spread) = spread(&calls.trace.header, cell, own);
        if squares > 0.0 {
            found.push((squares, spread));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.shape.cmp(&b.1.shape)));
    found.into_iter().take(SHOWN).map(|(_, spread)| spread).collect()
}

fn spread(header: &Header, cell: &CodeletShape, calls: &[&CallAt]) -> (f64, Spread) {
    let n = calls.len() as f64;
    let mean = calls.iter().map(|c| c.nanos() as f64).sum::<f64>() / n;
    let whole: f64 = calls.iter().map(|c| (c.nanos() as f64 - mean).powi(2)).sum();
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
        level(header.worker_name(worker as usize), &|c| c.worker == worker);
    }
    level("cold data".to_owned(), &|c| !c.warm);
    level("warm data".to_owned(), &|c| c.warm);
    level("alone".to_owned(), &|c| c.neighbours < 0.5);
    level("beside others".to_owned(), &|c| c.neighbours >= 0.5);
    let result = Spread {
        codelet: header.codelets[cell.codelet as usize].clone(),
        shape: cell.shape.clone(),
        calls: calls.len() as u64,
        mean,
        deviation: (whole / n).sqrt(),
        parts: parts(calls),
        lost: calls.iter().map(|c| c.lost).sum(),
        levels,
    };
    (whole, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(worker: u32, nanos: u64, lost: u64) -> CallAt {
        CallAt {
            step: 0,
            program: 0,
            task: 0,
            ordinal: 0,
            cell: 0,
            layer: 0,
            worker,
            from: 0,
            to: nanos,
            warm: false,
            neighbours: 0.0,
            lost,
        }
    }

    fn shares(calls: &[CallAt]) -> [f64; 5] {
        let found = parts(&calls.iter().collect::<Vec<_>>());
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{found:?}");
        found
    }

    #[test]
    fn what_preempted_calls_took_is_no_worker_s() {
        // Five calls that lost their processor for very different times, four of them on
        // worker 0; all others are alike.
        let mut calls: Vec<CallAt> =
            (0..100).map(|i| call(i % 2, 1000 + u64::from(i % 5), 0)).collect();
        for (worker, lost) in [(0, 10_000), (0, 20_000), (0, 400_000), (0, 30_000), (1, 900_000)] {
            calls.push(call(worker, 1000 + lost, lost));
        }
        let found = shares(&calls);
        assert!(found[0] > 0.999 && found[1] < 1e-6, "{found:?}");
    }

    #[test]
    fn groups_that_differ_by_chance_explain_nothing() {
        // A worker a call or two: sixteen means of noise.
        let noise = |i: u64| 1000 + (i * 7919 + i * i * 104_729) % 97;
        let calls: Vec<CallAt> = (0..32).map(|i| call((i % 16) as u32, noise(i), 0)).collect();
        assert!(shares(&calls)[1] < 0.25, "{:?}", shares(&calls));
        // Workers that are unequal explain nearly all.
        let calls: Vec<CallAt> =
            (0..32).map(|i| call((i % 2) as u32, 1000 + 500 * (i % 2) + i, 0)).collect();
        assert!(shares(&calls)[1] > 0.95, "{:?}", shares(&calls));
    }
}
