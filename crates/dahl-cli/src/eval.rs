//! `dahl eval`: how well weights do on a dataset.

use crate::output::{one_line, show, show_json};
use crate::part::PartName;
use crate::progress::{Progress, Show};
use crate::weights::{PassArgs, WeightArgs};
use clap::Args as ClapArgs;
use dahl::data::{self, Dataset, Order, Transform};
use dahl::train::{Card, Confusion, Pass, Samples};
use dahl::{Error, Result};

/// Evaluate weights on the test samples of a dataset
///
/// The weights are a safetensors file, written by `dahl train --save` or by PyTorch's
/// `save_file(model.state_dict(), …)`. Files of dahl name their model, dataset and normalisation;
/// other files need `--model` and `--data`.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl train --save weights.safetensors && dahl eval --weights weights.safetensors
  dahl eval --weights weights.safetensors --confusion
  dahl eval --weights from-pytorch.safetensors --model lenet --data path/to/fashion-mnist

Exit codes:
  0  success
  1  the evaluation failed, or its result cannot be written
  2  wrong flags or configuration
  3  no feasible plan
  4  invalid data, weights or model")]
pub(crate) struct Args {
    #[command(flatten)]
    weights: WeightArgs,
    #[command(flatten)]
    pass: PassArgs,
    /// Part of the dataset [default: test; all, if --data is not the dataset that the weights were
    /// trained on]
    #[arg(long, value_enum)]
    part: Option<PartName>,
    /// Print the confusion matrix
    #[arg(long)]
    confusion: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    /// Print only the result, warnings and errors
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let weights = args.weights.open()?;
    let usual = if weights.is_other_set() { PartName::All } else { PartName::Test };
    let chosen = args.part.unwrap_or(usual).open(&weights)?;
    let progress = Show::unless(args.quiet);
    let card = weights.card(progress)?;
    check_classes(&card, &*chosen.set)?;
    let all = chosen.of.unwrap_or(chosen.set.len());
    let test = match args.pass.limit {
        Some(limit) => data::limit(chosen.set.clone(), limit),
        None => chosen.set.clone(),
    };
    if test.is_empty() {
        let expected = format!("at least 1 sample in {}", chosen.part.words());
        return Err(Error::data(test.name(), "samples", expected, format!("none of {all}")));
    }
    let mut trainer = weights.trainer(&args.pass, test.len(), progress)?;
    let transform = Transform { normalise: card.normalise.clone(), augment: None };
    let order = Order::sequential(test.len());
    let batch = args.pass.batch;
    let samples = Samples {
        data: &*test,
        transform: &transform,
        order: &order,
        epoch: 0,
        batch,
        shared: None,
    };
    let mut meter = Progress::of_looking(progress).look("eval", test.len());
    let (mut confusion, mut evaluated) = (Confusion::new(test.classes()), 0);
    let pass = trainer.output_pass(&samples, &mut |index, outputs| {
        confusion.add(test.label(index)?, outputs);
        evaluated += 1;
        meter.count(evaluated);
        Ok(())
    });
    drop(meter);
    let pass = pass.map_err(|error| weights.blame(error))?;
    let confusion = args.confusion.then_some(confusion);
    if args.json {
        return show_json(&json(&pass, confusion, chosen.part));
    }
    let some = if all == pass.samples { String::new() } else { format!(" of {all}") };
    let evaluated = format!("evaluated on {}{some} samples, {}", pass.samples, chosen.part.words());
    show(&format!("{}{evaluated} of {}\n", table(&pass, confusion), one_line(&chosen.name())))
}

/// A label must mean the class that the weights learned under its number.
fn check_classes(card: &Card, data: &dyn Dataset) -> Result<()> {
    // A part of a dataset may know fewer of them.
    if card.classes.starts_with(data.classes()) {
        return Ok(());
    }
    let expected = format!("the classes {} of the weights", card.classes.join(", "));
    let found = format!("{} in {}", data.classes().join(", "), data.name());
    Err(Error::config("data", expected, found))
}

fn table(pass: &Pass, confusion: Option<Confusion>) -> String {
    let (right, loss) = (100.0 * pass.accuracy(), pass.loss());
    let table = confusion.map_or(String::new(), |confusion| confusion.to_string());
    format!("{table}accuracy {right:.2} % ({} samples), loss {loss:.4}\n", pass.samples)
}

fn json(pass: &Pass, confusion: Option<Confusion>, part: PartName) -> serde_json::Value {
    let mut value = serde_json::json!({
        "samples": pass.samples, "part": part.key(), "loss": pass.loss(), "accuracy": pass.accuracy(),
    });
    if let Some(confusion) = confusion {
        let classes = confusion.seen().into_iter().map(|class| {
            serde_json::json!({
                "class": confusion.names()[class],
                "samples": confusion.samples(class),
                "accuracy": confusion.accuracy(class),
                "taken_for": taken_for(&confusion, class),
            })
        });
        value["classes"] = classes.collect();
    }
    value
}

/// Names of classes with how often they were meant.
fn taken_for(confusion: &Confusion, class: usize) -> serde_json::Map<String, serde_json::Value> {
    let taken = confusion.taken_for(class);
    taken.map(|(other, n)| (confusion.names()[other].clone(), n.into())).collect()
}
