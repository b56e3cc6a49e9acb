//! Fusion: two ops become one that does both, before the backward pass.

use super::{Graph, Node};
use crate::ops::{Meta, Metas, Op};
use crate::units::ValueId;

/// Replaces each op and its only user by one op, where the first offers it. An
/// op that commutes is seen with the result that it shares as its first input.
pub fn fuse(graph: Graph) -> Graph {
    let mut graph = graph;
    let mut uses = vec![0usize; graph.values.len()];
    // The last node that reads each value, which is the only one where it has one use.
    let mut reader: Vec<Option<usize>> = vec![None; graph.values.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        for id in &node.inputs {
            uses[id.index()] += 1;
            reader[id.index()] = Some(i);
        }
    }
    for (_, id) in &graph.fetches {
        uses[id.index()] += 1;
    }
    let mut gone = vec![false; graph.nodes.len()];
    for (i, gone) in gone.iter_mut().enumerate() {
        let out: ValueId = graph.nodes[i].outputs[0];
        let user = reader[out.index()];
        let fused = user.filter(|_| uses[out.index()] == 1).and_then(|user| {
            let rest = others(&graph.nodes[user], out)?;
            let (inputs, outputs) = graph.metas(&graph.nodes[i]);
            let metas = Metas { inputs: &inputs, outputs: &outputs };
            let op = graph.nodes[i].op.fuse(metas, &*graph.nodes[user].op)?;
            let inputs: Vec<ValueId> = graph.nodes[i].inputs.iter().copied().chain(rest).collect();
            let results = inferred(&graph, &inputs, &*op)?;
            // The other results of the second op may look different now.
            let node = &graph.nodes[user];
            let same = node
                .outputs
                .iter()
                .zip(&results)
                .all(|(v, meta)| uses[v.index()] == 0 || graph.value(*v).meta == *meta);
            same.then_some((user, op, inputs, results))
        });
        let Some((user, op, inputs, results)) = fused else { continue };
        // The fused node stands where the second was: all its inputs are made.
        *gone = true;
        let path = std::mem::take(&mut graph.nodes[i].path);
        inputs.iter().for_each(|v| reader[v.index()] = Some(user));
        let node = &mut graph.nodes[user];
        node.op = op;
        node.inputs = inputs;
        node.path = path;
        for (value, meta) in node.outputs.clone().into_iter().zip(results) {
            graph.values[value.index()].meta = meta;
        }
    }
    let mut gone = gone.into_iter();
    graph.nodes.retain(|_| !gone.next().unwrap_or(false));
    graph
}

/// The other inputs of a node that has `out` as its first one, or may have.
fn others(node: &Node, out: ValueId) -> Option<Vec<ValueId>> {
    let at = node.inputs.iter().position(|v| *v == out)?;
    let first = at == 0 || (at == 1 && node.op.commutes());
    first.then(|| node.inputs.iter().copied().filter(|v| *v != out).collect())
}

/// The outputs of the fused op.
fn inferred(graph: &Graph, inputs: &[ValueId], op: &dyn Op) -> Option<Vec<Meta>> {
    let metas: Vec<Meta> = inputs.iter().map(|v| graph.value(*v).meta).collect();
    op.infer(&metas).ok()
}

#[cfg(test)]
mod tests {
    use super::fuse;
    use crate::graph::{Builder, Store};
    use crate::ops::{Meta, Recorder, Var};
    use dahl_kernels::DType;

    /// What is left of a normalisation, its result joined with `r`, and a relu.
    fn check(join: impl Fn(&mut dyn Recorder, Var, Var) -> Var, expected: &[&str]) {
        let mut store = Store::default();
        let mut b = Builder::new(&mut store);
        let [x, r] = ["x", "r"].map(|n| b.input(n, Meta::new([2, 3, 4, 4], DType::F32)));
        let [m, v, w, c] = ["m", "v", "w", "c"].map(|n| b.input(n, Meta::new([3], DType::F32)));
        let y = b.ops().batch_norm2d_eval(x, [m, v], [w, c], 1e-5);
        let z = join(b.ops(), y, r);
        let z = b.ops().relu(z);
        b.fetch("z", z);
        b.rewrite(fuse);
        let graph = b.finish().expect("a graph");
        let names: Vec<&str> = graph.nodes.iter().map(|n| n.op.name()).collect();
        assert_eq!(names[1..], *expected);
    }

    #[test]
    fn a_sum_is_fused_with_either_of_its_terms() {
        check(|_, y, _| y, &["batch_norm2d_relu"]);
        check(|g, y, r| g.add(y, r), &["batch_norm2d_add_relu"]);
        check(|g, y, r| g.add(r, y), &["batch_norm2d_add_relu"]);
        check(|g, y, r| g.sub(r, y), &["batch_norm2d", "sub", "relu"]);
        check(|g, y, _| g.add(y, y), &["batch_norm2d", "add", "relu"]);
    }
}
