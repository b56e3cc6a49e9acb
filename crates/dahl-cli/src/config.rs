//! Flags from a file and from the environment.
//!
//! A key of the file or a `DAHL_*` variable is a flag that the command line left
//! out. So both are turned into flags and added to the command line: what a flag
//! means, which values it takes and what is said of a wrong one is decided in one
//! place, and a new flag has its key and its variable at once.

pub(crate) mod file;

use clap::builder::{Command, Resettable};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use dahl::error::nearest;
use std::collections::BTreeSet;
use std::error::Error as _;
use std::ffi::OsString;
use std::path::PathBuf;

/// The prefix of variables.
const PREFIX: &str = "DAHL_";

/// Why there is no command line.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Help that was requested, or an error in the command line itself.
    CommandLine(clap::Error),
    /// An error in the file or in a variable.
    Setting(String),
}

/// A flag that is given outside of the command line.
#[derive(Debug)]
struct Setting {
    /// The long name of the flag.
    key: String,
    /// Its values; several if the flag may be repeated.
    values: Vec<String>,
    /// The file with line and column, or the variable.
    place: String,
    /// The value as it was written.
    written: String,
}

/// The command line with the flags that the environment and the file of
/// `--config` add to it.
pub(crate) fn complete(
    command: &Command,
    args: &[OsString],
    variables: &[(String, OsString)],
) -> Result<Vec<OsString>, Failure> {
    // What is missing may be in the file.
    let optional = |arg: Arg| arg.required(false).required_unless_present(Resettable::Reset);
    let mut lenient = command.clone().mut_subcommands(|c| c.mut_args(optional));
    lenient.build();
    let given = lenient.clone().try_get_matches_from(args).map_err(Failure::CommandLine)?;
    let Some((name, given)) = given.subcommand() else { return Ok(args.to_vec()) };
    let Some(of) = lenient.find_subcommand(name) else { return Ok(args.to_vec()) };

    let mut levels = vec![environment(&lenient, of, variables)?];
    let variable = || variables.iter().find(|(key, _)| key == "DAHL_CONFIG");
    let path = match given.get_one::<PathBuf>("config") {
        Some(path) => Some(path.clone()),
        None => variable().map(|(_, path)| path.into()),
    };
    if let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) {
        levels.extend(file::read(&path, &lenient, of).map_err(Failure::Setting)?);
    }
    for setting in levels.iter().flatten() {
        check(&lenient, name, setting)?;
    }
    let added = merge(of, given, levels)?;
    // Flags come before what follows `--`.
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let (flags, rest) = args.split_at(end);
    Ok([flags, &added, rest].concat())
}

/// The flags of a command that a file or a variable may give.
fn flags(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let own = |key: &str| ["help", "version", "config"].contains(&key);
    let all = command.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg)));
    all.filter(move |(key, _)| !own(key))
}

fn flag<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    flags(command).find(|(name, _)| *name == key).map(|(_, arg)| arg)
}

/// The keys of all commands.
fn all_keys(root: &Command) -> BTreeSet<&str> {
    root.get_subcommands().flat_map(flags).map(|(key, _)| key).collect()
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn is_repeated(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// The variables of a command's flags. One that no command has is a mistake;
/// one without a value counts as not set.
fn environment(
    root: &Command,
    of: &Command,
    variables: &[(String, OsString)],
) -> Result<Vec<Setting>, Failure> {
    let known = all_keys(root);
    let name = |key: &str| format!("{PREFIX}{}", key.replace('-', "_").to_uppercase());
    let mut settings = Vec::new();
    for (variable, value) in variables {
        if !variable.starts_with(PREFIX) || variable == "DAHL_CONFIG" || value.is_empty() {
            continue;
        }
        let Some(key) = known.iter().find(|key| name(key) == *variable) else {
            let names: Vec<String> = known.iter().map(|key| name(key)).collect();
            let near = nearest(variable, names.iter().map(String::as_str));
            return Err(Failure::Setting(format!(
                "{variable}: no command has such a flag; did you mean {near}?"
            )));
        };
        let Some(arg) = flag(of, key) else { continue };
        let wrong = |expected: &str| {
            let found = value.to_string_lossy();
            Failure::Setting(format!("{variable}: {expected}, found {found:?}"))
        };
        let Some(text) = value.to_str() else { return Err(wrong("expected text in UTF-8")) };
        let text = match (is_switch(arg), text) {
            (true, "1") => "true",
            (true, "0") => "false",
            (true, text) if !["true", "false"].contains(&text) => {
                return Err(wrong("expected true or false"));
            }
            (_, text) => text,
        };
        settings.push(Setting {
            key: (*key).to_owned(),
            values: vec![text.to_owned()],
            place: variable.clone(),
            written: format!("{text:?}"),
        });
    }
    Ok(settings)
}

/// Refuses a value that the flag does not take.
fn check(root: &Command, name: &str, setting: &Setting) -> Result<(), Failure> {
    let sub = root.find_subcommand(name);
    let Some(arg) = sub.and_then(|sub| flag(sub, &setting.key)) else { return Ok(()) };
    if is_switch(arg) {
        return Ok(());
    }
    for value in &setting.values {
        let line = ["dahl".to_owned(), name.to_owned(), format!("--{}={value}", setting.key)];
        let Err(error) = root.clone().try_get_matches_from(line) else { continue };
        let expected = match error.kind() {
            ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(known)) => format!("expected {}", known.join(", ")),
                _ => "expected a value".to_owned(),
            },
            ErrorKind::ValueValidation => reason(&error),
            ErrorKind::TooManyValues | ErrorKind::WrongNumberOfValues => {
                "expected one value".to_owned()
            }
            // What else is missing is no fault of this value.
            _ => continue,
        };
        let Setting { key, place, written, .. } = setting;
        let key = if place.starts_with(PREFIX) { String::new() } else { format!("{key}: ") };
        return Err(Failure::Setting(format!("{place}: {key}{expected}, found {written}")));
    }
    Ok(())
}

/// The message of the flag's parser.
fn reason(error: &clap::Error) -> String {
    match error.source().map(ToString::to_string) {
        Some(text) if text.contains("expected ") => text,
        Some(text) => format!("expected a valid value ({text})"),
        None => "expected a valid value".to_owned(),
    }
}

/// The flags that are added, of the highest level first. What a higher level
/// gives, or what conflicts with it, is left out below.
fn merge(
    of: &Command,
    given: &ArgMatches,
    levels: Vec<Vec<Setting>>,
) -> Result<Vec<OsString>, Failure> {
    let from_line =
        |arg: &Arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let mut above: Vec<&Arg> = of.get_arguments().filter(|arg| from_line(arg)).collect();
    let mut added = Vec::new();
    for level in levels {
        let mut here: Vec<(&Arg, String)> = Vec::new();
        for Setting { key, values, place, .. } in level {
            let Some(arg) = flag(of, &key) else { continue };
            if above.iter().any(|other| other.get_id() == arg.get_id()) {
                continue;
            }
            let off = is_switch(arg) && values.iter().all(|value| value == "false");
            if !off && above.iter().any(|other| conflict(of, arg, other)) {
                continue;
            }
            if !off && let Some((other, where_)) = here.iter().find(|o| conflict(of, arg, o.0)) {
                let other = other.get_long().unwrap_or_default();
                return Err(Failure::Setting(format!(
                    "{place}: {key} cannot be combined with {other} ({where_})"
                )));
            }
            if !off && is_switch(arg) {
                added.push(format!("--{key}").into());
            } else if !off {
                added.extend(values.iter().map(|value| format!("--{key}={value}").into()));
            }
            here.push((arg, place));
        }
        above.extend(here.into_iter().map(|(arg, _)| arg));
    }
    Ok(added)
}

fn conflict(of: &Command, a: &Arg, b: &Arg) -> bool {
    let one = |a: &Arg, b: &Arg| {
        of.get_arg_conflicts_with(a).iter().any(|other| other.get_id() == b.get_id())
    };
    one(a, b) || one(b, a)
}

#[cfg(test)]
mod tests;
