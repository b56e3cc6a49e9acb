//! Plans over units: what is claimed of one, two of them side by side, the Pareto front as a picture.

mod diff;
mod svg;

pub use diff::plan_diff;
pub use svg::front_svg;

use crate::planner::pipeline::{
    Assignment, Certificate, Explained, Problem, Semantics, Solution, Stage, StageCost, explain,
    in_short, plan_value, semantics_of,
};
use serde_json::{Value, json};

/// The best plan that was found, and what is claimed of it.
#[derive(Clone, Debug)]
pub struct PlanReport<'a> {
    /// What was planned.
    pub problem: &'a Problem,
    /// What is known of it.
    pub found: &'a Solution,
    /// The plan.
    pub best: &'a Assignment,
    /// The certificate, if one was made.
    pub proof: Option<&'a Certificate>,
    /// What the plan costs, stage by stage.
    pub costs: Explained,
    /// The cost model.
    pub cost_model: &'static str,
    /// `optimal`, or how the plan was found.
    pub status: &'static str,
    /// The plans that `status` is about.
    pub space: String,
    /// No plan has an objective below this.
    pub lower_bound: f64,
    /// How far the plan may be from the best that there is, as a part of its value.
    pub gap: Option<f64>,
}

/// The bounds that plans of a space keep, if there are any.
fn caps(problem: &Problem) -> String {
    let period = problem.period_cap.map(|cap| format!("; period at most {cap} s"));
    let power = problem.power_cap.map(|cap| format!("; {cap} W on average at most"));
    period.into_iter().chain(power).collect()
}

impl<'a> PlanReport<'a> {
    /// The report of the best plan.
    pub fn new(
        problem: &'a Problem,
        found: &'a Solution,
        best: &'a Assignment,
        proof: Option<&'a Certificate>,
    ) -> Self {
        // A proof may be of a better bound than the search had.
        let covers = |proof: &&Certificate| proof.plan == *best;
        let proved = proof.filter(covers).map(|proof| proof.value);
        let value = plan_value(problem, best);
        let lower_bound = proved.map_or(found.lower_bound, |it| it.max(found.lower_bound));
        let gap = found.gap(problem).map(|gap| gap.min((value - lower_bound).max(0.0) / value));
        Self {
            problem,
            found,
            best,
            proof,
            costs: explain(problem, best),
            cost_model: "dahl",
            status: if gap == Some(0.0) { "optimal" } else { "best found" },
            space: found.space() + &caps(problem),
            lower_bound,
            gap,
        }
    }

    /// Claims no more than the certificate proves.
    #[must_use]
    pub fn only_certified(self) -> Self {
        let value = plan_value(self.problem, self.best);
        let holds = |proof: &Certificate| proof.value >= value * (1.0 - 1e-7);
        // What is known of plans that a certificate is not about stays.
        let about =
            |proof: &Certificate| self.best.shares.is_empty() || !proof.plan.shares.is_empty();
        let shared = !self.proof.is_none_or(about);
        if shared || self.status != "optimal" || self.proof.is_some_and(holds) {
            return self;
        }
        let (lower_bound, gap) = match self.proof {
            Some(proof) => (proof.value, Some((value - proof.value) / value)),
            None => (self.lower_bound, self.gap),
        };
        Self { status: "best found", lower_bound, gap, ..self }
    }

    /// The plans that a certificate is about.
    pub fn proved_space(&self, proof: &Certificate) -> String {
        let of = match proof.problem.samples {
            Some(_) => self.found.space(),
            None => self.found.pipelines(),
        };
        of + &caps(self.problem)
    }

    /// Micro-batches of a batch, unless weights are stale.
    pub fn micro_batches(&self) -> Option<usize> {
        match self.problem.semantics {
            _ if !self.best.shares.is_empty() => Some(1),
            Semantics::Synchronous { micro_batches } => Some(micro_batches),
            Semantics::Stale => None,
        }
    }

    /// Average watts.
    pub fn watts(&self) -> f64 {
        self.best.energy_j / self.best.period_s
    }

    /// Names of unit types with how many are used and how many are left off.
    pub fn units(&self) -> impl Iterator<Item = (&'a str, usize, usize)> {
        let units = self.problem.units.iter().zip(&self.costs.used);
        units.map(|(unit, &used)| (&*unit.name, used, unit.count - used.min(unit.count)))
    }

    fn stage(&self, s: usize, stage: &Stage, cost: &StageCost) -> Value {
        let layer = |i: Option<&usize>| i.map(|i| &*self.problem.layers[*i].name);
        let unit = &self.problem.units[stage.unit];
        let mut object = json!(cost);
        object["layers"] = json!(stage.layers);
        object["first"] = json!(layer(stage.layers.first()).unwrap_or_default());
        object["last"] = json!(layer(stage.layers.last()).unwrap_or_default());
        object["unit"] = json!(unit.name);
        object["replicas"] = json!(stage.replicas);
        object["power"] = json!(unit.powers[stage.power].name);
        if let Some(samples) = self.best.shares.get(s) {
            object["samples"] = json!(samples);
        }
        object
    }

    /// The report as JSON; docs/cli.md has the keys.
    pub fn to_json(&self) -> Value {
        let Self { problem, found, best, .. } = *self;
        let point = |plan: &Assignment| {
            json!({
                "period_s": plan.period_s,
                "energy_j": plan.energy_j,
                "semantics": semantics_of(problem, plan),
                "stages": in_short(problem, plan),
            })
        };
        let unit = |(unit, used, off)| json!({ "unit": unit, "used": used, "off": off });
        let stages = best.stages.iter().zip(&self.costs.stages).enumerate();
        let stages = stages.map(|(s, (stage, cost))| self.stage(s, stage, cost));
        let mut object = json!({
            "objective": problem.objective.name(),
            "cost_model": self.cost_model,
            "semantics": semantics_of(problem, best),
            "micro_batches": self.micro_batches(),
            "status": self.status,
            "plan_space": self.space,
            "period_s": best.period_s,
            "energy_j": best.energy_j,
            "edp_js": best.period_s * best.energy_j,
            "average_watts": self.watts(),
            "peak_watts": self.costs.peak_watts,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "bound_space": found.bounded.name(),
            "certified": self.proof.map(|proof| proof.value),
            "idle_j": self.costs.idle_j,
            "base_j": self.costs.base_j,
            "front": found.front.distinct(best).into_iter().map(point).collect::<Vec<_>>(),
            "front_is_whole": found.whole,
            "stages": stages.collect::<Vec<_>>(),
            "units": self.units().map(unit).collect::<Vec<_>>(),
        });
        if let Some(proof) = self.proof {
            object["certificate"] = json!({
                "of_this_plan": proof.plan == *best,
                "stages": in_short(problem, &proof.plan),
                "period_s": proof.plan.period_s,
                "energy_j": proof.plan.energy_j,
                "plan_space": self.proved_space(proof),
                "no_plan_below": proof.value,
            });
        }
        object
    }
}
