//! Tells the binary which commit it was built from.

use std::path::Path;
use std::process::Command;

/// What the binary is made of. A change of it builds the binary anew anyway, so
/// looking at git again costs nothing.
const SOURCES: [&str; 9] = [
    "build.rs",
    "Cargo.toml",
    "src",
    "../dahl/Cargo.toml",
    "../dahl/src",
    "../dahl-kernels/Cargo.toml",
    "../dahl-kernels/src",
    "../../Cargo.toml",
    "../../Cargo.lock",
];

fn main() {
    // A package outside of the repository may lie within another one: the commit
    // counts only where this very file is tracked.
    let tracked = git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    let commit = if tracked { git(&["rev-parse", "HEAD"]) } else { None };
    // What is built from other sources than the commit's says so.
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let changed = git(&[&status[..], &SOURCES].concat());
    let dirty = if changed.is_some_and(|files| !files.is_empty()) { "-dirty" } else { "" };
    let commit = commit.map(|commit| commit + dirty);
    // Not DAHL_…: cargo sets it for what it runs, and those are flags.
    println!("cargo::rustc-env=BUILD_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    for path in SOURCES.iter().filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file]);
        if let Some(path) = path.filter(|path| tracked && Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// What git says, where it is installed and has something to say.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
