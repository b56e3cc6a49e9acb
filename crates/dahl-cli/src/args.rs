//! The settings of a run as flags.
//!
//! The library declares every setting once (`dahl::run::config`): name, help, default, values.
//! Here they become flags; a command takes those that its [`Group`] names.

use clap::builder::{PossibleValue, PossibleValuesParser, ValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use dahl::ops::Target;
use dahl::run::RunConfig;
use dahl::run::config::{Arity, SETTINGS, Setting};
use std::marker::PhantomData;

/// The settings that a command has; none means all.
pub(crate) trait Group {
    const NAMES: &'static [&'static str];
}

/// Settings from the command line.
pub(crate) struct Settings<G> {
    pub(crate) config: Box<RunConfig>,
    /// Those that were given.
    pub(crate) given: Vec<&'static str>,
    group: PhantomData<G>,
}

macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident = $names:expr;)+) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl Group for $name {
            const NAMES: &'static [&'static str] = $names;
        }
    )+};
}

groups! {
    /// All settings.
    All = &[];
    Kernels = &["conv", "isa"];
    KernelsAndTuning = &["conv", "isa", "tune"];
    /// The columns of a CSV file.
    Table = &["image-column", "class-column", "image-dir", "image-extension"];
    /// Model, training settings and workers, without data.
    Training = &[
        "batch", "dtype", "optimizer", "momentum", "nesterov", "weight-decay", "betas", "eps", "clip",
        "conv", "isa", "tune", "micro-batches", "shards", "pipeline", "stages", "speeds", "bn", "allow-stale",
        "vertical-sync", "workers", "grain", "memory-limit", "calibration",
    ];
    /// The same on the workers of a simulation.
    Simulated = &[
        "batch", "dtype", "optimizer", "momentum", "nesterov", "weight-decay", "betas", "eps", "clip",
        "conv", "isa", "micro-batches", "shards", "pipeline", "stages", "speeds", "bn", "allow-stale",
        "vertical-sync", "grain", "scheduling", "joule-seconds",
    ];
    /// The settings that golden cases run with.
    Verified = &["grain", "conv", "isa", "scheduling", "joule-seconds"];
}

impl<G> Settings<G> {
    /// The settings that kernels are chosen by.
    pub(crate) fn target(&self) -> Target {
        self.config.identity.target()
    }
}

fn of<G: Group>() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| G::NAMES.is_empty() || G::NAMES.contains(&setting.name))
}

/// A text of the library, with the names of settings as flags: `` `init` `` is `--init`.
pub(crate) fn with_flags(text: &str) -> String {
    let mut flags = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('`') {
        flags.push_str(before);
        let named = after.split_once('`');
        rest = match named.filter(|(name, _)| SETTINGS.iter().any(|of| of.name == *name)) {
            Some((name, after)) => {
                flags.push_str("--");
                flags.push_str(name);
                after
            }
            None => {
                flags.push('`');
                after
            }
        };
    }
    flags.push_str(rest);
    flags
}

fn arg<G: Group>(setting: &'static Setting) -> Arg {
    let shown = setting.shown;
    let has = |name: &&str| of::<G>().any(|other| other.name == *name);
    let mut arg = Arg::new(setting.name)
        .long(setting.name)
        .help(with_flags(setting.help.trim()))
        .help_heading(shown.heading)
        .conflicts_with_all(shown.conflicts.iter().filter(|name| has(name)));
    if let Some(other) = shown.requires.filter(has) {
        arg = arg.requires(other);
    }
    if setting.arity == Arity::Switch {
        return arg.action(ArgAction::SetTrue);
    }
    arg = arg.value_name(match shown.value {
        "" => setting.name.to_uppercase().replace('-', "_"),
        value => value.to_owned(),
    });
    if let [default] = &setting.of(&RunConfig::default())[..] {
        arg = arg.default_value(default.clone());
    }
    if setting.arity == Arity::Many {
        arg = arg.action(ArgAction::Append);
    }
    let parser = match setting.choices {
        [] => ValueParser::new(|text: &str| setting.check(text).map(|()| text.to_owned())),
        choices => PossibleValuesParser::new(possible(choices)).into(),
    };
    // What a number is, its parser says: -1 is no flag, nor is the mean of `normalize`.
    let arg = match setting.name {
        "normalize" => arg.allow_hyphen_values(true),
        _ => arg.allow_negative_numbers(true),
    };
    arg.value_parser(parser)
}

impl<G: Group> Args for Settings<G> {
    fn augment_args(command: Command) -> Command {
        command.args(of::<G>().map(arg::<G>))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<G: Group> FromArgMatches for Settings<G> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let (mut config, mut given) = (Box::<RunConfig>::default(), Vec::new());
        for setting in of::<G>() {
            let source = matches.value_source(setting.name);
            if source.is_none_or(|source| source == ValueSource::DefaultValue) {
                continue;
            }
            let values: Vec<&str> = match setting.arity {
                Arity::Switch if matches.get_flag(setting.name) => vec!["true"],
                Arity::Switch => continue,
                _ => {
                    let values = matches.get_many::<String>(setting.name);
                    values.into_iter().flatten().map(String::as_str).collect()
                }
            };
            let wrong = |error| Error::raw(ErrorKind::ValueValidation, format!("{error}\n"));
            config.set(setting.name, &values).map_err(wrong)?;
            given.push(setting.name);
        }
        Ok(Self { config, given, group: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn possible(choices: &'static [(&str, &str)]) -> impl Iterator<Item = PossibleValue> {
    choices.iter().map(|(name, help)| PossibleValue::new(*name).help(with_flags(help)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings<All>,
    }

    fn config(line: &str) -> Result<RunConfig, Error> {
        Ok(*Line::try_parse_from(line.split(' '))?.settings.config)
    }

    #[test]
    fn flags_become_settings() {
        assert_eq!(config("x").unwrap(), RunConfig::default());
        let given = "x --lr 1e-3 --flip --throttle 0=0.5 --throttle 1=0.5@9 --optimizer sgd";
        let settings = Line::try_parse_from(given.split(' ')).unwrap().settings;
        assert_eq!(settings.given, ["optimizer", "lr", "flip", "throttle"]);
        let config = settings.config;
        assert_eq!((config.identity.lr, config.identity.flip.0), (1e-3, true));
        assert_eq!(config.session.throttle.len(), 2);
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        for (line, expected) in [
            ("x --lr=-1", "expected a number from 0 on"),
            ("x --lr nan", "expected a number"),
            ("x --momentum 1", "expected 0 to below 1"),
            ("x --betas 0.9", "expected two numbers from 0 to below 1"),
            ("x --betas 0.9,1", "expected two numbers from 0 to below 1"),
            ("x --clip 0", "expected a number above 0"),
            ("x --crop 0", "expected at least 1"),
            ("x --validation 0", "expected a fraction between 0 and 1"),
            ("x --validation 1.0", "expected a fraction between 0 and 1"),
            ("x --schedule cosin", "expected constant, step:EPOCHS:FACTOR"),
            ("x --optimizer rmsprop", "[possible values: sgd, adam, adamw]"),
        ] {
            let error = config(line).expect_err(line).to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
