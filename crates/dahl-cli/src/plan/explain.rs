//! Why a grain was chosen, in words.

use crate::output::Colour;
use crate::table::table;
use dahl::choose::{ChosenGrain, GrainCandidate};
use dahl::planner::{Why, why};
use dahl::run::recomputed_in_words;
use std::fmt::Write as _;

/// The best, what others would cost, and how each layer is cut.
pub(super) fn text(choice: &ChosenGrain) -> String {
    let best = choice.best();
    let (step, [low, high]) = (best.step.step, best.step.interval);
    let ran = match choice.candidates.iter().filter(|candidate| candidate.ran.is_some()).count() {
        0 => String::new(),
        n => format!(";\n{n} candidates were run alternately, and the fastest was chosen"),
    };
    let mut text = format!(
        "{} on {} workers: {step} per step predicted (95 % interval {low} to {high}).\n\
         {} other grains were predicted; the calls of {} were measured first{ran}.\n\n",
        best.grain,
        best.grain.workers,
        choice.candidates.len() - 1,
        choice.learned,
    );
    let row = |candidate: &GrainCandidate| {
        let more = 100.0 * (candidate.step.step.0 as f64 / step.0.max(1) as f64 - 1.0);
        vec![
            candidate.grain.to_string(),
            candidate.grain.workers.to_string(),
            candidate.step.step.to_string(),
            format!("{more:+.1}%"),
            candidate.took().map_or("-".to_owned(), |ran| ran.to_string()),
            candidate.plan.memory.peak().to_string(),
        ]
    };
    let heads = ["grain", ">workers", ">predicted", ">difference", ">measured", ">memory"];
    let rows: Vec<_> = choice.candidates.iter().map(row).collect();
    text += &table(&heads, &rows, Colour::of_stdout());
    if let Some(what) = recomputed_in_words(&best.plan) {
        let (peak, plain) = (best.plan.memory.peak(), best.plain);
        let _ = writeln!(text, "\nrecomputed to need {peak} instead of {plain}: {what}");
    }
    text += "\n";
    layers(&mut text, best);
    text
}

/// The cuts of the ops of each layer, forward and backward, with reasons.
fn layers(text: &mut String, best: &GrainCandidate) {
    let expanded = best.plan.expanded();
    let graph = &expanded.programs[0].graph;
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    for group in &best.plan.placement.programs[0].groups {
        for node in &group.nodes {
            let node = graph.node(*node);
            let cut = in_words(node.op.name(), &why(graph, node, &best.grain));
            match rows.iter_mut().find(|(path, _)| *path == node.path) {
                Some((_, cuts_of)) if cuts_of.contains(&cut) => {}
                Some((_, cuts_of)) => cuts_of.push(cut),
                None => rows.push((&node.path, vec![cut])),
            }
        }
    }
    for (path, cuts) in rows {
        let _ = writeln!(text, "{}", if path.is_empty() { "(no layer)" } else { path });
        cuts.iter().for_each(|cut| {
            let _ = writeln!(text, "  {cut}");
        });
    }
    *text += "\nOps over the same pieces are one task.\n";
}

/// The cuts of an op, with reasons.
fn in_words(op: &str, asked: &[(usize, usize, Why)]) -> String {
    let cut: Vec<String> = asked
        .iter()
        .filter(|(.., why)| why.is_cut())
        .map(|(axis, count, why)| {
            let (axis, because) = match why {
                Why::Batch if *axis == 0 => ("samples", "its result has the axis of the batch"),
                Why::Batch => (axis_name(*axis), "its result has the axis of the batch"),
                _ => (axis_name(*axis), "a piece is large enough for a task"),
            };
            format!("in {count} along its {axis}: {because}")
        })
        .collect();
    if !cut.is_empty() {
        return format!("{op} {}", cut.join("; "));
    }
    let why_not = asked.iter().map(|(axis, _, why)| match why {
        Why::NotOffered => format!("it has no {} to cut", axis_name(*axis)),
        Why::Short => format!("one of its {}", axis_name(*axis)),
        _ => "a piece would be below 16 Ki operations and bytes".to_owned(),
    });
    let why_not: Vec<String> = why_not.collect();
    match why_not.is_empty() {
        true => format!("{op} whole: nothing is cut"),
        false => format!("{op} whole: {}", why_not.join("; ")),
    }
}

fn axis_name(axis: usize) -> &'static str {
    ["filters or features", "channels", "rows", "columns"].get(axis).copied().unwrap_or("last axis")
}
