//! `dahl bench`, `dahl bench kernels` and `dahl bench gemm`: what they print, not how fast it was.

use crate::support::{Scratch, check, dahl};
use serde_json::Value;

#[track_caller]
fn objects(args: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = dahl(args);
    assert!(code == 0 && stderr.is_empty(), "{stdout}{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// As short as it gets.
const SHORT: [&str; 4] = ["--pairs", "1", "--seconds", "0.01"];

#[test]
fn a_cell_has_its_keys() {
    let bench = ["bench", "seed-28-b10", "--json", "--threads", "1,2"];
    let cells = objects(&[&bench[..], &SHORT].concat());
    let whose = |cell: &Value| {
        let text = |key: &str| cell[key].as_str().expect(key).to_owned();
        (text("dtype"), cell["threads"].as_u64().expect("threads"), text("conv"))
    };
    let found: Vec<_> = cells.iter().map(whose).collect();
    let expected =
        [("f32", 1, "auto"), ("f32", 2, "auto"), ("f64", 1, "exact"), ("f64", 2, "exact")];
    assert_eq!(found, expected.map(|(d, n, c)| (d.to_owned(), n, c.to_owned())));
    for cell in &cells {
        assert_eq!(cell["workload"], "seed-28-b10");
        let ms = cell["dahl_ms"].as_f64().expect("a time");
        let samples = cell["samples_per_second"].as_f64().expect("a rate");
        assert!(ms > 0.0 && (samples * ms / 1e4 - 1.0).abs() < 1e-9, "{cell}");
        assert!(cell["spread"].is_f64() && cell["valid"].is_boolean(), "{cell}");
        // Nothing was measured beside it; the keys are there all the same.
        for key in ["torch_ms", "torch_mode", "ratio"] {
            assert_eq!(cell.get(key), Some(&Value::Null), "{key}");
        }
        assert_eq!(cell["scaling"].is_null(), cell["threads"] == 1, "{cell}");
    }
}

#[test]
fn a_network_of_ones_own_is_measured_and_tabled() {
    let place = Scratch::new("bench");
    // Fewer classes than digits, channels that fill no vector.
    let model = place.write(
        "own.toml",
        br#"name = "own"
            input = [2, 9, 9]
            layers = [
              { type = "conv2d", out = 6, kernel = 5 },
              { type = "relu" },
              { type = "max_pool2d", kernel = 3 },
              { type = "flatten" },
              { type = "linear", out = 7 },
            ]"#,
    );
    let table = place.path("table.md");
    let own = ["bench", "--model", &model, "--batch", "11", "--threads", "1", "--dtypes", "f32"];
    let more = ["--conv", "fast", "--input", "2x10x10", "--tune", "--markdown", &table];
    let (code, stdout, stderr) = dahl(&[&own[..], &more, &SHORT].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains("measuring linear 4") && stdout.contains("\nown-b11 "),
        "{stdout}{stderr}"
    );
    let text = std::fs::read_to_string(&table).expect("a table");
    assert!(text.starts_with("dahl ") && text.contains("| own-b11 | f32 | 1 | "), "{text}");
}

#[test]
fn what_cannot_be_measured_is_said_before_it_is_tried() {
    for (args, code, expected) in [
        (&["seed-29"][..], 2, "workload: expected one of seed-28-b10, seed-28-b64,"),
        (&["--seconds", "0"], 2, "expected a number of seconds, such as 0.2"),
        (&["--seconds", "nan"], 2, "expected a number of seconds, such as 0.2"),
        (&["--pairs", "0"], 2, "expected at least 1"),
        (&["--dtypes", "f16"], 2, "expected f32 or f64"),
        (&["--dtypes", "f32,u8"], 2, "expected f32 or f64"),
        (&["lenet-b64", "--batch", "8"], 2, "cannot be used with"),
        (&["--model", "lenet", "--input", "3x0x3"], 2, "expected lengths such as 3x32x32"),
        (&["--model", "lenet", "--input", "1x4x4"], 4, "conv2d \"3\": kernel: expected at most"),
        (&["--input", "1x4x4"], 2, "--model <MODEL>"),
        (
            &["lenet-b64", "--markdown", "/nowhere/t.md"],
            2,
            "markdown: expected a file in a directory that is there",
        ),
        (
            &["--against", "torch", "--python", "/nowhere/python"],
            2,
            "expected a Python with PyTorch",
        ),
    ] {
        check(&[&["bench"], args].concat(), code, "", expected);
    }
}

const LAYER: [&str; 6] = ["bench", "kernels", "--input", "5x8x8", "--batch", "3"];
const CONV: &str = "{ type = \"conv2d\", out = 7, kernel = 3, padding = 1 }";

#[test]
fn every_variant_of_an_op_is_measured() {
    let small = [&LAYER[..], &["--layer", CONV, "--op", "conv2d"]].concat();
    let lines = objects(&[&small[..], &["--json", "--conv", "fast"]].concat());
    for (op, expected) in [
        ("conv2d", ["plain", "direct", "gemm", "winograd2", "winograd4"].as_slice()),
        ("conv2d_backward_weight", &["plain", "gemm", "winograd2", "winograd4"]),
    ] {
        let of_op: Vec<&Value> = lines.iter().filter(|line| line["op"] == op).collect();
        let names: Vec<&str> =
            of_op.iter().map(|l| l["variant"].as_str().expect("a name")).collect();
        assert_eq!(names, expected, "{op}");
        let defaults = of_op.iter().filter(|line| line["default"] == true);
        assert_eq!(defaults.count(), 1, "{op}");
    }
    let first = &lines[0];
    assert_eq!(first["shapes"], "3x5x8x8 7x5x3x3 -> 3x7x8x8");
    for key in ["ms", "gflops", "gb_per_second", "roof_ms", "of_roof"] {
        assert!(first[key].as_f64() > Some(0.0), "{key} {first}");
    }

    let (code, stdout, stderr) =
        dahl(&[&small[..], &["--conv", "exact", "--dtype", "f64"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let has = |name: &str| {
        stdout.lines().any(|l| l.split_whitespace().any(|w| w.trim_end_matches('*') == name))
    };
    assert!(has("plain") && has("direct") && has("gemm") && !has("winograd2"), "{stdout}");
}

#[test]
fn what_is_no_kernel_is_said() {
    for (args, code, expected) in [
        (&["--layer", CONV, "--op", "conv3d"][..], 2, "op: expected the beginning of one of "),
        (&["--layer", "{ type = \"conv3d\" }"], 4, "found \"conv3d\""),
        (&["--layer", "{ type = "], 2, "layer: expected a table such as { type = "),
        (&["--layer", "{}, {}"], 2, "layer: expected a table such as { type = "),
        (&["--layer", "7"], 2, "found \"7\""),
        (&["--layer", "{ type = \"conv2d\", out = 7, kernel = 9 }"], 4, "kernel: expected at most"),
        (&["lenet", "--layer", CONV], 2, "cannot be used with"),
        (&["lanet"], 2, "expected one of seed-cnn"),
    ] {
        check(&[&LAYER[..], args].concat(), code, "", expected);
    }
    check(&["bench", "kernels", "--layer", CONV], 2, "", "--input <SHAPE>");
    check(
        &["bench", "kernels", "lenet", "--input", "x8"],
        2,
        "",
        "expected lengths such as 3x32x32",
    );
    check(&["bench", "kernels"], 2, "", "MODEL");
}

#[test]
fn products_are_measured_on_threads() {
    let gemm = ["bench", "gemm", "--json", "--sizes", "1,33", "--threads", "1,2", "--pairs", "1"];
    let lines = objects(&gemm);
    assert_eq!(lines.len(), 2 * 2 * 2 * 3);
    for line in &lines {
        let (size, ms) = (line["size"].as_f64().expect("a size"), line["ms"].as_f64().expect("ms"));
        let rate = 2.0 * size.powi(3) / (ms * 1e6);
        assert!((line["gflops"].as_f64().expect("a rate") / rate - 1.0).abs() < 1e-9, "{line}");
    }
    check(&["bench", "gemm", "--sizes", "0"], 2, "", "expected at least 1");
    check(&["bench", "gemm", "--sizes", "3000000"], 2, "", "found 3000000, which take 98.2 TiB");
}

/// Two unequal workers, for real: shares of a batch, a pipeline and either worker alone run in
/// turns beside what was predicted. It reports (`--nocapture` shows it), and judges no time.
#[test]
fn unequal_workers_are_planned_run_and_reported() {
    let place = Scratch::new("unequal");
    // Two layers that learn: enough for two stages.
    let model = place.write(
        "small.toml",
        br#"input = [1, 8, 8]
            layers = [
              { type = "conv2d", out = 4, kernel = 3 },
              { type = "relu" },
              { type = "flatten" },
              { type = "linear", out = 10 },
            ]"#,
    );
    let quick = ["--steps", "0", "--rounds", "3", "--seconds", "0.01", "--json"];
    let small = ["bench", "unequal", "--model", &model, "--batch", "12"];
    let all = objects(&[&small[..], &quick].concat());
    assert_eq!(
        all.iter().map(|of| of["speed"].as_f64()).collect::<Vec<_>>(),
        [Some(0.5), Some(0.25)]
    );
    for of in &all {
        let ways = of["ways"].as_array().expect("ways");
        let named = |part: &str| {
            ways.iter().any(|way| way["way"].as_str().is_some_and(|name| name.contains(part)))
        };
        for part in ["machine/fast x1 + machine/slow x1", "stages ", "shares=1:0", "shares=0:1"] {
            assert!(named(part), "{part}: {of}");
        }
        for objective in ["time", "energy"] {
            let chosen = ways.iter().filter(|way| {
                way["chosen_for"].as_array().is_some_and(|all| all.iter().any(|o| o == objective))
            });
            assert_eq!(chosen.count(), 1, "{objective}: {of}");
        }
        for key in ["ms", "joules", "predicted_ms", "predicted_joules"] {
            assert!(ways.iter().all(|way| way[key].as_f64().is_some_and(|x| x > 0.0)), "{key}");
        }
        let over = |key: &str| of[key].as_f64().filter(|x| *x >= 0.0).expect("a part");
        println!(
            "worker 1 at {} of its speed: the choice for time is {:.1} % above the best of \
             {} ways, that for energy {:.1} %",
            of["speed"],
            100.0 * over("time_over_best"),
            ways.len(),
            100.0 * over("energy_over_best"),
        );
        for way in ways {
            println!("  {}: {} ms predicted, {} ms", way["way"], way["predicted_ms"], way["ms"]);
        }
    }
}
