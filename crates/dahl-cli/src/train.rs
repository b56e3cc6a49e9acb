//! `dahl train`: trains a model on a dataset.

use crate::grain::at_least_one;
use crate::output::{code, fail, print};
use crate::samples::{Opened, SampleArgs};
use clap::{Args as ClapArgs, ValueEnum};
use dahl::Error;
use dahl::data::Order;
use dahl::model::{Optimizer, TrainSpec};
use dahl::native::{Native, resident_bytes};
use dahl::planner::Grain;
use dahl::train::{Pass, Samples, Trainer};
use dahl::units::Bytes;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Train a model on a dataset and say how well it does
///
/// Without arguments it trains `digits-cnn` on handwritten digits that come with
/// dahl. A line an epoch says the loss and the accuracy on the training and the
/// test samples. The same command gives the same numbers again, on any number of
/// workers.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl train
  dahl train --model lenet --data path/to/fashion-mnist --limit 6000 --epochs 3
  dahl train --model my.toml --data synthetic:1x28x28:10 --save weights.safetensors

Exit codes: 0 ok, 1 the run failed, 2 usage, 3 no feasible plan, 4 bad data or
model, 5 the loss is not finite.")]
pub(crate) struct Args {
    #[command(flatten)]
    samples: SampleArgs,
    /// Passes over the training samples
    #[arg(long, default_value_t = 10, value_parser = at_least_one)]
    epochs: usize,
    /// Learning rate
    #[arg(long, default_value_t = 0.003)]
    lr: f64,
    /// How parameters follow their gradients
    #[arg(long, value_enum, default_value_t = OptimizerName::Adam)]
    optimizer: OptimizerName,
    /// Worker threads [default: one a processor]
    #[arg(long, value_parser = at_least_one)]
    workers: Option<usize>,
    /// Start from the weights of a safetensors file instead of random ones
    #[arg(long, value_name = "FILE")]
    init: Option<PathBuf>,
    /// Write the weights to a safetensors file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print one JSON object an epoch
    #[arg(long)]
    json: bool,
    /// Say nothing but the result
    #[arg(long)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum OptimizerName {
    /// Stochastic gradient descent
    Sgd,
    Adam,
    Adamw,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match train(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, code(&error)),
    }
}

fn train(args: &Args) -> dahl::Result<()> {
    let Opened { model, train, test, transform } = args.samples.open()?;
    let (train, test, batch) = (&*train, &*test, args.samples.batch);
    let optimizer = match args.optimizer {
        OptimizerName::Sgd => Optimizer::sgd(args.lr),
        OptimizerName::Adam => Optimizer::adam(args.lr),
        OptimizerName::Adamw => Optimizer::adamw(args.lr),
    };
    let spec = TrainSpec {
        train: args.samples.batch_sizes(train.len()),
        eval: args.samples.batch_sizes(test.len()),
        seed: args.samples.seed,
        ..TrainSpec::new(batch, args.samples.dtype, optimizer)
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = args.workers.unwrap_or(processors);
    let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(workers), &Native::default())?;
    if let Some(path) = &args.init {
        trainer.load_weights(path)?;
    }
    if !args.quiet && !args.json {
        eprintln!(
            "{} on {}: {} to learn from, {} to judge by; batch {}, {} workers, {}",
            model.name,
            train.name(),
            train.len(),
            test.len(),
            batch,
            workers,
            args.samples.dtype
        );
    }

    for note in train.notes().iter().chain(test.notes()) {
        eprintln!("note: {note}");
    }
    let begin = Instant::now();
    let mut last = Pass::default();
    for epoch in 0..args.epochs as u64 {
        let from = Instant::now();
        let order = Order::shuffled(train.len(), args.samples.seed, epoch);
        let samples = Samples { data: train, transform: &transform, order: &order, epoch, batch };
        let mut bar = Bar::new(args, epoch, train.len());
        let learned = trainer.train_pass(&samples, &mut |pass| bar.show(pass))?;
        bar.clear();
        let speed = train.len() as f64 / from.elapsed().as_secs_f64();
        let order = Order::sequential(test.len());
        let samples = Samples { data: test, transform: &transform, order: &order, epoch: 0, batch };
        last = trainer.eval_pass(&samples, &mut |_| ())?;
        report(args, epoch, &learned, &last, speed)?;
    }
    if let Some(path) = &args.save {
        trainer.save_weights_with(path, &args.samples.card(&model, train, &transform))?;
    }
    conclude(args, &trainer, &last, begin)
}

fn report(args: &Args, epoch: u64, train: &Pass, test: &Pass, speed: f64) -> dahl::Result<()> {
    if args.quiet {
        return Ok(());
    }
    let text = if args.json {
        let value = serde_json::json!({
            "epoch": epoch + 1, "loss": train.loss(), "accuracy": train.accuracy(),
            "test_loss": test.loss(), "test_accuracy": test.accuracy(), "samples_per_second": speed,
        });
        format!("{value}\n")
    } else {
        let head = "epoch     loss  accuracy  test loss  test accuracy  samples/s\n";
        format!(
            "{}{:>5}  {:>7.4}  {:>7.2}%  {:>9.4}  {:>12.2}%  {speed:>9.0}\n",
            if epoch == 0 { head } else { "" },
            epoch + 1,
            train.loss(),
            100.0 * train.accuracy(),
            test.loss(),
            100.0 * test.accuracy(),
        )
    };
    print(&text).map_err(|source| Error::Io { path: "standard output".into(), source })
}

fn conclude(args: &Args, trainer: &Trainer, test: &Pass, begin: Instant) -> dahl::Result<()> {
    if args.json {
        return Ok(());
    }
    let seconds = begin.elapsed().as_secs_f64();
    let planned = trainer.plan().memory.peak();
    let resident =
        resident_bytes().map_or_else(|| "unknown".to_owned(), |bytes| Bytes(bytes).to_string());
    let mut text = format!(
        "{:.2} % of {} test samples right after {seconds:.1} s; memory {planned} planned, {resident} resident\n",
        100.0 * test.accuracy(),
        test.samples,
    );
    match &args.save {
        Some(path) => text += &format!("weights: {}\n", path.display()),
        None if !args.quiet => text += "try: --save FILE, --model lenet --data DIR, --help\n",
        None => {}
    }
    print(&text).map_err(|source| Error::Io { path: "standard output".into(), source })
}

/// A line on the terminal that says how far an epoch is.
struct Bar {
    on: bool,
    epoch: u64,
    samples: usize,
    begin: Instant,
    shown: Instant,
}

impl Bar {
    fn new(args: &Args, epoch: u64, samples: usize) -> Self {
        let on = !args.quiet && std::io::stderr().is_terminal();
        Self { on, epoch, samples, begin: Instant::now(), shown: Instant::now() }
    }

    fn show(&mut self, pass: &Pass) {
        if !self.on || self.shown.elapsed().as_millis() < 100 {
            return;
        }
        self.shown = Instant::now();
        let part = pass.samples as f64 / self.samples.max(1) as f64;
        let left = self.begin.elapsed().as_secs_f64() * (1.0 - part) / part.max(1e-9);
        let filled = (part * 20.0) as usize;
        let _ = write!(
            std::io::stderr(),
            "\repoch {} [{:20}] {:>3.0} %  loss {:.4}  {:.2} %  {left:.0} s left ",
            self.epoch + 1,
            "=".repeat(filled),
            100.0 * part,
            pass.loss(),
            100.0 * pass.accuracy(),
        );
    }

    fn clear(&self) {
        if self.on {
            let _ = write!(std::io::stderr(), "\r{:79}\r", "");
        }
    }
}
