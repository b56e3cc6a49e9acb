//! What ARCHITECTURE.md and the decisions say is absent, seen in the sources.

use crate::layers::sources;
use dahl::DType;
use dahl::model::{Model, Optimizer, TrainSpec};
use std::fs;
use std::path::Path;

/// The crates that run models; the command line and tests' tools may do more.
const LIBRARY: [&str; 3] = ["dahl-kernels/src", "dahl-certify/src", "dahl/src"];

/// The sources of directories below `crates`, but for tests, with their paths.
fn code(directories: &[&str]) -> Vec<(String, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for path in directories.iter().flat_map(|directory| sources(&crates.join(directory))) {
        let file = path.strip_prefix(&crates).unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
        if !file.ends_with("/tests.rs") && !file.contains("/tests/") {
            all.push((file, text));
        }
    }
    assert!(all.len() > 20, "sources are found");
    all
}

/// The lines of code, without comments, that a claim is broken by.
fn lines(directories: &[&str], breaks: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in code(directories) {
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let broken = lines.enumerate().filter(|(_, line)| breaks(&file, line));
        found.extend(broken.map(|(i, line)| format!("{file}:{}: {}", i + 1, line.trim())));
    }
    found
}

#[track_caller]
fn check_none(found: &[String]) {
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn nothing_outside_of_ops_matches_on_the_name_of_an_op() {
    let compares = |line: &str| {
        let name = line.contains("op.name()");
        let matches =
            ["op.name() ==", "op.name() !=", "op.name().starts_with", "match ", "matches!("];
        name && matches.iter().any(|way| line.contains(way))
    };
    assert!(compares("if node.op.name() == \"relu\" {") && !compares("let n = node.op.name();"));
    check_none(&lines(&["dahl/src"], |file, line| {
        !file.starts_with("dahl/src/ops/") && compares(line)
    }));
}

/// Beside `native`, whose modules hand out memory.
const UNSAFE: [&str; 6] = [
    "dahl/src/calibrate/kernel.rs",
    "dahl/src/exec/arenas.rs",
    "dahl/src/exec/messages.rs",
    "dahl/src/ops/eager.rs",
    "dahl/src/tensor/arena.rs",
    "dahl/src/tensor/array.rs",
];

#[test]
fn unsafe_code_is_where_the_architecture_says() {
    let with_unsafe = code(&["dahl/src", "dahl-certify/src", "dahl-cli/src"]).into_iter();
    let with_unsafe = with_unsafe.filter(|(_, text)| text.contains("expect(unsafe_code"));
    let files = with_unsafe.map(|(file, _)| file).filter(|f| !f.starts_with("dahl/src/native/"));
    assert_eq!(files.collect::<Vec<_>>(), UNSAFE);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let architecture = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    for file in UNSAFE {
        let name = file.trim_start_matches("dahl/src/").trim_start_matches("tensor/");
        assert!(architecture.contains(&format!("{name}`")), "{name} in ARCHITECTURE.md");
    }
}

#[test]
fn the_library_has_no_state_that_changes_and_reads_no_environment() {
    // Faults are a feature for tests; the start of the clock is set once.
    let known = ["dahl/src/os/faults.rs", "dahl/src/native/sys.rs"];
    let state = ["thread_local!", "static mut ", "env::var", "env::args"];
    let cells = ["Cell<", "Lock<", "Mutex<", ": Atomic"];
    check_none(&lines(&LIBRARY, |file, line| {
        let is_static = line.contains("static ") && cells.iter().any(|cell| line.contains(cell));
        let changes = state.iter().any(|way| line.contains(way)) || is_static;
        changes && !known.contains(&file)
    }));
}

#[test]
fn nothing_iterates_over_a_hash_map_and_the_library_prints_nothing() {
    check_none(&lines(&LIBRARY, |_, line| line.contains("HashMap") || line.contains("HashSet")));
    let prints = |line: &str| ["print!(", "println!("].iter().any(|print| line.contains(print));
    let all = [&LIBRARY[..], &["dahl-cli/src"]].concat();
    check_none(&lines(&all, |file, line| file != "dahl-cli/src/output.rs" && prints(line)));
}

/// Whether a text has a method that changes itself and gives itself back (decision 5).
fn gives_itself_back(text: &str) -> bool {
    text.split("fn ").skip(1).any(|function| {
        let signature = function.split(['{', ';']).next().unwrap_or_default();
        let own = signature.split('(').nth(1).unwrap_or_default().trim_start();
        let back = ["-> Self", "-> Result<Self"].iter().any(|back| signature.contains(back));
        own.starts_with("mut self") && back
    })
}

#[test]
fn no_method_takes_mut_self_and_gives_it_back() {
    assert!(gives_itself_back("pub fn push(mut self, k: K) -> Self { self }"));
    assert!(gives_itself_back("fn push(\n    mut self,\n    k: K,\n) -> Result<Self> {"));
    assert!(!gives_itself_back("fn push(&mut self) -> Self {} fn take(mut self) -> Idle {}"));
    let all = code(&[&LIBRARY[..], &["dahl-cli/src", "dahl-fuzz/src"]].concat());
    let found = all.into_iter().filter(|(_, text)| gives_itself_back(text));
    check_none(&found.map(|(file, _)| file).collect::<Vec<_>>());
}

/// What the compiler of decision 5 got wrong in a release build, where this runs too: of two
/// values that begin alike the second began as the first ended.
#[test]
fn a_shortcut_does_not_begin_with_the_layers_of_the_body() {
    let model = Model::sequential("m", &[4], |s| {
        s.linear(4).residual(|body| body.linear(4).relu().linear(4), |shortcut| shortcut.linear(4))
    });
    let spec = TrainSpec::new(2, DType::F32, Optimizer::sgd(0.1));
    let names: Vec<String> = model
        .lower(&spec)
        .unwrap()
        .programs
        .store
        .values
        .iter()
        .map(|value| value.name.clone())
        .filter(|name| name.ends_with("weight"))
        .collect();
    assert_eq!(names.len(), 4, "{names:?}");
}
