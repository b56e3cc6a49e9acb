use super::{needed_again, recomputable, recompute};
use crate::graph::{Builder, Class, Graph, Phase, Store};
use crate::ops::optim::Sgd;
use crate::ops::{Meta, Recorder};
use crate::units::NodeId;
use dahl_kernels::{DType, Shape};

/// x → relu → relu → flatten → linear, and the gradients of its parameters.
fn graph() -> Graph {
    let mut store = Store::default();
    let mut b = Builder::new(&mut store);
    let x = b.input("x", Meta::new([4, 2, 3], DType::F32));
    let weight = b.persistent("weight", Meta::new([5, 6], DType::F32), Class::Parameter);
    let bias = b.persistent("bias", Meta::new([5], DType::F32), Class::Parameter);
    let y = b.ops().relu(x);
    let z = b.ops().relu(y);
    let flat = b.ops().reshape(z, Shape::from([4, 6]));
    let out = b.ops().linear(flat, weight, Some(bias));
    b.fetch("out", out);
    b.set_phase(Phase::Backward);
    let seed = b.ops().constant(Meta::new([4, 5], DType::F32), 1.0);
    let grads = b.backward(&[(out, seed)], &[weight, bias, y]);
    for (i, grad) in grads.into_iter().flatten().enumerate() {
        b.fetch(&format!("grad {i}"), grad);
    }
    b.finish().expect("a graph")
}

fn names(graph: &Graph) -> Vec<(&str, Phase)> {
    graph.nodes.iter().map(|n| (n.op.name(), n.phase)).collect()
}

#[test]
fn what_runs_again_stands_before_its_first_reader() {
    let graph = graph();
    let again = recomputable(&graph);
    assert_eq!(again, [NodeId(0), NodeId(1), NodeId(3)]);
    let result = recompute(&graph, &[NodeId(0), NodeId(1)]).expect("a graph");
    result.graph.check().expect("a graph that can be run");
    let text = result.graph.to_string();
    let second: Vec<usize> = (0..result.graph.nodes.len())
        .filter(|&i| result.graph.nodes[i].phase == Phase::Recompute)
        .collect();
    // Both relus and the view of the second, one after the other.
    let all = names(&result.graph);
    let expected = ["relu", "relu", "reshape"];
    assert_eq!(second.iter().map(|&i| all[i].0).collect::<Vec<_>>(), expected, "{text}");
    assert!(second.windows(2).all(|w| w[0] + 1 == w[1]), "{text}");
    // Who stands behind them reads what they made, and no node of the forward pass does.
    let reader = &result.graph.nodes[second[2] + 1];
    let flat = result.graph.nodes[second[2]].outputs[0];
    assert!(reader.inputs.contains(&flat) && reader.phase == Phase::Backward, "{text}");
    assert_eq!(result.origins[second[0]], NodeId(0));
    assert_eq!(result.graph.nodes.len(), result.origins.len());
}

#[test]
fn only_what_is_needed_runs_again() {
    let graph = graph();
    let all = recomputable(&graph);
    assert_eq!(needed_again(&graph, &all), [NodeId(0), NodeId(1)]);
    assert_eq!(needed_again(&graph, &[]), []);
    let error = recompute(&graph, &all).expect_err("nothing reads the output again").to_string();
    assert!(error.contains("expected a node whose results the backward pass needs"), "{error}");
}

#[test]
fn a_parameter_that_has_changed_is_not_read_again() {
    let mut store = Store::default();
    let mut b = Builder::new(&mut store);
    let meta = Meta::new([4], DType::F32);
    let (x, w) = (b.input("x", meta), b.persistent("w", meta, Class::Parameter));
    let y = b.ops().mul(x, w);
    b.fetch("y", y);
    b.set_phase(Phase::Backward);
    let early = b.ops().relu(y);
    b.fetch("early", early);
    b.set_phase(Phase::Update);
    let sgd =
        Sgd { momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false, maximize: false };
    b.update(std::sync::Arc::new(sgd), &[x], &[w]);
    let late = b.ops().relu(y);
    b.fetch("late", late);
    let graph = b.finish().expect("a graph");
    // The first reader comes before the update: what it made is there for the second.
    recompute(&graph, &[NodeId(0)]).expect("a graph").graph.check().expect("a graph");
    let nodes = graph.nodes.iter().filter(|n| n.outputs[0] != early).cloned().collect();
    let fetches = graph.fetches.iter().filter(|(_, v)| *v != early).cloned().collect();
    let graph = Graph { nodes, fetches, ..graph };
    let error = recompute(&graph, &[NodeId(0)]).expect_err("w has changed").to_string();
    assert!(error.contains("to run again before its inputs change, found w, changed by n1"));
}

#[test]
fn what_may_not_run_again_is_refused() {
    let graph = graph();
    let last = NodeId::new(graph.nodes.len() - 1);
    for (again, expected) in [
        (vec![NodeId(99)], "a node of the graph"),
        (vec![last], "a node of the forward pass"),
        (vec![NodeId(2)], "a node of the forward pass"),
        (vec![NodeId(0), NodeId(0)], "each node once"),
    ] {
        let error = recompute(&graph, &again).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}
