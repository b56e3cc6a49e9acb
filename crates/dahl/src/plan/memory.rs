//! Which bytes every value gets, planned before the first step.

use super::occupants::Occupants;
use super::pack::{self, pack};
use super::placement::Placement;
use super::space::Replica;
use super::storage::{Home, Layout, Storage, StorageId};
use super::tasks::TaskGraph;
use crate::error::{Error, Result};
use crate::graph::Programs;
use crate::units::{Bytes, PersistentId, SpaceId};
use std::ops::Range;

/// Every storage starts at a multiple of this.
pub const ALIGN: usize = 64;

/// How many slots inputs have: one is filled while another is used.
const INPUT_SLOTS: usize = 2;

/// The most slots of inputs, and of a program's outputs: far beyond the steps that can be
/// under way at once.
const MOST_SLOTS: usize = 1 << 16;

/// The memory of one program in one space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceMemory {
    /// The bytes of one slot of inputs.
    pub inputs: usize,
    /// The bytes of one slot of outputs.
    pub outputs: usize,
    /// The bytes of the work memory.
    pub work: usize,
    /// The bytes of scratch that a worker needs.
    pub scratch: usize,
}

/// The memory of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramMemory {
    /// The offset of each storage within its home.
    pub offsets: Vec<usize>,
    /// How many slots of outputs there are.
    pub output_slots: usize,
    /// One entry per space.
    pub spaces: Vec<SpaceMemory>,
}

impl ProgramMemory {
    /// The bytes of a storage within its home.
    pub fn range(&self, id: StorageId, storage: &Storage) -> Range<usize> {
        self.offsets[id]..self.offsets[id].saturating_add(storage.bytes)
    }

    /// The bytes of the work memory in all spaces.
    pub fn total_work(&self) -> usize {
        self.spaces.iter().map(|of| of.work).fold(0, usize::saturating_add)
    }
}

/// The memory of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// How many slots inputs have.
    pub input_slots: usize,
    /// What each space has of persistent values: of one space all of them, in order.
    pub replicas: Vec<Replica>,
    /// The offset of each replica.
    pub persistent: Vec<usize>,
    /// The bytes of all replicas, by space.
    pub persistent_bytes: Vec<usize>,
    /// One entry a program; inputs and work are shared, outputs are not.
    pub programs: Vec<ProgramMemory>,
    /// How many workers have scratch, by space.
    pub workers: Vec<usize>,
}

impl Memory {
    /// Gives every storage its bytes: lifetimes in, offsets out.
    pub fn plan(
        expanded: &Programs,
        placement: &Placement,
        graphs: &[TaskGraph],
        replicas: Vec<Replica>,
    ) -> Self {
        let (mut persistent, mut persistent_bytes) = (Vec::new(), vec![0; placement.spaces.len()]);
        for replica in &replicas {
            let size = replica.bytes(&expanded.store);
            let end = &mut persistent_bytes[replica.space.index()];
            persistent.push(*end);
            *end = aligned(size).saturating_add(*end);
        }
        let programs = graphs.iter().zip(&expanded.programs).map(|(graph, program)| {
            let arenas = Arenas { ahead: &placement.ahead, turn: program.turn };
            let offset = |space, id| {
                let at = replicas.iter().position(|r| (r.space, r.value) == (space, id));
                at.map_or(0, |at| persistent[at])
            };
            let memory = plan_program(graph, placement.spaces.len(), &offset, &arenas);
            ProgramMemory { output_slots: program.output_slots, ..memory }
        });
        // Where more steps are under way, one more is filled.
        let ahead = placement.ahead.iter().max().copied().unwrap_or(1);
        Self {
            input_slots: if ahead > 1 { ahead + 1 } else { INPUT_SLOTS },
            programs: programs.collect(),
            persistent,
            persistent_bytes,
            workers: workers(placement),
            replicas,
        }
    }

    /// How many steps may be under way at once.
    pub fn under_way(&self) -> usize {
        self.input_slots.saturating_sub(1).max(2)
    }

    /// The spaces.
    pub fn spaces(&self) -> impl Iterator<Item = SpaceId> + use<> {
        (0..self.persistent_bytes.len()).map(SpaceId::new)
    }

    fn most(&self, space: SpaceId, of: impl Fn(&SpaceMemory) -> usize) -> usize {
        self.programs.iter().map(|p| of(&p.spaces[space.index()])).max().unwrap_or(0)
    }

    /// The bytes of one slot of inputs in a space, for any program.
    pub fn input_slot(&self, space: SpaceId) -> usize {
        self.most(space, |p| p.inputs)
    }

    /// The bytes of the work memory of a space, for any program.
    pub fn work(&self, space: SpaceId) -> usize {
        self.most(space, |p| p.work)
    }

    /// The bytes of the work memory of all spaces, for any program.
    pub fn total_work(&self) -> usize {
        self.spaces().map(|space| self.work(space)).fold(0, usize::saturating_add)
    }

    /// The bytes of scratch of a worker in a space, for any program.
    pub fn scratch(&self, space: SpaceId) -> usize {
        self.most(space, |p| p.scratch)
    }

    /// The bytes of all outputs in a space.
    pub fn outputs(&self, space: SpaceId) -> usize {
        let slots = self
            .programs
            .iter()
            .map(|p| p.output_slots.saturating_mul(p.spaces[space.index()].outputs));
        slots.fold(0, usize::saturating_add)
    }

    /// The parts of a space's memory, by name: what persists, inputs, outputs, work and scratch.
    pub fn parts(&self, space: SpaceId) -> [(&'static str, usize); 5] {
        let inputs = self.input_slots.saturating_mul(self.input_slot(space));
        let scratch = self.workers[space.index()].saturating_mul(self.scratch(space));
        [
            ("persistent values", self.persistent_bytes[space.index()]),
            ("inputs", inputs),
            ("outputs", self.outputs(space)),
            ("work", self.work(space)),
            ("scratch", scratch),
        ]
    }

    /// The memory that a session has in a space, from before the first step on.
    pub fn peak_of(&self, space: SpaceId) -> Bytes {
        let parts = self.parts(space).into_iter().map(|(_, bytes)| bytes);
        Bytes(parts.fold(0, usize::saturating_add) as u64)
    }

    /// All the memory that a session has, from before the first step on.
    pub fn peak(&self) -> Bytes {
        let spaces = self.spaces().map(|space| self.peak_of(space).0);
        Bytes(spaces.fold(0, u64::saturating_add))
    }

    /// The offset of a space's replica of a persistent value.
    fn offset(&self, space: SpaceId, value: PersistentId) -> Option<usize> {
        let is_it = |r: &Replica| (r.space, r.value) == (space, value);
        Some(self.persistent[self.replicas.iter().position(is_it)?])
    }

    /// Checks that there is an offset for every persistent value and every storage.
    pub(super) fn check_sizes(&self, expanded: &Programs, graphs: &[TaskGraph]) -> Result<()> {
        let counted = |place: String, expected: usize, of: &str, found: usize| {
            if found == expected {
                return Ok(());
            }
            Err(Error::plan(place, format!("{expected} {of}"), found))
        };
        let place = || "memory".to_owned();
        counted(place(), self.replicas.len(), "persistent values", self.persistent.len())?;
        let spaces = graphs.first().map_or(1, |graph| graph.layout.spaces());
        counted(place(), spaces, "spaces", self.persistent_bytes.len())?;
        counted(place(), graphs.len(), "programs", self.programs.len())?;
        for ((memory, graph), program) in self.programs.iter().zip(graphs).zip(&expanded.programs) {
            let place = format!("memory of {:?}", program.name);
            let storages = graph.layout.storages.len();
            counted(place.clone(), storages, "storages", memory.offsets.len())?;
            counted(place, spaces, "spaces", memory.spaces.len())?;
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
        if self.workers != workers(placement) {
            let expected = format!("scratch of {} workers", placement.workers);
            return Err(Error::plan("memory", expected, format!("{:?}", self.workers)));
        }
        if !(2..=MOST_SLOTS).contains(&self.input_slots) {
            let expected = format!("2 to {MOST_SLOTS} slots of inputs");
            return Err(Error::plan("memory", expected, self.input_slots));
        }
        for space in self.spaces() {
            let own = self.replicas.iter().zip(&self.persistent).filter(|(r, _)| r.space == space);
            let range = |(replica, &from): (&Replica, &usize)| {
                from..from.saturating_add(replica.bytes(&expanded.store))
            };
            let ranges: Vec<Range<usize>> = own.map(range).collect();
            let end = self.persistent_bytes[space.index()];
            if disjoint(&ranges).is_err()
                || ranges.iter().any(|r| r.end > end || r.start % ALIGN != 0)
            {
                let expected = "disjoint, aligned persistent values within their memory";
                return Err(Error::plan("memory", expected, format!("{ranges:?}")));
            }
        }
        for ((memory, graph), program) in self.programs.iter().zip(graphs).zip(&expanded.programs) {
            let layout = &graph.layout;
            let place = format!("memory of {:?}", program.name);
            if !(1..=MOST_SLOTS).contains(&memory.output_slots) {
                let expected = format!("1 to {MOST_SLOTS} slots of outputs");
                return Err(Error::plan(place, expected, memory.output_slots));
            }
            for (scratch, of) in scratch(graph, memory.spaces.len()).into_iter().zip(&memory.spaces)
            {
                if of.scratch < scratch {
                    let expected = format!("at least {scratch} bytes of scratch");
                    return Err(Error::plan(place, expected, of.scratch));
                }
            }
            for (i, a) in layout.storages.iter().enumerate() {
                if let Home::Persistent(id) = a.home {
                    let at = self.offset(a.space, id);
                    if Some(memory.offsets[i]) != at {
                        let expected = format!("the offset of {id}, {at:?}, for {}", a.root);
                        return Err(Error::plan(place, expected, memory.offsets[i]));
                    }
                }
                let of = &memory.spaces[a.space.index()];
                let size = match a.home {
                    Home::Input => of.inputs,
                    Home::Output => of.outputs,
                    Home::Work => of.work,
                    Home::Persistent(_) => continue,
                };
                let range = memory.range(i, a);
                if range.end > size || range.start % ALIGN != 0 {
                    let expected = format!("aligned bytes within {size}");
                    return Err(Error::plan(place, expected, format!("{range:?} of {}", a.root)));
                }
            }
            if let Some((i, j)) = sharing(memory, layout) {
                let expected = format!("bytes of its own for {}", layout.storages[i].root);
                let found = format!("shared with {}", layout.storages[j].root);
                return Err(Error::plan(place, expected, found));
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

/// Two storages that share a byte though they must not: of inputs or of outputs, or of work alive at
/// once.
fn sharing(memory: &ProgramMemory, layout: &Layout) -> Option<(StorageId, StorageId)> {
    let range = |s: StorageId| memory.range(s, &layout.storages[s]);
    let own = |space: usize, home: Home| {
        let storages = layout.storages.iter().enumerate();
        storages.filter(move |(_, s)| s.space.index() == space && s.home == home).map(|(s, _)| s)
    };
    (0..layout.spaces()).find_map(|space| {
        let slots = [Home::Input, Home::Output].into_iter().find_map(|home| {
            let mut bytes = Occupants::default();
            own(space, home).find_map(|s| {
                let met = bytes.of(&range(s)).first().map(|&other| (other, s));
                bytes.take(range(s), s);
                met
            })
        });
        slots.or_else(|| pack::shared(&layout.storages, own(space, Home::Work), range))
    })
}

/// How many workers compute in each space.
pub(super) fn workers(placement: &Placement) -> Vec<usize> {
    let of = |s| placement.space_of.iter().filter(|space| space.index() == s).count();
    (0..placement.spaces.len()).map(of).collect()
}

/// The most scratch that a call needs, by space.
fn scratch(graph: &TaskGraph, spaces: usize) -> Vec<usize> {
    let mut most = vec![0; spaces];
    for task in &graph.tasks {
        let needed = task.calls().iter().map(|call| call.scratch).max().unwrap_or(0);
        let most = &mut most[task.space.index()];
        *most = needed.max(*most);
    }
    most
}

pub(super) fn aligned(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX)
}

/// Which workers have work memory of their own, for how many steps, and whose turn it is.
struct Arenas<'a> {
    ahead: &'a [usize],
    turn: usize,
}

impl Arenas<'_> {
    /// Packs the work storages of a space; the bytes of the work memory.
    fn pack(&self, graph: &TaskGraph, space: SpaceId, offsets: &mut [usize]) -> usize {
        let storages = &graph.layout.storages;
        let is_own = |&s: &StorageId| storages[s].home == Home::Work && storages[s].space == space;
        let work: Vec<StorageId> = (0..storages.len()).filter(is_own).collect();
        if self.ahead.is_empty() {
            return pack(storages, work, offsets, &|_| false);
        }
        let users =
            |s: StorageId| storages[s].users.iter().map(|(t, _)| graph.task(*t).worker.index());
        // A storage is that of the worker who needs it for the most steps. What goes from
        // one stage to another keeps its bytes: else one would wait for the other's.
        let owner = |s: &StorageId| {
            let workers = users(*s).filter(|&w| w < self.ahead.len());
            workers.min_by_key(|&w| (std::cmp::Reverse(self.ahead[w]), w)).unwrap_or(0)
        };
        let apart = |s: StorageId| users(s).any(|w| Some(w) != users(s).next());
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
    graph: &TaskGraph,
    spaces: usize,
    persistent: &dyn Fn(SpaceId, PersistentId) -> usize,
    arenas: &Arenas<'_>,
) -> ProgramMemory {
    let storages = &graph.layout.storages;
    let mut offsets = vec![0; storages.len()];
    let mut all = vec![SpaceMemory::default(); spaces];
    for (storage, offset) in storages.iter().zip(&mut offsets) {
        let of = &mut all[storage.space.index()];
        let size = match storage.home {
            Home::Input => &mut of.inputs,
            Home::Output => &mut of.outputs,
            Home::Persistent(id) => {
                *offset = persistent(storage.space, id);
                continue;
            }
            Home::Work => continue,
        };
        *offset = *size;
        *size = aligned(storage.bytes).saturating_add(*size);
    }
    for (space, scratch) in scratch(graph, spaces).into_iter().enumerate() {
        all[space].work = arenas.pack(graph, SpaceId::new(space), &mut offsets);
        all[space].scratch = aligned(scratch);
    }
    ProgramMemory { offsets, output_slots: 1, spaces: all }
}
