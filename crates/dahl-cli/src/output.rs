//! Where results and errors go, and what the process says when it ends.

use dahl::Error;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// The answer is no: the tensors differ.
pub(crate) const DIFFERENT: u8 = 1;
/// The run failed.
pub(crate) const FAILED: u8 = 1;
/// The command line makes no sense.
pub(crate) const USAGE: u8 = 2;
/// There is no plan that fits.
pub(crate) const NO_PLAN: u8 = 3;
/// A file cannot be read or is not what it should be.
pub(crate) const BAD_FILE: u8 = 4;

/// The loss or a value of the model is not finite.
pub(crate) const NOT_FINITE: u8 = 5;

/// Whether text on a terminal is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Never,
    Ansi,
}

impl Colour {
    /// For standard output: colour on terminals that have it, unless `NO_COLOR`
    /// (no-color.org) is set.
    pub(crate) fn of_stdout() -> Self {
        Self::of(&io::stdout())
    }

    /// The same for standard error.
    pub(crate) fn of_stderr() -> Self {
        Self::of(&io::stderr())
    }

    fn of(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        if refused || dumb || !stream.is_terminal() { Colour::Never } else { Colour::Ansi }
    }

    /// The text in an ANSI style such as `1` (bold) or `31` (red).
    pub(crate) fn paint(self, style: &str, text: &str) -> String {
        match self {
            Colour::Never => text.to_owned(),
            Colour::Ansi => format!("\x1b[{style}m{text}\x1b[0m"),
        }
    }
}

/// Prints a result. A reader that has seen enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// The same, as an error of dahl.
pub(crate) fn show(text: &str) -> dahl::Result<()> {
    print(text).map_err(|source| Error::Write { path: "standard output".into(), source })
}

/// Says something on standard error. Where that cannot be written, results and
/// exit code still tell.
pub(crate) fn say(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// So many of something: `1 worker`, `2 workers`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A path as a word of a command that people may copy.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "-_./+:,@%=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Prints an error and gives the code to end with.
pub(crate) fn fail(error: impl fmt::Display, code: u8) -> ExitCode {
    let text = error.to_string().replace('\n', "\n       ");
    say(format_args!("error: {text}"));
    ExitCode::from(code)
}

/// The exit code of an error (docs/cli.md).
pub(crate) fn code(error: &Error) -> u8 {
    match error {
        Error::Config { .. } | Error::Unsupported { .. } => USAGE,
        Error::Memory { .. } | Error::Plan { .. } => NO_PLAN,
        Error::Model(_) | Error::Data { .. } | Error::Io { .. } | Error::Missing { .. } => BAD_FILE,
        Error::Lines { .. } | Error::Platform { .. } => BAD_FILE,
        Error::NotFinite { .. } | Error::Overflow { .. } => NOT_FINITE,
        _ => FAILED,
    }
}

/// Prints an error of a file and gives the code to end with.
pub(crate) fn fail_file(error: &Error) -> ExitCode {
    fail(error, BAD_FILE)
}
