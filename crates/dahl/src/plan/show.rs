//! Task graphs and memory for people: text and Graphviz.

use super::{Does, Home, PlannedPrograms, TaskGraph, Use};
use crate::graph::Graph;
use crate::units::{Bytes, TaskId};
use std::fmt::Write as _;

impl TaskGraph {
    /// The tasks as text: what each runs, on which regions, and what it waits
    /// for.
    pub fn to_text(&self, graph: &Graph) -> String {
        let mut text = String::new();
        for (t, task) in self.tasks.iter().enumerate() {
            let waits: Vec<String> = self.edges.preds[t].iter().map(ToString::to_string).collect();
            let _ = writeln!(
                text,
                "{} on {} after [{}]",
                TaskId::new(t),
                task.worker,
                waits.join(", ")
            );
            let (does, of) = match &task.does {
                Does::Calls(_) => ("", None),
                Does::Move(of) => ("move", Some(of)),
                Does::Send(of) => ("send", Some(of)),
                Does::Receive(of) => ("receive", Some(of)),
                Does::Elsewhere => ("elsewhere", None),
            };
            if let Some(of) = of {
                let parts: Vec<String> = of.parts.iter().map(|(v, r)| format!("{v}{r}")).collect();
                let _ = writeln!(text, "  {does} {}-{} {}", of.from, of.to, parts.join(" "));
            }
            for call in task.calls() {
                let node = graph.node(call.node);
                let operands: Vec<String> = call
                    .operands
                    .iter()
                    .map(|o| {
                        let usage = match o.usage {
                            Use::Read => "",
                            Use::Write => "=",
                            Use::Update => "~",
                        };
                        format!("{usage}{}{}", o.value, o.region)
                    })
                    .collect();
                let name = node.op.name();
                let _ = writeln!(text, "  {name} @ {} {}", node.path, operands.join(" "));
            }
        }
        text
    }

    /// The tasks in Graphviz' language, one colour a worker.
    pub fn to_dot(&self, graph: &Graph) -> String {
        const COLOURS: [&str; 8] = [
            "#dae8fc", "#d5e8d4", "#fff2cc", "#f8cecc", "#e1d5e7", "#ffe6cc", "#f5f5f5", "#cce5ff",
        ];
        let mut dot =
            String::from("digraph tasks {\n  node [shape=box, style=filled, fontname=\"sans\"];\n");
        for (t, task) in self.tasks.iter().enumerate() {
            let mut calls: Vec<String> = task
                .calls()
                .iter()
                .map(|c| {
                    let node = graph.node(c.node);
                    format!("{} {}", node.op.name(), node.path)
                })
                .collect();
            if let Does::Move(of) = &task.does {
                calls.push(format!("move {} from {} to {}", of.bytes(graph), of.from, of.to));
            }
            let id = TaskId::new(t);
            let label = format!("{id} on {}\\n{}", task.worker, calls.join("\\n"));
            let colour = COLOURS[task.worker.index() % COLOURS.len()];
            let _ = writeln!(dot, "  {id} [label=\"{label}\", fillcolor=\"{colour}\"];");
            for pred in &self.edges.preds[t] {
                let _ = writeln!(dot, "  {pred} -> {id};");
            }
        }
        dot.push_str("}\n");
        dot
    }
}

impl PlannedPrograms {
    /// The memory as a table: what is needed, and the largest tensors.
    pub fn memory_text(&self) -> String {
        let (memory, mut text) = (&self.memory, String::new());
        let mut line = |name: &str, count: usize, bytes: usize| {
            let total = Bytes((count * bytes) as u64);
            let each = if count == 1 {
                String::new()
            } else {
                format!("{count} x {}", Bytes(bytes as u64))
            };
            let _ = writeln!(text, "{name:<24} {total:>12}  {each}");
        };
        for space in memory.spaces() {
            let s = space.index();
            if self.placement.spaces.len() > 1 {
                let name = self.placement.spaces[s].to_string();
                line(&name, 1, memory.peak_of(space).0 as usize);
            }
            line("persistent values", 1, memory.persistent_bytes[s]);
            line("inputs", memory.input_slots, memory.input_slot(space));
            for (program, of) in self.expanded().programs.iter().zip(&memory.programs) {
                let name = format!("outputs of {}", program.name);
                line(&name, of.output_slots, of.spaces[s].outputs);
            }
            line("work", 1, memory.work(space));
            line("scratch", memory.workers[s], memory.scratch(space));
        }
        let _ = writeln!(text, "{:<24} {:>12}", "peak", memory.peak());
        text.push_str("largest tensors:\n");
        for (name, bytes) in self.largest(5) {
            let _ = writeln!(text, "  {bytes:>12}  {name}");
        }
        text
    }

    /// How much of the work memory the same storages would take without reuse.
    pub fn work_without_reuse(&self) -> Bytes {
        let of = |graph: &TaskGraph| -> usize {
            let work = graph.layout.storages.iter().filter(|s| s.home == Home::Work);
            work.map(|s| s.bytes).sum()
        };
        Bytes(self.graphs().iter().map(of).max().unwrap_or(0) as u64)
    }
}
