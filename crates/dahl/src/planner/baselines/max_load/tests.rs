use super::*;
use crate::planner::baselines::tests::file;
use crate::planner::baselines::{Imported, Operator};
use crate::planner::pipeline::tests::made::Chance;
use std::cell::Cell;

fn operators(name: &str) -> Operators {
    match Imported::read(&file(name)).unwrap() {
        Imported::Operators(of) => of,
        _ => panic!("{name} is no graph of operators"),
    }
}

/// Operators that are made by chance, some of them with a backward part or not for accelerators.
fn made(seed: u64, forward: usize) -> Operators {
    let mut chance = Chance(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut nodes: Vec<Operator> = Vec::new();
    for i in 0..forward {
        let accelerator = chance.within(0.0, 2.0);
        nodes.push(Operator {
            id: i as i64,
            accelerator: (chance.below(8) > 0).then_some(accelerator),
            core: accelerator * chance.within(1.0, 6.0),
            bytes: chance.within(0.0, 4.0),
            colour: i as i64,
            backward: false,
            pass: chance.within(0.0, 0.8),
            output_bytes: 1.0,
            inputs: (0..i).filter(|_| chance.below(3) == 0).collect(),
        });
    }
    if chance.below(2) == 0 {
        for i in (0..forward).rev() {
            if chance.below(4) == 0 {
                continue;
            }
            let place = |node: usize| {
                nodes.iter().position(|other| other.backward && other.colour == node as i64)
            };
            let users = (i + 1..forward).filter(|&user| nodes[user].inputs.contains(&i));
            let inputs: Vec<usize> = users.filter_map(place).chain([i]).collect();
            let own = nodes[i].clone();
            nodes.push(Operator {
                id: (forward + i) as i64,
                core: 2.0 * own.core,
                accelerator: own.accelerator.map(|x| 2.0 * x),
                backward: true,
                inputs,
                ..own
            });
        }
    }
    Operators {
        accelerators: 1 + chance.below(3),
        accelerator_bytes: chance.within(3.0, 10.0),
        cores: 1 + chance.below(2),
        nodes,
    }
}

/// The least largest load of any assignment of groups to devices in an order, by trying all.
fn brute(of: &Operators) -> f64 {
    let graph = Grouped::new(of);
    let count = graph.len();
    let kinds: Vec<Vec<Load>> = {
        let mut all = vec![vec![]];
        for _ in 0..of.accelerators + of.cores {
            let longer = |list: &Vec<Load>| {
                [Load::Accelerator, Load::Core].map(|kind| [&list[..], &[kind]].concat())
            };
            all = all.iter().flat_map(longer).collect();
        }
        all.retain(|list| list.iter().filter(|kind| **kind == Load::Core).count() == of.cores);
        all
    };
    // Every load by its definition.
    let load = |kind: Load, inside: u32| {
        let mut operators = vec![false; of.nodes.len()];
        let (mut bytes, mut load) = (0.0, 0.0);
        for group in (0..count).filter(|group| inside >> group & 1 == 1) {
            for &node in &graph.groups[group].operators {
                operators[node] = true;
                bytes += of.nodes[node].bytes;
                load += match kind {
                    Load::Core => of.nodes[node].core,
                    Load::Accelerator => of.nodes[node].accelerator.unwrap_or(f64::INFINITY),
                };
            }
        }
        if kind == Load::Accelerator {
            for (i, node) in of.nodes.iter().enumerate() {
                let used = (0..of.nodes.len())
                    .any(|to| of.nodes[to].inputs.contains(&i) && operators[to] != operators[i]);
                load += if used { node.pass } else { 0.0 };
            }
        }
        if kind == Load::Accelerator && bytes > of.accelerator_bytes { f64::INFINITY } else { load }
    };
    let ideal = |set: u32| {
        let within = |group: usize| graph.groups[group].inputs.iter().all(|i| set >> i & 1 == 1);
        (0..count).all(|group| set >> group & 1 == 0 || within(group))
    };
    let sets: Vec<u32> = (0..1u32 << count).filter(|set| ideal(*set)).collect();
    let loads = [Load::Accelerator, Load::Core]
        .map(|kind| (0..1u32 << count).map(|set| load(kind, set)).collect::<Vec<f64>>());
    let all = (1u32 << count) - 1;
    let mut least = f64::INFINITY;
    for kinds in kinds {
        let mut best = vec![f64::INFINITY; 1 << count];
        best[0] = 0.0;
        for kind in kinds {
            let mut next = best.clone();
            for &before in &sets {
                for &set in sets.iter().filter(|set| *set & before == before && **set != before) {
                    let value =
                        best[before as usize].max(loads[kind as usize][(set & !before) as usize]);
                    next[set as usize] = next[set as usize].min(value);
                }
            }
            best = next;
        }
        least = least.min(best[all as usize]);
    }
    least
}

#[test]
fn small_graphs_have_the_optimum_of_all_placements() {
    let mut feasible = 0;
    for seed in 0..120 {
        let of = made(seed, 2 + seed as usize % 5);
        let expected = brute(&of);
        let exact = max_load(&of, &Effort::default());
        // Without an exact search: orders and what is near them.
        let orders = max_load(&of, &Effort { ideals: 5, rounds: 3, ..Effort::default() });
        if expected.is_infinite() {
            assert!(exact.is_err() && orders.is_err(), "graph {seed}");
            continue;
        }
        feasible += 1;
        let (exact, orders) = (exact.unwrap(), orders.unwrap());
        let near = |found: f64| (found - expected).abs() < 1e-9 * expected.max(1.0);
        assert!(near(exact.load) && exact.gap() == 0.0, "graph {seed}: {exact:?} {expected}");
        assert!(orders.lower_bound <= expected * (1.0 + 1e-9), "graph {seed}: {orders:?}");
        assert!(near(orders.load), "graph {seed}: {orders:?} {expected}");
    }
    assert!(feasible > 60, "{feasible}");
}

/// Two orders were searched where a graph has more than 3,000 ideals: 440.97 here.
#[test]
fn a_graph_of_3200_ideals_is_searched_exactly() {
    let found = max_load(&operators("max_load_27_nodes.json"), &Effort::default()).unwrap();
    assert_eq!(format!("{:.2}", found.load), "325.56");
    assert_eq!((found.gap(), found.compared), (0.0, Compared::Ideals(3200)));
}

/// The same graph, were it too large: the search over orders finds the optimum too.
#[test]
fn orders_lead_to_the_optimum_of_27_nodes() {
    let of = operators("max_load_27_nodes.json");
    let calls = Cell::new(0);
    let stop = || {
        calls.set(calls.get() + 1);
        calls.get() > 60_000
    };
    let effort = Effort { ideals: 400, rounds: 1000, stop: &stop, ..Effort::default() };
    let found = max_load(&of, &effort).unwrap();
    assert!(matches!(found.compared, Compared::Orders(_)));
    assert!(found.load < 1.02 * 325.56 && found.lower_bound <= 325.57, "{found:?}");
}

/// A search with too little memory is not exact, and says so.
#[test]
fn a_lattice_that_does_not_fit_is_not_searched() {
    let of = operators("max_load_27_nodes.json");
    let found = max_load(&of, &Effort { bytes: 200_000, rounds: 1, ..Effort::default() }).unwrap();
    assert!(matches!(found.compared, Compared::Orders(_)) && found.gap() > 0.0, "{found:?}");
}

/// Of graphs with thousands of groups, blocks are placed.
#[test]
fn thousands_of_operators_are_placed_in_blocks() {
    let mut of = made(1, 4);
    let node = of.nodes[0].clone();
    let chain = |i: usize| Operator {
        id: i as i64,
        colour: i as i64,
        accelerator: Some(1.0 + (i % 7) as f64),
        core: 50.0,
        bytes: 0.0,
        pass: 0.1,
        inputs: if i < 2 { vec![] } else { vec![i - 2] },
        ..node.clone()
    };
    of.nodes = (0..2600).map(chain).collect();
    (of.accelerators, of.cores) = (2, 0);
    let calls = Cell::new(0);
    let stop = || {
        calls.set(calls.get() + 1);
        calls.get() > 10_000
    };
    let found = max_load(&of, &Effort { rounds: 1, stop: &stop, ..Effort::default() }).unwrap();
    let placed: usize = found.devices.iter().map(|device| device.operators.len()).sum();
    assert_eq!(placed, 2600);
    assert!(found.gap() < 0.01, "{}", found.gap());
}
