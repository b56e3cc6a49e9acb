//! How much work memory the limits of a plan leave.

use crate::plan::{Memory, MemoryLimits, PlannedPrograms, ProgramMemory};
use crate::units::{Bytes, SpaceId};
use std::cmp::Ordering;

/// What one limit leaves for work memory.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// The space that it is of; none of all together.
    space: Option<SpaceId>,
    /// The memory that is needed whatever runs again.
    fixed: u64,
    limit: Bytes,
}

impl Left {
    fn work(&self) -> u64 {
        self.limit.0.saturating_sub(self.fixed)
    }

    /// The work memory of a program that counts against it.
    fn taken(&self, memory: &ProgramMemory) -> u64 {
        match self.space {
            Some(space) => memory.spaces[space.index()].work as u64,
            None => memory.total_work() as u64,
        }
    }
}

/// What the limits leave for work memory.
#[derive(Clone, Debug)]
pub(super) struct Room(Vec<Left>);

/// The work memory of a program, by the limit that it exceeds most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Taken {
    limit: usize,
    work: u64,
    /// Relative to what is left.
    part: f64,
}

impl Taken {
    /// The farther from its limit the greater; where nothing is left, the more the greater.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        self.part.total_cmp(&other.part).then(self.work.cmp(&other.work))
    }
}

impl Room {
    /// What limits leave of the plain plan.
    pub(super) fn of(plan: &PlannedPrograms, limits: &MemoryLimits) -> Self {
        let memory: &Memory = &plan.memory;
        let total = limits.total.map(|limit| {
            let fixed = memory.peak().0 - memory.total_work() as u64;
            Left { space: None, fixed, limit }
        });
        let spaces = memory.spaces().filter_map(|space| {
            let limit = *limits.spaces.get(&plan.placement.spaces[space.index()])?;
            let fixed = memory.peak_of(space).0 - memory.work(space) as u64;
            Some(Left { space: Some(space), fixed, limit })
        });
        Self(total.into_iter().chain(spaces).collect())
    }

    /// The limit that leaves nothing for any work memory, if there is one.
    pub(super) fn exhausted(&self) -> Option<Taken> {
        let at = self.0.iter().position(|left| left.limit.0 < left.fixed)?;
        Some(Taken { limit: at, work: 0, part: f64::INFINITY })
    }

    /// The limit that a program's work memory is nearest to, or exceeds most.
    pub(super) fn taken(&self, memory: &ProgramMemory) -> Option<Taken> {
        let of = |(limit, left): (usize, &Left)| {
            let work = left.taken(memory);
            let part = match left.work() {
                0 if work == 0 => 0.0,
                0 => f64::INFINITY,
                allowed => work as f64 / allowed as f64,
            };
            Taken { limit, work, part }
        };
        self.0.iter().enumerate().map(of).max_by(|a, b| a.part.total_cmp(&b.part))
    }

    /// The work memory of all spaces that a program may have, if every space takes as much less
    /// as the limit that is exceeded most asks for.
    pub(super) fn scale(&self, plain: &ProgramMemory) -> u64 {
        let Some(taken) = self.taken(plain) else { return u64::MAX };
        let (all, allowed) = (plain.total_work() as u128, self.0[taken.limit].work());
        let scale = all * u128::from(allowed) / u128::from(taken.work.max(1));
        u64::try_from(scale).unwrap_or(u64::MAX)
    }

    /// The work memory of a program as a part of `scale`, which it is not above if it keeps all
    /// limits.
    pub(super) fn measure(&self, memory: &ProgramMemory, scale: u64) -> u64 {
        let of = |left: &Left| {
            let (work, allowed) = (u128::from(left.taken(memory)), u128::from(left.work()));
            let scaled = (work * u128::from(scale)).div_ceil(allowed.max(1));
            match allowed {
                0 if work > 0 => u64::MAX,
                _ => u64::try_from(scaled).unwrap_or(u64::MAX),
            }
        };
        self.0.iter().map(of).max().unwrap_or(0)
    }

    /// The error of a plan that keeps none of these limits; `least` is the smallest work memory
    /// that was found.
    pub(super) fn exceeded(&self, plan: &PlannedPrograms, least: Taken) -> crate::Error {
        let left = self.0[least.limit];
        let smallest = Bytes(left.fixed.saturating_add(least.work));
        plan.too_large_in(left.space, left.limit.into(), Some(smallest))
    }
}
