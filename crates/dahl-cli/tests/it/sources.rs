//! What the sources of the command line must look like.

use std::fs;
use std::path::PathBuf;

/// The names of all source files with their texts.
fn sources() -> Vec<(String, String)> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let (mut open, mut all) = (vec![PathBuf::from(root)], Vec::new());
    while let Some(path) = open.pop() {
        if let Ok(entries) = fs::read_dir(&path) {
            open.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            all.push((path.display().to_string(), text));
        }
    }
    assert!(all.len() > 40, "{}", all.len());
    all
}

/// Texts that do not go through `output.rs` are not escaped.
#[test]
fn no_other_module_writes_to_a_stream() {
    // The view of the whole terminal draws with escape sequences.
    const DRAWING: [&str; 3] = ["output.rs", "live/screen.rs", "live/tui.rs"];
    // Whoever looks what a stream is writes nothing.
    const LOOKING: [&str; 5] =
        ["of_stdout()", "of_stderr()", "on_stderr()", "is_terminal()", "terminal_size_of("];
    for (name, text) in sources() {
        if DRAWING.iter().any(|drawing| name.ends_with(&format!("/src/{drawing}"))) {
            continue;
        }
        let writes = |line: &&str| line.contains("stdout()") || line.contains("stderr()");
        for line in text.lines().filter(writes) {
            assert!(LOOKING.iter().any(|part| line.contains(part)), "{name}: {line}");
        }
    }
}

/// A function ends where the first line has its indentation and closes a block.
#[test]
fn no_function_is_longer_than_80_lines() {
    for (name, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            let is_function = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn "];
            if !is_function.iter().any(|start| code.starts_with(start)) {
                continue;
            }
            let end = format!("{}}}", &line[..line.len() - code.len()]);
            let length = 1 + lines[at..].iter().position(|line| *line == end).unwrap_or(0);
            assert!(length <= 80, "{name}:{}: {length} lines", at + 1);
        }
    }
}
