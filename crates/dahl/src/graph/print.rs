//! Graphs as text and as Graphviz.

use super::{Graph, Kind, Phase};
use crate::ops::describe;
use crate::units::ValueId;
use std::fmt::{self, Write as _};

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, value) in self.inputs() {
            writeln!(f, "{id}: {} = input {:?}", value.meta, value.name)?;
        }
        for (i, value) in self.values.iter().enumerate() {
            if let Kind::Persistent(p) = value.kind {
                writeln!(f, "{}: {} = {p} {:?}", ValueId::new(i), value.meta, value.name)?;
            }
        }
        for id in self.node_ids() {
            let node = self.node(id);
            let outputs: Vec<String> =
                node.outputs.iter().map(|&v| format!("{v}: {}", self.value(v).meta)).collect();
            let inputs: Vec<String> = node.inputs.iter().map(ToString::to_string).collect();
            let (outputs, inputs) = (outputs.join(", "), inputs.join(", "));
            writeln!(f, "{id} {outputs} = {} [{inputs}] @ {}", describe(&*node.op), node.path)?;
        }
        for (name, id) in &self.fetches {
            writeln!(f, "fetch {name:?} = {id}")?;
        }
        Ok(())
    }
}

impl Graph {
    /// The graph in Graphviz' language, one colour a phase.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from(
            "digraph program {\n  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"sans\"];\n",
        );
        for (i, value) in self.values.iter().enumerate() {
            let fill = match value.kind {
                Kind::Input => "#fff2cc",
                Kind::Persistent(_) => "#e1d5e7",
                Kind::Local => continue,
            };
            let label = format!("{}\\n{}", value.name, value.meta);
            let _ =
                writeln!(dot, "  v{i} [label=\"{label}\", shape=ellipse, fillcolor=\"{fill}\"];");
        }
        let makers = self.makers();
        for id in self.node_ids() {
            let node = self.node(id);
            let fill = match node.phase {
                Phase::Forward => "#dae8fc",
                Phase::Recompute => "#ffe6cc",
                Phase::Backward => "#f8cecc",
                Phase::Update => "#d5e8d4",
            };
            let label = format!("{}\\n{}", describe(&*node.op), node.path);
            let _ = writeln!(dot, "  {id} [label=\"{label}\", fillcolor=\"{fill}\"];");
            for v in &node.inputs {
                let from = makers[v.index()].map_or(format!("{v}"), |n| n.to_string());
                let meta = self.value(*v).meta;
                let _ = writeln!(dot, "  {from} -> {id} [label=\"{}\"];", meta.shape);
            }
            for v in &node.outputs {
                if matches!(self.value(*v).kind, Kind::Persistent(_)) {
                    let _ = writeln!(dot, "  {id} -> {v} [style=dashed];");
                }
            }
        }
        dot.push_str("}\n");
        dot
    }
}
