//! Pipelines as text for people.

use crate::output::Colour;
use crate::table::{facts, table};
use dahl::choose::in_words;
use dahl::planner::Deployed;
use dahl::planner::baselines::{Compared, Device, Load, MaxLoad, Operators};
use dahl::planner::pipeline::{Assignment, Explained, Objective, Problem, in_short, semantics_of};
use dahl::platform::{Origin, Platform};
use dahl::report::PlanReport;
use dahl::units::{Bytes, Joules};
use serde_json::{Value, json};

/// A time with digits that people read.
pub(super) fn seconds(x: f64) -> String {
    match x {
        x if x >= 1.0 => format!("{x:.4} s"),
        x if x >= 1e-3 => format!("{:.4} ms", x * 1e3),
        x => format!("{:.4} µs", x * 1e6),
    }
}

/// The basis of the joules.
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
    pub(super) fn joules(self, joules: f64) -> String {
        match self {
            Self::Known => format!("{joules:.6} J"),
            Self::Guessed => format!("about {}", Joules(joules).rounded(4)),
        }
    }
}

/// A plan with the claims about it, its stages and the front.
pub(super) fn text(report: &PlanReport<'_>, figures: Figures, colour: Colour) -> String {
    let PlanReport { problem, found, best, costs, .. } = report;
    let mut text = facts(&claims(report, figures), colour) + "\n";
    text += &stages((problem, best, costs), colour);
    let off = report.units().filter(|(.., off)| *off > 0);
    let off: Vec<String> = off.map(|(unit, _, off)| format!("{unit} x{off}")).collect();
    if !off.is_empty() {
        text += &format!("\nleft off: {}\n", off.join(", "));
    }
    let whole = if found.whole { "complete" } else { "incomplete" };
    let front = found.front.distinct(best);
    let own = semantics_of(problem, best);
    let mixed = front.iter().any(|point| semantics_of(problem, point) != own);
    let name = if mixed { "semantics as listed" } else { own };
    text += &format!("\nPareto front of period and energy, {name}, {whole}:\n");
    let rows = front.iter().map(|point| {
        let chosen = point.period_s == best.period_s && point.energy_j == best.energy_j;
        let stages = in_short(problem, point);
        vec![
            if chosen { "*" } else { "" }.to_owned(),
            format!("{:.9}", point.period_s),
            match figures {
                Figures::Known => format!("{:.6}", point.energy_j),
                Figures::Guessed => Joules(point.energy_j).rounded(4),
            },
            match mixed {
                true => format!("{}: {stages}", semantics_of(problem, point)),
                false => stages,
            },
        ]
    });
    let energy = if figures == Figures::Guessed { "energy, about" } else { "energy, J" };
    text + &table(&["", "period, s", energy, "stages"], &rows.collect::<Vec<_>>(), colour)
}

/// A table of the stages of a plan.
pub(super) fn stages(
    (problem, plan, costs): (&Problem, &Assignment, &Explained),
    colour: Colour,
) -> String {
    let rows = plan.stages.iter().zip(&costs.stages).enumerate().map(|(i, (stage, cost))| {
        let layer = |i: Option<&usize>| i.map_or("", |i| short(&problem.layers[*i].name));
        let (first, last) = (layer(stage.layers.first()), layer(stage.layers.last()));
        let unit = &problem.units[stage.unit];
        vec![
            i.to_string(),
            format!("{} ({first} to {last})", stage.layers.len()),
            format!("{} x{}", unit.name, stage.replicas),
            unit.powers[stage.power].name.clone(),
            seconds(cost.stage_s),
            format!("{:.3}", cost.compute_j + cost.moved_j),
            Bytes(cost.memory_bytes as u64).to_string(),
        ]
    });
    let heads = ["stage", "layers", "units", "power", "time", "J above idle", "memory"];
    table(&heads, &rows.collect::<Vec<_>>(), colour)
}

/// The claim about a plan, and the space of plans that it covers.
fn claims(report: &PlanReport<'_>, figures: Figures) -> Vec<(&'static str, String)> {
    let PlanReport { problem, found, best, costs, .. } = report;
    let objective = problem.objective.name();
    let guess = if figures == Figures::Guessed { ", some power values are estimates" } else { "" };
    // A bound has the unit of the objective.
    let value = |x: f64| match problem.objective {
        Objective::Energy if figures == Figures::Guessed => figures.joules(x),
        _ => format!("{x:.6}"),
    };
    let m = report.micro_batches().map_or(String::new(), |m| format!(", {m} micro-batches"));
    let joules = Joules(best.energy_j).rounded(4);
    let gap = report.gap.map_or("unknown".to_owned(), |gap| format!("{:.3} %", 100.0 * gap));
    let bound = (found.bounded.name(), value(report.lower_bound));
    let mut claims = vec![
        ("plan", format!("{} for {objective}: {}", report.status, in_short(problem, best))),
        ("space", format!("cost model {}; {}", report.cost_model, report.space)),
        ("semantics", format!("{}{m}", semantics_of(problem, best))),
        ("period", format!("{} per batch", seconds(best.period_s))),
        (
            "energy",
            format!(
                "about {joules} per batch, modelled{guess}; {:.1} W on average, {:.1} W at most",
                report.watts(),
                costs.peak_watts
            ),
        ),
        ("lower bound", format!("of {}: {} ({objective}), gap {gap}", bound.0, bound.1)),
    ];
    claims.extend(report.proof.map(|proof| {
        let about = match proof.plan == **best {
            true => "of this plan".to_owned(),
            false => format!(
                "of another plan, the best without uneven shares: {} ({} and {} per batch)",
                in_short(problem, &proof.plan),
                seconds(proof.plan.period_s),
                figures.joules(proof.plan.energy_j)
            ),
        };
        let (space, bound) = (report.proved_space(proof), value(proof.value));
        let claim =
            format!("{about}; space: {space}; no plan of this space has {objective} below {bound}");
        ("certificate", claim)
    }));
    claims
}

/// The plans as runs on this machine, the best first.
pub(super) fn runs(problem: &Problem, deployed: &[Deployed], colour: Colour) -> String {
    if deployed.is_empty() {
        return String::new();
    }
    let rows = deployed.iter().enumerate().map(|(i, run)| {
        let step = run.step.as_ref();
        vec![
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
    let heads = ["", "step", "95 % interval", "energy, modelled", "memory", "units"];
    let here = deployed.first().is_none_or(|run| run.plan.placement.units.is_empty());
    let next = match here {
        true => "`dahl train --plan auto` measures those that are close",
        false => "moves between memories take the links of the platform",
    };
    format!(
        "\nas runs with one worker per unit, simulated (stale pipelines: by the formulas), best \
         first;\n{next}:\n{}",
        table(&heads, &rows.collect::<Vec<_>>(), colour)
    )
}

pub(super) fn run_json(problem: &Problem, run: &Deployed) -> Value {
    let step = run.step.as_ref();
    json!({
        "units": in_words(problem, run),
        "step_s": step.map(|s| s.step.0 as f64 / 1e9),
        "interval_s": step.map(|s| s.interval.map(|nanos| nanos.0 as f64 / 1e9)),
        "energy_j": step.map(|s| s.joules.0),
        "memory_bytes": run.plan.memory.peak().0,
        "micro_batches": run.spec.micro_batches,
        "shards": run.spec.shards.shares(),
        "spaces": run.plan.placement.spaces.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "moved_bytes": run.moved().0,
        "breaks": run.breaks(problem),
    })
}

/// The id of a layer without what it is.
fn short(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

pub(super) fn status(found: &MaxLoad) -> &'static str {
    if found.gap() == 0.0 { "optimal" } else { "best found" }
}

/// The placements that were compared.
pub(super) fn load_space(found: &MaxLoad) -> String {
    let compared = match found.compared {
        Compared::Ideals(count) => format!("all {count} ideals"),
        Compared::Orders(count) => {
            format!("{count} topological orders and the ideals near them, not all ideals")
        }
    };
    format!("devices in an order, contiguous forward parts, colour classes together; {compared}")
}

pub(super) fn loads(of: &Operators, found: &MaxLoad, colour: Colour) -> String {
    let gap = 100.0 * found.gap();
    let claims = [
        ("plan", format!("{} for the largest load", status(found))),
        ("space", format!("cost model max-load; {}", load_space(found))),
        ("largest load", format!("{:.4}", found.load)),
        ("lower bound", format!("of any placement: {:.4}, gap {gap:.3} %", found.lower_bound)),
    ];
    format!("{}\n{}", facts(&claims, colour), device_table(of, &found.devices, colour))
}

/// A table of devices with their loads.
pub(super) fn device_table(of: &Operators, devices: &[Device], colour: Colour) -> String {
    let rows = devices.iter().map(|device| {
        let bytes: f64 = device.operators.iter().map(|&i| of.nodes[i].bytes).sum();
        vec![
            kind(device.kind).to_owned(),
            device.operators.len().to_string(),
            format!("{:.4}", device.load),
            Bytes(bytes as u64).to_string(),
        ]
    });
    let heads = ["device", "operators", "load", "memory"];
    table(&heads, &rows.collect::<Vec<_>>(), colour)
}

fn kind(of: Load) -> &'static str {
    match of {
        Load::Accelerator => "accelerator",
        Load::Core => "core",
    }
}

pub(super) fn loads_json(of: &Operators, found: &MaxLoad) -> Value {
    json!({
        "objective": "time",
        "cost_model": "max-load",
        "semantics": "stale",
        "status": status(found),
        "plan_space": load_space(found),
        "max_load": found.load,
        "period_s": found.load / 1000.0,
        "energy_j": null,
        "lower_bound": found.lower_bound,
        "gap": found.gap(),
        "front": [{ "period_s": found.load / 1000.0, "energy_j": null, "semantics": "stale" }],
        "stages": devices_json(of, &found.devices),
    })
}

/// Devices with their nodes by id.
pub(super) fn devices_json(of: &Operators, devices: &[Device]) -> Value {
    let device = |device: &Device| {
        let ids: Vec<i64> = device.operators.iter().map(|&i| of.nodes[i].id).collect();
        json!({ "device": kind(device.kind), "nodes": ids, "load": device.load })
    };
    devices.iter().map(device).collect()
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
