//! Types with a few values, each of which has one name: in settings, files and reports.

use crate::error::Expected;
use std::fmt::Display;
use std::str::FromStr;

/// A type whose values have names, declared by `named!` beside the type.
pub trait Named: Copy + Display + FromStr<Err = Expected> + 'static {
    /// The names, with what each means.
    const CHOICES: &'static [(&'static str, &'static str)];
}

/// `Type { Value = "name": "what it means" }`; another name that is read follows `|`.
macro_rules! named {
    ($type:ident { $($value:ident = $name:literal $(| $alias:literal)?: $help:literal),+ $(,)? }) => {
        impl $crate::names::Named for $type {
            const CHOICES: &'static [(&'static str, &'static str)] = &[$(($name, $help)),+];
        }

        impl std::str::FromStr for $type {
            type Err = $crate::error::Expected;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($name $(| $alias)? => Ok($type::$value),)+
                    _ => Err([$($name),+].join(", ").into()),
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self {
                    $($type::$value => $name,)+
                })
            }
        }
    };
}

pub(crate) use named;
