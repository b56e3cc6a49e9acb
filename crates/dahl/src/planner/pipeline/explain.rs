//! What a plan's seconds, joules and bytes are made of.

use super::cost::{CostModel, objective_value};
use super::ideals::stage_work;
use super::uneven_shares;
use dahl_certify::{Assignment, Problem, Semantics, Stage};
use serde::{Deserialize, Serialize};

/// A stage and what it costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageCost {
    /// Seconds a batch that its units compute.
    pub compute_s: f64,
    /// Seconds a batch that it takes as a part of the pipeline: with sums of gradients, or
    /// longer where what it is fed with takes longer.
    pub stage_s: f64,
    /// Joules beyond idle watts of computing.
    pub compute_j: f64,
    /// Joules of what is moved.
    pub moved_j: f64,
    /// Bytes on each of its units.
    pub memory_bytes: f64,
    /// Joules of computing, by layer.
    pub layers_j: Vec<f64>,
}

/// A plan and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// By stage.
    pub stages: Vec<StageCost>,
    /// Joules of units that are on, whether they compute or not.
    pub idle_j: f64,
    /// Joules of machines that are on.
    pub base_j: f64,
    /// Watts if all units computed at once.
    pub peak_watts: f64,
    /// Units in use, by type.
    pub used: Vec<usize>,
    /// Seconds and joules of a batch, by the formulas.
    pub total: [f64; 2],
}

/// Units that a plan uses, by type.
fn used(problem: &Problem, plan: &Assignment) -> Vec<usize> {
    let mut used = vec![0; problem.units.len()];
    plan.stages.iter().for_each(|stage| used[stage.unit] += stage.replicas);
    used
}

/// The scope whose ways a plan pays: of those that have all of its units, that in which it is best.
pub(super) fn scope_of(problem: &Problem, plan: &Assignment) -> Option<usize> {
    let used = used(problem, plan);
    let has = |scope: &Option<usize>| {
        scope.is_none_or(|scope| {
            let types = &problem.scopes[scope].types;
            types.iter().zip(&used).all(|(of, used)| *used <= of.count)
        })
    };
    let value = |scope: &Option<usize>| {
        let Explained { total: [seconds, joules], .. } = in_scope(&problem.in_scope(*scope), plan);
        (objective_value(problem.objective, seconds, joules), seconds, joules)
    };
    let there = problem.all_scopes().filter(has).map(|scope| (value(&scope), scope));
    let order = |a: &(f64, f64, f64), b: &(f64, f64, f64)| {
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2))
    };
    there.min_by(|a, b| order(&a.0, &b.0)).and_then(|(_, scope)| scope)
}

/// Takes a plan apart.
pub fn explain(problem: &Problem, plan: &Assignment) -> Explained {
    match problem.scopes.is_empty() {
        true => in_scope(problem, plan),
        false => in_scope(&problem.in_scope(scope_of(problem, plan)), plan),
    }
}

/// Takes a plan apart that pays the ways of all units.
fn in_scope(problem: &Problem, plan: &Assignment) -> Explained {
    let cost = CostModel::new(problem);
    let used = used(problem, plan);
    let busy = plan.stages.iter().map(|stage| {
        let unit = &problem.units[stage.unit];
        stage.replicas as f64 * (unit.powers[stage.power].busy_watts - unit.idle_watts)
    });
    let busy: f64 = busy.sum();
    let (stages, above_idle) = match plan.shares.is_empty() {
        true => pipelined(&cost, plan),
        false => shared(&cost, plan),
    };
    let watts = cost.idle_watts(&used);
    let (seconds, total) = cost.waited(watts, above_idle);
    let idle: f64 = problem.units.iter().zip(&used).map(|(u, n)| u.idle_watts * *n as f64).sum();
    Explained {
        stages,
        idle_j: idle * seconds,
        base_j: (watts - idle) * seconds,
        peak_watts: watts + busy,
        used,
        total: [seconds, total],
    }
}

/// The stages of a plan that are side by side, with seconds and joules above idle watts.
fn shared(cost: &CostModel<'_>, plan: &Assignment) -> (Vec<StageCost>, [f64; 2]) {
    let costs = uneven_shares::cost(cost.problem, plan);
    let all: usize = plan.shares.iter().flatten().sum();
    let of = |(s, stage): (usize, &Stage)| StageCost {
        compute_s: costs.compute[s],
        stage_s: costs.compute[s] + costs.summing,
        compute_j: costs.joules[s],
        moved_j: costs.moved / plan.stages.len() as f64,
        memory_bytes: costs.bytes[s],
        layers_j: cost
            .layers_j(stage, plan.shares[s].iter().sum::<usize>() as f64 / all.max(1) as f64),
    };
    (plan.stages.iter().enumerate().map(of).collect(), costs.total())
}

/// The same of stages one behind the other.
fn pipelined(cost: &CostModel<'_>, plan: &Assignment) -> (Vec<StageCost>, [f64; 2]) {
    let problem = cost.problem;
    let (mut sum, mut most, mut joules) = (0.0, 0.0f64, 0.0);
    let mut stages = Vec::new();
    for (s, stage) in plan.stages.iter().enumerate() {
        let work = stage_work(&problem.layers, &stage.layers);
        let on = [stage.unit, stage.replicas, stage.power];
        let (option, parts) = (cost.stage_option(&work, on), cost.parts(&work, on));
        let behind: usize = plan.stages[s..].iter().map(|stage| stage.replicas).sum();
        let alone = match problem.semantics {
            Semantics::Stale => option.most,
            Semantics::Synchronous { .. } => option.sum + cost.slowest_counts() * option.most,
        };
        stages.push(StageCost {
            compute_s: parts.compute,
            stage_s: alone,
            compute_j: parts.compute_j,
            moved_j: option.joules - parts.compute_j,
            memory_bytes: option.memory(problem.semantics, behind, plan.stages.len() - s),
            layers_j: cost.layers_j(stage, 1.0),
        });
        sum += option.sum;
        most = most.max(option.most);
        joules += option.joules;
    }
    (stages, [sum + cost.slowest_counts() * most, joules])
}

/// The stages of a plan in short: `a40/gpu x2 @ 175 W, v100/gpu x1`.
pub fn in_short(problem: &Problem, plan: &Assignment) -> String {
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

/// When weights change in a plan: units that share a batch change them once per batch.
pub fn semantics_of(problem: &Problem, plan: &Assignment) -> &'static str {
    if plan.shares.is_empty() { problem.semantics.name() } else { "synchronous" }
}

/// Seconds and joules of a batch by a plan, also where figures of the problem are others.
pub fn cost_of(problem: &Problem, plan: &Assignment) -> [f64; 2] {
    explain(problem, plan).total
}
