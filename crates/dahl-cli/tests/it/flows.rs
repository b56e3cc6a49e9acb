//! Micro-batches and pipelines, from the command line.

use crate::runs::{Place, SMALL};
use std::fs;

/// The small model, on workers that are said.
fn train(place: &Place, more: &[&str]) -> (i32, String, String) {
    place.dahl(&[&SMALL[..SMALL.len() - 2], &["--epochs", "2"], more].concat())
}

const STALE: [&str; 5] = ["--pipeline", "pipedream", "--stages", "2", "--allow-stale"];

#[test]
fn pipelines_that_wait_give_the_bits_of_micro_batches() {
    let place = Place::new("flows-wait");
    let run = |name: &str, more: &[&str]| {
        let flags = ["--micro-batches", "3", "--run", name];
        let (code, _, stderr) = train(&place, &[&flags[..], more].concat());
        assert_eq!(code, 0, "{stderr}");
    };
    run("plain", &["--workers", "1"]);
    for (i, more) in [
        &["--workers", "2", "--pipeline", "gpipe"][..],
        &["--workers", "2", "--pipeline", "1f1b"],
        &["--workers", "3", "--pipeline", "1f1b", "--stages", "2"],
        &["--workers", "1", "--pipeline", "1f1b", "--stages", "3"],
    ]
    .iter()
    .enumerate()
    {
        let name = format!("pipeline-{i}");
        run(&name, more);
        assert_eq!(place.gave(&name), place.gave("plain"), "{more:?}");
    }
}

#[test]
fn a_stale_run_saves_itself_and_goes_on_to_the_same_bits_on_other_workers() {
    let place = Place::new("flows-stale");
    let every = ["--checkpoint-every", "3", "--keep", "100", "--workers", "2"];
    let whole = [&STALE[..], &every, &["--run", "whole"]].concat();
    let (code, _, stderr) = train(&place, &whole);
    assert_eq!(code, 0, "{stderr}");
    let saved = fs::read_dir(place.0.join("runs/whole/checkpoints")).expect("checkpoints");
    let saved = saved.filter_map(Result::ok).map(|e| e.file_name().into_string().unwrap());
    let within = saved.filter(|name| !name.ends_with("-0000000")).count();
    assert!(within > 1, "{within} between epochs");
    let parts = [&STALE[..], &every, &["--run", "parts", "--max-steps", "5"]].concat();
    assert_eq!(train(&place, &parts).0, 0);
    let (code, _, stderr) = place.dahl(&["train", "--resume", "parts", "--workers", "1"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(place.gave("parts"), place.gave("whole"));
}

#[test]
fn what_a_pipeline_cannot_be_is_refused() {
    let place = Place::new("flows-refused");
    let check = |more: &[&str], expected: &str| {
        let (code, _, stderr) = train(&place, &[more, &["--no-run"]].concat());
        assert!(code == 2 || code == 3, "{code}: {stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    };
    check(&["--pipeline", "pipedream", "--stages", "2"], "--pipeline requires --allow-stale");
    check(
        &["--pipeline", "pipedream", "--allow-stale"],
        "requires --stages, which decide its result",
    );
    check(&["--pipeline", "1f1b", "--stages", "99"], "the layers");
    check(&["--pipeline", "1f1b", "--stages", "nothing"], "layers in their order");
    check(&["--micro-batches", "99"], "the samples of a batch");
    check(
        &["--pipeline", "1f1b", "--grain", "sample=2"],
        "--grain cannot be combined with --pipeline",
    );
    check(&[&STALE[..], &["--clip", "1"]].concat(), "would make every stage wait");
    check(&[&STALE[..], &["--micro-batches", "2"]].concat(), "1 with pipedream");
}
