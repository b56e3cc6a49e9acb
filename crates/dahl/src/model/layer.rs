//! The layers of a model.

use super::keys::{First, Keys, LayerType, List, Missing};
use super::lower::{Lowering, Mode};
use crate::graph::Class;
use crate::ops::Var;
use crate::ops::batch_norm2d::BatchNorm2dTrack;
use crate::ops::conv2d::Conv2d;
use crate::ops::elementwise::{Dropout, Unary};
use crate::ops::pool::Pool2d;
use crate::ops::{Meta, Mismatch};
use dahl_kernels::{DType, Shape};
use std::fmt;
use std::sync::Arc;

use super::Init;

/// A layer and its name in the state dict.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The name; the index in the sequence where there is none.
    pub name: Option<String>,
    /// What it does.
    pub kind: LayerKind,
}

impl From<LayerKind> for Layer {
    fn from(kind: LayerKind) -> Self {
        Self { name: None, kind }
    }
}

/// A layer from outside of the crate.
pub trait Module: fmt::Debug + Send + Sync {
    /// Records what the layer does to `x`.
    fn lower(&self, x: Var, l: &mut Lowering<'_, '_>) -> Var;
}

/// What a layer does.
#[derive(Clone, Debug)]
pub enum LayerKind {
    /// A convolution to `out` channels.
    Conv2d {
        /// Output channels.
        out: usize,
        /// The window.
        kernel: [usize; 2],
        /// Stride, padding, dilation, groups.
        conv: Conv2d,
        /// Whether a bias is added.
        bias: bool,
    },
    /// A fully connected layer to `out` features.
    Linear {
        /// Output features.
        out: usize,
        /// Whether a bias is added.
        bias: bool,
    },
    /// A function of each element.
    Unary(Unary),
    /// The largest value of each window.
    MaxPool2d(Pool2d),
    /// The mean of each window.
    AvgPool2d(Pool2d),
    /// The mean of each plane.
    GlobalAvgPool2d,
    /// Normalisation by channel.
    BatchNorm2d {
        /// Added to the variance.
        eps: f64,
        /// The weight of new statistics.
        momentum: f64,
    },
    /// Random zeros while training.
    Dropout {
        /// The probability of a zero.
        p: f64,
    },
    /// All axes of a sample made one.
    Flatten,
    /// eˣ over the sum of all.
    Softmax,
    /// The logarithm of the softmax.
    LogSoftmax,
    /// Layers one after the other, under a name of their own.
    Sequential(Vec<Layer>),
    /// body(x) + shortcut(x).
    Residual {
        /// The name of the body's layers; empty: none.
        body_name: String,
        /// The body.
        body: Vec<Layer>,
        /// The name of the shortcut's layers.
        shortcut_name: String,
        /// The shortcut; empty: the identity.
        shortcut: Vec<Layer>,
        /// What follows the sum under the block's own name.
        then: Vec<Layer>,
    },
    /// A layer from outside of the crate.
    Custom(Arc<dyn Module>),
}

/// Lowers layers one after the other, each under its name.
pub(super) fn lower_sequence(layers: &[Layer], x: Var, l: &mut Lowering<'_, '_>) -> Var {
    let mut x = x;
    for (i, layer) in layers.iter().enumerate() {
        let name = layer.name.clone().unwrap_or_else(|| i.to_string());
        x = l.scope(&name, |l| {
            // Numbers may repeat where the parts of a block have no name of their own.
            if layer.name.as_ref().is_some_and(|name| !name.is_empty()) {
                l.count_layer();
            }
            // A layer without a name has its number, which no other may have as its name.
            let numbered = |name: &String| {
                let number =
                    name.parse::<usize>().ok().filter(|number| number.to_string() == *name);
                number.and_then(|number| layers.get(number)).is_some_and(|of| of.name.is_none())
            };
            if layer.name.as_ref().is_some_and(numbered) {
                l.taken(&name);
            }
            layer.kind.lower(x, l)
        });
    }
    x
}

/// A new type of layer has an entry in `all`, `describe` and `lower`.
impl LayerKind {
    /// One layer of every type that files can name, with the defaults of its keys.
    pub(super) fn all() -> Vec<Self> {
        let pool = Pool2d::tiles([1; 2]);
        vec![
            LayerKind::Conv2d { out: 1, kernel: [1; 2], conv: Conv2d::default(), bias: true },
            LayerKind::Linear { out: 1, bias: true },
            LayerKind::Unary(Unary::Relu),
            LayerKind::Unary(Unary::LeakyRelu(0.01)),
            LayerKind::Unary(Unary::Sigmoid),
            LayerKind::Unary(Unary::Tanh),
            LayerKind::Unary(Unary::Gelu),
            LayerKind::MaxPool2d(pool),
            LayerKind::AvgPool2d(pool),
            LayerKind::GlobalAvgPool2d,
            LayerKind::BatchNorm2d { eps: 1e-5, momentum: 0.1 },
            LayerKind::Dropout { p: 0.5 },
            LayerKind::Flatten,
            LayerKind::Softmax,
            LayerKind::LogSoftmax,
            LayerKind::Sequential(Vec::new()),
            LayerKind::empty_residual(),
        ]
    }

    /// Its names in model files and PyTorch, and its keys: parsing, printing, PyTorch source and
    /// documentation follow. `None` for a layer that files do not have.
    pub(super) fn describe(&mut self, k: &mut impl Keys) -> Option<LayerType> {
        use Missing::{Default, Printed, Refused};
        Some(match self {
            LayerKind::Conv2d { out, kernel, conv, bias } => {
                k.key("out", out, Refused);
                k.key("kernel", kernel, Refused);
                k.key("stride", &mut conv.stride, Default([1; 2]));
                k.key("padding", &mut conv.padding, Default([0; 2]));
                k.key("dilation", &mut conv.dilation, Default([1; 2]));
                k.key("groups", &mut conv.groups, Default(1));
                k.key("bias", bias, Default(true));
                let first = First::Weight { axis: 1, times: conv.groups };
                LayerType { first, ..LayerType::new("conv2d", "Conv2d") }
            }
            LayerKind::Linear { out, bias } => {
                k.key("out", out, Refused);
                k.key("bias", bias, Default(true));
                let first = First::Weight { axis: 1, times: 1 };
                LayerType { first, ..LayerType::new("linear", "Linear") }
            }
            LayerKind::Unary(Unary::Relu) => LayerType::new("relu", "ReLU"),
            LayerKind::Unary(Unary::LeakyRelu(slope)) => {
                k.key("negative_slope", slope, Printed(0.01));
                LayerType::new("leaky_relu", "LeakyReLU")
            }
            LayerKind::Unary(Unary::Sigmoid) => LayerType::new("sigmoid", "Sigmoid"),
            LayerKind::Unary(Unary::Tanh) => LayerType::new("tanh", "Tanh"),
            LayerKind::Unary(Unary::Gelu) => {
                LayerType { note: "exact, by erf", ..LayerType::new("gelu", "GELU") }
            }
            LayerKind::MaxPool2d(pool) => {
                pool_keys(pool, k);
                LayerType::new("max_pool2d", "MaxPool2d")
            }
            LayerKind::AvgPool2d(pool) => {
                pool_keys(pool, k);
                let note = "count_include_pad=True";
                LayerType { note, ..LayerType::new("avg_pool2d", "AvgPool2d") }
            }
            LayerKind::GlobalAvgPool2d => {
                let first = First::Text("1");
                LayerType { first, ..LayerType::new("global_avg_pool2d", "AdaptiveAvgPool2d") }
            }
            LayerKind::BatchNorm2d { eps, momentum } => {
                k.key("eps", eps, Default(1e-5));
                k.key("momentum", momentum, Default(0.1));
                let first = First::Weight { axis: 0, times: 1 };
                LayerType { first, ..LayerType::new("batch_norm2d", "BatchNorm2d") }
            }
            LayerKind::Dropout { p } => {
                k.key("p", p, Printed(0.5));
                LayerType::new("dropout", "Dropout")
            }
            LayerKind::Flatten => LayerType::new("flatten", "Flatten"),
            LayerKind::Softmax => {
                let (first, note) = (First::Text("dim=1"), "over the classes");
                LayerType { first, note, ..LayerType::new("softmax", "Softmax") }
            }
            LayerKind::LogSoftmax => {
                let (first, note) = (First::Text("dim=1"), "over the classes");
                LayerType { first, note, ..LayerType::new("log_softmax", "LogSoftmax") }
            }
            LayerKind::Sequential(layers) => {
                k.layers(List { name: "layers", part: "", missing: None }, layers);
                LayerType::new("sequential", "Sequential")
            }
            LayerKind::Residual { body_name, body, shortcut_name, shortcut, then } => {
                k.key("body_name", body_name, Default("body".to_owned()));
                k.key("shortcut_name", shortcut_name, Default("shortcut".to_owned()));
                let list = |name, part, missing| List { name, part, missing };
                k.layers(list("body", "body", None), body);
                k.layers(list("shortcut", "shortcut", Some("[], the identity")), shortcut);
                k.layers(list("then", "", Some("[]")), then);
                let note = "body(x) + shortcut(x), then the rest";
                LayerType { note, ..LayerType::new("residual", "") }
            }
            LayerKind::Unary(_) | LayerKind::Custom(_) => return None,
        })
    }

    /// The lists of layers inside.
    pub(super) fn parts(&self) -> Vec<&[Layer]> {
        match self {
            LayerKind::Sequential(layers) => vec![layers],
            LayerKind::Residual { body, shortcut, then, .. } => vec![body, shortcut, then],
            _ => Vec::new(),
        }
    }

    pub(super) fn empty_residual() -> Self {
        LayerKind::Residual {
            body_name: "body".to_owned(),
            body: Vec::new(),
            shortcut_name: "shortcut".to_owned(),
            shortcut: Vec::new(),
            then: Vec::new(),
        }
    }

    fn lower(&self, x: Var, l: &mut Lowering<'_, '_>) -> Var {
        match self {
            LayerKind::Conv2d { out, kernel, conv, bias } => {
                let channels = l.meta(x).shape.axes().get(1).copied().unwrap_or(1);
                let per_group = channels / conv.groups.max(1);
                // After the error, go on as if there were one.
                let weight = [(*out).max(1), per_group, kernel[0], kernel[1]];
                if *out == 0 {
                    l.error("conv2d", Mismatch::new("out", "at least 1 channel", 0));
                }
                let (w, b) = weight_and_bias(l, &weight, *bias);
                l.ops().conv2d(x, w, b, *conv)
            }
            LayerKind::Linear { out, bias } => {
                if *out == 0 {
                    l.error("linear", Mismatch::new("out", "at least 1 feature", 0));
                }
                let features = l.meta(x).shape.axes().get(1).copied().unwrap_or(1);
                let (w, b) = weight_and_bias(l, &[(*out).max(1), features], *bias);
                l.ops().linear(x, w, b)
            }
            LayerKind::Unary(f) => l.ops().unary(*f, x),
            LayerKind::MaxPool2d(pool) => l.ops().max_pool2d(x, *pool),
            LayerKind::AvgPool2d(pool) => l.ops().avg_pool2d(x, *pool),
            LayerKind::GlobalAvgPool2d => l.ops().global_avg_pool2d(x),
            LayerKind::BatchNorm2d { eps, momentum } => batch_norm2d(*eps, *momentum, x, l),
            LayerKind::Dropout { p } => {
                let stream = l.next_stream();
                match l.mode() {
                    Mode::Train => {
                        let (seed, first) = (l.seed(), l.elements_before(x));
                        l.ops().dropout(x, Dropout { p: *p, seed, stream, first })
                    }
                    Mode::Eval => x,
                }
            }
            LayerKind::Flatten => l.ops().flatten(x),
            LayerKind::Softmax => l.ops().softmax(x),
            LayerKind::LogSoftmax => l.ops().log_softmax(x),
            LayerKind::Sequential(layers) => lower_sequence(layers, x, l),
            LayerKind::Residual { body_name, body, shortcut_name, shortcut, then } => {
                let y = l.scope(body_name, |l| lower_sequence(body, x, l));
                let s = l.scope(shortcut_name, |l| lower_sequence(shortcut, x, l));
                let sum = l.ops().add(y, s);
                lower_sequence(then, sum, l)
            }
            LayerKind::Custom(module) => module.lower(x, l),
        }
    }
}

fn pool_keys(pool: &mut Pool2d, k: &mut impl Keys) {
    k.key("kernel", &mut pool.kernel, Missing::Refused);
    k.key("stride", &mut pool.stride, Missing::As("kernel", pool.kernel));
    k.key("padding", &mut pool.padding, Missing::Default([0; 2]));
}

/// PyTorch's default: weight and bias uniform within 1/√fan-in.
fn weight_and_bias(l: &mut Lowering<'_, '_>, shape: &[usize], bias: bool) -> (Var, Option<Var>) {
    let fan_in = shape[1..].iter().try_fold(1usize, |n, &d| n.checked_mul(d)).unwrap_or(usize::MAX);
    let bound = if fan_in == 0 { 0.0 } else { 1.0 / (fan_in as f64).sqrt() };
    let weight = l.parameter("weight", Shape::new(shape), Init::Uniform(bound));
    let bias = bias.then(|| l.parameter("bias", Shape::new(&shape[..1]), Init::Uniform(bound)));
    (weight, bias)
}

fn batch_norm2d(eps: f64, momentum: f64, x: Var, l: &mut Lowering<'_, '_>) -> Var {
    let shape = l.meta(x).shape;
    if shape.rank() != 4 {
        l.error("batch_norm2d", Mismatch::new("input", "4 axes [N, C, H, W]", shape));
        return x;
    }
    if !(eps >= 0.0 && eps.is_finite()) {
        l.error("batch_norm2d", Mismatch::new("eps", "a number from 0 on", eps));
    }
    if !(0.0..=1.0).contains(&momentum) {
        l.error("batch_norm2d", Mismatch::new("momentum", "a number from 0 to 1", momentum));
    }
    let channels = Shape::new(&[l.meta(x).shape.axes().get(1).copied().unwrap_or(1)]);
    let weight = l.parameter("weight", channels, Init::Constant(1.0));
    let bias = l.parameter("bias", channels, Init::Constant(0.0));
    let floats = Meta { shape: channels, dtype: l.dtype() };
    let mean = l.buffer("running_mean", floats, Init::Constant(0.0));
    let variance = l.buffer("running_var", floats, Init::Constant(1.0));
    let count = Meta::new([], DType::I64);
    let batches = l.buffer("num_batches_tracked", count, Init::Constant(0.0));
    match l.mode() {
        Mode::Eval => l.ops().batch_norm2d_eval(x, [mean, variance], [weight, bias], eps),
        Mode::Train => {
            let norm = l.ops().batch_norm2d(x, weight, bias, eps);
            let track = BatchNorm2dTrack { count: norm.count, momentum, dtype: l.dtype() };
            l.after_loss(Arc::new(track), norm.stats, vec![mean, variance, batches]);
            norm.output
        }
    }
}

/// A persistent value that is not learned.
pub(super) const BUFFER: Class = Class::Buffer;
