//! `dahl platform`.

use crate::support::{Scratch, check, dahl};
use std::fs;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../platforms");

const CPUINFO: &str = "processor\t: 0\nmodel name\t: Small CPU\nflags\t\t: avx2 fma\n\n\
    processor\t: 1\nmodel name\t: Small CPU\nflags\t\t: avx2 fma\n";

/// A directory with the files of a machine.
fn machine(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    scratch.write("proc/cpuinfo", CPUINFO.as_bytes());
    scratch.write("proc/meminfo", b"MemTotal:        8388608 kB\n");
    scratch.write("proc/sys/kernel/hostname", b"small\n");
    scratch.write("proc/driver/nvidia/gpus/0000:01:00.0/information", b"Model: NVIDIA T4\n");
    scratch
}

#[test]
fn a_machine_is_found_written_checked_and_shown() {
    let scratch = machine("platform-found");
    let root = scratch.path("");
    let (code, stdout, stderr) = dahl(&["platform", "detect", "--root", &root]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    for expected in [
        "# - a GPU is left out, because its figures are unknown: NVIDIA T4\ndahl_platform = 1\n",
        "name = \"Small CPU\"\nfrom = \"guess\"\n",
        "[[node]]\nname = \"small\"\ncount = 1\n",
        "kind = \"cpu-avx2\"\ncount = 2\nmemory = \"ram\"\nspeed = 1\n\
         busy_watts = { value = 5, low = 1, high = 15 }\n",
        "bytes = \"8 GiB\"\n",
    ] {
        assert!(stdout.contains(expected), "{expected}\nin\n{stdout}");
    }
    let file = scratch.path("found.toml");
    check(&["platform", "detect", "--root", &root, "--output", &file], 0, "", "");
    assert_eq!(fs::read_to_string(&file).expect("a file"), stdout);
    check(&["platform", "check", &file], 0, "found.toml: 1 node, 2 units\n", "");
    let (code, stdout, _) = dahl(&["platform", "show", &file]);
    assert_eq!(code, 0);
    for expected in [
        "Small CPU: 1 node, 2 units\n",
        "peak     not known\n",
        "idle     41 W (10.1 to 154)\n",
        "0 measured, 0 from data sheets (*), 6 guesses (?)\n",
    ] {
        assert!(stdout.contains(expected), "{expected}\nin\n{stdout}");
    }
}

#[test]
fn examples_are_fine_and_are_shown() {
    let mut shown = String::new();
    for entry in fs::read_dir(EXAMPLES).expect("examples") {
        let path = entry.expect("a file").path();
        let path = path.to_str().expect("a path of text");
        let (code, stdout, stderr) = dahl(&["platform", "check", path]);
        assert_eq!((code, stderr.as_str(), stdout.lines().count()), (0, "", 1), "{stdout}");
        shown += &dahl(&["platform", "show", path]).1;
    }
    assert!(shown.contains("cluster of ten thousand: 10,000 nodes of 4 kinds, 546,000 units\n"));
    assert!(shown.contains("lab: 6 nodes of 3 kinds, 59 units\n"), "{shown}");
}

#[test]
fn what_is_wrong_has_its_line() {
    let scratch = Scratch::new("platform-wrong");
    let lab = fs::read_to_string(format!("{EXAMPLES}/lab.toml")).expect("an example");
    let wrong = lab.replacen("value = 8,", "value = -8,", 1).replacen("count = 4", "count = 0", 1);
    let file = scratch.write("wrong.toml", wrong.as_bytes());
    let line = |text: &str| 1 + wrong.lines().position(|line| line.contains(text)).expect("there");
    let error = format!(
        "error: {file}:{}: node \"laptop\": base_watts: value: expected watts from 0 to 1e9, found -8\n       \
         {file}:{}: node \"laptop\": unit \"core\": count: expected a whole number from 1 to 10000000, found 0\n",
        line("value = -8,"),
        line("count = 0")
    );
    for command in ["check", "show"] {
        assert_eq!(dahl(&["platform", command, &file]), (4, String::new(), error.clone()));
    }
    let alone = lab.replacen("[\"laptop\", \"desktop\", \"old server\"]", "[\"laptop\"]", 1);
    let file = scratch.write("alone.toml", alone.as_bytes());
    check(&["platform", "check", &file], 0, "found none from \"laptop\" to \"desktop\"\n", "");
}

#[test]
fn the_command_line_is_refused_by_its_codes() {
    let scratch = Scratch::new("platform-usage");
    check(&["platform", "show", "/nowhere/lab.toml"], 4, "", "error: /nowhere/lab.toml: ");
    check(&["platform", "show"], 2, "", "<FILE>");
    check(&["platform", "draw", "lab.toml"], 2, "", "draw");
    check(&["platform", "detect", "--root", &scratch.path("")], 2, "", "not supported: ");
    let machine = machine("platform-output");
    let args = ["platform", "detect", "--root", &machine.path(""), "--output", "/nowhere/a.toml"];
    check(&args, 2, "", "output: expected a file in a directory that is there");
    check(&["platform", "--help"], 0, "dahl platform detect --output here.toml", "");
    check(&["platform", "detect", "--help"], 0, "sudo dahl platform detect", "");
}
