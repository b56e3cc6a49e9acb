//! The graph of one program: values and the nodes that make them.
//!
//! Nodes are in an order in which they could be run one after the other; what
//! really has to come before what follows from the regions they touch. A graph
//! knows nothing of devices, pieces or time. Fusion ([`fuse`] and
//! [`fuse_updates`]), the backward pass ([`Builder::backward`]), nodes that run again
//! for it ([`recompute`]) and the blocks of partial sums ([`block_sums`]) are rewrites.

mod autodiff;
mod blocks;
mod builder;
mod expand;
mod fuse;
mod fuse_updates;
mod print;
mod recompute;
mod shards;
mod store;

pub use blocks::block_sums;
pub use builder::Builder;
pub use expand::expand_variants;
pub use fuse::fuse;
pub use fuse_updates::fuse_updates;
pub use recompute::{Recomputed, needed_again, recomputable, recompute};
pub use shards::Shards;
pub use store::{Class, Persistent, Program, Programs, Store};

use crate::error::{Error, Result};
use crate::ops::{Access, Mapped, Meta, Metas, Mismatch, Op, ViewMap, describe};
use crate::units::{Flops, NodeId, PersistentId, ValueId};
use dahl_kernels::{Piece, Region};
use std::sync::Arc;

/// Where a value comes from and how long it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Filled from outside before each step.
    Input,
    /// Lives across steps and programs.
    Persistent(PersistentId),
    /// Made and used up within the step.
    Local,
}

/// A tensor of the program.
#[derive(Clone, Debug)]
pub struct Value {
    /// A name for people: the input's, the parameter's or the maker's.
    pub name: String,
    /// Shape and element type.
    pub meta: Meta,
    /// Where it comes from.
    pub kind: Kind,
}

/// The part of the program that a node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// From inputs to losses.
    Forward,
    /// From inputs to activations once more, for the gradients.
    Recompute,
    /// From losses to gradients.
    Backward,
    /// From gradients to parameters.
    Update,
}

/// An op on values.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op.
    pub op: Arc<dyn Op>,
    /// The values that are read.
    pub inputs: Vec<ValueId>,
    /// The values that are written, or updated in place.
    pub outputs: Vec<ValueId>,
    /// The place in the model it was lowered from.
    pub path: String,
    /// The part of the program.
    pub phase: Phase,
    /// Which of the op's variants computes it: the plain one, 0, until a plan's
    /// numerics have chosen.
    pub variant: usize,
    /// Which part of the batch it is for, where the batch is taken in parts.
    pub part: usize,
}

/// The values and nodes of one program.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// All values.
    pub values: Vec<Value>,
    /// All nodes, in an order in which they could be run.
    pub nodes: Vec<Node>,
    /// The values that can be read after a step, by name.
    pub fetches: Vec<(String, ValueId)>,
}

impl Graph {
    /// The value of an id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The node of an id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The ids of all nodes.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId::new)
    }

    /// The inputs, in the order they were declared.
    pub fn inputs(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        self.values
            .iter()
            .enumerate()
            .filter(|(_, v)| v.kind == Kind::Input)
            .map(|(i, v)| (ValueId::new(i), v))
    }

    /// The value that can be read under a name.
    pub fn fetch(&self, name: &str) -> Option<ValueId> {
        self.fetches.iter().find(|(n, _)| n == name).map(|(_, id)| *id)
    }

    /// Shapes and element types of a node's inputs and outputs.
    pub fn metas(&self, node: &Node) -> (Vec<Meta>, Vec<Meta>) {
        let metas = |ids: &[ValueId]| ids.iter().map(|&id| self.value(id).meta).collect();
        (metas(&node.inputs), metas(&node.outputs))
    }

    /// The whole of a node as one piece.
    pub fn whole(&self, node: &Node) -> Piece {
        let (inputs, outputs) = self.metas(node);
        let metas = Metas { inputs: &inputs, outputs: &outputs };
        let sum = node.op.summed(metas).unwrap_or(0);
        Piece { out: Region::full(&metas.out()), sum: 0..sum }
    }

    /// The floating-point operations of a node.
    pub fn flops_of(&self, node: &Node) -> Flops {
        let (inputs, outputs) = self.metas(node);
        node.op.flops(Metas { inputs: &inputs, outputs: &outputs }, &self.whole(node))
    }

    /// The floating-point operations of all nodes.
    pub fn flops(&self) -> Flops {
        self.nodes.iter().map(|node| self.flops_of(node)).sum()
    }

    /// The node that makes each value, for values that are no inputs and not
    /// persistent.
    pub fn makers(&self) -> Vec<Option<NodeId>> {
        let mut makers = vec![None; self.values.len()];
        for id in self.node_ids() {
            let node = self.node(id);
            for (i, output) in node.outputs.iter().enumerate() {
                if node.op.access(i) == Access::Write {
                    makers[output.index()] = Some(id);
                }
            }
        }
        makers
    }

    /// For each value, the value whose bytes it looks at (itself unless it is
    /// a view) and the chain of views between, outermost first.
    pub fn roots(&self) -> Vec<Root> {
        let own = |id| Root { value: ValueId::new(id), views: Vec::new() };
        let mut roots: Vec<Root> = (0..self.values.len()).map(own).collect();
        // A view's node always comes after that of the value it looks at.
        for node in self.nodes.iter().filter(|node| node.op.view().is_some()) {
            let mut root = roots[node.inputs[0].index()].clone();
            root.views.insert(0, node.outputs[0]);
            roots[node.outputs[0].index()] = root;
        }
        roots
    }

    /// Whether a value looks at bytes that the program itself has made, and its elements follow each
    /// other in them. Makers are looked for from the last node on, where values are that have just
    /// been made: snapshots ask for thousands.
    pub(super) fn is_local_and_contiguous(&self, id: ValueId) -> bool {
        let mut at = id;
        while self.value(at).kind == Kind::Local {
            let maker = self.nodes.iter().rfind(|node| node.outputs.contains(&at));
            let Some((node, map)) = maker.and_then(|node| Some((node, node.op.view()?))) else {
                return true;
            };
            if matches!(map, ViewMap::Select { axis, .. } if axis > 0) {
                return false;
            }
            at = node.inputs[0];
        }
        false
    }

    /// Whether a value's elements follow each other in the bytes they are in.
    pub fn is_contiguous(&self, roots: &[Root], id: ValueId) -> bool {
        let maker = |view: &ValueId| self.nodes.iter().find(|n| n.outputs[0] == *view);
        roots[id.index()].views.iter().all(|view| {
            let map = maker(view).and_then(|n| n.op.view());
            !matches!(map, Some(ViewMap::Select { axis, .. }) if axis > 0)
        })
    }

    /// A region of a value as a region of the value whose bytes it looks at.
    pub fn map_to_root(&self, roots: &[Root], id: ValueId, region: &Region) -> Mapped {
        let root = &roots[id.index()];
        let makers = &root.views;
        let mut mapped = Mapped::Exact(*region);
        for (i, view) in makers.iter().enumerate() {
            let base = makers.get(i + 1).copied().unwrap_or(root.value);
            let map = self
                .nodes
                .iter()
                .find(|n| n.outputs[0] == *view)
                .and_then(|n| n.op.view())
                .expect("a view's maker");
            let (from, to) = (&self.value(base).meta.shape, &self.value(*view).meta.shape);
            let next = map.map(from, to, &mapped.region());
            mapped = match (mapped, next) {
                (Mapped::Exact(_), Mapped::Exact(r)) => Mapped::Exact(r),
                (_, next) => Mapped::Cover(next.region()),
            };
        }
        mapped
    }

    /// Checks that the graph says only what can be: every operand exists and
    /// is made before it is used, once; shapes are what the ops infer.
    pub fn check(&self) -> Result<()> {
        let roots = self.roots();
        let mut made: Vec<bool> = self.values.iter().map(|v| v.kind != Kind::Local).collect();
        for id in self.node_ids() {
            let node = self.node(id);
            let place = format!("{id} {} {:?}", describe(&*node.op), node.path);
            let wrong = |expected: String, found: String| Err(Error::plan(&place, expected, found));
            if let Some(v) = node.inputs.iter().find(|v| !made[v.index()]) {
                return wrong("inputs that were made before".into(), format!("{v}"));
            }
            let (inputs, outputs) = self.metas(node);
            match node.op.infer(&inputs) {
                Ok(inferred) if inferred == outputs => {}
                Ok(inferred) => {
                    return wrong(format!("outputs {inferred:?}"), format!("{outputs:?}"));
                }
                Err(Mismatch { fault, .. }) => {
                    return Err(Error::plan(&place, fault.expected, fault.found));
                }
            }
            let root = |v: &ValueId| roots[v.index()].value;
            for (i, v) in node.outputs.iter().enumerate() {
                let others = node.inputs.iter().chain(&node.outputs[..i]);
                if node.op.view().is_none() && others.into_iter().any(|o| root(o) == root(v)) {
                    return wrong(
                        "outputs apart from all other operands".into(),
                        format!("{v} twice"),
                    );
                }
            }
            if node.op.view() == Some(ViewMap::Reshape)
                && !self.is_contiguous(&roots, node.inputs[0])
            {
                return wrong("a reshape of elements that follow each other".into(), "gaps".into());
            }
            for (i, &v) in node.outputs.iter().enumerate() {
                match node.op.access(i) {
                    Access::Write if made[v.index()] => {
                        return wrong("an output of its own".into(), format!("{v}, made before"));
                    }
                    Access::Update if !made[v.index()] => {
                        return wrong(
                            "an output to update".into(),
                            format!("{v}, not made before"),
                        );
                    }
                    _ => made[v.index()] = true,
                }
            }
        }
        for (name, v) in &self.fetches {
            if !made[v.index()] {
                return Err(Error::plan(format!("fetch {name:?}"), "a value that is made", v));
            }
        }
        Ok(())
    }
}

/// The value whose bytes a value looks at.
#[derive(Clone, Debug)]
pub struct Root {
    /// The value that owns the bytes.
    pub value: ValueId,
    /// The views between, the value itself first; empty for no view.
    pub views: Vec<ValueId>,
}
