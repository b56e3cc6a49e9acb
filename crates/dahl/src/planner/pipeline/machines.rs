//! The workers of a plan over several machines and devices, and their memories.
//!
//! Only the units that a plan uses are workers. Each machine that has one of them is a process of
//! its own, whose inputs are loaded into its first memory; every other memory that a worker
//! computes in is a space too.

use crate::plan::{MemoryLimits, Space, SpaceKind};
use crate::planner::grain::Memories;
use crate::platform::{Expanded, MemoryId, NodeId, UnitId};
use crate::sim::Worker;
use crate::units::{Bytes, SpaceId};
use dahl_certify::Assignment;
use std::ops::Range;

/// The workers of a plan over units.
#[derive(Clone, Debug)]
pub(super) struct Machines {
    /// The unit of each worker, at the power of its stage.
    pub(super) workers: Vec<Worker>,
    /// Their memories.
    pub(super) memories: Memories,
    /// The workers of each stage.
    pub(super) own: Vec<Range<usize>>,
    /// The samples of each worker, where they share a batch; equal shares where they do not say.
    pub(super) shares: Vec<usize>,
    /// What is in each memory, of those that are spaces.
    places: Vec<MemoryId>,
}

/// A unit of a plan: its stage, its power state, and its share.
struct Used {
    unit: UnitId,
    stage: usize,
    state: Option<usize>,
    share: usize,
}

impl Machines {
    /// The workers of a plan: those of a stage side by side, memory by memory. Where the units
    /// share the batch, all are one stage. `types` has the units of each type.
    pub(super) fn new(types: &[Vec<UnitId>], of: &Assignment, on: &Expanded<'_>) -> Self {
        let shared = !of.shares.is_empty() || of.stages.len() == 1;
        let mut used = used(types, of);
        let memory = |used: &Used| on.units[used.unit.0 as usize].memory;
        let stage = |used: &Used| if shared { 0 } else { used.stage };
        used.sort_by_key(|used| (stage(used), memory(used), used.unit));
        let stages = if shared { 1 } else { of.stages.len() };
        let start = |s: usize| used.partition_point(|used| stage(used) < s);
        let own = (0..stages).map(|s| start(s)..start(s + 1)).collect();
        let (places, spaces) = spaces(&used, on);
        let space_of = used.iter().map(|used| {
            let at = places.iter().position(|place| *place == memory(used));
            SpaceId::new(at.unwrap_or(0))
        });
        let memories = Memories {
            space_of: space_of.collect(),
            spaces,
            units: used.iter().map(|used| on.name_of(used.unit)).collect(),
        };
        let worker = |used: &Used| Worker { unit: used.unit, state: used.state };
        Self {
            workers: used.iter().map(worker).collect(),
            memories,
            own,
            shares: used.iter().map(|used| used.share).collect(),
            places,
        }
    }

    /// How many processes there are.
    pub(super) fn ranks(&self) -> usize {
        self.memories.spaces.iter().map(|space| space.rank as usize + 1).max().unwrap_or(1)
    }

    /// The samples of each space that has any, if the workers share a batch.
    pub(super) fn samples(&self) -> Vec<usize> {
        let of = |space: usize| {
            let own = self.memories.space_of.iter().zip(&self.shares);
            own.filter(|(own, _)| own.index() == space).map(|(_, share)| share).sum::<usize>()
        };
        (0..self.places.len()).map(of).filter(|samples| *samples > 0).collect()
    }

    /// The spaces of each stage.
    pub(super) fn spaces_of_stages(&self) -> impl Iterator<Item = usize> {
        self.own.iter().map(|own| {
            let mut spaces = self.memories.space_of[own.clone()].to_vec();
            spaces.dedup();
            spaces.len()
        })
    }

    /// These limits, with those of the memories.
    pub(super) fn limits(&self, limits: &MemoryLimits, on: &Expanded<'_>) -> MemoryLimits {
        let spaces = self.memories.spaces.iter().zip(&self.places);
        spaces.fold(limits.clone(), |limits, (space, place)| {
            let of = on.memories[place.0 as usize];
            limits.within(space, Bytes(on.platform.nodes[of.kind].memories[of.memory].bytes))
        })
    }
}

/// The units of a plan: of each type the first that no earlier stage has.
fn used(types: &[Vec<UnitId>], of: &Assignment) -> Vec<Used> {
    let mut taken = vec![0; types.len()];
    let mut all = Vec::new();
    for (s, stage) in of.stages.iter().enumerate() {
        let own = types[stage.unit].iter().skip(taken[stage.unit]).take(stage.replicas);
        taken[stage.unit] += stage.replicas;
        all.extend(own.enumerate().map(|(replica, &unit)| {
            let share = of.shares.get(s).and_then(|shares| shares.get(replica)).copied();
            let state = stage.power.checked_sub(1);
            Used { unit, stage: s, state, share: share.unwrap_or(1) }
        }));
    }
    all
}

/// The memories of units as spaces, machine by machine in the order of the workers.
fn spaces(used: &[Used], on: &Expanded<'_>) -> (Vec<MemoryId>, Vec<Space>) {
    let mut nodes: Vec<NodeId> = Vec::new();
    for used in used {
        let node = on.units[used.unit.0 as usize].node;
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    let (mut places, mut spaces) = (Vec::new(), Vec::new());
    for (rank, node) in nodes.into_iter().enumerate() {
        let (mut hosts, mut devices) = (0, 0);
        for (m, memory) in on.memories_of(node).map(MemoryId).enumerate() {
            let own = on.units.iter().filter(|unit| unit.memory == memory);
            let kinds: Vec<&str> =
                own.map(|unit| &*on.platform.nodes[unit.kind].units[unit.unit].kind).collect();
            let is_host = m == 0 || kinds.iter().any(|kind| kind.starts_with("cpu"));
            let kind = if is_host {
                hosts += 1;
                SpaceKind::Host(hosts - 1)
            } else {
                devices += 1;
                SpaceKind::Device(format!("{}{}", device(kinds.first()), devices - 1))
            };
            let computes = used.iter().any(|u| on.units[u.unit.0 as usize].memory == memory);
            if m == 0 || computes {
                places.push(memory);
                spaces.push(Space { rank: rank as u32, kind });
            }
        }
    }
    (places, spaces)
}

/// What devices of a kind are called: `gpu` for `gpu-a40`.
fn device(kind: Option<&&str>) -> String {
    let letters = |kind: &&str| -> String {
        kind.chars().take_while(char::is_ascii_alphabetic).collect::<String>().to_lowercase()
    };
    let name = kind.map(letters).unwrap_or_default();
    let taken = name.is_empty() || ["host", "rank"].iter().any(|word| name.starts_with(word));
    if taken { "device".to_owned() } else { name }
}
