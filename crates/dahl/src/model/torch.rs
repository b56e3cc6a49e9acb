//! Models as PyTorch source, whose state dict has dahl's names.

use super::keys::{First, KeyValue, Keys, Missing};
use super::{Layer, LayerKind, Model, Optimizer, TrainSpec};
use crate::error::{Error, Result, one_line};
use crate::graph::Store;
use dahl_kernels::{DType, Shape};
use std::fmt::Write as _;

/// The class of residual blocks, for models that have one.
const RESIDUAL: &str = r#"class Residual(nn.Module):
    """body(x) + shortcut(x), then what follows; no shortcut is the identity."""

    def __init__(self, body, shortcut, then):
        super().__init__()
        self.parts = [self.register(*part) for part in (body, shortcut, ("", then))]

    def register(self, name, layers):
        """Adds layers under a name, or directly where it is empty."""
        if name and layers:
            layers = [(name, nn.Sequential(OrderedDict(layers)))]
        for key, layer in layers:
            self.add_module(key, layer)
        return [key for key, _ in layers]

    def forward(self, x):
        body, shortcut, then = self.parts
        x = self.through(body, x) + self.through(shortcut, x)
        return self.through(then, x)

    def through(self, keys, x):
        for key in keys:
            x = getattr(self, key)(x)
        return x


"#;

impl Model {
    /// The model as Python source: a function `model()` that makes a
    /// `torch.nn.Module` whose state dict has the names of dahl's weights.
    ///
    /// # Errors
    /// [`Error::Model`] where the model does not fit together,
    /// [`Error::Unsupported`] where a layer has no text: one from outside of the
    /// crate, or one whose name is a path.
    pub fn to_torch(&self) -> Result<String> {
        let spec = TrainSpec {
            train: Vec::new(),
            eval: vec![1],
            ..TrainSpec::new(1, DType::F32, Optimizer::sgd(0.0))
        };
        let lowered = self.lower(&spec)?;
        let printer = Printer { store: &lowered.programs.store };
        let residual = if has_residual(&self.layers) { RESIDUAL } else { "" };
        let mut text = format!(
            "from collections import OrderedDict\n\nfrom torch import nn\n\n\
             INPUT = {:?}  # the shape of one sample\n\n\n\
             {residual}def model():\n    return nn.Sequential(OrderedDict(",
            self.input
        );
        printer.list(&mut text, &printer.names(&[("", &self.layers)])?[0], "", 1)?;
        text.push_str("))\n");
        Ok(text)
    }
}

fn has_residual(layers: &[Layer]) -> bool {
    layers.iter().any(|layer| {
        matches!(layer.kind, LayerKind::Residual { .. })
            || layer.kind.parts().into_iter().any(has_residual)
    })
}

/// Layers with their names.
type Named<'a> = Vec<(String, &'a Layer)>;

struct Printer<'a> {
    store: &'a Store,
}

impl Printer<'_> {
    /// The names of the layers of one module, whose parts without a name share
    /// its names. A layer with weights has its own; one without may meet another
    /// of its name, and steps aside.
    fn names<'l>(&self, parts: &[(&str, &'l [Layer])]) -> Result<Vec<Named<'l>>> {
        let mut shared: Vec<String> = Vec::new();
        for (name, layers) in parts {
            match *name {
                "" => reserve(layers, &mut shared)?,
                name => shared.push(name.to_owned()),
            }
        }
        let mut all = Vec::new();
        for (part, layers) in parts {
            let mut own = Vec::new();
            let taken = if part.is_empty() { &mut shared } else { &mut own };
            if !part.is_empty() {
                reserve(layers, taken)?;
            }
            let mut named = Named::new();
            for (i, layer) in layers.iter().enumerate() {
                let mut name = name_of(i, layer);
                if !has_weights(&layer.kind) {
                    while taken.contains(&name) {
                        name.push('_');
                    }
                    taken.push(name.clone());
                }
                named.push((name, layer));
            }
            all.push(named);
        }
        Ok(all)
    }

    /// A list of pairs of name and layer, under the path `path`.
    fn list(&self, text: &mut String, layers: &Named<'_>, path: &str, depth: usize) -> Result<()> {
        if layers.is_empty() {
            text.push_str("[]");
            return Ok(());
        }
        text.push_str("[\n");
        for (name, layer) in layers {
            let path = join(path, name);
            let _ = write!(text, "{}({}, ", "    ".repeat(depth + 1), quoted(name));
            self.layer(text, &layer.kind, &path, depth + 1)?;
            text.push_str("),\n");
        }
        let _ = write!(text, "{}]", "    ".repeat(depth));
        Ok(())
    }

    fn layer(&self, text: &mut String, kind: &LayerKind, path: &str, depth: usize) -> Result<()> {
        match kind {
            LayerKind::Sequential(layers) => {
                text.push_str("nn.Sequential(OrderedDict(");
                self.list(text, &self.names(&[("", layers)])?[0], path, depth)?;
                text.push_str("))");
            }
            LayerKind::Residual { body_name, body, shortcut_name, shortcut, then } => {
                let parts =
                    [(body_name.as_str(), &body[..]), (shortcut_name, shortcut), ("", then)];
                let names = self.names(&parts)?;
                text.push_str("Residual(\n");
                let inner = "    ".repeat(depth + 1);
                for ((name, _), layers) in parts.iter().zip(&names).take(2) {
                    let _ = write!(text, "{inner}({}, ", quoted(name));
                    self.list(text, layers, &join(path, name), depth + 1)?;
                    text.push_str("),\n");
                }
                text.push_str(&inner);
                self.list(text, &names[2], path, depth + 1)?;
                let _ = write!(text, ",\n{})", "    ".repeat(depth));
            }
            simple => text.push_str(&self.simple(simple, path)?),
        }
        Ok(())
    }

    /// A layer that PyTorch has.
    fn simple(&self, kind: &LayerKind, path: &str) -> Result<String> {
        let mut keys = Arguments::default();
        let Some(of) = kind.clone().describe(&mut keys) else {
            return Err(Error::Unsupported {
                what: format!("PyTorch source of {kind:?} at {path}"),
            });
        };
        let first = match of.first {
            First::None => None,
            First::Text(text) => Some(text.to_owned()),
            First::Weight { axis, times } => Some((self.weight(path)?[axis] * times).to_string()),
        };
        let all: Vec<String> = first.into_iter().chain(keys.0).collect();
        Ok(format!("nn.{}({})", of.class, all.join(", ")))
    }

    fn weight(&self, path: &str) -> Result<Shape> {
        let name = join(path, "weight");
        let found = self.store.find(&name).map(|id| self.store.get(id).meta.shape);
        found.ok_or_else(|| Error::Unsupported { what: format!("a layer without {name}") })
    }
}

/// The keys of a layer as arguments of its class.
#[derive(Default)]
struct Arguments(Vec<String>);

impl Keys for Arguments {
    fn key<T: KeyValue>(&mut self, name: &'static str, value: &mut T, missing: Missing<T>) {
        match missing {
            Missing::Refused | Missing::Printed(_) => self.0.push(value.python()),
            missing if missing.is(value) && !T::STATED => {}
            _ => self.0.push(format!("{name}={}", value.python())),
        }
    }
}

/// Adds the names of the layers with weights, which must be names that
/// PyTorch's modules can have.
fn reserve(layers: &[Layer], taken: &mut Vec<String>) -> Result<()> {
    for (i, layer) in layers.iter().enumerate() {
        let name = name_of(i, layer);
        let again = has_weights(&layer.kind) && taken.contains(&name);
        if again || name.is_empty() || name.contains('.') {
            let twice = if again { ", twice" } else { "" };
            let what = format!("a PyTorch module called {name:?}{twice}");
            return Err(Error::Unsupported { what });
        }
        if has_weights(&layer.kind) {
            taken.push(name);
        }
    }
    Ok(())
}

fn name_of(i: usize, layer: &Layer) -> String {
    layer.name.clone().unwrap_or_else(|| i.to_string())
}

fn has_weights(kind: &LayerKind) -> bool {
    kind.type_of().is_some_and(|of| matches!(of.first, First::Weight { .. }))
        || kind.parts().into_iter().flatten().any(|layer| has_weights(&layer.kind))
}

fn join(path: &str, name: &str) -> String {
    match (path, name) {
        ("", name) => name.to_owned(),
        (path, "") => path.to_owned(),
        (path, name) => format!("{path}.{name}"),
    }
}

/// A text in Python, which reads JSON's texts as its own. Characters that would change how the
/// source looks, such as those of the direction of writing, are spelled out.
fn quoted(text: &str) -> String {
    one_line(&serde_json::Value::from(text).to_string()).into_owned()
}

#[cfg(test)]
mod tests;
