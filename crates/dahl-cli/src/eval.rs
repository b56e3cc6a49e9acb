//! `dahl eval`: how well weights do on a dataset.

use crate::grain::at_least_one;
use crate::output::{code, fail, print};
use crate::progress::{Progress, Show};
use crate::samples::{Opened, SampleArgs};
use clap::Args as ClapArgs;
use dahl::Error;
use dahl::data::Order;
use dahl::model::{Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::planner::Grain;
use dahl::train::{Samples, Trainer};
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
    #[command(flatten)]
    samples: SampleArgs,
    /// The weights
    #[arg(long, value_name = "FILE")]
    weights: PathBuf,
    /// Worker threads
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    workers: usize,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Say nothing but the result
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match eval(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, code(&error)),
    }
}

fn eval(args: &Args) -> dahl::Result<()> {
    let Opened { model, test, transform, .. } = args.samples.open()?;
    let batch = args.samples.batch;
    let spec = TrainSpec {
        train: Vec::new(),
        eval: args.samples.batch_sizes(test.len()),
        ..TrainSpec::new(batch, args.samples.dtype, Optimizer::sgd(0.0))
    };
    let grain = Grain::for_workers(args.workers);
    let mut trainer = Trainer::new(&model, &spec, grain, &Native::default())?;
    trainer.load_weights(&args.weights)?;
    let order = Order::sequential(test.len());
    let samples = Samples { data: &*test, transform: &transform, order: &order, epoch: 0, batch };
    let show = if args.quiet { Show::Nothing } else { Show::on_stderr() };
    let progress = Progress::of_looking(show);
    let mut meter = progress.look("eval", test.len());
    let pass = trainer.eval_pass(&samples, &mut |pass| meter.show(pass))?;
    drop(meter);
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
