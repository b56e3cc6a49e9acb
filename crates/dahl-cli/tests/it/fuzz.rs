//! A run's directory of another person: every command that takes one reads or refuses it.

use crate::support::Scratch;
use dahl_fuzz::{Bound, Case, Target, fuzz};
use std::path::Path;
use std::process::Command;

/// Address space that a command may take, in KiB; threads and their stacks are in it.
const LIMIT: &str = "1500000";

/// The commands, on a run that is called `now`.
const COMMANDS: [&[&str]; 5] = [
    &["train", "--resume", "./now", "--max-steps", "3", "--max-time", "5s", "--quiet"],
    &["eval", "--run", "./now", "--limit", "4"],
    &["stats", "./now", "--shapes"],
    &["report", "./now", "-o", "report.html"],
    &["trace", "./now", "--format", "csv", "-o", "trace.csv"],
];

/// A run as it is written now: plans are refused by other versions of the programs.
fn runs() -> Vec<Case> {
    let scratch = Scratch::new("fuzz-run");
    scratch.write(
        "model.toml",
        b"input = [1, 2, 3]\nlayers = [{ type = \"flatten\" }, { type = \"linear\", out = 2 }]\n",
    );
    let args = "train --model model.toml --data synthetic:1x2x3:2 --limit 8 --batch 4 --epochs 1 \
                --optimizer sgd --isa portable --workers 1 --trace --quiet --run ./all/run";
    let place = scratch.path("");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dahl"));
    let output = command.current_dir(&place).args(args.split_whitespace()).output();
    let output = output.expect("dahl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Case::all(Path::new(&scratch.path("all")))
}

#[test]
fn a_run_directory_that_was_changed_is_read_or_refused() {
    let read = |case: &Case, place: &Path| {
        // Each case is for one command, so that a kept one stays what it was.
        let args = COMMANDS[case.len() % COMMANDS.len()];
        let mut command = Command::new("sh");
        command.current_dir(place.parent().expect("a directory above"));
        command.args(["-c", &format!("ulimit -v {LIMIT}; exec \"$@\""), "sh"]);
        command.arg(env!("CARGO_BIN_EXE_dahl")).args(args);
        let output = command.output().expect("a shell");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code().is_some_and(|code| code <= 5), "{args:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
        output.status.success()
    };
    // The memory is that of another process, which has its limit.
    let none = Bound { times: 16, plus: 1 << 20 };
    fuzz!(Target {
        format: "run_directory",
        peak: none,
        total: none,
        few: 8,
        made: runs,
        repair: |_| {},
        read,
    });
}
