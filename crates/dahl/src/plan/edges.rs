//! What has to come before what: overlapping regions, reused bytes.

use super::ancestors::drop_implied;
use super::memory::ProgramMemory;
use super::occupants::Occupants;
use super::storage::{Home, Layout, Storage, StorageId};
use super::tasks::{Task, TaskGraph, Use};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::units::{PersistentId, SpaceId, TaskId, ValueId, WorkerId};
use dahl_kernels::Region;
use std::collections::{BTreeMap, BTreeSet};

/// The predecessors of each task, without those that follow from others.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    /// What each task waits for.
    pub preds: Vec<Vec<TaskId>>,
}

impl Edges {
    /// The edges of a program's data in one space: two tasks touch a common element, and
    /// one of them writes it. The order is that of the graph's nodes, which the order of the
    /// tasks must not contradict.
    pub(super) fn of_nodes(graph: &Graph, tasks: &[Task], task_of: &[Vec<TaskId>]) -> Result<Self> {
        let mut preds: Vec<BTreeSet<TaskId>> = vec![BTreeSet::new(); tasks.len()];
        let mut accesses = vec![Accesses::default(); graph.values.len()];
        for id in graph.node_ids() {
            for &task in &task_of[id.index()] {
                let calls = tasks[task.index()].calls();
                // A placement has the nodes of a group in order.
                let at = calls.binary_search_by_key(&id, |c| c.node).expect("a call of the node");
                let call = &calls[at];
                for operand in &call.operands {
                    let before = &accesses[operand.root.index()];
                    before.each_conflict(&operand.root_region, operand.usage, |before| {
                        if before != task {
                            preds[task.index()].insert(before);
                        }
                    });
                }
                for operand in &call.operands {
                    let of = &mut accesses[operand.root.index()];
                    of.add(task, operand.root_region, operand.usage);
                }
            }
        }
        let preds = preds.into_iter().map(|set| set.into_iter().collect()).collect();
        let mut edges = Self { preds };
        edges.check_order(tasks)?;
        drop_implied(&mut edges.preds);
        Ok(edges)
    }

    /// The edges of a program's data in several spaces, where tasks follow each other as they
    /// stand: moves do as calls do.
    pub(super) fn of_order(graph: &Graph, tasks: &[Task], spaces: usize) -> Self {
        let mut accesses = vec![Accesses::default(); graph.values.len() * spaces];
        let at = |space: SpaceId, root: ValueId| space.index() * graph.values.len() + root.index();
        let mut all = Vec::with_capacity(tasks.len());
        for (t, task) in tasks.iter().enumerate() {
            let (id, mut preds) = (TaskId::new(t), BTreeSet::new());
            task.touches(|space, root, region, usage| {
                accesses[at(space, root)].each_conflict(region, usage, |before| {
                    preds.insert(before);
                });
            });
            task.touches(|space, root, region, usage| {
                accesses[at(space, root)].add(id, *region, usage);
            });
            all.push(preds.into_iter().collect());
        }
        drop_implied(&mut all);
        Self { preds: all }
    }

    /// Adds the edges by which storages that have bytes in common follow each other: from every
    /// user of the one that has them to every task that starts the next one. What had the bytes
    /// earlier has come before then.
    pub(super) fn add_reuse(
        &mut self,
        tasks: &[Task],
        layout: &Layout,
        memory: &ProgramMemory,
    ) -> Result<()> {
        let mut bytes = vec![Occupants::default(); layout.spaces()];
        for (s, storage) in by_first_task(layout) {
            let (range, bytes) = (memory.range(s, storage), &mut bytes[storage.space.index()]);
            for before in bytes.of(&range) {
                for (from, to) in conflicts(&layout.storages[before], storage) {
                    if from < to {
                        self.preds[to.index()].push(from);
                    }
                }
            }
            bytes.take(range, s);
        }
        self.check_order(tasks)?;
        drop_implied(&mut self.preds);
        Ok(())
    }

    /// Every edge goes forward in the reference order: no cycle.
    fn check_order(&self, tasks: &[Task]) -> Result<()> {
        for (i, preds) in self.preds.iter().enumerate() {
            if let Some(pred) = preds.iter().find(|p| p.index() >= i) {
                let group = tasks[i].group;
                let expected = "tasks that depend on earlier ones only";
                let found = format!("{} waits for {pred}", TaskId::new(i));
                return Err(Error::plan(format!("group {group}"), expected, found));
            }
        }
        Ok(())
    }

    /// The edges from one program's tasks to those of the program that runs
    /// next: they share persistent values and the work memory.
    ///
    /// Where more than two steps are under way, each waits for all before it that are.
    pub(super) fn across(
        before: (&TaskGraph, &ProgramMemory),
        after: (&TaskGraph, &ProgramMemory),
    ) -> Self {
        let ((a, memory_a), (b, memory_b)) = (before, after);
        let mut preds: Vec<BTreeSet<TaskId>> = vec![BTreeSet::new(); b.tasks.len()];
        let mut persistent: BTreeMap<(PersistentId, SpaceId), Vec<Touches>> = BTreeMap::new();
        for second in &b.layout.storages {
            if let Home::Persistent(p) = second.home {
                persistent.entry((p, second.space)).or_default().push(touches(b, second));
            }
        }
        for first in &a.layout.storages {
            if let Home::Persistent(p) = first.home {
                let later = persistent.get(&(p, first.space)).into_iter().flatten();
                persistent_conflicts(&touches(a, first), later, &mut preds);
            }
        }
        // Who has each byte last before, and who first after.
        let nobody = || vec![Occupants::default(); a.layout.spaces()];
        let (mut last, mut first) = (nobody(), nobody());
        for (s, storage) in by_first_task(&a.layout) {
            last[storage.space.index()].take(memory_a.range(s, storage), s);
        }
        for (s, storage) in by_first_task(&b.layout).into_iter().rev() {
            first[storage.space.index()].take(memory_b.range(s, storage), s);
        }
        let mut pairs = BTreeSet::new();
        for (last, first) in last.iter().zip(&first) {
            for (range, second) in first.iter() {
                pairs.extend(last.of(&range).into_iter().map(|s| (s, second)));
            }
        }
        for (before, after) in pairs {
            for (from, to) in conflicts(&a.layout.storages[before], &b.layout.storages[after]) {
                preds[to.index()].insert(from);
            }
        }
        let mut preds = without_implied(a, b, preds);
        let mut last: BTreeMap<WorkerId, TaskId> = BTreeMap::new();
        for (t, task) in a.tasks.iter().enumerate().filter(|(_, task)| task.is_half()) {
            last.insert(task.worker, TaskId::new(t));
        }
        for (t, task) in b.tasks.iter().enumerate().filter(|(_, task)| task.is_half()) {
            if let Some(before) = last.remove(&task.worker)
                && !preds[t].contains(&before)
            {
                preds[t].push(before);
            }
        }
        Self { preds }
    }
}

/// The work storages in the order of their first tasks.
fn by_first_task(layout: &Layout) -> Vec<(StorageId, &Storage)> {
    let used = |s: &Storage| s.home == Home::Work && s.users.iter().any(|u| u.1 == Use::Write);
    let storages = layout.storages.iter().enumerate();
    let mut work: Vec<(StorageId, &Storage)> = storages.filter(|(_, s)| used(s)).collect();
    work.sort_by_key(|(_, storage)| storage.users[0].0);
    work
}

/// Who has touched a value so far: readers apart, since they do not wait for each other.
#[derive(Clone, Default)]
struct Accesses {
    reads: Runs,
    writes: Runs,
}

impl Accesses {
    fn add(&mut self, task: TaskId, region: Region, usage: Use) {
        if !region.is_empty() {
            let to = if usage == Use::Read { &mut self.reads } else { &mut self.writes };
            to.add(task, region);
        }
    }

    /// Calls with those who have touched an element of a box, where one of both writes it.
    fn each_conflict(&self, region: &Region, usage: Use, mut call: impl FnMut(TaskId)) {
        if !region.is_empty() {
            self.writes.each(region, &mut call);
            if usage != Use::Read {
                self.reads.each(region, &mut call);
            }
        }
    }
}

/// Boxes in runs along the first axis: pieces of a node come one after the other, so that those
/// which meet a box are found by bisection. There may be 65,536.
#[derive(Clone, Default)]
struct Runs(Vec<Vec<(TaskId, Region)>>);

impl Runs {
    fn add(&mut self, task: TaskId, region: Region) {
        let (start, end) = along(&region);
        match self.0.last_mut() {
            Some(run)
                if run.last().is_some_and(|(_, r)| along(r).0 <= start && along(r).1 <= end) =>
            {
                run.push((task, region));
            }
            _ => self.0.push(vec![(task, region)]),
        }
    }

    fn each(&self, region: &Region, call: &mut impl FnMut(TaskId)) {
        let (start, end) = along(region);
        for run in &self.0 {
            // Starts and ends of a run both grow.
            let first = run.partition_point(|(_, r)| along(r).1 <= start);
            for (task, other) in &run[first..] {
                if along(other).0 >= end {
                    break;
                }
                if region.overlaps(other) {
                    call(*task);
                }
            }
        }
    }
}

/// Where a box begins and ends along its first axis; scalars always meet.
fn along(region: &Region) -> (usize, usize) {
    if region.rank() == 0 { (0, 1) } else { (region.range(0).start, region.range(0).end) }
}

/// Every user of one storage before every task that starts another.
fn conflicts(before: &Storage, after: &Storage) -> Vec<(TaskId, TaskId)> {
    let starts = after.users.iter().filter(|(_, usage)| *usage == Use::Write);
    starts.flat_map(|(to, _)| before.users.iter().map(move |(from, _)| (*from, *to))).collect()
}

/// What tasks touch of a storage.
type Touches = Vec<(TaskId, Region, Use)>;

fn touches(graph: &TaskGraph, storage: &Storage) -> Touches {
    let mut all = Vec::new();
    for &(task, _) in &storage.users {
        graph.task(task).touches(|space, root, region, usage| {
            if (space, root) == (storage.space, storage.root) {
                all.push((task, *region, usage));
            }
        });
    }
    all
}

fn persistent_conflicts<'a>(
    before: &Touches,
    later: impl Iterator<Item = &'a Touches>,
    preds: &mut [BTreeSet<TaskId>],
) {
    for (to, other, other_usage) in later.flatten() {
        for (from, region, usage) in before {
            let conflict = *usage != Use::Read || *other_usage != Use::Read;
            if conflict && touch(region, other) {
                preds[to.index()].insert(*from);
            }
        }
    }
}

/// The edges from one program's tasks to another's that do not follow from others.
fn without_implied(
    a: &TaskGraph,
    b: &TaskGraph,
    across: Vec<BTreeSet<TaskId>>,
) -> Vec<Vec<TaskId>> {
    let tasks = a.tasks.len();
    let within = |p: &TaskId| TaskId::new(p.index() + tasks);
    let after = across.into_iter().zip(&b.edges.preds);
    let after =
        after.map(|(across, preds)| across.into_iter().chain(preds.iter().map(within)).collect());
    let mut all: Vec<Vec<TaskId>> = a.edges.preds.iter().cloned().chain(after).collect();
    drop_implied(&mut all);
    let mut after = all.split_off(tasks);
    after.iter_mut().for_each(|preds| preds.retain(|p| p.index() < tasks));
    after
}

/// Whether two regions of one value share an element; scalars always do.
fn touch(a: &Region, b: &Region) -> bool {
    !a.is_empty() && !b.is_empty() && a.overlaps(b)
}
