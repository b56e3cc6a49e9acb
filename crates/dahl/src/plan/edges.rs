//! What has to come before what: overlapping regions, reused bytes.

use super::bits::Bits;
use super::memory::ProgramMemory;
use super::storage::{Home, Layout, Storage};
use super::tasks::{Task, TaskGraph, Use};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::units::{PersistentId, TaskId};
use dahl_kernels::Region;
use std::collections::{BTreeMap, BTreeSet};

/// The predecessors of each task, without those that follow from others.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    /// What each task waits for.
    pub preds: Vec<Vec<TaskId>>,
}

impl Edges {
    /// The edges of a program's data: two tasks touch a common element, and
    /// one of them writes it. The order is that of the graph's nodes.
    pub(super) fn from_regions(
        graph: &Graph,
        tasks: &[Task],
        task_of: &[Vec<TaskId>],
    ) -> Result<Self> {
        let mut preds: Vec<BTreeSet<TaskId>> = vec![BTreeSet::new(); tasks.len()];
        let mut accesses = vec![Accesses::default(); graph.values.len()];
        for id in graph.node_ids() {
            for &task in &task_of[id.index()] {
                let calls = &tasks[task.index()].calls;
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
        edges.reduce();
        Ok(edges)
    }

    /// Adds an edge from every user of a storage to every writer of a later
    /// one that has some of the same bytes.
    pub(super) fn add_reuse(
        &mut self,
        tasks: &[Task],
        layout: &Layout,
        memory: &ProgramMemory,
    ) -> Result<()> {
        // By the first task: what comes after a storage is the end of this list.
        let used = (0..layout.storages.len()).filter_map(|s| {
            let storage = &layout.storages[s];
            let (first, last) = (storage.users.first()?.0, storage.users.last()?.0);
            let range = memory.range(s, storage);
            (storage.home == Home::Work).then_some((first, last, range, storage))
        });
        let mut work: Vec<_> = used.collect();
        work.sort_by_key(|(first, ..)| *first);
        for (_, last, bytes, before) in &work {
            let later = work.partition_point(|(first, ..)| first <= last);
            for (_, _, range, after) in &work[later..] {
                if bytes.start < range.end && range.start < bytes.end {
                    for (from, to) in conflicts(before, after) {
                        self.preds[to.index()].push(from);
                    }
                }
            }
        }
        self.check_order(tasks)?;
        self.reduce();
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

    /// Drops what follows from other edges.
    fn reduce(&mut self) {
        let mut ancestors: Vec<Bits> = Vec::with_capacity(self.preds.len());
        let tasks = self.preds.len();
        for preds in &mut self.preds {
            let mut set = Bits::new(tasks);
            // An ancestor comes before its descendants, so the last are looked at first.
            preds.sort_unstable_by(|a, b| b.cmp(a));
            preds.retain(|pred| {
                let new = !set.contains(pred.index());
                if new {
                    set.insert(pred.index());
                    set.union(&ancestors[pred.index()]);
                }
                new
            });
            preds.reverse();
            ancestors.push(set);
        }
    }

    fn ancestors(&self) -> Vec<Bits> {
        let mut ancestors: Vec<Bits> = Vec::with_capacity(self.preds.len());
        for preds in &self.preds {
            let mut set = Bits::new(self.preds.len());
            for pred in preds {
                set.insert(pred.index());
                set.union(&ancestors[pred.index()]);
            }
            ancestors.push(set);
        }
        ancestors
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
        let mut persistent: BTreeMap<PersistentId, Vec<Touches>> = BTreeMap::new();
        let mut work = Vec::new();
        for (j, second) in b.layout.storages.iter().enumerate() {
            match second.home {
                Home::Persistent(p) => persistent.entry(p).or_default().push(touches(b, second)),
                Home::Work => work.push((memory_b.range(j, second), second)),
                _ => {}
            }
        }
        for (i, first) in a.layout.storages.iter().enumerate() {
            match first.home {
                Home::Persistent(p) => {
                    let later = persistent.get(&p).into_iter().flatten();
                    persistent_conflicts(&touches(a, first), later, &mut preds);
                }
                Home::Work => {
                    let from = memory_a.range(i, first);
                    for (to, second) in &work {
                        if from.start < to.end && to.start < from.end {
                            for (from, to) in conflicts(first, second) {
                                preds[to.index()].insert(from);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        reduce_across(a, b, preds)
    }
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
        let operands = graph.task(task).calls.iter().flat_map(|c| &c.operands);
        let of_root = operands.filter(|o| o.root == storage.root);
        all.extend(of_root.map(|o| (task, o.root_region, o.usage)));
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

/// Drops the edges between programs that follow from others: from an earlier
/// task of the first program, or to a later task of the second.
fn reduce_across(a: &TaskGraph, b: &TaskGraph, preds: Vec<BTreeSet<TaskId>>) -> Edges {
    let ancestors = a.edges.ancestors();
    let mut covered: Vec<Bits> = Vec::with_capacity(preds.len());
    let mut result = Vec::with_capacity(preds.len());
    for (i, direct) in preds.into_iter().enumerate() {
        let mut known = Bits::new(a.tasks.len());
        for pred in &b.edges.preds[i] {
            known.union(&covered[pred.index()]);
        }
        let new: Vec<TaskId> = direct.into_iter().filter(|p| !known.contains(p.index())).collect();
        let kept: Vec<TaskId> = new
            .iter()
            .copied()
            .filter(|p| !new.iter().any(|q| q != p && ancestors[q.index()].contains(p.index())))
            .collect();
        for pred in &kept {
            known.insert(pred.index());
            known.union(&ancestors[pred.index()]);
        }
        covered.push(known);
        result.push(kept);
    }
    Edges { preds: result }
}

/// Whether two regions of one value share an element; scalars always do.
fn touch(a: &Region, b: &Region) -> bool {
    !a.is_empty() && !b.is_empty() && a.overlaps(b)
}
