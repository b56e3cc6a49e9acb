//! Certificates that were made to be wrong.

use crate::planner::pipeline::{Certificate, certify};
use serde_json::{Value, json};

/// One layer on one of two types, of which the second is dear.
fn dear() -> Value {
    let free = json!({ "seconds_per_byte": 0.0, "joules_per_byte": 0.0 });
    let unit = |name: &str, busy: f64| {
        json!({
            "name": name, "count": 2, "idle_watts": 10.0, "memory_bytes": null, "node": 0, "per_node": 8,
            "powers": [{ "name": "full", "speed": 1.0, "busy_watts": busy }],
            "input": free, "reduce": free,
        })
    };
    let layer = |name: &str, inputs: Value| {
        json!({
            "name": name, "seconds": [1.0, 1.0], "output_bytes": 0.0, "parameter_bytes": 0.0,
            "inputs": inputs,
        })
    };
    json!({
        "dahl_certificate": 1,
        "problem": {
            "layers": [layer("one", json!([])), layer("two", json!([0]))],
            "units": [unit("cheap", 20.0), unit("dear", 1000.0)],
            "nodes": [{ "name": "node", "base_watts": 0.0 }],
            "semantics": "stale", "objective": "energy", "period_cap": null, "power_cap": null,
        },
        "plan": {
            "stages": [{ "layers": [0, 1], "unit": 1, "replicas": 1, "power": 0 }],
            "period_s": 2.0, "energy_j": 2000.0,
        },
        "value": 30.0,
        "sets": [[], [0], [0, 1]],
        "levels": [],
        "cells": [{
            "low": 0.0, "high": null, "most_low": 0.0, "most_high": null, "theta": 0.0,
            // On a cheap unit each layer takes 10 J beyond idle watts, and 10 J of them if the
            // other layer takes no time.
            "joules": [], "by_set": [0.0, 9.99, 19.98], "prices": [0.0, 0.0],
        }],
        "labels": [],
    })
}

fn flaw(of: Value) -> String {
    let read: Certificate = serde_json::from_value(of).unwrap();
    certify(&read).expect_err("a forged certificate").to_string()
}

#[test]
fn a_small_claim_holds() {
    let mut right = dear();
    right["value"] = json!(19.9);
    let read: Certificate = serde_json::from_value(right).unwrap();
    certify(&read).unwrap();
    assert!(flaw(dear()).contains("labels"), "30 J is more than the potentials show");
}

#[test]
fn numbers_that_overflow_prove_nothing() {
    let mut prices = dear();
    prices["cells"][0]["prices"] = json!([1e308, 1e308]);
    assert!(flaw(prices).contains("prices"));
    let mut seconds = dear();
    seconds["cells"][0]["high"] = json!(1e10);
    seconds["cells"][0]["theta"] = json!(1e308);
    seconds["cells"][0]["by_set"] = json!([0.0, null, null]);
    let mut last = dear()["cells"][0].clone();
    last["low"] = json!(1e10);
    seconds["cells"].as_array_mut().unwrap().push(last);
    assert!(flaw(seconds).contains("price of seconds"));
    let mut many = dear();
    many["problem"]["units"][0]["per_node"] = json!(1u64 << 63);
    assert!(flaw(many).contains("problem"));
}

#[test]
fn sets_in_a_wrong_order_prove_nothing() {
    // The set with both of the first two layers before that of one: no column between them.
    let mut order = dear();
    order["problem"]["layers"].as_array_mut().unwrap().push(json!({
        "name": "three", "seconds": [1.0, 1.0], "output_bytes": 0.0, "parameter_bytes": 0.0,
        "inputs": [1],
    }));
    order["plan"]["stages"][0]["layers"] = json!([0, 1, 2]);
    order["plan"]["period_s"] = json!(3.0);
    order["plan"]["energy_j"] = json!(3000.0);
    order["sets"] = json!([[], [0, 1], [0], [0, 1, 2]]);
    order["cells"][0]["by_set"] = json!([0.0, 1.0, 1.0, 1.0]);
    assert!(flaw(order).contains("each behind those that it contains"));
}

#[test]
fn a_plan_that_draws_more_than_the_cap_is_none() {
    let mut cap = dear();
    cap["problem"]["power_cap"] = json!(5.0);
    assert!(flaw(cap).contains("less than 5 W"));
}

#[test]
fn stages_lie_between_listed_sets() {
    let mut cut = dear();
    cut["sets"] = json!([[], [0, 1]]);
    cut["cells"][0]["by_set"] = json!([0.0, 19.98]);
    cut["plan"]["stages"] = json!([
        { "layers": [0], "unit": 1, "replicas": 1, "power": 0 },
        { "layers": [1], "unit": 1, "replicas": 1, "power": 0 },
    ]);
    assert!(flaw(cut).contains("between two of the sets"));
}
