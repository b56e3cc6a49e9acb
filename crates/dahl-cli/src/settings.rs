//! The configuration of a run: flags by their long names, as a TOML file.

use crate::config::file::File;
use crate::models;
use crate::samples::is_name;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use dahl::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Flags that are about one start of a run, not about the run.
const OF_ONE_START: [&str; 27] = [
    "help",
    "version",
    "config",
    "run",
    "no-run",
    "plan",
    "objective",
    "resume",
    "max-time",
    "max-steps",
    "quiet",
    "confusion",
    "json",
    "trace",
    "trace-from",
    "trace-events",
    "powercap",
    "power-supply",
    "meter-cmd",
    "meter-interval",
    "idle-time",
    "energy-budget",
    "calibration",
    "throttle",
    "dashboard",
    "dashboard-address",
    "tui",
];

/// Flags of a run that may change when it goes on: they change no bit of what
/// was trained. A dataset may have been moved; its samples are compared.
const FREE: [&str; 12] = [
    "epochs",
    "workers",
    "grain",
    "memory-limit",
    "scheduling",
    "joule-seconds",
    "checkpoint-every",
    "keep",
    "save",
    "tensorboard",
    "data",
    "platform",
];

/// Flags that may name a file or directory.
const PATHS: [&str; 5] = ["model", "data", "init", "save", "platform"];

/// The last line of a configuration: one that was cut off must not become a run
/// with the defaults of what is missing.
const END: &str = "# end";

/// Flags with their values, by long name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings(BTreeMap<String, Vec<String>>);

impl Settings {
    /// All flags of a command that have a value, be it the default.
    ///
    /// # Errors
    /// [`Error::Config`] for a path that a text file cannot hold.
    pub(crate) fn of(command: &Command, matches: &ArgMatches) -> Result<Self> {
        Self::filtered(command, matches, |_| true)
    }

    /// The flags that were given.
    fn given(command: &Command, matches: &ArgMatches) -> Result<Self> {
        Self::filtered(command, matches, |source| source != ValueSource::DefaultValue)
    }

    fn filtered(
        command: &Command,
        matches: &ArgMatches,
        wanted: impl Fn(ValueSource) -> bool,
    ) -> Result<Self> {
        let mut settings = BTreeMap::new();
        for (key, arg) in flags(command) {
            let id = arg.get_id().as_str();
            if !matches.value_source(id).is_some_and(&wanted) {
                continue;
            }
            let values: Vec<String> = if is_switch(arg) {
                matches.get_flag(id).then(|| "true".to_owned()).into_iter().collect()
            } else {
                let raw = matches.get_raw(id).into_iter().flatten();
                raw.map(|value| absolute(key, value)).collect::<Result<_>>()?
            };
            if !values.is_empty() {
                settings.insert(key.to_owned(), values);
            }
        }
        Ok(Self(settings))
    }

    /// Sets a flag, as if it had been given.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), vec![value.to_owned()]);
    }

    /// The value of a flag.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.first().map(String::as_str)
    }

    /// As a file that `dahl train --config` reads.
    pub(crate) fn to_toml(&self, command: &Command) -> String {
        let mut text = String::new();
        for (key, arg) in flags(command) {
            let Some(values) = self.0.get(key) else { continue };
            let value = match arg.get_action() {
                ArgAction::SetTrue => "true".to_owned(),
                ArgAction::Append => {
                    let list: Vec<String> = values.iter().map(|v| literal(v)).collect();
                    format!("[{}]", list.join(", "))
                }
                _ => literal(&values[0]),
            };
            text += &format!("{key} = {value}\n");
        }
        text + END + "\n"
    }

    /// Reads what [`to_toml`](Self::to_toml) writes.
    pub(crate) fn read(path: &Path, command: &Command) -> Result<Self> {
        let table = table(path)?;
        let mut settings = BTreeMap::new();
        for (key, value) in table {
            let Some((_, arg)) = flags(command).find(|(name, _)| *name == key) else {
                return Err(Error::data(path, "key", "a flag of dahl train", key));
            };
            let several = matches!(arg.get_action(), ArgAction::Append);
            let wrong = || Error::data(path, &key, "a text, a number or true", &value);
            let values = match &value {
                toml::Value::Array(list) if several => list.iter().map(plain).collect(),
                toml::Value::Boolean(false) => continue,
                value => plain(value).map(|text| vec![text]),
            };
            let values: Vec<String> = values.ok_or_else(wrong)?;
            settings.insert(key, values);
        }
        Ok(Self(settings))
    }

    /// What a run goes on with: its settings, with those that are free as they
    /// are given now.
    ///
    /// # Errors
    /// [`Error::Config`] naming a flag that would change the run.
    pub(crate) fn resumed(self, command: &Command, matches: &ArgMatches) -> Result<Self> {
        let mut settings = self;
        for (key, values) in Self::given(command, matches)?.0 {
            if FREE.contains(&key.as_str()) {
                settings.0.insert(key, values);
                continue;
            }
            let stored = settings.0.get(&key);
            if !stored.is_some_and(|old| same(old, &values)) {
                let stored = stored.map_or("none".to_owned(), |values| values.join(", "));
                let expected = format!("{stored} as in the run; start another run to change it");
                return Err(Error::config(&key, expected, values.join(", ")));
            }
        }
        Ok(settings)
    }

    /// As a command line, with the flags of `matches` that are about this start.
    pub(crate) fn to_line(&self, command: &Command, matches: &ArgMatches) -> Vec<OsString> {
        let mut line = vec![OsString::from(command.get_name())];
        for (key, arg) in flags(command) {
            for value in self.0.get(key).into_iter().flatten() {
                let value = nearby(key, value);
                let switch = is_switch(arg);
                line.push(
                    if switch { format!("--{key}") } else { format!("--{key}={value}") }.into(),
                );
            }
        }
        for arg in command.get_arguments() {
            let (id, Some(key)) = (arg.get_id().as_str(), arg.get_long()) else { continue };
            if !OF_ONE_START.contains(&key) || !is_given(matches, id) {
                continue;
            }
            if is_switch(arg) {
                line.push(format!("--{key}").into());
            }
            for value in matches.get_raw(id).into_iter().flatten().filter(|_| !is_switch(arg)) {
                let mut text = OsString::from(format!("--{key}="));
                text.push(value);
                line.push(text);
            }
        }
        line
    }

    /// What decides the results of a run, by flag. Files may move; what is in
    /// them is known from elsewhere.
    pub(crate) fn recipe(&self) -> BTreeMap<String, String> {
        let decides =
            |key: &&String| !FREE.contains(&key.as_str()) && !PATHS.contains(&key.as_str());
        let keys = self.0.keys().filter(decides);
        keys.map(|key| (format!("--{key}"), self.0[key].join(", "))).collect()
    }
}

/// The flags of a command that belong to a run's configuration.
fn flags(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let all = command.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg)));
    all.filter(|(key, _)| !OF_ONE_START.contains(key))
}

/// Whether a flag was given.
pub(crate) fn is_given(matches: &ArgMatches, id: &str) -> bool {
    matches.try_contains_id(id).unwrap_or(false)
        && matches.value_source(id) != Some(ValueSource::DefaultValue)
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// The configuration of a run as its file has it.
///
/// # Errors
/// [`Error::Data`] with line and column where it is no TOML, or cut off.
pub(crate) fn table(path: &Path) -> Result<toml::Table> {
    let text = dahl::os::disk::read_to_string(path)
        .map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let table = text.parse().map_err(|e: toml::de::Error| {
        let file = File { path: &path.display().to_string(), text: &text };
        let place = file.place(e.span().unwrap_or(0..0));
        Error::data(place, "configuration", "a TOML file", e.message().replace('\n', ", "))
    })?;
    if text.lines().next_back() != Some(END) {
        let last = text.lines().next_back().unwrap_or("nothing");
        return Err(Error::data(path, "last line", format!("{END:?}: it is cut off"), last));
    }
    Ok(table)
}

/// Whether the value of a flag is the path of a file or directory.
fn is_path(key: &str, value: &str) -> bool {
    match key {
        "model" => models::is_file(value),
        "data" => !is_name(value),
        _ => PATHS.contains(&key),
    }
}

/// A path that means the same from every directory.
fn absolute(key: &str, value: &OsStr) -> Result<String> {
    let refused =
        || Error::config(key, "a path in UTF-8, which config.toml can hold", value.display());
    let text = value.to_str().ok_or_else(refused)?;
    if !is_path(key, text) {
        return Ok(text.to_owned());
    }
    match std::path::absolute(text) {
        Ok(path) => Ok(path.to_str().ok_or_else(refused)?.to_owned()),
        // An empty one, which whoever opens it refuses.
        Err(_) => Ok(text.to_owned()),
    }
}

/// A path as it is called from here, so that a run that goes on names its files
/// as at its start.
fn nearby(key: &str, value: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let below = Path::new(value).strip_prefix(&here).ok().filter(|_| here.is_absolute());
    let below = below.and_then(Path::to_str).filter(|below| !below.is_empty());
    match below {
        Some(below) if is_path(key, value) && is_path(key, below) => below.to_owned(),
        _ => value.to_owned(),
    }
}

/// A value in TOML: a number where it reads as one, else a text.
fn literal(value: &str) -> String {
    let number = format!("x = {value}").parse::<toml::Table>();
    match number.ok().and_then(|table| table.get("x").and_then(plain)) {
        Some(read) if read == value && value.parse::<f64>().is_ok() => value.to_owned(),
        _ => toml::Value::String(value.to_owned()).to_string(),
    }
}

/// A value as it stands on a command line.
fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(on) => Some(on.to_string()),
        _ => None,
    }
}

/// Whether values are the same, as texts or as numbers.
fn same(a: &[String], b: &[String]) -> bool {
    let number = |text: &String| text.parse::<f64>().ok();
    let equal =
        |(a, b): (&String, &String)| a == b || (number(a).is_some() && number(a) == number(b));
    a.len() == b.len() && a.iter().zip(b).all(equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let arg = |name: &'static str| Arg::new(name).long(name);
        Command::new("train")
            .arg(arg("lr").default_value("0.003"))
            .arg(arg("epochs").default_value("10"))
            .arg(arg("data").default_value("digits"))
            .arg(arg("flip").action(ArgAction::SetTrue))
            .arg(arg("tag").action(ArgAction::Append))
            .arg(arg("quiet").action(ArgAction::SetTrue))
            .arg(arg("resume"))
    }

    fn matches(line: &str) -> ArgMatches {
        command().try_get_matches_from(line.split(' ')).unwrap()
    }

    #[test]
    fn settings_are_written_and_read_back() {
        let line = "train --lr 1e-3 --flip --quiet --tag a --tag 1 --data synthetic:\"1";
        let settings = Settings::of(&command(), &matches(line)).unwrap();
        let text = settings.to_toml(&command());
        let expected = "lr = \"1e-3\"\nepochs = 10\ndata = 'synthetic:\"1'\nflip = true\n\
                        tag = [\"a\", 1]\n# end\n";
        assert_eq!(text, expected);
        let path = std::env::temp_dir().join(format!("dahl-settings-{}", std::process::id()));
        std::fs::write(&path, &text).unwrap();
        let read = Settings::read(&path, &command());
        let wrong = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Settings::read(&path, &command()).unwrap_err().to_string()
        };
        let unknown = wrong("lrr = 1\n# end\n");
        let cut = wrong(&text[..text.find("flip").unwrap()]);
        let no_toml = wrong("lr = 1\nepochs = [");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap(), settings);
        assert!(unknown.ends_with("key: expected a flag of dahl train, found lrr"), "{unknown}");
        assert!(cut.contains("last line: expected \"# end\": it is cut off, found data"), "{cut}");
        assert!(no_toml.contains(":2:11: configuration: expected a TOML file"), "{no_toml}");
    }

    #[test]
    fn a_list_is_refused_where_a_flag_takes_one_value() {
        let path = std::env::temp_dir().join(format!("dahl-list-{}", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&path, format!("{text}\n# end\n")).unwrap();
            Settings::read(&path, &command()).map_err(|error| error.to_string())
        };
        for list in ["[]", "[1]", "[1, 2]"] {
            let error = read(&format!("epochs = {list}")).unwrap_err();
            assert!(error.contains(": epochs: expected a text, a number or true"), "{error}");
        }
        let several = read("tag = [\"a\", 1]").unwrap();
        assert_eq!(several.0["tag"], ["a", "1"]);
        assert_eq!(read("tag = []").unwrap().to_toml(&command()), "tag = []\n# end\n");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn names_are_no_paths() {
        let check = |key: &str, value: &str, is_path: bool| {
            let stored = absolute(key, OsStr::new(value)).unwrap();
            assert_eq!(Path::new(&stored).is_absolute(), is_path, "{key} {value}");
            assert_eq!(nearby(key, &stored), value);
        };
        // Both are here, as a directory and as a file.
        check("model", "src", false);
        check("model", "Cargo.toml", true);
        check("model", "lenet", false);
        for name in ["digits", "mnist", "cifar-10", "synthetic:1x8x8:10"] {
            check("data", name, false);
        }
        check("data", "src", true);
        check("init", "weights", true);
        check("lr", "src", false);
        // A directory that has the name of a set keeps its path.
        let here = std::path::absolute("digits").unwrap();
        let here = here.to_str().unwrap();
        assert_eq!(absolute("data", OsStr::new("./digits")).unwrap(), here);
        assert_eq!(nearby("data", here), here);
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_no_text_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let error = absolute("save", OsStr::from_bytes(b"w\xff")).unwrap_err().to_string();
        assert!(error.starts_with("save: expected a path in UTF-8"), "{error}");
    }

    #[test]
    fn only_what_changes_no_bit_may_change() {
        let stored = Settings::of(&command(), &matches("train --lr 0.01")).unwrap();
        let resumed = |line: &str| stored.clone().resumed(&command(), &matches(line));
        let on = resumed("train --epochs 20 --lr 1e-2 --resume x --quiet").unwrap();
        let line = on.to_line(&command(), &matches("train --resume x --quiet"));
        let expected = "train --lr=0.01 --epochs=20 --data=digits --quiet --resume=x";
        assert_eq!(line, expected.split(' ').map(OsString::from).collect::<Vec<_>>());
        let error = resumed("train --lr 0.02").unwrap_err().to_string();
        assert!(error.starts_with("lr: expected 0.01 as in the run;"), "{error}");
        let error = resumed("train --flip").unwrap_err().to_string();
        assert!(error.starts_with("flip: expected none as in the run;"), "{error}");
    }
}
