//! The boxes that values are stored as.

use super::placement::Placement;
use super::space::Replica;
use super::tasks::{Does, Task, Use};
use crate::graph::{Graph, Kind, Root};
use crate::units::{PersistentId, SpaceId, TaskId, ValueId, WorkerId};
use dahl_kernels::Region;
use std::collections::BTreeMap;
use std::ops::Range;

/// An index into [`Layout::storages`].
pub type StorageId = usize;

/// Which memory a storage belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// A slot that is filled from outside.
    Input,
    /// A slot that is read from outside.
    Output,
    /// The memory of values that outlive the step.
    Persistent(PersistentId),
    /// The memory that is reused within the step.
    Work,
}

/// A box of a value with bytes of its own.
///
/// A value whose tasks touch disjoint ranges of the first axis is stored as
/// those ranges, each with its own lifetime; any other as a whole.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The value.
    pub root: ValueId,
    /// The memory that it is in.
    pub space: SpaceId,
    /// The box of it.
    pub region: Region,
    /// The part of the memory it belongs to.
    pub home: Home,
    /// The bytes it needs.
    pub bytes: usize,
    /// From the first to the last group of tasks that touch it.
    pub life: Range<usize>,
    /// Where only one task touches it: that task's worker, and from the first
    /// to the last call.
    pub inner: Option<(WorkerId, Range<usize>)>,
    /// The tasks that touch it, in order, and how each touches it first.
    pub users: Vec<(TaskId, Use)>,
}

impl Storage {
    /// Whether the two may hold values at the same time. Tasks of one group
    /// run at the same time, unless they are on one worker; the calls of one
    /// task follow each other.
    pub fn coexists(&self, other: &Self) -> bool {
        let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
        match (&self.inner, &other.inner) {
            (Some((_, a)), Some((_, b))) if self.users[0].0 == other.users[0].0 => overlap(a, b),
            (Some((a, _)), Some((b, _))) if a == b => false,
            _ => overlap(&self.life, &other.life),
        }
    }
}

/// All storages of a program.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The storages, by space, then by value, then by box.
    pub storages: Vec<Storage>,
    /// By space, for each value, the range of its storages; empty for views.
    pub of_value: Vec<Vec<Range<StorageId>>>,
}

impl Layout {
    pub(super) fn of(
        graph: &Graph,
        roots: &[Root],
        tasks: &[Task],
        placement: &Placement,
        replicas: &[Replica],
    ) -> Self {
        let (spaces, values) = (placement.spaces.len(), graph.values.len());
        let mut fetched = vec![false; values];
        for (_, v) in &graph.fetches {
            fetched[roots[v.index()].value.index()] = true;
        }
        // The tasks that touch each value, with the range of its first axis.
        let mut touches: Vec<Vec<Vec<Touch>>> = vec![vec![Vec::new(); values]; spaces];
        for (i, task) in tasks.iter().enumerate() {
            let mut touch = |call, space: SpaceId, root: ValueId, region, usage| {
                let touch = Touch { task: TaskId::new(i), call, region, usage };
                touches[space.index()][root.index()].push(touch);
            };
            for (call, spec) in task.calls().iter().enumerate() {
                for operand in &spec.operands {
                    touch(call, task.space, operand.root, operand.root_region, operand.usage);
                }
            }
            if let Does::Move(of) = &task.does {
                for (call, (root, region)) in of.parts.iter().enumerate() {
                    touch(call, of.from, *root, *region, Use::Read);
                    touch(call, of.to, *root, *region, Use::Write);
                }
            }
        }
        // Not split where a view has another first axis.
        let mut alike = vec![true; values];
        for root in roots {
            let of = graph.value(root.value).meta.shape;
            alike[root.value.index()] &= root.views.iter().all(|v| {
                let view = graph.value(*v).meta.shape;
                let ranks = view.rank() > 0 && of.rank() > 0;
                ranks && view[0] == of[0] && view.elements() == of.elements()
            });
        }
        let mut layout = Self { storages: Vec::new(), of_value: vec![vec![0..0; values]; spaces] };
        for (s, touches) in touches.iter().enumerate() {
            let space = SpaceId::new(s);
            let own: BTreeMap<PersistentId, Region> = replicas
                .iter()
                .filter(|replica| replica.space == space)
                .map(|replica| (replica.value, replica.region))
                .collect();
            let loads = placement.loading().any(|loading| loading == space);
            for (v, touches) in touches.iter().enumerate() {
                if roots[v].value.index() != v {
                    continue;
                }
                let value = &graph.values[v];
                let mut whole = Region::full(&value.meta.shape);
                let home = match value.kind {
                    Kind::Input if loads => Home::Input,
                    Kind::Persistent(id) if let Some(rows) = own.get(&id) => {
                        whole = *rows;
                        Home::Persistent(id)
                    }
                    Kind::Local if fetched[v] && space == placement.output() => Home::Output,
                    _ => Home::Work,
                };
                // Each process has its inputs, and other spaces what they touch.
                if touches.is_empty() && (home == Home::Work || s > 0) {
                    continue;
                }
                let splits = home == Home::Work && alike[v] && value.meta.shape.rank() > 0;
                let parts = if splits { components(touches) } else { Vec::new() };
                if spaces > 1 && home == Home::Work && whole.rank() > 0 {
                    // A space has no more rows than it touches.
                    let touched = touches.iter().map(|t| t.region).filter(|r| !r.is_empty());
                    let rows = touched.reduce(|a, b| a.cover(&b)).map_or(0..0, |r| r.range(0));
                    whole = whole.with(0, rows);
                }
                let boxes: Vec<Region> = if parts.len() < 2 {
                    vec![whole]
                } else {
                    parts.into_iter().map(|range| whole.with(0, range)).collect()
                };
                let first = layout.storages.len();
                for region in boxes {
                    let bytes = region.elements() * value.meta.dtype.size();
                    let storage = storage(ValueId::new(v), region, home, touches, tasks);
                    layout.storages.push(Storage { bytes, space, ..storage });
                }
                layout.of_value[s][v] = first..layout.storages.len();
            }
        }
        layout
    }

    /// How many spaces there are.
    pub(super) fn spaces(&self) -> usize {
        self.of_value.len()
    }

    /// The storage that holds a region of a value.
    pub fn find(&self, space: SpaceId, root: ValueId, region: &Region) -> StorageId {
        let range = self.of_value[space.index()][root.index()].clone();
        let ids = range.clone();
        ids.clone().find(|&s| self.storages[s].region.contains(region)).unwrap_or_else(|| {
            let boxes: Vec<String> =
                ids.map(|s| format!("{:?}", self.storages[s].region)).collect();
            panic!("{root} {region} lies in one of its storages in {space}: {boxes:?}")
        })
    }
}

/// One use of a value by a call.
#[derive(Clone, Debug)]
struct Touch {
    task: TaskId,
    call: usize,
    region: Region,
    usage: Use,
}

/// The storage of a box, from all uses of its value.
fn storage(
    root: ValueId,
    region: Region,
    home: Home,
    touches: &[Touch],
    tasks: &[Task],
) -> Storage {
    let mine: Vec<&Touch> =
        touches.iter().filter(|t| !t.region.is_empty() && region.overlaps(&t.region)).collect();
    let mut users: Vec<(TaskId, Use)> = Vec::new();
    for touch in &mine {
        if users.last().is_none_or(|(last, _)| *last != touch.task) {
            users.push((touch.task, touch.usage));
        }
    }
    let groups = users.iter().map(|(t, _)| tasks[t.index()].group);
    let life = groups.clone().min().unwrap_or(0)..groups.max().map_or(0, |g| g + 1);
    let inner = (users.len() == 1).then(|| {
        let calls = mine[0].call..mine[mine.len() - 1].call + 1;
        (tasks[users[0].0.index()].worker, calls)
    });
    Storage { root, space: SpaceId(0), region, home, bytes: 0, life, inner, users }
}

/// The connected components of the ranges of the first axis that are touched.
fn components(touches: &[Touch]) -> Vec<Range<usize>> {
    let touched = touches.iter().map(|t| t.region).filter(|r| !r.is_empty());
    let mut ranges: Vec<Range<usize>> = touched.map(|r| r.range(0)).collect();
    ranges.sort_by_key(|r| (r.start, r.end));
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}
