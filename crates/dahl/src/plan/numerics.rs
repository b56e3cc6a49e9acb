//! What decides the bits of a result.

use crate::error::{Error, Result};
use crate::graph::{Program, Programs, block_sums};
use crate::ops::{Metas, split};
use std::ops::Range;

/// The bytes of partial sums that an op may have.
const PARTIALS: usize = 256 << 10;

/// How many blocks a sum over samples has by default: as many as keep the
/// partial sums within 256 KiB, at least one, at most one a sample.
pub fn default_blocks(samples: usize, result_bytes: usize) -> usize {
    (PARTIALS / result_bytes.max(1)).clamp(1, samples.max(1))
}

/// The numerics of one program: one entry a node of the lowered graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramNumerics {
    /// The variant of each node's op.
    pub variants: Vec<usize>,
    /// How many blocks each node's sum is taken over; 1 for ops that sum over
    /// no axis.
    pub blocks: Vec<usize>,
}

/// What decides the bits: with equal numerics, any placement on any number of
/// workers gives the same results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numerics {
    /// The instruction set that variants may use.
    pub isa: String,
    /// One entry a program.
    pub programs: Vec<ProgramNumerics>,
}

impl Numerics {
    /// The default: a function of the programs alone, the same on every machine.
    pub fn default_for(programs: &Programs) -> Self {
        let of = |program: &Program| {
            let graph = &program.graph;
            let blocks = graph.nodes.iter().map(|node| {
                let (inputs, outputs) = graph.metas(node);
                let length = node.op.summed(Metas { inputs: &inputs, outputs: &outputs });
                length.map_or(1, |samples| default_blocks(samples, outputs[0].bytes()))
            });
            ProgramNumerics { variants: vec![0; graph.nodes.len()], blocks: blocks.collect() }
        };
        Self { isa: "portable".into(), programs: programs.programs.iter().map(of).collect() }
    }

    /// The programs with their partial sums made explicit.
    pub fn expand(&self, programs: &Programs) -> Result<Programs> {
        if self.programs.len() != programs.programs.len() {
            let expected = format!("{} programs", programs.programs.len());
            return Err(Error::plan("numerics", expected, self.programs.len()));
        }
        let expanded = self.programs.iter().zip(&programs.programs).map(|(numerics, program)| {
            let nodes = program.graph.nodes.len();
            if numerics.blocks.len() != nodes || numerics.variants.len() != nodes {
                let place = format!("numerics of {:?}", program.name);
                return Err(Error::plan(place, format!("{nodes} nodes"), numerics.blocks.len()));
            }
            for (node, &variant) in program.graph.nodes.iter().zip(&numerics.variants) {
                if variant >= node.op.variants().len() {
                    let place = format!("{} {:?}", node.op.name(), node.path);
                    let expected = format!("one of {:?}", node.op.variants());
                    return Err(Error::plan(place, expected, format!("variant {variant}")));
                }
            }
            let graph = block_sums(&program.graph, |id, _, length, _| {
                blocks(length, numerics.blocks[id.index()])
            });
            Ok(Program { graph, ..program.clone() })
        });
        Ok(Programs { store: programs.store.clone(), programs: expanded.collect::<Result<_>>()? })
    }

    /// The variant of each node of the expanded graph of a program.
    pub fn expanded_variants(&self, programs: &Programs, program: usize) -> Vec<usize> {
        let numerics = &self.programs[program];
        let graph = &programs.programs[program].graph;
        let mut variants = Vec::new();
        for (i, node) in graph.nodes.iter().enumerate() {
            variants.push(numerics.variants[i]);
            let (inputs, outputs) = graph.metas(node);
            let summed = node.op.summed(Metas { inputs: &inputs, outputs: &outputs });
            if summed.is_some_and(|length| blocks(length, numerics.blocks[i]).len() > 1) {
                variants.push(0);
            }
        }
        variants
    }
}

/// `count` nearly equal blocks of a sum.
fn blocks(length: usize, count: usize) -> Vec<Range<usize>> {
    split(length, count, 1)
}
