//! `dahl export`: weights and model for PyTorch.

use crate::output::{failed, show};
use crate::progress::Show;
use crate::weights::WeightArgs;
use clap::Args as ClapArgs;
use dahl::data::Fit;
use dahl::error::{is_control, one_line};
use dahl::file::replace;
use dahl::train::Card;
use dahl::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write weights for PyTorch, and the model as Python source
///
/// The weights become a safetensors file under their names in PyTorch's state
/// dict. `--module` writes a Python file whose `load(path)` gives the same network
/// as a `torch.nn.Module` with these weights, and whose `load_image(path)` prepares an
/// image for it as in training.
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

const LOAD: &str = r#"

def load(path):
    from safetensors.torch import load_file

    network = model()
    weights = load_file(path)
    for weight in weights.values():
        if weight.is_floating_point():
            network.to(weight.dtype)
    network.load_state_dict(weights)
    return network.eval()
"#;

/// Reads an image as dahl does, so that the network gets the same numbers.
const LOAD_IMAGE: &str = r#"

def load_image(path, dtype=None):
    """A batch of one image, prepared as in training: upright, resized by a triangle
    filter (antialiased bilinear), in grey or colour, in 0..1, normalised."""
    import numpy as np
    import torch
    from PIL import Image, ImageOps

    def resized(pixels, length, axis):
        pixels = np.moveaxis(pixels, axis, 0)
        ratio = np.float32(len(pixels) / length)
        centre = (np.arange(length, dtype=np.float32) + np.float32(0.5)) * ratio - np.float32(0.5)
        distance = np.abs(np.arange(len(pixels), dtype=np.float32) - centre[:, None])
        weights = np.maximum(0, 1 - distance / max(ratio, np.float32(1)))
        weights /= weights.sum(1, keepdims=True)
        return np.moveaxis(np.tensordot(weights, pixels, 1), 0, axis)

    image = ImageOps.exif_transpose(Image.open(path))
    # Grey of 16 bits stays as it is until it has its size.
    largest = 65535 if image.mode.startswith("I") else 255
    if largest == 255:
        image = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    channels, height, width = SHAPE
    wide, high = width, height
    if FIT == "crop":
        ratio = max(width / image.width, height / image.height)
        wide, high = (max(int(n * ratio + 0.5), 1) for n in image.size)
    pixels = np.asarray(image, np.float32).reshape(image.height, image.width, -1)
    pixels = resized(resized(pixels, high, 0), wide, 1)
    pixels = np.floor(np.clip(pixels, 0, largest) + np.float32(0.5))
    if largest > 255:
        pixels = (pixels + 128) // 257
    top, left = (high - height) // 2, (wide - width) // 2
    pixels = pixels[top : top + height, left : left + width]
    if channels == 1 and pixels.shape[2] == 3:
        grey = pixels.astype(np.int64) @ np.array([[2126], [7152], [722]])
        pixels = (grey + 5000) // 10000
    pixels = np.repeat(pixels.astype(np.float32), channels // pixels.shape[2], 2) / np.float32(255)
    x = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    x = x.to(dtype or torch.float32)
    if MEAN is not None:
        mean, std = (torch.tensor(v, dtype=x.dtype).view(-1, 1, 1) for v in (MEAN, STD))
        x = (x - mean) / std
    return x.reshape(1, *INPUT)
"#;

pub(crate) fn run(args: &Args) -> ExitCode {
    match export(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is read from where it writes to.
            let to = [&args.to, &args.module];
            let ours = |path: &PathBuf| to.into_iter().flatten().any(|ours| ours == path);
            let error = match error {
                Error::Io { ref path, .. } if ours(path) => error.while_writing(),
                error => error,
            };
            failed(&error)
        }
    }
}

fn export(args: &Args) -> Result<()> {
    if let (Some(to), Some(module)) = (&args.to, &args.module)
        && real(to) == real(module)
    {
        let expected = "another file than that of --to";
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
                Fit::Stretch => "\"stretch\"  # whatever the proportions of an image are",
                Fit::Crop => "\"crop\"  # the middle of an image that has other proportions",
            };
            text += &format!("# What load_image brings images to.\nSHAPE = {shape}\nFIT = {fit}\n");
            text += LOAD_IMAGE;
        }
    }
    text + LOAD
}
