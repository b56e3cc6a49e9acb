//! Policies, slow workers and placements that change: none changes a bit of a run.

use crate::runs::Place;
use std::fs;

#[expect(dead_code, reason = "its main is not called")]
#[path = "../../../dahl/examples/plan_and_run.rs"]
mod plan_and_run;

/// Trains a small model, with more arguments.
fn train(place: &Place, more: &[&str]) -> (i32, String, String) {
    let small = ["train", "--model", "small.toml", "--limit", "48", "--batch", "6"];
    place.dahl(&[&small[..], more].concat())
}

/// Trains a small model and gives its weights.
#[track_caller]
fn weights(place: &Place, more: &[&str]) -> Vec<u8> {
    let (code, stdout, stderr) =
        train(place, &[&["--no-run", "--quiet", "--save", "w.safetensors"], more].concat());
    assert_eq!(code, 0, "{more:?}: {stdout}{stderr}");
    fs::read(place.0.join("w.safetensors")).expect("weights")
}

#[test]
fn every_policy_trains_to_the_same_weights() {
    let place = Place::new("policies");
    let one = weights(&place, &["--workers", "1"]);
    for policy in [
        "static",
        "first-come",
        "work-stealing",
        "critical-path",
        "earliest-finish",
        "least-energy",
    ] {
        for workers in ["1", "2", "3"] {
            let found = weights(&place, &["--workers", workers, "--scheduling", policy]);
            assert!(found == one, "{policy} on {workers}");
        }
    }
    let slow = &["--workers", "2", "--throttle", "1=0.5", "--throttle", "0=0.5@3"];
    assert!(weights(&place, slow) == one);
    let uneven = &["--workers", "2", "--grain", "sample=3,shares=1:2"];
    assert!(weights(&place, uneven) == one);
}

#[test]
fn an_adaptive_run_goes_on_to_the_same_weights() {
    let place = Place::new("adaptive");
    let one = weights(&place, &["--workers", "1", "--epochs", "4"]);
    let adaptive = ["--workers", "2", "--grain", "adaptive"];
    let run = [&adaptive[..], &["--run", "a", "--epochs", "2", "--trace"]].concat();
    let (code, stdout, stderr) = train(&place, &run);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let (code, stdout, stderr) =
        place.dahl(&["train", "--resume", "a", "--epochs", "4", "--save", "w.safetensors"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(fs::read(place.0.join("w.safetensors")).expect("weights") == one);
}

#[test]
fn a_plan_of_a_file_is_run_to_the_same_weights() {
    let place = Place::new("plan-file");
    let one = weights(&place, &["--workers", "1"]);
    let printed = |more: &[&str], file: &str| {
        let plan = ["plan", "small.toml", "--batch", "6", "--workers", "2", "--show", "plan"];
        let (code, stdout, stderr) = place.dahl(&[&plan[..], more].concat());
        assert_eq!(code, 0, "{stderr}");
        fs::write(place.0.join(file), &stdout).expect("a plan");
        stdout
    };
    let text = printed(&["--optimizer", "adam", "--grain", "sample=3,gather=off"], "p.plan");
    assert!(weights(&place, &["--plan", "p.plan"]) == one);
    // A run has more programs than a plan that was printed, and runs by the same groups.
    let (code, stdout, stderr) = train(&place, &["--plan", "p.plan", "--run", "by-plan"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let ran = fs::read_to_string(place.0.join("runs/by-plan/plan.txt")).expect("the run's plan");
    let groups = |text: &str| {
        let from = text.split_once("[placement.\"train 6\"]").expect("a step").1.to_owned();
        from.split_once("\n]").expect("its end").0.to_owned()
    };
    assert_eq!(groups(&ran), groups(&text));
    // That plan has all programs of the run: memory too stays as it is.
    fs::write(place.0.join("whole.plan"), &ran).expect("a plan");
    assert!(weights(&place, &["--plan", "whole.plan"]) == one);
    let goes_on = ["train", "--resume", "by-plan", "--epochs", "11", "--quiet"];
    let (code, _, stderr) = place.dahl(&goes_on);
    assert_eq!(code, 0, "{stderr}");

    let edited = text.replace("workers = 2", "workers = 3");
    fs::write(place.0.join("edited.plan"), edited).expect("a plan");
    printed(&["--optimizer", "sgd"], "sgd.plan");
    for (file, code, expected) in [
        ("edited.plan", 4, "it was edited; remove the line to use it"),
        (
            "sgd.plan",
            4,
            "is linear_backward_weight_sgd \"4\" in the plan and linear_backward_weight_adam",
        ),
        ("small.toml", 4, "expected the text of a plan"),
        ("none.plan", 4, "none.plan"),
    ] {
        let (found, _, stderr) = train(&place, &["--no-run", "--plan", file]);
        assert!(found == code && stderr.contains(expected), "{file}: {found} {stderr}");
    }
    let (code, _, stderr) = train(&place, &["--plan", "p.plan", "--workers", "3"]);
    assert_eq!((code, stderr.contains("workers: expected 2, as the plan has, found 3")), (2, true));
}

#[test]
fn a_run_that_plans_over_units_learns_what_others_do() {
    let place = Place::new("plan-auto");
    let unit = |name: &str, speed: f64| {
        format!(
            "[[node.unit]]\nname = {name:?}\nkind = \"cpu\"\nspeed = {speed:?}\nbusy_watts = 9\n\
             spinning_watts = 9\nidle_watts = 1\n"
        )
    };
    let text = format!(
        "dahl_platform = 1\nname = \"two\"\n[[node]]\nname = \"box\"\nbase_watts = 5\n\
         [[node.memory]]\nname = \"ram\"\nbytes = \"8 GiB\"\nbandwidth = 2e10\n{}{}",
        unit("fast", 1.0),
        unit("slow", 0.5)
    );
    fs::write(place.0.join("two.toml"), text).expect("a platform");
    let auto = ["--platform", "two.toml", "--plan", "auto", "--run", "a"];
    let (code, stdout, stderr) = train(&place, &[&auto[..], &["--throttle", "1=0.5"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let said = format!("{stdout}{stderr}");
    assert!(said.contains("plan: ") && said.contains("predicted ("), "{said}");
    // Which plan is best is chance here; what it learns, with its micro-batches, is not.
    let config = fs::read_to_string(place.0.join("runs/a/config.toml")).expect("flags");
    let parts = config.lines().find_map(|line| line.strip_prefix("micro-batches = "));
    let parts = parts.unwrap_or("1").trim_matches('"');
    let one = weights(&place, &["--workers", "1", "--micro-batches", parts]);
    let saved = ["train", "--resume", "a", "--save", "w.safetensors", "--quiet"];
    assert_eq!(place.dahl(&saved).0, 0);
    assert!(fs::read(place.0.join("w.safetensors")).expect("weights") == one);
    let refused = |more: &[&str], expected: &str| {
        let (code, _, stderr) = train(&place, &[&auto[..4], &["--no-run"], more].concat());
        assert!(code == 2 && stderr.contains(expected), "{code} {stderr}");
    };
    refused(&["--workers", "3"], "workers: expected 2 with plan auto");
    refused(&["--pipeline", "1f1b"], "--pipeline cannot be combined with --plan auto");
    refused(&["--objective", "speed"], "possible values: energy, time, edp");
}

#[test]
fn a_run_of_the_library_is_reported_and_resumed() {
    let place = Place::new("library");
    let path = |name: &str| place.0.join(name).to_string_lossy().into_owned();
    let (model, run) = (path("small.toml"), path("runs/a"));
    let settings = [("model", &model), ("run", &run)].map(|(name, value)| (name, &value[..]));
    let more = [("limit", "48"), ("batch", "6"), ("epochs", "1")];
    let directory = plan_and_run::train(&[&settings[..], &more].concat()).expect("it trains");
    assert_eq!(directory.expect("a directory"), place.0.join("runs/a"));
    for args in [&["report", &run][..], &["train", "--resume", &run, "--epochs", "2"]] {
        let (code, stdout, stderr) = place.dahl(args);
        assert_eq!(code, 0, "{args:?}: {stdout}{stderr}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let place = Place::new("together");
    let refused = |more: &[&str], expected: &str| {
        let (code, stdout, stderr) = train(&place, &[&["--no-run"], more].concat());
        assert_eq!(code, 2, "{more:?}: {stdout}{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    };
    let both = ["--grain", "adaptive", "--scheduling", "first-come"];
    refused(&both, "--scheduling cannot be combined with --grain adaptive");
    refused(&["--workers", "2", "--throttle", "2=0.5"], "throttle: expected a worker below 2");
    refused(&["--throttle", "0=2"], "expected a worker and its speed");
    refused(&["--workers", "2", "--grain", "shares=1:2:3"], "shares: expected one for each of 2");
    place.check(&["plan", "small.toml", "--grain", "adaptive"], 2, "dahl train adapts");
    let explained = ["plan", "small.toml", "--grain", "sample=2", "--explain"];
    place.check(&explained, 2, "--explain requires --grain auto");
    for grain in ["auto", "adaptive"] {
        let (code, _, stderr) = train(&place, &["--grain", grain, "--calibration", "none.json"]);
        assert!(code != 0 && stderr.contains("none.json"), "{stderr}");
        assert!(!stderr.contains("a step predicted"), "chosen without it: {stderr}");
    }
}

#[test]
fn workers_without_tasks_are_not_counted() {
    let place = Place::new("workers-active");
    let grain = ["--workers", "2", "--grain", "sample=2,shares=1:0", "--no-run"];
    let (code, stdout, stderr) = train(&place, &grain);
    assert_eq!(code, 0, "{stderr}");
    assert!(format!("{stdout}{stderr}").contains(", 1 of 2 workers, "), "{stdout}{stderr}");
}

/// The figure of bytes behind a word of an error.
fn size(text: &str, word: &str) -> f64 {
    let mut words = text.split_whitespace().skip_while(|w| *w != word).skip(1);
    let number: f64 = words.next().and_then(|n| n.parse().ok()).expect(word);
    let unit = words.next().expect("a unit").trim_matches(|c: char| !c.is_alphabetic());
    let scale = ["B", "KiB", "MiB"].iter().position(|u| *u == unit).expect("a unit");
    number * 1024f64.powi(scale as i32)
}

#[test]
fn less_memory_goes_with_every_choice_and_policy() {
    let place = Place::new("less-for-all");
    let block = r#"{ type = "conv2d", out = 8, kernel = 3, padding = 1 },
        { type = "batch_norm2d" }, { type = "relu" },"#;
    let head = r#"{ type = "flatten" }, { type = "linear", out = 10 }"#;
    let model = format!("input = [1, 8, 8]\nlayers = [{block}{block}\n{head}]\n");
    fs::write(place.0.join("deep.toml"), model).expect("a model");
    let args = ["train", "--model", "deep.toml", "--limit", "32", "--batch", "8"];
    let more = ["--epochs", "1", "--workers", "2", "--no-run"];
    let train = |more_still: &[&str]| place.dahl(&[&args[..], &more, more_still].concat());
    let cases: [&[&str]; 4] = [
        &["--scheduling", "critical-path"],
        &["--grain", "auto"],
        &["--grain", "adaptive"],
        &["--pipeline", "gpipe", "--micro-batches", "2", "--bn", "micro"],
    ];
    for case in cases {
        let (code, _, stderr) = train(&[case, &["--memory-limit", "1KiB"]].concat());
        assert_eq!(code, 3, "{case:?}: {stderr}");
        // The smallest peak is printed to the byte.
        let least = stderr.split_once(" bytes) is the smallest peak").expect("the least").0;
        let limit = least.rsplit_once('(').expect("its bytes").1;
        assert!(size(&stderr, "allowed;") <= size(&stderr, "needs"), "{case:?}: {stderr}");
        let (code, _, stderr) = train(&[case, &["--memory-limit", limit]].concat());
        assert_eq!(code, 0, "{case:?}: {stderr}");
    }
}

/// Trials took the memory of several plans whatever the limit, and where none was run an
/// explanation said that steps of 0 were.
#[test]
fn plans_run_in_turns_where_they_fit_into_the_limit_together() {
    let place = Place::new("trials");
    let explain = |more: &[&str]| {
        let plan = ["plan", "small.toml", "--batch", "6", "--workers", "2"];
        place.dahl(&[&plan[..], &["--grain", "auto", "--explain"], more].concat())
    };
    let (code, stdout, stderr) = explain(&[]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("were run alternately"), "{stdout}");
    let (code, _, stderr) = explain(&["--memory-limit", "1KiB"]);
    assert_eq!(code, 3, "{stderr}");
    let least = stderr.split_once(" bytes) is the smallest peak").expect("the least").0;
    let (code, stdout, stderr) =
        explain(&["--memory-limit", least.rsplit_once('(').expect("its bytes").1]);
    assert_eq!(code, 0, "{stderr}");
    assert!(!stdout.contains("turns") && stdout.contains("were measured first.\n"));
}
