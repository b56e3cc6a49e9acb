//! Layers apart: which workers a layer belongs to.

use crate::graph::{Graph, Node, Phase};
use crate::ops::Metas;
use std::collections::BTreeMap;
use std::ops::Range;

/// The stage of each layer, by its path.
pub(super) struct Stages {
    count: usize,
    of_path: BTreeMap<String, usize>,
}

impl Stages {
    /// `count` stages of layers that follow each other, of about equal work. What has
    /// no layer, such as the loss, is of the last.
    pub(super) fn of(graph: &Graph, count: usize) -> Self {
        let mut layers: Vec<(&str, f64)> = Vec::new();
        for node in graph.nodes.iter().filter(|node| node.phase == Phase::Forward) {
            let (inputs, outputs) = graph.metas(node);
            let metas = Metas { inputs: &inputs, outputs: &outputs };
            let work = node.op.flops(metas, &graph.whole(node)).0 as f64;
            match layers.iter_mut().find(|(path, _)| *path == node.path) {
                Some(layer) => layer.1 += work,
                None => layers.push((&node.path, work)),
            }
        }
        let whole: f64 = layers.iter().map(|(_, work)| work).sum();
        let mut before = 0.0;
        let of_path = layers.iter().map(|&(path, work)| {
            // Where the middle of its work lies.
            let middle = (before + work / 2.0) / whole.max(1.0);
            before += work;
            (path.to_owned(), ((middle * count as f64) as usize).min(count - 1))
        });
        Self { count, of_path: of_path.collect() }
    }

    pub(super) fn of_node(&self, node: &Node) -> usize {
        self.of_path.get(&node.path).copied().unwrap_or(self.count - 1)
    }

    /// The workers of a stage.
    pub(super) fn workers(&self, stage: usize, workers: usize) -> Range<usize> {
        stage * workers / self.count..(stage + 1) * workers / self.count
    }
}
