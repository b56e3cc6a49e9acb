//! A plan as JSON, and two of them side by side: `dahl plan diff`.

use clap::Args;
use dahl::planner::pipeline::{
    Certificate, Pipeline, Problem, Semantics, Solution, Stage, StageCost, explain,
};
use dahl::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
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
    /// What a certificate proves, if one was written.
    pub(crate) certified: Option<f64>,
    pub(crate) idle_j: f64,
    pub(crate) base_j: f64,
    pub(crate) front: Vec<JsonPoint>,
    pub(crate) front_is_whole: bool,
    pub(crate) stages: Vec<JsonStage>,
    pub(crate) units: Vec<JsonUnit>,
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
    pub(crate) compute_s: f64,
    pub(crate) stage_s: f64,
    pub(crate) compute_j: f64,
    pub(crate) moved_j: f64,
    pub(crate) memory_bytes: f64,
    pub(crate) layers_j: Vec<f64>,
}

/// Units of a type.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JsonUnit {
    pub(crate) unit: String,
    pub(crate) used: usize,
    pub(crate) off: usize,
}

/// The stages of a plan in short: `a40/gpu x2 @ 175 W, v100/gpu x1`.
pub(crate) fn in_short(problem: &Problem, plan: &Pipeline) -> String {
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
pub(crate) fn semantics(problem: &Problem, plan: &Pipeline) -> &'static str {
    if plan.shares.is_empty() { problem.semantics.name() } else { "synchronous" }
}

impl JsonPlan {
    pub(crate) fn of(
        problem: &Problem,
        found: &Solution,
        best: &Pipeline,
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
            compute_s: cost.compute_s,
            stage_s: cost.stage_s,
            compute_j: cost.compute_j,
            moved_j: cost.moved_j,
            memory_bytes: cost.memory_bytes,
            layers_j: cost.layers_j.clone(),
        };
        let point = |plan: &Pipeline| JsonPoint {
            period_s: plan.period_s,
            energy_j: plan.energy_j,
            semantics: semantics(problem, plan).to_owned(),
            stages: in_short(problem, plan),
        };
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
            certified: proof.map(|proof| proof.value),
            idle_j: costs.idle_j,
            base_j: costs.base_j,
            front: found.front.plans().iter().map(point).collect(),
            front_is_whole: found.whole,
            stages: best.stages.iter().zip(&costs.stages).enumerate().map(stage).collect(),
            units: units.collect(),
        }
    }

    /// No word of what could not be certified.
    pub(crate) fn only_certified(
        &mut self,
        problem: &Problem,
        best: &Pipeline,
        proof: Option<&Certificate>,
    ) {
        let value = problem.objective.value(best.period_s, best.energy_j);
        // A certificate is about stages; bounds of unequal shares are lower, and stay.
        if self.status != "optimal" || proof.is_some_and(|p| p.value >= value * (1.0 - 1e-7)) {
            return;
        }
        self.status = "best found".to_owned();
        if let Some(proof) = proof {
            self.lower_bound = proof.value;
            self.gap = Some((value - proof.value) / value);
        }
    }

    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        serde_json::from_str(&text)
            .map_err(|error| Error::data(path, "file", "what dahl plan --json printed", error))
    }

    /// Unit, replicas and power of a layer, and its joules.
    fn layer(&self, layer: usize) -> Option<(String, f64)> {
        // Units that share a batch all have it.
        let (mut places, mut joules) = (Vec::new(), 0.0);
        for stage in &self.stages {
            let Some(at) = stage.layers.iter().position(|own| *own == layer) else { continue };
            let mut place = format!("{} x{} @ {}", stage.unit, stage.replicas, stage.power);
            if !stage.samples.is_empty() {
                let samples: Vec<String> = stage.samples.iter().map(usize::to_string).collect();
                place += &format!(" (samples {})", samples.join(":"));
            }
            places.push(place);
            joules += stage.layers_j.get(at).copied().unwrap_or(0.0);
        }
        (!places.is_empty()).then(|| (places.join(" + "), joules))
    }
}

/// Compare two plans, with the cost of each difference
#[derive(Args)]
#[command(after_help = "Examples:
  dahl plan --profile vgg16.graph.txt --platform lab.toml --json > a.json
  dahl plan --profile vgg16.graph.txt --platform lab.toml --objective time --json > b.json
  dahl plan diff a.json b.json

Exit code: 0 the same stages, 1 different, 4 a file that cannot be read.")]
pub(crate) struct DiffArgs {
    /// What `dahl plan --json` printed
    a: PathBuf,
    /// The same of another plan
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
    row("  computing, J", sum(&a, |s| s.compute_j), sum(&b, |s| s.compute_j));
    row("  moving bytes, J", sum(&a, |s| s.moved_j), sum(&b, |s| s.moved_j));
    row("  units idle, J", a.idle_j, b.idle_j);
    row("  machines on, J", a.base_j, b.base_j);
    let layers = |plan: &JsonPlan| plan.stages.iter().flat_map(|s| s.layers.clone()).max();
    let last = layers(&a).max(layers(&b)).map_or(0, |last| last + 1);
    let mut different = a.semantics != b.semantics;
    if different {
        let _ = writeln!(text, "semantics: {} | {}", a.semantics, b.semantics);
    }
    // Runs of layers that moved from one place to one other.
    let mut at = 0;
    while at < last {
        let (from, to) = (a.layer(at), b.layer(at));
        let place =
            |x: &Option<(String, f64)>| x.as_ref().map_or("-".to_owned(), |(p, _)| p.clone());
        let same =
            |i: usize| place(&a.layer(i)) == place(&from) && place(&b.layer(i)) == place(&to);
        let end = (at..last).find(|&i| !same(i)).unwrap_or(last);
        if place(&from) != place(&to) {
            different = true;
            let joules = |plan: &JsonPlan| -> f64 {
                (at..end).filter_map(|i| plan.layer(i)).map(|(_, joules)| joules).sum()
            };
            let _ = writeln!(
                text,
                "layers {at}..{end}: {} | {}: {:+.6} J of computing",
                place(&from),
                place(&to),
                joules(&b) - joules(&a)
            );
        }
        at = end;
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
