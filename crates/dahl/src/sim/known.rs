//! What a performance model knows, as costs and habits of a simulation.

use super::scenario::Habits;
use super::steps::{Cost, Costs};
use crate::graph::Graph;
use crate::perf::{Estimate, Key, PerfModel, Work};
use crate::plan::CallSpec;
use crate::units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// What calls take, as a model says.
#[derive(Debug)]
pub struct Known<'a> {
    model: &'a PerfModel,
    /// Pieces of the same shape are asked for again and again.
    calls: BTreeMap<Key, Option<Cost>>,
}

impl<'a> Known<'a> {
    /// What a model knows.
    pub fn new(model: &'a PerfModel) -> Self {
        Self { model, calls: BTreeMap::new() }
    }
}

impl Costs for Known<'_> {
    fn call(&mut self, graph: &Graph, call: &CallSpec, kind: &str) -> Option<Cost> {
        let work = Work::of_node(graph, call.node, &call.piece);
        let estimate = |key: &Key| self.model.estimate(key, work.features).as_ref().map(cost);
        *self.calls.entry(work.key(kind)).or_insert_with_key(estimate)
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
