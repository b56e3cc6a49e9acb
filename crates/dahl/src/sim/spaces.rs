//! The memories of a platform that the spaces of a plan are in.

use super::scenario::Worker;
use crate::error::{Error, Result};
use crate::plan::{Plan, PlannedPrograms, Space, SpaceKind};
use crate::platform::{Expanded, MemoryId};
use crate::units::{Bytes, SpaceId};
use std::collections::BTreeMap;

/// The bytes of a plan in each memory that has a worker: those of its spaces; of a plan with one
/// space all of it in each.
pub(super) fn needed(
    planned: &PlannedPrograms,
    on: &Expanded<'_>,
    workers: &[Worker],
) -> BTreeMap<MemoryId, Bytes> {
    let memory = &planned.memory;
    let mut needed: BTreeMap<MemoryId, Bytes> = BTreeMap::new();
    if planned.placement.spaces.len() == 1 {
        let memories = workers.iter().map(|w| on.units[w.unit.0 as usize].memory);
        return memories.map(|own| (own, memory.peak())).collect();
    }
    for (space, own) in memory.spaces().zip(memories_of_spaces(planned, on, workers)) {
        needed.entry(own).or_default().0 += memory.peak_of(space).0;
    }
    needed
}

/// Refuses workers of one space that compute in several memories, and devices whose memory is
/// that of their host.
pub(super) fn check_spaces(plan: &Plan, on: &Expanded<'_>, workers: &[Worker]) -> Result<()> {
    let placement = &plan.placement;
    if placement.spaces.len() == 1 {
        return Ok(());
    }
    let memories = memories_of_spaces(plan, on, workers);
    for (worker, space) in workers.iter().zip(&placement.space_of) {
        let own = on.units[worker.unit.0 as usize].memory;
        if own != memories[space.index()] {
            let name = &placement.spaces[space.index()];
            let expected = format!("one memory for the workers of {name}");
            let [a, b] = [memories[space.index()], own].map(|memory| on.name_of_memory(memory));
            return Err(Error::plan("spaces", expected, format!("{a} and {b}")));
        }
    }
    for (space, memory) in placement.spaces.iter().zip(&memories) {
        let host = Space::host(space.rank, 0);
        let at = placement.spaces.iter().position(|other| *other == host);
        let shared = at.is_some_and(|host| memories[host] == *memory);
        if matches!(space.kind, SpaceKind::Device(_)) && shared {
            let expected = format!("a memory of its own for {space}");
            let found = format!("{}, which {host} is in", on.name_of_memory(*memory));
            return Err(Error::plan("spaces", expected, found));
        }
    }
    Ok(())
}

/// The memory that each space of a plan is in: that of its first worker; of a host memory that
/// nobody computes in, the first of the machine of its process.
pub(super) fn memories_of_spaces(
    plan: &Plan,
    on: &Expanded<'_>,
    workers: &[Worker],
) -> Vec<MemoryId> {
    let placement = &plan.placement;
    let unit = |worker: usize| on.units[workers[worker].unit.0 as usize];
    let rank = |space: SpaceId| placement.spaces[space.index()].rank;
    let of = |space: SpaceId| {
        let mut own = placement.space_of.iter();
        if let Some(worker) = own.position(|own| *own == space) {
            return unit(worker).memory;
        }
        let near = placement.space_of.iter().position(|own| rank(*own) == rank(space));
        MemoryId(on.memories_of(unit(near.unwrap_or(0)).node).start)
    };
    plan.memory.spaces().map(of).collect()
}
