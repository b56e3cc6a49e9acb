//! Variants that are two ops: a rewrite that puts both in place.

use super::{Graph, Kind, Node, Value};
use crate::ops::{Expansion, Metas};
use crate::units::ValueId;

/// Replaces every node whose variant expands by the op that prepares an input
/// and the op that takes it.
pub fn expand_variants(graph: Graph) -> Graph {
    let mut result = Graph { nodes: Vec::new(), ..graph };
    for node in graph.nodes {
        let (inputs, outputs) = result.metas(&node);
        let metas = Metas { inputs: &inputs, outputs: &outputs };
        let Some(Expansion { input, prepare, op }) = node.op.expand(node.variant, metas) else {
            result.nodes.push(node);
            continue;
        };
        let meta = prepare.infer(&inputs[input..=input]).expect("an input of the op")[0];
        let name = format!("{}.prepared", result.value(node.inputs[input]).name);
        result.values.push(Value { name, meta, kind: Kind::Local });
        let prepared = ValueId::new(result.values.len() - 1);
        result.nodes.push(Node {
            op: prepare,
            inputs: vec![node.inputs[input]],
            outputs: vec![prepared],
            variant: 0,
            ..node.clone()
        });
        let mut inputs = node.inputs.clone();
        inputs[input] = prepared;
        result.nodes.push(Node { op, inputs, variant: 0, ..node });
    }
    result
}
