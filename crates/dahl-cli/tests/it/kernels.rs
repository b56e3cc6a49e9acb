//! `--conv`, `--isa` and `--tune`: which kernels are used, and that a run keeps
//! them.

use crate::runs::Place;
use crate::support::{Scratch, check, dahl};
use std::fs;
use std::path::Path;

/// A convolution whose windows are too large for tiles, and one with few results.
const MODEL: &str = r#"name = "taps"
input = [1, 8, 8]
layers = [
  { type = "conv2d", out = 4, kernel = 3 },
  { type = "relu" },
  { type = "conv2d", out = 6, kernel = 5 },
  { type = "flatten" },
  { type = "linear", out = 10 },
]
"#;

/// An instruction set of other machines.
const FOREIGN: &str = if cfg!(target_arch = "x86_64") { "neon" } else { "avx2" };

/// The variants of convolutions in a plan, each once.
#[track_caller]
fn variants(args: &[&str]) -> Vec<String> {
    let plan = ["plan", "vgg-small", "--batch", "4", "--isa", "portable", "--show", "plan"];
    let (code, text, stderr) = dahl(&[&plan[..], args].concat());
    assert_eq!(code, 0, "{stderr}");
    let plan: toml::Table = text.parse().expect("TOML");
    assert_eq!(plan["numerics"]["isa"].as_str(), Some("portable"));
    let nodes = plan["numerics"]["train 4"]["nodes"].as_array().expect("nodes");
    let convs = nodes.iter().filter(|n| n["op"].as_str().is_some_and(|op| op.starts_with("conv")));
    let mut names: Vec<String> =
        convs.map(|n| n["variant"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn the_accuracy_bounds_the_kernels_of_a_plan() {
    let (exact, auto, fast) = (&["gemm"], &["winograd2"], &["winograd4"]);
    for (args, expected) in [
        (&["--conv", "exact"][..], exact),
        (&["--conv", "auto"], auto),
        (&["--conv", "fast"], fast),
        // By default f32 is as exact as `auto`, and f64 takes every product.
        (&[], auto),
        (&["--dtype", "f64"], exact),
        (&["--dtype", "f64", "--conv", "fast"], fast),
    ] {
        assert_eq!(variants(args), expected, "{args:?}");
    }
    check(&["plan", "lenet", "--conv", "quick"], 2, "", "[possible values: exact, auto, fast]");
}

#[test]
fn instruction_sets_that_are_not_there_are_refused() {
    for command in [
        &["plan", "seed-cnn"][..],
        &["train", "--no-run"],
        &["eval", "--weights", "w"],
        &["predict", "--weights", "w"],
        &["verify", "golden"],
        &["bench", "seed-28-b10"],
        &["bench", "kernels", "lenet"],
    ] {
        let with = |isa| [command, &["--isa", isa]].concat();
        let unknown = "expected one of portable, neon, avx2, avx512";
        check(&with("sse"), 2, "", unknown);
        check(&with(FOREIGN), 2, "", "found a machine that has portable");
    }
    // Where nothing would be chosen, there is nothing to measure.
    check(&["verify", "golden", "--tune"], 2, "", "unexpected argument '--tune'");
    check(&["plan", "seed-cnn", "--tune", "--check", "x"], 2, "", "cannot be used with");
}

#[test]
fn a_plan_with_a_kernel_that_does_not_fit_is_refused() {
    let place = Scratch::new("kernels");
    let model = place.write("taps.toml", MODEL.as_bytes());
    let plan = ["plan", &model, "--batch", "3", "--isa", "portable"];
    let (code, text, stderr) = dahl(&[&plan[..], &["--tune", "--show", "plan"]].concat());
    assert_eq!(code, 0, "{stderr}");
    for said in ["measuring conv2d_relu 0\n", "measuring linear 4\n", "tuned: "] {
        assert!(stderr.contains(said), "{stderr}");
    }
    let file = |text: &str| place.write("my.plan", text.as_bytes());
    let checked = |path: &str, code, out: &str, err: &str| {
        check(&["plan", &model, "--batch", "3", "--check", path], code, out, err);
    };
    checked(&file(&text), 0, "tasks per step", "");
    let edited = |from: &str, variant: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("hash"));
        let lines =
            lines.map(|line| match (line.contains(from), line.split_once("variant = \"")) {
                (true, Some((before, after))) => {
                    let rest = after.split_once('"').expect("a name").1;
                    format!("{before}variant = \"{variant}\"{rest}\n")
                }
                _ => format!("{line}\n"),
            });
        lines.collect::<String>()
    };
    let conv = "op = \"conv2d\", path = \"2\"";
    let expected =
        "conv2d \"2\": expected one of [\"plain\", \"direct\", \"gemm\"], found winograd2";
    checked(&file(&edited(conv, "winograd2")), 4, "", expected);
    checked(
        &file(&edited(conv, "magic")),
        4,
        "",
        "[\"plain\", \"direct\", \"gemm\", \"winograd2\",",
    );
    let linear = "op = \"linear\", path = \"4\"";
    checked(&file(&edited(linear, "plain")), 0, "tasks per step", "");
}

#[test]
fn what_does_not_fit_into_memory_is_not_measured() {
    let place = Scratch::new("huge");
    let layer = "{ type = \"linear\", out = 68719476736 }";
    let text = format!("input = [64]\nlayers = [{layer}]");
    let model = place.write("huge.toml", text.as_bytes());
    if !cfg!(target_os = "linux") {
        return; // What there is of memory is known there only.
    }
    let expected = "of memory, ";
    check(&["plan", &model, "--batch", "2", "--tune"], 3, "", expected);
    check(&["bench", "kernels", "--layer", layer, "--input", "64", "--json"], 3, "", expected);
}

/// Copies the files of a run, without its checkpoints.
fn copy_start(place: &Place, from: &str, to: &str) {
    fs::create_dir_all(place.run(to)).expect("a directory");
    for file in ["config.toml", "model.toml", "plan.txt"] {
        fs::copy(place.run(from).join(file), place.run(to).join(file)).expect(file);
    }
}

fn edit(path: &Path, change: impl Fn(&str) -> String) {
    let text = fs::read_to_string(path).expect("a file");
    let lines =
        text.lines().filter(|line| !line.starts_with("hash")).map(|line| change(line) + "\n");
    fs::write(path, lines.collect::<String>()).expect("a file");
}

const TRAIN: [&str; 9] =
    ["train", "--model", "taps.toml", "--limit", "24", "--batch", "5", "--epochs", "2"];

#[test]
fn a_run_keeps_what_was_measured_for_it() {
    let place = Place::new("tuned");
    fs::write(place.0.join("taps.toml"), MODEL).expect("a model");
    let start = ["--tune", "--run", "parts", "--max-steps", "3", "--workers", "1"];
    let (code, _, stderr) = place.dahl(&[&TRAIN[..], &start].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("measuring conv2d_relu 0\n"), "{stderr}");
    // Nothing that is measured gives plain kernels.
    let plan = |run: &str| fs::read_to_string(place.run(run).join("plan.txt")).expect("a plan");
    let is_plain = |plan: &str| plan.contains("op = \"linear\", path = \"4\", variant = \"plain\"");
    assert!(!is_plain(&plan("parts")));
    // The same plan, never stopped.
    copy_start(&place, "parts", "whole");
    place.check(&["train", "--resume", "whole"], 0, "starts from the beginning");
    let (code, _, stderr) = place.dahl(&["train", "--resume", "parts", "--workers", "3"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(!stderr.contains("measuring"), "{stderr}");
    assert_eq!(place.gave("parts"), place.gave("whole"));

    for (flag, value, expected) in [
        ("--conv", "exact", "conv: expected none as in the run"),
        ("--isa", "portable", "isa: expected none as in the run"),
    ] {
        place.check(&["train", "--resume", "parts", flag, value], 2, expected);
    }

    // What stands in the plan is taken, and is still there.
    copy_start(&place, "parts", "edited");
    let path = place.run("edited").join("plan.txt");
    edit(&path, |line| match line.contains("op = \"linear\", path = \"4\"") {
        true => line
            .replace("variant = \"gemm\"", "variant = \"plain\"")
            .replace("\"dot\"", "\"plain\""),
        false => line.to_owned(),
    });
    assert_eq!(place.dahl(&["train", "--resume", "edited"]).0, 0);
    assert!(is_plain(&plan("edited")), "{}", plan("edited"));
    fs::write(&path, "dahl_plan = 1\n").expect("a plan");
    place.check(
        &["train", "--resume", "edited", "--epochs", "3"],
        4,
        "edited/plan.txt: plan: expected that of the run",
    );

    // A run that is silent measures in silence.
    let quiet = ["--tune", "--quiet", "--no-run", "--max-steps", "1"];
    let (code, _, stderr) = place.dahl(&[&TRAIN[..], &quiet].concat());
    assert!(code == 0 && !stderr.contains("measuring") && !stderr.contains("tuned"), "{stderr}");
}

#[test]
fn a_run_goes_on_with_its_instruction_set_and_its_accuracy() {
    let place = Place::new("isa");
    fs::write(place.0.join("taps.toml"), MODEL).expect("a model");
    let start = ["--conv", "fast", "--max-steps", "2", "--run"];
    assert_eq!(place.dahl(&[&TRAIN[..], &start, &["a"]].concat()).0, 0);
    let resumed = |conv| ["train", "--resume", "a", "--conv", conv, "--max-steps", "1"];
    place.check(&resumed("auto"), 2, "conv: expected fast as in the run");
    place.check(&resumed("fast"), 0, "continues after step 2");

    // Another one may be the widest here.
    copy_start(&place, "a", "b");
    let path = place.run("b").join("plan.txt");
    let isa = |name: &str| {
        edit(&path, |line| match line.starts_with("isa = ") {
            true => format!("isa = \"{name}\""),
            false => line.to_owned(),
        });
    };
    isa("portable");
    let on = ["train", "--resume", "b", "--max-steps", "1"];
    place.check(&on, 0, "starts from the beginning");
    place.check(&on, 0, "continues after step 1");
    let planned = fs::read_to_string(&path).expect("a plan");
    assert!(planned.contains("isa = \"portable\""), "{planned}");
    isa(FOREIGN);
    let expected =
        format!("isa: expected {FOREIGN}, which the run began with, found a machine that");
    place.check(&on, 2, &expected);
}

#[test]
fn weights_are_used_with_the_kernels_that_are_asked_for() {
    let place = Place::new("kernels-of-weights");
    fs::write(place.0.join("taps.toml"), MODEL).expect("a model");
    let (code, _, stderr) = place.dahl(&[&TRAIN[..], &["--run", "a"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let eval = ["eval", "--run", "a", "--limit", "9", "--batch", "4", "--json"];
    let loss = |more: &[&str]| {
        let (code, stdout, stderr) = place.dahl(&[&eval[..], more].concat());
        assert_eq!(code, 0, "{stderr}");
        let judged: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        (judged["loss"].as_f64().expect("a loss"), stderr)
    };
    let (exact, silence) = loss(&["--conv", "exact"]);
    assert_eq!(silence, "");
    for more in [&["--conv", "fast"][..], &["--isa", "portable"], &["--tune", "--quiet"]] {
        let (found, stderr) = loss(more);
        assert!(
            (found - exact).abs() < 1e-4 * exact.abs() && stderr.is_empty(),
            "{more:?} {stderr}"
        );
    }
    assert!(loss(&["--tune"]).1.contains("measuring conv2d_relu 0\n"));
    let predict = ["predict", "--run", "a", "--limit", "3", "--tune", "--conv", "fast"];
    let (code, stdout, stderr) = place.dahl(&predict);
    assert!(code == 0 && stderr.contains("measuring conv2d"), "{stdout}{stderr}");
}
