//! Models as TOML.

use super::{Layer, LayerKind, Model};
use crate::error::{Error, Result};
use crate::ops::elementwise::Unary;
use crate::ops::pool::Pool2d;
use std::fmt::Write as _;

impl Model {
    /// The model as a TOML file, which [`Model::parse`] reads back.
    ///
    /// A layer from outside of the crate has no text.
    pub fn to_toml(&self) -> Result<String> {
        let mut text =
            format!("name = {}\ninput = {:?}\nlayers = ", quoted(&self.name), self.input);
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
    let (name, keys) = attributes(&layer.kind)?;
    let _ = write!(text, "{{ type = \"{name}\"");
    if let Some(name) = &layer.name {
        let _ = write!(text, ", name = {}", quoted(name));
    }
    for (key, value) in keys {
        let _ = write!(text, ", {key} = {value}");
    }
    match &layer.kind {
        LayerKind::Sequential(inner) => {
            text.push_str(", layers = ");
            layers(text, inner, depth)?;
        }
        LayerKind::Residual { body, shortcut, then, .. } => {
            for (key, inner) in [("body", body), ("shortcut", shortcut), ("then", then)] {
                if !inner.is_empty() || key == "body" {
                    let _ = write!(text, ", {key} = ");
                    layers(text, inner, depth)?;
                }
            }
        }
        _ => {}
    }
    text.push_str(" }");
    Ok(())
}

/// A string of TOML, which has other escapes than Rust.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

type Keys = Vec<(&'static str, String)>;

/// The layer's type and its keys, without those that have their default.
fn attributes(kind: &LayerKind) -> Result<(&'static str, Keys)> {
    let pair = |[a, b]: [usize; 2]| if a == b { a.to_string() } else { format!("[{a}, {b}]") };
    let pool = |name, pool: &Pool2d| {
        let mut keys = vec![("kernel", pair(pool.kernel))];
        if pool.stride != pool.kernel {
            keys.push(("stride", pair(pool.stride)));
        }
        if pool.padding != [0, 0] {
            keys.push(("padding", pair(pool.padding)));
        }
        (name, keys)
    };
    let bias = |bias: bool| (!bias).then(|| ("bias", "false".to_owned()));
    Ok(match kind {
        LayerKind::Conv2d { out, kernel, conv, bias: with } => {
            let mut keys = vec![("out", out.to_string()), ("kernel", pair(*kernel))];
            for (key, value, default) in [
                ("stride", conv.stride, [1, 1]),
                ("padding", conv.padding, [0, 0]),
                ("dilation", conv.dilation, [1, 1]),
            ] {
                if value != default {
                    keys.push((key, pair(value)));
                }
            }
            if conv.groups != 1 {
                keys.push(("groups", conv.groups.to_string()));
            }
            keys.extend(bias(*with));
            ("conv2d", keys)
        }
        LayerKind::Linear { out, bias: with } => {
            let mut keys = vec![("out", out.to_string())];
            keys.extend(bias(*with));
            ("linear", keys)
        }
        LayerKind::Unary(Unary::Relu) => ("relu", Vec::new()),
        LayerKind::Unary(Unary::LeakyRelu(slope)) => {
            ("leaky_relu", vec![("negative_slope", format!("{slope:?}"))])
        }
        LayerKind::Unary(Unary::Sigmoid) => ("sigmoid", Vec::new()),
        LayerKind::Unary(Unary::Tanh) => ("tanh", Vec::new()),
        LayerKind::Unary(Unary::Gelu) => ("gelu", Vec::new()),
        LayerKind::Unary(other) => {
            return Err(Error::Unsupported { what: format!("a TOML text of a layer {other:?}") });
        }
        LayerKind::MaxPool2d(p) => pool("max_pool2d", p),
        LayerKind::AvgPool2d(p) => pool("avg_pool2d", p),
        LayerKind::GlobalAvgPool2d => ("global_avg_pool2d", Vec::new()),
        LayerKind::BatchNorm2d { eps, momentum } => {
            let mut keys = Vec::new();
            if *eps != 1e-5 {
                keys.push(("eps", format!("{eps:?}")));
            }
            if *momentum != 0.1 {
                keys.push(("momentum", format!("{momentum:?}")));
            }
            ("batch_norm2d", keys)
        }
        LayerKind::Dropout { p } => ("dropout", vec![("p", format!("{p:?}"))]),
        LayerKind::Flatten => ("flatten", Vec::new()),
        LayerKind::Softmax => ("softmax", Vec::new()),
        LayerKind::LogSoftmax => ("log_softmax", Vec::new()),
        LayerKind::Sequential(_) => ("sequential", Vec::new()),
        LayerKind::Residual { body_name, shortcut_name, .. } => {
            let mut keys = Vec::new();
            if body_name != "body" {
                keys.push(("body_name", quoted(body_name)));
            }
            if shortcut_name != "shortcut" {
                keys.push(("shortcut_name", quoted(shortcut_name)));
            }
            ("residual", keys)
        }
        LayerKind::Custom(module) => {
            return Err(Error::Unsupported { what: format!("a TOML text of {module:?}") });
        }
    })
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
