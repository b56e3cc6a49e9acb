//! Nothing is lost silently: each test is a way in which something once was.

use crate::runs::{Place, SMALL, STEPS};
use dahl::file::TensorFile;
use std::fs;
use std::process::Command;

/// The system's numbers of its errors.
const EAGAIN: u32 = 11;
const FULL: u32 = 28;

/// Runs `dahl` with faults: code, standard output, standard error.
fn failing(place: &Place, faults: &str, args: &[&str]) -> (i32, String, String) {
    let output = place.command(args).env("FAULTS", faults).output().expect("dahl runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SMALL[..], more].concat()
}

#[test]
fn weights_are_saved_though_the_last_checkpoint_cannot_be() {
    let place = Place::new("save-all");
    assert_eq!(place.train(&["--epochs", "1", "--run", "whole"]).0, 0);
    let hash = place.gave("whole").0;
    let full = format!("fail create checkpoints/. 1.. {FULL}");
    let args = ["--epochs", "1", "--run", "a", "--save", "w.safetensors"];
    let (code, stdout, stderr) = failing(&place, &full, &small(&args));
    assert_eq!(code, 1, "{stderr}");
    let saved = TensorFile::read(place.0.join("w.safetensors")).expect("weights");
    assert_eq!(saved.sha256(), hash);
    assert!(
        stdout.contains(&format!("weights: w.safetensors, sha256 {}", &hash[..16])),
        "{stdout}"
    );
    for part in [
        "error: the last checkpoint was not written: runs/a/checkpoints/",
        "runs/a/checkpoints has no earlier checkpoint; make room and resume the run: ",
        "; the weights are in w.safetensors\n",
    ] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    // It has not ended: what was advised goes on from the beginning.
    assert!(!place.run("a").join("result.json").exists());
    place.check(&["train", "--resume", "a"], 0, "starts from the beginning");
    assert_eq!(place.gave("a").0, hash);
    // A run that was stopped keeps them, too, and does not say that it is saved.
    let stopped = small(&["--max-steps", "2", "--run", "b", "--save", "b.safetensors"]);
    let (code, _, stderr) = failing(&place, &full, &stopped);
    assert!(code == 1 && !stderr.contains("saved;"), "{code} {stderr}");
    assert!(TensorFile::read(place.0.join("b.safetensors")).is_ok());
}

#[test]
fn all_that_cannot_be_written_is_told() {
    let place = Place::new("told");
    let full = format!("fail write safetensors 1.. {FULL}");
    let args = ["--epochs", "1", "--run", "a", "--save", "w.safetensors", "--quiet"];
    let (code, _, stderr) = failing(&place, &full, &small(&args));
    assert_eq!(code, 1, "{stderr}");
    for file in ["the last checkpoint was not written: ", "w.safetensors: ", "runs/a/weights.saf"] {
        assert!(
            stderr.contains(&format!("error: {file}"))
                || stderr.contains(&format!("       {file}")),
            "{stderr}"
        );
    }
}

#[test]
fn metrics_that_are_not_written_are_no_success() {
    let place = Place::new("metrics");
    assert_eq!(place.train(&["--epochs", "3", "--run", "whole"]).0, 0);
    let whole = place.gave("whole");
    let run = |name: &str, faults: &str| {
        failing(&place, faults, &small(&["--epochs", "3", "--quiet", "--run", name]))
    };
    // One that fails is made good with the next, the last one at the end.
    for (name, faults) in [
        ("second", format!("fail append metrics 2 {FULL}")),
        ("torn", "fail write metrics 2 torn".to_owned()),
        ("last", format!("fail append metrics 3 {FULL}")),
    ] {
        let (code, _, stderr) = run(name, &faults);
        assert_eq!(code, 0, "{stderr}");
        let warning = format!("warning: runs/{name}/metrics.jsonl: ");
        assert!(stderr.contains(&warning) && stderr.contains("; the run continues"), "{stderr}");
        assert_eq!(place.gave(name), whole, "{name}");
    }
    let (code, _, stderr) = run("full", &format!("fail append metrics 3.. {FULL}"));
    assert_eq!(code, 1, "{stderr}");
    let advice = "; everything else is saved: make room, then dahl train --resume runs/full\n";
    assert!(
        stderr.contains("error: runs/full/metrics.jsonl: ") && stderr.contains(advice),
        "{stderr}"
    );
    assert_eq!(place.gave("full").1.len(), 2);
    place.check(&["train", "--resume", "full"], 0, "runs/full has finished its 3 epochs");
    assert_eq!(place.gave("full"), whole);
}

#[test]
fn a_run_goes_on_without_threads_that_it_can_do_without() {
    let place = Place::new("threads");
    let run = |name: &str, faults: &str| {
        failing(&place, faults, &small(&["--epochs", "2", "--quiet", "--run", name]))
    };
    assert_eq!(place.train(&["--epochs", "2", "--run", "whole"]).0, 0);
    for (name, part) in [("loader", "dahl-loader"), ("readers", "dahl-reader")] {
        let (code, _, stderr) = run(name, &format!("fail spawn {part} 1.. {EAGAIN}"));
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(place.gave(name), place.gave("whole"));
    }
    for part in ["dahl-checkpoints", "dahl-signals"] {
        let (code, _, stderr) = run(part, &format!("fail spawn {part} 1.. {EAGAIN}"));
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains(&format!("error: thread {part} cannot be started: ")), "{stderr}");
    }
    let workers = ["--workers", "2", "--no-run"];
    let faults = format!("fail spawn dahl-1 1.. {EAGAIN}");
    let (code, _, stderr) = failing(&place, &faults, &[&SMALL[..7], &workers].concat());
    assert!(code == 1 && stderr.contains("error: thread dahl-1 cannot be started"), "{stderr}");
    let (code, _, stderr) = failing(&place, "fail spawn dahl 1.. 11", &["models"]);
    assert!(code == 1 && stderr.contains("error: thread dahl cannot be started"), "{stderr}");
}

#[test]
fn a_run_that_ends_with_its_last_allowed_step_has_ended() {
    let place = Place::new("exact");
    assert_eq!(place.train(&["--epochs", "2", "--run", "whole"]).0, 0);
    let steps = (2 * STEPS).to_string();
    let (code, stdout, stderr) =
        place.train(&["--epochs", "2", "--max-steps", &steps, "--run", "exact"]);
    assert!(code == 0 && stdout.contains(" samples) after "), "{stdout}{stderr}");
    assert!(place.run("exact").join("weights.safetensors").exists());
    assert_eq!(place.gave("exact"), place.gave("whole"));
    // So does one that went on.
    let part = ["--epochs", "2", "--max-steps", "3", "--run", "part"];
    assert_eq!(place.train(&part).0, 0);
    let rest = (2 * STEPS - 3).to_string();
    assert_eq!(place.dahl(&["train", "--resume", "part", "--max-steps", &rest]).0, 0);
    assert_eq!(place.gave("part"), place.gave("whole"));
}

/// A model, an image: whatever was there was replaced.
#[test]
fn weights_replace_nothing_but_weights() {
    let place = Place::new("replaced");
    fs::write(place.0.join("notes"), "precious").expect("a file");
    let refused = "save: expected a new file, or weights to replace, found notes";
    place.check(&[&SMALL[..], &["--no-run", "--save", "notes"]].concat(), 2, refused);
    assert_eq!(fs::read_to_string(place.0.join("notes")).expect("a file"), "precious");
    fs::write(place.0.join("w.safetensors"), "").expect("a file");
    for _ in 0..2 {
        assert_eq!(place.train(&["--no-run", "--save", "w.safetensors"]).0, 0);
    }
}

#[test]
fn a_run_of_others_writes_nowhere_else() {
    let place = Place::new("foreign");
    let elsewhere = Place::new("victim");
    let victim = elsewhere.0.join("victim");
    fs::write(&victim, "precious").expect("a file");
    let part = ["--epochs", "1", "--max-steps", "3", "--run", "a", "--save", "w.safetensors"];
    assert_eq!(place.train(&part).0, 0);
    let config = place.run("a").join("config.toml");
    let text = fs::read_to_string(&config).expect("a configuration");
    let line =
        |text: &str| text.lines().find(|line| line.starts_with("save = ")).map(str::to_owned);
    let own = line(&text).expect("a file to save to");
    let foreign = format!("save = {:?}", victim.to_str().expect("text"));
    fs::write(&config, text.replace(&own, &foreign)).expect("a configuration");
    let refused = "which is outside the run directory; to write there, add --save ";
    place.check(&["train", "--resume", "a"], 2, refused);
    // Nor is anything but weights replaced in the current directory.
    fs::write(place.0.join("notes"), "precious").expect("a file");
    let near = format!("save = {:?}", place.0.join("notes").to_str().expect("text"));
    fs::write(&config, text.replace(&own, &near)).expect("a configuration");
    place.check(&["train", "--resume", "a"], 2, refused);
    assert_eq!(fs::read_to_string(place.0.join("notes")).expect("a file"), "precious");
    fs::write(&config, text.replace(&own, &foreign)).expect("a configuration");
    // A link in the directory is no way out of it.
    #[cfg(unix)]
    {
        let link = place.run("a").join("link");
        std::os::unix::fs::symlink(&victim, &link).expect("a link");
        let through = format!("save = {:?}", link.to_str().expect("text"));
        fs::write(&config, text.replace(&own, &through)).expect("a configuration");
        place.check(&["train", "--resume", "a"], 2, refused);
        fs::remove_file(&link).expect("a link");
        // Nor is one in the place of a file that the run writes.
        fs::write(&config, &text).expect("a configuration");
        let metrics = place.run("a").join("metrics.jsonl");
        fs::remove_file(&metrics).expect("metrics");
        std::os::unix::fs::symlink(&victim, &metrics).expect("a link");
        let leads = "run: expected files in the directory itself, found runs/a/metrics.jsonl, ";
        place.check(&["train", "--resume", "a"], 2, leads);
        fs::remove_file(&metrics).expect("a link");
        // Nor in the directory of checkpoints, nor that directory.
        let checkpoints = place.run("a").join("checkpoints");
        fs::remove_file(checkpoints.join("lock")).expect("a lock");
        std::os::unix::fs::symlink(&victim, checkpoints.join("lock")).expect("a link");
        place.check(&["train", "--resume", "a"], 2, "found runs/a/checkpoints/lock, ");
        fs::remove_file(checkpoints.join("lock")).expect("a link");
        let half = elsewhere.0.join(".epoch-00001.1.tmp");
        fs::create_dir(&half).expect("a directory");
        let moved = place.0.join("moved");
        fs::rename(&checkpoints, &moved).expect("a directory");
        std::os::unix::fs::symlink(&elsewhere.0, &checkpoints).expect("a link");
        place.check(&["train", "--resume", "a"], 2, "found runs/a/checkpoints, which is a link");
        assert!(half.exists(), "what is elsewhere stays");
        fs::remove_file(&checkpoints).expect("a link");
        fs::rename(&moved, &checkpoints).expect("a directory");
    }
    assert_eq!(fs::read(&victim).expect("a file"), b"precious");
    // Whoever names a new file there means it.
    fs::remove_file(&victim).expect("a file");
    fs::write(&config, text.replace(&own, &foreign)).expect("a configuration");
    let named = ["train", "--resume", "a", "--save", victim.to_str().expect("text")];
    assert_eq!(place.dahl(&named).0, 0);
    assert!(TensorFile::read(&victim).is_ok());
}

#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_has_gone_is_told_of() {
    let place = Place::new("head");
    let train = small(&["--epochs", "2", "--run", "a"]);
    let mut command = place.command(&train);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command.stdout(writer).output().expect("dahl runs");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.matches("warning: standard output: ").count(), 1, "{stderr}");
    assert_eq!(place.gave("a").1.len(), 2);
    // Who looks at the head of a list has seen enough.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = place.command(&["models"]).stdout(writer).output().expect("dahl runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    // Nor is a stream that is full passed over in silence.
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device");
    let case = concat!(env!("CARGO_MANIFEST_DIR"), "/../dahl/tests/golden/add_f32.safetensors");
    let output = place.command(&["verify", case]).stdout(full).output().expect("dahl runs");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: standard output: "), "{stderr}");
    // Counters that are damaged are a bad file.
    fs::write(place.run("a").join("counters.json"), "{").expect("counters");
    place.check(&["stats", "a"], 4, "error: runs/a/counters.json: file: expected an object");
    place.check(&["stats", "a", "--counters"], 4, "error: runs/a/counters.json: ");
}

/// The directory was named, in which nothing was wrong.
#[test]
fn a_lock_that_cannot_be_taken_is_named() {
    let place = Place::new("lock");
    for fault in ["fail lock * 1 5", "fail append /lock 1 28"] {
        let (code, _, stderr) = failing(&place, fault, &small(&["--run", "a", "--quiet"]));
        assert!(code == 1 && stderr.contains("error: runs/a/checkpoints/lock: "), "{stderr}");
    }
}

/// A list where a flag takes one value was an index out of bounds.
#[test]
fn a_list_in_a_runs_configuration_is_refused() {
    let place = Place::new("list");
    assert_eq!(place.train(&["--max-steps", "1", "--run", "a", "--quiet"]).0, 0);
    let config = place.run("a").join("config.toml");
    let text = fs::read_to_string(&config).expect("a configuration");
    fs::write(&config, text.replace("keep = 2", "keep = []")).expect("a configuration");
    place.check(&["train", "--resume", "a"], 4, "config.toml: keep: expected a text, a number");
}

/// Under limits of the shell: code and standard error.
#[cfg(unix)]
fn limited(place: &Place, limits: &str, args: &[&str]) -> (i32, String) {
    let line = format!("{limits}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.current_dir(&place.0).args(["-c", &line, env!("CARGO_BIN_EXE_dahl")]).args(args);
    let output = command.output().expect("sh runs");
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stderr).expect("text"))
}

#[cfg(unix)]
#[test]
fn a_small_stack_is_enough() {
    let place = Place::new("stack");
    let args = small(&["--epochs", "1", "--run", "a", "--quiet"]);
    let (code, stderr) = limited(&place, "ulimit -s 64", &args);
    assert_eq!((code, stderr.as_str()), (0, ""));
}

/// The signal of a file that grows too large ended the process, which a full disk does not.
#[cfg(unix)]
#[test]
fn a_file_that_may_not_grow_is_a_full_disk() {
    let place = Place::new("grow");
    let part = ["--epochs", "2", "--run", "a", "--max-steps", "3"];
    assert_eq!(place.train(&part).0, 0);
    let (code, stderr) = limited(&place, "ulimit -f 6", &["train", "--resume", "a"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("error: the last checkpoint was not written: "), "{stderr}");
    assert_eq!(place.dahl(&["train", "--resume", "a", "--quiet"]).0, 0);
}
