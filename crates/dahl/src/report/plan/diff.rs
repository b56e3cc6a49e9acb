//! Two plans over units side by side.

use crate::error::{Error, Result};
use crate::planner::pipeline::StageCost;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::path::Path;

/// What is compared of a plan, of the JSON of [`PlanReport`](super::PlanReport).
#[derive(Deserialize)]
struct Stored {
    semantics: String,
    period_s: f64,
    energy_j: f64,
    idle_j: f64,
    base_j: f64,
    stages: Vec<StoredStage>,
}

#[derive(Deserialize)]
struct StoredStage {
    /// Samples of each unit, where units share a batch.
    #[serde(default)]
    samples: Vec<usize>,
    layers: Vec<usize>,
    unit: String,
    replicas: usize,
    power: String,
    #[serde(flatten)]
    cost: StageCost,
}

impl Stored {
    fn read(path: &Path) -> Result<Self> {
        let text = crate::os::disk::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        serde_json::from_str(&text).map_err(|error| {
            Error::data(path, "file", "a plan in JSON, as `dahl plan` prints it", error)
        })
    }

    fn sum(&self, of: fn(&StoredStage) -> f64) -> f64 {
        self.stages.iter().map(of).sum()
    }

    /// The stages of each layer, and its joules.
    fn layers(&self) -> BTreeMap<usize, Placed<'_>> {
        let mut layers: BTreeMap<usize, Placed<'_>> = BTreeMap::new();
        for stage in &self.stages {
            for (at, layer) in stage.layers.iter().enumerate() {
                // Units that share a batch all have it.
                let placed = layers.entry(*layer).or_default();
                placed.stages.push(stage);
                placed.joules += stage.cost.layers_j.get(at).copied().unwrap_or(0.0);
            }
        }
        layers
    }
}

/// Where a layer runs.
#[derive(Clone, Default)]
struct Placed<'a> {
    stages: Vec<&'a StoredStage>,
    joules: f64,
}

impl Placed<'_> {
    /// Whether units, replicas, powers and samples are the same.
    fn is_like(&self, other: &Self) -> bool {
        let alike = |a: &StoredStage, b: &StoredStage| {
            a.unit == b.unit
                && a.replicas == b.replicas
                && a.power == b.power
                && a.samples == b.samples
        };
        self.stages.len() == other.stages.len()
            && self.stages.iter().zip(&other.stages).all(|(a, b)| alike(a, b))
    }
}

/// Units, replicas, powers and samples.
impl fmt::Display for Placed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stages.is_empty() {
            return f.write_str("-");
        }
        for (i, StoredStage { unit, replicas, power, samples, .. }) in
            self.stages.iter().enumerate()
        {
            let and = if i > 0 { " + " } else { "" };
            write!(f, "{and}{unit} x{replicas} @ {power}")?;
            if !samples.is_empty() {
                let samples: Vec<String> = samples.iter().map(usize::to_string).collect();
                write!(f, " (samples {})", samples.join(":"))?;
            }
        }
        Ok(())
    }
}

/// Layers that follow each other and are elsewhere in another plan, with their joules.
struct Moved<'a> {
    layers: Range<usize>,
    from: Placed<'a>,
    to: Placed<'a>,
}

/// The runs of layers that moved from one place to one other. Only layers that a plan has
/// are looked at, whatever their numbers are.
fn moved<'a>(a: &'a Stored, b: &'a Stored) -> Vec<Moved<'a>> {
    let (mut a, mut b) = (a.layers(), b.layers());
    let layers: BTreeSet<usize> = a.keys().chain(b.keys()).copied().collect();
    let mut moved: Vec<Moved<'_>> = Vec::new();
    for layer in layers {
        let (from, to) =
            (a.remove(&layer).unwrap_or_default(), b.remove(&layer).unwrap_or_default());
        let end = layer.saturating_add(1);
        match moved.last_mut() {
            Some(run)
                if run.layers.end == layer && run.from.is_like(&from) && run.to.is_like(&to) =>
            {
                run.layers.end = end;
                run.from.joules += from.joules;
                run.to.joules += to.joules;
            }
            _ => moved.push(Moved { layers: layer..end, from, to }),
        }
    }
    moved.retain(|run| !run.from.is_like(&run.to));
    moved
}

/// The differences of two plans as text, and whether there are any. The files have the JSON of
/// [`PlanReport`](super::PlanReport).
///
/// # Errors
/// Where a file cannot be read or has something else.
pub fn plan_diff(a: &Path, b: &Path) -> Result<(String, bool)> {
    let (a, b) = (Stored::read(a)?, Stored::read(b)?);
    let mut text = String::new();
    let _ = writeln!(text, "{:22}{:>14}{:>14}{:>14}", "", "A", "B", "B - A");
    let mut row = |name: &str, a: f64, b: f64| {
        let _ = writeln!(text, "{name:22}{a:>14.6}{b:>14.6}{:>+14.6}", b - a);
    };
    row("period, s", a.period_s, b.period_s);
    row("energy, J", a.energy_j, b.energy_j);
    row("  computing, J", a.sum(|s| s.cost.compute_j), b.sum(|s| s.cost.compute_j));
    row("  moving bytes, J", a.sum(|s| s.cost.moved_j), b.sum(|s| s.cost.moved_j));
    row("  units idle, J", a.idle_j, b.idle_j);
    row("  machines on, J", a.base_j, b.base_j);
    let mut different = a.semantics != b.semantics;
    if different {
        let _ = writeln!(text, "semantics: {} | {}", a.semantics, b.semantics);
    }
    for Moved { layers: Range { start, end }, from, to } in moved(&a, &b) {
        different = true;
        let joules = to.joules - from.joules;
        let _ = writeln!(text, "layers {start}..{end}: {from} | {to}: {joules:+.6} J of computing");
    }
    let cuts = |plan: &Stored| plan.stages.iter().map(|s| s.layers.clone()).collect::<Vec<_>>();
    if cuts(&a) != cuts(&b) {
        different = true;
        let _ = writeln!(text, "stages: {} | {}", a.stages.len(), b.stages.len());
    }
    if !different {
        text += "the same stages\n";
    }
    Ok((text, different))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Stages of layers on units, one joule per layer.
    fn plan(stages: &[(&[usize], &str)]) -> Stored {
        let stage = |(layers, unit): &(&[usize], &str)| {
            json!({
                "layers": layers, "unit": unit, "replicas": 1, "power": "full", "compute_s": 0.0, "stage_s": 0.0, "compute_j": 0.0,
                "moved_j": 0.0, "memory_bytes": 0.0, "layers_j": vec![1.0; layers.len()],
            })
        };
        let stages: Vec<_> = stages.iter().map(stage).collect();
        let plan = json!({
            "semantics": "", "period_s": 0.0, "energy_j": 0.0, "idle_j": 0.0, "base_j": 0.0,
            "stages": stages,
        });
        serde_json::from_value(plan).expect("a plan")
    }

    #[track_caller]
    fn check(a: &[(&[usize], &str)], b: &[(&[usize], &str)], expected: &[&str]) {
        let (a, b) = (plan(a), plan(b));
        let line = |run: &Moved<'_>| {
            let Moved { layers, from, to } = run;
            format!("{layers:?} {from} | {to} {} | {}", from.joules, to.joules)
        };
        assert_eq!(moved(&a, &b).iter().map(line).collect::<Vec<_>>(), expected);
    }

    /// Every number up to the highest was looked at.
    #[test]
    fn layers_of_any_number_are_compared() {
        check(
            &[(&[0, 1], "a"), (&[2, 3], "b")],
            &[(&[0, 1, 2, 3], "a")],
            &["2..4 b x1 @ full | a x1 @ full 2 | 2"],
        );
        // Two stages of one place are one run; both of them have layer 5.
        check(
            &[(&[4], "a"), (&[5], "a")],
            &[(&[4, 5], "b"), (&[5], "c")],
            &[
                "4..5 a x1 @ full | b x1 @ full 1 | 1",
                "5..6 a x1 @ full | b x1 @ full + c x1 @ full 1 | 2",
            ],
        );
        check(
            &[(&[0], "a")],
            &[(&[0, 1_000_000_000, usize::MAX], "a")],
            &[
                "1000000000..1000000001 - | a x1 @ full 0 | 1",
                "18446744073709551615..18446744073709551615 - | a x1 @ full 0 | 1",
            ],
        );
    }
}
