//! `dahl predict`: what is on images.

use crate::output::{BAD_FILE, fail, one_line, show};
use crate::part::PartName;
use crate::progress::Show;
use crate::weights::{PassArgs, WeightArgs};
use clap::Args as ClapArgs;
use dahl::data::{self, Access, Dataset, Images, Number, Order, Transform};
use dahl::run::config::at_least_one;
use dahl::train::{Card, Samples};
use dahl::{Error, Result, Shape};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

/// Classify images, with probabilities
///
/// The images are JPEG or PNG files, or directories of them; without images, the samples of a dataset
/// are classified. Images are resized, converted to colour or grey and normalised as in training.
/// Weights of dahl carry this information; other files need `--model` and `--data`.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl predict --weights weights.safetensors photo.jpg more-photos/
  dahl predict --weights weights.safetensors --top 3 --json photo.jpg
  dahl predict --weights weights.safetensors --data digits --limit 10

An image that cannot be read is named, the others are still classified, and the exit code
is 4.

Exit codes: 0 ok, 1 the run failed or its result cannot be written, 2 usage, 3 no
feasible plan, 4 bad images, weights or model.")]
pub(crate) struct Args {
    /// Image files, or directories of them
    #[arg(value_name = "IMAGE")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    weights: WeightArgs,
    #[command(flatten)]
    pass: PassArgs,
    /// Part of the dataset, if no images are given
    #[arg(long, value_enum, default_value_t = PartName::Test)]
    part: PartName,
    /// Number of most probable classes to show
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = at_least_one)]
    top: usize,
    /// Print one JSON object per image
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    Ok(match predict(args)? {
        (0, _) => ExitCode::SUCCESS,
        (bad, all) => fail(format_args!("{bad} of {all} images could not be read"), BAD_FILE),
    })
}

/// Predicts all images that can be read; how many could not, and how many there
/// are.
fn predict(args: &Args) -> Result<(usize, usize)> {
    let weights = args.weights.open()?;
    let card = weights.card(Show::on_stderr())?;
    let mut set: Arc<dyn Dataset> = if args.images.is_empty() {
        args.part.open(&weights)?.set
    } else {
        Arc::new(Images::open(&args.images, card.images()?)?)
    };
    if let Some(limit) = args.pass.limit {
        set = data::limit(set, limit);
    }
    let set = Lenient { set, errors: Mutex::default() };
    let mut trainer = weights.trainer(&args.pass, set.len(), Show::on_stderr())?;
    let transform = Transform { normalise: card.normalise.clone(), augment: None };
    let (order, batch) = (Order::sequential(set.len()), args.pass.batch);
    let samples =
        Samples { data: &set, transform: &transform, order: &order, epoch: 0, batch, shared: None };
    let known = args.images.is_empty();
    let width = (0..set.len().min(1000)).map(|i| set.place(i).chars().count()).max().unwrap_or(0);
    let mut bad = 0;
    let each = &mut |index: usize, logits: &[f64]| {
        let place = set.place(index);
        let line = match set.error(index) {
            Some(error) => {
                bad += 1;
                fail(&error, BAD_FILE);
                if !args.json {
                    return Ok(());
                }
                json!({ "image": place, "error": error.to_string() }).to_string()
            }
            None => {
                let label = if known { Some(set.label(index)?) } else { None };
                let label = label.and_then(|label| set.classes().get(label).cloned());
                let one = Prediction { place, label, logits };
                if args.json { one.json(&card, args.top) } else { one.line(&card, args.top, width) }
            }
        };
        show(&format!("{line}\n"))
    };
    trainer.output_pass(&samples, each).map_err(|error| weights.blame(error))?;
    Ok((bad, set.len()))
}

/// The prediction for one image.
struct Prediction<'a> {
    place: String,
    label: Option<String>,
    logits: &'a [f64],
}

impl Prediction<'_> {
    /// The most probable classes.
    fn best(&self, top: usize) -> Vec<(usize, f64)> {
        let mut all: Vec<_> = softmax(self.logits).into_iter().enumerate().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(top);
        all
    }

    fn line(&self, card: &Card, top: usize, width: usize) -> String {
        let longest = card.classes.iter().map(|c| one_line(c).chars().count()).max().unwrap_or(0);
        let best = self.best(top).into_iter().map(|(class, probability)| {
            let name = name(card, class);
            format!("  {:longest$} {:>6.2} %", one_line(&name), 100.0 * probability)
        });
        let best: String = best.collect();
        let label = self.label.as_ref();
        let label = label.map_or(String::new(), |label| format!("  is {}", one_line(label)));
        format!("{:width$}{best}{label}", one_line(&self.place))
    }

    fn json(&self, card: &Card, top: usize) -> String {
        let best = self.best(top);
        let list = best.iter().map(|&(class, probability)| {
            json!({ "class": name(card, class), "probability": probability })
        });
        let mut value = json!({
            "image": self.place, "top": list.collect::<Vec<_>>(), "logits": self.logits,
        });
        if let Some(&(class, probability)) = best.first() {
            value["class"] = name(card, class).into();
            value["probability"] = probability.into();
        }
        if let Some(label) = &self.label {
            value["label"] = label.as_str().into();
        }
        value.to_string()
    }
}

/// The name of a class; outputs without one are called by number.
fn name(card: &Card, class: usize) -> String {
    card.classes.get(class).cloned().unwrap_or_else(|| format!("#{class}"))
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let terms: Vec<f64> = logits.iter().map(|x| (x - largest).exp()).collect();
    let sum: f64 = terms.iter().sum();
    terms.into_iter().map(|x| x / sum).collect()
}

/// A dataset whose bad samples are zeros, and remembered: one bad image must not
/// end the others. Labels are not what is asked for, so all are 0: the weights may
/// have learned other classes.
struct Lenient {
    set: Arc<dyn Dataset>,
    errors: Mutex<BTreeMap<usize, Error>>,
}

impl Lenient {
    /// The error of a sample that could not be read.
    fn error(&self, index: usize) -> Option<Error> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).remove(&index)
    }

    fn read_as<T: Number>(&self, index: usize, out: &mut [T]) -> Result<usize> {
        if let Err(error) = T::read(&*self.set, index, out) {
            out.fill(T::default());
            let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            errors.insert(index, error);
        }
        Ok(0)
    }
}

impl Dataset for Lenient {
    fn len(&self) -> usize {
        self.set.len()
    }

    fn shape(&self) -> Shape {
        self.set.shape()
    }

    fn classes(&self) -> &[String] {
        self.set.classes()
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
        self.read_as(index, out)
    }

    fn read_f64(&self, index: usize, out: &mut [f64]) -> Result<usize> {
        self.read_as(index, out)
    }

    fn label(&self, index: usize) -> Result<usize> {
        self.set.label(index)
    }

    fn place(&self, index: usize) -> String {
        self.set.place(index)
    }

    fn access(&self) -> Access {
        self.set.access()
    }
}
