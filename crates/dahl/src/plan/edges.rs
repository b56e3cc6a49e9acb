//! What has to come before what: overlapping regions, reused bytes.

use super::bits::Bits;
use super::memory::{ProgramMemory, overlap};
use super::storage::{Home, Layout, Storage};
use super::tasks::{Task, TaskGraph, Use};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::units::TaskId;
use dahl_kernels::Region;
use std::collections::BTreeSet;

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
        let mut accesses: Vec<Vec<(TaskId, Region, Use)>> = vec![Vec::new(); graph.values.len()];
        for id in graph.node_ids() {
            for &task in &task_of[id.index()] {
                let calls = &tasks[task.index()].calls;
                // A placement has the nodes of a group in order.
                let at = calls.binary_search_by_key(&id, |c| c.node).expect("a call of the node");
                let call = &calls[at];
                for operand in &call.operands {
                    for (before, region, usage) in &accesses[operand.root.index()] {
                        let conflict = operand.usage != Use::Read || *usage != Use::Read;
                        if conflict && *before != task && touch(region, &operand.root_region) {
                            preds[task.index()].insert(*before);
                        }
                    }
                }
                for operand in &call.operands {
                    let access = (task, operand.root_region, operand.usage);
                    accesses[operand.root.index()].push(access);
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
        let work: Vec<usize> =
            (0..layout.storages.len()).filter(|&s| layout.storages[s].home == Home::Work).collect();
        for &a in &work {
            for &b in &work {
                let (before, after) = (&layout.storages[a], &layout.storages[b]);
                let ordered = match (before.users.last(), after.users.first()) {
                    (Some((last, _)), Some((first, _))) => last < first,
                    _ => false,
                };
                if ordered && overlap(memory, layout, a, b) {
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
    pub fn across(
        before: (&TaskGraph, &ProgramMemory),
        after: (&TaskGraph, &ProgramMemory),
    ) -> Self {
        let ((a, memory_a), (b, memory_b)) = (before, after);
        let mut preds: Vec<BTreeSet<TaskId>> = vec![BTreeSet::new(); b.tasks.len()];
        for (i, first) in a.layout.storages.iter().enumerate() {
            for (j, second) in b.layout.storages.iter().enumerate() {
                match (first.home, second.home) {
                    (Home::Persistent(p), Home::Persistent(q)) if p == q => {
                        persistent_conflicts(a, first, b, second, &mut preds);
                    }
                    (Home::Work, Home::Work) => {
                        let (from, to) = (memory_a.range(i, first), memory_b.range(j, second));
                        if from.start < to.end && to.start < from.end {
                            for (from, to) in conflicts(first, second) {
                                preds[to.index()].insert(from);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        reduce_across(a, b, preds)
    }
}

/// Every user of one storage before every task that starts another.
fn conflicts(before: &Storage, after: &Storage) -> Vec<(TaskId, TaskId)> {
    let starts = after.users.iter().filter(|(_, usage)| *usage == Use::Write);
    starts.flat_map(|(to, _)| before.users.iter().map(move |(from, _)| (*from, *to))).collect()
}

fn persistent_conflicts(
    a: &TaskGraph,
    first: &Storage,
    b: &TaskGraph,
    second: &Storage,
    preds: &mut [BTreeSet<TaskId>],
) {
    let touches = |graph: &TaskGraph, storage: &Storage| -> Vec<(TaskId, Region, Use)> {
        let tasks = storage.users.iter().map(|(t, _)| *t);
        tasks
            .flat_map(|t| {
                let operands = graph.task(t).calls.iter().flat_map(|c| &c.operands);
                let of_root = operands.filter(|o| o.root == storage.root);
                of_root.map(move |o| (t, o.root_region, o.usage)).collect::<Vec<_>>()
            })
            .collect()
    };
    let later = touches(b, second);
    for (from, region, usage) in touches(a, first) {
        for (to, other, other_usage) in &later {
            let conflict = usage != Use::Read || *other_usage != Use::Read;
            if conflict && touch(&region, other) {
                preds[to.index()].insert(from);
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
