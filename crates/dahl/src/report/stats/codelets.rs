//! Times by codelet and shape.

use super::super::calls::Calls;
use crate::trace::{Histogram, ShapeCount};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A codelet: an op in one variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CodeletRow {
    /// The op and its variant.
    pub codelet: String,
    /// Number of calls.
    pub calls: u64,
    /// For how long, in nanoseconds.
    pub total: u64,
    /// The mean of a call.
    pub mean: f64,
    /// The time that half of the calls did not exceed.
    pub p50: u64,
    /// That nine of ten did not exceed.
    pub p90: u64,
    /// That 99 of 100 did not exceed.
    pub p99: u64,
    /// Floating-point operations of all calls.
    pub flops: u64,
    /// Bytes that all calls read and wrote.
    pub bytes: u64,
    /// Its part of the time of all codelets; these sum up to 1.
    pub share: f64,
    /// The same by shape.
    pub shapes: Vec<ShapeRow>,
}

/// A codelet on operands of one shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShapeRow {
    /// The boxes that are read and written, and the op's attributes.
    pub shape: String,
    /// Number of calls.
    pub calls: u64,
    /// For how long, in nanoseconds.
    pub total: u64,
    /// The mean of a call.
    pub mean: f64,
    /// As in [`CodeletRow`].
    pub p50: u64,
    /// As in [`CodeletRow`].
    pub p90: u64,
    /// As in [`CodeletRow`].
    pub p99: u64,
    /// Floating-point operations of all calls.
    pub flops: u64,
    /// Bytes that all calls read and wrote.
    pub bytes: u64,
    /// Its part of the time of all codelets.
    pub share: f64,
}

/// Operations by time, where there are any.
pub(super) fn gflops(flops: u64, nanos: u64) -> Option<f64> {
    (flops > 0 && nanos > 0).then(|| flops as f64 / nanos as f64)
}

impl CodeletRow {
    /// Thousand million operations per second.
    pub fn gflops(&self) -> Option<f64> {
        gflops(self.flops, self.total)
    }
}

impl ShapeRow {
    /// Thousand million operations per second.
    pub fn gflops(&self) -> Option<f64> {
        gflops(self.flops, self.total)
    }
}

/// The value of sorted ones that a part of them does not exceed.
pub(crate) fn quantile(sorted: &[u64], part: f64) -> u64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0)
}

pub(super) fn of_calls(calls: &Calls<'_>) -> Vec<CodeletRow> {
    let mut times: Vec<Vec<u64>> = vec![Vec::new(); calls.cells.len()];
    for call in &calls.all {
        times[call.cell as usize].push(call.nanos());
    }
    let mut by_codelet: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (c, cell) in calls.cells.iter().enumerate().filter(|(c, _)| !times[*c].is_empty()) {
        by_codelet.entry(cell.codelet).or_default().push(c);
    }
    let rows = by_codelet.into_iter().map(|(codelet, cells)| {
        let mut all = Vec::new();
        let shapes = cells.iter().map(|&c| {
            let own = &mut times[c];
            own.sort_unstable();
            all.extend_from_slice(own);
            let (cell, total, n) = (&calls.cells[c], own.iter().sum::<u64>(), own.len() as u64);
            ShapeRow {
                shape: cell.shape.clone(),
                calls: n,
                total,
                mean: total as f64 / n as f64,
                p50: quantile(own, 0.5),
                p90: quantile(own, 0.9),
                p99: quantile(own, 0.99),
                flops: n * cell.flops,
                bytes: n * cell.bytes,
                share: 0.0,
            }
        });
        let shapes: Vec<ShapeRow> = shapes.collect();
        all.sort_unstable();
        let quantiles = [0.5, 0.9, 0.99].map(|part| quantile(&all, part));
        let codelet = calls.trace.header.codelets[codelet as usize].clone();
        row(codelet, shapes, quantiles)
    });
    shared(rows.collect())
}

pub(super) fn of_counters(counts: &[ShapeCount]) -> Vec<CodeletRow> {
    let mut by_codelet: BTreeMap<&str, Vec<&ShapeCount>> = BTreeMap::new();
    for count in counts.iter().filter(|count| count.calls > 0) {
        by_codelet.entry(&count.codelet).or_default().push(count);
    }
    let rows = by_codelet.into_iter().map(|(codelet, counts)| {
        let part = |times: &Histogram, part| times.quantile(part).map_or(0, |nanos| nanos.0);
        let shapes = counts.iter().map(|count| ShapeRow {
            shape: count.shape.clone(),
            calls: count.calls,
            total: count.nanos,
            mean: count.nanos as f64 / count.calls as f64,
            p50: part(&count.times, 0.5),
            p90: part(&count.times, 0.9),
            p99: part(&count.times, 0.99),
            flops: count.calls * count.flops,
            bytes: count.calls * count.bytes,
            share: 0.0,
        });
        let mut buckets: Vec<(f64, f64, u64)> =
            counts.iter().flat_map(|count| count.times.buckets.iter().copied()).collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all = Histogram { buckets };
        row(codelet.to_owned(), shapes.collect(), [0.5, 0.9, 0.99].map(|p| part(&all, p)))
    });
    shared(rows.collect())
}

fn row(codelet: String, shapes: Vec<ShapeRow>, [p50, p90, p99]: [u64; 3]) -> CodeletRow {
    let sum = |of: fn(&ShapeRow) -> u64| shapes.iter().map(of).sum::<u64>();
    let (calls, total) = (sum(|s| s.calls), sum(|s| s.total));
    CodeletRow {
        codelet,
        calls,
        total,
        mean: total as f64 / calls.max(1) as f64,
        p50,
        p90,
        p99,
        flops: sum(|s| s.flops),
        bytes: sum(|s| s.bytes),
        share: 0.0,
        shapes,
    }
}

/// The longest first, with their parts of the whole.
fn shared(rows: Vec<CodeletRow>) -> Vec<CodeletRow> {
    let mut rows = rows;
    let all = rows.iter().map(|row| row.total).sum::<u64>().max(1) as f64;
    for row in &mut rows {
        row.share = row.total as f64 / all;
        row.shapes.iter_mut().for_each(|shape| shape.share = shape.total as f64 / all);
        row.shapes.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.shape.cmp(&b.shape)));
    }
    rows.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.codelet.cmp(&b.codelet)));
    rows
}
