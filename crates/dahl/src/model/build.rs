//! Writing models in Rust.

use super::{Layer, LayerKind, Model, Module};
use crate::ops::conv2d::Conv2d;
use crate::ops::elementwise::Unary;
use crate::ops::pool::Pool2d;
use std::sync::Arc;

/// Layers one after the other.
///
/// ```
/// use dahl::model::Model;
///
/// let model = Model::sequential("my-cnn", &[1, 28, 28], |s| {
///     s.conv2d(4, 3).relu().max_pool2d(2).flatten().linear(10)
/// });
/// assert_eq!(model.layers.len(), 5);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Sequence {
    layers: Vec<Layer>,
}

impl Model {
    /// A model of layers one after the other, for samples of shape `input`.
    pub fn sequential(
        name: &str,
        input: &[usize],
        build: impl FnOnce(Sequence) -> Sequence,
    ) -> Self {
        let layers = build(Sequence::default()).layers;
        Self { name: name.to_owned(), input: input.to_vec(), layers }
    }
}

impl Sequence {
    /// Adds a layer.
    pub fn layer(self, layer: impl Into<Layer>) -> Self {
        // Not `mut self`: see docs/decisions/0005.
        let Self { mut layers } = self;
        layers.push(layer.into());
        Self { layers }
    }

    /// Names the last layer.
    pub fn named(self, name: &str) -> Self {
        let Self { mut layers } = self;
        if let Some(layer) = layers.last_mut() {
            layer.name = Some(name.to_owned());
        }
        Self { layers }
    }

    /// A convolution with a square kernel and a bias.
    pub fn conv2d(self, out: usize, kernel: usize) -> Self {
        self.conv2d_with(out, kernel, Conv2d::default(), true)
    }

    /// A convolution with a square kernel and a padding.
    pub fn conv2d_padded(self, out: usize, kernel: usize, padding: usize) -> Self {
        let conv = Conv2d { padding: [padding; 2], ..Conv2d::default() };
        self.conv2d_with(out, kernel, conv, true)
    }

    /// A convolution with everything said.
    pub fn conv2d_with(self, out: usize, kernel: usize, conv: Conv2d, bias: bool) -> Self {
        self.layer(LayerKind::Conv2d { out, kernel: [kernel; 2], conv, bias })
    }

    /// A fully connected layer with a bias.
    pub fn linear(self, out: usize) -> Self {
        self.layer(LayerKind::Linear { out, bias: true })
    }

    /// max(0, x).
    pub fn relu(self) -> Self {
        self.layer(LayerKind::Unary(Unary::Relu))
    }

    /// Any function of each element.
    pub fn unary(self, f: Unary) -> Self {
        self.layer(LayerKind::Unary(f))
    }

    /// The largest value of square windows side by side.
    pub fn max_pool2d(self, kernel: usize) -> Self {
        self.layer(LayerKind::MaxPool2d(Pool2d::tiles([kernel; 2])))
    }

    /// The mean of square windows side by side.
    pub fn avg_pool2d(self, kernel: usize) -> Self {
        self.layer(LayerKind::AvgPool2d(Pool2d::tiles([kernel; 2])))
    }

    /// The mean of each plane.
    pub fn global_avg_pool2d(self) -> Self {
        self.layer(LayerKind::GlobalAvgPool2d)
    }

    /// Normalisation by channel, with PyTorch's eps and momentum.
    pub fn batch_norm2d(self) -> Self {
        self.layer(LayerKind::BatchNorm2d { eps: 1e-5, momentum: 0.1 })
    }

    /// Random zeros while training.
    pub fn dropout(self, p: f64) -> Self {
        self.layer(LayerKind::Dropout { p })
    }

    /// All axes of a sample made one.
    pub fn flatten(self) -> Self {
        self.layer(LayerKind::Flatten)
    }

    /// body(x) + shortcut(x); an empty shortcut is the identity.
    pub fn residual(
        self,
        body: impl FnOnce(Sequence) -> Sequence,
        shortcut: impl FnOnce(Sequence) -> Sequence,
    ) -> Self {
        self.layer(LayerKind::Residual {
            body_name: "body".to_owned(),
            body: body(Sequence::default()).layers,
            shortcut_name: "shortcut".to_owned(),
            shortcut: shortcut(Sequence::default()).layers,
            then: Vec::new(),
        })
    }

    /// A layer from outside of the crate.
    pub fn custom(self, module: impl Module + 'static) -> Self {
        self.layer(LayerKind::Custom(Arc::new(module)))
    }

    pub(super) fn into_layers(self) -> Vec<Layer> {
        self.layers
    }
}
