//! Results that others have found.

use super::super::*;
use std::path::{Path, PathBuf};

pub(super) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/planner").join(name)
}

pub(super) fn profile(name: &str) -> Profile {
    match Imported::read(&file(name)).unwrap() {
        Imported::Profile(profile) => profile,
        Imported::Operators(_) => panic!("{name} is no profile"),
    }
}

/// Three types of four units each.
fn three_types() -> Vec<UnitType> {
    let way = Way::new(1.25e9, 20e-9);
    let unit = |name: &str, busy_watts, idle_watts| UnitType {
        name: name.to_owned(),
        count: 4,
        powers: vec![Power { name: "full".to_owned(), speed: 1.0, busy_watts }],
        idle_watts,
        memory_bytes: f64::INFINITY,
        input: way,
        reduce: way,
        node: 0,
        per_node: 1,
    };
    vec![unit("fast", 300.0, 40.0), unit("middle", 150.0, 20.0), unit("slow", 110.0, 45.0)]
}

#[test]
fn the_front_of_vgg16_has_six_points() {
    let problem = Problem {
        layers: profile("vgg16.graph.txt").layers(&[1.0, 2.2, 9.0]),
        units: three_types(),
        nodes: vec![NodeType { name: "nodes".to_owned(), base_watts: 0.0 }],
        semantics: Semantics::Stale,
        objective: Objective::Energy,
        period_cap: None,
        power_cap: None,
    };
    assert_eq!(problem.layers.len(), 40);
    let found = solve(&problem, &Limits::default()).unwrap();
    let points: Vec<String> = found
        .front
        .plans()
        .iter()
        .map(|plan| format!("{:.9} {:.6}", plan.period_s, plan.energy_j))
        .collect();
    let expected = [
        "0.127761011 268.130362",
        "0.132724671 218.669506",
        "0.137549483 216.761816",
        "0.173854634 211.351396",
        "0.176349166 207.555622",
        "0.672535000 201.760500",
    ];
    assert_eq!(points, expected);
    assert!(found.whole);
    assert_eq!(found.gap(&problem), Some(0.0));
}
