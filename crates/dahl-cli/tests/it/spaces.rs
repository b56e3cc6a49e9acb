//! Runs over several memories: the same weights, resumed anywhere.

use crate::runs::Place;
use std::fs;

const SHARDED: [&str; 8] =
    ["train", "--limit", "96", "--epochs", "2", "--shards", "20,12", "--quiet"];

/// The weights of a sharded training that is given more flags.
fn weights(place: &Place, flags: &[&str]) -> Vec<u8> {
    let args = [&SHARDED[..], &["--no-run", "--save", "w"], flags].concat();
    let (code, stdout, stderr) = place.dahl(&args);
    assert_eq!(code, 0, "{stdout}{stderr}");
    fs::read(place.0.join("w")).expect("weights")
}

#[test]
fn shards_in_any_spaces_train_to_the_same_weights() {
    let place = Place::new("spaces");
    let one = weights(&place, &["--workers", "1"]);
    for (workers, grain) in [("2", "spaces=2"), ("3", "sample=4,spaces=2"), ("3", "spaces=3")] {
        for policy in ["static", "first-come", "critical-path", "least-energy"] {
            let flags = ["--workers", workers, "--grain", grain, "--scheduling", policy];
            assert!(weights(&place, &flags) == one, "{grain} {policy}");
        }
    }
}

#[test]
fn uneven_shares_and_pipelines_over_spaces_train_to_the_same_weights() {
    let place = Place::new("uneven");
    let one = weights(&place, &["--workers", "1"]);
    for (workers, grain) in
        [("2", "spaces=2,shares=2:1"), ("4", "spaces=4,shares=2:1:0:3"), ("3", "layer=2,spaces=2")]
    {
        let same = weights(&place, &["--workers", workers, "--grain", grain]) == one;
        assert!(same, "{grain}");
    }
    let pipeline = ["--pipeline", "1f1b", "--micro-batches", "4", "--stages", "2"];
    let piped = |flags: &[&str]| weights(&place, &[&pipeline[..], flags].concat());
    let one = piped(&["--workers", "1"]);
    for (workers, grain) in [
        ("2", "ranks=2"),
        ("4", "spaces=2"),
        ("3", "spaces=3,shares=1:2:1"),
        ("4", "ranks=2,spaces=4"),
    ] {
        for policy in ["static", "work-stealing"] {
            let flags = ["--workers", workers, "--grain", grain, "--scheduling", policy];
            assert!(piped(&flags) == one, "{grain} {policy}");
        }
    }
    // A pipeline that keeps old weights.
    let stale = ["--pipeline", "pipedream", "--stages", "2", "--allow-stale"];
    let stale = |flags: &[&str]| weights(&place, &[&stale[..], flags].concat());
    let two = ["--workers", "2", "--grain", "spaces=2"];
    assert!(stale(&two) == stale(&["--workers", "1"]));
    for grain in ["sample=2,spaces=2", "layer=2", "auto"] {
        let flags = ["--workers", "2", "--grain", grain];
        let (code, _, stderr) = place.dahl(&[&SHARDED[..], &pipeline, &flags].concat());
        assert!(code == 2 && stderr.contains("stages define the cut"), "{code} {stderr}");
    }
}

#[test]
fn a_run_goes_on_in_other_spaces_but_not_with_other_shards() {
    let place = Place::new("respaced");
    let one = weights(&place, &["--workers", "1"]);
    let stop = ["--run", "r", "--workers", "2", "--grain", "spaces=2", "--max-steps", "3"];
    let (code, stdout, stderr) = place.dahl(&[&SHARDED[..], &stop].concat());
    assert_eq!(code, 0, "{stdout}{stderr}");
    let (code, _, stderr) = place.dahl(&["train", "--resume", "r", "--shards", "2"]);
    assert!(code == 2 && stderr.contains("shards"), "{code} {stderr}");
    let others = ["--workers", "3", "--grain", "sample=3,spaces=3", "--save", "w", "--quiet"];
    let (code, stdout, stderr) = place.dahl(&[&["train", "--resume", "r"][..], &others].concat());
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(fs::read(place.0.join("w")).expect("weights") == one);
}

/// A training that is refused with a code and these words, and writes nothing.
#[track_caller]
fn refused(place: &Place, flags: &[&str], code: i32, words: &[&str]) {
    let before = fs::read_dir(&place.0).expect("a directory").count();
    let args = [&SHARDED[..], &["--run", "refused"], flags].concat();
    let (found, stdout, stderr) = place.dahl(&args);
    assert_eq!(found, code, "{stdout}{stderr}");
    assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
    let after = fs::read_dir(&place.0).expect("a directory").count();
    assert!(before == after && !place.0.join("runs").exists(), "something was written");
}

#[test]
fn a_limit_of_a_space_that_cannot_hold_is_refused_with_its_name() {
    let place = Place::new("limited");
    let two = ["--workers", "2", "--grain", "spaces=2", "--memory-limit"];
    let with = |limit| [&two[..], &[limit]].concat();
    let needed = ["of memory in host1, 1 KiB are allowed", "smallest peak found"];
    refused(&place, &with("host1=1KiB"), 3, &needed);
    refused(&place, &with("1GiB,host1=1KiB"), 3, &needed);
    refused(&place, &with("1KiB"), 3, &["of memory, 1 KiB are allowed"]);
    refused(&place, &with("gpu0=1GiB"), 2, &["expected spaces of the plan: host, host1"]);
    refused(&place, &with("host1"), 2, &["host1=2GiB,gpu0=1GiB"]);
    refused(&place, &with("host=1GiB,host=2GiB"), 2, &["each space once"]);
    let one = weights(&place, &["--workers", "1"]);
    assert!(weights(&place, &with("1GiB,host=1GiB,host1=1GiB")) == one);
}

const LAB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../platforms/lab.toml");

/// A plan of `digits-cnn` over the units of a platform: what is printed, and the notes.
fn over_lab(place: &Place, platform: &str, flags: &[&str]) -> (i32, String, String) {
    let plan = ["plan", "digits-cnn", "--batch", "32", "--platform", platform];
    place.dahl(&[&plan[..], &["--objective", "time"], flags].concat())
}

#[test]
fn a_plan_over_machines_is_simulated_but_not_run_here() {
    let place = Place::new("machines");
    // Two kinds of units of one machine, without the others of the lab.
    let lab = fs::read_to_string(LAB).expect("a platform");
    let end = lab.find("[[node]]\nname = \"old server\"").expect("another machine");
    let begin = lab.find("[[node]]\nname = \"desktop\"").expect("a machine");
    let head = &lab[..lab.find("[[node]]").expect("a machine")];
    let one = lab[begin..end].replace("count = 3\n", "");
    fs::write(place.0.join("desktop.toml"), format!("{head}{one}")).expect("a platform");
    let (code, json, stderr) = over_lab(&place, "desktop.toml", &["--json"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(json.contains("\"spaces\":[\"host\",\"gpu0\"]"), "{json}");
    let (code, text, _) = over_lab(&place, "desktop.toml", &["--show", "plan"]);
    assert!(code == 0 && text.contains("units = [\"desktop[0]/gpu[0]\"]"), "{text}");
    fs::write(place.0.join("gpu.plan"), &text).expect("a plan");
    let simulate = ["simulate", "digits-cnn", "--batch", "32", "--plan", "gpu.plan"];
    let on = |platform| place.dahl(&[&simulate[..], &["--platform", platform]].concat());
    let (code, stdout, stderr) = on("desktop.toml");
    assert!(code == 0 && stdout.contains("desktop[0]/gpu[0]"), "{stdout}{stderr}");
    // Another platform has no such unit, and a core is no device.
    let laptop = LAB.replace("lab.toml", "laptop.toml");
    let (code, _, stderr) = on(&laptop);
    assert!(code == 3 && stderr.contains("plan: units: expected"), "{code} {stderr}");
    let core = ["--platform", "desktop.toml", "--on", "desktop/core"];
    let (code, _, stderr) = place.dahl(&[&simulate[..], &core].concat());
    let words = "spaces: expected a memory of its own for gpu0, found desktop[0]/ram";
    assert!(code == 3 && stderr.contains(words), "{code} {stderr}");
    // This process has no device.
    let before = fs::read_dir(&place.0).expect("a directory").count();
    let train = ["train", "--plan", "gpu.plan", "--run", "r"];
    let (code, _, stderr) = place.dahl(&train);
    assert!(code == 3 && stderr.contains("found gpu0"), "{code} {stderr}");
    assert_eq!(fs::read_dir(&place.0).expect("a directory").count(), before);
}

#[test]
fn what_a_platform_lacks_for_a_plan_over_machines_is_told() {
    let place = Place::new("lacking");
    let lab = fs::read_to_string(LAB).expect("a platform");
    let unlinked = &lab[..lab.find("[[link]]").expect("a link")];
    fs::write(place.0.join("unlinked.toml"), unlinked).expect("a platform");
    let (code, _, stderr) = over_lab(&place, "unlinked.toml", &[]);
    assert!(code == 4 && stderr.contains("expected a way between nodes"), "{code} {stderr}");
    let limited = ["--memory-limit", "host=1KiB,gpu0=1KiB,rank1=1KiB"];
    let (code, _, stderr) = over_lab(&place, LAB, &limited);
    assert!(code == 3 && stderr.contains("of memory in "), "{code} {stderr}");
    // Plans for several processes have a shard for each.
    let (code, stdout, _) = over_lab(&place, LAB, &["--json"]);
    assert!(code == 0 && stdout.contains("\"rank1\""), "{stdout}");
}

#[test]
fn a_plan_over_spaces_is_shown_and_simulated() {
    let place = Place::new("shown");
    let plan = ["digits-cnn", "--batch", "8", "--workers", "2", "--shards", "2"];
    let spread = [&plan[..], &["--grain", "spaces=2"]].concat();
    let shown = |what| place.dahl(&[&["plan"][..], &spread, &["--show", what]].concat()).1;
    let memory = shown("memory");
    assert!(memory.contains("\nhost1 "), "{memory}");
    assert!(shown("tasks").contains("move s0-s1"));
    let text = shown("plan");
    assert!(text.contains("shards = [4, 4]") && text.contains("space_of = [0, 1]"), "{text}");
    // A run by this plan has the weights of one without spaces.
    let run = ["train", "--batch", "8", "--shards", "2", "--no-run", "--quiet", "--save", "w"];
    let run = [&run[..], &["--limit", "40", "--epochs", "1"]].concat();
    fs::write(place.0.join("spaces.plan"), &text).expect("a plan");
    let trained = |flags: &[&str]| {
        let (code, stdout, stderr) = place.dahl(&[&run[..], flags].concat());
        assert_eq!(code, 0, "{stdout}{stderr}");
        fs::read(place.0.join("w")).expect("weights")
    };
    assert!(trained(&["--plan", "spaces.plan"]) == trained(&["--workers", "1"]));
    let unhashed = text.replace("host1", "gpu0");
    let unhashed: String =
        unhashed.lines().filter(|l| !l.starts_with("hash")).map(|l| format!("{l}\n")).collect();
    fs::write(place.0.join("gpu.plan"), unhashed).expect("a plan");
    let (code, _, stderr) = place.dahl(&[&run[..], &["--plan", "gpu.plan"]].concat());
    assert!(code == 3 && stderr.contains("found gpu0"), "{code} {stderr}");
    let simulated = ["simulate", "digits-cnn", "--batch", "8", "--workers", "2", "--shards", "2"];
    let platform = concat!(env!("CARGO_MANIFEST_DIR"), "/../../platforms/laptop.toml");
    let args = [&simulated[..], &["--grain", "spaces=2", "--platform", platform]].concat();
    let (code, stdout, stderr) = place.dahl(&args);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let (code, _, stderr) = place.dahl(&[&["plan"][..], &plan, &["--grain", "spaces=3"]].concat());
    assert!(code == 2 && stderr.contains("spaces: expected at most 2"), "{code} {stderr}");
}

/// Ranks are threads that exchange messages: the same weights, through a stop and a resume with
/// another number of ranks, and a trace of all of them.
#[test]
fn ranks_train_to_the_same_weights() {
    let place = Place::new("ranks");
    let one = weights(&place, &["--workers", "1"]);
    for (workers, grain, policy) in [
        ("2", "ranks=2", "static"),
        ("3", "ranks=3", "work-stealing"),
        ("4", "ranks=2,spaces=4", "critical-path"),
        ("3", "ranks=3,shares=2:1:1", "least-energy"),
    ] {
        let flags = ["--workers", workers, "--grain", grain, "--scheduling", policy];
        assert!(weights(&place, &flags) == one, "{grain} {policy}");
    }
    let run = |flags: &[&str]| {
        let (code, stdout, stderr) = place.dahl(flags);
        assert_eq!(code, 0, "{stdout}{stderr}");
        stdout
    };
    let two = ["--run", "r", "--max-steps", "4", "--workers", "2", "--grain", "ranks=2"];
    run(&[&SHARDED[..], &two].concat());
    run(&["train", "--resume", "r", "--workers", "3", "--grain", "ranks=3", "--trace", "--quiet"]);
    assert!(fs::read(place.0.join("runs/r/weights.safetensors")).expect("weights") == one);
    let stats = run(&["stats", "r"]);
    for name in ["rank 2 worker 2", "rank 0 sends to rank 2", "rank 2 receives from rank 0"] {
        assert!(stats.contains(name), "{name}: {stats}");
    }
    let adaptive = ["--no-run", "--workers", "1", "--grain", "sample=2,ranks=2"];
    let (code, _, stderr) = place.dahl(&[&SHARDED[..], &adaptive].concat());
    assert!(code == 2 && stderr.contains("at most 1, the workers"), "{code} {stderr}");
}
