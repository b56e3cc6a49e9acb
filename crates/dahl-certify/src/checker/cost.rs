//! What plans cost, by the documented formulas (docs/planner.md). The planner has its own in
//! `planner/pipeline/cost.rs`: nothing is shared, so that a mistake in either is found.

use super::{Checker, down, sum, up};
use crate::problem::{Medium, Objective, Problem, Semantics, UnitType, Way};

/// The value of the objective for a period and an energy.
pub(crate) fn value(objective: Objective, seconds: f64, joules: f64) -> f64 {
    match objective {
        Objective::Energy => joules,
        Objective::Time => seconds,
        Objective::Edp => seconds * joules,
    }
}

/// Watts of the units of a plan and of their machines while all of them wait.
pub(super) fn idle_watts(p: &Problem, used: &[usize]) -> f64 {
    let mut machines = vec![0; p.nodes.len()];
    for (unit, n) in p.units.iter().zip(used) {
        machines[unit.node] = machines[unit.node].max(n.div_ceil(unit.per_node));
    }
    let units = p.units.iter().zip(used).map(|(unit, n)| unit.idle_watts * *n as f64);
    let nodes = p.nodes.iter().zip(machines).map(|(node, on)| node.base_watts * on as f64);
    sum(units.chain(nodes))
}

/// Watts of a unit with its part of a full machine, rounded down.
pub(super) fn unit_watts(p: &Problem, unit: usize) -> f64 {
    let unit = &p.units[unit];
    let sharing = p.units.iter().filter(|other| other.node == unit.node).count();
    let base = p.nodes[unit.node].base_watts / (unit.per_node * sharing) as f64;
    down(unit.idle_watts + base)
}

/// Upper bounds, rounded up: the joules above idle watts of any plan, and its idle watts.
///
/// Each layer computes once, at most where that takes most joules. An output goes to at most as
/// many stages as there are layers that take it, and its gradient comes back from each. A stage on
/// r units moves 4 (r − 1) / r bytes per byte of its parameters, which is less than 4.
pub(super) fn most_joules(p: &Problem) -> [f64; 2] {
    let on = |unit: usize, seconds: f64| {
        let of = &p.units[unit];
        let at = of.powers.iter().map(|at| (at.busy_watts - of.idle_watts) * (seconds / at.speed));
        at.fold(0.0, f64::max)
    };
    let computed = p.layers.iter().map(|layer| {
        let units = layer.seconds.iter().enumerate();
        units.map(|(unit, seconds)| on(unit, *seconds)).fold(0.0, f64::max)
    });
    let mut taken = vec![0.0; p.layers.len()];
    for layer in &p.layers {
        let mut inputs = layer.inputs.clone();
        inputs.sort_unstable();
        inputs.dedup();
        inputs.into_iter().for_each(|from| taken[from] += 1.0);
    }
    let fed = sum(p.layers.iter().zip(taken).map(|(layer, times)| layer.output_bytes * times));
    let parameters = sum(p.layers.iter().map(|layer| layer.parameter_bytes));
    let inputs = p.units.iter().map(|unit| unit.input.joules_per_byte).fold(0.0, f64::max);
    let reduces = p.units.iter().flat_map(|unit| [Some(unit.reduce), unit.within]);
    let reduces = reduces.flatten().map(|way| way.joules_per_byte).fold(0.0, f64::max);
    let all: Vec<usize> = p.units.iter().map(|unit| unit.count).collect();
    let above_idle = sum(computed) + inputs * 2.0 * fed + reduces * 4.0 * parameters;
    // A sum of infinite numbers is not a number.
    let above_idle = if above_idle.is_nan() { f64::INFINITY } else { up(above_idle) };
    [above_idle, up(idle_watts(p, &all))]
}

/// A stage on units, rounded down.
pub(super) struct StageOption {
    pub(super) before: usize,
    pub(super) end: usize,
    pub(super) unit: usize,
    pub(super) replicas: usize,
    pub(super) sum: f64,
    pub(super) most: f64,
    pub(super) joules: f64,
    parameters: f64,
    own_parameters: f64,
    activations: f64,
}

/// The way inside a machine, if a stage on so many units never needs two machines: numbers of units
/// that are powers of two and divide those of a machine always fit.
fn near(unit: &UnitType, replicas: usize) -> Option<Way> {
    let fits = replicas.is_power_of_two() && unit.per_node.is_multiple_of(replicas);
    if fits { unit.within } else { None }
}

/// The same where no other stage is there: units fill one memory after the other.
pub(super) fn threads_of_share(unit: &UnitType, units: usize) -> usize {
    match units % unit.sharing {
        0 => unit.sharing,
        rest => rest,
    }
}

/// How many units of a stage surely share a memory, and so its weights.
fn threads(unit: &UnitType, replicas: usize) -> usize {
    let all = unit.sharing;
    if replicas.is_multiple_of(all) {
        return all;
    }
    // One machine with one memory, or parts of a memory that always fit.
    let one = unit.count <= unit.per_node && unit.per_node <= all;
    let part = replicas.is_power_of_two() && all.is_multiple_of(replicas);
    if one || part { replicas } else { 1 }
}

impl Checker<'_> {
    /// How often the slowest stage counts: seconds of a batch are sum + this · most.
    pub(super) fn slowest(&self) -> f64 {
        match self.p.semantics {
            Semantics::Stale => 1.0,
            Semantics::Synchronous { micro_batches } => micro_batches as f64 - 1.0,
        }
    }

    /// A stage on every number of units of a type at every power.
    pub(super) fn on_units(
        &self,
        layers: &[usize],
        [before, end]: [usize; 2],
        options: &mut Vec<StageOption>,
    ) {
        let p = self.p;
        let of = |i: &usize| &p.layers[*i];
        let parameters = sum(layers.iter().map(|i| of(i).parameter_bytes));
        let own = sum(layers.iter().map(|i| of(i).output_bytes));
        let mut taken: Vec<usize> = layers.iter().flat_map(|i| of(i).inputs.clone()).collect();
        taken.sort_unstable();
        taken.dedup();
        let taken = taken.iter().filter(|i| layers.binary_search(i).is_err());
        let input = sum(taken.map(|i| of(i).output_bytes));
        for (unit, it) in p.units.iter().enumerate() {
            let work = sum(layers.iter().map(|i| of(i).seconds[unit]));
            for replicas in 1..=it.count {
                for power in &it.powers {
                    let r = replicas as f64;
                    let compute = work / power.speed / r;
                    // Gradients: a ring over the units, of 2 (r - 1) rounds.
                    let way = near(it, replicas).unwrap_or(it.reduce);
                    let summed = 4.0 * (r - 1.0) * parameters / r;
                    let mut gradients = summed * way.seconds_per_byte;
                    if way.medium == Medium::Bus {
                        gradients *= (replicas.div_ceil(way.units_per_end) as f64 / 2.0).max(1.0);
                    }
                    if summed > 0.0 {
                        gradients += 2.0 * (r - 1.0) * way.latency_s;
                    }
                    let lines = match it.input.medium {
                        Medium::Lines => replicas.div_ceil(it.input.units_per_end) as f64,
                        Medium::Bus => 1.0,
                    };
                    let feeding = 2.0 * input * it.input.seconds_per_byte / lines;
                    let delay = if input > 0.0 { 2.0 * it.input.latency_s } else { 0.0 };
                    let (sum, most, held) = match p.semantics {
                        Semantics::Stale => (0.0, (compute + gradients / r).max(feeding), 1.0),
                        Semantics::Synchronous { micro_batches } => {
                            let m = micro_batches as f64;
                            let sum = (compute + feeding) / m + delay + gradients;
                            (sum, compute.max(feeding) / m, r)
                        }
                    };
                    let joules = r * compute * (power.busy_watts - it.idle_watts)
                        + it.input.joules_per_byte * 2.0 * input
                        + way.joules_per_byte * summed;
                    options.push(StageOption {
                        before,
                        end,
                        unit,
                        replicas,
                        sum: down(sum),
                        most: down(most),
                        joules: down(joules),
                        parameters: down(parameters),
                        own_parameters: down(parameters / threads(it, replicas) as f64),
                        activations: down((own + input) / held),
                    });
                }
            }
        }
    }

    /// Bytes on each unit of a stage, rounded down.
    pub(super) fn memory(&self, option: &StageOption, units: usize, stages: usize) -> f64 {
        down(match self.p.semantics {
            Semantics::Stale => {
                let batches = units.div_ceil(option.replicas) as f64;
                option.parameters * (batches + 1.0) + option.activations * batches
            }
            Semantics::Synchronous { micro_batches } => {
                let part = stages.min(micro_batches) as f64 / micro_batches as f64;
                2.0 * option.own_parameters + option.activations * part
            }
        })
    }

    /// Whether a stage does not fit, even as the last one.
    pub(super) fn too_large(&self, option: &StageOption, units: usize) -> bool {
        self.memory(option, units, 1) > self.p.units[option.unit].memory_bytes
    }
}
