//! Precedence, and everything that can be wrong.

use super::*;
use crate::Cli;
use clap::CommandFactory;

/// Completes a command line, with a file's text in place of a file.
fn line(args: &str, variables: &[(&str, &str)], text: &str) -> Result<Vec<String>, String> {
    let path = std::env::temp_dir().join(format!(
        "dahl-config-{}-{:?}.toml",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&path, text).expect("a temporary file");
    let mut args: Vec<OsString> = args.split(' ').map(OsString::from).collect();
    args.extend(["--config".into(), path.clone().into()]);
    let variables: Vec<_> = variables.iter().map(|(k, v)| ((*k).to_owned(), v.into())).collect();
    let result = complete(&Cli::command(), &args, &variables);
    std::fs::remove_file(&path).expect("the temporary file");
    match result {
        Ok(all) => {
            let added = all[args.len()..].iter();
            Ok(added.map(|arg| arg.to_string_lossy().into_owned()).collect())
        }
        Err(Failure::CommandLine(error)) => Err(error.to_string()),
        Err(Failure::Setting(error)) => Err(error.replace(&path.display().to_string(), "run.toml")),
    }
}

#[track_caller]
fn adds(args: &str, variables: &[(&str, &str)], text: &str, expected: &[&str]) {
    assert_eq!(line(args, variables, text).expect("a command line"), expected);
}

#[track_caller]
fn fails(args: &str, variables: &[(&str, &str)], text: &str, expected: &str) {
    assert_eq!(line(args, variables, text).expect_err("an error"), expected);
}

#[test]
fn a_flag_goes_before_a_variable_before_a_table_before_the_file() {
    let text = "epochs = 1\n[train]\nepochs = 2\n";
    let variable = [("DAHL_EPOCHS", "3")];
    adds("dahl train", &[], "epochs = 1", &["--epochs=1"]);
    adds("dahl train", &[], text, &["--epochs=2"]);
    adds("dahl train", &variable, text, &["--epochs=3"]);
    adds("dahl train --epochs 4", &variable, text, &[]);
    adds("dahl train", &[("DAHL_EPOCHS", "")], text, &["--epochs=2"]);
}

#[test]
fn values_are_written_as_toml_has_them() {
    let text = "model = 'my model.toml'\nlr = 1e-3\nseed = 0x10\nbatch = 1_000\nquiet = true\n";
    let expected = ["--model=my model.toml", "--lr=1e-3", "--seed=16", "--batch=1000", "--quiet"];
    adds("dahl train", &[], text, &expected);
    adds("dahl train", &[("DAHL_QUIET", "0")], text, &expected[..4]);
    adds("dahl train", &[("DAHL_QUIET", "1")], "quiet = false", &["--quiet"]);
    adds("dahl train", &[], "quiet = false", &[]);
    let repeated = "tensor = ['a', 'b']";
    adds("dahl diff x y", &[], repeated, &["--tensor=a", "--tensor=b"]);
}

#[test]
fn keys_of_other_commands_are_left_alone() {
    let text = "weights = 'w'\nbatch = 7\n[plan]\nbatch = 3\n[eval]\nworkers = 2\n";
    adds("dahl train", &[("DAHL_WEIGHTS", "x")], text, &["--batch=7"]);
    adds("dahl eval", &[], text, &["--workers=2", "--weights=w", "--batch=7"]);
    adds("dahl plan lenet", &[], text, &["--batch=3"]);
    // `data` is a flag and a command.
    adds("dahl data digits", &[], "[data]\nlimit = 3\n", &["--limit=3"]);
    adds("dahl train", &[], "data = 'mnist'", &["--data=mnist"]);
}

#[test]
fn an_unknown_key_is_told_with_its_place_and_the_nearest_one() {
    fails(
        "dahl train",
        &[],
        "batch = 2\n  epoch = 3\n",
        "run.toml:2:3: epoch: unknown key; expected a key of dahl, such as epochs",
    );
    fails(
        "dahl train",
        &[],
        "[eval]\nweight = 'x'\n",
        "run.toml:2:1: weight: unknown key; expected a key of dahl eval, such as weights",
    );
    fails(
        "dahl train",
        &[],
        "[trian]\nepochs = 2\n",
        "run.toml:1:2: trian: unknown key; expected a key of dahl, such as train",
    );
    fails(
        "dahl train",
        &[("DAHL_EPOCH", "3")],
        "",
        "DAHL_EPOCH: no command has such a flag; did you mean DAHL_EPOCHS?",
    );
}

#[test]
fn a_wrong_value_is_told_with_its_place() {
    let file = |text: &str, expected: &str| fails("dahl train", &[], text, expected);
    file("epochs = 0", "run.toml:1:10: epochs: expected at least 1, found 0");
    file("a = [\n", "run.toml:1:6: expected a TOML file: unclosed array, expected `]`");
    file("epochs = 'two'", "run.toml:1:10: epochs: expected a whole number, found 'two'");
    file("epochs = [1]", "run.toml:1:10: epochs: expected a text or a number, found [1]");
    file("epochs = true", "run.toml:1:10: epochs: expected a text or a number, found true");
    file("quiet = 1", "run.toml:1:9: quiet: expected true or false, found 1");
    file("\n[train]\nlr = 'x'", "run.toml:3:6: lr: expected a number from 0 on, found 'x'");
    file("optimizer = 'x'", "run.toml:1:13: optimizer: expected sgd, adam, adamw, found 'x'");
    file("epochs = 1\nepochs = 2", "run.toml:2:1: expected a TOML file: duplicate key");
    let variable =
        |name, value, expected: &str| fails("dahl train", &[(name, value)], "", expected);
    variable("DAHL_EPOCHS", "x", "DAHL_EPOCHS: expected a whole number, found \"x\"");
    variable("DAHL_QUIET", "x", "DAHL_QUIET: expected true or false, found \"x\"");
    // Wrong in the file, although a flag goes first.
    fails(
        "dahl train --epochs 3",
        &[],
        "epochs = 0",
        "run.toml:1:10: epochs: expected at least 1, found 0",
    );
}

#[test]
fn flags_that_conflict() {
    let command = || {
        let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let config = Arg::new("config").long("config").value_parser(clap::value_parser!(PathBuf));
        let sub = Command::new("go").arg(switch("fast").conflicts_with("safe")).arg(switch("safe"));
        Command::new("dahl").arg(config.global(true)).subcommand(sub)
    };
    let line = |args: &[&str], variables: &[(&str, &str)]| {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let variables: Vec<_> =
            variables.iter().map(|(k, v)| ((*k).to_owned(), v.into())).collect();
        complete(&command(), &args, &variables).map(|all| all.len())
    };
    // The one of the higher level is taken.
    assert_eq!(line(&["dahl", "go", "--safe"], &[("DAHL_FAST", "1")]).expect("a line"), 3);
    let both = [("DAHL_FAST", "1"), ("DAHL_SAFE", "1")];
    let error = line(&["dahl", "go"], &both).expect_err("a conflict");
    let expected = "DAHL_SAFE: safe cannot be combined with fast (DAHL_FAST)";
    assert!(matches!(error, Failure::Setting(text) if text == expected));
}

#[test]
fn a_file_that_cannot_be_read() {
    let args = ["dahl", "train", "--config", "/nowhere/run.toml"].map(OsString::from);
    let error = complete(&Cli::command(), &args, &[]).expect_err("an error");
    assert!(matches!(error, Failure::Setting(text) if text.starts_with("/nowhere/run.toml: ")));
}

#[test]
fn damaged_files_never_panic() {
    let mut root = Cli::command();
    root.build();
    let of = root.find_subcommand("train").expect("train");
    let text = "# a run\nmodel = \"lenet\"\nlr = 1e-3\nbatch = 0x20\nquiet = true\nsave = 'ü'\n\
                [train]\nepochs = 3\n[diff]\ntensor = [\"a\", \"b\"]\n";
    let try_text = |text: &str| {
        let settings = file::File { path: "run.toml", text }.settings(&root, of);
        let checked = settings.map_err(Failure::Setting).and_then(|levels| {
            levels.iter().flatten().try_for_each(|setting| check(&root, "train", setting))
        });
        if let Err(error) = checked {
            assert!(
                matches!(&error, Failure::Setting(e) if e.starts_with("run.toml:")),
                "{error:?}"
            );
        }
    };
    for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
        try_text(&text[..end]);
    }
    for i in 0..1000 {
        let at = dahl_random(i, 0) as usize % text.len();
        let mut bytes = text.as_bytes().to_vec();
        bytes[at] ^= 1 << (dahl_random(i, 1) % 8);
        try_text(&String::from_utf8_lossy(&bytes));
    }
}

/// A hash: numbers that look random and are the same every time.
fn dahl_random(i: u64, purpose: u64) -> u64 {
    let x = (i << 1 | purpose).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

/// Every value of a file is tried on a copy of all flags, of about 1 MiB.
#[test]
fn fuzz_configuration() {
    use dahl_fuzz::{Bound, Case, Target};
    let read = |_: &Case, place: &std::path::Path| {
        let args =
            ["dahl".into(), "train".into(), "--config".into(), place.join("input.toml").into()];
        let line = complete(&Cli::command(), &args, &[]);
        line.is_ok_and(|line| Cli::command().try_get_matches_from(line).is_ok())
    };
    dahl_fuzz::fuzz!(Target {
        format: "configuration",
        peak: Bound { times: 300, plus: 8 << 20 },
        total: Bound { times: 1 << 17, plus: 32 << 20 },
        few: 60,
        made: Vec::new,
        repair: |_| {},
        read,
    });
}
