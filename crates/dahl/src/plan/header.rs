//! What the tasks of a plan do, for those who read traces.

use super::TaskGraph;
use crate::graph::Programs;
use crate::perf::Work;
use crate::trace::{Cell, Header, ProgramHeader, TaskWork, VERSION};
use crate::units::TaskId;
use std::collections::BTreeMap;

/// Numbers for names, in the order in which they come.
#[derive(Default)]
struct Names(BTreeMap<String, u32>, Vec<String>);

impl Names {
    fn number(&mut self, name: String) -> u32 {
        *self.0.entry(name).or_insert_with_key(|name| {
            self.1.push(name.clone());
            self.1.len() as u32 - 1
        })
    }
}

/// The header of traces of these programs; who runs them is still to be said.
pub fn trace_header(expanded: &Programs, graphs: &[TaskGraph]) -> Header {
    let (mut codelets, mut layers) = (Names::default(), Names::default());
    let mut known: BTreeMap<(u32, String), u32> = BTreeMap::new();
    let mut cells: Vec<Cell> = Vec::new();
    let programs = expanded.programs.iter().zip(graphs).map(|(program, graph)| {
        let work = graph.tasks.iter().zip(&graph.edges.preds).map(|(task, preds)| {
            let calls = task.calls.iter().map(|call| {
                let work = Work::of_node(&program.graph, call.node, &call.piece);
                let codelet = codelets.number(format!("{}.{}", work.codelet, work.variant));
                let layer = layers.number(program.graph.node(call.node).path.clone());
                let cell = *known.entry((codelet, work.shape)).or_insert_with_key(|(_, shape)| {
                    let (flops, bytes) = (work.features.flops, work.features.bytes);
                    cells.push(Cell { codelet, shape: shape.clone(), flops, bytes });
                    cells.len() as u32 - 1
                });
                (cell, layer)
            });
            let after = preds.iter().map(|pred| pred.0);
            TaskWork { calls: calls.collect(), after: after.collect() }
        });
        let work = work.collect();
        let tasks = (0..graph.tasks.len()).map(TaskId::new);
        let tasks = tasks.map(|t| graph.label(&program.graph, t)).collect();
        ProgramHeader { name: program.name.clone(), tasks, work }
    });
    let programs = programs.collect();
    let workers = 0;
    Header {
        dahl_trace: VERSION,
        workers,
        codelets: codelets.1,
        programs,
        cells,
        layers: layers.1,
        ..Header::default()
    }
}
