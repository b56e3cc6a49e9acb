use super::*;
use crate::planner::baselines::tests::file;
use crate::planner::baselines::{Effort, Imported, Operators, max_load};
use crate::planner::pipeline::tests::made::problem;
use crate::planner::pipeline::{Assignment, Limits, Problem, Semantics, plan_value, solve};
use serde_json::{Value, json};
use std::path::Path;

fn parsed(text: &Value) -> ForeignPlan {
    ForeignPlan::parse(&text.to_string(), Path::new("plan.json")).unwrap()
}

/// A plan as a file that names layers in one of three ways.
fn written(problem: &Problem, plan: &Assignment, way: usize) -> Value {
    let stage = |stage: &crate::planner::pipeline::Stage| {
        let unit = &problem.units[stage.unit];
        let name = |i: &usize| problem.layers[*i].name.clone();
        let mut object = json!({
            "unit": unit.name, "replicas": stage.replicas, "power": unit.powers[stage.power].name,
        });
        match way {
            0 => object["layers"] = json!(stage.layers),
            _ => object["layers"] = stage.layers.iter().map(name).collect(),
        }
        object
    };
    let semantics = problem.semantics.name();
    let mut file = json!({ "planner": "another", "semantics": semantics });
    if let Semantics::Synchronous { micro_batches } = problem.semantics {
        file["micro_batches"] = json!(micro_batches);
    }
    file["stages"] = plan.stages.iter().map(stage).collect();
    file
}

#[test]
fn own_plans_have_their_own_price() {
    let mut priced = 0;
    for seed in 0..60 {
        let mut problem = problem(seed);
        // Names like those of profiles: an id, then more.
        problem.layers.iter_mut().enumerate().for_each(|(i, layer)| {
            layer.name = format!("node{i} Conv2d(3, 3)");
        });
        let found = solve(&problem, &Limits::default()).unwrap();
        for (way, plan) in found.front.plans().iter().enumerate() {
            let score = parsed(&written(&problem, plan, way % 2)).score(&problem).unwrap();
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
            assert!(near(score.plan.period_s, plan.period_s), "problem {seed}");
            assert!(near(score.plan.energy_j, plan.energy_j), "problem {seed}");
            let capped = problem.period_cap.is_some_and(|cap| plan.period_s > cap);
            assert_eq!(score.misfits.is_empty(), !capped, "problem {seed}: {:?}", score.misfits);
            let gap = score.gap(&problem, found.lower_bound);
            assert!(capped || gap.is_some(), "problem {seed}");
            priced += 1;
        }
        if let Some(best) = &found.best {
            let score = parsed(&written(&problem, best, 0)).score(&problem).unwrap();
            assert!(score.gap(&problem, found.lower_bound).unwrap() < 1e-8, "problem {seed}");
            assert_eq!(
                score.more_than(&found, |plan| plan.energy_j).map(|x| x.abs() < 1e-9),
                Some(true)
            );
            assert!(
                (score.value(&problem) - plan_value(&problem, best)).abs()
                    <= 1e-9 * plan_value(&problem, best)
            );
        }
    }
    assert!(priced > 60, "{priced}");
}

/// Two layers on two unit types of two units each.
fn small() -> Problem {
    let mut problem = problem(1);
    problem.layers.truncate(2);
    for (i, layer) in problem.layers.iter_mut().enumerate() {
        layer.name = format!("node{i} Linear");
        layer.inputs = (0..i).collect();
    }
    problem.units.truncate(2);
    for (unit, name) in problem.units.iter_mut().zip(["big/gpu", "small/gpu"]) {
        (unit.name, unit.count) = (name.to_owned(), 2);
        unit.powers.truncate(1);
        unit.powers[0].name = "full".to_owned();
    }
    problem.layers.iter_mut().for_each(|layer| layer.seconds.truncate(2));
    problem.semantics = Semantics::Synchronous { micro_batches: 4 };
    (problem.period_cap, problem.power_cap) = (None, None);
    problem
}

#[track_caller]
fn refused(file: Value, expected: &str) {
    let plan = ForeignPlan::parse(&file.to_string(), Path::new("plan.json"));
    let error = plan.and_then(|plan| plan.score(&small())).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn plans_of_another_problem_are_refused_with_place_and_remedy() {
    let stages = |stages: Value| json!({ "stages": stages });
    refused(json!([]), "file: expected an object with stages");
    refused(json!({ "stages": [] }), "stages: expected 1 to 20000, found 0");
    refused(json!({ "stage": [{}] }), "file: expected the keys planner, semantics");
    refused(stages(json!([{ "layers": [0], "replica": 2 }])), "stage 0: expected the keys layers");
    refused(
        stages(json!([{ "layers": [0, 1] }])),
        "stage 0: unit: expected one of big/gpu, small/gpu",
    );
    refused(stages(json!([{ "layers": [0, 1], "unit": "gpu" }])), "stage 0: unit: expected one of");
    refused(stages(json!([{ "unit": "big" }])), "stage 0: expected layers, or first and last");
    refused(
        stages(json!([{ "layers": [0, 9], "unit": "big" }])),
        "a layer from 0 to 1, or its name or id, found 9",
    );
    refused(
        stages(json!([{ "layers": [0, 0], "unit": "big" }])),
        "found layer 0 (node0 Linear) twice",
    );
    refused(
        stages(json!([{ "layers": [0], "unit": "big" }])),
        "found layer 1 (node1 Linear) in none",
    );
    let both =
        json!([{ "layers": ["node1"], "unit": "big" }, { "layers": ["node0"], "unit": "small" }]);
    refused(stages(both), "stage 0: layers: expected inputs of the same or of earlier stages");
    let three = json!([{ "first": 0, "last": "node1 Linear", "unit": "big/gpu", "replicas": 3 }]);
    refused(stages(three), "stage 0: replicas: expected at most 2 x big/gpu");
    refused(
        stages(json!([{ "layers": [0, 1], "unit": "big", "replicas": 0 }])),
        "replicas: expected at least 1",
    );
    refused(
        stages(json!([{ "layers": [0, 1], "unit": "big", "power": "150 W" }])),
        "power: expected one of full",
    );
    let whole = json!([{ "layers": [0, 1], "unit": "big" }]);
    refused(json!({ "semantics": "stale", "stages": whole }), "allow stale weights");
    refused(json!({ "micro_batches": 2, "stages": whole }), "set 2 micro-batches to change that");
    refused(
        json!({ "semantics": "lazy", "stages": whole }),
        "semantics: expected synchronous or stale",
    );
    let uneven = json!([{ "unit": "big", "samples": [3, 2] }]);
    refused(stages(uneven), "stage 0: samples: expected a number for each of 1 units, found 2");
}

#[test]
fn shares_of_a_batch_are_priced() {
    let problem = Problem { samples: Some(12), ..small() };
    let file = |big: Value| {
        json!({ "stages": [
            { "unit": "big", "replicas": 2, "samples": big },
            { "unit": "small", "samples": [2] },
        ] })
    };
    let score = parsed(&file(json!([5, 5]))).score(&problem).unwrap();
    let found = crate::planner::pipeline::uneven_shares(&problem, 12, &|| false);
    let best = found.front.plans().iter().map(|plan| plan.period_s).fold(f64::INFINITY, f64::min);
    assert!(score.plan.period_s >= best * (1.0 - 1e-12));
    assert_eq!(score.plan.shares, [vec![5, 5], vec![2]]);
    let error = parsed(&file(json!([5, 4]))).score(&problem).unwrap_err().to_string();
    assert!(error.contains("12 samples in all stages"), "{error}");
}

#[test]
fn plans_that_do_not_fit_are_priced_too() {
    let mut problem = small();
    problem.units[0].memory_bytes = 1000.0;
    problem.period_cap = Some(1e-9);
    let score = parsed(&json!({ "stages": [{ "layers": [0, 1], "unit": "big" }] }))
        .score(&problem)
        .unwrap();
    assert!(score.plan.period_s > 0.0);
    let [Misfit::Memory { stage: 0, there: 1000.0, .. }, Misfit::Period { .. }] = score.misfits[..]
    else {
        panic!("{:?}", score.misfits)
    };
}

fn operators(name: &str) -> Operators {
    match Imported::read(&file(name)).unwrap() {
        Imported::Operators(of) => of,
        _ => panic!("{name} is no graph of operators"),
    }
}

#[test]
fn splits_of_operators_are_priced() {
    let of = operators("bert24_inference.json");
    let best = max_load(&of, &Effort::default()).unwrap();
    let kinds =
        |kind| if kind == crate::planner::baselines::Load::Core { "core" } else { "accelerator" };
    let stages: Vec<Value> = best
        .devices
        .iter()
        .map(|device| {
            let ids: Vec<i64> = device.operators.iter().map(|&i| of.nodes[i].id).collect();
            json!({ "device": kinds(device.kind), "nodes": ids })
        })
        .collect();
    let found = parsed(&json!({ "stages": stages })).loads(&of).unwrap();
    assert!((found.load - best.load).abs() < 1e-9 && found.misfits.is_empty(), "{found:?}");
    assert_eq!(found.gap(best.lower_bound).map(|gap| gap < 1e-9), Some(true));
    // The same as a split of dnn-partitioning, on too few accelerators.
    let split = json!({ "fpgas": stages, "cpus": [], "maxLoad": -1 });
    let few = Operators { accelerators: 2, ..of.clone() };
    let error = parsed(&split).loads(&few).unwrap_err().to_string();
    assert!(error.contains("at most 2 accelerators, as the graph says"), "{error}");
    let found = parsed(&split).loads(&Operators { accelerator_bytes: 1.0, ..of.clone() }).unwrap();
    assert!(matches!(found.misfits[0], Misfit::Memory { stage: 0, there: 1.0, .. }));
    // The first and the last node on one device, the others on another one.
    let mut ids: Vec<i64> = of.nodes.iter().map(|node| node.id).collect();
    ids.sort_unstable();
    let inner = ids.split_off(1);
    let (last, inner) = inner.split_last().unwrap();
    let apart = json!({ "stages": [
        { "device": "accelerator", "nodes": [ids[0], last] },
        { "device": "accelerator", "nodes": inner },
    ] });
    assert!(parsed(&apart).loads(&of).unwrap().misfits.contains(&Misfit::Circular));
}
