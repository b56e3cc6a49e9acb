//! What decides the grain, the place and the order.

use super::space::{Space, SpaceKind};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Programs};
use crate::ops::{Metas, parts, split};
use crate::units::{NodeId, SpaceId, WorkerId};
use dahl_kernels::{Piece, Region};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// Nodes that are cut alike and run one after the other in each task: task `i`
/// runs piece `i` of every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The nodes of the expanded graph, in order.
    pub nodes: Vec<NodeId>,
    /// How each node is cut along which axes of its first output. The pieces are the
    /// product, last axis fastest.
    pub cuts: Vec<Vec<AxisCut>>,
    /// The worker of each task in a static replay.
    pub workers: Vec<WorkerId>,
    /// Whether each space of the workers runs all pieces for itself: cheap ops whose results are
    /// large, or needed at once. Then `workers` has those of each space, one space after the
    /// other.
    pub everywhere: bool,
}

impl Group {
    /// Nodes with their cuts, and the worker of each piece.
    pub fn new(nodes: Vec<NodeId>, cuts: Vec<Vec<AxisCut>>, workers: Vec<WorkerId>) -> Self {
        Self { nodes, cuts, workers, everywhere: false }
    }

    /// How many spaces run all pieces for themselves; 1 where the pieces are shared.
    pub(crate) fn copies(&self, space_of: &[SpaceId]) -> usize {
        if !self.everywhere {
            return 1;
        }
        let space = |worker: &WorkerId| space_of.get(worker.index());
        self.workers.chunk_by(|a, b| space(a) == space(b)).count().max(1)
    }

    /// Whether the workers of a group that runs everywhere are equally many of each space.
    fn is_copied(&self, space_of: &[SpaceId]) -> bool {
        let pieces = self.workers.len() / self.copies(space_of);
        let space = |worker: &WorkerId| space_of[worker.index()];
        let spaces: Vec<SpaceId> = self.workers.iter().map(space).collect();
        let runs: Vec<&[SpaceId]> = spaces.chunk_by(|a, b| a == b).collect();
        runs.iter().all(|run| run.len() == pieces) && runs.is_sorted_by(|a, b| a[0] < b[0])
    }
}

/// How an op is cut along an axis of its first output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisCut {
    /// The axis.
    pub axis: usize,
    /// The pieces along it.
    pub into: Pieces,
}

/// Pieces along an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// So many nearly equal ones.
    Even(usize),
    /// Those that begin at 0 and at each of these.
    At(Vec<usize>),
}

impl From<(usize, usize)> for AxisCut {
    fn from((axis, count): (usize, usize)) -> Self {
        Self { axis, into: Pieces::Even(count) }
    }
}

impl AxisCut {
    /// The ranges of an axis of this length, of which pieces are multiples of `align`; what
    /// is expected where there are none.
    fn ranges(
        &self,
        length: usize,
        align: usize,
    ) -> std::result::Result<Vec<Range<usize>>, String> {
        let bounds = match &self.into {
            Pieces::Even(count) if parts(length, *count, align) > MOST_PIECES => {
                return Err(format!("at most {MOST_PIECES} pieces"));
            }
            Pieces::Even(count) => return Ok(split(length, *count, align)),
            Pieces::At(bounds) => bounds,
        };
        let inside = |&at: &usize| (1..length).contains(&at) && at.is_multiple_of(align);
        if bounds.is_empty() || !bounds.iter().all(inside) || !bounds.is_sorted_by(|a, b| a < b) {
            return Err(format!("growing multiples of {align} between 0 and {length}"));
        }
        let from = std::iter::once(0).chain(bounds.iter().copied());
        Ok(from.zip(bounds.iter().copied().chain([length])).map(|(a, b)| a..b).collect())
    }
}

/// `0/2`: axis 0 in two pieces; `0@21`: in those before and from 21 on.
impl fmt::Display for AxisCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.into {
            Pieces::Even(count) => write!(f, "{}/{count}", self.axis),
            Pieces::At(bounds) => {
                let bounds: Vec<String> = bounds.iter().map(usize::to_string).collect();
                write!(f, "{}@{}", self.axis, bounds.join(","))
            }
        }
    }
}

impl AxisCut {
    /// Reads what is printed.
    pub fn parse(text: &str) -> Option<Self> {
        let (axis, into) = match text.split_once('/') {
            Some((axis, count)) => (axis, Pieces::Even(count.parse().ok()?)),
            None => {
                let (axis, bounds) = text.split_once('@')?;
                let bounds = bounds.split(',').map(|at| at.parse().ok()).collect::<Option<_>>()?;
                (axis, Pieces::At(bounds))
            }
        };
        Some(Self { axis: axis.parse().ok()?, into })
    }
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
    /// The memories that they compute in.
    pub spaces: Vec<Space>,
    /// The memory of each worker.
    pub space_of: Vec<SpaceId>,
    /// The unit of a platform that each worker is meant for, by name; empty where the plan is for
    /// any.
    pub units: Vec<String>,
    /// How many steps each worker may have begun and not ended, where workers are stages of
    /// a pipeline and have memory of their own; empty where they are not.
    pub ahead: Vec<usize>,
    /// One entry a program.
    pub programs: Vec<ProgramPlacement>,
}

/// The most workers of a plan.
pub const MOST_WORKERS: usize = 1 << 16;

/// The most spaces of a plan: each has a list of all values.
pub(super) const MOST_SPACES: usize = 1 << 12;

/// The most pieces that the ops of a program are cut into, all together: how long it takes to
/// find edges and memory grows with their square.
pub const MOST_PIECES: usize = 1 << 16;

impl Placement {
    /// Workers that share their memory.
    pub fn new(workers: usize, programs: Vec<ProgramPlacement>) -> Self {
        let (spaces, space_of) = (vec![Space::host(0, 0)], vec![SpaceId(0); workers]);
        Self { workers, spaces, space_of, units: Vec::new(), ahead: Vec::new(), programs }
    }

    /// The spaces that inputs are loaded into: the first host memory of each process.
    pub fn loading(&self) -> impl Iterator<Item = SpaceId> {
        let first = |space: &Space| space.kind == SpaceKind::Host(0);
        let all = self.spaces.iter().enumerate().filter(move |(_, space)| first(space));
        all.map(|(s, _)| SpaceId::new(s))
    }

    /// The space that outputs are read from: the first.
    pub fn output(&self) -> SpaceId {
        SpaceId(0)
    }

    /// The rank of a space.
    pub fn rank_of(&self, space: SpaceId) -> u32 {
        self.spaces[space.index()].rank
    }

    /// How many ranks (processes) the spaces belong to: they are numbered from 0.
    pub fn ranks(&self) -> u32 {
        self.spaces.iter().map(|space| space.rank.saturating_add(1)).max().unwrap_or(1)
    }

    /// The lane of messages to a rank.
    pub fn sends_to(&self, rank: u32) -> WorkerId {
        WorkerId::new(self.lanes() + rank as usize)
    }

    /// The lane of messages from a rank.
    pub fn receives_from(&self, rank: u32) -> WorkerId {
        WorkerId::new(self.lanes() + (self.ranks() + rank) as usize)
    }

    /// How many lists there are in a static replay: one per worker, and where there are several
    /// spaces one for the moves to each.
    pub fn lanes(&self) -> usize {
        self.workers + if self.spaces.len() > 1 { self.spaces.len() } else { 0 }
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
        self.check_spaces()?;
        for (placement, program) in self.programs.iter().zip(&expanded.programs) {
            placement.check(&program.name, &program.graph, &self.space_of)?;
        }
        Ok(())
    }
}

impl Placement {
    fn check_spaces(&self) -> Result<()> {
        let wrong = |expected: String, found: String| Err(Error::plan("spaces", expected, found));
        if self.spaces.len() > MOST_SPACES {
            return wrong(format!("at most {MOST_SPACES} spaces"), self.spaces.len().to_string());
        }
        let names: BTreeSet<&Space> = self.spaces.iter().collect();
        if self.spaces.first() != Some(&Space::host(0, 0)) || names.len() < self.spaces.len() {
            let found: Vec<String> = self.spaces.iter().map(Space::to_string).collect();
            return wrong("host and other spaces, each once".to_owned(), found.join(", "));
        }
        let used: BTreeSet<usize> = self.space_of.iter().map(|space| space.index()).collect();
        // Inputs are loaded into the first host memory of a process though nobody computes there.
        let loads: BTreeSet<usize> = self.loading().map(|space| space.index()).collect();
        let all: BTreeSet<usize> = (0..self.spaces.len()).collect();
        if self.space_of.len() != self.workers
            || used.union(&loads).copied().collect::<BTreeSet<_>>() != all
        {
            let expected =
                format!("the spaces of {} workers, all of {}", self.workers, self.spaces.len());
            return wrong(expected, format!("{:?}", self.space_of));
        }
        if !self.units.is_empty() && self.units.len() != self.workers {
            let expected = format!("the units of {} workers", self.workers);
            return wrong(expected, format!("{:?}", self.units));
        }
        let hosts: BTreeSet<u32> =
            self.loading().map(|space| self.spaces[space.index()].rank).collect();
        if let Some(space) = self.spaces.iter().find(|space| !hosts.contains(&space.rank)) {
            return wrong(format!("a host memory of rank {}", space.rank), space.to_string());
        }
        let last = self.ranks() - 1;
        if hosts.len() != last as usize + 1 {
            let found: Vec<String> = hosts.iter().map(u32::to_string).collect();
            return wrong(format!("spaces of each rank from 0 to {last}"), found.join(", "));
        }
        Ok(())
    }
}

impl ProgramPlacement {
    /// Groups in the reference order.
    pub fn new(groups: Vec<Group>) -> Self {
        Self { groups }
    }

    fn check(&self, program: &str, graph: &Graph, space_of: &[SpaceId]) -> Result<()> {
        let workers = space_of.len();
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
            if let Some(worker) = group.workers.iter().find(|w| w.index() >= workers) {
                return Err(Error::plan(place, format!("one of {workers} workers"), worker));
            }
            let copies = group.copies(space_of);
            for (&id, cuts) in group.nodes.iter().zip(&group.cuts) {
                let Some(node) = graph.nodes.get(id.index()) else {
                    return Err(Error::plan(place, "a node of the graph", id));
                };
                placed[id.index()] += 1;
                let found = pieces(graph, node, cuts)
                    .map_err(|(expected, found)| Error::plan(&place, expected, found))?;
                if found.len() * copies != group.workers.len() {
                    let expected = format!("{} pieces of {id}", group.workers.len() / copies);
                    return Err(Error::plan(place, expected, found.len()));
                }
                all += found.len() * copies;
                if all > MOST_PIECES {
                    let expected = format!("at most {MOST_PIECES} pieces of all ops together");
                    return Err(Error::plan(place, expected, "more"));
                }
            }
            if group.everywhere && !group.is_copied(space_of) {
                let found = format!("{:?}", group.workers);
                return Err(Error::plan(place, "workers of each space in turn", found));
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
pub(crate) fn pieces(
    graph: &Graph,
    node: &Node,
    cuts: &[AxisCut],
) -> Result<Vec<Piece>, (String, String)> {
    let (inputs, outputs) = graph.metas(node);
    let offered = node.op.cuts(Metas { inputs: &inputs, outputs: &outputs });
    let whole = graph.whole(node);
    let mut pieces: Vec<Region> = vec![whole.out];
    for (i, of) in cuts.iter().enumerate() {
        let axis = of.axis;
        // A second cut of an axis would start from the whole of it again.
        if cuts[..i].iter().any(|before| before.axis == axis) {
            return Err(("each axis cut once".to_owned(), format!("axis {axis} again")));
        }
        let Some(cut) = offered.iter().find(|cut| cut.axis == axis) else {
            let axes: Vec<usize> = offered.iter().map(|cut| cut.axis).collect();
            let expected = format!("{} cut along one of the axes {axes:?}", node.op.name());
            return Err((expected, format!("axis {axis}")));
        };
        let ranges = of
            .ranges(outputs[0].shape[axis], cut.align)
            .map_err(|expected| (expected, of.to_string()))?;
        if pieces.len().saturating_mul(ranges.len()) > MOST_PIECES {
            let expected = format!("at most {MOST_PIECES} pieces");
            return Err((expected, format!("{} times {}", pieces.len(), ranges.len())));
        }
        pieces = pieces
            .iter()
            .flat_map(|piece| ranges.iter().map(|range| piece.with(axis, range.clone())))
            .collect();
    }
    Ok(pieces.into_iter().map(|out| Piece { out, sum: whole.sum.clone() }).collect())
}
