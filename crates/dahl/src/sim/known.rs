//! What a performance model knows, as costs and engine_model of a simulation.

use super::scenario::EngineModel;
use super::steps::{Cost, Costs, Where};
use crate::graph::Graph;
use crate::perf::{Estimate, Features, Key, PerfModel, Profile, Work, cpu_kind};
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
    fn copy(&mut self, bytes: Bytes) -> Option<Nanos> {
        let copies = self.model.copies?;
        Some(Nanos(copies.nanos(bytes).round() as u64))
    }

    fn call(&mut self, graph: &Graph, call: &CallSpec, on: &Where<'_>) -> Option<Cost> {
        let work = Work::of_node(graph, call.node, &call.piece);
        // Processors run the kernels of the plan's instruction set, whatever else they have.
        let own = cpu_kind(on.isa);
        let kinds: &[&str] = match on.unit.kind.starts_with("cpu") {
            true => &[&own, &on.unit.kind],
            false => &[&on.unit.kind],
        };
        let known = kinds.iter().find_map(|kind| {
            let estimate = |key: &Key| self.model.estimate(key, work.features).as_ref().map(cost);
            *self.calls.entry(work.key(kind)).or_insert_with_key(estimate)
        });
        known.or_else(|| profile(on, work.features))
    }
}

/// What a unit takes that was never calibrated: the roofline of its own figures.
fn profile(on: &Where<'_>, features: Features) -> Option<Cost> {
    let profile = Profile { flops: on.unit.flops?.value, bandwidth: on.memory.bandwidth.value };
    let estimate = profile.estimate(features);
    // These are the unit's own figures; costs are those at a speed of 1.
    Some(cost(&Estimate { nanos: estimate.nanos * on.unit.speed.value, ..estimate }))
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

impl EngineModel {
    /// Those of the native engine, as a model has measured them.
    pub fn measured(model: &PerfModel) -> Self {
        let Some(overheads) = model.overheads else { return Self::default() };
        let nanos = |ns: f64| Nanos(ns.round() as u64);
        let hop = overheads.hop_ns.unwrap_or(0.0);
        Self {
            overhead: nanos(overheads.overhead_ns),
            hop: nanos(hop),
            lane_hop: nanos(model.copies.map_or(hop, |copies| copies.hop_ns)),
            spin: nanos(overheads.spin_ns),
            ..Self::default()
        }
    }
}
