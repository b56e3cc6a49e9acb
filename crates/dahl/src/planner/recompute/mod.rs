//! Plans that fit into less memory, by running forward nodes again.
//!
//! What is searched is which nodes of a training program run again ([`Recompute`]), for
//! the least work. Sets of nodes are judged by the memory that is alive node by node
//! (`live.rs`), which takes microseconds; two ways propose them (`search.rs`): the
//! node that frees the most for its work first, and segments of layers of which only the
//! borders are kept (Chen et al. 2016). What looks cheapest is then planned for real; where
//! packing or pieces take more than the estimate, less is asked for until it fits. No
//! claim is made that a set is the cheapest, or the least memory the least there is.

mod live;
mod search;

use super::grain::Grain;
use crate::error::{Error, Result};
use crate::graph::{Programs, needed_again};
use crate::plan::{Memory, Numerics, Plan, Recompute, TaskGraph};
use crate::units::{Bytes, NodeId};
use live::Live;
use search::{Found, cheapest, smallest};

/// How many sets are planned for real on the way to the cheapest.
const TRIES: usize = 12;

/// A part of what is allowed that is not worth another set.
const NEAR: u64 = 64;

/// A plan that fits.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The plan.
    pub plan: Plan,
    /// The peak of the plan that recomputes nothing.
    pub plain: Bytes,
}

/// The plan of a grain that needs no more than `limit`: the plain one where it fits, else
/// one in which nodes run again for the backward pass.
///
/// # Errors
/// Where no plan was found that fits, with the smallest peak that was found.
pub fn fit(
    grain: &Grain,
    programs: &Programs,
    numerics: &Numerics,
    limit: Bytes,
) -> Result<Fitted> {
    let plan = grain.plan_with(programs, numerics.clone())?;
    let plain = plan.memory.peak();
    if plain <= limit {
        return Ok(Fitted { plan, plain });
    }
    // All but the work memory is needed whatever runs again.
    let fixed = plain.0 - plan.memory.work() as u64;
    let allowed = limit.0.saturating_sub(fixed);
    let (mut recompute, mut least) = (Recompute::none(programs), 0);
    for (i, memory) in plan.memory.programs.iter().enumerate() {
        if memory.work as u64 <= allowed {
            continue;
        }
        let one = One::of(grain, programs, numerics, i);
        match of_program(&one, allowed)? {
            Ok(again) => recompute.programs[i] = again,
            Err(smallest) => least = least.max(least_work(&one, smallest.min(memory.work as u64))?),
        }
    }
    if least > 0 || limit.0 < fixed {
        let Err(Error::Memory { needed, limit, largest, .. }) = plan.check_memory(programs, limit)
        else {
            unreachable!("the plain plan does not fit");
        };
        let least = Some(Bytes(fixed + least));
        return Err(Error::Memory { needed, limit, least, largest });
    }
    let plan = grain.plan_recomputing(programs, numerics.clone(), recompute)?;
    Ok(Fitted { plan, plain })
}

/// One program alone, at a grain.
struct One<'a> {
    grain: &'a Grain,
    programs: Programs,
    numerics: Numerics,
}

impl<'a> One<'a> {
    fn of(grain: &'a Grain, programs: &Programs, numerics: &Numerics, program: usize) -> Self {
        let only = vec![programs.programs[program].clone()];
        let part = vec![numerics.programs[program].clone()];
        Self {
            grain,
            programs: Programs { store: programs.store.clone(), programs: only },
            numerics: Numerics { isa: numerics.isa, programs: part },
        }
    }

    /// The work memory with nodes that run again, as it is planned.
    fn work(&self, again: &[NodeId]) -> Result<u64> {
        let recompute = Recompute { programs: vec![again.to_vec()] };
        let expanded = recompute.expand(&self.numerics, &self.programs)?;
        let placement = self.grain.place_all(&expanded);
        let graphs = TaskGraph::build(&expanded, &placement)?;
        Ok(Memory::plan(&expanded, &placement, &graphs).work() as u64)
    }
}

/// The smallest work memory that is found by asking for less than the smallest so far.
fn least_work(one: &One<'_>, smallest: u64) -> Result<u64> {
    let mut least = smallest;
    for _ in 0..TRIES {
        match of_program(one, least.saturating_sub(1))? {
            Ok(again) => least = one.work(&again)?,
            Err(_) => break,
        }
    }
    Ok(least)
}

/// The nodes of a program that run again so that its work memory is at most `allowed`,
/// or the smallest that was found.
fn of_program(one: &One<'_>, allowed: u64) -> Result<Result<Vec<NodeId>, u64>> {
    let graph = &one.programs.programs[0].graph;
    let expanded = one.numerics.expand(&one.programs)?;
    let live = Live::of(graph, &expanded.programs[0].graph);
    let mut least = u64::MAX;
    let mut measure = |found: &Found| -> Result<(Vec<NodeId>, u64)> {
        let again = needed_again(graph, &found.nodes());
        let work = one.work(&again)?;
        least = least.min(work);
        Ok((again, work))
    };
    // Less is asked for until it fits, then more again as long as it does and costs less.
    let (mut low, mut high) = (0, allowed.saturating_mul(2));
    let mut best: Option<(f64, Vec<NodeId>)> = None;
    let mut target = allowed;
    for _ in 0..TRIES {
        let Some(found) = cheapest(&live, target) else { break };
        let cost = found.cost();
        if best.as_ref().is_some_and(|(least, _)| cost >= *least) {
            low = target;
        } else {
            let (again, work) = measure(&found)?;
            if work <= allowed {
                best = Some((cost, again));
                low = target;
            } else {
                high = target;
                // At least as much less as it was too much.
                let less = (work - allowed).max(allowed / 256);
                low = if best.is_some() { low } else { target.saturating_sub(2 * less) };
            }
        }
        target = low + (high - low) / 2;
        if best.is_some() && high - low < allowed / NEAR {
            break;
        }
    }
    if let Some((_, again)) = best {
        return Ok(Ok(again));
    }
    for found in smallest(&live) {
        let (again, work) = measure(&found)?;
        if work <= allowed {
            return Ok(Ok(again));
        }
    }
    Ok(Err(least))
}
