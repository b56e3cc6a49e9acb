//! Which space has what, where several memories share a batch or the stages of a pipeline.
//!
//! The samples of the batch are dealt to the spaces of each team at bounds of shards, and every op
//! that flows over samples is cut there. The parameters of a team are dealt by rows, in the order
//! in which the backward pass ends with them: a space merges and updates its rows. Moving partial
//! sums to the owner of their rows, and updated rows to the team, is a reduce-scatter and an
//! all-gather. Activations and their gradients go from the team of a stage to that of the next.

use super::Grain;
use super::gather::other_cuts;
use super::teams::Teams;
use crate::graph::{Class, Graph, Kind, Node, Phase, Programs, Shards};
use crate::ops::{Metas, ViewMap, parts};
use crate::plan::{AxisCut, Pieces};
use crate::units::{NodeId, PersistentId, ValueId, WorkerId};
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
    teams: &'a Teams,
    shards: &'a Shards,
    rows: BTreeMap<PersistentId, (Owners, usize)>,
    buckets: usize,
}

/// What the indices of a first axis belong to.
#[derive(Clone)]
enum Dealt {
    /// The sample of each, of so many.
    Samples(Rc<[u32]>, usize),
    /// The space that owns each.
    Rows(Owners),
}

impl Dealt {
    /// The samples of a batch, or of a part of one.
    fn samples(length: usize) -> Self {
        Self::Samples((0..length as u32).collect(), length)
    }

    fn len(&self) -> usize {
        let (Self::Samples(of, _) | Self::Rows(of)) = self;
        of.len()
    }

    /// The same of other indices, each as that which `index` says.
    fn mapped(&self, count: usize, index: impl Fn(usize) -> usize) -> Option<Self> {
        let (Self::Samples(of, _) | Self::Rows(of)) = self;
        let of = (0..count).map(|i| of.get(index(i)).copied()).collect::<Option<_>>()?;
        Some(match self {
            Self::Samples(_, length) => Self::Samples(of, *length),
            Self::Rows(_) => Self::Rows(of),
        })
    }
}

impl<'a> Spread<'a> {
    pub(super) fn new(grain: &'a Grain, teams: &'a Teams, programs: &'a Programs) -> Self {
        let shards = &programs.shards;
        let mut spread = Self { grain, teams, shards, rows: BTreeMap::new(), buckets: 1 };
        for stage in 0..teams.count() {
            spread.add_parameters(stage, programs);
        }
        // States are dealt as the parameters that they are updated with.
        for graph in programs.programs.iter().map(|program| &program.graph) {
            for node in &graph.nodes {
                spread.add_states(graph, node);
            }
        }
        spread
    }

    /// The stage of a node.
    pub(super) fn stage(&self, node: &Node) -> usize {
        self.teams.stage(&node.path)
    }

    /// Deals the parameters of a stage to the spaces of its team.
    fn add_parameters(&mut self, stage: usize, programs: &Programs) {
        let own: Vec<u32> = self.teams.active(stage).map(|member| member.space).collect();
        let spaces = own.len();
        let store = &programs.store;
        let of_stage = |id: &PersistentId| self.teams.stage(&store.get(*id).name) == stage;
        let trained: Vec<PersistentId> =
            store.of_class(Class::Parameter).map(|(id, _)| id).filter(of_stage).collect();
        let bytes = |id: &PersistentId| store.get(*id).meta.bytes();
        let all: usize = trained.iter().map(bytes).sum();
        let ways = (spaces * (spaces - 1)).max(1);
        let buckets = (all / BUCKET).clamp(1, (MOST_EXCHANGES / ways).max(1));
        self.buckets = self.buckets.max(buckets);
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
                inside.min(spaces - 1)
            };
            let small = meta.bytes() < TOGETHER;
            // A tensor lies in one bucket; one that is larger is dealt evenly.
            let large = meta.bytes() > to - from;
            let of = |r: usize| match (small, large) {
                (true, _) => owner(before),
                (_, true) => r * spaces / count,
                _ => owner(before + r * row),
            };
            let mut owners: Vec<usize> = (0..count).map(of).collect();
            owners.sort_unstable();
            let owners: Owners = owners.into_iter().map(|member| own[member]).collect();
            self.rows.insert(*id, (owners, bucket));
            before += meta.bytes();
        }
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

    /// The spaces of what is dealt, in the team of a stage.
    fn owners(&self, stage: usize, dealt: &Dealt) -> Owners {
        let (samples, length) = match dealt {
            Dealt::Rows(owners) => return owners.clone(),
            Dealt::Samples(samples, length) => (samples, *length),
        };
        let ranges = self.teams.samples(stage, length, self.shards);
        let members = self.teams.team(stage).iter().zip(ranges);
        let of: Vec<u32> =
            members.flat_map(|(member, range)| range.map(move |_| member.space)).collect();
        samples.iter().map(|sample| of[*sample as usize]).collect()
    }

    /// How each node of a program is run, and the nodes in the order in which they are placed
    /// where all are of one team.
    pub(super) fn of(&self, graph: &Graph) -> (Vec<How>, Vec<NodeId>) {
        let plan = Program::new(self, graph);
        let mut dealt: Vec<Option<Dealt>> = vec![None; graph.values.len()];
        let mut everywhere = vec![false; graph.values.len()];
        let copies = graph.inputs().next().is_none();
        for (v, value) in graph.values.iter().enumerate() {
            match value.kind {
                Kind::Input => {
                    let length = value.meta.shape.axes().first().copied().unwrap_or(1);
                    dealt[v] = Some(Dealt::samples(length));
                }
                Kind::Persistent(id) => {
                    everywhere[v] = !copies;
                    let rows = self.rows.get(&id).filter(|_| copies);
                    dealt[v] = rows.map(|(rows, _)| Dealt::Rows(rows.clone()));
                }
                Kind::Local => {}
            }
        }
        let mut all = vec![How::default(); graph.nodes.len()];
        let mut bucket: Vec<Option<usize>> = vec![None; graph.nodes.len()];
        let (makers, roots) = (graph.makers(), graph.roots());
        for id in graph.node_ids() {
            let node = graph.node(id);
            let stage = self.teams.stage(&node.path);
            // What is made of parameters' rows waits with them.
            let makers = node.inputs.iter().filter_map(|v| makers[roots[v.index()].value.index()]);
            bucket[id.index()] = makers.filter_map(|maker| bucket[maker.index()]).max();
            if let Some(view) = node.op.view() {
                let (from, to) = (node.inputs[0].index(), node.outputs[0].index());
                everywhere[to] = everywhere[from];
                dealt[to] = plan.dealt_of_view(&dealt, &view, (from, to));
                continue;
            }
            let how = if plan.is_for_all(node, &everywhere) {
                node.outputs.iter().for_each(|v| everywhere[v.index()] = true);
                plan.in_all_spaces(stage)
            } else if let Some(of) = plan.flow(node, &dealt) {
                let how = plan.cut_at(node, stage, &self.owners(stage, &of));
                dealt[node.outputs[0].index()] = Some(of);
                how
            } else if let Some((rows, of_bucket)) = plan.wanted[node.outputs[0].index()].clone() {
                bucket[id.index()] = bucket[id.index()].max(Some(of_bucket));
                dealt[node.outputs[0].index()] = Some(Dealt::Rows(rows.clone()));
                plan.cut_at(node, stage, &rows)
            } else {
                if node.phase == Phase::Update {
                    bucket[id.index()] = Some(self.buckets - 1);
                }
                plan.whole(stage)
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

    fn dealt_of_view(
        &self,
        dealt: &[Option<Dealt>],
        view: &ViewMap,
        (from, to): (usize, usize),
    ) -> Option<Dealt> {
        let of = dealt[from].as_ref()?;
        let length = self.graph.values[to].meta.shape.axes().first().copied()?;
        match view {
            // A micro-batch is dealt as the batch is.
            ViewMap::Slice { .. } => Some(Dealt::samples(length)),
            ViewMap::Select { axis: 0, .. } => None,
            _ if length == of.len() => Some(of.clone()),
            _ => None,
        }
    }

    /// Whether every space of a team runs a node for itself: it reads what all have, and what it
    /// makes is used by all, or is one number.
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

    /// What the rows of a result belong to where it flows over what is dealt: as those of the
    /// first operand that each row reads a part of. What is made from nothing is dealt as samples
    /// are.
    fn flow(&self, node: &Node, dealt: &[Option<Dealt>]) -> Option<Dealt> {
        let out = self.graph.value(node.outputs[0]).meta.shape;
        let rows = out.axes().first().copied()?;
        if node.inputs.is_empty() {
            return Some(Dealt::samples(rows)).filter(|_| rows > 1);
        }
        let all = self.regions(node, 0..rows);
        let first = self.regions(node, 0..1);
        let at = node.inputs.iter().enumerate().position(|(i, v)| {
            let is_dealt = dealt[v.index()].is_some() && all[i].rank() > 0;
            is_dealt && (rows > 1 && first[i].range(0) != all[i].range(0))
        })?;
        let of = dealt[node.inputs[at].index()].as_ref()?;
        of.mapped(rows, |row| self.regions(node, row..row + 1)[at].range(0).start)
    }

    /// A node that is not cut, by the first worker of its team.
    fn whole(&self, stage: usize) -> How {
        let teams = self.spread.teams;
        let first = teams.active(stage).next().map_or(0, |member| member.space);
        How { workers: vec![teams.first(stage, first)], ..How::default() }
    }

    /// A node that each space of its team runs for itself.
    fn in_all_spaces(&self, stage: usize) -> How {
        let teams = self.spread.teams;
        let first = |space: u32| teams.first(stage, space);
        let workers: Vec<WorkerId> = teams.team(stage).iter().map(|m| first(m.space)).collect();
        How { everywhere: workers.len() > 1, workers, cuts: Vec::new() }
    }

    /// A node that is cut where the owner changes, and the rows of an owner among its workers.
    fn cut_at(&self, node: &Node, stage: usize, owners: &Owners) -> How {
        let (inputs, outputs) = self.graph.metas(node);
        let metas = Metas { inputs: &inputs, outputs: &outputs };
        let offered = node.op.cuts(metas);
        let teams = self.spread.teams;
        let Some(first) = offered.iter().find(|cut| cut.axis == 0) else {
            return How { workers: vec![teams.first(stage, owners[0])], ..How::default() };
        };
        let row = outputs[0].bytes() / owners.len();
        // The first row of each piece, its owner, and its place among the pieces of that.
        let mut pieces: Vec<(usize, u32, Range<usize>)> = Vec::new();
        let (mut from, mut longest) = (0, 0);
        for run in owners.chunk_by(|a, b| a == b) {
            // Small rows of parameters are not worth pieces of their own.
            let small = node.phase == Phase::Update && row * run.len() < TOGETHER;
            let starts: Vec<usize> = match small {
                true => vec![0],
                false => teams.pieces(stage, run[0], run.len()).iter().map(|p| p.start).collect(),
            };
            for (i, start) in starts.iter().enumerate() {
                let at = (from + start) / first.align * first.align;
                if pieces.last().is_none_or(|(before, ..)| at > *before) {
                    pieces.push((at, run[0], i..starts.len()));
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
        let mut others = other_cuts(self.graph, node, self.spread.grain);
        // Where a space has fewer rows than workers, another axis is cut for these.
        let each = teams.active(stage).map(|m| teams.count_of(stage, m.space)).max().unwrap_or(1);
        if others.is_empty() && longest < each && row * longest >= TOGETHER {
            let other = offered.iter().filter(|cut| cut.axis > 0);
            let other = other.max_by_key(|cut| outputs[0].shape[cut.axis]);
            others.extend(other.map(|cut| (cut.axis, each)));
        }
        let align =
            |axis: usize| offered.iter().find(|cut| cut.axis == axis).map_or(1, |c| c.align);
        let along =
            |&(axis, count): &(usize, usize)| parts(outputs[0].shape[axis], count, align(axis));
        let columns: usize = others.iter().map(along).product();
        cuts.extend(others.into_iter().map(AxisCut::from));
        let workers = pieces.iter().flat_map(|(_, owner, place)| {
            let dealt = teams.deal(stage, *owner, place.end * columns);
            dealt[place.start * columns..][..columns].to_vec()
        });
        How { workers: workers.collect(), cuts, everywhere: false }
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
