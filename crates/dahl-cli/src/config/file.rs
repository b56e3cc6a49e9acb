//! The file of `--config`: TOML, with the long names of flags as keys.

use super::{Setting, all_keys, flag, flags, is_repeated, is_switch};
use clap::builder::Command;
use dahl::error::nearest;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The settings for the command `of`: those of its table, then those above all
/// tables, which are for every command that has them.
pub(super) fn read(path: &Path, root: &Command, of: &Command) -> Result<Vec<Vec<Setting>>, String> {
    let text = dahl::os::disk::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = String::from_utf8(text).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        format!("{}: expected text in UTF-8, found an invalid byte at {at}", path.display())
    })?;
    File { path: &path.display().to_string(), text: &text }.settings(root, of)
}

/// A file, for messages.
#[derive(Clone, Copy)]
pub(crate) struct File<'a> {
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
}

impl File<'_> {
    pub(super) fn settings(
        self,
        root: &Command,
        of: &Command,
    ) -> Result<Vec<Vec<Setting>>, String> {
        let table = DeTable::parse(self.text).map_err(|e| {
            let what = e.message().replace('\n', ", ");
            format!("{}: expected a TOML file: {what}", self.place(e.span().unwrap_or(0..0)))
        })?;
        let (mut own, mut shared) = (Vec::new(), Vec::new());
        let known = all_keys(root);
        for (key, value) in ordered(table.get_ref()) {
            let section = root.find_subcommand(key.get_ref().as_ref());
            if let (DeValue::Table(inside), Some(command)) = (value.get_ref(), section) {
                for (key, value) in ordered(inside) {
                    if flag(command, key.get_ref()).is_none() {
                        let keys: Vec<&str> = flags(command).map(|(key, _)| key).collect();
                        let whose = format!("dahl {}", command.get_name());
                        return Err(self.unknown(key, &whose, &keys));
                    }
                    if command.get_name() == of.get_name() {
                        own.push(self.setting(of, key, value)?);
                    }
                }
            } else if !known.contains(key.get_ref().as_ref()) {
                let commands = root.get_subcommands().map(Command::get_name);
                let names: Vec<&str> = known.iter().copied().chain(commands).collect();
                return Err(self.unknown(key, "dahl", &names));
            } else if flag(of, key.get_ref()).is_some() {
                shared.push(self.setting(of, key, value)?);
            }
        }
        Ok(vec![own, shared])
    }

    fn setting(
        self,
        of: &Command,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Setting, String> {
        let name = key.get_ref();
        let written = self.written(value.span());
        let place = self.place(value.span());
        let wrong =
            |expected: &str| format!("{place}: {name}: expected {expected}, found {written}");
        let arg = flag(of, name).ok_or_else(|| wrong("a known key"))?;
        let values = match value.get_ref() {
            DeValue::Boolean(on) if is_switch(arg) => vec![on.to_string()],
            _ if is_switch(arg) => return Err(wrong("true or false")),
            DeValue::Array(list) if is_repeated(arg) => list
                .iter()
                .map(|item| text(item.get_ref()))
                .collect::<Option<_>>()
                .ok_or_else(|| wrong("a list of texts or numbers"))?,
            value => vec![text(value).ok_or_else(|| wrong("a text or a number"))?],
        };
        let key = name.to_string();
        Ok(Setting { key, values, place, written })
    }

    fn unknown(
        self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        whose: &str,
        known: &[&str],
    ) -> String {
        let (place, wrong) = (self.place(key.span()), key.get_ref());
        let near = nearest(wrong, known.iter().copied());
        format!("{place}: {wrong}: unknown key; expected a key of {whose}, such as {near}")
    }

    /// The file with line and column, from 1.
    pub(crate) fn place(self, span: Range<usize>) -> String {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{}:{line}:{column}", self.path)
    }

    /// The value as written in the file, shortened if it is long.
    fn written(self, span: Range<usize>) -> String {
        let text = self.text.get(span).unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let short: String = line.chars().take(60).collect();
        if short.len() < text.len() { format!("{short}…") } else { short }
    }
}

/// The keys of a table as the file has them, so that the first mistake is told
/// first.
fn ordered<'a, 'i>(
    table: &'a DeTable<'i>,
) -> Vec<(&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// A value as it would stand on the command line.
fn text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            let value = i128::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(value.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}
