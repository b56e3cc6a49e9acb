//! Arrows between modules and crates point down only.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the crate by row, lowest first. A module uses lower rows and
/// itself; what is missing here has no place yet.
const ROWS: [(usize, &[&str]); 15] = [
    (0, &["error", "names", "os", "units"]),
    (1, &["tensor", "compare", "file"]),
    (2, &["data", "ops", "platform"]),
    (3, &["graph"]),
    (4, &["trace"]),
    (5, &["perf", "meter"]),
    (6, &["model", "plan"]),
    (7, &["sched"]),
    (8, &["exec"]),
    (9, &["native", "sim"]),
    (10, &["planner", "calibrate"]),
    (11, &["choose"]),
    (12, &["train", "verify"]),
    (13, &["run"]),
    (14, &["report"]),
];

/// Rows 0 and 12 have an order of their own: errors carry quantities, texts that are no name
/// are errors, and golden cases of whole runs are trained.
const WITHIN: [(&str, &str); 3] = [("error", "units"), ("names", "error"), ("verify", "train")];

fn row(module: &str) -> Option<usize> {
    ROWS.iter().find(|(_, modules)| modules.contains(&module)).map(|(row, _)| *row)
}

/// The modules that a text names through `crate::`, with their lines; a list may be nested and
/// have several lines.
fn named(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or(""));
    let code = lines.collect::<Vec<_>>().join("\n");
    let word = |at: usize| -> (usize, String) {
        let word = code[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        (code[..at].matches('\n').count() + 1, word)
    };
    let mut found = Vec::new();
    for (at, path) in code.match_indices("crate::") {
        let begin = at + path.len();
        let Some(list) = code[begin..].strip_prefix('{') else {
            found.push(word(begin));
            continue;
        };
        let (mut depth, mut item_begins) = (1, true);
        for (i, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => item_begins = true,
                c if item_begins && !c.is_whitespace() => {
                    found.push(word(begin + 1 + i));
                    item_begins = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    // What starts with a capital is re-exported from the bottom rows.
    found.retain(|(_, name)| name.starts_with(|c: char| c.is_ascii_lowercase()));
    found
}

/// The arrows of a module's text that do not point down.
fn arrows_up(module: &str, file: &str, text: &str) -> Vec<String> {
    let Some(from) = row(module) else {
        return vec![format!("{file}: module {module} has no row in tests/it/layers.rs")];
    };
    let mut wrong = Vec::new();
    for (line, to) in named(text) {
        match row(&to) {
            Some(row) if row < from || to == module => {}
            Some(_) if WITHIN.contains(&(module, &to)) => {}
            Some(row) => {
                wrong.push(format!("{file}:{line}: {module} (row {from}) uses {to} (row {row})"));
            }
            None => wrong.push(format!("{file}:{line}: {to} has no row")),
        }
    }
    wrong
}

pub(crate) fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[test]
fn modules_use_only_lower_rows() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for path in sources(&src) {
        let inside = path.strip_prefix(&src).unwrap();
        let first = inside.iter().next().unwrap().to_string_lossy();
        let module = first.trim_end_matches(".rs");
        if module != "lib" {
            let text = fs::read_to_string(&path).unwrap();
            wrong.extend(arrows_up(module, &inside.to_string_lossy(), &text));
        }
    }
    assert!(wrong.is_empty(), "arrows that point up:\n{}", wrong.join("\n"));
}

/// Front ends add the flags: the library knows settings.
#[test]
fn no_text_of_the_library_names_a_flag() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let flag = |line: &str| {
        let mut flags = line.match_indices("--");
        flags.any(|(at, _)| line[at + 2..].starts_with(|c: char| c.is_ascii_lowercase()))
    };
    let is_test =
        |path: &Path| path.strip_prefix(&src).unwrap().to_string_lossy().contains("tests");
    for path in sources(&src).iter().filter(|path| !is_test(path)) {
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let named = code.lines().find(|line| !line.trim_start().starts_with("//") && flag(line));
        assert_eq!(named, None, "{}", path.display());
    }
}

#[test]
fn an_arrow_that_points_up_is_seen() {
    let check = |module: &str, line: &str, expected: &[&str]| {
        assert_eq!(arrows_up(module, "a.rs", line), expected, "{line}");
    };
    check("plan", "use crate::graph::Graph;", &[]);
    check("plan", "use crate::plan::Home; // crate::native", &[]);
    check("plan", "use crate::Result;", &[]);
    check("plan", "use crate::native::Native;", &["a.rs:1: plan (row 6) uses native (row 9)"]);
    check("plan", "\nlet x = crate::model::f();", &["a.rs:2: plan (row 6) uses model (row 6)"]);
    check("ops", "use crate::{units, sched::Ready};", &["a.rs:1: ops (row 2) uses sched (row 7)"]);
    let nested = "use crate::{\n    graph::{Graph, run}, // a list\n    error::{\n        Error,\n    },\n    sched,\n};";
    check(
        "ops",
        nested,
        &["a.rs:2: ops (row 2) uses graph (row 3)", "a.rs:6: ops (row 2) uses sched (row 7)"],
    );
    check("ops", "use crate::cache::Cache;", &["a.rs:1: cache has no row"]);
    check("cache", "", &["a.rs: module cache has no row in tests/it/layers.rs"]);
}

/// Calls that go around `os`, where each can be made to fail.
const AROUND: [&str; 14] = [
    "fs::File",
    "fs::OpenOptions",
    "fs::copy",
    "fs::create",
    "fs::hard_link",
    "fs::read",
    "fs::remove",
    "fs::rename",
    "fs::write",
    "fs::{",
    "thread::Builder",
    "thread::spawn",
    "scope.spawn",
    ".spawn_scoped",
];

/// What reads datasets: its files are many and none of them dahl's own, its threads are as all others.
const DATASETS: &str = "dahl/src/data/";

/// What reads the system's own files, and the models of loom.
const ELSEWHERE: [&str; 8] = [
    "dahl/src/meter/battery.rs",
    "dahl/src/meter/rapl.rs",
    "dahl/src/native/loom.rs",
    "dahl/src/native/sys.rs",
    "dahl/src/platform/detect.rs",
    "dahl/src/platform/root.rs",
    "dahl/src/calibrate/host.rs",
    "dahl-cli/src/platform/measure.rs",
];

/// The lines of a file's text, but for its tests, that go around `os`.
fn around(file: &str, text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().enumerate().filter(|(_, line)| {
        let code = line.split("//").next().unwrap_or_default();
        let reads = |call: &str| call.starts_with("fs::") && file.starts_with(DATASETS);
        let mut calls = AROUND.iter().filter(|call| code.contains(**call));
        calls.any(|call| !reads(call)) && !code.contains("/proc/self/")
    });
    lines.map(|(i, line)| format!("{file}:{}: {}", i + 1, line.trim())).collect()
}

#[test]
fn files_and_threads_go_through_os() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    for path in ["dahl/src", "dahl-cli/src"].iter().flat_map(|src| sources(&crates.join(src))) {
        let file = path.strip_prefix(&crates).unwrap().to_string_lossy().replace('\\', "/");
        let tests = file.ends_with("/tests.rs") || file.contains("/tests/");
        let own = file.starts_with("dahl/src/os");
        if !tests && !own && !ELSEWHERE.iter().any(|known| file.starts_with(known)) {
            wrong.extend(around(&file, &fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(wrong.is_empty(), "calls that cannot be made to fail:\n{}", wrong.join("\n"));
    let line = "use std::fs::{self, File};";
    assert_eq!(around("a.rs", line), [format!("a.rs:1: {line}")]);
    assert_eq!(around("a.rs", "scope.spawn(f); // why"), ["a.rs:1: scope.spawn(f); // why"]);
    let data = "dahl/src/data/a.rs";
    assert!(around(data, line).is_empty());
    assert_eq!(around(data, "scope.spawn(f);"), [format!("{data}:1: scope.spawn(f);")]);
    let tests = "disk::read(path)\n#[cfg(test)]\nmod tests { fs::read(path) }";
    assert!(around("a.rs", tests).is_empty());
}

/// The crates of the workspace that a crate may depend on.
const CRATES: [(&str, &[&str]); 5] = [
    ("dahl-kernels", &[]),
    // The checker of proofs shares nothing with the planner but the data.
    ("dahl-certify", &[]),
    ("dahl", &["dahl-certify", "dahl-kernels"]),
    ("dahl-fuzz", &["dahl"]),
    // The fuzz targets of what only the command line reads are among its tests.
    ("dahl-cli", &["dahl", "dahl-certify", "dahl-kernels", "dahl-fuzz"]),
];

#[test]
fn crates_depend_on_lower_crates_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut members: Vec<String> = fs::read_dir(&crates)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    members.sort();
    for member in members {
        let allowed = CRATES.iter().find(|(name, _)| *name == member);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{member} has no place in CRATES"));
        let text = fs::read_to_string(crates.join(&member).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
        let mut named: Vec<String> = Vec::new();
        for table in tables {
            let table = manifest.get(table).and_then(toml::Value::as_table);
            named.extend(table.into_iter().flat_map(|t| t.keys().cloned()));
        }
        for name in named.iter().filter(|name| name.starts_with("dahl")) {
            assert!(allowed.contains(&name.as_str()), "{member} depends on {name}");
        }
    }
}
