//! `dahl eval`: how well weights do on a dataset.

use crate::grain::at_least_one;
use crate::models;
use crate::output::{code, fail, print};
use crate::train::{batch_sizes, check_fit};
use clap::Args as ClapArgs;
use dahl::data::{self, Normalise, Order, Part, Transform};
use dahl::model::{Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::planner::Grain;
use dahl::train::{Samples, Trainer};
use dahl::{DType, Error};
use std::path::PathBuf;
use std::process::ExitCode;

/// Say how well a model's weights do on the test samples of a dataset
///
/// The weights are a safetensors file, as `dahl train --save` or PyTorch's
/// `save_file(model.state_dict(), …)` write it.
#[derive(ClapArgs)]
#[command(after_help = "Example:
  dahl train --save weights.safetensors && dahl eval --weights weights.safetensors

Exit codes: 0 ok, 1 the run failed, 2 usage, 3 no feasible plan, 4 bad data, weights
or model.")]
pub(crate) struct Args {
    /// The weights
    #[arg(long, value_name = "FILE")]
    weights: PathBuf,
    /// A model's name or TOML file
    #[arg(long, default_value = "digits-cnn")]
    model: String,
    /// A dataset's name, directory or file
    #[arg(long, default_value = "digits")]
    data: String,
    /// Use at most this many samples
    #[arg(long, value_parser = at_least_one)]
    limit: Option<usize>,
    /// Samples a step
    #[arg(long, default_value_t = 32, value_parser = at_least_one)]
    batch: usize,
    /// Worker threads
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    workers: usize,
    /// Element type: f32 or f64
    #[arg(long, default_value = "f32")]
    dtype: DType,
    /// Seed of the split, where a dataset has no test samples of its own
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match eval(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, code(&error)),
    }
}

fn eval(args: &Args) -> dahl::Result<()> {
    let options = data::Options { seed: args.seed, limit: args.limit, ..data::Options::default() };
    let parts = data::open_parts(&args.data, &[Part::Train, Part::Test], &options)?;
    let (train, test) = (&*parts[0], &*parts[1]);
    let model = models::find(&args.model)?;
    check_fit(&model, test)?;
    // As in training: normalised by the training samples.
    let transform =
        Transform { normalise: Some(Normalise::measure(train, 10_000)?), augment: None };
    let spec = TrainSpec {
        train: Vec::new(),
        eval: batch_sizes(args.batch, test.len()),
        ..TrainSpec::new(args.batch, args.dtype, Optimizer::sgd(0.0))
    };
    let grain = Grain::for_workers(args.workers);
    let mut trainer = Trainer::new(&model, &spec, grain, &Native::default())?;
    trainer.load_weights(&args.weights)?;
    let order = Order::sequential(test.len());
    let samples =
        Samples { data: test, transform: &transform, order: &order, epoch: 0, batch: args.batch };
    let pass = trainer.eval_pass(&samples, &mut |_| ())?;
    let text = if args.json {
        let value = serde_json::json!({
            "samples": pass.samples, "loss": pass.loss(), "accuracy": pass.accuracy(),
        });
        format!("{value}\n")
    } else {
        let (right, loss) = (100.0 * pass.accuracy(), pass.loss());
        format!("{right:.2} % of {} samples right, loss {loss:.4}\n", pass.samples)
    };
    print(&text).map_err(|source| Error::Io { path: "standard output".into(), source })
}
