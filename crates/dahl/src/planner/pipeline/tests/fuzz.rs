//! No input makes the planner panic or run away.

use super::super::*;
use super::made::Chance;
use crate::planner::baselines::tests::file;
use crate::planner::baselines::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::path::Path;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        let _ = Imported::parse(&text, Path::new("text"));
        let lines = format!("node1 -- A -- forward_compute_time={text}, parameter_size=1\n\tnode1 -- node1\n");
        let _ = Imported::parse(&lines, Path::new("text"));
    }

    #[test]
    fn damaged_files_are_read_or_refused(at in 0usize..40_000, with in "[0-9a-z{}\\[\\],:.\"\\-\n\t =]{1,8}") {
        for name in ["vgg16.graph.txt", "bert24_training.json"] {
            let mut text = std::fs::read_to_string(file(name)).unwrap();
            let at = at % text.len();
            if text.is_char_boundary(at) {
                text.insert_str(at, &with);
            }
            let _ = Imported::parse(&text, Path::new(name));
        }
    }
}

/// A graph of operators of so many nodes, with edges back over a few.
fn graph(seed: u64, nodes: usize) -> Operators {
    let mut chance = Chance(seed);
    let node = |i: usize| Operator {
        id: i as i64,
        accelerator: (chance.below(20) > 0).then(|| chance.within(0.0, 2.0)),
        core: chance.within(0.0, 20.0),
        bytes: chance.within(0.0, 10.0),
        colour: if chance.below(10) == 0 && i > 3 { i as i64 - 3 } else { i as i64 },
        backward: chance.below(7) == 0,
        pass: chance.within(0.0, 0.5),
        output_bytes: 1.0,
        inputs: (0..chance.below(3)).filter_map(|_| i.checked_sub(1 + chance.below(6))).collect(),
    };
    let mut all: Vec<Operator> = (0..nodes).map(node).collect();
    all.iter_mut().for_each(|node| {
        node.inputs.sort_unstable();
        node.inputs.dedup();
    });
    Operators {
        nodes: all,
        accelerators: chance.below(8),
        accelerator_bytes: 5.0 * nodes as f64,
        cores: chance.below(3),
    }
}

#[test]
fn large_graphs_get_a_gap() {
    for (seed, nodes) in [(1, 30), (2, 100), (3, 300), (4, 600), (5, 1000)] {
        let calls = Cell::new(0);
        let stop = || {
            calls.set(calls.get() + 1);
            calls.get() > 3000
        };
        let effort = Effort { ideals: 300, stop: &stop, ..Effort::default() };
        if let Ok(found) = max_load(&graph(seed, nodes), &effort) {
            assert!(found.lower_bound <= found.load && (0.0..=1.0).contains(&found.gap()));
        }
    }
}

#[test]
fn searches_that_are_stopped_have_a_bound() {
    for seed in 0..60 {
        let problem = super::made::problem(seed);
        let whole = solve(&problem, &Limits::default()).unwrap();
        for most in [0, 3, 10, 40] {
            let calls = Cell::new(0);
            let stop = || {
                calls.set(calls.get() + 1);
                calls.get() > most
            };
            let found = solve(&problem, &Limits { stop: &stop, ..Limits::default() }).unwrap();
            let value = |of: &Solution| of.best.as_ref().map(|plan| plan_value(&problem, plan));
            if let Some(best) = value(&whole) {
                assert!(found.lower_bound <= best * (1.0 + 1e-9), "problem {seed}");
                assert!(value(&found).is_none_or(|found| found >= best * (1.0 - 1e-9)));
            }
        }
    }
}

/// One type of very many units beside others of one each: no unit is forgotten.
#[test]
fn many_units_beside_many_types_are_all_used() {
    let mut p = super::made::problem(0);
    p.layers.truncate(1);
    p.layers[0].seconds = vec![1.0; 12];
    p.layers[0].parameter_bytes = 0.0;
    (p.semantics, p.objective) = (Semantics::Stale, Objective::Time);
    (p.period_cap, p.power_cap) = (None, None);
    let mut unit = p.units[0].clone();
    (unit.memory_bytes, unit.powers) = (f64::INFINITY, vec![unit.powers[0].clone()]);
    unit.powers[0].speed = 1.0;
    p.units =
        (0..12).map(|i| UnitType { count: if i == 0 { 96 } else { 1 }, ..unit.clone() }).collect();
    let found = solve(&p, &Limits::default()).unwrap();
    assert_eq!(found.best.unwrap().period_s, 1.0 / 96.0);
}

/// More states than a proof may have cells for: it is there or not, without a panic.
#[test]
#[ignore = "takes a quarter of a minute: .ci/run runs it"]
fn a_proof_with_many_states_ends() {
    let mut p = super::made::problem(0);
    p.layers.truncate(2);
    let stop = || true;
    let limits = Limits { stop: &stop, ..Limits::default() };
    // 96 · 96 · 96 combinations of three sets.
    p.units = vec![UnitType { count: 95, ..p.units[0].clone() }; 3];
    p.layers.iter_mut().for_each(|layer| layer.seconds = vec![layer.seconds[0]; 3]);
    if let Some(best) = solve(&p, &limits).unwrap().best {
        certificate(&p, &best, &limits);
    }
}

#[test]
#[ignore = "takes a quarter of a minute: .ci/run runs it"]
fn long_chains_on_many_units_end() {
    let mut problem = super::made::problem(1);
    let layer = problem.layers[0].clone();
    problem.layers = (0..2000)
        .map(|i| Layer { inputs: if i == 0 { vec![] } else { vec![i - 1] }, ..layer.clone() })
        .collect();
    problem.units.iter_mut().for_each(|unit| unit.count = 3000);
    problem.period_cap = None;
    let calls = Cell::new(0);
    let stop = || {
        calls.set(calls.get() + 1);
        calls.get() > 2
    };
    let found = solve(&problem, &Limits { stop: &stop, ..Limits::default() }).unwrap();
    assert!(!found.whole && found.lower_bound >= 0.0);
}

/// A problem with its types in another order and its layers with other numbers.
fn shuffled(p: &Problem, chance: &mut Chance) -> Problem {
    let mut units: Vec<usize> = (0..p.units.len()).collect();
    for i in (1..units.len()).rev() {
        units.swap(i, chance.below(i + 1));
    }
    let mut layers: Vec<usize> = Vec::new();
    while layers.len() < p.layers.len() {
        let next = chance.below(p.layers.len());
        let ready = p.layers[next].inputs.iter().all(|from| layers.contains(from));
        if ready && !layers.contains(&next) {
            layers.push(next);
        }
    }
    let place = |layer: &usize| layers.iter().position(|other| other == layer).unwrap();
    let moved = layers.iter().map(|&layer| {
        let of = &p.layers[layer];
        let mut inputs: Vec<usize> = of.inputs.iter().map(place).collect();
        inputs.sort_unstable();
        let seconds = units.iter().map(|&unit| of.seconds[unit]).collect();
        Layer { seconds, inputs, ..of.clone() }
    });
    let scopes = p.scopes.iter().map(|scope| Scope {
        name: scope.name.clone(),
        types: units.iter().map(|&unit| scope.types[unit]).collect(),
    });
    Problem {
        layers: moved.collect(),
        scopes: scopes.collect(),
        units: units.iter().map(|&unit| p.units[unit].clone()).collect(),
        ..p.clone()
    }
}

/// Also where the search is not exact, and where graphs are cut along an order.
#[test]
fn neither_the_order_of_types_nor_numbers_of_layers_matter() {
    let mut narrowed = 0;
    for seed in super::some(200, 5) {
        let p = super::made::scoped(seed);
        let other = shuffled(&p, &mut Chance(seed));
        let exact = Limits::default();
        for limits in [exact, Limits { states: 0, ideals: 3, ..Limits::default() }] {
            let points = |p: &Problem| -> Vec<(f64, f64)> {
                let found = solve(p, &limits).unwrap();
                narrowed += usize::from(found.cuts != Cuts::All);
                found.front.plans().iter().map(|plan| (plan.period_s, plan.energy_j)).collect()
            };
            let mut points = points;
            let (a, b) = (points(&p), points(&other));
            assert_eq!(a.len(), b.len(), "problem {seed}");
            for (a, b) in a.iter().zip(&b) {
                let near = |x: f64, y: f64| (x - y).abs() <= 1e-9 * x.abs();
                assert!(near(a.0, b.0) && near(a.1, b.1), "problem {seed}: {a:?} {b:?}");
            }
        }
    }
    assert!(narrowed > 0);
}

/// Energy within a cap that the fastest plan keeps, where the search is not exact.
#[test]
fn a_plan_that_time_finds_is_known_to_energy() {
    for seed in super::some(200, 5) {
        let p = Problem { power_cap: None, period_cap: None, ..super::made::problem(seed) };
        let limits = Limits { states: 0, ideals: 3, extent: Extent::Best, ..Limits::default() };
        let time = Problem { objective: Objective::Time, ..p.clone() };
        let Some(fastest) = solve(&time, &limits).unwrap().best else { continue };
        let period_cap = Some(1.001 * fastest.period_s);
        let capped = Problem { objective: Objective::Energy, period_cap, ..p };
        let best = solve(&capped, &limits).unwrap().best.expect("a plan within the cap");
        assert!(best.energy_j <= fastest.energy_j * (1.0 + 1e-9), "problem {seed}");
    }
}
