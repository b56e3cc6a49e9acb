//! Moves between the memories of a plan.
//!
//! Along the reference order it is known exactly which boxes of a value are valid in which space:
//! a write makes its box valid in the writer's space and invalid in all others. What a task reads
//! and its space lacks is moved there before it, from the space that wrote it. Persistent values
//! are pushed to all their replicas behind their last write, and what is fetched goes to the
//! space that outputs are read from, so that the next step begins as this one did.

use super::placement::Placement;
use super::space::Replica;
use super::tasks::{Does, Move, Task, Use};
use crate::graph::{Graph, Kind, Root};
use crate::units::{SpaceId, ValueId, WorkerId};
use dahl_kernels::Region;
use std::collections::{BTreeMap, BTreeSet};

/// Pushes to a space leave together once they are so many bytes: one after the other would cost a
/// message each, all at the end would not overlap the backward pass.
const PUSH: usize = 4 << 20;

/// The tasks of a program with the moves that their spaces ask for, in the reference order.
///
/// Boxes that go the same way travel together as soon as the first of them is needed and all of
/// them are valid: the number of moves grows with the ways, not with ways times tensors.
pub(super) fn with_moves(
    graph: &Graph,
    roots: &[Root],
    tasks: Vec<Task>,
    placement: &Placement,
    replicas: &[Replica],
) -> Vec<Task> {
    let mut find = Find {
        placement,
        copies: copies(&tasks),
        valid: vec![Vec::new(); graph.values.len()],
        segments: vec![Vec::new()],
        needs: Vec::new(),
    };
    for (v, value) in graph.values.iter().enumerate().filter(|(v, _)| roots[*v].value.index() == *v)
    {
        let whole = Region::full(&value.meta.shape);
        match value.kind {
            Kind::Input => find.valid[v].extend(placement.loading().map(|s| (s, whole, 0))),
            Kind::Persistent(id) => {
                let own = replicas.iter().filter(|r| r.value == id);
                find.valid[v].extend(own.map(|r| (r.space, r.region, 0)));
            }
            Kind::Local => {}
        }
    }
    for task in tasks {
        find.add(task);
    }
    let end = find.segments.len();
    for replica in replicas {
        let is_it = |v: &usize| graph.values[*v].kind == Kind::Persistent(replica.value);
        for v in (0..graph.values.len()).filter(is_it) {
            find.need(v, &replica.region, (replica.space, end), true);
        }
    }
    for (_, value) in &graph.fetches {
        let root = roots[value.index()].value;
        let whole = Region::full(&graph.value(root).meta.shape);
        find.need(root.index(), &whole, (placement.output(), end), false);
    }
    let bytes = |v: ValueId, region: &Region| {
        region.elements().saturating_mul(graph.value(v).meta.dtype.size())
    };
    let mut moves = scheduled(find.needs, &bytes);
    let (mut all, mut group) = (Vec::new(), 0);
    for (slot, segment) in find.segments.into_iter().chain([Vec::new()]).enumerate() {
        let moves = moves.remove(&slot).unwrap_or_default();
        let pieces = moves.len();
        for (piece, of) in moves.into_iter().enumerate() {
            let lane = WorkerId::new(placement.workers + of.to.index());
            let (to, does) = (of.to, Does::Move(of));
            all.push(Task { does, group, piece, pieces, worker: lane, space: to, copy: false });
        }
        group += usize::from(pieces > 0);
        let tasks = !segment.is_empty();
        all.extend(segment.into_iter().map(|task| Task { group, ..task }));
        group += usize::from(tasks);
    }
    all
}

/// A box that a space needs from another.
struct Need {
    from: SpaceId,
    to: SpaceId,
    root: ValueId,
    region: Region,
    /// How many segments have to come before it is valid there.
    made: usize,
    /// The segment that it is needed in.
    at: usize,
    /// Whether it is needed only by the next step.
    push: bool,
}

/// Looks along the reference order for what is needed where.
struct Find<'a> {
    placement: &'a Placement,
    /// By group: the spaces that run it, where each does for itself.
    copies: BTreeMap<usize, BTreeSet<SpaceId>>,
    /// By value: spaces, the boxes that are valid there, and after how many segments they are.
    valid: Vec<Vec<(SpaceId, Region, usize)>>,
    /// Tasks that read nothing from other spaces that is made among them.
    segments: Vec<Vec<Task>>,
    needs: Vec<Need>,
}

impl Find<'_> {
    fn add(&mut self, task: Task) {
        let last = self.segments.last().and_then(|segment| segment.last());
        if last.is_some_and(|last| last.group != task.group) || self.reads_new(&task) {
            self.segments.push(Vec::new());
        }
        let at = self.segments.len() - 1;
        let copies = self.copies.get(&task.group).cloned().unwrap_or_default();
        let mut touches = Vec::new();
        task.touches(|space, root, region, usage| touches.push((space, root, *region, usage)));
        for (space, root, region, usage) in touches {
            if usage != Use::Write {
                self.need(root.index(), &region, (space, at), false);
            }
            if usage != Use::Read && !region.is_empty() {
                self.write(root.index(), &region, (space, at + 1), &copies);
            }
        }
        self.segments[at].push(task);
    }

    /// Whether a task reads from another space what was made in the segment that is open.
    fn reads_new(&self, task: &Task) -> bool {
        let (now, mut new) = (self.segments.len(), false);
        task.touches(|space, root, region, usage| {
            if usage != Use::Write && !new {
                let missing = self.missing(root.index(), region, space);
                new = self.sources(root.index(), missing, space).iter().any(|s| s.2 == now);
            }
        });
        new
    }

    /// What of a box is not valid in a space.
    fn missing(&self, root: usize, region: &Region, space: SpaceId) -> Vec<Region> {
        let mut missing = if region.is_empty() { Vec::new() } else { vec![*region] };
        for (_, valid, _) in self.valid[root].iter().filter(|(of, ..)| *of == space) {
            if missing.is_empty() {
                break;
            }
            missing = missing.iter().flat_map(|region| region.minus(valid)).collect();
        }
        missing
    }

    /// Where boxes are valid: of several spaces in the one that has had them for longest, which
    /// is the one that made them, of equals in a space of the same process.
    fn sources(
        &self,
        root: usize,
        missing: Vec<Region>,
        to: SpaceId,
    ) -> Vec<(SpaceId, Region, usize)> {
        if missing.is_empty() {
            return Vec::new();
        }
        let rank = |space: SpaceId| self.placement.spaces[space.index()].rank;
        let others = self.valid[root].iter().filter(|(space, ..)| *space != to);
        let mut others: Vec<_> = others.collect();
        others.sort_by_key(|(space, _, made)| (*made, rank(*space) != rank(to), *space));
        let (mut missing, mut found) = (missing, Vec::new());
        for (space, valid, made) in others {
            if missing.is_empty() {
                break;
            }
            let both = missing.iter().filter_map(|region| region.overlap(valid));
            found.extend(both.map(|region| (*space, region, *made)));
            missing = missing.iter().flat_map(|region| region.minus(valid)).collect();
        }
        found
    }

    /// Notes what a space lacks of a box. What is valid nowhere was never written, and is not
    /// read either: it lies in the box around what is.
    fn need(&mut self, root: usize, region: &Region, (to, at): (SpaceId, usize), push: bool) {
        let missing = self.missing(root, region, to);
        for (from, region, made) in self.sources(root, missing, to) {
            let root_id = ValueId::new(root);
            self.needs.push(Need { from, to, root: root_id, region, made, at, push });
            self.valid[root].push((to, region, at + 1));
        }
    }

    /// A box was written in a space: it is valid nowhere else but in spaces that have a copy of
    /// the task, which reads what the others do.
    fn write(
        &mut self,
        root: usize,
        region: &Region,
        (space, made): (SpaceId, usize),
        copies: &BTreeSet<SpaceId>,
    ) {
        let valid = &mut self.valid[root];
        for (of, there, since) in std::mem::take(valid) {
            if of != space && copies.contains(&of) {
                valid.push((of, there, since));
            } else {
                valid.extend(there.minus(region).into_iter().map(|left| (of, left, since)));
            }
        }
        valid.push((space, *region, made));
    }
}

/// The spaces of each group that several run for themselves.
fn copies(tasks: &[Task]) -> BTreeMap<usize, BTreeSet<SpaceId>> {
    let mut copies: BTreeMap<usize, BTreeSet<SpaceId>> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.copy) {
        copies.entry(task.group).or_default().insert(task.space);
    }
    copies
}

/// The moves, by how many segments come before them.
fn scheduled(
    needs: Vec<Need>,
    bytes: &dyn Fn(ValueId, &Region) -> usize,
) -> BTreeMap<usize, Vec<Move>> {
    let mut ways: BTreeMap<(SpaceId, SpaceId, bool), Vec<Need>> = BTreeMap::new();
    for need in needs {
        ways.entry((need.from, need.to, !need.push)).or_default().push(need);
    }
    let mut moves: BTreeMap<usize, Vec<Move>> = BTreeMap::new();
    for ((from, to, demanded), mut needs) in ways {
        let mut send = |slot: usize, needs: Vec<Need>| {
            let parts = needs.into_iter().map(|need| (need.root, need.region)).collect();
            moves.entry(slot).or_default().push(Move { from, to, parts: joined(parts) });
        };
        if demanded {
            needs.sort_by_key(|need| need.at);
            while let Some(slot) = needs.first().map(|need| need.at) {
                let (now, later) = needs.into_iter().partition(|need| need.made <= slot);
                send(slot, now);
                needs = later;
            }
        } else {
            needs.sort_by_key(|need| need.made);
            let mut sizes = 0;
            let mut bunch: Vec<Need> = Vec::new();
            for need in needs {
                let full = sizes >= PUSH && bunch.last().is_some_and(|last| last.made < need.made);
                if full {
                    send(bunch[bunch.len() - 1].made, std::mem::take(&mut bunch));
                    sizes = 0;
                }
                sizes += bytes(need.root, &need.region);
                bunch.push(need);
            }
            if let Some(last) = bunch.last().map(|need| need.made) {
                send(last, bunch);
            }
        }
    }
    moves
}

/// Boxes of one value that lie behind each other along the first axis as one.
fn joined(mut parts: Vec<(ValueId, Region)>) -> Vec<(ValueId, Region)> {
    parts.sort_by_key(|(root, region)| (*root, region.starts()));
    let mut all: Vec<(ValueId, Region)> = Vec::new();
    for (root, region) in parts {
        if let Some((last, before)) = all.last_mut()
            && *last == root
            && region.rank() > 0
            && before.range(0).end == region.range(0).start
            && (1..region.rank()).all(|axis| before.range(axis) == region.range(axis))
        {
            *before = before.with(0, before.range(0).start..region.range(0).end);
            continue;
        }
        all.push((root, region));
    }
    all
}
