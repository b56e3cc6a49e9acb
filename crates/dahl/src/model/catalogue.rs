//! Models by name.

use super::{Fusion, Layer, LayerKind, Lowered, Model, Optimizer, Sequence, TrainSpec};
use crate::error::{Error, Result, Unexpected, did_you_mean};
use crate::ops::conv2d::Conv2d;
use crate::os::disk;
use dahl_kernels::DType;
use std::path::Path;

/// The names that [`Model::named`] knows.
pub const NAMES: &[&str] = &["seed-cnn", "digits-cnn", "lenet", "vgg-small", "resnet18", "mlp"];

impl Model {
    /// A model by its name, for its own input shape and ten classes.
    pub fn named(name: &str) -> Result<Self> {
        let model = match name {
            "seed-cnn" => Self::sequential(name, &[1, 28, 28], |s| {
                s.conv2d(4, 3).relu().max_pool2d(2).flatten().linear(10)
            }),
            "digits-cnn" => Self::sequential(name, &[1, 8, 8], |s| {
                let s = s.conv2d_padded(16, 3, 1).relu().max_pool2d(2);
                s.conv2d_padded(32, 3, 1).relu().max_pool2d(2).flatten().linear(10)
            }),
            "lenet" => Self::sequential(name, &[1, 28, 28], |s| {
                let s = s.conv2d_padded(6, 5, 2).relu().max_pool2d(2);
                let s = s.conv2d(16, 5).relu().max_pool2d(2).flatten();
                s.linear(120).relu().linear(84).relu().linear(10)
            }),
            "vgg-small" => Self::sequential(name, &[3, 32, 32], |s| {
                let stage = |s: Sequence, channels| {
                    let s = s.conv2d_padded(channels, 3, 1).relu();
                    s.conv2d_padded(channels, 3, 1).relu().max_pool2d(2)
                };
                stage(stage(stage(s, 64), 128), 256).flatten().linear(10)
            }),
            "resnet18" => resnet18(name),
            "mlp" => Self::sequential(name, &[784], |s| {
                s.linear(1024).relu().linear(1024).relu().linear(10)
            }),
            _ => {
                return Err(Error::config(
                    "model",
                    format!("one of {} or a file that ends in .toml", NAMES.join(", ")),
                    format!("{name:?}"),
                ));
            }
        };
        Ok(model)
    }

    /// A model by its name, or from a TOML file.
    ///
    /// # Errors
    /// Where there is no such model, or its layers do not fit together; of a file it names
    /// the file.
    pub fn open(source: &str) -> Result<Self> {
        if !Self::is_file(source) {
            return Self::named(source).map_err(|error| match error {
                Error::Config(fault) => {
                    let hint = did_you_mean(source, NAMES.iter().copied());
                    let found = format!("{}{hint}", fault.found).into();
                    Error::Config(Unexpected { found, ..fault })
                }
                error => error,
            });
        }
        let path = Path::new(source);
        let text = disk::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        // It is lowered here so that whatever is wrong names the file.
        let checked = Self::parse(&text).and_then(|model| model.lower_one().map(|_| model));
        checked.map_err(|error| match error {
            Error::Config(fault) => Error::Data { path: path.to_owned(), fault },
            Error::Model(errors) => {
                let lines = errors.iter().map(|e| format!("\n{e}")).collect::<String>();
                Error::data(path, "model", "layers that fit together", lines)
            }
            error => error,
        })
    }

    /// Whether a model of this name is read from a file.
    pub fn is_file(source: &str) -> bool {
        Path::new(source).extension().is_some_and(|extension| extension == "toml")
    }

    /// The programs of a small batch, which nothing is fused in: what the model is made of.
    pub fn lower_one(&self) -> Result<Lowered> {
        // Two samples, since batch norm needs more than one value.
        let spec = TrainSpec::new(2, DType::F32, Optimizer::sgd(0.0));
        self.lower(&TrainSpec { fusion: Fusion::Off, ..spec })
    }
}

/// ResNet-18 for CIFAR: a 3x3 stem without pooling; names as torchvision's.
fn resnet18(name: &str) -> Model {
    Model::sequential(name, &[3, 32, 32], |s| {
        let mut s = conv3x3(s, 64, 1).named("conv1").batch_norm2d().named("bn1");
        s = s.relu().named("relu");
        let mut channels = 64;
        for (stage, (out, stride)) in
            [(64, 1), (128, 2), (256, 2), (512, 2)].into_iter().enumerate()
        {
            let blocks = vec![block(channels, out, stride), block(out, out, 1)];
            let layer = LayerKind::Sequential(blocks.into_iter().map(Layer::from).collect());
            s = s.layer(layer).named(&format!("layer{}", stage + 1));
            channels = out;
        }
        let s = s.global_avg_pool2d().named("avgpool").flatten().named("flatten");
        s.linear(10).named("fc")
    })
}

fn conv3x3(s: Sequence, out: usize, stride: usize) -> Sequence {
    let conv = Conv2d { stride: [stride; 2], padding: [1; 2], ..Conv2d::default() };
    s.conv2d_with(out, 3, conv, false)
}

/// Two convolutions with batch norm, added to the input or its projection.
fn block(channels: usize, out: usize, stride: usize) -> LayerKind {
    let body = conv3x3(Sequence::default(), out, stride).named("conv1").batch_norm2d().named("bn1");
    let body = conv3x3(body.relu().named("relu1"), out, 1).named("conv2");
    let shortcut = if stride == 1 && channels == out {
        Sequence::default()
    } else {
        let conv = Conv2d { stride: [stride; 2], ..Conv2d::default() };
        Sequence::default().conv2d_with(out, 1, conv, false).batch_norm2d()
    };
    LayerKind::Residual {
        body_name: String::new(),
        body: body.batch_norm2d().named("bn2").into_layers(),
        shortcut_name: "downsample".to_owned(),
        shortcut: shortcut.into_layers(),
        then: Sequence::default().relu().named("relu").into_layers(),
    }
}
