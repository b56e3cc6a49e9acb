//! The same problem whatever the order of its unit types and the numbers of its layers: what is
//! searched does not depend on how a file was written.

use dahl_certify::{Assignment, Layer, Problem, Scope, UnitType};
use std::collections::BTreeSet;

/// A problem whose types and layers stand in an order of their own, and where they stood before.
pub(super) struct Canonical {
    pub(super) problem: Problem,
    layers: Vec<usize>,
    units: Vec<usize>,
}

/// Mixes a number into a hash.
fn mix(hash: u64, x: u64) -> u64 {
    let z = (hash ^ x).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    z ^ (z >> 29)
}

fn mix_all(hash: u64, all: impl Iterator<Item = u64>) -> u64 {
    all.fold(hash, mix)
}

/// What a type is, but for its seconds and its name.
fn of_unit(problem: &Problem, unit: &UnitType) -> u64 {
    let powers = unit.powers.iter().flat_map(|power| [power.speed, power.busy_watts]);
    let ways = [Some(unit.input), Some(unit.reduce), unit.within].into_iter().flatten();
    let ways = ways.flat_map(|way| [way.seconds_per_byte, way.joules_per_byte, way.latency_s]);
    let base = problem.nodes[unit.node].base_watts;
    let figures = [unit.idle_watts, unit.memory_bytes, base].into_iter().chain(powers).chain(ways);
    let counts = [unit.count, unit.per_node, unit.sharing].map(|n| n as u64);
    mix_all(1, figures.map(f64::to_bits).chain(counts))
}

/// Seconds on all types, whatever their order, and bytes.
fn of_layer(layer: &Layer) -> u64 {
    // A sum of hashes does not depend on the order.
    let seconds = layer.seconds.iter().map(|x| mix(2, x.to_bits()));
    let seconds = seconds.fold(0, u64::wrapping_add);
    let bytes = [layer.output_bytes, layer.parameter_bytes].map(f64::to_bits);
    mix_all(seconds, bytes.into_iter())
}

/// Layers behind their inputs, those first of which a hash of all that leads to and from them is
/// least.
fn layer_order(problem: &Problem) -> Vec<usize> {
    let layers = &problem.layers;
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); layers.len()];
    for (i, layer) in layers.iter().enumerate() {
        layer.inputs.iter().for_each(|&from| users[from].push(i));
    }
    let mut hash: Vec<u64> = layers.iter().map(of_layer).collect();
    let sum =
        |of: &[u64], all: &[usize]| all.iter().map(|&i| mix(3, of[i])).fold(0, u64::wrapping_add);
    for _ in 0..2 {
        let (mut down, mut up) = (hash.clone(), hash.clone());
        for i in 0..layers.len() {
            down[i] = mix(down[i], sum(&down, &layers[i].inputs));
        }
        for i in (0..layers.len()).rev() {
            up[i] = mix(up[i], sum(&up, &users[i]));
        }
        hash = down.iter().zip(&up).map(|(&down, &up)| mix(mix(4, down), up)).collect();
    }
    let mut missing: Vec<usize> = layers.iter().map(|layer| layer.inputs.len()).collect();
    let ready = (0..layers.len()).filter(|&i| missing[i] == 0);
    let mut ready: BTreeSet<(u64, usize)> = ready.map(|i| (hash[i], i)).collect();
    let mut order = Vec::new();
    while let Some((_, layer)) = ready.pop_first() {
        order.push(layer);
        for &user in &users[layer] {
            missing[user] -= 1;
            if missing[user] == 0 {
                ready.insert((hash[user], user));
            }
        }
    }
    order
}

impl Canonical {
    pub(super) fn of(from: &Problem) -> Self {
        let layers = layer_order(from);
        let whole = |unit: usize| -> f64 {
            layers.iter().map(|&layer| from.layers[layer].seconds[unit]).sum()
        };
        let in_scopes = |unit: usize| {
            let reach = from.scopes.iter().map(|scope| &scope.types[unit]);
            let of = reach.map(|of| mix(of.count as u64, of.input.seconds_per_byte.to_bits()));
            of.fold(0, u64::wrapping_add)
        };
        let mut units: Vec<(f64, u64, &str, usize)> = (0..from.units.len())
            .map(|unit| {
                let of = &from.units[unit];
                (whole(unit), mix(of_unit(from, of), in_scopes(unit)), &*of.name, unit)
            })
            .collect();
        units.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let units: Vec<usize> = units.into_iter().map(|(.., unit)| unit).collect();
        let mut place = vec![0; layers.len()];
        layers.iter().enumerate().for_each(|(to, &layer)| place[layer] = to);
        let moved = |&layer: &usize| {
            let of = &from.layers[layer];
            let mut inputs: Vec<usize> = of.inputs.iter().map(|&from| place[from]).collect();
            inputs.sort_unstable();
            let seconds = units.iter().map(|&unit| of.seconds[unit]).collect();
            Layer { seconds, inputs, ..of.clone() }
        };
        let scope = |scope: &Scope| Scope {
            name: scope.name.clone(),
            types: units.iter().map(|&unit| scope.types[unit]).collect(),
        };
        let mut scopes: Vec<Scope> = from.scopes.iter().map(scope).collect();
        scopes.sort_by_key(|scope| {
            let counts: Vec<usize> = scope.types.iter().map(|of| of.count).collect();
            (counts.iter().sum::<usize>(), counts)
        });
        let problem = Problem {
            layers: layers.iter().map(moved).collect(),
            units: units.iter().map(|&unit| from.units[unit].clone()).collect(),
            scopes,
            ..from.clone()
        };
        Self { problem, layers, units }
    }

    /// A plan as one of the problem as it was.
    pub(super) fn back(&self, plan: &mut Assignment) {
        for stage in &mut plan.stages {
            stage.unit = self.units[stage.unit];
            stage.layers.iter_mut().for_each(|layer| *layer = self.layers[*layer]);
            stage.layers.sort_unstable();
        }
        // Stages side by side have no order of their own.
        if !plan.shares.is_empty() {
            let stages = std::mem::take(&mut plan.stages).into_iter();
            let mut both: Vec<_> = stages.zip(std::mem::take(&mut plan.shares)).collect();
            both.sort_by_key(|(stage, _)| stage.unit);
            (plan.stages, plan.shares) = both.into_iter().unzip();
        }
    }
}
