//! `dahl export`: weights and model for PyTorch.

use crate::output::show;
use crate::progress::Show;
use crate::weights::WeightArgs;
use clap::Args as ClapArgs;
use dahl::data::Fit;
use dahl::error::{is_control, one_line};
use dahl::file::replace;
use dahl::train::Card;
use dahl::{Error, Result};
use std::path::{Path, PathBuf};

/// Write weights for PyTorch, and the model as Python source
///
/// `--to` writes the weights as a safetensors file with the names of PyTorch's state dict. `--module`
/// writes a Python file: its `load(path)` returns the same network as a `torch.nn.Module` with these
/// weights, its `load_image(path)` prepares an image as in training.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl export --weights weights.safetensors --to lenet.safetensors --module lenet.py
  python -c 'import lenet; print(lenet.load(\"lenet.safetensors\"))'

Exit codes: 0 ok, 1 a file cannot be written, 2 usage, 4 bad weights or model.")]
pub(crate) struct Args {
    #[command(flatten)]
    weights: WeightArgs,
    /// Write the weights to this safetensors file
    #[arg(long, value_name = "FILE", required_unless_present = "module")]
    to: Option<PathBuf>,
    /// Write the model to this Python file
    #[arg(long, value_name = "FILE.py")]
    module: Option<PathBuf>,
}

const LOAD: &str = include_str!("export_load.py");

/// Reads an image as dahl does, so that the network gets the same numbers.
const LOAD_IMAGE: &str = include_str!("export_load_image.py");

pub(crate) fn run(args: &Args) -> Result<()> {
    // Nothing is read from where it writes to.
    let to = [&args.to, &args.module];
    let ours = |path: &PathBuf| to.into_iter().flatten().any(|ours| ours == path);
    export(args).map_err(|error| match error {
        Error::Io { ref path, .. } if ours(path) => error.while_writing(),
        error => error,
    })
}

fn export(args: &Args) -> Result<()> {
    if let (Some(to), Some(module)) = (&args.to, &args.module)
        && real(to) == real(module)
    {
        let expected = "a file other than that of --to";
        return Err(Error::config("module", expected, module.display()));
    }
    let weights = args.weights.open()?;
    let card = weights.card_if_known(Show::on_stderr())?;
    // The text first: where the model has none, nothing is written.
    let source = match &args.module {
        Some(_) => Some(source(&weights.model.to_torch()?, &weights.model.name, card.as_ref())),
        None => None,
    };
    let mut text = String::new();
    if let Some(path) = &args.to {
        let mut file = weights.converted()?;
        match &card {
            Some(card) => card.put(&mut file)?,
            None => drop(file.metadata.insert("format".to_owned(), "pt".to_owned())),
        }
        file.write(path)?;
        text += &format!("{}: {} tensors\n", path.display(), file.tensors.len());
    }
    if let (Some(path), Some(source)) = (&args.module, source) {
        replace(path, |out| out.write_all(source.as_bytes()))?;
        text += &format!("{}: {}\n", path.display(), weights.model.name);
    }
    show(&text)
}

/// A path by which files can be compared, be they there or not.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_default();
    let directory = absolute.parent().and_then(|parent| parent.canonicalize().ok());
    let named = directory.zip(path.file_name()).map(|(directory, name)| directory.join(name));
    path.canonicalize().ok().or(named).unwrap_or(absolute)
}

/// The model's source with what the card says, and a function that loads weights.
fn source(model: &str, name: &str, card: Option<&Card>) -> String {
    let name: String = name.chars().filter(|&c| !is_control(c) && c != '"' && c != '\\').collect();
    let mut text = format!(
        "\"\"\"{name}, as dahl trained it; written by `dahl export`.\n\n\
         load(path) gives the network with its weights, ready to predict.\n\"\"\"\n\n{model}"
    );
    if let Some(card) = card {
        let quoted = |name: &String| {
            one_line(&serde_json::Value::from(name.as_str()).to_string()).into_owned()
        };
        let classes: Vec<String> = card.classes.iter().map(quoted).collect();
        text += &format!("\n\nCLASSES = [{}]\n", classes.join(", "));
        let shape = card.shape;
        text += &match &card.normalise {
            Some(normalise) => {
                let each = if shape.rank() == 1 { "feature" } else { "channel" };
                format!(
                    "# Samples of the shape {shape} become (x - MEAN) / STD: a number per {each}, \
                     or one for all.\nMEAN = {:?}\nSTD = {:?}\n",
                    normalise.mean, normalise.std
                )
            }
            None => "# Samples are not normalised.\nMEAN = STD = None\n".to_owned(),
        };
        if let Ok(images) = card.images() {
            let fit = match images.fit {
                Fit::Stretch => "\"stretch\"  # the aspect ratio of images is not kept",
                Fit::Crop => "\"crop\"  # the middle of images with another aspect ratio",
            };
            text += &format!(
                "# Shape of the images that load_image returns, and how it fits them.\nSHAPE = {shape}\nFIT = {fit}\n"
            );
            text += &format!("\n\n{LOAD_IMAGE}");
        }
    }
    format!("{text}\n\n{LOAD}")
}
