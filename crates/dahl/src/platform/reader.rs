//! Tables of a TOML file that know their lines. What is wrong is written down
//! and replaced by something harmless, so that all of it is found in one go.

use super::limits::LONGEST_NAME;
use crate::error::{LineError, Unexpected};
use std::cell::RefCell;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The text of a file, and what is wrong with it.
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    pub(super) errors: RefCell<Vec<LineError>>,
}

/// So many mistakes of a file are reported.
pub(super) const MOST_ERRORS: usize = 100;

impl Source<'_> {
    pub(super) fn push(&self, span: Range<usize>, error: (String, String, String)) {
        let mut errors = self.errors.borrow_mut();
        // Each looks for its line from the top: all of a file of mistakes would take hours.
        if errors.len() == MOST_ERRORS {
            return;
        }
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let (what, expected, found) = error;
        errors.push(LineError { line, fault: Unexpected::new(what, expected, found) });
    }

    /// The value as written in the file, shortened if it is long.
    fn written(&self, span: Range<usize>) -> String {
        let text = self.text.get(span).unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let short: String = line.chars().take(60).collect();
        if short.len() < text.len() { format!("{short}…") } else { short }
    }
}

/// A table whose keys are known.
#[derive(Clone)]
pub(super) struct Table<'a> {
    source: &'a Source<'a>,
    /// `node "laptop"`; empty for the file itself.
    place: String,
    known: &'static [&'static str],
    map: &'a DeTable<'a>,
    span: Range<usize>,
}

impl<'a> Table<'a> {
    /// The file as a table. Keys that are not known are errors.
    pub(super) fn root(
        source: &'a Source<'a>,
        map: &'a DeTable<'a>,
        known: &'static [&'static str],
    ) -> Self {
        let table = Self { source, place: String::new(), known, map, span: 0..0 };
        table.check_keys();
        table
    }

    fn check_keys(&self) {
        for key in self.map.keys() {
            let name: &str = key.get_ref();
            if !self.known.contains(&name) {
                let expected = format!("a key, {}", one_of(name, self.known));
                let error = (self.place.clone(), expected, name.to_owned());
                self.source.push(key.span(), error);
            }
        }
    }

    /// The value of a key that may be left out.
    pub(super) fn optional(&self, key: &str) -> Option<Value<'a>> {
        debug_assert!(self.known.contains(&key), "{key} is missing in the table of keys");
        let item = self.map.get(key)?;
        Some(Value { source: self.source, place: join(&self.place, key), item })
    }

    /// The value of a key; an error where it is missing.
    pub(super) fn required(&self, key: &str, expected: &str) -> Option<Value<'a>> {
        let value = self.optional(key);
        if value.is_none() {
            self.wrong(key, expected, "nothing");
        }
        value
    }

    /// Says what is wrong with a key, at its line or, where it is missing, at the
    /// line of the table.
    pub(super) fn wrong(&self, key: &str, expected: &str, found: impl ToString) {
        let span = self.map.get(key).map_or(self.span.clone(), Spanned::span);
        let error = (join(&self.place, key), expected.to_owned(), found.to_string());
        self.source.push(span, error);
    }

    /// The tables in the list of a key, each called by its name or its number.
    pub(super) fn tables(&self, key: &str, known: &'static [&'static str]) -> Vec<Self> {
        let Some(value) = self.optional(key) else { return Vec::new() };
        let items = value.list("a list of tables");
        let table = |(i, item): (usize, Value<'a>)| {
            let name = item.item.get_ref().get("name").and_then(|n| n.get_ref().as_str());
            let own = name.map_or((i + 1).to_string(), |name| format!("{name:?}"));
            // `states` are called `state "slow"`.
            let word = format!("{} {own}", key.trim_end_matches('s'));
            Value { place: join(&self.place, &word), ..item }.table(known)
        };
        items.into_iter().enumerate().filter_map(table).collect()
    }
}

fn join(place: &str, key: &str) -> String {
    if place.is_empty() { key.to_owned() } else { format!("{place}: {key}") }
}

/// A value, and where it stands.
#[derive(Clone)]
pub(super) struct Value<'a> {
    source: &'a Source<'a>,
    place: String,
    item: &'a Spanned<DeValue<'a>>,
}

impl<'a> Value<'a> {
    /// Says that the value is not what it should be.
    pub(super) fn wrong(&self, expected: &str) {
        let found = self.source.written(self.item.span());
        self.source.push(self.item.span(), (self.place.clone(), expected.to_owned(), found));
    }

    pub(super) fn as_str(&self) -> Option<&'a str> {
        self.item.get_ref().as_str()
    }

    /// Any number, not finite ones too.
    pub(super) fn as_f64(&self) -> Option<f64> {
        match self.item.get_ref() {
            DeValue::Integer(number) => {
                Some(i128::from_str_radix(number.as_str(), number.radix()).ok()? as f64)
            }
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        }
    }

    /// A whole number.
    pub(super) fn as_u64(&self) -> Option<u64> {
        match self.item.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        }
    }

    pub(super) fn is_table(&self) -> bool {
        self.item.get_ref().is_table()
    }

    /// The items of a list; none where it is something else, which is an error.
    pub(super) fn list(&self, expected: &str) -> Vec<Self> {
        let Some(items) = self.item.get_ref().as_array() else {
            self.wrong(expected);
            return Vec::new();
        };
        let (source, place) = (self.source, &self.place);
        items.iter().map(|item| Self { source, place: place.clone(), item }).collect()
    }

    /// The value as a table. Keys that are not known are errors.
    pub(super) fn table(&self, known: &'static [&'static str]) -> Option<Table<'a>> {
        let Some(map) = self.item.get_ref().as_table() else {
            self.wrong("a table");
            return None;
        };
        let (source, place, span) = (self.source, self.place.clone(), self.item.span());
        let table = Table { source, place, known, map, span };
        table.check_keys();
        Some(table)
    }
}

/// `such as` the name that was meant, or all of them where none is near.
pub(super) fn one_of(wrong: &str, known: &[&str]) -> String {
    let distance = |name: &&&str| strsim::damerau_levenshtein(wrong, name);
    // Half of the name is another name, no slip.
    let slip = |name: &&&str| 2 * distance(name) <= wrong.chars().count();
    let short = if wrong.len() <= LONGEST_NAME { known } else { &[] };
    let near = short.iter().min_by_key(distance).filter(slip);
    match near {
        Some(near) => format!("such as {near}"),
        None if known.len() <= 10 => format!("one of {}", known.join(", ")),
        None => format!("one of {}, …", known[..10].join(", ")),
    }
}
