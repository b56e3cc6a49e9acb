//! Checks of a running plan: overlapping access, and bytes that are read after
//! they were given away.
//!
//! Both cost time and are off unless asked for; they work in release builds.
#![expect(unsafe_code, reason = "writes poison over bytes whose last user has ended")]

use crate::exec::{Arenas, Buffer};
use crate::graph::Kind;
use crate::plan::{Home, PlannedPrograms, Use};
use crate::units::{ProgramId, SpaceId, TaskId, ValueId};
use dahl_kernels::Region;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// All bits set: a NaN in every floating-point type, −1 in an index.
const POISON: u8 = 0xff;

/// The memory of inputs and outputs: two steps under way have different slots,
/// and inputs are only read, so that writes meet by value and output slot.
const SLOTS: u8 = 2;

/// One access of a task, in terms that can be compared between programs.
#[derive(Clone, Debug)]
struct Touch {
    /// Equal for accesses to one value in one space; then regions decide.
    value: (SpaceId, usize, u32),
    region: Region,
    /// Which memory, and which bytes of it.
    space: SpaceId,
    home: u8,
    bytes: Range<usize>,
    writes: bool,
}

impl Touch {
    /// Whether two running accesses meet; `same_slot`: both steps have their
    /// outputs in one slot.
    fn conflicts(&self, other: &Self, same_slot: bool) -> bool {
        if !(self.writes || other.writes) {
            return false;
        }
        if self.value == other.value {
            let apart = self.home == SLOTS && !same_slot;
            return !apart && self.region.overlaps(&other.region);
        }
        (self.space, self.home) == (other.space, other.home)
            && self.bytes.start < other.bytes.end
            && other.bytes.start < self.bytes.end
    }
}

struct Dying {
    space: SpaceId,
    offset: usize,
    bytes: usize,
    users: usize,
    left: AtomicUsize,
    /// For a storage of one task: its last call.
    last_call: Option<usize>,
}

#[derive(Default)]
struct ProgramCheck {
    labels: Vec<String>,
    touches: Vec<Vec<Touch>>,
    /// The work storages, and those that each task uses.
    storages: Vec<Dying>,
    of_task: Vec<Vec<usize>>,
}

/// Looks over the shoulder of every task.
pub(crate) struct Checker {
    programs: Vec<ProgramCheck>,
    /// By space.
    work: Vec<Arc<Buffer>>,
    /// By worker: program, output slot and task.
    running: Mutex<BTreeMap<usize, (usize, usize, TaskId)>>,
}

impl Checker {
    pub(crate) fn new(planned: &PlannedPrograms, arenas: &Arenas) -> Self {
        let programs = planned.memory.programs.iter().enumerate().map(|(p, memory)| {
            let (program, graph) = planned.program(ProgramId::new(p));
            let mut check = ProgramCheck::default();
            let mut storage_of = BTreeMap::new();
            for (id, storage) in graph.layout.storages.iter().enumerate() {
                if storage.home == Home::Work && !storage.users.is_empty() {
                    storage_of.insert(id, check.storages.len());
                    check.storages.push(Dying {
                        space: storage.space,
                        offset: memory.offsets[id],
                        bytes: storage.bytes,
                        users: storage.users.len(),
                        left: AtomicUsize::new(storage.users.len()),
                        last_call: storage.inner.as_ref().map(|(_, calls)| calls.end - 1),
                    });
                }
            }
            check.of_task = vec![Vec::new(); graph.tasks.len()];
            for (id, &index) in &storage_of {
                for (task, _) in &graph.layout.storages[*id].users {
                    check.of_task[task.index()].push(index);
                }
            }
            for (t, task) in graph.tasks.iter().enumerate() {
                check.labels.push(graph.label(program, TaskId::new(t)));
                let mut touches = Vec::new();
                task.touches(|space, root, region, usage| {
                    if !region.is_empty() {
                        touches.push(touch(planned, p, (space, root, region, usage)));
                    }
                });
                check.touches.push(touches);
            }
            check
        });
        let work = arenas.spaces.iter().map(|of| of.work.clone()).collect();
        let programs = programs.collect();
        Self { programs, work, running: Mutex::new(BTreeMap::new()) }
    }

    /// A worker begins a task of a step, given by program and output slot.
    ///
    /// # Panics
    /// If a task that is running touches the same elements or bytes.
    pub(crate) fn begin(&self, worker: usize, step: (usize, usize), task: TaskId) {
        let (program, slot) = step;
        let mut running = lock_std(&self.running);
        let mine = &self.programs[program].touches[task.index()];
        for &(other_program, other_slot, other) in running.values() {
            let theirs = &self.programs[other_program].touches[other.index()];
            if let Some(touch) =
                mine.iter().find(|m| theirs.iter().any(|t| m.conflicts(t, slot == other_slot)))
            {
                let label = |p: usize, t: TaskId| self.programs[p].labels[t.index()].clone();
                let (a, b) = (label(program, task), label(other_program, other));
                drop(running);
                panic!("{a} and {b} touch the same elements {} at the same time", touch.region);
            }
        }
        running.insert(worker, (program, slot, task));
    }

    /// A call has ended: what only this task uses, and for the last time, is
    /// given away.
    pub(crate) fn after_call(&self, program: usize, task: TaskId, call: usize) {
        let check = &self.programs[program];
        for storage in check.of_task[task.index()].iter().map(|&s| &check.storages[s]) {
            if storage.last_call == Some(call) {
                self.poison(storage);
            }
        }
    }

    /// A task has ended: what nobody uses any more is given away.
    pub(crate) fn end(&self, worker: usize, program: usize, task: TaskId) {
        let check = &self.programs[program];
        for storage in check.of_task[task.index()].iter().map(|&s| &check.storages[s]) {
            // AcqRel: the last user has seen what the others did.
            if storage.last_call.is_none() && storage.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                storage.left.store(storage.users, Ordering::Relaxed);
                self.poison(storage);
            }
        }
        lock_std(&self.running).remove(&worker);
    }

    fn poison(&self, storage: &Dying) {
        let work = &self.work[storage.space.index()];
        // SAFETY: the last user of these bytes has ended or is this task, and
        // whoever gets them next waits for it.
        unsafe { work.slice_mut(storage.offset, storage.bytes).fill(POISON) };
    }
}

fn lock_std<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn touch(
    planned: &PlannedPrograms,
    program: usize,
    (space, root, region, usage): (SpaceId, ValueId, &Region, Use),
) -> Touch {
    let (graph, tasks) = planned.program(ProgramId::new(program));
    let id = tasks.layout.find(space, root, region);
    let storage = &tasks.layout.storages[id];
    // Persistent values are the same in all programs.
    let value = match graph.value(root).kind {
        Kind::Persistent(p) => (space, usize::MAX, p.0),
        _ => (space, program, root.0),
    };
    let home = match storage.home {
        Home::Work => 0,
        Home::Persistent(_) => 1,
        Home::Input | Home::Output => SLOTS,
    };
    let bytes =
        if home == SLOTS { 0..0 } else { planned.memory.programs[program].range(id, storage) };
    let writes = usage != Use::Read;
    Touch { value, region: *region, space, home, bytes, writes }
}
