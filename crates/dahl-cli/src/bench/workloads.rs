//! The networks that are measured by name.

use clap::Args;
use dahl::model::Model;
use dahl::run::config::at_least_one;
use dahl::{Error, Result};

/// Which networks are measured
#[derive(Args)]
pub(super) struct WorkloadArgs {
    /// Workloads to measure [default: all]
    #[arg(value_name = "WORKLOAD", conflicts_with = "model")]
    workloads: Vec<String>,
    /// Model name or TOML file, instead of workloads
    #[arg(long)]
    model: Option<String>,
    /// Shape of a sample, such as 3x32x32, with --model [default: that of the model]
    #[arg(long, value_name = "SHAPE", value_parser = shape, requires = "model", conflicts_with = "workloads")]
    input: Option<Sample>,
    /// Batch size: samples per step, with --model [default: 64]
    #[arg(long, value_parser = at_least_one, requires = "model", conflicts_with = "workloads")]
    batch: Option<usize>,
}

impl WorkloadArgs {
    /// A network and a batch size to measure.
    pub(super) fn all(&self) -> Result<Vec<Workload>> {
        match &self.model {
            Some(name) => {
                let model = Model::open(name)?;
                let input = self.input.clone().map_or(model.input.clone(), |input| input.0);
                let model = Model { input, ..model };
                let batch = self.batch.unwrap_or(64);
                Ok(vec![Workload { name: format!("{}-b{batch}", model.name), model, batch }])
            }
            None if self.workloads.is_empty() => Ok(all()),
            None => self.workloads.iter().map(|name| find(name)).collect(),
        }
    }
}

/// The shape of a sample.
#[derive(Clone, Debug)]
pub(super) struct Sample(pub(super) Vec<usize>);

/// Reads a shape such as 3x32x32.
pub(super) fn shape(text: &str) -> std::result::Result<Sample, String> {
    let axes: Option<Vec<usize>> =
        text.split('x').map(|axis| axis.parse().ok().filter(|&n| n > 0)).collect();
    let axes = axes.filter(|axes| (1..=4).contains(&axes.len()));
    axes.map(Sample).ok_or_else(|| "expected lengths such as 3x32x32".to_owned())
}

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
fn all() -> Vec<Workload> {
    ALL.iter().filter_map(|(name, ..)| find(name).ok()).collect()
}

/// One by its name.
fn find(name: &str) -> Result<Workload> {
    let Some((name, make, batch)) = ALL.iter().find(|(n, ..)| *n == name) else {
        let names: Vec<&str> = ALL.iter().map(|(n, ..)| *n).collect();
        let expected = format!("one of {}", names.join(", "));
        return Err(Error::config("workload", expected, format!("{name:?}")));
    };
    Ok(Workload { name: (*name).to_owned(), model: make()?, batch: *batch })
}
