//! What layers are called in model files, in PyTorch and in the documentation.

use super::{Layer, LayerKind};
use serde_json::Value;

/// A type of layer: all that is not in its keys.
pub(super) struct LayerType {
    /// The `type` of model files.
    pub(super) name: &'static str,
    /// The class in `torch.nn`; empty where it has none.
    pub(super) class: &'static str,
    /// The first argument of that class, which is no key.
    pub(super) first: First,
    /// What else docs/model-format.md says.
    pub(super) note: &'static str,
}

impl LayerType {
    pub(super) fn new(name: &'static str, class: &'static str) -> Self {
        Self { name, class, first: First::None, note: "" }
    }
}

/// The argument of a PyTorch class before the keys.
#[derive(Clone, Copy)]
pub(super) enum First {
    /// There is none.
    None,
    /// A text.
    Text(&'static str),
    /// So many times an axis of the layer's weight.
    Weight { axis: usize, times: usize },
}

/// Goes through the keys of a layer, in the order of files: reads, prints or documents them.
pub(super) trait Keys {
    /// A key with a plain value.
    fn key<T: KeyValue>(&mut self, name: &'static str, value: &mut T, missing: Missing<T>);

    /// A list of layers.
    fn layers(&mut self, _key: List, _layers: &mut Vec<Layer>) {}
}

/// A key with a list of layers.
pub(super) struct List {
    pub(super) name: &'static str,
    /// What it adds to the paths of its layers.
    pub(super) part: &'static str,
    /// What a missing one is, where it may be missing.
    pub(super) missing: Option<&'static str>,
}

/// What a missing key means.
pub(super) enum Missing<T> {
    /// It is an error.
    Refused,
    /// This value, which is not printed.
    Default(T),
    /// This value, which is printed.
    Printed(T),
    /// The value of another key, which is not printed.
    As(&'static str, T),
}

impl<T: KeyValue> Missing<T> {
    /// Whether a value is the same as none.
    pub(super) fn is(&self, value: &T) -> bool {
        matches!(self, Missing::Default(default) | Missing::As(_, default) if default == value)
    }

    pub(super) fn default(self) -> Option<T> {
        match self {
            Missing::Refused => None,
            Missing::Default(value) | Missing::Printed(value) | Missing::As(_, value) => {
                Some(value)
            }
        }
    }
}

/// A plain value of a key.
pub(super) trait KeyValue: PartialEq {
    /// What is expected where `read` takes nothing.
    const EXPECTED: &'static str;
    /// PyTorch source has it even where it is the default.
    const STATED: bool = false;
    fn read(value: &Value) -> Option<Self>
    where
        Self: Sized;
    fn toml(&self) -> String;
    fn python(&self) -> String {
        self.toml()
    }
}

impl KeyValue for usize {
    const EXPECTED: &'static str = "a whole number";

    fn read(value: &Value) -> Option<Self> {
        value.as_u64().and_then(|n| usize::try_from(n).ok())
    }

    fn toml(&self) -> String {
        self.to_string()
    }
}

/// One number for both axes, or one for each.
impl KeyValue for [usize; 2] {
    const EXPECTED: &'static str = "a whole number or [rows, columns]";

    fn read(value: &Value) -> Option<Self> {
        match value.as_array().map(Vec::as_slice) {
            Some([a, b]) => Some([usize::read(a)?, usize::read(b)?]),
            Some([a]) => Some([usize::read(a)?; 2]),
            Some(_) => None,
            None => Some([usize::read(value)?; 2]),
        }
    }

    fn toml(&self) -> String {
        let [a, b] = self;
        if a == b { a.to_string() } else { format!("[{a}, {b}]") }
    }

    fn python(&self) -> String {
        self.toml().replace('[', "(").replace(']', ")")
    }
}

impl KeyValue for f64 {
    const EXPECTED: &'static str = "a number";
    const STATED: bool = true;

    fn read(value: &Value) -> Option<Self> {
        value.as_f64()
    }

    fn toml(&self) -> String {
        format!("{self:?}")
    }
}

impl KeyValue for bool {
    const EXPECTED: &'static str = "true or false";

    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }

    fn toml(&self) -> String {
        self.to_string()
    }

    fn python(&self) -> String {
        if *self { "True".to_owned() } else { "False".to_owned() }
    }
}

impl KeyValue for String {
    const EXPECTED: &'static str = "a text";

    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }

    /// A string of TOML, which has other escapes than Rust.
    fn toml(&self) -> String {
        toml::Value::from(self.as_str()).to_string()
    }
}

/// Looks at no key.
impl Keys for () {
    fn key<T: KeyValue>(&mut self, _: &'static str, _: &mut T, _: Missing<T>) {}
}

impl LayerKind {
    /// What the layer is called; `None` for one that files do not have.
    pub(super) fn type_of(&self) -> Option<LayerType> {
        match self {
            // Whatever is in them does not matter, and may be much.
            LayerKind::Sequential(_) => LayerKind::Sequential(Vec::new()).describe(&mut ()),
            LayerKind::Residual { .. } => LayerKind::empty_residual().describe(&mut ()),
            kind => kind.clone().describe(&mut ()),
        }
    }

    /// The names of all types, in the order of the documentation.
    pub(super) fn names() -> Vec<&'static str> {
        Self::all().iter().filter_map(Self::type_of).map(|of| of.name).collect()
    }

    /// A layer of the type `name`, with the defaults of its keys.
    pub(super) fn named(name: &str) -> Option<Self> {
        let is_it = |kind: &LayerKind| kind.type_of().is_some_and(|of| of.name == name);
        Self::all().into_iter().find(is_it)
    }
}

/// The layers that model files can name, with their keys and PyTorch's classes: a table in
/// Markdown.
pub fn layers_as_markdown() -> String {
    let rows: String = LayerKind::all().into_iter().filter_map(row).collect();
    format!("| type | keys (default) | PyTorch |\n|---|---|---|\n{rows}")
}

/// The keys with their defaults.
#[derive(Default)]
struct Documented(Vec<String>);

impl Keys for Documented {
    fn key<T: KeyValue>(&mut self, name: &'static str, _: &mut T, missing: Missing<T>) {
        let default = match missing {
            Missing::As(other, _) => Some(format!("`{other}`")),
            missing => missing.default().map(|value| value.toml()),
        };
        let default = default.map_or(String::new(), |default| format!(" ({default})"));
        self.0.push(format!("`{name}`{default}"));
    }

    fn layers(&mut self, List { name, missing, .. }: List, _: &mut Vec<Layer>) {
        let default = missing.map_or(String::new(), |default| format!(" ({default})"));
        self.0.push(format!("`{name}`{default}"));
    }
}

fn row(mut kind: LayerKind) -> Option<String> {
    let mut keys = Documented::default();
    let of = kind.describe(&mut keys)?;
    let class = match of.first {
        _ if of.class.is_empty() => String::new(),
        First::Text(text) => format!("`{}({text})`", of.class),
        First::None | First::Weight { .. } => format!("`{}`", of.class),
    };
    let parts = [class.as_str(), of.note].into_iter().filter(|part| !part.is_empty());
    let torch = parts.collect::<Vec<_>>().join(", ");
    let row = format!("| `{}` | {} | {torch} |\n", of.name, keys.0.join(", "));
    Some(row.replace("|  |", "| |"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_DOCS=1 cargo test -p dahl --lib documentation` writes the table.
    #[test]
    fn the_documentation_has_every_layer() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/model-format.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (before, rest) = text.split_once("| type |").expect("a table of layers");
        let (_, after) = rest.split_once("\n\n").expect("a text after the table");
        let updated = format!("{before}{}\n{after}", layers_as_markdown());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            return std::fs::write(path, &updated).unwrap();
        }
        assert!(updated == text, "docs/model-format.md is stale: UPDATE_DOCS=1 writes it");
    }
}
