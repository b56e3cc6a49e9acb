//! Plans that fit into less memory, by running forward nodes again.
//!
//! What is searched is which nodes of a training program run again ([`Recompute`]), for
//! the least work. Sets of nodes are evaluated on the memory that is alive node by node
//! (`live.rs`), which takes microseconds; two ways propose them (`search.rs`): the
//! node that frees the most for its work first, and segments of layers of which only the
//! borders are kept (Chen et al. 2016). What looks cheapest is then planned for real; where
//! packing or pieces take more than the estimate, less is asked for until it fits. No
//! claim is made that a set is the cheapest, or the least memory the least there is.

mod live;
mod room;
mod search;

use crate::error::{Error, Result};
use crate::graph::{Graph, Programs, needed_again};
use crate::plan::{
    Memory, MemoryLimits, Numerics, Placement, PlannedPrograms, Recompute, TaskGraph,
};
use crate::units::{Bytes, NodeId};
use live::Live;
use room::{Room, Taken};
use search::{Found, cheapest, smallest};

/// How many sets are planned for real on the way to the cheapest.
const TRIES: usize = 12;

/// A part of what is allowed that is not worth another set.
const NEAR: u64 = 64;

/// Who says where and in what pieces programs run, whatever runs again in them.
pub trait Placer {
    /// The placement of programs whose partial sums and repeated nodes are explicit.
    ///
    /// # Errors
    /// Where the programs cannot be placed so.
    fn placement(&self, expanded: &Programs) -> Result<Placement>;
}

/// A plan that fits.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The plan.
    pub plan: PlannedPrograms,
    /// The peak of the plan that recomputes nothing.
    pub plain: Bytes,
}

/// The plan of a grain or a pipeline that keeps the limits: the plain one where it fits, else one
/// in which nodes run again for the backward pass.
///
/// # Errors
/// Where no plan was found that fits, with the smallest peak that was found.
pub fn fit(
    placer: &dyn Placer,
    programs: &Programs,
    numerics: &Numerics,
    limits: impl Into<MemoryLimits>,
) -> Result<Fitted> {
    let limits = limits.into();
    let planned = |recompute: Recompute| {
        PlannedPrograms::plan(programs, numerics.clone(), recompute, |p| placer.placement(p))
    };
    let plan = planned(Recompute::none(programs))?;
    let plain = plan.memory.peak();
    if plan.check_limits(&limits).is_ok() {
        return Ok(Fitted { plan, plain });
    }
    let room = Room::of(&plan, &limits);
    let mut recompute = Recompute::none(programs);
    // What is least where a program does not fit: of several, that which is farthest from it.
    let mut short = room.exhausted();
    for (i, memory) in plan.memory.programs.iter().enumerate() {
        let scale = room.scale(memory);
        if room.measure(memory, scale) <= scale {
            continue;
        }
        let one = One::of((placer, &room, scale), programs, numerics, i);
        match of_program(&one)? {
            Ok(again) => recompute.programs[i] = again,
            Err(least) => {
                let least = least.into_iter().chain(room.taken(memory)).min_by(Taken::order);
                short = short.into_iter().chain(least).max_by(Taken::order);
            }
        }
    }
    if let Some(least) = short {
        return Err(room.exceeded(&plan, least));
    }
    let plan = planned(recompute)?;
    plan.check_limits(&limits)?;
    Ok(Fitted { plan, plain })
}

/// One program alone, with who places it and the memory that it may have.
struct One<'a> {
    placer: &'a dyn Placer,
    room: &'a Room,
    /// The work memory that it may have, as [`Room::measure`] measures it.
    allowed: u64,
    programs: Programs,
    numerics: Numerics,
}

impl<'a> One<'a> {
    fn of(
        (placer, room, allowed): (&'a dyn Placer, &'a Room, u64),
        programs: &Programs,
        numerics: &Numerics,
        program: usize,
    ) -> Self {
        let only = vec![programs.programs[program].clone()];
        let part = vec![numerics.programs[program].clone()];
        Self {
            placer,
            room,
            allowed,
            programs: programs.with(only),
            numerics: Numerics { isa: numerics.isa, programs: part },
        }
    }

    fn graph(&self) -> &Graph {
        &self.programs.programs[0].graph
    }

    /// Plans the memory with what was found to run again.
    fn planned(&self, found: &Found) -> Result<Planned> {
        let again = needed_again(self.graph(), &found.nodes());
        let recompute = Recompute { programs: vec![again.clone()] };
        let expanded = recompute.expand(&self.numerics, &self.programs)?;
        let placement = self.placer.placement(&expanded)?;
        // A stage cannot take what another one would make again behind it.
        let (graphs, replicas) = match TaskGraph::build(&expanded, &placement) {
            Err(Error::Plan(_)) => return Ok(Planned { again, work: u64::MAX, taken: None }),
            built => built?,
        };
        let memory = Memory::plan(&expanded, &placement, &graphs, replicas);
        let work = self.room.measure(&memory.programs[0], self.allowed);
        let taken = self.room.taken(&memory.programs[0]);
        Ok(Planned { again, work, taken })
    }
}

/// Nodes that run again, and the work memory that is planned with them.
struct Planned {
    again: Vec<NodeId>,
    /// As [`Room::measure`] measures it.
    work: u64,
    /// By the limit that it exceeds most; none where it cannot be built.
    taken: Option<Taken>,
}

/// The nodes of a program that run again so that it keeps its limits, or the smallest work memory
/// that was found.
fn of_program(one: &One<'_>) -> Result<Result<Vec<NodeId>, Option<Taken>>> {
    let allowed = one.allowed;
    let expanded = one.numerics.expand(&one.programs)?;
    let live = Live::of(one.graph(), &expanded.programs[0].graph);
    if let Some(found) = search(one, &live, allowed)? {
        return Ok(Ok(found.again));
    }
    let mut least: Option<Planned> = None;
    for found in smallest(&live) {
        let found = one.planned(&found)?;
        least = Some(least.filter(|least| least.work <= found.work).unwrap_or(found));
    }
    // What was found for the least peak by the estimate may be undercut.
    while let Some(Planned { again, work, taken }) = &least {
        if *work <= allowed {
            return Ok(Ok(again.clone()));
        }
        match search(one, &live, work - (work / NEAR).max(1).min(*work))? {
            Some(found) => least = Some(found),
            None => return Ok(Err(*taken)),
        }
    }
    Ok(Err(None))
}

/// The cheapest set that fits when it is planned for real, of those that were tried: less
/// is asked for until it fits, then more again as long as it does and costs less.
fn search(one: &One<'_>, live: &Live, allowed: u64) -> Result<Option<Planned>> {
    let (mut low, mut high) = (0, allowed.saturating_mul(2));
    let mut best: Option<(f64, Planned)> = None;
    let mut target = allowed;
    for _ in 0..TRIES {
        let Some(found) = cheapest(live, target) else { break };
        let cost = found.cost();
        if best.as_ref().is_some_and(|(least, _)| cost >= *least) {
            low = target;
        } else {
            let planned = one.planned(&found)?;
            if planned.work <= allowed {
                low = target;
                best = Some((cost, planned));
            } else {
                high = target;
                if best.is_none() {
                    low = lower(target, planned.work, allowed);
                }
            }
        }
        target = low + (high - low) / 2;
        if best.is_some() && high - low < allowed / NEAR {
            break;
        }
    }
    Ok(best.map(|(_, planned)| planned))
}

/// What to ask for at least after a target that took `work`, which is more than allowed: less
/// by twice what it was too much. A set that cannot be built takes the largest number.
fn lower(target: u64, work: u64, allowed: u64) -> u64 {
    let less = (work - allowed).max(allowed / 256);
    target.saturating_sub(less.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice what such a set takes too much was more than a number has.
    #[test]
    fn less_is_asked_for_after_a_set_that_cannot_be_built() {
        assert_eq!(lower(1000, 1100, 1000), 800);
        assert_eq!(lower(1000, 1001, 1000), 994, "a part of what is allowed at least");
        assert_eq!(lower(1000, u64::MAX, 1000), 0);
    }
}
