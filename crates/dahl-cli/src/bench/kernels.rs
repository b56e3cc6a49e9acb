//! `dahl bench kernels`: every variant of an op on its shapes, beside what the
//! machine could do at most.

use super::measure::{peak, read_rates};
use crate::args::{Kernels, Settings};
use crate::output::{show, show_json};
use crate::table::Columns;
use clap::Args as ClapArgs;
use dahl::graph::Graph;
use dahl::model::{Fusion, Model, Optimizer, TrainSpec};
use dahl::native::headroom;
use dahl::ops::{Meta, Metas};
use dahl::run::config::at_least_one;
use dahl::units::Bytes;
use dahl::{DType, Error, Result, calibrate};
use std::collections::BTreeSet;

/// Measure every variant of every op of a network, against the roofline
///
/// The ops are those of a training step, forward and backward, each shape once, on one thread. The
/// roofline is the least time that the processor needs: products at its peak, or bytes at its memory
/// bandwidth, whichever is longer. Data in a cache may beat the second.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl bench kernels resnet18 --batch 32 --op conv2d
  dahl bench kernels --input 64x32x32 --batch 32 --layer '{ type = \"conv2d\", out = 64, kernel = 3, padding = 1 }'
  dahl bench kernels --input 1024 --batch 128 --layer '{ type = \"linear\", out = 1024 }' --dtype f64

* marks the variant that a plan uses by default.")]
pub(crate) struct Args {
    /// Model name or TOML file
    #[arg(required_unless_present = "layer")]
    model: Option<String>,
    /// Single layer instead of a model, as in a model file (docs/model-format.md)
    #[arg(long, value_name = "TABLE", requires = "input", conflicts_with = "model")]
    layer: Option<String>,
    /// Shape of a sample, such as 3x32x32 [default: that of the model]
    #[arg(long, value_name = "SHAPE", value_parser = super::workloads::shape)]
    input: Option<super::workloads::Sample>,
    /// Batch size: samples per step
    #[arg(long, default_value_t = 32, value_parser = at_least_one)]
    batch: usize,
    /// Element type: f32 or f64
    #[arg(long, default_value = "f32")]
    dtype: DType,
    /// Measure only ops whose name begins with this [default: all]
    #[arg(long, value_name = "NAME", default_value = "")]
    op: String,
    /// Do not fuse ops
    #[arg(long)]
    no_fusion: bool,
    #[command(flatten)]
    kernels: Settings<Kernels>,
    /// Print one JSON object per variant
    #[arg(long)]
    json: bool,
}

impl Args {
    fn model(&self) -> Result<Model> {
        let model = match (&self.model, &self.layer) {
            (Some(name), _) => Model::open(name)?,
            (None, layer) => {
                let layer = layer.as_deref().unwrap_or_default();
                check_layer(layer)?;
                // A label needs numbers in a row.
                let text = format!("input = [1]\nlayers = [{layer}, {{ type = \"flatten\" }}]");
                Model::parse(&text)?
            }
        };
        let input = self.input.clone().map_or(model.input.clone(), |input| input.0);
        Ok(Model { input, ..model })
    }
}

/// Refuses what is no table of a layer, before it is put among others.
fn check_layer(text: &str) -> Result<()> {
    let wrong = |found: String| {
        Error::config("layer", "a table such as { type = \"linear\", out = 10 }", found)
    };
    let parsed: std::result::Result<toml::Table, _> = format!("layer = {text}").parse();
    let table = parsed.map_err(|e| wrong(format!("{text:?}: {}", e.message().trim_end())))?;
    let one = table.len() == 1 && table.get("layer").is_some_and(toml::Value::is_table);
    if one { Ok(()) } else { Err(wrong(format!("{text:?}"))) }
}

/// The time of one variant of an op.
struct Line<'a> {
    op: &'a str,
    shapes: String,
    variant: &'a str,
    is_default: bool,
    dtype: DType,
    ms: f64,
    flops: f64,
    bytes: f64,
    /// Milliseconds that the machine needs at least, for the products and for
    /// the bytes.
    roofs: [f64; 2],
}

pub(super) fn run(args: &Args) -> Result<()> {
    let model = args.model()?;
    let fusion = if args.no_fusion { Fusion::Off } else { Fusion::On };
    let sgd = Optimizer::sgd(0.01);
    let spec = TrainSpec { fusion, ..TrainSpec::new(args.batch, args.dtype, sgd) };
    let lowered = model.lower(&spec)?;
    let graph: &Graph = &lowered.programs.programs[0].graph;
    let ops = || graph.nodes.iter().filter(|node| node.op.view().is_none());
    if !ops().any(|node| node.op.name().starts_with(&args.op)) {
        let names: BTreeSet<&str> = ops().map(|node| node.op.name()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let expected = format!("the beginning of one of {}", names.join(", "));
        return Err(Error::config("op", expected, format!("{:?}", args.op)));
    }
    let target = args.kernels.target();
    let peak = peak(args.dtype, 1)?;
    let bandwidth = read_rates(1, 256 << 20, 5)?.into_iter().fold(0.0, f64::max);
    if !args.json {
        show(&format!(
            "{} on one thread; peak {:.1} GFLOP/s, memory bandwidth {:.1} GB/s\n\n{}",
            target.isa,
            peak / 1e9,
            bandwidth / 1e9,
            COLUMNS.row(&COLUMNS.heads(9))
        ))?;
    }
    let mut seen = BTreeSet::new();
    for node in ops() {
        let (inputs, outputs) = graph.metas(node);
        if !node.op.name().starts_with(&args.op)
            || !seen.insert(format!("{:?} {inputs:?}", node.op))
        {
            continue;
        }
        let metas = Metas { inputs: &inputs, outputs: &outputs };
        let flops = graph.flops_of(node).0 as f64;
        let bytes: usize = inputs.iter().chain(&outputs).map(Meta::bytes).sum();
        let needed = Bytes(bytes as u64);
        if let Some(room) = headroom().filter(|room| needed > room.left()) {
            let largest =
                vec![(format!("{} {}", node.op.name(), shapes(&inputs, &outputs)), needed)];
            return Err(Error::Memory {
                space: None,
                needed,
                limit: room.into(),
                least: None,
                largest,
            });
        }
        let default = node.op.choose(metas, &target);
        for variant in node.op.allowed(metas, &target) {
            let line = Line {
                op: node.op.name(),
                shapes: shapes(&inputs, &outputs),
                variant: node.op.variants()[variant],
                is_default: variant == default,
                dtype: args.dtype,
                ms: 1e3 * calibrate::time(&*node.op, variant, metas, target.isa).as_secs_f64(),
                flops,
                bytes: bytes as f64,
                roofs: [1e3 * flops / peak, 1e3 * bytes as f64 / bandwidth],
            };
            match args.json {
                true => show_json(&line.to_json())?,
                false => show(&COLUMNS.row(&line.cells()))?,
            }
        }
    }
    Ok(())
}

/// The first two inputs and the first output.
fn shapes(inputs: &[Meta], outputs: &[Meta]) -> String {
    let text = |meta: &Meta| {
        let axes: Vec<String> = meta.shape.axes().iter().map(usize::to_string).collect();
        if axes.is_empty() { "1".to_owned() } else { axes.join("x") }
    };
    let inputs: Vec<String> = inputs.iter().take(2).map(text).collect();
    format!("{} -> {}", inputs.join(" "), text(&outputs[0]))
}

const COLUMNS: Columns = Columns(&[
    ("op", -32),
    ("shapes", -48),
    ("variant", -12),
    ("ms", 9),
    ("GFLOP/s", 9),
    ("GB/s", 7),
    ("roof ms", 9),
    ("of roof", 8),
    ("", -8),
]);

impl Line<'_> {
    /// The roofline: the longer of the two.
    fn roof(&self) -> f64 {
        self.roofs[0].max(self.roofs[1])
    }

    fn cells(&self) -> Vec<String> {
        let limit = if self.roofs[0] >= self.roofs[1] { "products" } else { "bytes" };
        vec![
            self.op.to_owned(),
            self.shapes.clone(),
            format!("{}{}", self.variant, if self.is_default { "*" } else { "" }),
            format!("{:.4}", self.ms),
            format!("{:.1}", self.flops / self.ms / 1e6),
            format!("{:.1}", self.bytes / self.ms / 1e6),
            format!("{:.4}", self.roof()),
            format!("{:.0}%", 100.0 * self.roof() / self.ms),
            limit.to_owned(),
        ]
    }

    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "op": self.op,
            "shapes": self.shapes,
            "dtype": self.dtype.name(),
            "variant": self.variant,
            "default": self.is_default,
            "ms": self.ms,
            "gflops": self.flops / self.ms / 1e6,
            "gb_per_second": self.bytes / self.ms / 1e6,
            "roof_ms": self.roof(),
            "of_roof": self.roof() / self.ms,
        })
    }
}
