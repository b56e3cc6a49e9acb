//! Models as TOML.

use super::keys::{KeyValue, Keys, List, Missing};
use super::{Layer, Model};
use crate::error::{Error, Result};
use std::fmt::Write as _;

impl Model {
    /// The model as a TOML file, which [`Model::parse`] reads back.
    ///
    /// A layer from outside of the crate has no text.
    pub fn to_toml(&self) -> Result<String> {
        let mut text = format!("name = {}\ninput = {:?}\nlayers = ", self.name.toml(), self.input);
        layers(&mut text, &self.layers, 0)?;
        text.push('\n');
        Ok(text)
    }
}

fn layers(text: &mut String, list: &[Layer], depth: usize) -> Result<()> {
    if list.is_empty() {
        text.push_str("[]");
        return Ok(());
    }
    text.push_str("[\n");
    for one in list {
        text.push_str(&"  ".repeat(depth + 1));
        layer(text, one, depth + 1)?;
        text.push_str(",\n");
    }
    text.push_str(&"  ".repeat(depth));
    text.push(']');
    Ok(())
}

fn layer(text: &mut String, layer: &Layer, depth: usize) -> Result<()> {
    let mut kind = layer.kind.clone();
    let Some(of) = kind.type_of() else {
        return Err(Error::Unsupported { what: format!("a TOML text of a layer {kind:?}") });
    };
    let _ = write!(text, "{{ type = \"{}\"", of.name);
    if let Some(name) = &layer.name {
        let _ = write!(text, ", name = {}", name.toml());
    }
    let mut printer = Printer { text, depth, result: Ok(()) };
    kind.describe(&mut printer);
    printer.result?;
    text.push_str(" }");
    Ok(())
}

/// Writes the keys of a layer, without those that have their default.
struct Printer<'a> {
    text: &'a mut String,
    depth: usize,
    result: Result<()>,
}

impl Keys for Printer<'_> {
    fn key<T: KeyValue>(&mut self, name: &'static str, value: &mut T, missing: Missing<T>) {
        if !missing.is(value) {
            let _ = write!(self.text, ", {name} = {}", value.toml());
        }
    }

    fn layers(&mut self, List { name, missing, .. }: List, list: &mut Vec<Layer>) {
        if self.result.is_ok() && (missing.is_none() || !list.is_empty()) {
            let _ = write!(self.text, ", {name} = ");
            self.result = layers(self.text, list, self.depth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_models_are_read_back() {
        for name in super::super::NAMES {
            let model = Model::named(name).unwrap();
            let text = model.to_toml().unwrap();
            let again = Model::parse(&text).unwrap();
            assert_eq!(format!("{model:?}"), format!("{again:?}"), "{text}");
        }
    }

    /// Weights of such a model could not be read back.
    #[test]
    fn names_of_any_characters_are_read_back() {
        for name in ["Caf\u{a0}e", "a\u{1b}[31m", "\"'\\", "two\nlines", "\u{0}\u{7f}\u{202e}"] {
            let model = Model::sequential(name, &[4], |s| s.linear(2));
            let again = Model::parse(&model.to_toml().unwrap()).unwrap();
            assert_eq!(again.name, name);
        }
    }
}
