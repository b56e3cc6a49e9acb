//! Where results and errors go, and what the process says when it ends.
//!
//! Names in what is printed come from files that others may have made: class names, paths,
//! metadata of weights. Every text goes through here and has no control character but line
//! ends, tabs and the styles below.

use crate::advice::advised;
use dahl::Error;
use dahl::error::is_control;
pub(crate) use dahl::error::one_line;
use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::LazyLock;

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
            Colour::Ansi => format!("{mark}{style}m{text}{mark}0m", mark = *MARK),
        }
    }
}

/// Stands before the styles of this program until they are written. It is drawn for each
/// process, so that a text of a file cannot have it.
static MARK: LazyLock<String> =
    LazyLock::new(|| format!("\x1b{:016x}", RandomState::new().build_hasher().finish()));

/// A text in which control characters are spelled out: `\u001b`, which a string of JSON
/// reads back as the character.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| matches!(c, '\n' | '\t') || !is_control(c);
    if text.chars().all(is_shown) {
        return text.into();
    }
    let spelled = |c: char| match is_shown(c) {
        true => c.to_string(),
        false => format!("\\u{:04x}", u32::from(c)),
    };
    text.chars().map(spelled).collect::<String>().into()
}

/// The same, with the styles of [`Colour::paint`].
fn styled(text: &str) -> String {
    let mut parts = text.split(&**MARK);
    let mut safe = escaped(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let (style, rest) = part.split_once('m').unwrap_or((part, ""));
        safe += &format!("\x1b[{style}m{}", escaped(rest));
    }
    safe
}

/// The help and errors of clap, whose styles are these, as if [`Colour::paint`] had made them:
/// what clap quotes is from the command line.
fn painted_by_clap(text: &str) -> String {
    const STYLES: [&str; 8] = ["0", "1", "2", "4", "31", "32", "33", "1;31"];
    STYLES.iter().fold(text.to_owned(), |text, style| {
        text.replace(&format!("\x1b[{style}m"), &format!("{}{style}m", *MARK))
    })
}

/// Prints a result. A reader that has seen enough (`| head`) is no error.
pub(crate) fn show(text: &str) -> dahl::Result<()> {
    match write(text) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(unwritten),
    }
}

/// Prints a JSON object on a line of its own.
pub(crate) fn show_json(object: &serde_json::Value) -> dahl::Result<()> {
    show(&format!("{object}\n"))
}

/// Prints a part of the results of a command that goes on: a reader that has gone misses
/// the rest, which is an error.
pub(crate) fn show_part(text: &str) -> dahl::Result<()> {
    write(text).map_err(unwritten)
}

fn write(text: &str) -> io::Result<()> {
    let text = styled(text);
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

fn unwritten(source: io::Error) -> Error {
    Error::Write { path: "standard output".into(), source }
}

/// Says something on standard error. Where that cannot be written, results and
/// exit code still tell.
pub(crate) fn say(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", escaped(&text.to_string()));
}

/// Prints what clap answers a command line with, help or an error, and gives the code to end
/// with.
pub(crate) fn answer(answer: &clap::Error) -> ExitCode {
    let text = |colour| match colour {
        Colour::Never => answer.render().to_string(),
        Colour::Ansi => answer.render().ansi().to_string(),
    };
    let printed = match answer.use_stderr() {
        true => {
            let text = styled(&painted_by_clap(&text(Colour::of_stderr())));
            io::stderr().write_all(text.as_bytes()).map_err(unwritten)
        }
        false => show(&painted_by_clap(&text(Colour::of_stdout()))),
    };
    // Without an answer, the code still tells.
    match printed {
        Err(error) if answer.exit_code() == 0 => failed(&error),
        _ => ExitCode::from(answer.exit_code() as u8),
    }
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
        Error::NoRun { .. } | Error::RunExists { .. } | Error::SaveOutside { .. } => USAGE,
        Error::Exclusive { .. } | Error::Requires { .. } | Error::Identity { .. } => USAGE,
        Error::NoCheckpoint { .. } => USAGE,
        Error::Moved { .. } | Error::OtherPrograms { .. } | Error::OtherTransform { .. } => {
            BAD_FILE
        }
        Error::Columns { .. } | Error::Images { .. } => BAD_FILE,
        Error::Memory { .. } | Error::Plan { .. } => NO_PLAN,
        Error::Model(_) | Error::Data { .. } | Error::Io { .. } | Error::Missing { .. } => BAD_FILE,
        Error::Lines { .. } | Error::Platform { .. } => BAD_FILE,
        Error::NotFinite { .. } | Error::EvalNotFinite { .. } | Error::Overflow { .. } => {
            NOT_FINITE
        }
        _ => FAILED,
    }
}

/// Prints an error of the library, with the flags that may help, and gives its exit code.
pub(crate) fn failed(error: &Error) -> ExitCode {
    fail(advised(error), code(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_files_are_spelled_out() {
        for (text, expected) in [
            ("plain Ärger 猫\tx\n", "plain Ärger 猫\tx\n"),
            ("\x1b]52;c;aGk=\x07", "\\u001b]52;c;aGk=\\u0007"),
            ("a\rb\x7f\u{9b}31m\0", "a\\u000db\\u007f\\u009b31m\\u0000"),
            ("ab\u{202e}cd\u{2066}", "ab\\u202ecd\\u2066"),
        ] {
            assert_eq!(escaped(text), expected);
            assert_eq!(styled(text), expected);
        }
    }

    #[test]
    fn only_own_styles_reach_a_terminal_with_colour() {
        let own = format!("{} b\x1b[31m", Colour::Ansi.paint("1", "a\x1b[2J"));
        assert_eq!(styled(&own), "\x1b[1ma\\u001b[2J\x1b[0m b\\u001b[31m");
        assert_eq!(Colour::Never.paint("1", "a"), "a");
        let clap = painted_by_clap("\x1b[1;31mx\x1b[0m\x1b[8my");
        assert_eq!(styled(&clap), "\x1b[1;31mx\x1b[0m\\u001b[8my");
    }

    #[test]
    fn what_is_spelled_out_stays_json() {
        let value = serde_json::json!({ "name": "\x1b\u{9b}\x7f\u{202e}\n" });
        let read: serde_json::Value = serde_json::from_str(&escaped(&value.to_string())).unwrap();
        assert_eq!(read, value);
    }
}
