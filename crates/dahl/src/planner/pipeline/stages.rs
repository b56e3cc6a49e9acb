//! Layers apart: which stage each belongs to.

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Phase};
use crate::model::Stages;

/// What a node costs, in any unit.
pub type NodeCost<'a> = dyn Fn(&Graph, &Node) -> f64 + 'a;

/// The floating-point operations of a node.
pub fn flops(graph: &Graph, node: &Node) -> f64 {
    graph.flops_of(node).0 as f64
}

/// The layers of a graph that stages can begin with, in the order of the forward pass.
pub(super) fn layer_paths(graph: &Graph) -> Vec<&str> {
    let mut paths: Vec<&str> = Vec::new();
    let own = |node: &&Node| node.phase == Phase::Forward && node.op.view().is_none();
    for node in graph.nodes.iter().filter(own).filter(|node| node.path != "loss") {
        if !paths.contains(&&*node.path) {
            paths.push(&node.path);
        }
    }
    paths
}

/// The layers of a graph, with what all their nodes cost.
fn layers<'a>(graph: &'a Graph, cost: &NodeCost<'_>) -> Vec<(&'a str, f64)> {
    let mut layers: Vec<(&str, f64)> =
        layer_paths(graph).into_iter().map(|path| (path, 0.0)).collect();
    for node in &graph.nodes {
        let own = |path: &str| {
            let below = node.path.strip_prefix(path);
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if let Some(layer) = layers.iter_mut().find(|(path, _)| own(path)) {
            layer.1 += cost(graph, node);
        }
    }
    layers
}

/// How many layers there are that stages can begin with.
pub fn layer_count(graph: &Graph) -> usize {
    layer_paths(graph).len()
}

/// Stages of layers that follow each other, of which the slowest takes the least time: one
/// for each speed, its cost divided by it.
pub fn even(graph: &Graph, speeds: &[f64], cost: &NodeCost<'_>) -> Stages {
    let layers = layers(graph, cost);
    let mut before = vec![0.0];
    for (_, cost) in &layers {
        before.push(before[before.len() - 1] + cost);
    }
    let count = layers.len();
    // The slowest of the first s stages, if they hold the first n layers; and where the
    // last of them begins.
    let mut best = vec![vec![(f64::INFINITY, 0usize); count + 1]; speeds.len() + 1];
    best[0][0].0 = 0.0;
    for (s, speed) in speeds.iter().enumerate() {
        for to in 0..=count {
            for from in 0..=to {
                let own = (before[to] - before[from]) / speed;
                let slowest = best[s][from].0.max(own);
                // Every stage has a layer, as long as there are enough.
                let empty = from == to && count >= speeds.len();
                if !empty && slowest < best[s + 1][to].0 {
                    best[s + 1][to] = (slowest, from);
                }
            }
        }
    }
    let mut stage_of = vec![0; count];
    let mut to = count;
    for s in (0..speeds.len()).rev() {
        let from = best[s + 1][to].1;
        stage_of[from..to].fill(s);
        to = from;
    }
    Stages::new(layers.iter().zip(stage_of).map(|((path, _), stage)| (*path, stage)))
}

/// Stages that begin with given layers, the first with the first layer.
///
/// # Errors
/// Where a layer is not there, or not behind the one before.
pub fn starting_with(graph: &Graph, starts: &[&str]) -> Result<Stages> {
    let layers = layer_paths(graph);
    let mut stage = 0;
    let mut left = starts;
    let under = |path: &str, name: &str| {
        path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let mut stages = Vec::new();
    for (i, path) in layers.iter().enumerate() {
        if let Some((next, rest)) = left.split_first()
            && under(path, next)
        {
            left = rest;
            if i > 0 {
                stage += 1;
            }
        }
        stages.push((*path, stage));
    }
    if let Some(wrong) = left.first() {
        let expected = format!("layers in their order, of {}", layers.join(", "));
        return Err(Error::config("stages", expected, format!("{wrong:?}")));
    }
    Ok(Stages::new(stages))
}
