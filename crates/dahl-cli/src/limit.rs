//! `--memory-limit`: plans that fit, and what is said of them.

use crate::output::say;
use crate::progress::Show;
use dahl::Result;
use dahl::graph::Programs;
use dahl::plan::{Numerics, Plan};
use dahl::planner::{Fitted, Grain, fit};
use dahl::units::Bytes;

/// The plan of a grain, with activations recomputed where it would not fit otherwise.
pub(crate) fn plan(
    grain: &Grain,
    (programs, numerics): (&Programs, Numerics),
    limit: Option<Bytes>,
    show: Show,
) -> Result<Plan> {
    let limit = limit.unwrap_or(Bytes(u64::MAX));
    Ok(told(programs, fit(grain, programs, &numerics, limit)?, show))
}

/// The plan that fits, after what it recomputes was said.
pub(crate) fn told(programs: &Programs, Fitted { plan, plain }: Fitted, show: Show) -> Plan {
    tell(programs, &plan, plain, show);
    plan
}

/// Says what a plan recomputes, where it does.
pub(crate) fn tell(programs: &Programs, plan: &Plan, plain: Bytes, show: Show) {
    if show != Show::Nothing
        && let Some(what) = recomputed(programs, plan)
    {
        let peak = plan.memory.peak();
        say(format_args!("recomputed: {what}; {peak} of memory instead of {plain}"));
    }
}

/// What a plan recomputes in words; none where it does not.
pub(crate) fn recomputed(programs: &Programs, plan: &Plan) -> Option<String> {
    let of = |(i, program): (usize, &dahl::graph::Program)| {
        let repeated = plan.recompute.repeated(programs, i);
        let mut ops: Vec<(&str, usize)> = Vec::new();
        for &id in &plan.recompute.programs[i] {
            let name = program.graph.node(id).op.name();
            match ops.iter_mut().find(|(op, _)| *op == name) {
                Some((_, count)) => *count += 1,
                None => ops.push((name, 1)),
            }
        }
        let ops: Vec<String> = ops.iter().map(|(op, count)| format!("{count} {op}")).collect();
        (repeated.nodes > 0).then(|| {
            format!(
                "{} run again in {}, {:.1} % more flops",
                ops.join(", "),
                program.name,
                repeated.percent()
            )
        })
    };
    let parts: Vec<String> = programs.programs.iter().enumerate().filter_map(of).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// `500MiB`, `2GiB`, `1000000`.
pub(crate) fn bytes(text: &str) -> Result<Bytes, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit.trim() {
        "" | "B" => 1.0,
        "KiB" | "K" => 1024.0,
        "MiB" | "M" => 1024.0 * 1024.0,
        "GiB" | "G" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("unknown unit {unit:?}: expected B, KiB, MiB or GiB")),
    };
    let number: f64 = number.parse().map_err(|_| "expected a number, as in 2GiB".to_owned())?;
    Ok(Bytes((number * scale) as u64))
}
