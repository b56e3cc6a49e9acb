//! Variants that are two ops: a rewrite that puts both in place.

use super::{Graph, Kind, Node, Phase, Value};
use crate::ops::{Access, Expansion, Metas, describe};
use crate::units::ValueId;
use std::collections::BTreeMap;

/// Replaces every node whose variant expands by the op that prepares an input
/// and the op that takes it. Parts of a batch share what was prepared.
pub fn expand_variants(graph: Graph) -> Graph {
    let mut result = Graph { nodes: Vec::new(), ..graph };
    // What was prepared for which part, until its input changes.
    let mut prepared_for: BTreeMap<(ValueId, Phase, String), (usize, ValueId)> = BTreeMap::new();
    for node in graph.nodes {
        let updated = |i: usize, v: &ValueId| (node.op.access(i) == Access::Update).then_some(*v);
        let updated = node.outputs.iter().enumerate().filter_map(|(i, v)| updated(i, v));
        updated.for_each(|v| prepared_for.retain(|(of, ..), _| *of != v));
        let (inputs, outputs) = result.metas(&node);
        let metas = Metas { inputs: &inputs, outputs: &outputs };
        let Some(Expansion { input, prepare, op }) = node.op.expand(node.variant, metas) else {
            result.nodes.push(node);
            continue;
        };
        let how = format!("{} of variant {}", describe(&*prepare), node.variant);
        let key = (node.inputs[input], node.phase, how);
        if let Some(&(part, prepared)) = prepared_for.get(&key)
            && part != node.part
        {
            let mut inputs = node.inputs.clone();
            inputs[input] = prepared;
            result.nodes.push(Node { op, inputs, variant: 0, ..node });
            continue;
        }
        let meta = prepare.infer(&inputs[input..=input]).expect("an input of the op")[0];
        let name = format!("{}.prepared", result.value(node.inputs[input]).name);
        result.values.push(Value { name, meta, kind: Kind::Local });
        let prepared = ValueId::new(result.values.len() - 1);
        prepared_for.insert(key, (node.part, prepared));
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
