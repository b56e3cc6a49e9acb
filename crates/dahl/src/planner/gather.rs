//! Cutting ops alike and gathering chains of them.

use super::grain::{Gather, Grain};
use super::shares::{deal, least};
use super::stages::Stages;
use crate::graph::{Graph, Kind, Node, Root};
use crate::ops::{Metas, split};
use crate::plan::{Group, ProgramPlacement};
use crate::units::{NodeId, ValueId, WorkerId};
use dahl_kernels::{Piece, Region};

/// Below this many floating-point operations or bytes a piece, an op that is
/// not over samples stays whole.
const SMALL: u64 = 1 << 14;

/// Single pieces are gathered until they have touched this much.
const SINGLE_BYTES: usize = 64 << 10;

/// A node with its cuts and what each piece touches.
struct Cut {
    node: NodeId,
    cuts: Vec<(usize, usize)>,
    /// By piece: value, region of its root, whether it is written.
    touches: Vec<Vec<(ValueId, Region, bool)>>,
    flops: u64,
    bytes: usize,
    /// The stage of its layer.
    stage: usize,
}

/// The placement of one program: cuts of one grain, chains gathered.
pub fn place(graph: &Graph, grain: &Grain) -> ProgramPlacement {
    let roots = graph.roots();
    let samples = graph.inputs().next().and_then(|(_, v)| v.meta.shape.axes().first().copied());
    let stages = Stages::of(graph, grain.layer);
    let mut open: Vec<Vec<Cut>> = Vec::new();
    let mut placed: Vec<Vec<Cut>> = Vec::new();
    for id in graph.node_ids() {
        let node = graph.node(id);
        if node.op.view().is_some() {
            continue;
        }
        let cut = Cut { stage: stages.of_node(node), ..cut(graph, &roots, id, grain, samples) };
        if grain.gather == Gather::Off {
            placed.push(vec![cut]);
            continue;
        }
        // A chain stays open while nothing in between is needed; what does not
        // fit into it comes after it.
        let depends: Vec<bool> = open.iter().map(|group| depends_on(&cut, group)).collect();
        let last = depends.iter().rposition(|&d| d);
        let fits =
            (last.unwrap_or(0)..open.len()).find(|&g| gathers(&cut, &open[g], depends[g], grain));
        match fits {
            Some(g) => open[g].push(cut),
            None => open.push(vec![cut]),
        }
    }
    placed.append(&mut open);
    let mut load = vec![0u64; grain.workers];
    let groups = placed.into_iter().map(|group| {
        let pieces = group[0].touches.len();
        let flops: u64 = group.iter().map(|cut| cut.flops + cut.bytes as u64).sum();
        let own = stages.workers(group[0].stage, grain.workers);
        let workers: Vec<WorkerId> = if pieces == 1 {
            vec![least(flops, own, &grain.shares, &load)]
        } else {
            deal(pieces, own, &grain.shares)
        };
        workers.iter().for_each(|w| load[w.index()] += flops / pieces as u64);
        let nodes = group.iter().map(|cut| cut.node).collect();
        Group { nodes, cuts: group.into_iter().map(|cut| cut.cuts).collect(), workers }
    });
    ProgramPlacement { groups: groups.collect() }
}

fn cut(graph: &Graph, roots: &[Root], id: NodeId, grain: &Grain, samples: Option<usize>) -> Cut {
    let node = graph.node(id);
    let (inputs, outputs) = graph.metas(node);
    let metas = Metas { inputs: &inputs, outputs: &outputs };
    let whole = graph.whole(node);
    let flops = node.op.flops(metas, &whole).0;
    let bytes: usize = inputs.iter().chain(&outputs).map(|m| m.bytes()).sum();
    let offered = node.op.cuts(metas);
    let shape = outputs[0].shape;
    let mut cuts = Vec::new();
    let mut pieces: Vec<Region> = vec![whole.out];
    let big = flops.max(bytes as u64) / grain.sample.max(1) as u64 > SMALL;
    for (axis, count) in (0..shape.rank()).map(|axis| (axis, grain.of_axis(axis))) {
        let Some(offer) = offered.iter().find(|c| c.axis == axis) else { continue };
        if count < 2 || shape[axis] < 2 {
            continue;
        }
        let ranges = split(shape[axis], count, offer.align);
        // What flows over the batch is cut always, parameters and merges only
        // where it pays.
        let first = Piece { out: whole.out.with(axis, ranges[0].clone()), sum: whole.sum.clone() };
        if !big && !divides_batch(graph, node, &node.op.regions(metas, &first), samples) {
            continue;
        }
        cuts.push((axis, count));
        pieces = pieces
            .iter()
            .flat_map(|piece| ranges.iter().map(|range| piece.with(axis, range.clone())))
            .collect();
    }
    let touches = pieces.into_iter().map(|out| {
        let regions = node.op.regions(metas, &Piece { out, sum: whole.sum.clone() });
        let values = node.inputs.iter().chain(&node.outputs);
        let writes = node.inputs.iter().map(|_| false).chain(node.outputs.iter().map(|_| true));
        let mapped = values.zip(writes).zip(regions).map(|((&value, writes), region)| {
            let root = roots[value.index()].value;
            (root, graph.map_to_root(roots, value, &region).region(), writes)
        });
        mapped.collect()
    });
    Cut { node: id, cuts, touches: touches.collect(), flops, bytes, stage: 0 }
}

/// Whether a piece touches a part of the samples only, of some operand.
fn divides_batch(graph: &Graph, node: &Node, regions: &[Region], samples: Option<usize>) -> bool {
    let values = node.inputs.iter().chain(&node.outputs).map(|v| graph.value(*v));
    values.zip(regions).any(|(value, region)| {
        !matches!(value.kind, Kind::Persistent(_))
            && value.meta.shape.rank() > 0
            && Some(value.meta.shape[0]) == samples
            && *region != Region::full(&value.meta.shape)
    })
}

fn conflict(a: &[(ValueId, Region, bool)], b: &[(ValueId, Region, bool)]) -> bool {
    a.iter().any(|(v, region, writes)| {
        b.iter().any(|(w, other, writes_too)| {
            v == w && (*writes || *writes_too) && !region.is_empty() && region.overlaps(other)
        })
    })
}

/// Whether a node has to come after some node of a group.
fn depends_on(cut: &Cut, group: &[Cut]) -> bool {
    group
        .iter()
        .any(|other| cut.touches.iter().any(|a| other.touches.iter().any(|b| conflict(a, b))))
}

/// Whether a node can join a group: the same number of pieces, each of which
/// depends on nothing but its own piece of the group. Single pieces of little
/// work join whatever there is, and anything does on one worker.
fn gathers(cut: &Cut, group: &[Cut], depends: bool, grain: &Grain) -> bool {
    let pieces = cut.touches.len();
    if pieces != group[0].touches.len() || cut.stage != group[0].stage {
        return false;
    }
    if pieces == 1 {
        let so_far: usize = group.iter().map(|c| c.bytes).sum();
        return grain.used() == 1 || so_far + cut.bytes <= SINGLE_BYTES;
    }
    depends
        && group.iter().all(|other| {
            cut.touches.iter().enumerate().all(|(p, a)| {
                other.touches.iter().enumerate().all(|(q, b)| p == q || !conflict(a, b))
            })
        })
}
