//! `dahl calibrate`: what is in the file and what is said of it, not how fast it was.

use crate::support::{Scratch, check, dahl};
use serde_json::Value;

const MODEL: &[u8] = br#"name = "tiny"
    input = [1, 6, 6]
    layers = [
      { type = "conv2d", out = 3, kernel = 3 },
      { type = "flatten" },
      { type = "linear", out = 4 },
    ]"#;

#[track_caller]
fn objects(args: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = dahl(args);
    assert!(code == 0 && stderr.is_empty(), "{stdout}{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_calibration_is_made_added_to_and_shown() {
    let place = Scratch::new("calibrate");
    let model = place.write("tiny.toml", MODEL);
    let file = place.path("c.json");
    let short = ["--batch", "4", "--dtypes", "f32", "--seconds", "0.2", "--output", &file];
    let run = [&["calibrate", &model, "--quick", "--json", "--quiet"][..], &short].concat();
    let first = objects(&run).remove(0);
    assert_eq!((&first["programs"], &first["skipped"]), (&3.into(), &0.into()), "{first}");
    for key in ["steps", "calls", "codelets", "shapes"] {
        assert!(first[key].as_u64() > Some(0), "{key} {first}");
    }
    assert!(first["overheads"]["spin_ns"].as_f64() > Some(0.0), "{first}");

    let shown = objects(&["calibrate", "--show", &file, "--json"]);
    assert_eq!(shown.len() as u64, first["codelets"].as_u64().expect("a count"));
    let shapes: u64 = shown.iter().map(|line| line["shapes"].as_u64().expect("shapes")).sum();
    assert_eq!(Some(shapes), first["shapes"].as_u64());
    for line in &shown {
        assert!(line["kind"].as_str().is_some_and(|kind| kind.starts_with("cpu-")), "{line}");
        for key in ["calls", "mean_ns", "p50_ns", "p99_ns"] {
            assert!(line[key].as_f64() > Some(0.0), "{key} {line}");
        }
        assert!(line["spread"].is_f64() && line.get("error").is_some(), "{line}");
    }
    check(&["calibrate", "--show", &file], 0, "\nlinear ", "");
    // A plan predicted from a calibration that is named failed for want of a platform.
    let sized = ["--batch", "4", "--workers", "1", "--optimizer", "sgd"];
    let planned = [&["plan", &model, "--calibration", &file][..], &sized].concat();
    check(&planned, 0, " per step (95 % interval ", "");
    // One calibration predicts other models, batches and element types.
    let other = ["plan", "lenet", "--batch", "48", "--dtype", "f64", "--calibration", &file];
    check(&other, 0, " per step (95 % interval ", "");
    let simulated = ["simulate", "digits-cnn", "--workers", "2", "--calibration", &file];
    check(&simulated, 0, "times from", "no --platform");

    // The same again: more times of the same shapes.
    let again = objects(&run).remove(0);
    assert_eq!(again["shapes"], first["shapes"]);
    let calls = |lines: &[Value]| -> u64 { lines.iter().filter_map(|l| l["calls"].as_u64()).sum() };
    let later = objects(&["calibrate", "--show", &file, "--json"]);
    assert!(calls(&later) > calls(&shown));

    // Another version's is not added to.
    let text = std::fs::read_to_string(&file).expect("the file");
    let version = format!("\"dahl\":\"{}\"", env!("CARGO_PKG_VERSION"));
    place.write("c.json", text.replace(&version, "\"dahl\":\"0.0.1\"").as_bytes());
    check(
        &["calibrate", "--show", &file],
        0,
        "codelet",
        "does not describe this machine: it was measured by",
    );
    let (code, stdout, stderr) = dahl(&run);
    assert!(code == 0 && stderr.contains("is replaced: it was measured by dahl 0.0.1"), "{stderr}");
    let anew: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(anew["shapes"], first["shapes"]);
}

#[test]
fn all_kernels_have_their_turn_unless_it_is_quick() {
    let place = Scratch::new("calibrate-all");
    let model = place.write("tiny.toml", MODEL);
    let file = place.path("c.json");
    let run = ["calibrate", &model, "--batch", "2", "--seconds", "0.1", "--output", &file];
    let (code, _, stderr) = dahl(&run);
    assert_eq!(code, 0, "{stderr}");
    let shown = objects(&["calibrate", "--show", &file, "--json"]);
    let of = |codelet: &str| -> Vec<&str> {
        let lines = shown.iter().filter(|line| line["codelet"] == codelet);
        lines.map(|line| line["variant"].as_str().expect("a name")).collect()
    };
    assert_eq!(of("linear"), ["dot", "gemm", "plain"]);
    assert_eq!(of("conv2d"), ["direct", "gemm", "plain", "winograd2", "winograd4"]);
    assert!(!of("linear_backward_weight_sgd").is_empty(), "{shown:?}");
    assert!(!of("linear_backward_weight_adam").is_empty(), "{shown:?}");
}

#[test]
fn what_cannot_be_calibrated_is_said_before_it_is_tried() {
    for (args, code, expected) in [
        (&["lanet"][..], 2, "expected one of seed-cnn"),
        (&["--batch", "4"], 2, "<MODEL>"),
        (&["lenet", "--batch", "0"], 2, "expected at least 1"),
        (&["--seconds", "0"], 2, "expected a number of seconds, such as 0.2"),
        (&["--dtypes", "f16"], 2, "f16"),
        (
            &["--output", "/nowhere/c.json"],
            2,
            "output: expected a file in a directory that is there",
        ),
        (&["--show", "/nowhere/c.json"], 4, "/nowhere/c.json: "),
        (&["--quick", "--show"], 2, "cannot be used with"),
    ] {
        check(&[&["calibrate"], args].concat(), code, "", expected);
    }
    let place = Scratch::new("calibrate-bad");
    let bad = place.write("c.json", b"{\n\"dahl_calibration\": 1,\n\"about\": 7}");
    check(&["calibrate", "--show", &bad], 4, "", "c.json: line 3: expected a calibration, found");
    check(&["calibrate", "--output", &bad], 4, "", "c.json: line 3: expected a calibration, found");
}
