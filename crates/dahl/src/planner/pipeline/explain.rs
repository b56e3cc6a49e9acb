//! What a plan's seconds, joules and bytes are made of.

use super::cost::{slowest_counts, stage_option, waited};
use super::ideals::stage_work;
use super::uneven_shares as parted;
use dahl_certify::{Assignment, Problem, Semantics, Stage};

/// A stage and what it costs.
#[derive(Clone, Debug, PartialEq)]
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

/// Takes a plan apart.
pub fn explain(problem: &Problem, plan: &Assignment) -> Explained {
    if plan.shares.is_empty() {
        explain_stages(problem, plan)
    } else {
        explain_shares(problem, plan)
    }
}

/// The parts of a plan whose stages are side by side.
fn explain_shares(problem: &Problem, plan: &Assignment) -> Explained {
    let costs = parted::cost(problem, plan);
    let all: usize = plan.shares.iter().flatten().sum();
    let mut used = vec![0; problem.units.len()];
    let (mut stages, mut busy) = (Vec::new(), 0.0);
    for (s, stage) in plan.stages.iter().enumerate() {
        let unit = &problem.units[stage.unit];
        let power = &unit.powers[stage.power];
        let own = plan.shares[s].iter().sum::<usize>() as f64 / all.max(1) as f64;
        let dearer = own * (power.busy_watts - unit.idle_watts) / power.speed;
        let joules = |&i: &usize| problem.layers[i].seconds[stage.unit] * dearer;
        stages.push(StageCost {
            compute_s: costs.compute[s],
            stage_s: costs.compute[s] + costs.summing,
            compute_j: costs.joules[s],
            moved_j: costs.moved / plan.stages.len() as f64,
            memory_bytes: costs.bytes[s],
            layers_j: stage.layers.iter().map(joules).collect(),
        });
        busy += stage.replicas as f64 * (power.busy_watts - unit.idle_watts);
        used[stage.unit] += stage.replicas;
    }
    on(problem, (stages, used), costs.total(), busy)
}

/// With idle and base watts.
fn on(
    problem: &Problem,
    (stages, used): (Vec<StageCost>, Vec<usize>),
    [seconds, joules]: [f64; 2],
    busy: f64,
) -> Explained {
    let watts = problem.idle_watts(&used);
    let (seconds, total) = waited(problem, watts, [seconds, joules]);
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

fn explain_stages(problem: &Problem, plan: &Assignment) -> Explained {
    let mut used = vec![0; problem.units.len()];
    let (mut sum, mut most, mut joules, mut busy) = (0.0, 0.0f64, 0.0, 0.0);
    let mut stages = Vec::new();
    for (s, stage) in plan.stages.iter().enumerate() {
        let unit = &problem.units[stage.unit];
        let power = &unit.powers[stage.power];
        let all = stage_work(&problem.layers, &stage.layers);
        let option = stage_option(problem, &all, [stage.unit, stage.replicas, stage.power]);
        let dearer = (power.busy_watts - unit.idle_watts) / power.speed;
        let layers_j: Vec<f64> =
            stage.layers.iter().map(|&i| problem.layers[i].seconds[stage.unit] * dearer).collect();
        let compute_s = all.seconds[stage.unit] / power.speed / stage.replicas as f64;
        let compute_j = stage.replicas as f64 * compute_s * (power.busy_watts - unit.idle_watts);
        let behind: usize = plan.stages[s..].iter().map(|stage: &Stage| stage.replicas).sum();
        let stage_s = match problem.semantics {
            Semantics::Stale => option.most,
            Semantics::Synchronous { micro_batches } => {
                option.sum + (micro_batches as f64 - 1.0) * option.most
            }
        };
        stages.push(StageCost {
            compute_s,
            stage_s,
            compute_j,
            moved_j: option.joules - compute_j,
            memory_bytes: option.memory(problem.semantics, behind, plan.stages.len() - s),
            layers_j,
        });
        sum += option.sum;
        most = most.max(option.most);
        joules += option.joules;
        busy += stage.replicas as f64 * (power.busy_watts - unit.idle_watts);
        used[stage.unit] += stage.replicas;
    }
    let seconds = sum + slowest_counts(problem.semantics) * most;
    on(problem, (stages, used), [seconds, joules], busy)
}

/// What a plan costs where figures of the problem are others.
pub fn cost_of(problem: &Problem, plan: &Assignment) -> [f64; 2] {
    explain(problem, plan).total
}
