//! Why a grain was chosen, in words.

use dahl::graph::Programs;
use dahl::planner::{Candidate, Choice};
use std::fmt::Write as _;

/// The best, what others would cost, and how each layer is cut.
pub(super) fn text(choice: &Choice, programs: &Programs) -> String {
    let best = choice.best();
    let (step, [low, high]) = (best.step.step, best.step.interval);
    let ran = match choice.candidates.iter().filter(|candidate| candidate.ran.is_some()).count() {
        0 => String::new(),
        n => format!(", and steps of {n}\nwere run in turns: the shortest was taken"),
    };
    let mut text = format!(
        "{} on {} workers: {step} a step predicted, with 95 % in {low} to {high}.\n\
         {} other grains were predicted; of {} the calls were measured for it{ran}.\n\n",
        best.grain,
        best.grain.workers,
        choice.candidates.len() - 1,
        choice.learned,
    );
    let _ = writeln!(
        text,
        "{:32} {:>7} {:>10} {:>8} {:>10} {:>11}",
        "grain", "workers", "predicted", "", "ran", "memory"
    );
    for candidate in &choice.candidates {
        let more = 100.0 * (candidate.step.step.0 as f64 / step.0.max(1) as f64 - 1.0);
        let _ = writeln!(
            text,
            "{:32} {:>7} {:>10} {:>+7.1}% {:>10} {:>11}",
            candidate.grain.to_string(),
            candidate.grain.workers,
            candidate.step.step.to_string(),
            more,
            candidate.ran.map_or("-".to_owned(), |ran| ran.to_string()),
            candidate.plan.memory.peak().to_string(),
        );
    }
    if let Some(what) = crate::limit::recomputed(programs, &best.plan) {
        let (peak, plain) = (best.plan.memory.peak(), best.plain);
        let _ = writeln!(text, "\nrecomputed to need {peak} instead of {plain}: {what}");
    }
    text += "\n";
    layers(&mut text, best, programs);
    text
}

/// How the ops of each layer are cut, forwards and backwards.
fn layers(text: &mut String, best: &Candidate, programs: &Programs) {
    let Ok((expanded, _)) = best.plan.task_graphs(programs) else { return };
    let graph = &expanded.programs[0].graph;
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for group in &best.plan.placement.programs[0].groups {
        for (node, cuts) in group.nodes.iter().zip(&group.cuts) {
            let node = graph.node(*node);
            let pieces = group.workers.len();
            let cut = match cuts.is_empty() {
                true => format!("{} whole", node.op.name()),
                false => {
                    let along = cuts.iter().map(|(axis, _)| axis_name(*axis));
                    let along = along.collect::<Vec<_>>().join(" and ");
                    format!("{} in {pieces} pieces along its {along}", node.op.name())
                }
            };
            match rows.iter_mut().find(|(path, _)| *path == node.path) {
                Some((_, cuts_of)) if cuts_of.contains(&cut) => {}
                Some((_, cuts_of)) => cuts_of.push(cut),
                None => rows.push((node.path.clone(), vec![cut])),
            }
        }
    }
    for (path, cuts) in rows {
        let name = if path.is_empty() { "(no layer)" } else { &path };
        let _ = writeln!(text, "{name}: {}", cuts.join("; "));
    }
    *text += "\nWhat flows over the batch is cut along it; parameters and merges only where a piece\n\
              is worth a task of its own. Ops over the same piece are one task.\n";
}

fn axis_name(axis: usize) -> &'static str {
    ["first axis (samples, or filters of a parameter)", "channels", "rows", "columns"]
        .get(axis)
        .copied()
        .unwrap_or("last axis")
}
