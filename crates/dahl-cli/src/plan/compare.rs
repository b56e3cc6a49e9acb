//! A plan as JSON, and two of them side by side: `dahl plan diff`.

use clap::Args;
use dahl::planner::pipeline::{
    Assignment, Certificate, Problem, Semantics, Solution, Stage, StageCost, explain, plan_value,
};
use dahl::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What `dahl plan --json` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JsonPlan {
    pub(crate) objective: String,
    pub(crate) cost_model: String,
    pub(crate) semantics: String,
    pub(crate) micro_batches: Option<usize>,
    pub(crate) status: String,
    pub(crate) plan_space: String,
    pub(crate) period_s: f64,
    pub(crate) energy_j: f64,
    pub(crate) edp_js: f64,
    pub(crate) average_watts: f64,
    pub(crate) peak_watts: f64,
    pub(crate) lower_bound: f64,
    pub(crate) gap: Option<f64>,
    /// Which plans the lower bound holds for.
    #[serde(default)]
    pub(crate) bound_space: String,
    /// What a certificate proves, if one was written.
    pub(crate) certified: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<JsonCertificate>,
    pub(crate) idle_j: f64,
    pub(crate) base_j: f64,
    pub(crate) front: Vec<JsonPoint>,
    pub(crate) front_is_whole: bool,
    pub(crate) stages: Vec<JsonStage>,
    pub(crate) units: Vec<JsonUnit>,
}

/// What a certificate is about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JsonCertificate {
    /// Whether its plan is the one that is printed; else that has uneven shares, and this is the
    /// best without.
    pub(crate) of_this_plan: bool,
    pub(crate) stages: String,
    pub(crate) period_s: f64,
    pub(crate) energy_j: f64,
    pub(crate) plan_space: String,
    pub(crate) no_plan_below: f64,
}

/// A plan of the front.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JsonPoint {
    pub(crate) period_s: f64,
    pub(crate) energy_j: f64,
    pub(crate) semantics: String,
    pub(crate) stages: String,
}

/// A stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JsonStage {
    /// Samples of each unit, where units share a batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) samples: Vec<usize>,
    pub(crate) layers: Vec<usize>,
    pub(crate) first: String,
    pub(crate) last: String,
    pub(crate) unit: String,
    pub(crate) replicas: usize,
    pub(crate) power: String,
    #[serde(flatten)]
    pub(crate) cost: StageCost,
}

/// Units of a type.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JsonUnit {
    pub(crate) unit: String,
    pub(crate) used: usize,
    pub(crate) off: usize,
}

/// The stages of a plan in short: `a40/gpu x2 @ 175 W, v100/gpu x1`.
pub(crate) fn in_short(problem: &Problem, plan: &Assignment) -> String {
    let stage = |stage: &Stage| {
        let unit = &problem.units[stage.unit];
        let power = match unit.powers.len() {
            1 => String::new(),
            _ => format!(" @ {}", unit.powers[stage.power].name),
        };
        format!("{} x{}{power}", unit.name, stage.replicas)
    };
    let stages: Vec<String> = plan.stages.iter().map(stage).collect();
    if plan.shares.is_empty() {
        return stages.join(", ");
    }
    let shares: Vec<String> = plan.shares.iter().flatten().map(usize::to_string).collect();
    format!("{} side by side, samples {}", stages.join(" + "), shares.join(":"))
}

/// When weights change, in a plan: where units share a batch, once a batch.
pub(crate) fn semantics(problem: &Problem, plan: &Assignment) -> &'static str {
    if plan.shares.is_empty() { problem.semantics.name() } else { "synchronous" }
}

/// The plans of a front, which is in order, without those that take the same time and joules on the
/// same units but for rounding; of these the best plan stays.
pub(super) fn distinct<'a>(plans: &'a [Assignment], best: &Assignment) -> Vec<&'a Assignment> {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    let units = |plan: &Assignment| -> Vec<(usize, usize, usize)> {
        plan.stages.iter().map(|stage| (stage.unit, stage.replicas, stage.power)).collect()
    };
    let is_best = |p: &Assignment| (p.period_s, p.energy_j) == (best.period_s, best.energy_j);
    let mut all: Vec<&Assignment> = Vec::new();
    for plan in plans {
        let same = |last: &&mut &Assignment| {
            near(last.period_s, plan.period_s)
                && near(last.energy_j, plan.energy_j)
                && units(last) == units(plan)
                && last.shares == plan.shares
        };
        match all.last_mut().filter(same) {
            Some(last) if is_best(plan) => *last = plan,
            Some(_) => {}
            None => all.push(plan),
        }
    }
    all
}

impl JsonPlan {
    pub(crate) fn of(
        problem: &Problem,
        found: &Solution,
        best: &Assignment,
        proof: Option<&Certificate>,
    ) -> Self {
        let costs = explain(problem, best);
        let gap = found.gap(problem);
        let optimal = gap == Some(0.0);
        let layer = |i: &usize| problem.layers[*i].name.clone();
        let stage = |(s, (stage, cost)): (usize, (&Stage, &StageCost))| JsonStage {
            samples: best.shares.get(s).cloned().unwrap_or_default(),
            layers: stage.layers.clone(),
            first: stage.layers.first().map(layer).unwrap_or_default(),
            last: stage.layers.last().map(layer).unwrap_or_default(),
            unit: problem.units[stage.unit].name.clone(),
            replicas: stage.replicas,
            power: problem.units[stage.unit].powers[stage.power].name.clone(),
            cost: cost.clone(),
        };
        let point = |plan: &Assignment| JsonPoint {
            period_s: plan.period_s,
            energy_j: plan.energy_j,
            semantics: semantics(problem, plan).to_owned(),
            stages: in_short(problem, plan),
        };
        let certificate = proof.map(|proof| JsonCertificate {
            of_this_plan: proof.plan == *best,
            stages: in_short(problem, &proof.plan),
            period_s: proof.plan.period_s,
            energy_j: proof.plan.energy_j,
            plan_space: found.pipelines(),
            no_plan_below: proof.value,
        });
        let units = problem.units.iter().zip(&costs.used).map(|(unit, &used)| JsonUnit {
            unit: unit.name.clone(),
            used,
            off: unit.count - used.min(unit.count),
        });
        Self {
            objective: problem.objective.name().to_owned(),
            cost_model: "dahl".to_owned(),
            semantics: semantics(problem, best).to_owned(),
            micro_batches: match problem.semantics {
                _ if !best.shares.is_empty() => Some(1),
                Semantics::Synchronous { micro_batches } => Some(micro_batches),
                Semantics::Stale => None,
            },
            status: if optimal { "optimal" } else { "best found" }.to_owned(),
            plan_space: found.space(),
            period_s: best.period_s,
            energy_j: best.energy_j,
            edp_js: best.period_s * best.energy_j,
            average_watts: best.energy_j / best.period_s,
            peak_watts: costs.peak_watts,
            lower_bound: found.lower_bound,
            gap,
            bound_space: found.bounded.name().to_owned(),
            certificate,
            certified: proof.map(|proof| proof.value),
            idle_j: costs.idle_j,
            base_j: costs.base_j,
            front: distinct(found.front.plans(), best).into_iter().map(point).collect(),
            front_is_whole: found.whole,
            stages: best.stages.iter().zip(&costs.stages).enumerate().map(stage).collect(),
            units: units.collect(),
        }
    }

    /// No word of what could not be certified.
    pub(crate) fn only_certified(
        &mut self,
        problem: &Problem,
        best: &Assignment,
        proof: Option<&Certificate>,
    ) {
        let value = plan_value(problem, best);
        // A certificate is not about plans with uneven shares: what is known of them stays.
        let shared = !best.shares.is_empty();
        if shared
            || self.status != "optimal"
            || proof.is_some_and(|p| p.value >= value * (1.0 - 1e-7))
        {
            return;
        }
        self.status = "best found".to_owned();
        if let Some(proof) = proof {
            self.lower_bound = proof.value;
            self.gap = Some((value - proof.value) / value);
        }
    }

    fn read(path: &Path) -> Result<Self> {
        let text = dahl::os::disk::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        serde_json::from_str(&text)
            .map_err(|error| Error::data(path, "file", "what dahl plan --json printed", error))
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
    stages: Vec<&'a JsonStage>,
    joules: f64,
}

impl Placed<'_> {
    /// Whether units, replicas, powers and samples are the same.
    fn is_like(&self, other: &Self) -> bool {
        let alike = |a: &JsonStage, b: &JsonStage| {
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
        for (i, JsonStage { unit, replicas, power, samples, .. }) in self.stages.iter().enumerate()
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
fn moved<'a>(a: &'a JsonPlan, b: &'a JsonPlan) -> Vec<Moved<'a>> {
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

/// Compare two plans, with the cost of each difference
#[derive(Args)]
#[command(after_help = "Examples:
  dahl plan --profile vgg16.graph.txt --platform lab.toml --json > a.json
  dahl plan --profile vgg16.graph.txt --platform lab.toml --objective time --json > b.json
  dahl plan diff a.json b.json

Exit code: 0 the same stages, 1 different, 4 a file that cannot be read.")]
pub(crate) struct DiffArgs {
    /// Output of `dahl plan --json`
    a: PathBuf,
    /// Output of `dahl plan --json` for the other plan
    b: PathBuf,
}

/// The differences as text, and whether there are any.
pub(crate) fn diff(args: &DiffArgs) -> Result<(String, bool)> {
    let (a, b) = (JsonPlan::read(&args.a)?, JsonPlan::read(&args.b)?);
    let mut text = String::new();
    let _ = writeln!(text, "{:22}{:>14}{:>14}{:>14}", "", "A", "B", "B - A");
    let mut row = |name: &str, a: f64, b: f64| {
        let _ = writeln!(text, "{name:22}{a:>14.6}{b:>14.6}{:>+14.6}", b - a);
    };
    let sum = |plan: &JsonPlan, of: fn(&JsonStage) -> f64| plan.stages.iter().map(of).sum::<f64>();
    row("period, s", a.period_s, b.period_s);
    row("energy, J", a.energy_j, b.energy_j);
    row("  computing, J", sum(&a, |s| s.cost.compute_j), sum(&b, |s| s.cost.compute_j));
    row("  moving bytes, J", sum(&a, |s| s.cost.moved_j), sum(&b, |s| s.cost.moved_j));
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
    let cuts = |plan: &JsonPlan| plan.stages.iter().map(|s| s.layers.clone()).collect::<Vec<_>>();
    if cuts(&a) != cuts(&b) {
        different = true;
        let count = |plan: &JsonPlan| plan.stages.len();
        let _ = writeln!(text, "stages: {} | {}", count(&a), count(&b));
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

    #[test]
    fn a_front_has_no_row_twice() {
        let plan = |unit: usize, period_s: f64, energy_j: f64| {
            let stages = vec![Stage { layers: vec![0], unit, replicas: 1, power: 0 }];
            Assignment { stages, shares: Vec::new(), period_s, energy_j }
        };
        let all = [
            plan(0, 1.0, 3.0),
            plan(0, 1.0 + 1e-12, 3.0 - 1e-12),
            plan(0, 1.0 + 1e-6, 2.9),
            plan(1, 1.0 + 1e-6, 2.9 - 1e-12),
        ];
        let kept = |best: usize| -> Vec<usize> {
            let found = distinct(&all, &all[best]).into_iter();
            found.map(|of| all.iter().position(|plan| plan == of).expect("a plan")).collect()
        };
        assert_eq!(kept(3), [0, 2, 3]);
        assert_eq!(kept(1), [1, 2, 3]);
    }

    /// Stages of layers on units, one joule per layer.
    fn plan(stages: &[(&[usize], &str)]) -> JsonPlan {
        let stage = |(layers, unit): &(&[usize], &str)| {
            json!({
                "layers": layers, "first": "", "last": "", "unit": unit, "replicas": 1,
                "power": "full", "compute_s": 0.0, "stage_s": 0.0, "compute_j": 0.0,
                "moved_j": 0.0, "memory_bytes": 0.0, "layers_j": vec![1.0; layers.len()],
            })
        };
        let stages: Vec<_> = stages.iter().map(stage).collect();
        let plan = json!({
            "objective": "", "cost_model": "", "semantics": "", "micro_batches": null,
            "status": "", "plan_space": "", "period_s": 0.0, "energy_j": 0.0, "edp_js": 0.0,
            "average_watts": 0.0, "peak_watts": 0.0, "lower_bound": 0.0, "gap": null,
            "certified": null, "idle_j": 0.0, "base_j": 0.0, "front": [], "front_is_whole": true,
            "stages": stages, "units": [],
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
