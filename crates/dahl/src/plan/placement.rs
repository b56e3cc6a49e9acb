//! What decides the grain, the place and the order.

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Programs};
use crate::ops::{Metas, parts, split};
use crate::units::{NodeId, WorkerId};
use dahl_kernels::{Piece, Region};

/// Nodes that are cut alike and run one after the other in each task: task `i`
/// runs piece `i` of every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The nodes of the expanded graph, in order.
    pub nodes: Vec<NodeId>,
    /// How each node is cut: into how many pieces along which axes of its
    /// first output. The pieces are the product, last axis fastest.
    pub cuts: Vec<Vec<(usize, usize)>>,
    /// The worker of each task in a static replay.
    pub workers: Vec<WorkerId>,
}

/// The placement of one program: its groups in the reference order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramPlacement {
    /// The groups, which hold every node but the views once.
    pub groups: Vec<Group>,
}

/// The placement of all programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How many workers there are.
    pub workers: usize,
    /// How many steps each worker may have begun and not ended, where workers are stages of
    /// a pipeline and have memory of their own; empty where they are not.
    pub ahead: Vec<usize>,
    /// One entry a program.
    pub programs: Vec<ProgramPlacement>,
}

/// The most workers of a plan.
pub const MOST_WORKERS: usize = 1 << 16;

/// The most pieces that the ops of a program are cut into, all together: how long it takes to
/// find edges and memory grows with their square.
pub const MOST_PIECES: usize = 1 << 16;

impl Placement {
    /// Workers that share their memory.
    pub fn new(workers: usize, programs: Vec<ProgramPlacement>) -> Self {
        Self { workers, ahead: Vec::new(), programs }
    }

    /// Checks that every node is placed once, on workers that exist, with cuts
    /// that its op offers.
    pub fn check(&self, expanded: &Programs) -> Result<()> {
        if !(1..=MOST_WORKERS).contains(&self.workers) {
            let expected = format!("1 to {MOST_WORKERS} workers");
            return Err(Error::plan("placement", expected, self.workers));
        }
        if !self.ahead.is_empty() && self.ahead.len() != self.workers || self.ahead.contains(&0) {
            let expected = format!("steps ahead, from 1 on, of {} workers", self.workers);
            return Err(Error::plan("placement", expected, format!("{:?}", self.ahead)));
        }
        if self.programs.len() != expanded.programs.len() {
            let expected = format!("{} programs", expanded.programs.len());
            return Err(Error::plan("placement", expected, self.programs.len()));
        }
        for (placement, program) in self.programs.iter().zip(&expanded.programs) {
            placement.check(&program.name, &program.graph, self.workers)?;
        }
        Ok(())
    }
}

impl ProgramPlacement {
    /// Groups in the reference order.
    pub fn new(groups: Vec<Group>) -> Self {
        Self { groups }
    }

    fn check(&self, program: &str, graph: &Graph, workers: usize) -> Result<()> {
        let mut placed = vec![0usize; graph.nodes.len()];
        let mut all = 0usize;
        for (g, group) in self.groups.iter().enumerate() {
            let place = format!("placement of {program:?}, group {g}");
            if group.nodes.is_empty() || group.cuts.len() != group.nodes.len() {
                return Err(Error::plan(place, "nodes, each with its cuts", group.nodes.len()));
            }
            // The calls of a task follow each other as the group says, which
            // no edge could set right.
            if !group.nodes.is_sorted_by(|a, b| a < b) {
                let found = format!("{:?}", group.nodes);
                return Err(Error::plan(place, "nodes in order", found));
            }
            for (&id, cuts) in group.nodes.iter().zip(&group.cuts) {
                let Some(node) = graph.nodes.get(id.index()) else {
                    return Err(Error::plan(place, "a node of the graph", id));
                };
                placed[id.index()] += 1;
                let found = pieces(graph, node, cuts)
                    .map_err(|(expected, found)| Error::plan(&place, expected, found))?;
                if found.len() != group.workers.len() {
                    let expected = format!("{} pieces of {id}", group.workers.len());
                    return Err(Error::plan(place, expected, found.len()));
                }
                all += found.len();
                if all > MOST_PIECES {
                    let expected = format!("at most {MOST_PIECES} pieces of all ops together");
                    return Err(Error::plan(place, expected, "more"));
                }
            }
            if let Some(worker) = group.workers.iter().find(|w| w.index() >= workers) {
                return Err(Error::plan(place, format!("one of {workers} workers"), worker));
            }
        }
        for id in graph.node_ids() {
            let expected = usize::from(graph.node(id).op.view().is_none());
            if placed[id.index()] != expected {
                let place = format!("placement of {program:?}, node {id}");
                return Err(Error::plan(
                    place,
                    format!("in {expected} groups"),
                    placed[id.index()],
                ));
            }
        }
        Ok(())
    }
}

/// The pieces of a node under some cuts, or what is wrong with the cuts.
pub(super) fn pieces(
    graph: &Graph,
    node: &Node,
    cuts: &[(usize, usize)],
) -> Result<Vec<Piece>, (String, String)> {
    let (inputs, outputs) = graph.metas(node);
    let offered = node.op.cuts(Metas { inputs: &inputs, outputs: &outputs });
    let whole = graph.whole(node);
    let mut pieces: Vec<Region> = vec![whole.out];
    for (i, &(axis, count)) in cuts.iter().enumerate() {
        // A second cut of an axis would start from the whole of it again.
        if cuts[..i].iter().any(|(before, _)| *before == axis) {
            return Err(("each axis cut once".to_owned(), format!("axis {axis} again")));
        }
        let Some(cut) = offered.iter().find(|cut| cut.axis == axis) else {
            let axes: Vec<usize> = offered.iter().map(|cut| cut.axis).collect();
            let expected = format!("{} cut along one of the axes {axes:?}", node.op.name());
            return Err((expected, format!("axis {axis}")));
        };
        let length = outputs[0].shape[axis];
        let parts = parts(length, count, cut.align);
        if pieces.len().saturating_mul(parts) > MOST_PIECES {
            let expected = format!("at most {MOST_PIECES} pieces");
            return Err((expected, format!("{} times {parts}", pieces.len())));
        }
        let ranges = split(length, count, cut.align);
        pieces = pieces
            .iter()
            .flat_map(|piece| ranges.iter().map(|range| piece.with(axis, range.clone())))
            .collect();
    }
    Ok(pieces.into_iter().map(|out| Piece { out, sum: whole.sum.clone() }).collect())
}
