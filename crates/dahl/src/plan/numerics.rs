//! What decides the bits of a result.

use crate::error::{Error, Result};
use crate::graph::{Program, Programs, block_sums, expand_variants, fuse_updates};
use crate::ops::{Accuracy, Metas, Target};
use dahl_kernels::Isa;

/// The numerics of one program: one entry a node of the lowered graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramNumerics {
    /// The variant of each node's op.
    pub variants: Vec<usize>,
    /// How many blocks each node's sum is taken over within each shard; 1 for ops that sum
    /// over no axis.
    pub blocks: Vec<usize>,
}

/// What decides the bits: with equal numerics, any placement on any number of
/// workers gives the same results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numerics {
    /// The instruction set that variants may use.
    pub isa: Isa,
    /// One entry a program.
    pub programs: Vec<ProgramNumerics>,
}

impl Numerics {
    /// The default: a function of the programs and the instruction set alone,
    /// the same on every machine that has it.
    pub fn default_for(programs: &Programs, on: impl Into<Target>) -> Self {
        let on = on.into();
        let of = |program: &Program| {
            let graph = &program.graph;
            let (mut variants, mut blocks) = (Vec::new(), Vec::new());
            for node in &graph.nodes {
                let (inputs, outputs) = graph.metas(node);
                let metas = Metas { inputs: &inputs, outputs: &outputs };
                blocks.push(graph.default_blocks(node, &programs.shards));
                variants.push(node.op.choose(metas, &on));
            }
            ProgramNumerics { variants, blocks }
        };
        Self { isa: on.isa, programs: programs.programs.iter().map(of).collect() }
    }

    /// Checks that there is an entry for every node of the programs.
    pub(super) fn check_sizes(&self, programs: &Programs) -> Result<()> {
        if self.programs.len() != programs.programs.len() {
            let expected = format!("{} programs", programs.programs.len());
            return Err(Error::plan("numerics", expected, self.programs.len()));
        }
        for (numerics, program) in self.programs.iter().zip(&programs.programs) {
            let nodes = program.graph.nodes.len();
            if numerics.blocks.len() != nodes || numerics.variants.len() != nodes {
                let place = format!("numerics of {:?}", program.name);
                return Err(Error::plan(place, format!("{nodes} nodes"), numerics.blocks.len()));
            }
        }
        Ok(())
    }

    /// The programs with their partial sums made explicit and the variant of
    /// every node set.
    pub fn expand(&self, programs: &Programs) -> Result<Programs> {
        self.check_sizes(programs)?;
        let any = Target { isa: self.isa, accuracy: Some(Accuracy::Fast) };
        let expanded = self.programs.iter().zip(&programs.programs).map(|(numerics, program)| {
            for (node, &variant) in program.graph.nodes.iter().zip(&numerics.variants) {
                let (inputs, outputs) = program.graph.metas(node);
                let metas = Metas { inputs: &inputs, outputs: &outputs };
                let allowed = node.op.allowed(metas, &any);
                if !allowed.contains(&variant) {
                    let place = format!("{} {:?}", node.op.name(), node.path);
                    let names: Vec<_> = allowed.iter().map(|&v| node.op.variants()[v]).collect();
                    let found = node.op.variants().get(variant).copied().unwrap_or("another");
                    return Err(Error::plan(place, format!("one of {names:?}"), found));
                }
            }
            let mut graph = program.graph.clone();
            for (node, &variant) in graph.nodes.iter_mut().zip(&numerics.variants) {
                node.variant = variant;
            }
            let shards = &programs.shards;
            let mut graph = block_sums(&graph, shards, |id| numerics.blocks[id.index()]);
            if shards.count() > 1 {
                graph = fuse_updates(graph, shards);
            }
            Ok(Program { graph: expand_variants(graph), ..program.clone() })
        });
        let expanded = expanded.collect::<Result<_>>()?;
        Ok(programs.with(expanded))
    }
}
