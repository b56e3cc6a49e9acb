//! Forward nodes that run again for the backward pass: a rewrite.
//!
//! A value that the backward pass reads lives from the forward pass on. Where its
//! node runs again, the first one ends with its last reader in the forward pass, and
//! a second one is made right before the backward pass needs it. The nodes are the
//! same, so are their inputs: no bit changes.

use super::{Graph, Kind, Node, Phase, Root, Value};
use crate::error::{Error, Result};
use crate::ops::Access;
use crate::units::{NodeId, ValueId};

/// A graph in which some nodes run again.
#[derive(Clone, Debug)]
pub struct Recomputed {
    /// The graph.
    pub graph: Graph,
    /// For each of its nodes the one that it is, or repeats, in the graph before.
    pub origins: Vec<NodeId>,
}

/// The nodes that may run again: forward nodes that write values of the step and do
/// nothing else. What updates a persistent value, such as running statistics, is not
/// among them; views follow what they look at.
pub fn recomputable(graph: &Graph) -> Vec<NodeId> {
    let updated = updated(graph, &graph.roots());
    graph.node_ids().filter(|&id| may_run_again(graph, &updated, graph.node(id))).collect()
}

/// Those of some nodes whose results the backward pass needs, itself or because
/// another of them does.
pub fn needed_again(graph: &Graph, again: &[NodeId]) -> Vec<NodeId> {
    let mut listed = vec![false; graph.nodes.len()];
    again.iter().for_each(|id| listed[id.index()] = true);
    let mut needed = vec![false; graph.values.len()];
    for node in graph.nodes.iter().filter(|n| n.phase != Phase::Forward) {
        node.inputs.iter().for_each(|v| needed[v.index()] = true);
    }
    let mut found = Vec::new();
    // From the last to the first, so that all who read a node's results are known.
    for id in (0..graph.nodes.len()).rev().map(NodeId::new) {
        let (node, listed) = (graph.node(id), listed[id.index()]);
        if node.phase == Phase::Forward
            && (listed || node.op.view().is_some())
            && node.outputs.iter().any(|v| needed[v.index()])
        {
            node.inputs.iter().for_each(|v| needed[v.index()] = true);
            found.extend(listed.then_some(id));
        }
    }
    found.reverse();
    found
}

/// Lets some nodes run again, each once, right before the first node behind the
/// forward pass that needs its results; all nodes behind the forward pass read these.
///
/// # Errors
/// Where a node may not run again, an input of it has changed by then, or nothing
/// needs its results.
pub fn recompute(graph: &Graph, again: &[NodeId]) -> Result<Recomputed> {
    let roots = graph.roots();
    let updated = updated(graph, &roots);
    let mut listed = vec![false; graph.nodes.len()];
    for &id in again {
        let Some(node) = graph.nodes.get(id.index()) else {
            return Err(Error::plan("recompute", "a node of the graph", id));
        };
        if !may_run_again(graph, &updated, node) {
            let expected = "a node of the forward pass that writes values of the step only";
            return Err(Error::plan("recompute", expected, label(graph, id)));
        }
        if std::mem::replace(&mut listed[id.index()], true) {
            return Err(Error::plan("recompute", "each node once", label(graph, id)));
        }
    }
    let mut rewrite = Rewrite {
        graph,
        roots: &roots,
        updated: &updated,
        listed: &listed,
        makers: graph.makers(),
        second: vec![None; graph.values.len()],
        result: Graph { nodes: Vec::new(), ..graph.clone() },
        origins: Vec::new(),
    };
    for id in graph.node_ids() {
        let mut node = graph.node(id).clone();
        if node.phase != Phase::Forward {
            for input in &mut node.inputs {
                *input = rewrite.seen_behind(*input, id)?;
            }
        }
        rewrite.result.nodes.push(node);
        rewrite.origins.push(id);
    }
    let unused = again.iter().find(|id| {
        let outputs = &graph.node(**id).outputs;
        outputs.iter().all(|v| rewrite.second[v.index()].is_none())
    });
    if let Some(&id) = unused {
        let expected = "a node whose results the backward pass needs";
        return Err(Error::plan("recompute", expected, label(graph, id)));
    }
    Ok(Recomputed { graph: rewrite.result, origins: rewrite.origins })
}

/// The rewrite under way.
struct Rewrite<'a> {
    graph: &'a Graph,
    roots: &'a [Root],
    updated: &'a [Vec<NodeId>],
    listed: &'a [bool],
    makers: Vec<Option<NodeId>>,
    /// For each value the one that its node makes when it runs again.
    second: Vec<Option<ValueId>>,
    result: Graph,
    origins: Vec<NodeId>,
}

impl Rewrite<'_> {
    /// What a node behind the forward pass, `reader`, or one that runs again for it,
    /// reads as `value`; made now, if it is not there yet.
    fn seen_behind(&mut self, value: ValueId, reader: NodeId) -> Result<ValueId> {
        if let Some(second) = self.second[value.index()] {
            return Ok(second);
        }
        let Some(id) = self.makers[value.index()] else { return Ok(value) };
        let node = self.graph.node(id);
        let view = node.op.view().is_some() && node.phase == Phase::Forward;
        if !view && !self.listed[id.index()] {
            return Ok(value);
        }
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            let seen = self.seen_behind(input, reader)?;
            if seen == input && !view {
                self.check_unchanged(id, input, reader)?;
            }
            inputs.push(seen);
        }
        if view && inputs == node.inputs {
            return Ok(value);
        }
        for &output in &node.outputs {
            let Value { name, meta, .. } = self.graph.value(output);
            let name = format!("{name}.again");
            self.result.values.push(Value { name, meta: *meta, kind: Kind::Local });
            self.second[output.index()] = Some(ValueId::new(self.result.values.len() - 1));
        }
        let outputs = node.outputs.iter().filter_map(|v| self.second[v.index()]).collect();
        let phase = Phase::Recompute;
        self.result.nodes.push(Node { inputs, outputs, phase, ..node.clone() });
        self.origins.push(id);
        Ok(self.second[value.index()].expect("just made"))
    }

    /// A parameter is updated in place: who reads it again has to come before.
    fn check_unchanged(&self, id: NodeId, input: ValueId, reader: NodeId) -> Result<()> {
        let root = self.roots[input.index()].value;
        let changed = self.updated[root.index()].iter().find(|&&u| id < u && u < reader);
        let Some(&by) = changed else { return Ok(()) };
        let expected = format!("{} to run again before its inputs change", label(self.graph, id));
        let found = format!("{}, changed by {}", self.graph.value(input).name, by);
        Err(Error::plan("recompute", expected, found))
    }
}

/// The nodes that update each value in place.
fn updated(graph: &Graph, roots: &[Root]) -> Vec<Vec<NodeId>> {
    let mut updated = vec![Vec::new(); graph.values.len()];
    for id in graph.node_ids() {
        let node = graph.node(id);
        for (i, output) in node.outputs.iter().enumerate() {
            if node.op.access(i) == Access::Update {
                updated[roots[output.index()].value.index()].push(id);
            }
        }
    }
    updated
}

fn may_run_again(graph: &Graph, updated: &[Vec<NodeId>], node: &Node) -> bool {
    // What another node has changed since would lack that change.
    let own = |v: &ValueId| graph.value(*v).kind == Kind::Local && updated[v.index()].is_empty();
    node.phase == Phase::Forward
        && node.op.view().is_none()
        && (0..node.outputs.len()).all(|i| node.op.access(i) == Access::Write)
        && node.outputs.iter().all(own)
}

fn label(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    format!("{id} {} {:?}", node.op.name(), node.path)
}

#[cfg(test)]
mod tests;
