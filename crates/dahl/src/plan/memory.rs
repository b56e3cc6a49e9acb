//! Which bytes every value gets, planned before the first step.

use super::placement::Placement;
use super::storage::{Home, Layout, Storage, StorageId};
use super::tasks::TaskGraph;
use crate::error::{Error, Result};
use crate::graph::Programs;
use crate::units::Bytes;
use std::ops::Range;

/// Every storage starts at a multiple of this.
pub const ALIGN: usize = 64;

/// Values below this size keep bytes of their own: a shared byte is an edge
/// between tasks, and costs more than it saves.
const SHARED: usize = 4 << 10;

/// How many slots inputs have: one is filled while another is used.
const INPUT_SLOTS: usize = 2;

/// The most slots of inputs, and of a program's outputs: far beyond the steps that can be
/// under way at once.
const MOST_SLOTS: usize = 1 << 16;

/// The memory of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramMemory {
    /// The offset of each storage within its home.
    pub offsets: Vec<usize>,
    /// The bytes of one slot of inputs.
    pub inputs: usize,
    /// The bytes of one slot of outputs.
    pub outputs: usize,
    /// How many slots of outputs there are.
    pub output_slots: usize,
    /// The bytes of the work memory.
    pub work: usize,
    /// The bytes of scratch that a worker needs.
    pub scratch: usize,
}

impl ProgramMemory {
    /// The bytes of a storage within its home.
    pub fn range(&self, id: StorageId, storage: &Storage) -> Range<usize> {
        self.offsets[id]..self.offsets[id].saturating_add(storage.bytes)
    }
}

/// The memory of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// How many slots inputs have.
    pub input_slots: usize,
    /// The offset of each persistent value.
    pub persistent: Vec<usize>,
    /// The bytes of all persistent values.
    pub persistent_bytes: usize,
    /// One entry a program; inputs and work are shared, outputs are not.
    pub programs: Vec<ProgramMemory>,
    /// How many workers have scratch.
    pub workers: usize,
}

impl Memory {
    /// Gives every storage its bytes: lifetimes in, offsets out.
    pub fn plan(expanded: &Programs, placement: &Placement, graphs: &[TaskGraph]) -> Self {
        let mut persistent = Vec::new();
        let mut persistent_bytes = 0;
        for value in &expanded.store.values {
            persistent.push(persistent_bytes);
            persistent_bytes = aligned(value.meta.bytes()).saturating_add(persistent_bytes);
        }
        let programs = graphs.iter().zip(&expanded.programs).map(|(graph, program)| {
            let arenas = Arenas { ahead: &placement.ahead, turn: program.turn };
            let memory = plan_program(&graph.layout, graph, &persistent, &arenas);
            ProgramMemory { output_slots: program.output_slots, ..memory }
        });
        // Where more steps are under way, one more is filled.
        let ahead = placement.ahead.iter().max().copied().unwrap_or(1);
        Self {
            input_slots: if ahead > 1 { ahead + 1 } else { INPUT_SLOTS },
            programs: programs.collect(),
            persistent,
            persistent_bytes,
            workers: placement.workers,
        }
    }

    /// How many steps may be under way at once.
    pub fn under_way(&self) -> usize {
        self.input_slots.saturating_sub(1).max(2)
    }

    /// The bytes of one slot of inputs, for any program.
    pub fn input_slot(&self) -> usize {
        self.programs.iter().map(|p| p.inputs).max().unwrap_or(0)
    }

    /// The bytes of the work memory, for any program.
    pub fn work(&self) -> usize {
        self.programs.iter().map(|p| p.work).max().unwrap_or(0)
    }

    /// The bytes of scratch of a worker, for any program.
    pub fn scratch(&self) -> usize {
        self.programs.iter().map(|p| p.scratch).max().unwrap_or(0)
    }

    /// The bytes of all outputs.
    pub fn outputs(&self) -> usize {
        let slots = self.programs.iter().map(|p| p.output_slots.saturating_mul(p.outputs));
        slots.fold(0, usize::saturating_add)
    }

    /// All the memory that a session has, from before the first step on.
    pub fn peak(&self) -> Bytes {
        let inputs = self.input_slots.saturating_mul(self.input_slot());
        let scratch = self.workers.saturating_mul(self.scratch());
        let parts = [self.persistent_bytes, inputs, self.outputs(), self.work(), scratch];
        Bytes(parts.into_iter().fold(0, usize::saturating_add) as u64)
    }

    /// Checks that there is an offset for every persistent value and every storage.
    pub(super) fn check_sizes(&self, expanded: &Programs, graphs: &[TaskGraph]) -> Result<()> {
        let counted = |place: String, expected: usize, of: &str, found: usize| {
            if found == expected {
                return Ok(());
            }
            Err(Error::plan(place, format!("{expected} {of}"), found))
        };
        let values = expanded.store.values.len();
        let place = || "memory".to_owned();
        counted(place(), values, "persistent values", self.persistent.len())?;
        counted(place(), graphs.len(), "programs", self.programs.len())?;
        for ((memory, graph), program) in self.programs.iter().zip(graphs).zip(&expanded.programs) {
            let place = format!("memory of {:?}", program.name);
            let storages = graph.layout.storages.len();
            counted(place, storages, "storages", memory.offsets.len())?;
        }
        Ok(())
    }

    /// Checks that no two values that live at the same time share bytes, and
    /// that everything lies within its memory.
    pub(super) fn check(
        &self,
        expanded: &Programs,
        placement: &Placement,
        graphs: &[TaskGraph],
    ) -> Result<()> {
        self.check_sizes(expanded, graphs)?;
        if self.workers != placement.workers {
            let expected = format!("scratch of {} workers", placement.workers);
            return Err(Error::plan("memory", expected, self.workers));
        }
        if !(2..=MOST_SLOTS).contains(&self.input_slots) {
            let expected = format!("2 to {MOST_SLOTS} slots of inputs");
            return Err(Error::plan("memory", expected, self.input_slots));
        }
        let sizes = expanded.store.values.iter().map(|v| v.meta.bytes());
        let ranges: Vec<Range<usize>> = self
            .persistent
            .iter()
            .zip(sizes)
            .map(|(&from, size)| from..from.saturating_add(size))
            .collect();
        if disjoint(&ranges).is_err()
            || ranges.iter().any(|r| r.end > self.persistent_bytes || r.start % ALIGN != 0)
        {
            let expected = "disjoint, aligned persistent values within their memory";
            return Err(Error::plan("memory", expected, format!("{ranges:?}")));
        }
        for ((memory, graph), program) in self.programs.iter().zip(graphs).zip(&expanded.programs) {
            let layout = &graph.layout;
            let place = format!("memory of {:?}", program.name);
            if !(1..=MOST_SLOTS).contains(&memory.output_slots) {
                let expected = format!("1 to {MOST_SLOTS} slots of outputs");
                return Err(Error::plan(place, expected, memory.output_slots));
            }
            let calls = graph.tasks.iter().flat_map(|t| &t.calls);
            let scratch = calls.map(|c| c.scratch).max().unwrap_or(0);
            if memory.scratch < scratch {
                let expected = format!("at least {scratch} bytes of scratch");
                return Err(Error::plan(place, expected, memory.scratch));
            }
            let shared = sharing(memory, layout);
            for (i, a) in layout.storages.iter().enumerate() {
                if let Home::Persistent(id) = a.home
                    && memory.offsets[i] != self.persistent[id.index()]
                {
                    let at = self.persistent[id.index()];
                    let expected = format!("the offset of {id}, {at}, for {}", a.root);
                    return Err(Error::plan(place, expected, memory.offsets[i]));
                }
                let size = match a.home {
                    Home::Input => memory.inputs,
                    Home::Output => memory.outputs,
                    Home::Work => memory.work,
                    Home::Persistent(_) => continue,
                };
                let range = memory.range(i, a);
                if range.end > size || range.start % ALIGN != 0 {
                    let expected = format!("aligned bytes within {size}");
                    return Err(Error::plan(place, expected, format!("{range:?} of {}", a.root)));
                }
                if let Some(j) = shared[i] {
                    let expected = format!("bytes of its own for {}", a.root);
                    let found = format!("shared with {}", layout.storages[j].root);
                    return Err(Error::plan(place, expected, found));
                }
            }
        }
        Ok(())
    }
}

fn disjoint(ranges: &[Range<usize>]) -> std::result::Result<(), ()> {
    let mut sorted: Vec<&Range<usize>> = ranges.iter().filter(|r| !r.is_empty()).collect();
    sorted.sort_by_key(|r| r.start);
    if sorted.windows(2).all(|w| w[0].end <= w[1].start) { Ok(()) } else { Err(()) }
}

/// For each storage the first later one that has a byte of it though it must not: of one home, and
/// of work alive at once.
fn sharing(memory: &ProgramMemory, layout: &Layout) -> Vec<Option<StorageId>> {
    let mut shared: Vec<Option<StorageId>> = vec![None; layout.storages.len()];
    for home in [Home::Input, Home::Output, Home::Work] {
        let own = layout.storages.iter().enumerate().filter(|(_, storage)| storage.home == home);
        let mut ranges: Vec<(Range<usize>, StorageId)> =
            own.map(|(i, storage)| (memory.range(i, storage), i)).collect();
        ranges.sort_by_key(|(range, _)| range.start);
        for (at, (range, i)) in ranges.iter().enumerate() {
            for (other, j) in &ranges[at + 1..] {
                if other.start >= range.end {
                    break;
                }
                let (a, b) = (&layout.storages[*i], &layout.storages[*j]);
                if range.start < other.end && (home != Home::Work || a.coexists(b)) {
                    let (first, later) = (*i.min(j), *i.max(j));
                    shared[first] = Some(shared[first].map_or(later, |known| known.min(later)));
                }
            }
        }
    }
    shared
}

fn aligned(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX)
}

/// Which workers have work memory of their own, for how many steps, and whose turn it is.
struct Arenas<'a> {
    ahead: &'a [usize],
    turn: usize,
}

impl Arenas<'_> {
    /// Packs the work storages; the bytes of the work memory.
    fn pack(&self, graph: &TaskGraph, offsets: &mut [usize]) -> usize {
        let storages = &graph.layout.storages;
        let work = (0..storages.len()).filter(|&s| storages[s].home == Home::Work);
        if self.ahead.is_empty() {
            return pack(storages, work.collect(), offsets, &|_| false);
        }
        let users =
            |s: StorageId| storages[s].users.iter().map(|(t, _)| graph.task(*t).worker.index());
        // A storage is that of the worker who needs it for the most steps. What goes from
        // one stage to another keeps its bytes: else one would wait for the other's.
        let owner = |s: &StorageId| {
            users(*s).min_by_key(|&w| (std::cmp::Reverse(self.ahead[w]), w)).unwrap_or(0)
        };
        let apart = |s: StorageId| users(s).any(|w| Some(w) != users(s).next());
        let work: Vec<StorageId> = work.collect();
        let mut base = 0usize;
        for (worker, &ahead) in self.ahead.iter().enumerate() {
            let own: Vec<StorageId> = work.iter().copied().filter(|s| owner(s) == worker).collect();
            let size = pack(storages, own.clone(), offsets, &apart);
            let start = size.saturating_mul(self.turn % ahead).saturating_add(base);
            own.iter().for_each(|&s| offsets[s] = offsets[s].saturating_add(start));
            base = size.saturating_mul(ahead).saturating_add(base);
        }
        base
    }
}

fn plan_program(
    layout: &Layout,
    graph: &TaskGraph,
    persistent: &[usize],
    arenas: &Arenas<'_>,
) -> ProgramMemory {
    let mut offsets = vec![0; layout.storages.len()];
    let (mut inputs, mut outputs) = (0, 0);
    for (storage, offset) in layout.storages.iter().zip(&mut offsets) {
        let size = match storage.home {
            Home::Input => &mut inputs,
            Home::Output => &mut outputs,
            Home::Persistent(id) => {
                *offset = persistent[id.index()];
                continue;
            }
            Home::Work => continue,
        };
        *offset = *size;
        *size = aligned(storage.bytes).saturating_add(*size);
    }
    let work = arenas.pack(graph, &mut offsets);
    let calls = graph.tasks.iter().flat_map(|t| &t.calls);
    let scratch = aligned(calls.map(|c| c.scratch).max().unwrap_or(0));
    ProgramMemory { offsets, inputs, outputs, output_slots: 1, work, scratch }
}

/// Packs the work storages: the largest first, each at the lowest offset where
/// it meets nothing that lives at the same time (greedy by size; Pisarchyk and
/// Lee 2020 found it within a few percent of the lower bound). What is `apart` shares no
/// bytes.
fn pack(
    storages: &[Storage],
    work: Vec<StorageId>,
    offsets: &mut [usize],
    apart: &dyn Fn(StorageId) -> bool,
) -> usize {
    let mut order = work;
    order.sort_by_key(|&s| (std::cmp::Reverse(storages[s].bytes), s));
    let mut placed: Vec<StorageId> = Vec::new();
    let mut peak = 0;
    for s in order {
        let size = aligned(storages[s].bytes);
        let mut taken: Vec<Range<usize>> = placed
            .iter()
            .filter(|&&p| {
                let small = storages[p].bytes.min(storages[s].bytes) < SHARED;
                small || apart(p) || apart(s) || storages[p].coexists(&storages[s])
            })
            .map(|&p| offsets[p]..aligned(storages[p].bytes).saturating_add(offsets[p]))
            .collect();
        taken.sort_by_key(|r| r.start);
        let mut at = 0;
        for range in taken {
            if size.saturating_add(at) <= range.start {
                break;
            }
            at = at.max(range.end);
        }
        offsets[s] = at;
        peak = peak.max(size.saturating_add(at));
        placed.push(s);
    }
    peak
}
