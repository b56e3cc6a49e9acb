//! The task graph of a traced program in Graphviz' language.

use super::super::calls::Calls;
use crate::trace::Trace;
use crate::units::Nanos;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the tasks of the program that took most of the time, with their mean times; a
/// colour a worker, the critical path in bold.
pub fn dot(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    const COLOURS: [&str; 8] =
        ["#dae8fc", "#d5e8d4", "#fff2cc", "#f8cecc", "#e1d5e7", "#ffe6cc", "#f5f5f5", "#cce5ff"];
    let calls = Calls::of(trace);
    let mut times: BTreeMap<u32, u64> = BTreeMap::new();
    for call in &calls.all {
        *times.entry(call.program).or_default() += call.nanos();
    }
    // The first of equal ones.
    let longest = times.iter().rev().max_by_key(|(_, time)| **time).map_or(0, |(p, _)| *p);
    let Some(program) = trace.header.programs.get(longest as usize) else {
        return writeln!(out, "digraph tasks {{\n}}");
    };
    let mut tasks = vec![(0u64, 0u64, 0u32); program.tasks.len()];
    for call in calls.all.iter().filter(|call| call.program == longest) {
        let task = &mut tasks[call.task as usize];
        *task = (task.0 + u64::from(call.ordinal == 0), task.1 + call.nanos(), call.worker);
    }
    let mean = |t: usize| tasks[t].1 / tasks[t].0.max(1);
    let mut ends: Vec<(u64, Option<u32>)> = Vec::new();
    for (t, work) in program.work.iter().enumerate() {
        let before = work.after.iter().copied().rev().max_by_key(|&p| ends[p as usize].0);
        ends.push((mean(t) + before.map_or(0, |p| ends[p as usize].0), before));
    }
    let mut critical = vec![false; ends.len()];
    let mut at = (0..ends.len()).rev().max_by_key(|&t| ends[t].0);
    while let Some(t) = at {
        critical[t] = true;
        at = ends[t].1.map(|p| p as usize);
    }
    writeln!(out, "digraph tasks {{")?;
    writeln!(out, "  label={};", quoted(&program.name))?;
    writeln!(out, "  node [shape=box, style=filled, fontname=\"sans\"];")?;
    for (t, label) in program.tasks.iter().enumerate() {
        let (runs, _, worker) = tasks[t];
        let time = if runs > 0 { Nanos(mean(t)).to_string() } else { "not run".to_owned() };
        let colour = COLOURS[worker as usize % COLOURS.len()];
        let bold = if critical.get(t) == Some(&true) { ", penwidth=3" } else { "" };
        let on = trace.header.units.get(worker as usize).cloned();
        let on = on.unwrap_or_else(|| format!("w{worker}"));
        let label = quoted(&format!("{label}\n{time} on {on}"));
        writeln!(out, "  t{t} [label={label}, fillcolor=\"{colour}\"{bold}];")?;
    }
    for (t, work) in program.work.iter().enumerate() {
        for &pred in &work.after {
            let on = critical[t] && ends[t].1 == Some(pred);
            writeln!(out, "  t{pred} -> t{t}{};", if on { " [penwidth=3]" } else { "" })?;
        }
    }
    writeln!(out, "}}")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
