//! Measuring on this machine.
//!
//! [`steps`] measures the calls of a plan where they run and adds them to a
//! [`PerfModel`](crate::perf::PerfModel), alone and beside a processor that reads
//! from memory all the time; [`overheads`] measures what the engine takes besides.
//! [`race`] runs steps of several plans in turns.
//! [`tuned`] lets measurements choose the variant of every op instead of the
//! shipped costs; what it chose is in the plan. [`time`] measures one variant of
//! one op on one thread.

mod engine;
mod host;
mod kernel;
mod race;
mod steps;
mod stream;

pub use engine::{copies, overheads};
pub use host::{USUAL, date, here, host, load, this_machine};
pub use kernel::time;
pub use race::{Racer, Turn, compared, race, to_the_end};
pub use steps::{Measured, steps};
pub use stream::bandwidth;

use crate::graph::Programs;
use crate::ops::{Accuracy, Metas, Target};
use crate::plan::Numerics;
use std::collections::BTreeMap;

/// The default numerics, but with the variant of every op that is fastest on
/// this machine; `progress` is told which op is measured.
///
/// # Panics
/// If the machine does not have the instruction set.
pub fn tuned(programs: &Programs, on: &Target, mut progress: impl FnMut(&str)) -> Numerics {
    let mut numerics = Numerics::default_for(programs, *on);
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for (program, chosen) in programs.programs.iter().zip(&mut numerics.programs) {
        let graph = &program.graph;
        for (node, chosen) in graph.nodes.iter().zip(&mut chosen.variants) {
            let (inputs, outputs) = graph.metas(node);
            let metas = Metas { inputs: &inputs, outputs: &outputs };
            // The plain one is the oracle, not a candidate, unless it is what the
            // costs chose.
            let mut candidates = node.op.allowed(metas, on);
            candidates.retain(|&v| v > 0 || v == *chosen);
            if candidates.len() < 2 {
                continue;
            }
            let key = format!("{:?} {inputs:?}", node.op);
            *chosen = *known.entry(key).or_insert_with(|| {
                progress(&format!("{} {}", node.op.name(), node.path));
                let took = |&v: &usize| time(&*node.op, v, metas, on.isa);
                candidates.into_iter().min_by_key(took).unwrap_or(*chosen)
            });
        }
    }
    numerics
}

/// Numerics by which every variant of every op is run: the default first, then with
/// each op's other variants in turn, however exact they are.
pub fn variants(programs: &Programs, on: &Target) -> Vec<Numerics> {
    let any = Target { accuracy: Some(Accuracy::Fast), ..*on };
    let default = Numerics::default_for(programs, *on);
    let mut all = vec![default.clone()];
    loop {
        let mut next = default.clone();
        for (program, chosen) in programs.programs.iter().zip(&mut next.programs) {
            for (node, chosen) in program.graph.nodes.iter().zip(&mut chosen.variants) {
                let (inputs, outputs) = program.graph.metas(node);
                let metas = Metas { inputs: &inputs, outputs: &outputs };
                let allowed = node.op.allowed(metas, &any);
                let mut others = allowed.into_iter().filter(|v| v != chosen);
                if let Some(other) = others.nth(all.len() - 1) {
                    *chosen = other;
                }
            }
        }
        if next == default {
            return all;
        }
        all.push(next);
    }
}

#[cfg(test)]
mod tests;
