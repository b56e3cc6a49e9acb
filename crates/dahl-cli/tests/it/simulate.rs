//! `dahl simulate`: from files to times, joules, traces and errors.

use crate::support::{Scratch, check, dahl};
use serde_json::Value;
use std::fs;

/// Two machines and a line, as in the worked example of SimGrid: speeds of 1 and 10,
/// 50 and 30 W idle, 200 and 300 W busy, 1 GB/s and 1 ms.
const PLATFORM: &str = r#"
dahl_platform = 1
name = "two"
from = "guess"

[[node]]
name = "cpu"
base_watts = 0
memory = [{ name = "ram", bytes = "8 GiB", bandwidth = 1e12 }]
unit = [{ name = "core", kind = "cpu", flops = 1e9, busy_watts = 200, spinning_watts = 200, idle_watts = 50 }]

[[node]]
name = "gpu"
base_watts = 0
memory = [{ name = "ram", bytes = "8 GiB", bandwidth = 1e12 }]
unit = [{ name = "gpu", kind = "gpu", flops = 10e9, busy_watts = 300, spinning_watts = 300, idle_watts = 30 }]

[[link]]
name = "line"
connects = ["cpu", "gpu"]
bandwidth = 1e9
latency = 1e-3
joules_per_byte = 0
"#;

const DIAMOND: &str = r#"
dahl_tasks = 1
task = [
  { name = "A", on = "cpu", flops = 2e9 },
  { name = "B", on = "gpu", flops = 20e9, after = [{ task = "A", bytes = 5e8 }] },
  { name = "C", on = "cpu", flops = 1e9, after = ["A"] },
  { name = "D", on = "cpu", flops = 1e9, after = ["C", { task = "B", bytes = 5e8 }] },
]
"#;

fn read(path: &str) -> String {
    fs::read_to_string(path).expect("a file")
}

/// Makespan 6.002 s and 900.1 J + 720.06 J, as SimGrid has it.
#[test]
fn a_diamond_of_tasks() {
    let dir = Scratch::new("simulate-diamond");
    let platform = dir.write("two.toml", PLATFORM.as_bytes());
    let tasks = dir.write("tasks.toml", DIAMOND.as_bytes());
    let simulate = ["simulate", "--tasks", &tasks, "--platform", &platform];
    let traced = |file: &str| {
        let trace = dir.path(file);
        let out = dahl(&[&simulate[..], &["--json", "--trace", &trace]].concat());
        assert_eq!(out.0, 0, "{}", out.2);
        (out.1, read(&trace))
    };
    let (out, trace) = traced("t.trace");
    let value: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(value["makespan_ns"], 6_002_000_000u64, "{value}");
    let joules = |unit: usize| {
        let unit = &value["units"][unit];
        ["busy_j", "spinning_j", "idle_j"].iter().filter_map(|k| unit[*k].as_f64()).sum::<f64>()
    };
    assert!((joules(0) - 900.1).abs() < 1e-6 && (joules(1) - 720.06).abs() < 1e-6, "{value}");
    assert!(trace.contains("\"move\"") && trace.contains("\"simulated\""), "{trace}");
    // Workers are called by their units wherever the trace is looked at.
    let file = dir.path("t.trace");
    for unit in value["units"].as_array().expect("units") {
        let name = unit["unit"].as_str().expect("a name");
        check(&["stats", &file], 0, &format!("\n{name} "), "");
        check(&["trace", &file, "--format", "paje"], 0, &format!("W run \"{name}\""), "");
    }
    // The same input gives the same bytes.
    assert_eq!((out, trace), traced("u.trace"));

    check(&simulate, 0, "modelled", "");
    let replay = dir.path("replay");
    let (code, _, stderr) =
        dahl(&[&simulate[..], &["--export", "simgrid", "--output", &replay]].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(read(&dir.path("replay/scenario.json")).contains("dahl_simgrid"));
}

#[test]
fn what_is_wrong_with_tasks_is_told_at_its_line() {
    let dir = Scratch::new("simulate-wrong");
    let platform = dir.write("two.toml", PLATFORM.as_bytes());
    for (from, to, line, what) in [
        ("flops = 2e9", "flops = -1", "line 4", "from 0"),
        ("flops = 2e9", "flops = nan", "line 4", "from 0"),
        ("flops = 2e9", "flops = 1e300", "line 4", "seconds"),
        ("flops = 2e9", "seconds = 1, flops = 1", "line 4", "either seconds or flops"),
        ("\"gpu\", flops", "\"gpu[1]\", flops", "line 5", "below 1"),
        ("after = [\"A\"]", "after = [\"D\"]", "line 6", "earlier task"),
        ("bytes = 5e8 }] },\n]", "bytes = -5 }] },\n]", "line 7", "from 0"),
        ("dahl_tasks = 1", "dahl_tasks = 2", "line 2", "1"),
    ] {
        assert!(DIAMOND.contains(from), "{from}");
        let tasks = dir.write("tasks.toml", DIAMOND.replacen(from, to, 1).as_bytes());
        let (code, _, stderr) = dahl(&["simulate", "--tasks", &tasks, "--platform", &platform]);
        assert_eq!(code, 4, "{to}: {stderr}");
        assert!(stderr.contains(line) && stderr.contains(what), "{to}: {stderr}");
    }
}

#[test]
fn steps_of_a_model_by_profile_and_what_is_missing() {
    let dir = Scratch::new("simulate-model");
    let platform = dir.write("two.toml", PLATFORM.as_bytes());
    let model = ["simulate", "seed-cnn", "--batch", "8", "--platform", &platform, "--json"];
    let (code, stdout, stderr) = dahl(&[&model[..], &["--workers", "2"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let value: Value = serde_json::from_str(&stdout).expect("JSON");
    // Nothing was calibrated: the platform's figures.
    assert_eq!(value["step"]["times_from"]["profile"], 1.0, "{value}");
    assert!(value["moved"]["bytes"].as_u64() > Some(0), "{value}");
    let on = "note: no --on: the 2 workers are on the first units, ";
    assert!(stderr.contains(on), "{stderr}");
    for (args, what) in [
        (&["--workers", "3"][..], "at most 2"),
        (&["--workers", "2", "--on", "cpu"], "2 units"),
        (&["--on", "tpu"], "cpu, gpu"),
        (&["--state", "slow"], "has none"),
        (&["--noise=-1"], "from 0 to 10"),
    ] {
        check(&[&model[..], args].concat(), 2, "", what);
    }
    // No figure at all for a kind.
    dir.write("two.toml", PLATFORM.replace("flops = 1e9, ", "").as_bytes());
    check(&model, 2, "", "the time of every call");
}
