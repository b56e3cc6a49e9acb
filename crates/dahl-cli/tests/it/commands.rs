//! `dahl verify`, `dahl models` and `dahl plan`.

use crate::support::{check, dahl};
use std::path::PathBuf;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../dahl/tests/golden");

/// A file of one test, removed at its end.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dahl-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path of text")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn verify_passes_and_no_grain_changes_a_bit() {
    let case = format!("{GOLDEN}/train_resnet_both_f32.safetensors");
    let (code, expected, _) = dahl(&["verify", &case]);
    assert_eq!(code, 0, "{expected}");
    assert!(expected.ends_with("1 passed, 0 failed\n"), "{expected}");
    for options in [
        &["--workers", "2"][..],
        &["--workers", "3", "--grain", "sample=4,channel=2"],
        &["--workers", "3", "--grain", "sample=2,row=3,column=2"],
        &["--workers", "4", "--grain", "sample=4,layer=2"],
        &["--workers", "8", "--grain", "gather=off", "--scheduling", "first-come"],
        &["--workers", "2", "--scheduling", "work-stealing", "--checked"],
    ] {
        let args = [&["verify", &case][..], options].concat();
        assert_eq!(dahl(&args), (0, expected.clone(), String::new()), "{options:?}");
    }
}

#[test]
fn a_case_that_cannot_be_run_fails() {
    let wrong = File::new("wrong.safetensors", "no tensors");
    let (code, stdout, _) = dahl(&["verify", wrong.path()]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("FAIL") && stdout.ends_with("0 passed, 1 failed\n"), "{stdout}");
    let (code, stdout, _) = dahl(&["verify", wrong.path(), "--json"]);
    let line: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &line["pass"]), (1, &serde_json::Value::Bool(false)));
    check(&["verify", "/nowhere"], 4, "", "error: /nowhere: ");
    check(&["verify", GOLDEN, "--workers", "0"], 2, "", "expected at least 1");
}

#[test]
fn models_are_listed_shown_and_printed_as_files() {
    check(&["models"], 0, "resnet18    [3, 32, 32]  11,173,962\n", "");
    check(&["models", "lenet"], 0, "7      linear             [120]      48,120\n", "");
    check(&["models", "lanet"], 2, "", "expected one of seed-cnn, digits-cnn, lenet");
    let (_, toml, _) = dahl(&["models", "resnet18", "--toml"]);
    let file = File::new("resnet.toml", &toml);
    let plan = |model: &str| dahl(&["plan", model, "--batch", "2"]).1;
    assert_eq!(plan(file.path()), plan("resnet18"));
}

#[test]
fn everything_wrong_with_a_model_is_said_at_once() {
    let file = File::new(
        "wrong.toml",
        r#"input = [1, 8, 8]
           layers = [{ type = "convv" }, { type = "conv2d", out = 2, kernel = 9 }, { type = "linear" }]"#,
    );
    let (code, _, stderr) = dahl(&["plan", file.path()]);
    assert_eq!(code, 4, "{stderr}");
    for expected in ["layer \"0\": type", "linear \"2\": out", "conv2d \"1\": kernel"] {
        assert!(stderr.contains(expected), "{stderr}");
    }
    let broken = File::new("broken.toml", "layers = [");
    check(&["plan", broken.path()], 4, "", "expected a TOML file");
}

/// Defaults of `plan` and `train` differed, and a saved plan was refused.
#[test]
fn a_plan_without_flags_is_that_of_a_training_without_flags() {
    let (code, text, stderr) = dahl(&["plan", "digits-cnn", "--show", "plan"]);
    assert_eq!(code, 0, "{stderr}");
    let file = File::new("default.plan", &text);
    let train = ["train", "--plan", file.path(), "--limit", "32", "--max-steps", "1", "--no-run"];
    let (code, _, stderr) = dahl(&train);
    assert_eq!(code, 0, "{stderr}");
    let (_, summary, _) = dahl(&["plan", "digits-cnn"]);
    assert!(summary.contains("batch 32, f32, adam\n"), "{summary}");
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(summary.contains(&format!(", {workers} worker")), "{summary}");
}

#[test]
fn plans_are_shown_checked_and_limited() {
    let plan = &["plan", "seed-cnn", "--batch", "10", "--workers", "2"][..];
    check(plan, 0, "tasks per step  14 with", "");
    let with = |more: &[&'static str]| dahl(&[plan, more].concat());
    assert!(with(&["--show", "graph", "--dot"]).1.starts_with("digraph program {"));
    assert!(with(&["--show", "tasks", "--dot"]).1.starts_with("digraph tasks {"));
    assert!(with(&["--show", "memory"]).1.contains("peak"));
    let (code, text, _) = with(&["--show", "plan"]);
    assert_eq!(code, 0);
    let file = File::new("seed.plan", &text);
    assert_eq!(dahl(&[plan, &["--check", file.path()]].concat()), with(&[]));
    let edited =
        File::new("edited.plan", &text.replacen("workers = [0, 1]", "workers = [1, 0]", 1));
    let args = [plan, &["--check", edited.path()]].concat();
    check(&args, 4, "", "it was edited; remove the line to use it");
    let args = [plan, &["--memory-limit", "100KiB"]].concat();
    check(&args, 3, "", "100 KiB are allowed; ");
    check(&args, 3, "", " is the smallest peak found with recomputation; the largest tensors are");
}

/// Standard output without what varies from run to run: speeds, times, memory,
/// energy.
fn steady(stdout: &str) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first() {
            Some(epoch) if epoch.parse::<u64>().is_ok() => words[..5].join(" "),
            _ => words.iter().take_while(|w| **w != "after").copied().collect::<Vec<_>>().join(" "),
        }
    };
    stdout
        .lines()
        .filter(|line| !line.starts_with("memory") && !line.starts_with("energy"))
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn train_learns_digits_with_the_same_numbers_on_any_workers() {
    let args = &["train", "--epochs", "1", "--limit", "300", "--batch", "32", "--no-run"][..];
    let run = |workers: &'static str| {
        let (code, stdout, stderr) = dahl(&[args, &["--workers", workers]].concat());
        assert_eq!(code, 0, "{stderr}");
        steady(&stdout)
    };
    let one = run("1");
    assert!(one.contains("% (300 samples)"), "{one}");
    assert_eq!(run("2"), one);
    assert_eq!(run("5"), one);
}

#[test]
fn train_saves_weights_under_their_names() {
    let file = File::new("weights.safetensors", "");
    let args =
        ["train", "--epochs", "1", "--limit", "64", "--quiet", "--no-run", "--save", file.path()];
    assert_eq!(dahl(&args).0, 0);
    let weights = dahl::file::TensorFile::read(file.path()).expect("a file");
    let names: Vec<&str> = weights.tensors.keys().map(String::as_str).collect();
    assert_eq!(names, ["0.bias", "0.weight", "3.bias", "3.weight", "7.bias", "7.weight"]);
    let eval = ["eval", "--weights", file.path(), "--limit", "64"];
    check(&eval, 0, "% (64 samples), loss", "");
    let other = [&eval[..], &["--model", "seed-cnn", "--data", "synthetic:1x28x28:10"]].concat();
    check(&other, 4, "", "expected one of 0.weight, 0.bias, 4.weight, 4.bias, found 3.bias");
    let on =
        ["train", "--epochs", "1", "--limit", "64", "--quiet", "--no-run", "--init", file.path()];
    check(&on, 0, "% (64 samples) after", "");
}

/// Weights are judged on the numbers that they were trained on, however many
/// samples either looked at.
#[test]
fn eval_gives_what_training_said() {
    let file = File::new("judged.safetensors", "");
    let save =
        ["train", "--epochs", "1", "--limit", "64", "--json", "--no-run", "--save", file.path()];
    let json =
        |args: &[&str]| -> serde_json::Value { serde_json::from_str(&dahl(args).1).expect("JSON") };
    let trained = json(&save);
    let judged = json(&["eval", "--weights", file.path(), "--limit", "64", "--json"]);
    assert_eq!(trained["test_loss"], judged["loss"]);
    // The first 64 of all samples are the same numbers as 64 alone.
    let (all, batch) = (["--limit", "359"], ["--batch", "64"]);
    let more = [&["eval", "--weights", file.path(), "--json"][..], &all, &batch].concat();
    let whole = [&["eval", "--weights", file.path(), "--json"][..], &batch].concat();
    assert_eq!(json(&more), json(&whole));
}

#[test]
fn datasets_are_listed_described_and_checked() {
    check(&["data"], 0, "digits", "");
    check(&["data", "digits"], 0, "digits, test: 359 samples of [1, 8, 8]", "");
    check(&["data", "digits", "--check"], 0, "1438 samples, none wrong", "");
    check(&["data", "mnist"], 4, "", "MNIST is not on the disk: expected train-images-idx3-ubyte");
}

#[test]
fn train_says_what_is_wrong() {
    check(&["train", "--data", "/nowhere"], 2, "", "expected digits, mnist");
    check(&["train", "--model", "lenet"], 2, "", "expected samples of [1, 28, 28] for lenet");
    let (code, _, stderr) =
        dahl(&["train", "--no-run", "--limit", "64", "--optimizer", "sgd", "--lr", "1e30"]);
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("no update was made with it"), "{stderr}");
}

#[test]
fn bench_measures_a_model_and_knows_its_workloads() {
    let (code, stdout, stderr) = dahl(&[
        "bench",
        "--model",
        "seed-cnn",
        "--batch",
        "4",
        "--threads",
        "1",
        "--dtypes",
        "f32",
        "--pairs",
        "2",
        "--seconds",
        "0.001",
        "--json",
    ]);
    assert_eq!(code, 0, "{stderr}");
    let row: serde_json::Value = serde_json::from_str(&stdout).expect("a line of JSON");
    assert_eq!((row["workload"].as_str(), row["threads"].as_u64()), (Some("seed-cnn-b4"), Some(1)));
    assert!(row["dahl_ms"].as_f64() > Some(0.0) && row["torch_ms"].is_null(), "{row}");
    check(&["bench", "seed-29"], 2, "", "workload: expected one of seed-28-b10, ");
    let python = ["bench", "lenet-b64", "--against", "torch", "--python", "/nowhere/python"];
    check(
        &python,
        2,
        "",
        "python: expected a Python with PyTorch, found no PyTorch in /nowhere/python",
    );
}
