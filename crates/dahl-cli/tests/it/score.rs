//! `dahl plan --score`: plans of other planners.

use crate::support::{Scratch, check, dahl};
use serde_json::{Value, json};
use std::path::Path;

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dahl/tests/planner").join(name);
    path.to_str().expect("a path of text").to_owned()
}

/// Four machines with a GPU each, and two with a slower one.
const UNITS: &str = r#"
dahl_platform = 1
name = "six"
link = [{ name = "net", connects = ["fast", "slow"], bandwidth = 1e9, latency = 0, joules_per_byte = 1e-8, shared = "ends" }]
[[node]]
name = "fast"
count = 4
base_watts = 0
memory = [{ name = "ram", bytes = "64 GiB", bandwidth = 1e12 }]
[[node.unit]]
name = "gpu"
kind = "fast"
busy_watts = 250
spinning_watts = 250
idle_watts = 30
states = [{ name = "150 W", speed = 0.8, busy_watts = 150 }]
[[node]]
name = "slow"
count = 2
base_watts = 0
memory = [{ name = "ram", bytes = "64 GiB", bandwidth = 1e12 }]
[[node.unit]]
name = "gpu"
kind = "slow"
speed = 0.5
busy_watts = 100
spinning_watts = 100
idle_watts = 10
"#;

fn json_of(args: &[&str], expected: i32) -> Value {
    let (code, out, err) = dahl(args);
    assert_eq!(code, expected, "{err}");
    serde_json::from_str(&out).expect("JSON")
}

#[test]
fn a_plan_of_another_planner_has_a_price_and_a_gap() {
    let scratch = Scratch::new("score");
    let units = scratch.write("six.toml", UNITS.as_bytes());
    let profile = data("vgg16.graph.txt");
    let base = [
        "plan",
        "--profile",
        &profile,
        "--platform",
        &units,
        "--objective",
        "time",
        "--allow-stale",
    ];
    let plan = [&base[..], &["--max-time", "1h"]].concat();
    // What dahl prints is a file of a plan, whose gap is that of the search.
    let own = json_of(&[&plan[..], &["--json"]].concat(), 0);
    let file = scratch.write("own.json", own.to_string().as_bytes());
    let scored = json_of(&[&plan[..], &["--score", &file, "--json"]].concat(), 0);
    let number = |of: &Value, key: &str| of[key].as_f64().expect("a number");
    for key in ["period_s", "energy_j"] {
        assert!((number(&scored, key) / number(&own, key) - 1.0).abs() < 1e-9, "{key}");
    }
    assert!(number(&scored, "gap") < 1e-9 && scored["fits"] == true);
    // Another plan is worse, by as much as both say.
    let other = json!({ "planner": "by hand", "stages": [
        { "first": 0, "last": "node30", "unit": "fast", "replicas": 2, "power": "150 W" },
        { "first": "node31", "last": 39, "unit": "slow" },
    ] });
    let file = scratch.write("other.json", other.to_string().as_bytes());
    let proof = scratch.path("proof.json");
    let score = [&plan[..], &["--score", &file]].concat();
    let found = json_of(&[&score[..], &["--json", "--certificate", &proof]].concat(), 0);
    let gap = 1.0 - number(&found, "lower_bound") / number(&found, "value");
    assert!(gap > 0.1 && (number(&found, "gap") - gap).abs() < 1e-12, "{found}");
    let more = number(&found, "period_s") / number(&found["own_plan"], "period_s") - 1.0;
    assert!((number(&found, "more_time") - more).abs() < 1e-9);
    assert!(number(&found, "certified") <= number(&found, "lower_bound") * (1.0 + 1e-6));
    check(&["certify", &proof], 0, "holds: no plan of this space has time below", "");
    let text = format!("scored       fast/gpu x2 @ 150 W, slow/gpu x1 (by hand, {file})");
    check(&score, 0, &text, "");
    check(&score, 0, "memory       fits: stage ", "");
    check(&score, 0, "; gap of the scored plan ", "");
    // It is priced where it does not fit too.
    let (code, out, err) = dahl(&[&score[..], &["--period", "0.01"]].concat());
    assert_eq!(code, 3, "{err}");
    assert!(out.contains("not within") && err.contains("a batch takes 0."), "{out}{err}");
    let (code, out, err) = dahl(&[&score[..], &["--memory-limit", "1GiB"]].concat());
    assert_eq!(code, 3, "{err}");
    assert!(out.contains("memory       does not fit: stage 0 needs"), "{out}");
    assert!(err.contains("score: expected a plan that fits"), "{err}");
    // The plan of PipeDream's model under dahl's.
    let dream = scratch.write(
        "four.toml",
        UNITS
            .split("[[node]]\nname = \"slow\"")
            .next()
            .expect("text")
            .replace(", \"slow\"", "")
            .as_bytes(),
    );
    let base = ["plan", "--profile", &profile, "--platform", &dream];
    let found = json_of(&[&base[..], &["--cost-model", "pipedream", "--json"]].concat(), 0);
    let file = scratch.write("dream.json", found.to_string().as_bytes());
    let score = ["--score", &file, "--max-time", "1h"];
    check(&[&base[..], &score, &["--allow-stale"]].concat(), 0, "gap of the scored plan", "");
    check(
        &[&base[..], &score].concat(),
        4,
        "",
        "semantics: expected synchronous as the settings say (allow stale weights",
    );
}

#[test]
fn a_file_that_is_no_plan_is_refused() {
    let scratch = Scratch::new("no-score");
    let units = scratch.write("six.toml", UNITS.as_bytes());
    let profile = data("vgg16.graph.txt");
    let plan = ["plan", "--profile", &profile, "--platform", &units];
    let refused = |name: &str, text: &str, expected: &str| {
        let file = scratch.write(name, text.as_bytes());
        let expected = format!("{name}: {expected}");
        check(&[&plan[..], &["--score", &file]].concat(), 4, "", &expected);
    };
    refused("text.json", "stages", "file: expected a plan in JSON");
    refused("typo.json", r#"{"stages": [{"layer": [0]}]}"#, "stage 0: expected the keys layers");
    refused(
        "part.json",
        r#"{"stages": [{"layers": [0], "unit": "slow"}]}"#,
        "stages: expected each",
    );
    let many = r#"{"stages": [{"first": 0, "last": 39, "unit": "slow", "replicas": 3}]}"#;
    refused("many.json", many, "stage 0: replicas: expected at most 2 x slow/gpu");
    check(&[&plan[..], &["--score", &scratch.path("none.json")]].concat(), 4, "", "none.json");
    let file =
        scratch.write("ok.json", br#"{"stages": [{"first": 0, "last": 39, "unit": "slow"}]}"#);
    let score = [&plan[..], &["--score", &file]].concat();
    check(&[&score[..], &["--advice"]].concat(), 2, "", "--advice");
    let dream = [&score[..], &["--cost-model", "pipedream"]].concat();
    check(&dream, 2, "", "score: expected --cost-model dahl");
}

#[test]
fn a_model_s_plan_with_uneven_shares_is_priced() {
    let scratch = Scratch::new("score-model");
    let units = UNITS.replace("count = 4", "count = 1").replace("count = 2", "count = 1");
    let units = units.replace("kind = \"fast\"", "kind = \"fast\"\nflops = 1e12");
    let units = units.replace("kind = \"slow\"", "kind = \"slow\"\nflops = 5e11");
    let units = scratch.write("two.toml", units.as_bytes());
    let plan = ["plan", "lenet", "--batch", "12", "--platform", &units, "--max-time", "5s"];
    let stages = json!([{ "unit": "fast", "samples": [8] }, { "unit": "slow", "samples": [4] }]);
    let file = scratch.write("shares.json", json!({ "stages": stages }).to_string().as_bytes());
    let text = "fast/gpu x1 @ full + slow/gpu x1 side by side, samples 8:4";
    check(&[&plan[..], &["--score", &file]].concat(), 0, text, "");
    let other = ["plan", "lenet", "--batch", "13", "--platform", &units, "--score", &file];
    check(&other, 4, "", "samples: expected 13 samples in all stages");
}

#[test]
fn a_split_of_operators_is_priced() {
    let scratch = Scratch::new("split");
    let graph = data("bert24_inference.json");
    let plan = ["plan", "--profile", &graph];
    let own = json_of(&[&plan[..], &["--json"]].concat(), 0);
    let file = scratch.write("own.json", own.to_string().as_bytes());
    check(&[&plan[..], &["--score", &file]].concat(), 0, "gap of the scored plan 0.000 %", "");
    // What the first accelerator has, on the core.
    let mut worse = own.clone();
    worse["stages"][0]["device"] = "core".into();
    let worse = scratch.write("worse.json", worse.to_string().as_bytes());
    let found = json_of(&[&plan[..], &["--score", &worse, "--json"]].concat(), 0);
    assert!(found["gap"].as_f64().expect("a gap") > 0.0 && found["fits"] == true, "{found}");
    let limited =
        [&plan[..], &["--score", &file, "--memory-limit", "1MiB", "--max-time", "5s"]].concat();
    let (code, _, err) = dahl(&limited);
    assert_eq!(code, 3, "{err}");
}
