//! `dahl predict`, `dahl export`, `dahl eval --confusion`, `dahl completions`.

use crate::support::{Scratch, check, dahl, png, skipped};
use dahl::data::{Dataset, ImageOptions, Images};
use dahl::file::TensorFile;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// Weights that learned a little of the digits.
fn trained(scratch: &Scratch) -> String {
    let path = scratch.path("weights.safetensors");
    let args = ["train", "--epochs", "2", "--limit", "600", "--quiet", "--save", &path];
    assert_eq!(dahl(&args).0, 0);
    path
}

fn lines(args: &[&str], code: i32) -> Vec<Value> {
    let (found, stdout, stderr) = dahl(args);
    assert_eq!(found, code, "{stdout}{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The file alone says model, classes, normalisation and dataset.
#[test]
fn weights_are_enough() {
    let scratch = Scratch::new("enough");
    let weights = trained(&scratch);
    let eval = &lines(&["eval", "--weights", &weights, "--json"], 0)[0];
    let all = lines(&["predict", "--weights", &weights, "--json", "--batch", "50"], 0);
    assert_eq!(all.len(), 359);
    let right = all.iter().filter(|one| one["class"] == one["label"]).count();
    assert_eq!(Some(right as f64 / 359.0), eval["accuracy"].as_f64());
    let one = &all[0];
    assert_eq!(one["logits"].as_array().map(Vec::len), Some(10));
    let top =
        lines(&["predict", "--weights", &weights, "--json", "--top", "99", "--limit", "1"], 0);
    let probabilities = top[0]["top"].as_array().expect("a list").iter();
    let sum: f64 = probabilities.filter_map(|one| one["probability"].as_f64()).sum();
    assert!((sum - 1.0).abs() < 1e-12, "{sum}");
    assert_eq!(top[0]["logits"], one["logits"], "whatever the batch");
}

/// A sample of the dataset and the same picture as a file give the same logits.
#[test]
fn an_image_gets_what_samples_got() {
    let scratch = Scratch::new("image");
    let weights = trained(&scratch);
    // A ring: bytes, which a picture can have.
    let far = |i: i32| (2 * (i % 8) - 7).pow(2) + (2 * (i / 8) - 7).pow(2);
    let bytes: Vec<u8> = (0..64).map(|i| if (9..40).contains(&far(i)) { 240 } else { 3 }).collect();
    for part in ["train", "test"] {
        scratch.write(&format!("{part}-images.npy"), &npy("(1, 1, 8, 8)", &bytes));
        scratch.write(&format!("{part}-labels.npy"), &npy("(1,)", &[0]));
    }
    let data = scratch.path("");
    let expected = lines(&["predict", "--weights", &weights, "--json", "--data", &data], 0);
    let image = scratch.write("digit.png", &png(8, 8, &bytes));
    let found = lines(&["predict", "--weights", &weights, "--json", &image], 0);
    assert_eq!(found[0]["logits"], expected[0]["logits"]);
    assert_eq!(found[0]["image"], image);
    assert!(found[0].get("label").is_none());
}

fn npy(shape: &str, data: &[u8]) -> Vec<u8> {
    array("|u1", shape, data)
}

/// A file of a NumPy array.
pub(crate) fn array(element: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{element}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// Samples of a dataset with other classes are predicted, but not judged.
#[test]
fn other_classes_are_for_predicting_only() {
    let scratch = Scratch::new("other");
    let weights = trained(&scratch);
    let other = ["--weights", &weights, "--data", "synthetic:1x8x8:20", "--limit", "40", "--json"];
    let found = lines(&[&["predict"], &other[..]].concat(), 0);
    assert_eq!(found.len(), 40);
    assert!(found.iter().all(|one| one["label"].is_string()));
    let (code, _, stderr) = dahl(&[&["eval"], &other[..]].concat());
    assert_eq!(code, 2);
    assert!(
        stderr.contains("expected the classes 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 of the"),
        "{stderr}"
    );
    let train = ["train", "--data", "synthetic:1x8x8:20"];
    check(&train, 2, "", "model: expected at least 20 outputs, one per class of synthetic");
}

#[test]
fn a_bad_image_is_named_and_the_others_are_done() {
    let scratch = Scratch::new("bad");
    let weights = trained(&scratch);
    let fine = png(8, 8, &[128; 64]);
    for (name, bytes) in [("a.png", &fine[..]), ("b.png", b"text"), ("c.png", &fine)] {
        scratch.write(&format!("all/{name}"), bytes);
    }
    let all = scratch.path("all");
    let (code, stdout, stderr) = dahl(&["predict", "--weights", &weights, &all, "--top", "2"]);
    assert_eq!(code, 4, "{stderr}");
    assert_eq!(stdout.lines().count(), 2, "{stdout}");
    assert!(stdout.contains("a.png") && stdout.contains(" %"), "{stdout}");
    assert!(stderr.contains("b.png: image: expected a JPEG or PNG file, found neither"));
    assert!(stderr.ends_with("error: 1 of 3 images could not be read\n"), "{stderr}");
    let found = lines(&["predict", "--weights", &weights, &all, "--json"], 4);
    assert!(found[1]["error"].as_str().expect("a text").contains("b.png"), "{found:?}");
    assert_eq!(found[0]["logits"], found[2]["logits"]);
    check(&["predict", "--weights", &weights, "nowhere.png"], 4, "", "nowhere.png: No such file");
}

/// PyTorch writes no card: model and data are arguments.
#[test]
fn weights_without_a_card_need_model_and_data() {
    let scratch = Scratch::new("bare");
    let weights = trained(&scratch);
    let mut file = TensorFile::read(&weights).expect("a file");
    file.metadata.clear();
    let bare = scratch.path("bare.safetensors");
    file.write(&bare).expect("it is written");
    check(&["eval", "--weights", &bare], 2, "", "expected --model, since the weights do not say");
    let model = ["--weights", &bare, "--model", "digits-cnn"];
    check(&[&["eval"], &model[..]].concat(), 2, "", "expected --data, since the weights");
    check(&[&["predict"], &model[..]].concat(), 2, "", "expected --data, since the weights");
    let full = [&model[..], &["--data", "digits", "--json"]].concat();
    let with = lines(&[&["eval"], &full[..]].concat(), 0);
    assert_eq!(with, lines(&["eval", "--weights", &weights, "--json"], 0));
    // Another model is refused by the names of its tensors.
    let other = ["eval", "--weights", &weights, "--model", "lenet"];
    check(
        &other,
        4,
        "",
        "weights.safetensors: 0.weight: expected [6, 1, 5, 5], found [16, 1, 3, 3]",
    );
}

#[test]
fn a_run_directory_has_weights() {
    let scratch = Scratch::new("run");
    let weights = trained(&scratch);
    scratch.write("config.toml", b"model = \"digits-cnn\"\ndata = \"digits\"\n# end\n");
    let hash = dahl::file::TensorFile::read(&weights).expect("weights").sha256();
    let result = format!("{{\"weights_sha256\": \"{hash}\"}}");
    scratch.write("result.json", result.as_bytes());
    let run = ["eval", "--run", &scratch.path(""), "--json"];
    assert_eq!(lines(&run, 0), lines(&["eval", "--weights", &weights, "--json"], 0));
    check(
        &["eval", "--run", "/nowhere"],
        2,
        "",
        "/nowhere: expected a run directory, found nothing",
    );
    check(&["eval"], 2, "", "--weights <FILE>");
}

#[test]
fn eval_says_which_classes_are_taken_for_which() {
    let scratch = Scratch::new("confusion");
    let weights = trained(&scratch);
    let (code, stdout, _) = dahl(&["eval", "--weights", &weights, "--confusion"]);
    assert_eq!(code, 0);
    assert!(stdout.starts_with("class  samples     right   0   1   2"), "{stdout}");
    assert_eq!(stdout.lines().count(), 13, "{stdout}");
    let found = &lines(&["eval", "--weights", &weights, "--confusion", "--json"], 0)[0];
    let classes = found["classes"].as_array().expect("a list");
    let sum = |key: &str| classes.iter().filter_map(|class| class[key].as_f64()).sum::<f64>();
    assert_eq!(sum("samples"), 359.0);
    let right = classes.iter().map(|class| {
        class["accuracy"].as_f64().expect("a number") * class["samples"].as_f64().expect("a number")
    });
    let right: f64 = right.sum::<f64>() / 359.0;
    assert!((right - found["accuracy"].as_f64().expect("a number")).abs() < 1e-12);
    assert!(classes[3]["taken_for"]["3"].as_u64().expect("a count") > 0);
}

#[test]
fn exported_weights_are_the_same_and_have_a_module() {
    let scratch = Scratch::new("export");
    let weights = trained(&scratch);
    let (to, module) = (scratch.path("net.safetensors"), scratch.path("net.py"));
    let args = ["export", "--weights", &weights, "--to", &to, "--module", &module];
    check(&args, 0, "net.safetensors: 6 tensors\n", "");
    let bytes = |path: &str| std::fs::read(path).expect("a file");
    assert_eq!(bytes(&to), bytes(&weights), "dahl's weights are PyTorch's already");
    let source = std::fs::read_to_string(&module).expect("a file");
    for part in [
        "\"\"\"digits-cnn, as dahl trained it",
        "(\"3\", nn.Conv2d(16, 32, 3, padding=1)),",
        "CLASSES = [\"0\", \"1\", \"2\"",
        "MEAN = [0.30",
        "SHAPE = [1, 8, 8]\nFIT = \"stretch\"",
        "def load_image(path, dtype=None):",
        "def load(path):",
    ] {
        assert!(source.contains(part), "{part}\n{source}");
    }
    let wide = scratch.path("wide.safetensors");
    check(&["export", "--weights", &weights, "--to", &wide, "--dtype", "f64"], 0, "6 tensors", "");
    // What is asked for, else what there is.
    let dtype = |path: &str| {
        TensorFile::read(path).expect("a file").tensors["0.weight"].dtype().to_string()
    };
    assert_eq!([dtype(&weights), dtype(&wide)], ["f32", "f64"]);
    check(&["export", "--weights", &wide, "--to", &to], 0, "6 tensors", "");
    assert_eq!(bytes(&to), bytes(&wide));
    check(&["export", "--weights", &weights], 2, "", "--to <FILE>");
    check(&["export", "--weights", &weights, "--to", "/nowhere/x"], 1, "", "/nowhere/x: No such");
}

#[test]
fn shells_get_completions() {
    check(&["completions", "bash"], 0, "complete -F _dahl", "");
    check(&["completions", "zsh"], 0, "#compdef dahl", "");
    check(&["completions", "fish"], 0, "complete -c dahl", "");
    check(&["completions", "cmd"], 2, "", "possible values: bash");
}

/// `load_image` of an exported module, run by Pillow and NumPy without PyTorch: the pixels of an
/// image, as 32-bit numbers.
const LOAD_IMAGE: &str = r#"
import sys, types
import numpy as np

class Tensor:
    def __init__(self, array): self.array = array
    def to(self, dtype): return Tensor(self.array.astype(dtype))
    def reshape(self, *shape): return Tensor(self.array.reshape(shape))

torch = types.ModuleType("torch")
torch.nn, torch.float32, torch.from_numpy = types.ModuleType("torch.nn"), np.float32, Tensor
sys.modules["torch"] = torch
module = {}
exec(open(sys.argv[1]).read(), module)
for path in sys.argv[2:]:
    module["load_image"](path).array.astype("<f4").tofile(sys.stdout.buffer)
"#;

#[test]
fn the_exported_load_image_prepares_images_as_dahl_does() {
    let python = "/usr/bin/python3";
    let has = |what: &str| Command::new(python).args(["-c", what]).output();
    if !has("import numpy, PIL").is_ok_and(|output| output.status.success()) {
        return skipped("python3 with NumPy and Pillow");
    }
    let scratch = Scratch::new("load-image");
    let model = "name = \"tiny\"\ninput = [3, 9, 12]\nlayers = [{ type = \"flatten\" }, \
                 { type = \"linear\", out = 2 }]\n";
    let model = scratch.write("tiny.toml", model.as_bytes());
    // Smaller, larger, of other aspect ratios, grey and colour.
    let sizes = [[12, 9], [5, 4], [40, 30], [7, 31], [33, 8], [1, 1]];
    let mut paths = Vec::new();
    for (i, [width, height]) in sizes.into_iter().enumerate() {
        let noise = |n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8;
        let grey: Vec<u8> = (0..width * height).map(noise).collect();
        let class = ["a", "b"][i % 2];
        paths.push(scratch.write(&format!("set/{class}/{i}.png"), &png(width, height, &grey)));
        let colour: Vec<u8> = (7..7 + 3 * width * height).map(noise).collect();
        let image = image::RgbImage::from_raw(width, height, colour).expect("enough bytes");
        let mut file = std::io::Cursor::new(Vec::new());
        image.write_to(&mut file, image::ImageFormat::Png).expect("an image");
        paths.push(scratch.write(&format!("set/{class}/c{i}.png"), &file.into_inner()));
    }
    let (set, weights, module) =
        (scratch.path("set"), scratch.path("w.safetensors"), scratch.path("tiny.py"));
    let args = ["train", "--model", &model, "--data", &set, "--normalize", "none", "--epochs", "1"];
    let (code, _, stderr) = dahl(&[&args[..], &["--no-run", "--save", &weights]].concat());
    assert_eq!(code, 0, "{stderr}");
    check(&["export", "--weights", &weights, "--module", &module], 0, "tiny.py: tiny\n", "");

    let args = [vec!["-c".to_owned(), LOAD_IMAGE.to_owned(), module], paths.clone()].concat();
    let output = Command::new(python).args(args).output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs: Vec<f32> =
        output.stdout.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();

    let options = ImageOptions { channels: 3, height: 9, width: 12, ..ImageOptions::default() };
    let paths: Vec<PathBuf> = paths.into_iter().map(PathBuf::from).collect();
    let images = Images::open(&paths, options).expect("images");
    let mut ours = vec![0.0; theirs.len()];
    assert_eq!(theirs.len(), paths.len() * 324);
    for (i, sample) in ours.chunks_exact_mut(324).enumerate() {
        images.read(i, sample).expect("an image");
    }
    let levels = |x: f32, y: f32| ((x - y).abs() * 255.0).round() as u32;
    let apart: Vec<u32> = ours.iter().zip(&theirs).map(|(&x, &y)| levels(x, y)).collect();
    // Sums of weights are rounded to 8 bits: one level where a sum lies between two of them.
    let others = apart.iter().filter(|&&levels| levels > 0).count();
    assert!(apart.iter().all(|&levels| levels <= 1) && 100 * others <= apart.len(), "{apart:?}");
}
