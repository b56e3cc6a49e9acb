//! Reading models and optimizers from tables: TOML files, and the JSON of
//! golden cases. Everything that is wrong is reported at once.

use super::keys::{KeyValue, Keys, List, Missing};
use super::{Layer, LayerKind, Model, Optimizer, OptimizerName, TrainSpec};
use crate::error::{Error, Expected, ModelError, Result, Unexpected, did_you_mean};
use crate::ops::optim::Decay;
use dahl_kernels::DType;
use serde_json::{Map, Value};
use std::cell::RefCell;

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
    /// Reads an optimizer and the norm that gradients are clipped to, with
    /// PyTorch's defaults for what is not named.
    pub fn from_json(json: &str) -> Result<(Self, Option<f64>)> {
        let value: Value = serde_json::from_str(json)
            .map_err(|e| Error::config("optimizer", "a JSON table", e))?;
        let errors = Errors::default();
        let table = Table::new(&value, "optimizer", "", &errors);
        let kind = table.text("type", None);
        let mut optimizer = match kind.parse() {
            Ok(OptimizerName::Sgd) => Optimizer::sgd(0.0),
            Ok(OptimizerName::Adam) => Optimizer::adam(0.0),
            Ok(OptimizerName::Adamw) => Optimizer::adamw(0.0),
            Err(Expected(names)) => {
                table.wrong("type", &names, &kind);
                Optimizer::sgd(0.0)
            }
        };
        match &mut optimizer {
            Optimizer::Sgd { lr, sgd } => {
                // PyTorch's SGD has a default learning rate of 1e-3 too.
                *lr = table.or("lr", 1e-3);
                sgd.momentum = table.or("momentum", 0.0);
                sgd.dampening = table.or("dampening", 0.0);
                sgd.weight_decay = table.or("weight_decay", 0.0);
                sgd.nesterov = table.or("nesterov", false);
                sgd.maximize = table.or("maximize", false);
                if sgd.nesterov && (sgd.momentum == 0.0 || sgd.dampening != 0.0) {
                    table.wrong("nesterov", "a momentum and no dampening", "nesterov without");
                }
            }
            Optimizer::Adam { lr, adam } => {
                *lr = table.or("lr", 1e-3);
                adam.betas = table.pair_of_numbers("betas", [0.9, 0.999]);
                adam.eps = table.or("eps", 1e-8);
                let decay = if adam.decay == Decay::Parameter { 0.01 } else { 0.0 };
                adam.weight_decay = table.or("weight_decay", decay);
                adam.amsgrad = table.or("amsgrad", false);
                adam.maximize = table.or("maximize", false);
            }
        }
        let clip = table.get("clip_grad_norm").map(|_| table.or("clip_grad_norm", 0.0));
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
    let mut t = Table::new(value, if kind.is_empty() { "layer" } else { kind }, path, errors);
    t.get("type");
    let name = t.get("name").map(|_| t.text("name", None));
    let Some(mut kind) = LayerKind::named(kind) else {
        let known = LayerKind::names();
        let expected = format!("one of {}", known.join(", "));
        let found = format!("{kind:?}{}", did_you_mean(kind, known));
        errors.push_text("layer", path, "type", &expected, found);
        // The rest of the model is checked as if the layer did nothing.
        return Layer { name, kind: LayerKind::Sequential(Vec::new()) };
    };
    kind.describe(&mut t);
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
            fault: Unexpected::new(what, expected, found),
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
    fn value<T>(
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

    fn or<T: KeyValue + Clone>(&self, key: &str, default: T) -> T {
        self.value(key, T::EXPECTED, Some(default.clone()), T::read).unwrap_or(default)
    }

    fn text(&self, key: &str, default: Option<&str>) -> String {
        let default = default.map(str::to_owned);
        self.value(key, String::EXPECTED, default, String::read).unwrap_or_default()
    }

    fn list(&self, key: &str) -> Vec<usize> {
        let read = |v: &Value| v.as_array()?.iter().map(usize::read).collect();
        self.value(key, "a list of whole numbers", None, read).unwrap_or_default()
    }

    fn pair_of_numbers(&self, key: &str, default: [f64; 2]) -> [f64; 2] {
        let read = |v: &Value| match v.as_array().map(Vec::as_slice) {
            Some([a, b]) => Some([a.as_f64()?, b.as_f64()?]),
            _ => None,
        };
        self.value(key, "two numbers", Some(default), read).unwrap_or(default)
    }

    /// Other keys are errors.
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

impl Keys for Table<'_> {
    fn key<T: KeyValue>(&mut self, name: &'static str, value: &mut T, missing: Missing<T>) {
        if let Some(read) = self.value(name, T::EXPECTED, missing.default(), T::read) {
            *value = read;
        }
    }

    fn layers(&mut self, List { name, part, .. }: List, list: &mut Vec<Layer>) {
        let path = if part.is_empty() { self.path } else { &format!("{}.{part}", self.path) };
        *list = self.get(name).map_or(Vec::new(), |value| layers(value, path, self.errors));
    }
}
