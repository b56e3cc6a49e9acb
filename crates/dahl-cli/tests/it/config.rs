//! `--config`, `DAHL_*` and the recipe of `dahl train`.

use std::path::PathBuf;
use std::process::Command;

/// A directory of one test, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dahl-config-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    /// Runs `dahl` in the directory: code, standard output, standard error.
    fn dahl(&self, line: &str, variables: &[(&str, &str)]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dahl"));
        command.args(line.split(' ')).current_dir(&self.0).envs(variables.iter().copied());
        let output = command.output().expect("dahl runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code().expect("a code"), text(output.stdout), text(output.stderr))
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), bytes).expect("a temporary file");
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The numbers of the last epoch: all but times.
fn last(stdout: &str) -> serde_json::Value {
    let line = stdout.lines().last().expect("a line");
    let mut value: serde_json::Value = serde_json::from_str(line).expect("JSON");
    for key in ["seconds", "samples_per_second", "time"] {
        value.as_object_mut().expect("an object").remove(key);
    }
    value
}

const FLAGS: &str = "train --limit 60 --epochs 2 --batch 20 --optimizer sgd --momentum 0.9 \
                     --weight-decay 0.001 --schedule warmup:0.5+cosine --clip 1 --crop 1 \
                     --validation 0.25 --json";

#[test]
fn flags_variables_and_keys_give_the_same_run() {
    let here = Directory::new("same");
    let (code, flags, stderr) = here.dahl(FLAGS, &[]);
    assert_eq!((code, flags.lines().count()), (0, 2), "{stderr}");
    let numbers = last(&flags);
    assert!(numbers["validation_loss"].is_f64() && numbers["test_accuracy"].is_f64(), "{flags}");
    here.write(
        "run.toml",
        "limit = 60\nbatch = 20\njson = true\n[train]\nepochs = 2\noptimizer = 'sgd'\n\
         momentum = 0.9\nweight-decay = 0.001\nschedule = 'warmup:0.5+cosine'\nclip = 1\n\
         crop = 1\nvalidation = 0.25\n",
    );
    let (code, file, stderr) = here.dahl("train --config run.toml", &[]);
    assert_eq!((code, last(&file)), (0, numbers.clone()), "{stderr}");
    let variables = [("DAHL_CONFIG", "run.toml"), ("DAHL_QUIET", "1"), ("DAHL_EPOCHS", "1")];
    let (code, both, stderr) = here.dahl("train --epochs 2", &variables);
    assert_eq!((code, both.lines().count(), stderr.as_str()), (0, 1, ""), "the last epoch alone");
    assert_eq!(last(&both), numbers);
}

#[test]
fn every_part_of_the_recipe_changes_the_run() {
    let here = Directory::new("recipe");
    let run = |line: &str| {
        let (code, stdout, stderr) = here.dahl(line, &[]);
        assert_eq!(code, 0, "{line}: {stderr}");
        last(&stdout)
    };
    let all = run(FLAGS);
    for part in [
        "--momentum 0.9",
        "--weight-decay 0.001",
        "--schedule warmup:0.5+cosine",
        "--clip 1",
        "--crop 1",
        "--validation 0.25",
    ] {
        let without = FLAGS.replace(part, "").replace("  ", " ");
        assert_ne!(run(&without), all, "without {part}");
    }
    assert_ne!(run(&format!("{FLAGS} --nesterov")), all);
    assert_ne!(run(&format!("{FLAGS} --flip")), all);
}

#[test]
fn what_is_wrong_ends_with_code_2() {
    let here = Directory::new("wrong");
    here.write("run.toml", "batch = 20\nepoch = 3\n");
    here.write("bytes.toml", b"\xff\xfe");
    let check = |line: &str, variables: &[(&str, &str)], expected: &str| {
        let (code, stdout, stderr) = here.dahl(line, variables);
        assert_eq!((code, stdout.as_str()), (2, ""), "{line}: {stderr}");
        assert!(stderr.contains(expected), "{line}: {stderr}");
    };
    let near = "error: run.toml:2:1: epoch: unknown key; expected a key of dahl, such as epochs";
    check("train --config run.toml", &[], near);
    check("--config run.toml models", &[], near);
    check("train --config none.toml", &[], "error: none.toml: No such file");
    check("train --config bytes.toml", &[], "error: bytes.toml: expected text in UTF-8");
    check("train", &[("DAHL_SEEDS", "1")], "error: DAHL_SEEDS: no command has such a flag");
    check("train", &[("DAHL_SEED", "x")], "error: DAHL_SEED: expected a whole number");
    check(
        "train --momentum 0.9",
        &[],
        "error: --momentum cannot be combined with --optimizer adam",
    );
    check("train --schedule linear", &[], "expected constant, step:EPOCHS:FACTOR");
    check("eval --batch 3", &[("DAHL_BATCH", "4")], "--weights <FILE>");
}

#[test]
fn a_required_flag_may_come_from_the_file() {
    let here = Directory::new("required");
    let (code, _, stderr) = here.dahl("train --limit 50 --epochs 1 --quiet --save w", &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    here.write("run.toml", "weights = 'w'\nquiet = true\n");
    let (code, stdout, stderr) = here.dahl("eval --config run.toml", &[]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("(359 samples)"), "{stdout}");
}

#[test]
fn checks_of_data_do_not_depend_on_workers() {
    let here = Directory::new("check");
    for class in ["a", "b"] {
        std::fs::create_dir_all(here.0.join("pets").join(class)).expect("a directory");
        for i in 0..50 {
            here.write(&format!("pets/{class}/{i}.png"), format!("no image {i}"));
        }
    }
    let one = here.dahl("data pets --check --workers 1", &[]);
    assert_eq!(one.0, 4, "{}", one.2);
    assert!(one.1.contains("80 samples, 80 wrong"), "{}", one.1);
    assert_eq!(here.dahl("data pets --check --workers 3", &[]), one);
    let (code, stdout, _) = here.dahl("data pets --check --json", &[]);
    let lines: Vec<serde_json::Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((code, &lines[1]["wrong"]), (4, &20.into()), "{stdout}");
    assert!(lines[0]["problems"][0]["place"].is_string(), "{stdout}");
    let (code, stdout, _) = here.dahl("data digits --json", &[]);
    assert_eq!((code, &last(&stdout)["samples"]), (0, &359.into()), "{stdout}");
}
