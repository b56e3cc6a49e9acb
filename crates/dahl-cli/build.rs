//! Tells the binary which commit it was built from.

use std::path::Path;
use std::process::Command;

fn main() {
    // A package outside of the repository may lie within another one: the commit
    // counts only where this very file is tracked.
    let tracked = git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    let commit = if tracked { git(&["rev-parse", "HEAD"]) } else { None };
    // Not DAHL_…: cargo sets it for what it runs, and those are flags.
    println!("cargo::rustc-env=BUILD_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo::rerun-if-changed=build.rs");
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
