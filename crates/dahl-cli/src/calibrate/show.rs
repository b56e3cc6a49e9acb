//! A calibration as text and as JSON.

use crate::output::Colour;
use crate::table::table as columns;
use dahl::perf::{Copies, PerfModel, Summary};
use dahl::units::Nanos;
use serde_json::json;
use std::fmt::Write as _;

/// Everything but the times.
pub(super) fn head(model: &PerfModel) -> String {
    let about = &model.about;
    let mut text = format!(
        "{}, {} processors, {}; dahl {}, {}\n",
        about.cpu, about.processors, about.isa, about.dahl, about.date
    );
    if let Some(o) = model.overheads {
        let hop = o.hop_ns.map_or("not measured".to_owned(), |ns| format!("{ns:.0} ns"));
        let _ = writeln!(
            text,
            "overhead per task {:.0} ns, per step {:.0} ns, from worker to worker {hop}; a worker spins \
             for {} before it sleeps",
            o.overhead_ns,
            o.step_ns,
            Nanos(o.spin_ns as u64)
        );
    }
    match model.bandwidth {
        Some(b) => {
            let [one, two] = [b.one, b.two].map(|rate| rate / 1e9);
            let _ = writeln!(
                text,
                "memory bandwidth {one:.1} GB/s for one processor, {two:.1} for two"
            );
        }
        None => text += "memory bandwidth not measured: this needs two processors\n",
    }
    if let Some(copies) = model.copies {
        let largest = Copies::SIZES[Copies::SIZES.len() - 1] as f64;
        let rate = largest / copies.copy_ns[Copies::SIZES.len() - 1].max(1.0);
        let hop = Nanos(copies.hop_ns as u64);
        let _ = writeln!(
            text,
            "copies between memories {rate:.1} GB/s, {hop} until a sleeping thread goes on"
        );
    }
    for (kind, machine) in &model.borrowed {
        let _ = writeln!(text, "{kind}: times of another machine, {machine}");
    }
    for (kind, profile) in &model.profiles {
        let _ = writeln!(
            text,
            "{kind}: not measured; at most {:.1} GFLOP/s and {:.1} GB/s",
            profile.flops / 1e9,
            profile.bandwidth / 1e9
        );
    }
    text
}

/// A line per codelet.
pub(super) fn table(model: &PerfModel) -> String {
    let row = |Summary { codelet, shapes, stats, rejected, error }: &Summary| {
        let mut row = vec![
            codelet.codelet.clone(),
            codelet.variant.clone(),
            codelet.kind.clone(),
            shapes.to_string(),
            stats.count.to_string(),
        ];
        row.extend([stats.mean, stats.p50, stats.p99].map(|t| Nanos(t as u64).to_string()));
        row.push(format!("{:.1}%", 100.0 * stats.spread));
        row.push(rejected.to_string());
        row.push(error.map_or("-".to_owned(), |e| format!("{:.0}%", 100.0 * e)));
        row
    };
    let heads = [
        "codelet",
        "variant",
        "unit",
        ">shapes",
        ">calls",
        ">mean",
        ">p50",
        ">p99",
        ">spread",
        ">rejected",
        ">error",
    ];
    let rows: Vec<_> = model.summaries().iter().map(row).collect();
    columns(&heads, &rows, Colour::of_stdout())
}

/// An object per codelet.
pub(super) fn objects(model: &PerfModel) -> String {
    let line = |s: &Summary| {
        let value = json!({
            "codelet": s.codelet.codelet,
            "variant": s.codelet.variant,
            "kind": s.codelet.kind,
            "shapes": s.shapes,
            "calls": s.stats.count,
            "mean_ns": s.stats.mean,
            "p50_ns": s.stats.p50,
            "p99_ns": s.stats.p99,
            "spread": s.stats.spread,
            "rejected": s.rejected,
            "error": s.error,
            "machine": model.borrowed.get(&s.codelet.kind).unwrap_or(&model.about.cpu),
        });
        format!("{value}\n")
    };
    model.summaries().iter().map(line).collect()
}
