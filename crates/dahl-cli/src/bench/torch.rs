//! A Python with PyTorch as the other side of a measurement.

use super::measure::Timing;
use dahl::os::threads::spawn;
use dahl::{Error, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SIDE: &str = include_str!("torch_side.py");

/// The ways in which PyTorch can run a network.
pub(super) const MODES: [&str; 4] = ["eager", "channels_last", "nomkldnn", "compile"];

/// The measurement on PyTorch's side.
#[derive(Clone, Copy)]
pub(super) struct Setup<'a> {
    /// The network as a Python module.
    pub(super) module: &'a str,
    pub(super) batch: usize,
    pub(super) classes: usize,
    pub(super) dtype: &'a str,
    pub(super) threads: usize,
    pub(super) mode: &'a str,
}

/// A running Python. It ends when this is dropped.
pub(super) struct Torch {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    pub(super) version: String,
}

/// The Python that has PyTorch: the one that is given, else the first in the path.
///
/// # Errors
/// Where none has, with what was tried.
pub(super) fn find(given: Option<&Path>) -> Result<PathBuf> {
    let active = std::env::var_os("VIRTUAL_ENV").map(|v| PathBuf::from(v).join("bin/python"));
    let names = ["python3", "python"].map(PathBuf::from);
    let tried: Vec<PathBuf> = match given {
        Some(path) => vec![path.to_owned()],
        None => active.into_iter().chain(names).collect(),
    };
    let has = |python: &&PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import torch"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    tried.iter().find(has).cloned().ok_or_else(|| {
        let tried: Vec<String> = tried.iter().map(|p| p.display().to_string()).collect();
        let found = format!(
            "no PyTorch in {}; install it by pip, or name another with --python",
            tried.join(", ")
        );
        Error::config("python", "a Python with PyTorch", found)
    })
}

impl Torch {
    /// Starts a Python for one setup; where PyTorch cannot run it so, what it says.
    pub(super) fn start(
        python: &Path,
        setup: Setup<'_>,
    ) -> Result<std::result::Result<Self, String>> {
        let io = |source| Error::Io { path: python.to_owned(), source };
        let mut child = Command::new(python)
            .args(["-c", SIDE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(io)?;
        let said = child.stderr.take().and_then(|stderr| {
            let lines = BufReader::new(stderr).lines().map_while(std::io::Result::ok);
            spawn("dahl-python", move || lines.filter(|line| !line.is_empty()).last()).ok()
        });
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map(BufReader::new);
        let Some(stdout) = stdout else {
            return Err(Error::config("python", "a Python with PyTorch", "no output"));
        };
        let mut torch = Self { child, stdin, stdout, version: String::new() };
        let Setup { module, batch, classes, dtype, threads, mode } = setup;
        let answer = torch.ask(&json!({ "setup": {
            "module": module, "batch": batch, "classes": classes, "dtype": dtype,
            "threads": threads, "mode": mode,
        }}));
        let Ok(answer) = answer else {
            // It has gone, out of memory say.
            drop(torch);
            let last = said.and_then(|said| said.join().ok().flatten());
            return Ok(Err(last.unwrap_or_else(|| "it ended without output".to_owned())));
        };
        if let Some(error) = answer.get("error") {
            return Ok(Err(error.as_str().unwrap_or_default().to_owned()));
        }
        answer["version"].as_str().unwrap_or_default().clone_into(&mut torch.version);
        Ok(Ok(torch))
    }

    /// The time of so many steps.
    pub(super) fn run(&mut self, steps: u64) -> Result<Timing> {
        let answer = self.ask(&json!({ "run": steps }))?;
        match (answer["wall"].as_f64(), answer["cpu"].as_f64()) {
            (Some(wall), Some(cpu)) => {
                Ok(Timing { wall: wall / steps as f64, cpu: cpu / steps as f64 })
            }
            _ => Err(Error::config("python", "the time of some steps", answer)),
        }
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        let gone = |source| Error::Io { path: "python".into(), source };
        if let Some(stdin) = &mut self.stdin {
            writeln!(stdin, "{request}").and_then(|()| stdin.flush()).map_err(gone)?;
        }
        let mut line = String::new();
        self.stdout.read_line(&mut line).map_err(gone)?;
        serde_json::from_str(&line)
            .map_err(|_| Error::config("python", "an answer", format!("{line:?}")))
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.stdin = None;
        let _ = self.child.wait();
    }
}
