//! Reading models and optimisers from tables: TOML files, and the JSON of
//! golden cases. Everything that is wrong is reported at once.

use super::{Layer, LayerKind, Model, Optimizer, TrainSpec};
use crate::error::{Error, ModelError, Result};
use crate::ops::conv2d::Conv2d;
use crate::ops::elementwise::Unary;
use crate::ops::optim::Decay;
use crate::ops::pool::Pool2d;
use dahl_kernels::DType;
use serde_json::{Map, Value};
use std::cell::RefCell;

/// The layers that a file can name.
const LAYERS: &str = "conv2d, linear, relu, leaky_relu, sigmoid, tanh, gelu, max_pool2d, \
    avg_pool2d, global_avg_pool2d, batch_norm2d, dropout, flatten, softmax, log_softmax, \
    sequential, residual";

impl Model {
    /// Reads a model from the text of a TOML file.
    ///
    /// ```
    /// let model = dahl::model::Model::parse(r#"
    ///     name = "tiny"
    ///     input = [1, 8, 8]
    ///     layers = [
    ///         { type = "conv2d", out = 4, kernel = 3 },
    ///         { type = "relu" },
    ///         { type = "flatten" },
    ///         { type = "linear", out = 10 },
    ///     ]
    /// "#).unwrap();
    /// assert_eq!(model.name, "tiny");
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let value: Value = toml::from_str(text)
            .map_err(|e| Error::config("model", "a TOML file", e.to_string().trim_end()))?;
        let errors = Errors::default();
        let table = Table::new(&value, "model", "", &errors);
        let name = table.text("name", Some("model"));
        let input = table.list("input");
        let layers = match table.get("layers") {
            Some(value) => layers(value, "", &errors),
            None => {
                errors.push("model", "", "layers", "a list of layers", &Value::Null);
                Vec::new()
            }
        };
        table.finish();
        Self { name, input, layers }.or_all_errors(errors)
    }

    /// The model, or everything that is wrong with it: what was read wrong, and
    /// what does not fit together.
    fn or_all_errors(self, errors: Errors) -> Result<Self> {
        let mut errors = errors.0.into_inner();
        if errors.is_empty() {
            return Ok(self);
        }
        let spec = TrainSpec::new(2, DType::F32, Optimizer::sgd(0.0));
        if !self.input.is_empty()
            && let Err(Error::Model(more)) = self.lower(&spec)
        {
            errors.extend(more);
        }
        Err(Error::Model(errors))
    }

    /// Reads the layers of a golden case.
    pub fn from_json(name: &str, input: &[usize], json: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(json)
            .map_err(|e| Error::config("model", "a JSON list of layers", e))?;
        let errors = Errors::default();
        let layers = layers(&value, "", &errors);
        Self { name: name.to_owned(), input: input.to_vec(), layers }.or_all_errors(errors)
    }
}

impl Optimizer {
    /// Reads an optimiser and the norm that gradients are clipped to, with
    /// PyTorch's defaults for what is not named.
    pub fn from_json(json: &str) -> Result<(Self, Option<f64>)> {
        let value: Value = serde_json::from_str(json)
            .map_err(|e| Error::config("optimizer", "a JSON table", e))?;
        let errors = Errors::default();
        let table = Table::new(&value, "optimizer", "", &errors);
        let kind = table.text("type", None);
        let mut optimizer = match kind.as_str() {
            "sgd" => Optimizer::sgd(0.0),
            "adam" => Optimizer::adam(0.0),
            "adamw" => Optimizer::adamw(0.0),
            other => {
                table.wrong("type", "sgd, adam or adamw", other);
                Optimizer::sgd(0.0)
            }
        };
        match &mut optimizer {
            Optimizer::Sgd { lr, sgd } => {
                // PyTorch's SGD has a default learning rate of 1e-3 too.
                *lr = table.number("lr", 1e-3);
                sgd.momentum = table.number("momentum", 0.0);
                sgd.dampening = table.number("dampening", 0.0);
                sgd.weight_decay = table.number("weight_decay", 0.0);
                sgd.nesterov = table.flag("nesterov", false);
                sgd.maximize = table.flag("maximize", false);
                if sgd.nesterov && (sgd.momentum == 0.0 || sgd.dampening != 0.0) {
                    table.wrong("nesterov", "a momentum and no dampening", "nesterov without");
                }
            }
            Optimizer::Adam { lr, adam } => {
                *lr = table.number("lr", 1e-3);
                adam.betas = table.pair_of_numbers("betas", [0.9, 0.999]);
                adam.eps = table.number("eps", 1e-8);
                let decay = if adam.decay == Decay::Parameter { 0.01 } else { 0.0 };
                adam.weight_decay = table.number("weight_decay", decay);
                adam.amsgrad = table.flag("amsgrad", false);
                adam.maximize = table.flag("maximize", false);
            }
        }
        let clip = table.get("clip_grad_norm").map(|_| table.number("clip_grad_norm", 0.0));
        table.finish();
        errors.into_result()?;
        Ok((optimizer, clip))
    }
}

fn layers(value: &Value, path: &str, errors: &Errors) -> Vec<Layer> {
    let Some(list) = value.as_array() else {
        errors.push("model", path, "layers", "a list of layers", value);
        return Vec::new();
    };
    let layer = |(i, value): (usize, &Value)| {
        let name = value.get("name").and_then(Value::as_str);
        let own = name.map_or(i.to_string(), str::to_owned);
        let path = if path.is_empty() { own } else { format!("{path}.{own}") };
        layer(value, &path, errors)
    };
    list.iter().enumerate().map(layer).collect()
}

fn layer(value: &Value, path: &str, errors: &Errors) -> Layer {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or("");
    let t = Table::new(value, if kind.is_empty() { "layer" } else { kind }, path, errors);
    t.get("type");
    let name = t.get("name").map(|_| t.text("name", None));
    let pool = || {
        let kernel = t.pair("kernel", None);
        Pool2d {
            kernel,
            stride: t.pair("stride", Some(kernel)),
            padding: t.pair("padding", Some([0; 2])),
        }
    };
    let kind = match kind {
        "conv2d" => LayerKind::Conv2d {
            out: t.count("out"),
            kernel: t.pair("kernel", None),
            conv: Conv2d {
                stride: t.pair("stride", Some([1; 2])),
                padding: t.pair("padding", Some([0; 2])),
                dilation: t.pair("dilation", Some([1; 2])),
                groups: t.get("groups").map_or(1, |_| t.count("groups")),
            },
            bias: t.flag("bias", true),
        },
        "linear" => LayerKind::Linear { out: t.count("out"), bias: t.flag("bias", true) },
        "relu" => LayerKind::Unary(Unary::Relu),
        "leaky_relu" => LayerKind::Unary(Unary::LeakyRelu(t.number("negative_slope", 0.01))),
        "sigmoid" => LayerKind::Unary(Unary::Sigmoid),
        "tanh" => LayerKind::Unary(Unary::Tanh),
        "gelu" => LayerKind::Unary(Unary::Gelu),
        "max_pool2d" => LayerKind::MaxPool2d(pool()),
        "avg_pool2d" => LayerKind::AvgPool2d(pool()),
        "global_avg_pool2d" => LayerKind::GlobalAvgPool2d,
        "batch_norm2d" => LayerKind::BatchNorm2d {
            eps: t.number("eps", 1e-5),
            momentum: t.number("momentum", 0.1),
        },
        "dropout" => LayerKind::Dropout { p: t.number("p", 0.5) },
        "flatten" => LayerKind::Flatten,
        "softmax" => LayerKind::Softmax,
        "log_softmax" => LayerKind::LogSoftmax,
        "sequential" => LayerKind::Sequential(t.layers("layers", path)),
        "residual" => LayerKind::Residual {
            body_name: t.text("body_name", Some("body")),
            body: t.layers("body", &format!("{path}.body")),
            shortcut_name: t.text("shortcut_name", Some("shortcut")),
            shortcut: t.layers("shortcut", &format!("{path}.shortcut")),
            then: t.layers("then", path),
        },
        other => {
            let expected = format!("one of {LAYERS}");
            errors.push("layer", path, "type", &expected, &Value::from(other));
            // The rest of the model is checked as if the layer did nothing.
            return Layer { name, kind: LayerKind::Sequential(Vec::new()) };
        }
    };
    t.finish();
    Layer { name, kind }
}

/// Everything that was found wrong.
#[derive(Default)]
struct Errors(RefCell<Vec<ModelError>>);

impl Errors {
    /// Of a missing key the value is `Null`.
    fn push(&self, op: &str, path: &str, what: &str, expected: &str, found: &Value) {
        let found = if found.is_null() { "nothing".to_owned() } else { found.to_string() };
        self.push_text(op, path, what, expected, found);
    }

    fn push_text(&self, op: &str, path: &str, what: &str, expected: &str, found: String) {
        self.0.borrow_mut().push(ModelError {
            op: op.to_owned(),
            path: path.to_owned(),
            what: what.to_owned(),
            expected: expected.to_owned(),
            found,
        });
    }

    fn into_result(self) -> Result<()> {
        let errors = self.0.into_inner();
        if errors.is_empty() { Ok(()) } else { Err(Error::Model(errors)) }
    }
}

/// A table whose keys are ticked off as they are read.
struct Table<'a> {
    op: &'a str,
    path: &'a str,
    map: Option<&'a Map<String, Value>>,
    read: RefCell<Vec<String>>,
    errors: &'a Errors,
}

impl<'a> Table<'a> {
    fn new(value: &'a Value, op: &'a str, path: &'a str, errors: &'a Errors) -> Self {
        if !value.is_object() {
            errors.push(op, path, "value", "a table", value);
        }
        Self { op, path, map: value.as_object(), read: RefCell::default(), errors }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.read.borrow_mut().push(key.to_owned());
        self.map?.get(key)
    }

    fn wrong(&self, key: &str, expected: &str, found: &str) {
        self.errors.push(self.op, self.path, key, expected, &Value::from(found));
    }

    /// Reads a key; a value that `read` does not take is an error, and so is a
    /// missing one without a default.
    fn key<T>(
        &self,
        key: &str,
        expected: &str,
        default: Option<T>,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        match self.get(key) {
            Some(value) => {
                let result = read(value);
                if result.is_none() {
                    // TOML has no null: it is a number that JSON values do not have.
                    let found =
                        if value.is_null() { "nan or inf".to_owned() } else { value.to_string() };
                    self.errors.push_text(self.op, self.path, key, expected, found);
                }
                result
            }
            None => {
                if default.is_none() {
                    self.errors.push(self.op, self.path, key, expected, &Value::Null);
                }
                default
            }
        }
    }

    fn count(&self, key: &str) -> usize {
        self.key(key, "a whole number", None, count).unwrap_or(1)
    }

    fn number(&self, key: &str, default: f64) -> f64 {
        self.key(key, "a number", Some(default), Value::as_f64).unwrap_or(default)
    }

    fn flag(&self, key: &str, default: bool) -> bool {
        self.key(key, "true or false", Some(default), Value::as_bool).unwrap_or(default)
    }

    fn text(&self, key: &str, default: Option<&str>) -> String {
        let read = |v: &Value| v.as_str().map(str::to_owned);
        self.key(key, "a text", default.map(str::to_owned), read).unwrap_or_default()
    }

    fn list(&self, key: &str) -> Vec<usize> {
        let read = |v: &Value| v.as_array()?.iter().map(count).collect();
        self.key(key, "a list of whole numbers", None, read).unwrap_or_default()
    }

    /// One number for both axes, or one for each.
    fn pair(&self, key: &str, default: Option<[usize; 2]>) -> [usize; 2] {
        let read = |v: &Value| match v.as_array().map(Vec::as_slice) {
            Some([a, b]) => Some([count(a)?, count(b)?]),
            Some([a]) => Some([count(a)?; 2]),
            Some(_) => None,
            None => Some([count(v)?; 2]),
        };
        self.key(key, "a whole number or [rows, columns]", default, read).unwrap_or([1; 2])
    }

    fn pair_of_numbers(&self, key: &str, default: [f64; 2]) -> [f64; 2] {
        let read = |v: &Value| match v.as_array().map(Vec::as_slice) {
            Some([a, b]) => Some([a.as_f64()?, b.as_f64()?]),
            _ => None,
        };
        self.key(key, "two numbers", Some(default), read).unwrap_or(default)
    }

    fn layers(&self, key: &str, path: &str) -> Vec<Layer> {
        match self.get(key) {
            Some(value) => layers(value, path, self.errors),
            None => Vec::new(),
        }
    }

    /// Keys that nobody asked for are errors.
    fn finish(&self) {
        let read = self.read.borrow();
        for (key, value) in self.map.into_iter().flatten() {
            if !read.contains(key) {
                let expected = format!("one of the keys {}", read.join(", "));
                self.errors.push(self.op, self.path, key, &expected, value);
            }
        }
    }
}

fn count(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|n| usize::try_from(n).ok())
}
