//! Which bytes work storages have: lifetimes in, offsets out.

use super::memory::aligned;
use super::occupants::Occupants;
use super::storage::{Storage, StorageId};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// Values below this size keep bytes of their own: a shared byte is an edge
/// between tasks, and costs more than it saves.
const SHARED: usize = 4 << 10;

/// Packs the work storages: the largest first, each at the lowest offset where
/// it meets nothing that lives at the same time (greedy by size; Pisarchyk and
/// Lee 2020 found it within a few percent of the lower bound). What is `apart` shares no
/// bytes. The bytes that are needed.
pub(super) fn pack(
    storages: &[Storage],
    work: Vec<StorageId>,
    offsets: &mut [usize],
    apart: &dyn Fn(StorageId) -> bool,
) -> usize {
    let mut order = work;
    order.sort_by_key(|&s| (Reverse(storages[s].bytes), s));
    let groups = order.iter().map(|&s| storages[s].life.end).max().unwrap_or(0);
    let mut alive = Alive::new(groups);
    // What shares bytes with nothing, and everything.
    let (mut alone, mut all) = (Taken::default(), Taken::default());
    let mut peak = 0;
    for s in order {
        let size = aligned(storages[s].bytes);
        let at = if storages[s].bytes < SHARED || apart(s) {
            all.first_fit(size)
        } else {
            let same_time = alive.during(&storages[s].life);
            let same_time = same_time.filter(|&p| storages[p].coexists(&storages[s]));
            let bytes = |p: StorageId| offsets[p]..end(offsets[p], storages[p].bytes);
            let mut taken: Vec<Range<usize>> = same_time.map(bytes).collect();
            taken.extend(alone.iter());
            taken.sort_unstable_by_key(|range| range.start);
            first_fit(size, taken.into_iter())
        };
        offsets[s] = at;
        let bytes = at..size.saturating_add(at);
        peak = peak.max(bytes.end);
        all.add(bytes.clone());
        if apart(s) {
            alone.add(bytes);
        } else {
            alive.add(s, &storages[s].life);
        }
    }
    peak
}

fn end(offset: usize, bytes: usize) -> usize {
    aligned(bytes).saturating_add(offset)
}

/// The lowest offset of so many bytes between ranges in order.
fn first_fit(size: usize, taken: impl Iterator<Item = Range<usize>>) -> usize {
    let mut at = 0;
    for range in taken {
        if size.saturating_add(at) <= range.start {
            break;
        }
        at = at.max(range.end);
    }
    at
}

/// Bytes that are taken, as ranges that do not touch.
#[derive(Default)]
struct Taken(BTreeMap<usize, usize>);

impl Taken {
    fn add(&mut self, mut range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.0.range(..=range.end).next_back() {
            if end < range.start {
                break;
            }
            range = range.start.min(start)..range.end.max(end);
            self.0.remove(&start);
        }
        self.0.insert(range.start, range.end);
    }

    fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    fn first_fit(&self, size: usize) -> usize {
        first_fit(size, self.iter())
    }
}

/// Storages by the groups that they live in.
struct Alive {
    /// By the group they begin in.
    begin: Vec<Vec<StorageId>>,
    /// A segment tree: each storage is in the few nodes that make up its life.
    nodes: Vec<Vec<StorageId>>,
}

impl Alive {
    fn new(groups: usize) -> Self {
        Self { begin: vec![Vec::new(); groups], nodes: vec![Vec::new(); 2 * groups.max(1)] }
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    fn add(&mut self, id: StorageId, life: &Range<usize>) {
        if life.is_empty() {
            return;
        }
        self.begin[life.start].push(id);
        let (mut from, mut to) = (life.start + self.leaves(), life.end + self.leaves());
        while from < to {
            if from % 2 == 1 {
                self.nodes[from].push(id);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                self.nodes[to].push(id);
            }
            (from, to) = (from / 2, to / 2);
        }
    }

    /// Those that live during some groups: they live in the first, or begin in a later one.
    fn during(&self, life: &Range<usize>) -> impl Iterator<Item = StorageId> {
        let (first, last) = (life.start, life.end.max(life.start));
        let leaf = (!life.is_empty()).then_some(first + self.leaves());
        let path = std::iter::successors(leaf, |&node| (node > 1).then_some(node / 2));
        let living = path.flat_map(|node| &self.nodes[node]);
        let later = self.begin.get(first + 1..last).unwrap_or_default();
        living.chain(later.iter().flatten()).copied()
    }
}

/// Two storages that have a byte in common though both live at the same time.
pub(super) fn shared(
    storages: &[Storage],
    own: impl Iterator<Item = StorageId>,
    bytes: impl Fn(StorageId) -> Range<usize>,
) -> Option<(StorageId, StorageId)> {
    // By the group in which they begin: those of several tasks, and of one.
    let groups = storages.iter().map(|s| s.life.end).max().unwrap_or(0);
    let (mut several, mut one) = (vec![Vec::new(); groups], vec![Vec::new(); groups]);
    for s in own.filter(|&s| !bytes(s).is_empty() && !storages[s].life.is_empty()) {
        let to = if storages[s].inner.is_some() { &mut one } else { &mut several };
        to[storages[s].life.start].push(s);
    }
    let mut ends: BTreeMap<usize, Vec<StorageId>> = BTreeMap::new();
    let mut alive = Occupants::default();
    for (group, (several, one)) in several.into_iter().zip(one).enumerate() {
        while let Some(first) = ends.first_entry().filter(|first| *first.key() <= group) {
            first.remove().into_iter().for_each(|s| alive.free(&bytes(s)));
        }
        for s in several {
            if let Some(&other) = alive.of(&bytes(s)).first() {
                return Some((other, s));
            }
            alive.take(bytes(s), s);
            ends.entry(storages[s].life.end).or_default().push(s);
        }
        let meets = |&s: &StorageId| Some((*alive.of(&bytes(s)).first()?, s));
        if let Some(pair) = one.iter().find_map(meets).or_else(|| within(storages, &one, &bytes)) {
            return Some(pair);
        }
    }
    None
}

/// Two of the storages that single tasks of one group have, on two workers or in one task at once.
fn within(
    storages: &[Storage],
    one: &[StorageId],
    bytes: &impl Fn(StorageId) -> Range<usize>,
) -> Option<(StorageId, StorageId)> {
    let worker = |s: StorageId| storages[s].inner.as_ref().map(|(worker, _)| *worker);
    let mut order = one.to_vec();
    // Workers one after the other; what one has, its later tasks may have again.
    order.sort_by_key(|&s| (worker(s), storages[s].users[0].0, s));
    let mut others = Occupants::default();
    for of_worker in order.chunk_by(|&a, &b| worker(a) == worker(b)) {
        let meets = |&s: &StorageId| Some((*others.of(&bytes(s)).first()?, s));
        if let Some(pair) = of_worker.iter().find_map(meets) {
            return Some(pair);
        }
        for of_task in of_worker.chunk_by(|&a, &b| storages[a].users[0].0 == storages[b].users[0].0)
        {
            for (i, &a) in of_task.iter().enumerate() {
                let clash = |&&b: &&StorageId| {
                    let (x, y) = (bytes(a), bytes(b));
                    x.start < y.end && y.start < x.end && storages[a].coexists(&storages[b])
                };
                if let Some(&b) = of_task[i + 1..].iter().find(clash) {
                    return Some((a, b));
                }
            }
        }
        of_worker.iter().for_each(|&s| others.take(bytes(s), s));
    }
    None
}
