//! Pipelines as text for people.

use super::compare::{JsonPlan, distinct, in_short, semantics};
use crate::output::Colour;
use dahl::choose::in_words;
use dahl::planner::Deployed;
use dahl::planner::baselines::{Load, MaxLoad, Operators};
use dahl::planner::pipeline::{Objective, Problem, Solution};
use dahl::platform::{Origin, Platform};
use dahl::units::{Bytes, Joules};
use serde_json::json;
use std::fmt::Write as _;

/// A time with digits that people read.
pub(super) fn seconds(x: f64) -> String {
    match x {
        x if x >= 1.0 => format!("{x:.4} s"),
        x if x >= 1e-3 => format!("{:.4} ms", x * 1e3),
        x => format!("{:.4} µs", x * 1e6),
    }
}

/// What joules rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figures {
    Known,
    /// Of some the watts are guesses: the first digits say something at most.
    Guessed,
}

impl Figures {
    pub(super) fn of(platform: &Platform) -> Self {
        let guessed = platform.figures().any(|figure| figure.from == Origin::Guess);
        if guessed { Self::Guessed } else { Self::Known }
    }

    /// Joules of a table or claim, with as many digits as they deserve.
    fn joules(self, joules: f64) -> String {
        match self {
            Self::Known => format!("{joules:.6} J"),
            Self::Guessed => format!("about {}", Joules(joules).rounded(4)),
        }
    }
}

pub(super) fn text(
    (problem, found, figures): (&Problem, &Solution, Figures),
    plan: &JsonPlan,
    colour: Colour,
) -> String {
    let guess = if figures == Figures::Guessed { ", some watts are a guess" } else { "" };
    // What is least has the unit of the objective.
    let value = |x: f64| match problem.objective {
        Objective::Energy if figures == Figures::Guessed => figures.joules(x),
        _ => format!("{x:.6}"),
    };
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{} {value}", colour.paint("1", &format!("{key:14}")));
    };
    let m = plan.micro_batches.map_or(String::new(), |m| format!(", {m} micro-batches"));
    let best = found.best.as_ref().map_or(String::new(), |best| in_short(problem, best));
    line("plan", format!("{} for {}: {best}", plan.status, plan.objective));
    line("space", format!("cost model {}; {}", plan.cost_model, plan.plan_space));
    line("semantics", format!("{}{m}", plan.semantics));
    line("period", format!("{} a batch", seconds(plan.period_s)));
    let energy = format!("about {} per batch, modelled{guess}", Joules(plan.energy_j).rounded(4));
    line(
        "energy",
        format!(
            "{energy}; {:.1} W on average, {:.1} W at most",
            plan.average_watts, plan.peak_watts
        ),
    );
    let gap = plan.gap.map_or("unknown".to_owned(), |gap| format!("{:.3} %", 100.0 * gap));
    line(
        "lower bound",
        format!(
            "of {}: {} ({}), gap {gap}",
            plan.bound_space,
            value(plan.lower_bound),
            plan.objective
        ),
    );
    if let Some(proof) = &plan.certificate {
        let about = match proof.of_this_plan {
            true => "of this plan".to_owned(),
            false => format!(
                "of another plan, the best without uneven shares: {} ({} and {} per batch)",
                proof.stages,
                seconds(proof.period_s),
                figures.joules(proof.energy_j)
            ),
        };
        line(
            "certificate",
            format!(
                "{about}; space: {}; no plan of it has {} below {}",
                proof.plan_space,
                plan.objective,
                value(proof.no_plan_below)
            ),
        );
    }
    text += "\n";
    let rows = plan.stages.iter().enumerate().map(|(i, stage)| {
        [
            i.to_string(),
            format!("{} ({} to {})", stage.layers.len(), short(&stage.first), short(&stage.last)),
            format!("{} x{}", stage.unit, stage.replicas),
            stage.power.clone(),
            seconds(stage.cost.stage_s),
            format!("{:.3}", stage.cost.compute_j + stage.cost.moved_j),
            Bytes(stage.cost.memory_bytes as u64).to_string(),
        ]
    });
    let heads = ["stage", "layers", "units", "power", "time", "J above idle", "memory"];
    text += &table(&heads, &rows.collect::<Vec<_>>(), colour);
    let off = plan.units.iter().filter(|unit| unit.off > 0);
    let off: Vec<String> = off.map(|unit| format!("{} x{}", unit.unit, unit.off)).collect();
    if !off.is_empty() {
        let _ = writeln!(text, "\nleft off: {}", off.join(", "));
    }
    let whole = if found.whole { "all of it" } else { "what was found" };
    let names = plan.front.iter().map(|point| point.semantics.as_str());
    let mixed = names.clone().any(|name| name != plan.semantics);
    let name = if mixed { "of the semantics that each has" } else { &plan.semantics };
    let _ = writeln!(text, "\nfront of time and energy, {name}, {whole}:");
    let front = found.best.as_ref().map(|best| distinct(found.front.plans(), best));
    let rows = front.iter().flatten().map(|point| {
        let chosen = point.period_s == plan.period_s && point.energy_j == plan.energy_j;
        [
            if chosen { "*" } else { "" }.to_owned(),
            format!("{:.9}", point.period_s),
            match figures {
                Figures::Known => format!("{:.6}", point.energy_j),
                Figures::Guessed => Joules(point.energy_j).rounded(4),
            },
            match mixed {
                true => format!("{}: {}", semantics(problem, point), in_short(problem, point)),
                false => in_short(problem, point),
            },
        ]
    });
    let energy = if figures == Figures::Guessed { "energy, about" } else { "energy, J" };
    text + &table(&["", "period, s", energy, "stages"], &rows.collect::<Vec<_>>(), colour)
}

/// The plans as runs on this machine, the best first.
pub(super) fn runs(problem: &Problem, deployed: &[Deployed], colour: Colour) -> String {
    if deployed.is_empty() {
        return String::new();
    }
    let rows = deployed.iter().enumerate().map(|(i, run)| {
        let step = run.step.as_ref();
        [
            if i == 0 { "*" } else { "" }.to_owned(),
            step.map_or("-".to_owned(), |s| s.step.to_string()),
            step.map_or("-".to_owned(), |s| format!("{} to {}", s.interval[0], s.interval[1])),
            step.map_or("-".to_owned(), |s| s.joules.rounded(4)),
            run.plan.memory.peak().to_string(),
            match run.breaks(problem) {
                Some(bound) => format!("{}; not within --{bound}", in_words(problem, run)),
                None => in_words(problem, run),
            },
        ]
    });
    let heads = ["", "step", "with 95 % in", "energy, modelled", "memory", "units"];
    format!(
        "\nas runs with a worker a unit, the best first by simulation (stale pipelines by the \
         formulas);\n`dahl train --plan auto` tries those that are close:\n{}",
        table(&heads, &rows.collect::<Vec<_>>(), colour)
    )
}

pub(super) fn run_json(problem: &Problem, run: &Deployed) -> serde_json::Value {
    let step = run.step.as_ref();
    json!({
        "units": in_words(problem, run),
        "step_s": step.map(|s| s.step.0 as f64 / 1e9),
        "interval_s": step.map(|s| s.interval.map(|nanos| nanos.0 as f64 / 1e9)),
        "energy_j": step.map(|s| s.joules.0),
        "memory_bytes": run.plan.memory.peak().0,
        "micro_batches": run.spec.micro_batches,
        "breaks": run.breaks(problem),
    })
}

/// The id of a layer without what it is.
fn short(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

/// Columns as wide as what is in them.
pub(super) fn table<const N: usize>(
    heads: &[&str; N],
    rows: &[[String; N]],
    colour: Colour,
) -> String {
    let mut widths = heads.map(|head| head.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String; N]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut text = format!("{}\n", colour.paint("2", &line(&heads.map(str::to_owned))));
    rows.iter().for_each(|row| text += &format!("{}\n", line(row)));
    text
}

fn status(found: &MaxLoad) -> &'static str {
    if found.gap() == 0.0 { "optimal" } else { "best found" }
}

const LOAD_SPACE: &str = "devices in an order, contiguous forward parts, colour classes together";

pub(super) fn loads(of: &Operators, found: &MaxLoad, colour: Colour) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{} {value}", colour.paint("1", &format!("{key:14}")));
    };
    line("plan", format!("{} for the largest load", status(found)));
    line("space", format!("cost model max-load; {LOAD_SPACE}; {} states", found.states));
    line("largest load", format!("{:.4}", found.load));
    line("lower bound", format!("{:.4}, gap {:.3} %", found.lower_bound, 100.0 * found.gap()));
    text += "\n";
    let rows = found.devices.iter().map(|device| {
        let bytes: f64 = device.operators.iter().map(|&i| of.nodes[i].bytes).sum();
        [
            kind(device.kind).to_owned(),
            device.operators.len().to_string(),
            format!("{:.4}", device.load),
            Bytes(bytes as u64).to_string(),
        ]
    });
    text + &table(&["device", "operators", "load", "memory"], &rows.collect::<Vec<_>>(), colour)
}

fn kind(of: Load) -> &'static str {
    match of {
        Load::Accelerator => "accelerator",
        Load::Core => "core",
    }
}

pub(super) fn loads_json(of: &Operators, found: &MaxLoad) -> String {
    let stages: Vec<_> = found
        .devices
        .iter()
        .map(|device| {
            let ids: Vec<i64> = device.operators.iter().map(|&i| of.nodes[i].id).collect();
            json!({ "device": kind(device.kind), "nodes": ids, "load": device.load })
        })
        .collect();
    let object = json!({
        "objective": "time",
        "cost_model": "max-load",
        "semantics": "stale",
        "status": status(found),
        "plan_space": LOAD_SPACE,
        "max_load": found.load,
        "period_s": found.load / 1000.0,
        "energy_j": null,
        "lower_bound": found.lower_bound,
        "gap": found.gap(),
        "front": [{ "period_s": found.load / 1000.0, "energy_j": null, "semantics": "stale" }],
        "stages": stages,
    });
    format!("{object}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessed_joules_have_few_digits() {
        assert_eq!(Figures::Guessed.joules(131.144_325_1), "about 131.1 J");
        assert_eq!(Figures::Known.joules(131.144_325_1), "131.144325 J");
    }
}
