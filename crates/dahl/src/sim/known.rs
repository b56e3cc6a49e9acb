//! What a performance model knows, as costs and habits of a simulation.

use super::scenario::Habits;
use super::steps::Cost;
use crate::graph::Graph;
use crate::perf::{Estimate, Key, PerfModel, Work};
use crate::plan::CallSpec;
use crate::units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// What calls take, as a model says; `None` for what it knows nothing of.
pub fn costs(model: &PerfModel) -> impl FnMut(&Graph, &CallSpec, &str) -> Option<Cost> {
    // Pieces of the same shape are asked for again and again.
    let mut known: BTreeMap<Key, Option<Cost>> = BTreeMap::new();
    move |graph, call, kind| {
        let work = Work::of_node(graph, call.node, &call.piece);
        let key = work.key(kind);
        *known
            .entry(key)
            .or_insert_with_key(|key| model.estimate(key, work.features).as_ref().map(cost))
    }
}

fn cost(estimate: &Estimate) -> Cost {
    Cost {
        nanos: estimate.nanos,
        spread: estimate.spread,
        doubt: estimate.error,
        // What was never measured beside others is taken to leave them alone.
        traffic: estimate.traffic.unwrap_or(Bytes(0)),
        source: estimate.source,
    }
}

impl Habits {
    /// Those of the native engine, as a model has measured them.
    pub fn measured(model: &PerfModel) -> Self {
        let Some(overheads) = model.overheads else { return Self::default() };
        let nanos = |ns: f64| Nanos(ns.round() as u64);
        Self {
            overhead: nanos(overheads.overhead_ns),
            hop: nanos(overheads.hop_ns.unwrap_or(0.0)),
            spin: nanos(overheads.spin_ns),
            ..Self::default()
        }
    }
}
