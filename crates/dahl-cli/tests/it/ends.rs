//! How runs end, what they leave, and what others make of it.

use crate::runs::{Place, SMALL, STEPS};
use dahl::file::TensorFile;
use dahl::train::Checkpoint;
use std::fs;
use std::process::{Command, Stdio};

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect(text)
}

/// Every value that a checkpoint has.
fn values(checkpoint: &Checkpoint) -> impl Iterator<Item = f64> {
    let files = [&checkpoint.weights, &checkpoint.optimizer];
    files.into_iter().flat_map(|file| file.tensors.values()).flat_map(|t| t.to_f64_vec())
}

#[test]
fn weights_that_are_not_finite_take_no_checkpoints_place() {
    let place = Place::new("overflow");
    // The second of the 8 steps an epoch has a rate that is no number of f32.
    let wild = ["--optimizer", "sgd", "--lr", "1e-3", "--schedule", "step:0.125:1e45"];
    let every = ["--checkpoint-every", "1", "--keep", "1"];
    // Whether the run goes on or is told to stop at the step that overflows.
    for (steps, said) in [("2", "step 2 left "), ("3", "step "), ("100", "step ")] {
        let more = [&every[..], &["--max-steps", steps, "--run", steps]].concat();
        let (code, _, stderr) = place.train(&[&wild[..], &more].concat());
        assert_eq!(code, 5, "{stderr}");
        let first = "epoch-00000-batch-0000001";
        assert_eq!(place.checkpoints(steps), [first], "{stderr}");
        let last = format!("the last good checkpoint is runs/{steps}/checkpoints/{first}");
        assert!(stderr.contains(said) && stderr.contains(&last), "{stderr}");
        let path = place.run(steps).join("checkpoints").join(first);
        let checkpoint = Checkpoint::read(path).expect("a whole checkpoint");
        assert!(values(&checkpoint).all(f64::is_finite));
    }
    // Nor are they written elsewhere.
    let save = ["--no-run", "--max-steps", "2", "--save", "wild.safetensors"];
    let (code, _, stderr) = place.train(&[&wild[..], &save].concat());
    assert_eq!((code, place.0.join("wild.safetensors").exists()), (5, false), "{stderr}");
}

#[test]
fn a_time_beyond_all_clocks_never_comes() {
    let place = Place::new("far");
    let far = ["--max-time", "200000000000000d", "--max-steps", "1", "--no-run"];
    let (code, _, stderr) = place.train(&far);
    assert!(code == 0 && stderr.contains("stopped by --max-steps"), "{code} {stderr}");
}

#[test]
fn a_directory_with_a_models_name_is_no_model() {
    let place = Place::new("names");
    for name in ["digits-cnn", "digits"] {
        fs::create_dir(place.0.join(name)).expect("a directory");
    }
    let small = ["--limit", "32", "--quiet"];
    let begin = ["train", "--epochs", "1", "--run", "md"];
    assert_eq!(place.dahl(&[&begin[..], &small].concat()).0, 0);
    place.check(&["train", "--resume", "md", "--epochs", "2"], 0, "digits-cnn on digits");
    assert_eq!(place.gave("md").1.len(), 2);
}

#[test]
fn a_run_that_has_ended_still_gives_what_is_asked_for() {
    let place = Place::new("ended");
    assert_eq!(place.train(&["--epochs", "2", "--run", "a"]).0, 0);
    let (hash, metrics) = place.gave("a");
    let (code, stdout, stderr) = place.dahl(&["train", "--resume", "a", "--confusion"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("runs/a has finished its 2 epochs; for more: "), "{stderr}");
    for part in
        ["class  samples", " samples) after ", " s in this session, ", " peak\n", &hash[..16]]
    {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let more = ["--save", "w.safetensors", "--tensorboard", "--json"];
    let (code, stdout, _) = place.dahl(&[&["train", "--resume", "a"], &more[..]].concat());
    assert_eq!((code, &json(&stdout)["test_loss"]), (0, &metrics[1]["test_loss"]));
    let saved = TensorFile::read(place.0.join("w.safetensors")).expect("weights");
    assert_eq!(saved.sha256(), hash);
    assert!(place.run("a").join("events.out.tfevents.0.dahl").exists());
    assert_eq!(place.gave("a"), (hash, metrics));
    let result = json(&fs::read_to_string(place.run("a").join("result.json")).expect("a result"));
    let bytes = |key: &str| result[key].as_u64().expect(key);
    if cfg!(target_os = "linux") {
        // The system counts both with some slack.
        assert!(2 * bytes("memory_peak_bytes") > bytes("memory_resident_bytes"), "{result}");
    }
    let sessions = fs::read_to_string(place.run("a").join("sessions.jsonl")).expect("sessions");
    assert_eq!(sessions.lines().count(), 1, "{sessions}");
}

#[test]
fn a_run_is_made_longer_only_where_its_schedule_allows() {
    let place = Place::new("hint");
    for (schedule, hinted) in [("constant", true), ("cosine", false)] {
        let args = ["--epochs", "1", "--schedule", schedule, "--run", schedule];
        let (_, stdout, stderr) = place.train(&args);
        assert_eq!(stdout.contains("--epochs 2"), hinted, "{stdout}{stderr}");
        let (_, _, stderr) = place.dahl(&["train", "--resume", schedule]);
        assert_eq!(stderr.contains("--epochs 2"), hinted, "{stderr}");
    }
}

#[test]
fn the_weights_of_a_run_are_those_that_it_has_now() {
    let place = Place::new("stale");
    let eval = ["eval", "--limit", "48", "--batch", "6", "--json", "--run"];
    let judged = |run: &str| {
        let (code, stdout, stderr) = place.dahl(&[&eval[..], &[run]].concat());
        assert_eq!(code, 0, "{stderr}");
        (json(&stdout)["loss"].clone(), stderr)
    };
    assert_eq!(place.train(&["--epochs", "1", "--run", "a"]).0, 0);
    let (before, stderr) = judged("a");
    assert_eq!(stderr, "");
    let on = ["train", "--resume", "a", "--epochs", "3", "--max-steps", "3"];
    assert_eq!(place.dahl(&on).0, 0);
    let (now, stderr) = judged("a");
    assert!(before != now, "{before}");
    let note =
        format!("note: runs/a has not ended; these are its weights after step {}", STEPS + 3);
    assert!(stderr.contains(&note), "{stderr}");
    // A newest checkpoint that is damaged leaves the one before.
    let newest = place.run("a").join("checkpoints/epoch-00001-batch-0000003/state.json");
    fs::write(newest, "").expect("a file");
    assert_eq!(judged("a").0, before);
    // There is nothing to use, or no such run.
    fs::remove_dir_all(place.run("a").join("checkpoints")).expect("checkpoints");
    let none = "expected a run with a checkpoint, found runs/a, which has none yet";
    place.check(&[&eval[..], &["a"]].concat(), 2, none);
    let missing = "runs/b: expected a run directory, found nothing; known runs: a\n";
    place.check(&[&eval[..], &["b"]].concat(), 2, missing);
}

#[test]
fn half_a_line_of_an_earlier_start_stays_a_line_of_its_own() {
    let place = Place::new("torn");
    assert_eq!(place.train(&["--epochs", "1", "--run", "a"]).0, 0);
    let path = place.run("a").join("sessions.jsonl");
    let whole = fs::read(&path).expect("sessions");
    fs::write(&path, &whole[..whole.len() / 2]).expect("sessions");
    assert_eq!(place.dahl(&["train", "--resume", "a", "--epochs", "2"]).0, 0);
    let text = fs::read_to_string(&path).expect("sessions");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), &json(lines[1])["from_step"]), (2, &STEPS.into()), "{text}");
}

#[test]
fn what_cannot_be_written_is_no_bad_file() {
    let place = Place::new("unwritten");
    assert_eq!(place.train(&["--epochs", "1", "--run", "a"]).0, 0);
    fs::write(place.0.join("file"), "").expect("a file");
    let train = |more: &[&'static str]| [&SMALL[..], &["--epochs", "1"], more].concat();
    for args in [
        &["export", "--run", "a", "--to", "file/w.safetensors"][..],
        &["export", "--run", "a", "--module", "file/m.py"],
        &train(&["--run", "file/run"]),
    ] {
        place.check(args, 1, "file");
    }
    // Known before the first step, so a matter of usage.
    let save = train(&["--no-run", "--save", "file/w.safetensors"]);
    place.check(
        &save,
        2,
        "save: expected a file in a directory that is there and can be written to",
    );
    place.check(&["eval", "--weights", "file/w.safetensors"], 4, "file/w.safetensors");
}

/// A stream that takes nothing, as on a disk that is full.
#[cfg(target_os = "linux")]
fn full() -> Stdio {
    fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device").into()
}

#[cfg(target_os = "linux")]
#[test]
fn streams_that_cannot_be_written_do_not_stop_training() {
    let place = Place::new("streams");
    let train = |name| place.command(&[&SMALL[..], &["--epochs", "3", "--run", name]].concat());
    let mute = train("mute").stderr(full()).output().expect("dahl runs");
    assert_eq!(mute.status.code(), Some(0), "{mute:?}");
    let unread = train("unread").stdout(full()).output().expect("dahl runs");
    let stderr = String::from_utf8(unread.stderr).expect("text");
    assert_eq!(unread.status.code(), Some(1), "{stderr}");
    let warning = "warning: standard output: ";
    assert_eq!(stderr.matches(warning).count(), 1, "{stderr}");
    assert_eq!(place.gave("unread"), place.gave("mute"));
    // Others have nothing else to do.
    for args in
        [&["eval", "--run", "mute"][..], &["models"], &["data"], &["predict", "--run", "mute"]]
    {
        let output = place.command(args).stdout(full()).output().expect("dahl runs");
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_after_the_last_epoch_is_obeyed() {
    use std::io::Read;
    let place = Place::new("late");
    // Long enough that the table of classes is not done when the signal comes.
    let model = "name = \"wide\"\ninput = [1, 28, 28]\nlayers = [\n\
                 { type = \"conv2d\", out = 64, kernel = 5 }, { type = \"relu\" },\n\
                 { type = \"conv2d\", out = 64, kernel = 5 }, { type = \"flatten\" },\n\
                 { type = \"linear\", out = 10 } ]\n";
    fs::write(place.0.join("wide.toml"), model).expect("a model");
    let train = ["train", "--model", "wide.toml", "--data", "synthetic:1x28x28:10"];
    let short = ["--epochs", "1", "--limit", "128", "--batch", "1", "--run", "a", "--quiet"];
    let (code, _, stderr) = place.dahl(&[&train[..], &short].concat());
    assert_eq!(code, 0, "{stderr}");
    let mut command = place.command(&["train", "--resume", "a", "--confusion"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("dahl runs");
    let mut out = child.stdout.take().expect("a pipe");
    let mut first = [0; 1];
    out.read_exact(&mut first).expect("the last epoch");
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh runs").success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text");
    let output = child.wait_with_output().expect("an end");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(130), "{rest}{stderr}");
    assert!(stderr.contains("stopped by SIGINT: the confusion matrix"), "{stderr}");
    assert!(rest.contains(" samples) after ") && !rest.contains("class  samples"), "{rest}");
}
