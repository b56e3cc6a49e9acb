//! Which nodes run again for the backward pass.

use super::numerics::{Numerics, ProgramNumerics};
use crate::error::{Error, Result};
use crate::graph::{Graph, Program, Programs, recompute};
use crate::ops::Metas;
use crate::units::{Flops, NodeId};

/// Which nodes of the lowered graphs run again, right before the backward pass needs
/// their results, so that these need no memory in between.
///
/// A node that runs again has the numerics of the first one: variant, blocks and inputs
/// are the same, and so are the bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recompute {
    /// One entry a program, in order; empty where nothing runs again.
    pub programs: Vec<Vec<NodeId>>,
}

/// What running nodes again costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// How many nodes run again in a step.
    pub nodes: usize,
    /// What they add to the work of the step.
    pub flops: Flops,
    /// The work of the step without them.
    pub of: Flops,
}

impl Repeated {
    /// The work that is added in percent of the step's.
    pub fn percent(&self) -> f64 {
        100.0 * self.flops.0 as f64 / self.of.0.max(1) as f64
    }
}

impl Recompute {
    /// Nothing runs again.
    pub fn none(programs: &Programs) -> Self {
        Self { programs: vec![Vec::new(); programs.programs.len()] }
    }

    /// Whether nothing runs again.
    pub fn is_empty(&self) -> bool {
        self.programs.iter().all(Vec::is_empty)
    }

    /// The programs with what runs again, their partial sums made explicit and the
    /// variant of every node set.
    pub fn expand(&self, numerics: &Numerics, programs: &Programs) -> Result<Programs> {
        if self.programs.len() != programs.programs.len() {
            let expected = format!("{} programs", programs.programs.len());
            return Err(Error::plan("recompute", expected, self.programs.len()));
        }
        if self.is_empty() {
            return numerics.expand(programs);
        }
        numerics.check_sizes(programs)?;
        let mut rewritten = programs.with(Vec::new());
        let mut inherited = Numerics { isa: numerics.isa, programs: Vec::new() };
        for (again, (program, part)) in
            self.programs.iter().zip(programs.programs.iter().zip(&numerics.programs))
        {
            if again.is_empty() {
                rewritten.programs.push(program.clone());
                inherited.programs.push(part.clone());
                continue;
            }
            let result = recompute(&program.graph, again).map_err(|error| match error {
                Error::Plan(at) => {
                    Error::plan(format!("{} of {:?}", at.what, program.name), at.expected, at.found)
                }
                error => error,
            })?;
            let of =
                |entries: &[usize]| result.origins.iter().map(|o| entries[o.index()]).collect();
            inherited
                .programs
                .push(ProgramNumerics { variants: of(&part.variants), blocks: of(&part.blocks) });
            rewritten.programs.push(Program { graph: result.graph, ..program.clone() });
        }
        inherited.expand(&rewritten)
    }

    /// What a program's nodes that run again cost.
    pub fn repeated(&self, programs: &Programs, program: usize) -> Repeated {
        let graph = &programs.programs[program].graph;
        let again = &self.programs[program];
        Repeated {
            nodes: again.len(),
            flops: again.iter().map(|&id| flops(graph, id)).sum(),
            of: graph.node_ids().map(|id| flops(graph, id)).sum(),
        }
    }
}

fn flops(graph: &Graph, id: NodeId) -> Flops {
    let node = graph.node(id);
    let (inputs, outputs) = graph.metas(node);
    node.op.flops(Metas { inputs: &inputs, outputs: &outputs }, &graph.whole(node))
}
