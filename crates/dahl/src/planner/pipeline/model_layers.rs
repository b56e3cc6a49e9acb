//! The layers of a model, with what they take on the units of a platform.

use super::platform_units::Machinery;
use super::stages::layer_paths;
use crate::error::{Error, Result};
use crate::graph::{Class, Node, Phase};
use crate::model::Stages;
use crate::perf::PerfModel;
use crate::plan::PlannedPrograms;
use crate::platform::Platform;
use crate::sim::{Costs, Known, Where};
use crate::units::ProgramId;
use dahl_certify::Layer;
use std::collections::BTreeMap;

/// The layers of the first program, by a plan that cuts nothing. A layer is what stages can
/// begin with; what has none of its own, such as the loss, is of the last.
///
/// # Errors
/// Where nobody knows what a call takes on a unit.
pub fn layers(
    planned: &PlannedPrograms,
    (platform, machines): (&Platform, &Machinery),
    known: &PerfModel,
) -> Result<Vec<Layer>> {
    let (graph, tasks) = planned.program(ProgramId(0));
    let paths = layer_paths(graph);
    if paths.is_empty() {
        return Err(Error::config("model", "a layer", "none"));
    }
    let place = Stages::new(paths.iter().enumerate().map(|(i, path)| (*path, i)));
    let mut layers: Vec<Layer> = paths
        .iter()
        .map(|path| Layer {
            name: (*path).to_owned(),
            seconds: vec![0.0; machines.units.len()],
            output_bytes: 0.0,
            parameter_bytes: 0.0,
            inputs: Vec::new(),
        })
        .collect();
    let mut costs = Known::new(known);
    let mut types = Vec::new();
    for declared in &machines.declared {
        let (kind, unit) = declared[0];
        let node = &platform.nodes[kind];
        types.push((&node.units[unit], &node.memories[node.units[unit].memory]));
    }
    for call in tasks.tasks.iter().flat_map(|task| task.calls()) {
        let node = graph.node(call.node);
        let layer = &mut layers[place.of(&node.path)];
        for (seconds, (unit, memory)) in layer.seconds.iter_mut().zip(&types) {
            let on = Where { isa: planned.numerics.isa, unit, memory };
            let cost = costs.call(graph, call, &on).ok_or_else(|| {
                let what = format!("{} {:?} on {}", node.op.name(), node.path, unit.name);
                let expected = "times by dahl calibrate, or flops of the unit";
                Error::platform(what, expected, "neither")
            })?;
            *seconds += cost.nanos / 1e9 / unit.speed.value;
        }
    }
    for (_, parameter) in planned.expanded().store.of_class(Class::Parameter) {
        layers[place.of(&parameter.name)].parameter_bytes += parameter.meta.bytes() as f64;
    }
    let (makers, roots) = (graph.makers(), graph.roots());
    // What each layer passes on, once for each value.
    let mut passed: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    // A view passes nothing on: who reads it reads what it looks at.
    let computes = |node: &&Node| node.phase == Phase::Forward && node.op.view().is_none();
    for node in graph.nodes.iter().filter(computes) {
        let to = place.of(&node.path);
        for input in &node.inputs {
            let root = roots[input.index()].value;
            let Some(maker) = makers[root.index()] else { continue };
            let from = place.of(&graph.node(maker).path);
            if from < to {
                passed.insert((from, root.index()), graph.value(root).meta.bytes() as f64);
                if !layers[to].inputs.contains(&from) {
                    layers[to].inputs.push(from);
                }
            }
        }
    }
    passed.into_iter().for_each(|((from, _), bytes)| layers[from].output_bytes += bytes);
    layers.iter_mut().for_each(|layer| layer.inputs.sort_unstable());
    Ok(layers)
}
