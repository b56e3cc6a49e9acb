//! The networks that are measured by name.

use dahl::model::Model;
use dahl::{Error, Result};

/// A network with its batch.
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) model: Model,
    pub(super) batch: usize,
}

/// The network of one convolution, on images of a size.
fn seed(channels: usize, pixels: usize, filters: usize) -> Model {
    let input = [channels, pixels, pixels];
    Model::sequential("seed", &input, |s| {
        s.conv2d(filters, 3).relu().max_pool2d(2).flatten().linear(10)
    })
}

type Make = fn() -> Result<Model>;

const ALL: [(&str, Make, usize); 9] = [
    ("seed-28-b10", || Ok(seed(1, 28, 4)), 10),
    ("seed-28-b64", || Ok(seed(1, 28, 4)), 64),
    ("seed-28-b256", || Ok(seed(1, 28, 4)), 256),
    ("seed-cifar-b64", || Ok(seed(3, 32, 32)), 64),
    ("seed-512-b16", || Ok(seed(3, 512, 4)), 16),
    ("lenet-b64", || Model::named("lenet"), 64),
    ("vgg-small-b32", || Model::named("vgg-small"), 32),
    ("resnet18-cifar-b32", || Model::named("resnet18"), 32),
    ("mlp-b128", || Model::named("mlp"), 128),
];

/// All of them.
pub(super) fn all() -> Vec<Workload> {
    ALL.iter().filter_map(|(name, ..)| find(name).ok()).collect()
}

/// One by its name.
pub(super) fn find(name: &str) -> Result<Workload> {
    let Some((name, make, batch)) = ALL.iter().find(|(n, ..)| *n == name) else {
        let names: Vec<&str> = ALL.iter().map(|(n, ..)| *n).collect();
        let expected = format!("one of {}", names.join(", "));
        return Err(Error::config("workload", expected, format!("{name:?}")));
    };
    Ok(Workload { name: (*name).to_owned(), model: make()?, batch: *batch })
}
