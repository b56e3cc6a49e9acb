//! Certificates that were made to be wrong.

use dahl_certify::{Certificate, certify, certify_within};
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

/// The version before listed potentials, by set or by set and combination of units; they say no
/// more than what the checker computes, and nothing where they are wrong.
#[test]
fn certificates_of_version_1_are_read() {
    let mut full = dear();
    full["cells"][0]["prices"] = json!([]);
    full["cells"][0]["by_set"] = json!([]);
    for listed in [0.0, 1000.0] {
        full["cells"][0]["joules"] = json!(vec![listed; 3 * 9]);
        full["value"] = json!(19.9);
        let read: Certificate = serde_json::from_value(full.clone()).unwrap();
        // Two sets on one or two units of a type: of 9 combinations, 6 and 3 leave enough free.
        // The dear type never costs less, but that is not known before it is looked at.
        assert_eq!(certify(&read), Ok(3 * 2 * 6), "{listed}");
        full["value"] = json!(30.0);
        assert!(flaw(full.clone()).contains("labels"), "{listed}");
    }
}

/// A file of a few bytes may not ask for more memory or time than the largest proof needs.
#[test]
fn a_certificate_that_needs_too_much_is_refused() {
    let mut many = dear();
    many["cells"][0]["prices"] = json!([]);
    many["problem"]["units"][0]["count"] = json!(60_000);
    many["problem"]["units"][1]["count"] = json!(60_000);
    assert!(flaw(many.clone()).contains("at most 40000000 potentials of sets and units"));
    many["cells"][0]["prices"] = json!([0.0, 0.0]);
    many["problem"]["layers"].as_array_mut().unwrap().truncate(2);
    many["sets"] = json!([[], [0], [0, 1]]);
    many["problem"]["units"][0]["powers"] =
        json!(vec![json!({ "name": "full", "speed": 1.0, "busy_watts": 20.0 }); 200]);
    assert!(flaw(many).contains("at most 6000000 stages on units"));
}

/// The work of every part of a proof is counted before it is done.
#[test]
fn a_certificate_that_takes_too_long_is_refused() {
    let refused = |of: &Value, steps: u64| {
        let read: Certificate = serde_json::from_value(of.clone()).unwrap();
        let error = certify_within(&read, steps).expect_err("too much work").to_string();
        assert_eq!(
            error,
            format!("proof: expected one that is checked in {steps} steps, found more")
        );
    };
    // Combinations of units: 60,000 stages on up to 60,000 units.
    let mut units = dear();
    units["cells"][0]["prices"] = json!([]);
    units["problem"]["units"][0]["count"] = json!(60_000);
    units["problem"]["units"][0]["memory_bytes"] = json!(1e9);
    units["problem"]["layers"][0]["parameter_bytes"] = json!(1e6);
    refused(&units, 100_000_000);
    // Partial plans, each with all stages before it.
    let mut labels = dear();
    labels["value"] = json!(19.9);
    labels["problem"]["units"][0]["count"] = json!(1_000);
    let label = json!({ "set": 2, "used": 0, "sum": 0.0, "most": 0.0, "joules": 0.0, "stages": 0 });
    labels["labels"] = json!(vec![label; 10_000]);
    refused(&labels, 10_000_000);
    // Cells, each of which is compared with all others.
    let mut cells = dear();
    let cell = cells["cells"][0].clone();
    cells["cells"] = json!(vec![cell; 10_000]);
    refused(&cells, 10_000_000);
}

#[test]
fn numbers_that_overflow_prove_nothing() {
    let mut prices = dear();
    prices["cells"][0]["prices"] = json!([1e308, 1e308]);
    assert!(flaw(prices).contains("a multiplier from 0 to 1e60"));
    let mut seconds = dear();
    seconds["cells"][0]["high"] = json!(1e10);
    seconds["cells"][0]["theta"] = json!(1e308);
    seconds["cells"][0]["by_set"] = json!([0.0, null, null]);
    let mut last = dear()["cells"][0].clone();
    last["low"] = json!(1e10);
    seconds["cells"].as_array_mut().unwrap().push(last);
    assert!(flaw(seconds).contains("a multiplier of seconds"));
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
