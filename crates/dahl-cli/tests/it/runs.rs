//! Run directories: what is in them, and how runs stop and go on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Small enough to train in no time, with everything that a checkpoint must hold.
const MODEL: &str = r#"name = "small"
input = [1, 8, 8]
layers = [
  { type = "flatten" },
  { type = "linear", out = 12 },
  { type = "relu" },
  { type = "dropout", p = 0.2 },
  { type = "linear", out = 10 },
]
"#;

/// Steps an epoch: 48 samples by 6.
pub(crate) const STEPS: u64 = 8;

/// A directory of one test in which `dahl` is run; removed at its end.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dahl-runs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary directory");
        fs::write(path.join("small.toml"), MODEL).expect("a model");
        Self(path)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dahl"));
        command.current_dir(&self.0).args(args);
        command
    }

    /// Runs `dahl`: code, standard output, standard error.
    pub(crate) fn dahl(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.command(args).output().expect("dahl runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    /// Trains a small model, with more arguments.
    pub(crate) fn train(&self, more: &[&str]) -> (i32, String, String) {
        self.dahl(&[&SMALL[..], more].concat())
    }

    /// Runs `dahl` and expects a code and a word of standard error.
    #[track_caller]
    pub(crate) fn check(&self, args: &[&str], code: i32, expected: &str) {
        let (found, stdout, stderr) = self.dahl(args);
        assert_eq!(found, code, "{stdout}{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }

    pub(crate) fn run(&self, name: &str) -> PathBuf {
        self.0.join("runs").join(name)
    }

    /// The hash of the weights, and the metrics but for times.
    #[track_caller]
    pub(crate) fn gave(&self, name: &str) -> (String, Vec<serde_json::Value>) {
        let read = |file: &str| fs::read_to_string(self.run(name).join(file)).expect(file);
        let result: serde_json::Value = serde_json::from_str(&read("result.json")).expect("JSON");
        let lines = read("metrics.jsonl");
        let metrics = lines.lines().map(|line| {
            let mut line: serde_json::Value = serde_json::from_str(line).expect("a line");
            for key in ["seconds", "samples_per_second", "time"] {
                assert!(line.as_object_mut().expect("an object").remove(key).is_some());
            }
            line
        });
        let hash = result["weights_sha256"].as_str().expect("a hash").to_owned();
        (hash, metrics.collect())
    }

    /// The names of the checkpoints, oldest first.
    pub(crate) fn checkpoints(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.run(name).join("checkpoints")).into_iter().flatten();
        let names = entries.map(|e| e.expect("an entry").file_name().into_string().expect("text"));
        let mut names: Vec<String> = names.filter(|name| name.starts_with("epoch-")).collect();
        names.sort();
        names
    }

    /// Starts a run that does not end by itself, and waits for its first epoch.
    pub(crate) fn start_endless(&self, name: &str) -> Child {
        // A test that fails leaves nothing behind that computes for ever.
        let bounded = ["--json", "--epochs", "1000000", "--max-time", "5m", "--run", name];
        let args = [&SMALL[..], &bounded].concat();
        let mut command = self.command(&args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("dahl runs");
        let mut first = [0; 1];
        let stdout = child.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(stdout, &mut first).expect("a line");
        // Nobody reads on; the pipe must not fill up.
        let rest = child.stdout.take().expect("a pipe");
        std::thread::spawn(move || std::io::copy(&mut { rest }, &mut std::io::sink()));
        child
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) const SMALL: [&str; 9] =
    ["train", "--model", "small.toml", "--limit", "48", "--batch", "6", "--workers", "1"];

#[test]
fn a_run_that_was_stopped_goes_on_to_the_same_bits() {
    let place = Place::new("stopped");
    for (i, recipe) in [
        &["--epochs", "2", "--optimizer", "adam"][..],
        &["--epochs", "2", "--optimizer", "sgd", "--dtype", "f64", "--seed", "7"],
        &[
            "--epochs",
            "2",
            "--optimizer",
            "sgd",
            "--momentum",
            "0.9",
            "--nesterov",
            "--crop",
            "1",
            "--flip",
            "--schedule",
            "warmup:0.5+cosine",
            "--clip",
            "1",
        ],
        &["--epochs", "2", "--optimizer", "adamw", "--validation", "6"],
    ]
    .iter()
    .enumerate()
    {
        let whole = format!("whole-{i}");
        let (code, _, stderr) = place.train(&[recipe, &["--run", &whole][..]].concat());
        assert_eq!(code, 0, "{stderr}");
        // One that holds out samples has a step less an epoch.
        for stop in [1, STEPS - 1, STEPS, STEPS + 3] {
            let (name, steps) = (format!("part-{i}-{stop}"), stop.to_string());
            let part = ["--run", &name, "--max-steps", &steps];
            let (code, _, stderr) = place.train(&[recipe, &part[..]].concat());
            let on = format!("after step {stop}, saved; resume with: dahl train --resume runs/");
            assert!(code == 0 && stderr.contains(&on), "{code} {stderr}");
            let on = ["train", "--resume", &name, "--workers", "3"];
            assert_eq!(place.dahl(&on).0, 0);
            assert_eq!(place.gave(&name), place.gave(&whole), "after {stop}");
        }
    }
}

#[test]
fn a_run_directory_says_everything() {
    let place = Place::new("files");
    let (code, stdout, stderr) = place.train(&[
        "--epochs",
        "2",
        "--tensorboard",
        "--lr",
        "1e-2",
        "--schedule",
        "step:1:0.5",
    ]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("run directory: runs/small-digits-1\n"), "{stderr}");
    let (hash, metrics) = place.gave("small-digits-1");
    let weights = "weights: runs/small-digits-1/weights.safetensors, sha256";
    assert!(stdout.contains(&format!("{weights} {}…\n", &hash[..16])), "{stdout}");
    assert_eq!(metrics.len(), 2);
    assert_eq!(metrics[1]["steps"], 2 * STEPS);
    assert_eq!([&metrics[0]["lr"], &metrics[1]["lr"]], [0.01, 0.005]);
    assert!(stdout.contains("test accuracy        lr  samples/s\n"), "{stdout}");
    let path = place.run("small-digits-1");
    let read = |file: &str| fs::read_to_string(path.join(file)).expect(file);
    let config: toml::Table = read("config.toml").parse().expect("TOML");
    assert_eq!(config["epochs"].as_integer(), Some(2));
    assert_eq!(config["seed"].as_integer(), Some(0));
    assert_eq!(config["tensorboard"].as_bool(), Some(true));
    let model = config["model"].as_str().expect("a path");
    assert!(Path::new(model).is_absolute(), "{model}");
    assert!(!config.contains_key("run") && !config.contains_key("max-time"), "{config}");
    let session: serde_json::Value = serde_json::from_str(&read("sessions.jsonl")).expect("JSON");
    assert!(session["machine"]["processors"].as_u64() > Some(0), "{session}");
    assert!(session["commit"].is_string() && session["version"].is_string(), "{session}");
    assert!(read("plan.txt").contains("numerics"), "{}", read("plan.txt"));
    dahl::model::Model::parse(&read("model.toml")).expect("a model");
    let events = fs::read(path.join("events.out.tfevents.0.dahl")).expect("events");
    let has = |tag: &[u8]| events.windows(tag.len()).any(|w| w == tag);
    assert!(has(b"brain.Event:2") && has(b"accuracy/test") && has(b"learning_rate"));
    // The weights are those of the hash, and of the last checkpoint.
    let weights = dahl::file::TensorFile::read(path.join("weights.safetensors")).expect("weights");
    assert_eq!(weights.sha256(), hash);
    assert_eq!(place.checkpoints("small-digits-1").len(), 2);

    // So are those that `eval` finds, in the run and in its checkpoints.
    let checkpoint = "runs/small-digits-1/checkpoints/epoch-00002-batch-0000000";
    let file = format!("{checkpoint}/weights.safetensors");
    for weights in [["--run", "small-digits-1"], ["--weights", &file]] {
        let (_, stdout, stderr) = place
            .dahl(&[&["eval", "--limit", "48", "--batch", "6", "--json"][..], &weights].concat());
        let judged: serde_json::Value = serde_json::from_str(&stdout).expect(&stderr);
        assert_eq!(judged["loss"], metrics[1]["test_loss"]);
    }

    // The configuration makes the same run again.
    let again = ["train", "--config", "runs/small-digits-1/config.toml", "--run", "again"];
    assert_eq!(place.dahl(&again).0, 0);
    assert_eq!(place.gave("again"), (hash, metrics));
    fs::remove_dir_all(place.run("again")).expect("a run");

    // The next one has a name of its own, and a run may leave nothing.
    assert_eq!(place.train(&["--epochs", "1", "--quiet"]).0, 0);
    assert!(place.run("small-digits-2").join("result.json").exists());
    assert_eq!(place.train(&["--epochs", "1", "--quiet", "--no-run"]).0, 0);
    assert_eq!(fs::read_dir(place.0.join("runs")).expect("runs").count(), 2);
}

#[test]
fn a_run_that_has_ended_says_so_and_may_be_made_longer() {
    let place = Place::new("longer");
    assert_eq!(place.train(&["--epochs", "3", "--run", "long"]).0, 0);
    assert_eq!(place.train(&["--epochs", "1", "--run", "short"]).0, 0);
    place.check(&["train", "--resume", "short"], 0, "runs/short has finished its 1 epoch;");
    place.check(&["train", "--resume", "runs/short", "--epochs", "3"], 0, "continues after step 8");
    assert_eq!(place.gave("short"), place.gave("long"));
    // The new length is the run's own.
    place.check(&["train", "--resume", "short"], 0, "has finished its 3 epochs");
    // A cosine over two epochs is not the beginning of one over three.
    let cosine = ["--epochs", "2", "--schedule", "cosine", "--run", "cosine", "--max-steps", "3"];
    assert_eq!(place.train(&cosine).0, 0);
    let longer = ["train", "--resume", "cosine", "--epochs", "3"];
    place.check(&longer, 2, "epochs: expected 2, which its schedule depends on, as in the run");
    place.check(&["train", "--resume", "cosine"], 0, "continues after step 3");
}

#[test]
fn what_would_be_another_run_is_refused() {
    let place = Place::new("refused");
    assert_eq!(place.train(&["--epochs", "1", "--run", "a"]).0, 0);
    let before = place.gave("a");
    let again = [&SMALL[..], &["--run", "a"]].concat();
    place.check(
        &again,
        2,
        "runs/a already holds a run; resume it with --resume runs/a, or choose another name",
    );
    for (flag, value, expected) in [
        ("--lr", "0.5", "lr: expected 0.003 as in the run"),
        ("--batch", "7", "batch: expected 6 as in the run"),
        ("--model", "lenet", "model: expected "),
        ("--dtype", "f64", "dtype: expected f32 as in the run"),
        ("--run", "b", "cannot be used with"),
    ] {
        place.check(&["train", "--resume", "a", flag, value], 2, expected);
    }
    place.check(
        &["train", "--resume", "nowhere"],
        2,
        "runs/nowhere: expected a run directory, found nothing; known runs: a\n",
    );
    // What changes nothing may be said again.
    place.check(&["train", "--resume", "a", "--lr", "3e-3", "--batch", "6"], 0, "has finished");
    assert_eq!(place.gave("a"), before);
}

#[test]
fn a_run_stops_when_its_time_is_over() {
    let place = Place::new("time");
    assert_eq!(place.train(&["--epochs", "1", "--run", "whole"]).0, 0);
    let limited = ["--epochs", "1", "--run", "part", "--max-time", "0s", "--save", "w.safetensors"];
    let (code, stdout, stderr) = place.train(&limited);
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    // One step at most.
    assert!(stderr.contains("stopped by --max-time after step 1, saved;"), "{stderr}");
    assert_eq!(place.checkpoints("part"), ["epoch-00000-batch-0000001"]);
    assert!(place.0.join("w.safetensors").exists());
    assert_eq!(place.dahl(&["train", "--resume", "part", "--quiet"]).0, 0);
    assert_eq!(place.gave("part"), place.gave("whole"));
    place.check(&["train", "--max-time", "1y"], 2, "expected a time such as 90s");
}

#[test]
fn a_loss_that_is_not_finite_keeps_the_last_good_checkpoint() {
    let place = Place::new("nan");
    let wild = ["--optimizer", "sgd", "--lr", "1e30", "--checkpoint-every", "1", "--run", "wild"];
    let (code, _, stderr) = place.train(&wild);
    assert_eq!(code, 5, "{stderr}");
    let last = place.checkpoints("wild").pop().expect("a checkpoint");
    let said = format!("the last good checkpoint is runs/wild/checkpoints/{last}");
    assert!(stderr.contains("no update was made with it") && stderr.contains(&said), "{stderr}");
    let path = place.run("wild").join("checkpoints").join(last);
    let state = dahl::train::Checkpoint::read(path).expect("a whole checkpoint").state;
    assert!(state.epoch == 0 && state.steps > 0, "{state:?}");
}

#[test]
fn damaged_files_of_a_run_are_named() {
    let place = Place::new("damaged");
    let part = ["--epochs", "2", "--max-steps", "5", "--run", "a"];
    assert_eq!(place.train(&part).0, 0);
    let resume = ["train", "--resume", "a"];
    let checkpoint = place.run("a").join("checkpoints/epoch-00000-batch-0000005");
    for name in ["weights.safetensors", "optimizer.safetensors", "state.json", "SHA256SUMS"] {
        let path = checkpoint.join(name);
        let whole = fs::read(&path).expect(name);
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for damaged in [&whole[..whole.len() / 2], &flipped] {
            fs::write(&path, damaged).expect(name);
            place.check(&resume, 4, "runs/a/checkpoints/epoch-00000-batch-0000005/");
            place.check(&resume, 4, "epoch-00000-batch-0000005 to start from the beginning");
        }
        fs::remove_file(&path).expect(name);
        place.check(&resume, 4, name);
        fs::write(&path, &whole).expect(name);
    }
    let config = place.run("a").join("config.toml");
    let whole = fs::read_to_string(&config).expect("a configuration");
    for (text, expected) in [
        ("lr = 1\nepochs = [", "config.toml:2:11: configuration: expected a TOML file"),
        ("epochs = 3", "config.toml: last line: expected \"# end\": it is cut off, found epochs"),
        ("epoch = 3\n# end", "config.toml: key: expected a setting that a run keeps, found epoch"),
        ("epochs = \"many\"\n# end", "config.toml: epochs: expected a whole number, found many"),
        ("epochs = 1979-05-27\n# end", "config.toml: epochs: expected a text, a number or true"),
    ] {
        fs::write(&config, text).expect("a configuration");
        place.check(&resume, 4, expected);
    }
    // Another recipe than the checkpoint's.
    fs::write(&config, whole.replace("lr = 0.003", "lr = 0.004")).expect("a configuration");
    place.check(&resume, 4, "--lr: expected 0.003, as the run was trained with, found 0.004");
    fs::write(&config, whole).expect("a configuration");
    assert_eq!(place.dahl(&resume).0, 0);
}

#[test]
fn a_run_on_a_folder_named_by_a_relative_path_goes_on() {
    let place = Place::new("relative");
    for (class, shade) in [("dark", 40u8), ("light", 200)] {
        let folder = place.0.join("pictures").join(class);
        fs::create_dir_all(&folder).expect("a folder");
        for i in 0..6u8 {
            let pixels = [shade + 3 * i; 64];
            let picture = crate::support::png(8, 8, &pixels);
            fs::write(folder.join(format!("{i}.png")), picture).expect("a picture");
        }
    }
    let train = ["train", "--model", "small.toml", "--data", "pictures", "--batch", "3"];
    let (code, _, stderr) =
        place.dahl(&[&train[..], &["--epochs", "2", "--run", "whole"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let stopped = ["--epochs", "2", "--max-steps", "1", "--run", "parts"];
    let (code, _, stderr) = place.dahl(&[&train[..], &stopped].concat());
    assert_eq!(code, 0, "{stderr}");
    let (code, _, resumed) = place.dahl(&["train", "--resume", "parts"]);
    assert_eq!(code, 0, "{resumed}");
    // It is called as at the start.
    assert_eq!(resumed.lines().next(), stderr.lines().next());
    assert_eq!(place.gave("whole"), place.gave("parts"));
}

/// The bytes of `12.5 KiB`.
fn bytes(number: &str, unit: &str) -> f64 {
    let scale = ["B", "KiB", "MiB"].iter().position(|u| *u == unit).expect("a unit");
    number.parse::<f64>().expect("a number") * 1024f64.powi(scale as i32)
}

#[test]
fn a_run_in_less_memory_gives_the_same_bits() {
    let place = Place::new("less-memory");
    let block = r#"{ type = "conv2d", out = 8, kernel = 3, padding = 1 },
        { type = "batch_norm2d" }, { type = "relu" },"#;
    let model = format!(
        "input = [1, 8, 8]\nlayers = [{block}{block}{block}{block}\n{}]\n",
        r#"{ type = "flatten" }, { type = "dropout" }, { type = "linear", out = 10 }"#
    );
    fs::write(place.0.join("deep.toml"), model).expect("a model");
    let args = ["train", "--model", "deep.toml", "--limit", "128", "--batch", "64"];
    let train = |more: &[&str]| place.dahl(&[&args[..], &["--epochs", "1"], more].concat());
    for workers in ["1", "2"] {
        let whole = format!("whole-{workers}");
        assert_eq!(train(&["--workers", workers, "--run", &whole]).0, 0);
        let (code, _, stderr) = train(&["--workers", workers, "--memory-limit", "1KiB"]);
        assert_eq!(code, 3, "{stderr}");
        let words: Vec<&str> = stderr.split_whitespace().collect();
        let after = |word: &str| words.iter().position(|w| *w == word).expect(word) + 1;
        let needed = bytes(words[after("needs")], words[after("needs") + 1]);
        let least = after("allowed;");
        let least = bytes(words[least], words[least + 1]);
        assert!(least < 0.95 * needed, "{stderr}");
        let limit = format!("{}", ((needed + least) / 2.0) as u64);
        let less = format!("less-{workers}");
        let flags = ["--workers", workers, "--run", &less, "--memory-limit", &limit];
        let (code, _, stderr) = train(&flags);
        assert_eq!(code, 0, "{stderr}");
        assert!(stderr.contains("recomputed: ") && stderr.contains(" run again in "), "{stderr}");
        assert_eq!(place.gave(&less), place.gave(&whole), "{workers} workers");
    }
}
