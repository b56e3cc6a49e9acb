//! Problems that are made by chance, from a seed.

use super::super::*;

/// Numbers that look like chance (Steele et al. 2014, splitmix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    /// From `low` to `high`, in a hundred steps.
    pub(crate) fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.below(101) as f64 / 100.0
    }
}

/// A small problem: a chain or a graph, two or three unit types, memories, powers, base
/// watts, synchronous or stale.
pub(crate) fn problem(seed: u64) -> Problem {
    let mut chance = Chance(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let types = 2 + chance.below(2);
    let count = if types == 2 { 3 + chance.below(3) } else { 3 + chance.below(2) };
    let graph = chance.below(2) == 0;
    let layers = (0..count).map(|i| Layer {
        name: format!("layer {i}"),
        seconds: (0..types).map(|_| chance.within(0.1, 2.0)).collect(),
        output_bytes: chance.within(0.0, 2e9),
        parameter_bytes: chance.within(0.0, 1e9),
        inputs: match i {
            0 => vec![],
            _ if !graph => vec![i - 1],
            _ => (0..i).filter(|_| chance.below(2) == 0).collect(),
        },
    });
    let layers: Vec<Layer> = layers.collect();
    let tight = chance.below(2) == 0;
    let units = (0..types).map(|k| {
        let idle_watts = chance.within(0.0, 50.0);
        let full = idle_watts + chance.within(0.0, 200.0);
        let mut powers = vec![Power { name: "full".to_owned(), speed: 1.0, busy_watts: full }];
        for p in 0..chance.below(3) {
            powers.push(Power {
                name: format!("power {p}"),
                speed: chance.within(0.3, 1.0),
                busy_watts: idle_watts + (full - idle_watts) * chance.within(0.1, 1.0),
            });
        }
        let way = Way::new(chance.within(1e9, 1e10), chance.within(0.0, 1e-8));
        UnitType {
            name: format!("unit {k}"),
            count: 1 + chance.below(3),
            powers,
            idle_watts,
            memory_bytes: if tight { chance.within(1e9, 1e10) } else { f64::INFINITY },
            input: way,
            reduce: Way::new(chance.within(1e9, 1e10), chance.within(0.0, 1e-8)),
            within: None,
            node: chance.below(2),
            per_node: 1 + chance.below(2),
            sharing: 1,
        }
    });
    let units = units.collect();
    let semantics = match chance.below(2) {
        0 => Semantics::Stale,
        _ => Semantics::Synchronous { micro_batches: [1, 2, 4, 8][chance.below(4)] },
    };
    let objective = [Objective::Energy, Objective::Time, Objective::Edp][chance.below(3)];
    let period_cap = (chance.below(3) == 0).then(|| chance.within(0.5, 10.0));
    let power_cap = (chance.below(4) == 0).then(|| chance.within(50.0, 500.0));
    let nodes = (0..2).map(|i| NodeType {
        name: format!("node {i}"),
        base_watts: if chance.below(2) == 0 { 0.0 } else { chance.within(0.0, 100.0) },
    });
    let nodes = nodes.collect();
    let (samples, scopes) = (None, Vec::new());
    let p = Problem {
        layers,
        units,
        nodes,
        semantics,
        objective,
        period_cap,
        power_cap,
        samples,
        scopes,
    };
    if seed % 3 == 2 { with_ways(p, &mut chance) } else { p }
}

/// The same over ways that have latencies, are buses or are better inside machines, with memories
/// that several units share.
fn with_ways(mut p: Problem, chance: &mut Chance) -> Problem {
    for unit in &mut p.units {
        unit.per_node = 1 + chance.below(3);
        unit.sharing = 1 + chance.below(2);
        unit.input.latency_s = chance.within(0.0, 0.1);
        unit.input.units_per_end = 1 + chance.below(2);
        unit.reduce.latency_s = chance.within(0.0, 0.1);
        for way in [&mut unit.input, &mut unit.reduce] {
            way.medium = [Medium::Lines, Medium::Bus][chance.below(2)];
        }
        let near = Way::new(chance.within(1e10, 1e11), 0.0);
        unit.within = (chance.below(2) == 0).then_some(near);
    }
    p
}

/// The same with scopes: parts of the units whose ways are better.
pub(crate) fn scoped(seed: u64) -> Problem {
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut p = problem(seed);
    let scope = |i: usize| {
        let better = chance.within(0.05, 0.9);
        let types = p.units.iter().map(|unit| {
            let faster = |way: Way| Way { seconds_per_byte: better * way.seconds_per_byte, ..way };
            let (input, reduce) = (faster(unit.input), faster(unit.reduce));
            Reach { count: chance.below(unit.count + 1), input, reduce, within: None }
        });
        Scope { name: format!("scope {i}"), types: types.collect() }
    };
    p.scopes = (0..2).map(scope).filter(|s| s.types.iter().any(|of| of.count > 0)).collect();
    p
}
