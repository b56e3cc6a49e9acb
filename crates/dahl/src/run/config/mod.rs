//! The configuration of a run: plain data with one typed field per setting.
//!
//! Every setting is declared once, in `settings.rs`: name, type, default, help and class. Its
//! class is the type that it is a field of:
//!
//! | type | a setting | on a resume |
//! |---|---|---|
//! | [`IdentitySettings`] | decides the bits of the result | must be the same |
//! | [`PlacementSettings`] | decides where, how long and how a run proceeds, and no bit | may change, and is kept |
//! | [`SessionSettings`] | is about one start of a run | is not kept |
//!
//! Front ends read settings as texts ([`RunConfig::set`]), and make flags, variables, keys of
//! files and documentation of [`SETTINGS`].

mod choices;
mod settings;
mod value;

pub use choices::{GrainChoice, PlanChoice, StagesChoice};
pub use settings::{IdentitySettings, PlacementSettings, RunConfig, SETTINGS, SessionSettings};
pub use value::{
    Arity, Betas, DataRef, ModelRef, PipelineKind, ShardsChoice, Speeds, Switch, Value,
    at_least_one, available, processors, threads, throttle_speed,
};

use crate::error::{Error, Expected, Result};
use crate::os::disk;
use std::collections::BTreeMap;
use std::path::Path;

/// The class of a setting: its effect on the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The bits of the result.
    Identity,
    /// Where, how long and how a run proceeds.
    Placement,
    /// One start of a run.
    Session,
}

/// A setting of a run.
pub struct Setting {
    /// Its name: a flag, a key of configurations.
    pub name: &'static str,
    /// Its class.
    pub class: Class,
    /// Its description, in one sentence. Names of settings are between backticks.
    pub help: &'static str,
    /// The number of values that it takes.
    pub arity: Arity,
    /// The values that there are, with what each means, where they are few.
    pub choices: &'static [(&'static str, &'static str)],
    /// Further information for front ends.
    pub shown: Shown,
    check: fn(&str) -> Result<(), Expected>,
    read: fn(&mut RunConfig, &[&str]) -> Result<(), Expected>,
    canonical: fn(&str) -> Option<String>,
    set: fn(&mut RunConfig, &[&str]) -> Result<(), Expected>,
    get: fn(&RunConfig) -> Vec<String>,
    absolute: fn(&mut RunConfig) -> Result<(), Expected>,
    nearby: fn(&mut RunConfig),
}

/// Information about a setting for front ends.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The placeholder of the value.
    pub value: &'static str,
    /// The heading that it is below.
    pub heading: &'static str,
    /// A setting without which it has no use.
    pub requires: Option<&'static str>,
    /// The settings that exclude it.
    pub conflicts: &'static [&'static str],
}

impl Setting {
    /// Whether a text is one of its values.
    pub fn check(&self, text: &str) -> Result<(), Expected> {
        (self.check)(text)
    }

    /// The text that a value is printed as, if a text is a value.
    pub fn canonical(&self, text: &str) -> Option<String> {
        (self.canonical)(text)
    }

    /// Its values as texts, none where it has none.
    pub fn of(&self, config: &RunConfig) -> Vec<String> {
        (self.get)(config)
    }
}

/// The last line of a configuration: one that was cut off must not become a run with the
/// defaults of what is missing.
const END: &str = "# end";

impl RunConfig {
    /// The declaration of a setting.
    pub fn setting(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// Sets a setting from texts; none turns a switch off and takes an optional value away.
    ///
    /// # Errors
    /// [`Error::Config`] where there is no such setting, or a text is no value of it.
    pub fn set(&mut self, name: &str, values: &[&str]) -> Result<()> {
        let Some(setting) = Self::setting(name) else {
            return Err(Error::config("setting", "a setting of a run", name));
        };
        (setting.set)(self, values)
            .map_err(|Expected(expected)| Error::config(name, expected, values.join(", ")))
    }

    /// The values of a setting as texts.
    pub fn get(&self, name: &str) -> Vec<String> {
        Self::setting(name).map_or(Vec::new(), |setting| setting.of(self))
    }

    /// Refuses values that cannot be, settings that exclude each other, and those that lack
    /// another. A setting counts where it differs from its default.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::Exclusive`] or [`Error::Requires`].
    pub fn check(&self) -> Result<()> {
        for setting in SETTINGS {
            for value in setting.of(self) {
                setting
                    .check(&value)
                    .map_err(|Expected(expected)| Error::config(setting.name, expected, &value))?;
            }
        }
        let default = Self::default();
        let is_set = |name: &str| {
            Self::setting(name).is_some_and(|setting| setting.of(self) != setting.of(&default))
        };
        for setting in SETTINGS.iter().filter(|setting| is_set(setting.name)) {
            let Shown { requires, conflicts, .. } = setting.shown;
            if let Some(other) = conflicts.iter().find(|other| is_set(other)) {
                return Err(Error::exclusive(setting.name, other));
            }
            if let Some(other) = requires.filter(|other| !is_set(other)) {
                return Err(Error::Requires { setting: setting.name.into(), other: other.into() });
            }
        }
        Ok(())
    }

    /// The configuration of a run directory: identity and placement.
    ///
    /// # Errors
    /// [`Error::Config`] for a path that a text cannot hold.
    pub fn to_toml(&self) -> Result<String> {
        let mut config = self.clone();
        let mut text = String::new();
        for setting in SETTINGS.iter().filter(|setting| setting.class != Class::Session) {
            (setting.absolute)(&mut config).map_err(|Expected(expected)| {
                Error::config(setting.name, expected, setting.of(self).join(", "))
            })?;
            let values = setting.of(&config);
            let value = match setting.arity {
                _ if values.is_empty() => continue,
                Arity::Switch => "true".to_owned(),
                Arity::One => literal(&values[0]),
                Arity::Many => {
                    let list: Vec<String> = values.iter().map(|value| literal(value)).collect();
                    format!("[{}]", list.join(", "))
                }
            };
            text += &format!("{} = {value}\n", setting.name);
        }
        Ok(text + END + "\n")
    }

    /// Reads a configuration; paths below the working directory are called from there.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Data`] with line and column where it is no TOML, or cut off,
    /// or where a setting is wrong.
    pub fn read(path: &Path) -> Result<Self> {
        let text = disk::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let mut config = Self::default();
        for (key, value) in table(path, &text)? {
            let Some(setting) = Self::setting(&key).filter(|s| s.class != Class::Session) else {
                return Err(Error::data(path, "key", "a setting that a run keeps", key));
            };
            let wrong = || Error::data(path, &key, "a text, a number or true", &value);
            let values = match &value {
                toml::Value::Array(list) if setting.arity == Arity::Many => {
                    list.iter().map(plain).collect()
                }
                // Speeds were a list.
                toml::Value::Array(list) if key == "speeds" => {
                    let texts: Option<Vec<String>> = list.iter().map(plain).collect();
                    texts.map(|texts| vec![texts.join(",")])
                }
                toml::Value::Boolean(false) => continue,
                value => plain(value).map(|text| vec![text]),
            };
            let values: Vec<String> = values.ok_or_else(wrong)?;
            let texts: Vec<&str> = values.iter().map(String::as_str).collect();
            // Another machine's values may be replaced before they are checked.
            (setting.read)(&mut config, &texts).map_err(|Expected(expected)| {
                Error::data(path, &key, expected, texts.join(", "))
            })?;
            (setting.nearby)(&mut config);
        }
        Ok(config)
    }

    /// The configuration of a resumed run: that of the run (`self`) with the settings that are
    /// given now, by name.
    ///
    /// # Errors
    /// [`Error::Identity`] for a setting that would make it another run.
    pub fn resumed(&self, now: &RunConfig, given: &[&str]) -> Result<Self> {
        let mut resumed = self.clone();
        for name in given {
            let Some(setting) = Self::setting(name) else { continue };
            let (stored, values) = (setting.of(&resumed), setting.of(now));
            if setting.class == Class::Identity && !same(setting, &resumed, now) {
                return Err(Error::Identity {
                    setting: setting.name.to_owned(),
                    run: if stored.is_empty() { "none".to_owned() } else { stored.join(", ") },
                    found: values.join(", "),
                });
            }
            let texts: Vec<&str> = values.iter().map(String::as_str).collect();
            resumed.set(name, &texts)?;
        }
        resumed.session = now.session.clone();
        Ok(resumed)
    }

    /// The settings that decide the result and are kept in checkpoints, by name. Files may move:
    /// what is in them is compared instead.
    pub fn identity(&self) -> BTreeMap<String, String> {
        let in_files = ["model", "init"];
        let decides = SETTINGS.iter().filter(|setting| {
            setting.class == Class::Identity && !in_files.contains(&setting.name)
        });
        // Checkpoints have always named them so.
        let values = decides.map(|setting| (setting.name, setting.of(self)));
        values
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| (format!("--{name}"), values.join(", ")))
            .collect()
    }
}

/// The canonical text of a value of [`RunConfig::identity`].
pub(super) fn canonical(key: &str, text: &str) -> String {
    let setting = key.strip_prefix("--").and_then(RunConfig::setting);
    setting.and_then(|setting| setting.canonical(text)).unwrap_or_else(|| text.to_owned())
}

/// Whether two configurations agree in a setting, be it given as another path.
fn same(setting: &Setting, a: &RunConfig, b: &RunConfig) -> bool {
    let absolute = |config: &RunConfig| {
        let mut config = config.clone();
        (setting.absolute)(&mut config).ok()?;
        Some(setting.of(&config))
    };
    setting.of(a) == setting.of(b) || absolute(a).is_some_and(|a| Some(a) == absolute(b))
}

/// The table of a configuration.
fn table(path: &Path, text: &str) -> Result<toml::Table> {
    let table = text.parse().map_err(|e: toml::de::Error| {
        let before = text.get(..e.span().unwrap_or(0..0).start).unwrap_or(text);
        let (line, column) = (
            before.matches('\n').count() + 1,
            before.rsplit('\n').next().unwrap_or_default().chars().count() + 1,
        );
        let place = format!("{}:{line}:{column}", path.display());
        Error::data(place, "configuration", "a TOML file", e.message().replace('\n', ", "))
    })?;
    if text.lines().next_back() != Some(END) {
        let last = text.lines().next_back().unwrap_or("nothing");
        return Err(Error::data(path, "last line", format!("{END:?}: it is cut off"), last));
    }
    Ok(table)
}

/// A value in TOML: a number where it reads as one, else a text.
fn literal(value: &str) -> String {
    let number = format!("x = {value}").parse::<toml::Table>();
    match number.ok().and_then(|table| table.get("x").and_then(plain)) {
        Some(read) if read == value && value.parse::<f64>().is_ok() => value.to_owned(),
        _ => toml::Value::String(value.to_owned()).to_string(),
    }
}

/// A value as a text.
fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(on) => Some(on.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
