//! Which space has what, where a batch is shared by several memories.
//!
//! The samples of the batch are dealt to the spaces at bounds of shards, and every op that flows
//! over samples is cut there. Parameters are dealt by rows, in the order in which the backward
//! pass ends with them: a space merges and updates its rows. Moving partial sums to the owner of
//! their rows, and updated rows to everybody, is a reduce-scatter and an all-gather.

use super::Grain;
use crate::graph::{Class, Graph, Kind, Node, Phase, Programs, Shards};
use crate::ops::{Metas, ViewMap, parts, split};
use crate::plan::{AxisCut, Pieces};
use crate::units::{NodeId, PersistentId, SpaceId, ValueId, WorkerId};
use dahl_kernels::Piece;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// The space of each index of a first axis.
type Owners = Rc<[u32]>;

/// Rows of fewer bytes stay together: a message costs more than they are worth.
const TOGETHER: usize = 64 << 10;

/// Parameters are dealt in buckets of so many bytes, each to all spaces, so that the exchange of
/// one overlaps the backward pass of the next.
const BUCKET: usize = 8 << 20;

/// The most moves of a kind between spaces in a step: with many spaces buckets are larger.
const MOST_EXCHANGES: usize = 4096;

/// How a node is cut and who runs its pieces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct How {
    pub(super) cuts: Vec<AxisCut>,
    pub(super) workers: Vec<WorkerId>,
    pub(super) everywhere: bool,
}

/// Who owns the rows of each persistent value, for all programs.
pub(super) struct Spread<'a> {
    grain: &'a Grain,
    shards: &'a Shards,
    rows: BTreeMap<PersistentId, (Owners, usize)>,
    buckets: usize,
}

impl<'a> Spread<'a> {
    pub(super) fn new(grain: &'a Grain, programs: &'a Programs) -> Self {
        let spaces = grain.spaces;
        let store = &programs.store;
        let trained: Vec<PersistentId> =
            store.of_class(Class::Parameter).map(|(id, _)| id).collect();
        let bytes = |id: &PersistentId| store.get(*id).meta.bytes();
        let all: usize = trained.iter().map(bytes).sum();
        let ways = (spaces * (spaces - 1)).max(1);
        let buckets = (all / BUCKET).clamp(1, (MOST_EXCHANGES / ways).max(1));
        let mut rows: BTreeMap<PersistentId, (Owners, usize)> = BTreeMap::new();
        // The last layers' gradients come first.
        let mut before = 0usize;
        for id in trained.iter().rev() {
            let meta = store.get(*id).meta;
            let count = meta.shape.axes().first().copied().unwrap_or(1).max(1);
            let row = meta.bytes() / count;
            let bucket_of = |at: usize| (at * buckets / all.max(1)).min(buckets - 1);
            let bucket = bucket_of(before);
            let (from, to) = (bucket * all / buckets, (bucket + 1) * all / buckets);
            let owner = |at: usize| {
                let inside = at.saturating_sub(from) * spaces / (to - from).max(1);
                inside.min(spaces - 1) as u32
            };
            let small = meta.bytes() < TOGETHER;
            // A tensor lies in one bucket; one that is larger is dealt evenly.
            let large = meta.bytes() > to - from;
            let of = |r: usize| match (small, large) {
                (true, _) => owner(before),
                (_, true) => (r * spaces / count) as u32,
                _ => owner(before + r * row),
            };
            let mut owners: Vec<u32> = (0..count).map(of).collect();
            owners.sort_unstable();
            rows.insert(*id, (owners.into(), bucket));
            before += meta.bytes();
        }
        let mut spread = Self { grain, shards: &programs.shards, rows, buckets };
        // States are dealt as the parameters that they are updated with.
        for graph in programs.programs.iter().map(|program| &program.graph) {
            for node in &graph.nodes {
                spread.add_states(graph, node);
            }
        }
        spread
    }

    fn add_states(&mut self, graph: &Graph, node: &Node) {
        let persistent = |v: &ValueId| match graph.value(*v).kind {
            Kind::Persistent(id) => Some((id, graph.value(*v).meta.shape)),
            _ => None,
        };
        let touched = node.outputs.iter().chain(&node.inputs).filter_map(persistent);
        let known =
            touched.clone().find_map(|(id, shape)| Some((self.rows.get(&id)?.clone(), shape)));
        let Some((rows, shape)) = known else { return };
        for (id, own) in node.outputs.iter().filter_map(persistent) {
            if own == shape {
                self.rows.entry(id).or_insert_with(|| rows.clone());
            }
        }
    }

    /// The samples of each space among so many: at bounds of shards, where there are enough.
    fn samples(&self, length: usize) -> Vec<Range<usize>> {
        let spaces = self.grain.spaces;
        let shards = self.shards.split(length);
        let bound = |space: usize| match shards.len() >= spaces {
            true => shards.get(space * shards.len() / spaces).map_or(length, |shard| shard.start),
            false => space * length / spaces,
        };
        (0..spaces).map(|s| bound(s)..if s + 1 < spaces { bound(s + 1) } else { length }).collect()
    }

    fn owners_of_samples(&self, length: usize) -> Owners {
        let ranges = self.samples(length).into_iter().enumerate();
        ranges.flat_map(|(space, range)| range.map(move |_| space as u32)).collect()
    }

    /// How each node of a program is run, and the nodes in the order in which they are placed.
    pub(super) fn of(&self, graph: &Graph) -> (Vec<How>, Vec<NodeId>) {
        let plan = Program::new(self, graph);
        let mut owners: Vec<Option<Owners>> = vec![None; graph.values.len()];
        let mut everywhere = vec![false; graph.values.len()];
        let copies = graph.inputs().next().is_none();
        for (v, value) in graph.values.iter().enumerate() {
            match value.kind {
                Kind::Input => {
                    let length = value.meta.shape.axes().first().copied().unwrap_or(1);
                    owners[v] = Some(self.owners_of_samples(length));
                }
                Kind::Persistent(id) => {
                    everywhere[v] = !copies;
                    owners[v] = self.rows.get(&id).filter(|_| copies).map(|(rows, _)| rows.clone());
                }
                Kind::Local => {}
            }
        }
        let mut all = vec![How::default(); graph.nodes.len()];
        let mut bucket: Vec<Option<usize>> = vec![None; graph.nodes.len()];
        let (makers, roots) = (graph.makers(), graph.roots());
        for id in graph.node_ids() {
            let node = graph.node(id);
            // What is made of parameters' rows waits with them.
            let makers = node.inputs.iter().filter_map(|v| makers[roots[v.index()].value.index()]);
            bucket[id.index()] = makers.filter_map(|maker| bucket[maker.index()]).max();
            if let Some(view) = node.op.view() {
                let (from, to) = (node.inputs[0].index(), node.outputs[0].index());
                everywhere[to] = everywhere[from];
                owners[to] = plan.owners_of_view(&owners, &view, (from, to));
                continue;
            }
            let how = if plan.is_for_all(node, &everywhere) {
                node.outputs.iter().for_each(|v| everywhere[v.index()] = true);
                plan.whole(true)
            } else if let Some(of) = plan.flow(node, &owners) {
                owners[node.outputs[0].index()] = Some(of.clone());
                plan.cut_at(node, &of)
            } else if let Some((rows, of_bucket)) = plan.wanted[node.outputs[0].index()].clone() {
                bucket[id.index()] = bucket[id.index()].max(Some(of_bucket));
                owners[node.outputs[0].index()] = Some(rows.clone());
                plan.cut_at(node, &rows)
            } else {
                if node.phase == Phase::Update {
                    bucket[id.index()] = Some(self.buckets - 1);
                }
                plan.whole(false)
            };
            all[id.index()] = how;
        }
        (all, plan.order(&bucket))
    }
}

/// What is known of one program.
struct Program<'a> {
    spread: &'a Spread<'a>,
    graph: &'a Graph,
    /// By value: the rows of the parameter that it ends in.
    wanted: Vec<Option<(Owners, usize)>>,
    fetched: Vec<bool>,
}

impl<'a> Program<'a> {
    fn new(spread: &'a Spread<'a>, graph: &'a Graph) -> Self {
        let mut fetched = vec![false; graph.values.len()];
        graph.fetches.iter().for_each(|(_, v)| fetched[v.index()] = true);
        let mut program = Self { spread, graph, wanted: vec![None; graph.values.len()], fetched };
        for node in graph.nodes.iter().rev() {
            let out = node.outputs[0];
            if let Kind::Persistent(id) = graph.value(out).kind {
                program.wanted[out.index()] = spread.rows.get(&id).cloned();
            }
            let Some((rows, bucket)) = program.wanted[out.index()].clone() else { continue };
            // What is read row by row is wanted row by row.
            let regions = program.regions(node, 0..1);
            for (input, region) in node.inputs.iter().zip(&regions) {
                let value = graph.value(*input);
                let by_row = region.rank() > 0 && region.range(0) == (0..1);
                let alike = value.meta.shape.axes().first() == Some(&rows.len());
                if value.kind == Kind::Local && by_row && alike {
                    program.wanted[input.index()] = Some((rows.clone(), bucket));
                }
            }
        }
        program
    }

    /// What a range of the first axis of a node's result touches.
    fn regions(&self, node: &Node, rows: Range<usize>) -> Vec<dahl_kernels::Region> {
        let (inputs, outputs) = self.graph.metas(node);
        let metas = Metas { inputs: &inputs, outputs: &outputs };
        let whole = self.graph.whole(node);
        let out = if whole.out.rank() > 0 { whole.out.with(0, rows) } else { whole.out };
        node.op.regions(metas, &Piece { out, sum: whole.sum })
    }

    fn owners_of_view(
        &self,
        owners: &[Option<Owners>],
        view: &ViewMap,
        (from, to): (usize, usize),
    ) -> Option<Owners> {
        let of = owners[from].as_ref()?;
        let length = self.graph.values[to].meta.shape.axes().first().copied()?;
        match view {
            // A micro-batch is dealt as the batch is.
            ViewMap::Slice { .. } => Some(self.spread.owners_of_samples(length)),
            ViewMap::Select { axis: 0, .. } => None,
            _ if length == of.len() => Some(of.clone()),
            _ => None,
        }
    }

    /// Whether every space runs a node for itself: it reads what all have, and what it makes is
    /// used by all, or is one number.
    fn is_for_all(&self, node: &Node, everywhere: &[bool]) -> bool {
        let fetched = node.outputs.iter().any(|v| self.fetched[v.index()]);
        let one = |v: &ValueId| self.graph.value(*v).meta.shape.elements() == 1;
        let persistent = |v: &ValueId| matches!(self.graph.value(*v).kind, Kind::Persistent(_));
        let counts =
            node.outputs.iter().all(|v| one(v) && persistent(v)) && node.inputs.iter().all(one);
        let prepares = !node.inputs.is_empty()
            && node.inputs.iter().all(|v| everywhere[v.index()])
            && !node.outputs.iter().any(persistent);
        !fetched && (counts || prepares)
    }

    /// The owners of a result that flows over what is dealt: as the first operand is that each row
    /// reads a part of. Of what is made from nothing, as samples are.
    fn flow(&self, node: &Node, owners: &[Option<Owners>]) -> Option<Owners> {
        let out = self.graph.value(node.outputs[0]).meta.shape;
        let rows = out.axes().first().copied()?;
        if node.inputs.is_empty() {
            return Some(self.spread.owners_of_samples(rows)).filter(|_| rows > 1);
        }
        let all = self.regions(node, 0..rows);
        let first = self.regions(node, 0..1);
        let at = node.inputs.iter().enumerate().position(|(i, v)| {
            let dealt = owners[v.index()].is_some() && all[i].rank() > 0;
            dealt && (rows > 1 && first[i].range(0) != all[i].range(0))
        })?;
        let of = owners[node.inputs[at].index()].as_ref()?;
        let owner =
            |row: usize| of.get(self.regions(node, row..row + 1)[at].range(0).start).copied();
        (0..rows).map(owner).collect()
    }

    /// A node that is not cut: in every space, or by the first worker.
    fn whole(&self, everywhere: bool) -> How {
        let grain = self.spread.grain;
        let spaces = if everywhere { grain.spaces } else { 1 };
        let first = |space: usize| WorkerId::new(self.workers(space).start);
        How { cuts: Vec::new(), workers: (0..spaces).map(first).collect(), everywhere }
    }

    fn workers(&self, space: usize) -> Range<usize> {
        let grain = self.spread.grain;
        space * grain.workers / grain.spaces..(space + 1) * grain.workers / grain.spaces
    }

    /// A node that is cut where the owner changes, and the rows of an owner among its workers.
    fn cut_at(&self, node: &Node, owners: &Owners) -> How {
        let (inputs, outputs) = self.graph.metas(node);
        let metas = Metas { inputs: &inputs, outputs: &outputs };
        let offered = node.op.cuts(metas);
        let Some(first) = offered.iter().find(|cut| cut.axis == 0) else {
            return How { workers: vec![self.first_of(owners[0])], ..How::default() };
        };
        let each = self.spread.grain.sample.div_ceil(self.spread.grain.spaces);
        let row = outputs[0].bytes() / owners.len();
        // The first row of each piece, its owner, and its place among the pieces of that.
        let mut pieces: Vec<(usize, u32, Range<usize>)> = Vec::new();
        let (mut from, mut longest) = (0, 0);
        for run in owners.chunk_by(|a, b| a == b) {
            // Small rows of parameters are not worth pieces of their own.
            let small = node.phase == Phase::Update && row * run.len() < TOGETHER;
            let parts = split(run.len(), if small { 1 } else { each }, 1);
            for (i, part) in parts.iter().enumerate() {
                let at = (from + part.start) / first.align * first.align;
                if pieces.last().is_none_or(|(before, ..)| at > *before) {
                    pieces.push((at, run[0], i..parts.len()));
                }
            }
            from += run.len();
            longest = longest.max(run.len());
        }
        let mut cuts = Vec::new();
        if pieces.len() > 1 {
            let bounds = pieces[1..].iter().map(|(at, ..)| *at).collect();
            cuts.push(AxisCut { axis: 0, into: Pieces::At(bounds) });
        }
        // Where a space has fewer rows than workers, another axis is cut for these.
        let other = offered.iter().filter(|cut| cut.axis > 0);
        let other = other.max_by_key(|cut| outputs[0].shape[cut.axis]);
        let wide = longest < each && row * longest >= TOGETHER;
        let columns = match other.filter(|_| wide) {
            Some(cut) => {
                cuts.push((cut.axis, each).into());
                parts(outputs[0].shape[cut.axis], each, cut.align)
            }
            None => 1,
        };
        let worker = |owner: u32, i: usize, of: usize| {
            let own = self.workers(owner as usize);
            WorkerId::new(own.start + i * own.len() / of)
        };
        let workers = pieces.iter().flat_map(|(_, owner, place)| {
            (0..columns).map(move |column| match columns {
                1 => worker(*owner, place.start, place.end),
                _ => worker(*owner, column, columns),
            })
        });
        How { workers: workers.collect(), cuts, everywhere: false }
    }

    fn first_of(&self, space: u32) -> WorkerId {
        WorkerId::new(self.workers(space as usize).start)
    }

    /// The nodes with those that belong to a bucket of parameters behind the last of what they
    /// read: so that what goes one way goes at once.
    fn order(&self, bucket: &[Option<usize>]) -> Vec<NodeId> {
        let makers = self.graph.makers();
        let nodes: Vec<NodeId> = self.graph.node_ids().collect();
        let (mut order, mut placed) = (Vec::with_capacity(nodes.len()), vec![false; nodes.len()]);
        // The last node of others that each bucket waits for.
        let mut last = vec![0usize; self.spread.buckets];
        let roots = self.graph.roots();
        let made_by = |v: &ValueId| makers[roots[v.index()].value.index()];
        for id in &nodes {
            let Some(b) = bucket[id.index()] else { continue };
            let reads = self.graph.node(*id).inputs.iter().filter_map(made_by);
            let others = reads.filter(|maker| bucket[maker.index()].is_none());
            last[b] = others.map(|maker| maker.index()).max().unwrap_or(0).max(last[b]);
        }
        let mut waiting: Vec<NodeId> = Vec::new();
        let ready = |id: NodeId, placed: &[bool]| {
            self.graph.node(id).inputs.iter().filter_map(made_by).all(|m| placed[m.index()])
        };
        for (i, &id) in nodes.iter().enumerate() {
            if bucket[id.index()].is_some() {
                waiting.push(id);
            } else {
                placed[id.index()] = true;
                order.push(id);
            }
            let due = |w: &NodeId| bucket[w.index()].is_some_and(|b| last[b] <= i);
            if !waiting.iter().any(&due) {
                continue;
            }
            waiting.retain(|&w| {
                let now = due(&w) && ready(w, &placed);
                if now {
                    placed[w.index()] = true;
                    order.push(w);
                }
                !now
            });
        }
        order.extend(waiting);
        order
    }
}

/// The space of each worker, in even shares.
pub(super) fn space_of(grain: &Grain) -> Vec<SpaceId> {
    // The first worker of a space is the first that its range begins at.
    let start = |space: usize| space * grain.workers / grain.spaces;
    let of = |w: usize| (0..grain.spaces).rfind(|&space| start(space) <= w).unwrap_or(0);
    (0..grain.workers).map(of).map(SpaceId::new).collect()
}
