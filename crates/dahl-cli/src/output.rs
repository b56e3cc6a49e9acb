//! Where results and errors go, and what the process says when it ends.
//!
//! Names in what is printed come from files that others may have made: class names, paths,
//! metadata of weights. Every text goes through here and has no control character but line
//! ends, tabs and the styles below.

use dahl::Error;
use dahl::error::is_control;
pub(crate) use dahl::error::one_line;
use std::borrow::Cow;
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

/// The ANSI styles that this program prints, those of clap's help and errors too.
const STYLES: [&str; 8] = ["0", "1", "2", "4", "31", "32", "33", "1;31"];

/// A text in which control characters are spelled out: `\u001b`, which a string of JSON
/// reads back as the character.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    styled(text, Colour::Never)
}

/// The same, with the styles of this program left in where there is colour.
fn styled(text: &str, colour: Colour) -> Cow<'_, str> {
    let is_shown = |c: char| matches!(c, '\n' | '\t') || !is_control(c);
    if text.chars().all(is_shown) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let style = STYLES.iter().find(|style| {
            let sequence = rest.strip_prefix("\x1b[").and_then(|rest| rest.strip_prefix(**style));
            colour == Colour::Ansi && sequence.is_some_and(|rest| rest.starts_with('m'))
        });
        let length = style.map_or(c.len_utf8(), |style| style.len() + "\x1b[m".len());
        let (part, after) = rest.split_at(length);
        if style.is_some() || is_shown(c) {
            safe += part;
        } else {
            safe += &format!("\\u{:04x}", u32::from(c));
        }
        rest = after;
    }
    safe.into()
}

/// Prints a result. A reader that has seen enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match write(text) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// The same, as an error of dahl.
pub(crate) fn show(text: &str) -> dahl::Result<()> {
    print(text).map_err(unwritten)
}

/// Prints a part of the results of a command that goes on: a reader that has gone misses
/// the rest, which is an error.
pub(crate) fn show_part(text: &str) -> dahl::Result<()> {
    write(text).map_err(unwritten)
}

fn write(text: &str) -> io::Result<()> {
    let text = styled(text, Colour::of_stdout());
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
            let colour = Colour::of_stderr();
            io::stderr().write_all(styled(&text(colour), colour).as_bytes())
        }
        false => print(&text(Colour::of_stdout())),
    };
    // Without an answer, the code still tells.
    match printed {
        Err(_) if answer.exit_code() == 0 => ExitCode::from(FAILED),
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
        Error::Memory { .. } | Error::Plan { .. } => NO_PLAN,
        Error::Model(_) | Error::Data { .. } | Error::Io { .. } | Error::Missing { .. } => BAD_FILE,
        Error::Lines { .. } | Error::Platform { .. } => BAD_FILE,
        Error::NotFinite { .. } | Error::EvalNotFinite { .. } | Error::Overflow { .. } => {
            NOT_FINITE
        }
        _ => FAILED,
    }
}

/// Prints an error of a file and gives the code to end with.
pub(crate) fn fail_file(error: &Error) -> ExitCode {
    fail(error, BAD_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn control_characters_of_files_are_spelled_out() {
        for (text, expected) in [
            ("plain Ärger 猫\tx\n", "plain Ärger 猫\tx\n"),
            ("\x1b]52;c;aGk=\x07", "\\u001b]52;c;aGk=\\u0007"),
            ("a\rb\x7f\u{9b}31m\0", "a\\u000db\\u007f\\u009b31m\\u0000"),
            ("ab\u{202e}cd\u{2066}", "ab\\u202ecd\\u2066"),
        ] {
            assert_eq!(escaped(text), expected);
            assert_eq!(styled(text, Colour::Ansi), expected);
        }
    }

    #[test]
    fn only_own_styles_reach_a_terminal_with_colour() {
        for (text, expected) in [
            ("\x1b[1;31mx\x1b[0m", "\x1b[1;31mx\x1b[0m"),
            // Text that cannot be seen, and a style without an end.
            ("\x1b[8mx\x1b[1", "\\u001b[8mx\\u001b[1"),
            ("\x1b[2Jx\x1b[31m", "\\u001b[2Jx\x1b[31m"),
        ] {
            assert_eq!(styled(text, Colour::Ansi), expected);
            assert!(!escaped(text).contains('\x1b'));
        }
    }

    #[test]
    fn what_is_spelled_out_stays_json() {
        let value = serde_json::json!({ "name": "\x1b\u{9b}\x7f\u{202e}\n" });
        let read: serde_json::Value = serde_json::from_str(&escaped(&value.to_string())).unwrap();
        assert_eq!(read, value);
    }

    /// Texts that do not go through this module are not escaped.
    #[test]
    fn no_other_module_writes_to_a_stream() {
        // The view of the whole terminal draws with escape sequences.
        const DRAWING: [&str; 3] = ["output.rs", "live/screen.rs", "live/tui.rs"];
        // Whoever looks what a stream is writes nothing.
        const LOOKING: [&str; 5] =
            ["of_stdout()", "of_stderr()", "on_stderr()", "is_terminal()", "terminal_size_of("];
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let mut open = vec![std::path::PathBuf::from(root)];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            if DRAWING.contains(&name) || !name.ends_with(".rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let writes = |line: &&str| line.contains("stdout()") || line.contains("stderr()");
            for line in text.lines().filter(writes) {
                assert!(LOOKING.iter().any(|part| line.contains(part)), "{name}: {line}");
            }
        }
    }
}
