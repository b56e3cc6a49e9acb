//! What the tasks of a plan do, for those who read traces.

use super::{Does, Edges, PlannedPrograms};
use crate::ops::Meta;
use crate::perf::Work;
use crate::trace::{Across, CodeletShape, Header, ProgramHeader, TaskWork, VERSION};
use crate::units::{ProgramId, SpaceId, TaskId};
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

impl PlannedPrograms {
    /// The header of traces of these programs; who runs them is still to be said. Of the edges
    /// from step to step it has those from the first to the second program of `across`.
    pub fn trace_header(&self, across: &[(ProgramId, ProgramId)]) -> Header {
        let (mut codelets, mut layers) = (Names::default(), Names::default());
        let mut known: BTreeMap<(u32, String), u32> = BTreeMap::new();
        let mut cells: Vec<CodeletShape> = Vec::new();
        let programs = self.expanded().programs.iter().zip(self.graphs()).enumerate().map(
            |(p, (program, graph))| {
                let work = graph.tasks.iter().zip(&graph.edges.preds).map(|(task, preds)| {
                    let mut count = |codelet: String, shape, flops, bytes, layer| {
                        let codelet = codelets.number(codelet);
                        let cell =
                            *known.entry((codelet, shape)).or_insert_with_key(|(_, shape)| {
                                cells.push(CodeletShape {
                                    codelet,
                                    shape: shape.clone(),
                                    flops,
                                    bytes,
                                });
                                cells.len() as u32 - 1
                            });
                        (cell, layers.number(layer))
                    };
                    let calls = match &task.does {
                        Does::Calls(calls) => calls
                            .iter()
                            .map(|call| {
                                let work = Work::of_node(&program.graph, call.node, &call.piece);
                                let codelet = format!("{}.{}", work.codelet, work.variant);
                                let (flops, bytes) = (work.features.flops, work.features.bytes);
                                let layer = program.graph.node(call.node).path.clone();
                                count(codelet, work.shape, flops, bytes, layer)
                            })
                            .collect(),
                        Does::Elsewhere => Vec::new(),
                        Does::Move(of) | Does::Send(of) | Does::Receive(of)
                            if self.placement.rank_of(of.from) != self.placement.rank_of(of.to) =>
                        {
                            // One message, whatever the number of boxes, which is sent by
                            // one rank and received by another.
                            let space = |s: SpaceId| &self.placement.spaces[s.index()];
                            let codelet = format!("move.{}-{}", space(of.from), space(of.to));
                            let bytes = of.bytes(&program.graph).0;
                            let shape = format!("{bytes} bytes in {} parts", of.parts.len());
                            let first = of.parts.first();
                            let layer = first.map_or(String::new(), |(root, _)| {
                                program.graph.value(*root).name.clone()
                            });
                            // The bytes count where they are sent.
                            let sent =
                                count(codelet.clone(), shape.clone(), 0, bytes, layer.clone());
                            let received =
                                count(codelet, format!("{shape}, received"), 0, 0, layer);
                            vec![sent, received]
                        }
                        Does::Move(of) | Does::Send(of) | Does::Receive(of) => of
                            .parts
                            .iter()
                            .map(|(root, region)| {
                                let value = program.graph.value(*root);
                                let bytes = region.elements() * value.meta.dtype.size();
                                let space = |s: SpaceId| &self.placement.spaces[s.index()];
                                let codelet = format!("move.{}-{}", space(of.from), space(of.to));
                                let shape = Meta { shape: region.shape(), ..value.meta };
                                let layer = value.name.clone();
                                count(codelet, shape.to_string(), 0, bytes as u64, layer)
                            })
                            .collect(),
                    };
                    let after = preds.iter().map(|pred| pred.0);
                    TaskWork { calls, after: after.collect() }
                });
                let work = work.collect();
                let tasks = (0..graph.tasks.len()).map(TaskId::new);
                let tasks = tasks.map(|t| graph.label(&program.graph, t)).collect();
                let own = across.iter().filter(|(_, after)| after.index() == p);
                let across = own.map(|&(before, after)| Across {
                    program: before.0,
                    waits: pairs(self.across(before, after)),
                });
                let across = across.filter(|across| !across.waits.is_empty()).collect();
                ProgramHeader { name: program.name.clone(), tasks, work, across }
            },
        );
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
}

/// Tasks, each with one that it waits for.
fn pairs(edges: &Edges) -> Vec<(u32, u32)> {
    let of = |(t, preds): (usize, &Vec<TaskId>)| -> Vec<(u32, u32)> {
        preds.iter().map(|pred| (t as u32, pred.0)).collect()
    };
    edges.preds.iter().enumerate().flat_map(of).collect()
}
