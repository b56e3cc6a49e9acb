//! Cutting ops alike and gathering chains of them.

use super::shares::{deal, least};
use super::spread::{How, Spread};
use super::{Gather, Grain};
use crate::graph::{Graph, Kind, Node, Phase, Root};
use crate::model::Stages;
use crate::ops::{Metas, parts, split};
use crate::plan::{AxisCut, Group, ProgramPlacement, pieces as pieces_of};
use crate::planner::pipeline::{even, flops};
use crate::units::{NodeId, ValueId, WorkerId};
use dahl_kernels::{Piece, Region};
use std::ops::Range;

/// Below this many floating-point operations or bytes per piece, an op that is
/// not over samples stays whole.
const SMALL: u64 = 1 << 14;

/// Single pieces are gathered until they have touched this much.
const SINGLE_BYTES: usize = 64 << 10;

/// A node with its cuts and what each piece touches.
struct Cut {
    node: NodeId,
    cuts: Vec<AxisCut>,
    /// Who runs the pieces, where that is given, and whether every space has all of them.
    given: Option<(Vec<WorkerId>, bool)>,
    /// By piece: value, region of its root, whether it is written.
    touches: Vec<Vec<(ValueId, Region, bool)>>,
    flops: u64,
    bytes: usize,
    /// The stage of its layer.
    stage: usize,
}

/// Nodes that are placed together, in an order in which they could run, and the workers
/// that they are placed on.
pub(crate) struct Batch {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) workers: Range<usize>,
}

/// The placement of one program: cuts of one grain, chains gathered.
pub fn place(graph: &Graph, grain: &Grain) -> ProgramPlacement {
    let stages = if grain.layer > 1 {
        even(graph, &vec![1.0; grain.layer], &flops)
    } else {
        Stages::default()
    };
    let mut load = vec![0u64; grain.workers];
    let on = |node: &Node| {
        let stage = if grain.layer > 1 { stages.of(&node.path) } else { 0 };
        (stage, stage * grain.workers / grain.layer..(stage + 1) * grain.workers / grain.layer)
    };
    let batches = by_part(graph);
    let groups =
        batches.iter().flat_map(|nodes| gather(graph, grain, (nodes, None), &on, &mut load));
    ProgramPlacement::new(groups.collect())
}

/// The placement of one program over several spaces, all of which share the batch.
pub(super) fn place_over(graph: &Graph, grain: &Grain, spread: &Spread<'_>) -> ProgramPlacement {
    let (how, order) = spread.of(graph);
    let mut load = vec![0u64; grain.workers];
    let on = |_: &Node| (0, 0..grain.workers);
    ProgramPlacement::new(gather(graph, grain, (&order, Some(&how)), &on, &mut load))
}

/// The placement of one program over the teams of several stages, a batch of nodes after the
/// other.
pub(super) fn place_batches_over(
    graph: &Graph,
    grain: &Grain,
    spread: &Spread<'_>,
    batches: &[Vec<NodeId>],
) -> ProgramPlacement {
    let (how, _) = spread.of(graph);
    let mut load = vec![0u64; grain.workers];
    let on = |node: &Node| (spread.stage(node), 0..grain.workers);
    let groups =
        batches.iter().flat_map(|nodes| gather(graph, grain, (nodes, Some(&how)), &on, &mut load));
    ProgramPlacement::new(groups.collect())
}

/// The nodes of a program, one part of the batch after the other; what follows from all of them
/// at the end.
pub(super) fn by_part(graph: &Graph) -> Vec<Vec<NodeId>> {
    let parts = graph.nodes.iter().map(|node| node.part + 1).max().unwrap_or(1);
    let part = |node: &Node| match node.phase {
        Phase::Update if parts > 1 => parts,
        _ => node.part,
    };
    let of = |wanted| {
        let own = |id: &NodeId| part(graph.node(*id)) == wanted;
        graph.node_ids().filter(own).collect()
    };
    (0..=parts).map(of).collect()
}

/// The placement of one program whose nodes are placed a batch after the other.
pub(crate) fn place_batches(graph: &Graph, grain: &Grain, batches: &[Batch]) -> ProgramPlacement {
    let mut load = vec![0u64; grain.workers];
    let groups = batches.iter().flat_map(|batch| {
        let workers = batch.workers.len();
        let own = Grain { sample: workers, layer: 1, shares: Vec::new(), ..grain.clone() };
        let own = Grain { workers, ..own };
        let on = |_: &Node| (0, batch.workers.clone());
        gather(graph, &own, (&batch.nodes, None), &on, &mut load)
    });
    ProgramPlacement::new(groups.collect())
}

/// Gathers some nodes to groups; where it is given how, they are cut and placed so. `on` says the
/// stage and the workers of a node.
fn gather(
    graph: &Graph,
    grain: &Grain,
    (nodes, how): (&[NodeId], Option<&[How]>),
    on: &dyn Fn(&Node) -> (usize, Range<usize>),
    load: &mut [u64],
) -> Vec<Group> {
    let (roots, samples) = (graph.roots(), samples(graph));
    let mut open: Vec<Vec<Cut>> = Vec::new();
    let nobody = vec![Vec::new(); graph.values.len()];
    let mut touched = Touched { readers: nobody.clone(), writers: nobody };
    for &id in nodes {
        let node = graph.node(id);
        if node.op.view().is_some() {
            continue;
        }
        let how = how.map(|how| &how[id.index()]);
        let cut = Cut { stage: on(node).0, ..cut(graph, (&roots, samples), (id, how), grain) };
        if grain.gather == Gather::Off {
            open.push(vec![cut]);
            continue;
        }
        // A chain stays open while nothing in between is needed; what does not
        // fit into it comes after it.
        let order = touched.order(&cut, &open);
        let last = order.iter().rposition(|&order| order != Order::Any).unwrap_or(0);
        let first = match node.phase {
            Phase::Recompute => last.max(behind_forward(graph, &cut, &open)),
            _ => last,
        };
        let fits = (first..open.len()).find(|&g| gathers(&cut, &open[g], order[g], grain));
        let group = fits.unwrap_or(open.len());
        if fits.is_none() {
            open.push(Vec::new());
        }
        touched.add(&cut, (group, open[group].len()));
        open[group].push(cut);
    }
    let groups = open.into_iter().map(|group| {
        let pieces = group[0].touches.len();
        let flops: u64 = group.iter().map(|cut| cut.flops + cut.bytes as u64).sum();
        let (_, own) = on(graph.node(group[0].node));
        let (workers, everywhere) = match &group[0].given {
            Some(given) => given.clone(),
            None if pieces == 1 => (vec![least(flops, own, &grain.shares, load)], false),
            None => (deal(pieces, own, &grain.shares), false),
        };
        workers.iter().for_each(|w| load[w.index()] += flops / pieces as u64);
        let mut group = group;
        group.sort_by_key(|cut| cut.node);
        let nodes = group.iter().map(|cut| cut.node).collect();
        let cuts = group.into_iter().map(|cut| cut.cuts).collect();
        Group { everywhere, ..Group::new(nodes, cuts, workers) }
    });
    groups.collect()
}

/// Why an op is cut along an axis, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is: what it computes flows over the batch.
    Batch,
    /// It is: a piece is worth a task of its own.
    Worth,
    /// It is not: the op does not offer the axis.
    NotOffered,
    /// It is not: there is one element, or one of what the variant's pieces are multiples of.
    Short,
    /// It is not: it does not flow over the batch, and a piece would be too small.
    Small,
}

impl Why {
    /// Whether it is cut.
    pub fn is_cut(self) -> bool {
        matches!(self, Why::Batch | Why::Worth)
    }
}

/// Along which axes a grain asks for an op to be cut, into how many pieces, and why it is or
/// is not.
pub fn why(graph: &Graph, node: &Node, grain: &Grain) -> Vec<(usize, usize, Why)> {
    why_of(graph, node, grain, samples(graph))
}

/// The axes behind the first that a grain cuts an op along, each with how many pieces.
pub(super) fn other_cuts(graph: &Graph, node: &Node, grain: &Grain) -> Vec<(usize, usize)> {
    let cuts =
        why(graph, node, grain).into_iter().filter(|(axis, _, why)| *axis > 0 && why.is_cut());
    cuts.map(|(axis, count, _)| (axis, count)).collect()
}

/// The samples of a program, which it takes a look at all its values to find.
fn samples(graph: &Graph) -> Option<usize> {
    graph.inputs().next().and_then(|(_, v)| v.meta.shape.axes().first().copied())
}

fn why_of(
    graph: &Graph,
    node: &Node,
    grain: &Grain,
    samples: Option<usize>,
) -> Vec<(usize, usize, Why)> {
    let (inputs, outputs) = graph.metas(node);
    let metas = Metas { inputs: &inputs, outputs: &outputs };
    let whole = graph.whole(node);
    let (flops, bytes) = size(graph, node);
    let big = flops.max(bytes as u64) / grain.sample.max(1) as u64 > SMALL;
    let (offered, shape) = (node.op.cuts(metas), outputs[0].shape);
    let asked = (0..shape.rank()).map(|axis| (axis, grain.of_axis(axis)));
    let decided = asked.filter(|(_, count)| *count > 1).map(|(axis, count)| {
        let Some(offer) = offered.iter().find(|c| c.axis == axis) else {
            return (axis, count, Why::NotOffered);
        };
        if shape[axis] < 2 {
            return (axis, count, Why::Short);
        }
        let ranges = split(shape[axis], count, offer.align);
        // What flows over the batch is cut always, parameters and merges only
        // where it pays.
        let first = Piece { out: whole.out.with(axis, ranges[0].clone()), sum: whole.sum.clone() };
        let why = match divides_batch(graph, node, &node.op.regions(metas, &first), samples) {
            true => Why::Batch,
            false if big => Why::Worth,
            false => Why::Small,
        };
        (axis, count, why)
    });
    decided.collect()
}

/// Into how many pieces a grain cuts the ops of a program, all together.
pub(super) fn pieces(graph: &Graph, grain: &Grain) -> usize {
    let samples = samples(graph);
    let of = |node: &Node| {
        let (inputs, outputs) = graph.metas(node);
        let offered = node.op.cuts(Metas { inputs: &inputs, outputs: &outputs });
        let cuts = why_of(graph, node, grain, samples).into_iter().filter(|of| of.2.is_cut());
        let counts = cuts.map(|(axis, count, _)| {
            let align = offered.iter().find(|c| c.axis == axis).map_or(1, |offer| offer.align);
            parts(outputs[0].shape[axis], count, align)
        });
        counts.fold(1, usize::saturating_mul)
    };
    let ops = graph.nodes.iter().filter(|node| node.op.view().is_none());
    ops.map(of).fold(0, usize::saturating_add)
}

/// Floating-point operations of a node, and bytes that it touches.
fn size(graph: &Graph, node: &Node) -> (u64, usize) {
    let (inputs, outputs) = graph.metas(node);
    (graph.flops_of(node).0, inputs.iter().chain(&outputs).map(|m| m.bytes()).sum())
}

fn cut(
    graph: &Graph,
    (roots, samples): (&[Root], Option<usize>),
    (id, how): (NodeId, Option<&How>),
    grain: &Grain,
) -> Cut {
    let node = graph.node(id);
    let (inputs, outputs) = graph.metas(node);
    let metas = Metas { inputs: &inputs, outputs: &outputs };
    let (flops, bytes) = size(graph, node);
    let cuts = match how {
        Some(how) => how.cuts.clone(),
        None => {
            let all = why_of(graph, node, grain, samples).into_iter();
            all.filter(|of| of.2.is_cut()).map(|(axis, count, _)| (axis, count).into()).collect()
        }
    };
    let given = how.map(|how| (how.workers.clone(), how.everywhere));
    let pieces = pieces_of(graph, node, &cuts).unwrap_or_default();
    let touches = pieces.into_iter().map(|piece| {
        let regions = node.op.regions(metas, &piece);
        let values = node.inputs.iter().chain(&node.outputs);
        let writes = node.inputs.iter().map(|_| false).chain(node.outputs.iter().map(|_| true));
        let mapped = values.zip(writes).zip(regions).map(|((&value, writes), region)| {
            let root = roots[value.index()].value;
            (root, graph.map_to_root(roots, value, &region).region(), writes)
        });
        mapped.collect()
    });
    Cut { node: id, cuts, given, touches: touches.collect(), flops, bytes, stage: 0 }
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

/// Where a node that runs again may join at the earliest, for what it makes is not to live
/// through the forward pass: the last group of as many pieces that is behind it.
fn behind_forward(graph: &Graph, cut: &Cut, open: &[Vec<Cut>]) -> usize {
    let behind = |c: &Cut| graph.node(c.node).phase != Phase::Forward;
    let alike = |group: &Vec<Cut>| group[0].touches.len() == cut.touches.len();
    open.iter().rposition(|g| alike(g) && g.iter().any(behind)).unwrap_or(open.len())
}

fn conflict(a: &[(ValueId, Region, bool)], b: &[(ValueId, Region, bool)]) -> bool {
    a.iter().any(|(v, region, writes)| {
        b.iter().any(|(w, other, writes_too)| {
            v == w && (*writes || *writes_too) && !region.is_empty() && region.overlaps(other)
        })
    })
}

/// Whether a node has to come after a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    /// It need not.
    Any,
    /// Each of its pieces after the same piece of the group.
    PieceByPiece,
    /// A piece after another one.
    Across,
}

/// The nodes that read and that write each value so far: their group and place in it. A node
/// has to come after none but those that touch what it touches.
struct Touched {
    readers: Vec<Vec<(usize, usize)>>,
    writers: Vec<Vec<(usize, usize)>>,
}

impl Touched {
    fn add(&mut self, cut: &Cut, place: (usize, usize)) {
        // All pieces touch the same values.
        for (value, _, writes) in cut.touches.iter().take(1).flatten() {
            let touching = if *writes { &mut self.writers } else { &mut self.readers };
            touching[value.index()].push(place);
        }
    }

    /// The order of a node and each group.
    fn order(&self, cut: &Cut, open: &[Vec<Cut>]) -> Vec<Order> {
        let mut order = vec![Order::Any; open.len()];
        for (value, _, writes) in cut.touches.iter().take(1).flatten() {
            let readers = &self.readers[value.index()][..];
            let readers = if *writes { readers } else { &[] };
            for &(group, at) in self.writers[value.index()].iter().chain(readers) {
                if order[group] != Order::Across {
                    order[group] = order[group].max(order_of(cut, &open[group][at]));
                }
            }
        }
        order
    }
}

fn order_of(cut: &Cut, other: &Cut) -> Order {
    let mut order = Order::Any;
    for (p, a) in cut.touches.iter().enumerate() {
        for (q, b) in other.touches.iter().enumerate() {
            if conflict(a, b) {
                if p != q {
                    return Order::Across;
                }
                order = Order::PieceByPiece;
            }
        }
    }
    order
}

/// Whether a node can join a group: the same number of pieces, each of which
/// depends on nothing but its own piece of the group. Single pieces of little
/// work join whatever there is, and anything does on one worker.
fn gathers(cut: &Cut, group: &[Cut], order: Order, grain: &Grain) -> bool {
    let pieces = cut.touches.len();
    let alike = cut.stage == group[0].stage && cut.given == group[0].given;
    if pieces != group[0].touches.len() || !alike {
        return false;
    }
    if pieces == 1 {
        let so_far = || group.iter().map(|c| c.bytes).sum::<usize>();
        return grain.used() == 1 || so_far() + cut.bytes <= SINGLE_BYTES;
    }
    order == Order::PieceByPiece
}
