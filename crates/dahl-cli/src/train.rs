//! `dahl train`: trains a model on a dataset.

use crate::grain::at_least_one;
use crate::output::{code, fail, print};
use crate::progress::{Progress, Show};
use crate::recipe::{Learning, RecipeArgs};
use crate::samples::{Opened, SampleArgs};
use crate::schedule::Span;
use clap::Args as ClapArgs;
use dahl::Error;
use dahl::data::{Dataset, Order, Transform};
use dahl::model::TrainSpec;
use dahl::native::{Native, resident_bytes};
use dahl::planner::Grain;
use dahl::train::{Pass, Samples, Trainer};
use dahl::units::Bytes;
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
    #[command(flatten)]
    recipe: RecipeArgs,
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

pub(crate) fn run(args: &Args) -> ExitCode {
    match train(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, code(&error)),
    }
}

fn train(args: &Args) -> dahl::Result<()> {
    let Opened { model, train, test, transform } = args.samples.open()?;
    let seed = args.samples.seed;
    let Learning { train, validation: held } = args.recipe.hold_out(train, seed)?;
    let (train, test, batch) = (&*train, &*test, args.samples.batch);
    let augment = args.recipe.augment(train, seed)?;
    let learning = Transform { augment, ..transform.clone() };
    let judged = [test].into_iter().chain(held.as_deref());
    let spec = TrainSpec {
        train: args.samples.batch_sizes(train.len()),
        eval: judged.flat_map(|set| args.samples.batch_sizes(set.len())).collect(),
        seed,
        ..args.recipe.spec(batch, args.samples.dtype)?
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = args.workers.unwrap_or(processors);
    let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(workers), &Native::default())?;
    let steps_an_epoch = train.len().div_ceil(batch);
    trainer.set_schedule(args.recipe.schedule(Span { epochs: args.epochs, steps_an_epoch }));
    if let Some(path) = &args.init {
        trainer.load_weights(path)?;
    }
    if !args.quiet {
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
    let show = if args.quiet { Show::Nothing } else { Show::on_stderr() };
    let progress = Progress::new(show, args.epochs * train.len(), 0);
    for epoch in 0..args.epochs as u64 {
        let from = Instant::now();
        let order = Order::shuffled(train.len(), seed, epoch);
        let samples = Samples { data: train, transform: &learning, order: &order, epoch, batch };
        let done = epoch as usize * train.len();
        let title = format!("epoch {}/{}", epoch + 1, args.epochs);
        let mut meter = progress.learn(title, train.len(), done);
        let learned = trainer.train_pass(&samples, &mut |pass| meter.show(pass))?;
        drop(meter);
        let speed = train.len() as f64 / from.elapsed().as_secs_f64();
        let mut judge = |data: &dyn Dataset, title: &str| {
            let order = Order::sequential(data.len());
            let samples = Samples { data, transform: &transform, order: &order, epoch: 0, batch };
            let mut meter = progress.look(title, data.len());
            trainer.eval_pass(&samples, &mut |pass| meter.show(pass))
        };
        let validation = held.as_deref().map(|held| judge(held, "validation")).transpose()?;
        last = judge(test, "test")?;
        report(args, epoch, speed, &Passes { train: learned, validation, test: last })?;
    }
    if let Some(path) = &args.save {
        trainer.save_weights(path)?;
    }
    conclude(args, &trainer, &last, begin)
}

/// What an epoch gave.
struct Passes {
    train: Pass,
    validation: Option<Pass>,
    test: Pass,
}

/// A line an epoch; with `--quiet` the last one of `--json` alone.
fn report(args: &Args, epoch: u64, speed: f64, passes: &Passes) -> dahl::Result<()> {
    let Passes { train, validation, test } = passes;
    let is_last = epoch + 1 == args.epochs as u64;
    if args.quiet && !(args.json && is_last) {
        return Ok(());
    }
    let text = if args.json {
        let mut value = serde_json::json!({
            "epoch": epoch + 1, "loss": train.loss(), "accuracy": train.accuracy(),
            "test_loss": test.loss(), "test_accuracy": test.accuracy(), "samples_per_second": speed,
        });
        if let Some(held) = validation {
            value["validation_loss"] = held.loss().into();
            value["validation_accuracy"] = held.accuracy().into();
        }
        format!("{value}\n")
    } else {
        let cells = |pass: &Pass, loss: usize, accuracy: usize| {
            format!("  {:>loss$.4}  {:>accuracy$.2}%", pass.loss(), 100.0 * pass.accuracy())
        };
        let (head, test, held) = match validation {
            None => ("accuracy  test loss  test accuracy", cells(test, 9, 12), String::new()),
            // Both fit into 80 columns with short heads.
            Some(held) => (
                "accuracy  val loss  val acc.  test loss  test acc.",
                cells(test, 9, 8),
                cells(held, 8, 7),
            ),
        };
        let head = format!("epoch     loss  {head}  samples/s\n");
        let head = if epoch == 0 { &head } else { "" };
        format!("{head}{:>5}{}{held}{test}  {speed:>9.0}\n", epoch + 1, cells(train, 7, 7))
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
