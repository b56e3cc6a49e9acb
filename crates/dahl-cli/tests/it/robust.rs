//! Files that are cut off, damaged or lie: the error names the file, the code is
//! 4 or 2, nothing panics, and no memory is taken for what a file only claims.

use crate::support::{Scratch, dahl, picture, png};
use dahl::file::TensorFile;
use image::ImageFormat;
use std::process::Command;

/// How much address space a command may take, in KiB: far less than the lies
/// below claim. Threads and their stacks are in it.
const LIMIT: &str = "1500000";

/// Runs `dahl` under the limit; code and standard error.
fn limited(args: &[&str]) -> (i32, String) {
    let mut command = Command::new("sh");
    command.current_dir(env!("CARGO_TARGET_TMPDIR"));
    command.args(["-c", &format!("ulimit -v {LIMIT}; exec \"$@\""), "sh"]);
    command.arg(env!("CARGO_BIN_EXE_dahl")).args(args);
    let output = command.output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), text)
}

/// The command refuses the file and says which.
#[track_caller]
fn refused(args: &[&str], file: &str) {
    let (code, stderr) = limited(args);
    assert!([2, 4].contains(&code), "{args:?}: {code}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(file), "{args:?}: {stderr}");
}

/// The command refuses the file, or takes it for what it says.
#[track_caller]
fn refused_or_fine(args: &[&str], file: &str) {
    let (code, stderr) = limited(args);
    assert!([0, 2, 4].contains(&code), "{args:?}: {code}: {stderr}");
    assert!(code == 0 || stderr.contains(file), "{args:?}: {stderr}");
}

/// A few copies of a file, each with a bit that is flipped.
fn flipped(bytes: &[u8], copies: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..copies).map(move |i| {
        let mut copy = bytes.to_vec();
        let at = (i * 7919 + 13) * 104_729 % copy.len();
        copy[at] ^= 1 << (i % 8);
        copy
    })
}

/// A few beginnings of a file.
fn beginnings(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    [0, 1, 7, 9, bytes.len() / 2, bytes.len() - 1].map(|length| &bytes[..length]).into_iter()
}

fn weights(scratch: &Scratch) -> String {
    let path = scratch.path("weights.safetensors");
    let args = ["train", "--epochs", "1", "--limit", "32", "--quiet", "--save", &path];
    assert_eq!(dahl(&args).0, 0);
    path
}

#[test]
fn weights_that_are_damaged() {
    let scratch = Scratch::new("robust-weights");
    let path = weights(&scratch);
    let bytes = std::fs::read(&path).expect("a file");
    let bad = scratch.path("bad.safetensors");
    let commands: [&[&str]; 4] = [
        &["eval", "--limit", "8", "--weights", &bad],
        &["predict", "--limit", "8", "--weights", &bad],
        &["export", "--to", "/dev/null/x", "--weights", &bad],
        &["train", "--limit", "8", "--epochs", "1", "--quiet", "--init", &bad],
    ];
    for (i, start) in beginnings(&bytes).enumerate() {
        scratch.write("bad.safetensors", start);
        refused(commands[i % 4], "bad.safetensors");
    }
    // The header is what can lie; flips of the data are other weights.
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    for (i, start) in flipped(&bytes[..header], 24).enumerate() {
        let damaged = [&start[..], &bytes[header..]].concat();
        scratch.write("bad.safetensors", &damaged);
        let (code, stderr) = limited(commands[i % 2]);
        assert!([0, 2, 4].contains(&code), "{i}: {code}: {stderr}");
    }
}

#[test]
fn weights_that_lie() {
    let scratch = Scratch::new("robust-lies");
    let path = weights(&scratch);
    let lie = |key: &str, value: &str| {
        let mut file = TensorFile::read(&path).expect("a file");
        file.metadata.insert(key.to_owned(), value.to_owned());
        file.write(scratch.path("lie.safetensors")).expect("it is written");
        let lie = scratch.path("lie.safetensors");
        refused(&["predict", "--limit", "8", "--weights", &lie], "lie.safetensors");
        refused(&["eval", "--limit", "8", "--weights", &lie], "lie.safetensors");
    };
    let wide = |n: u64| format!("input = [64]\nlayers = [{{ type = \"linear\", out = {n} }}]");
    lie("dahl.model", &wide(1 << 36));
    lie("dahl.model", &wide(i64::MAX as u64));
    lie("dahl.model", "input = [1, 8, 8]\nlayers = []");
    lie("dahl.model", "input = [4294967296, 4294967296]\nlayers = []");
    lie("dahl.shape", "[1, 8, 9]");
    lie("dahl.shape", "[1, 8]");
    lie("dahl.mean", "[1, 2]");
    lie("dahl.std", "[0]");
    lie("dahl.classes", "7");
    // Weights that are numbers, but not finite ones.
    let mut file = TensorFile::read(&path).expect("a file");
    let bias = dahl::file::StoredTensor::new([10], &[f32::NAN; 10]);
    file.tensors.insert("7.bias".to_owned(), bias);
    let nan = scratch.path("nan.safetensors");
    file.write(&nan).expect("it is written");
    refused(&["predict", "--limit", "8", "--weights", &nan], "nan.safetensors");
    // A header of 2^63 bytes, and one of a tensor of 2^40 elements.
    let header =
        br#"{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}"#;
    let long =
        scratch.write("long.safetensors", &[&(1u64 << 63).to_le_bytes()[..], b"{}"].concat());
    let large = [&(header.len() as u64).to_le_bytes()[..], header].concat();
    let large = scratch.write("large.safetensors", &large);
    refused(&["eval", "--weights", &long], "long.safetensors");
    refused(&["eval", "--weights", &large], "large.safetensors");
}

#[test]
fn images_that_are_damaged() {
    let scratch = Scratch::new("robust-images");
    let path = weights(&scratch);
    let pixels: Vec<u8> = (0..=255).collect();
    for format in [ImageFormat::Png, ImageFormat::Jpeg] {
        let bytes = picture(format, [16, 16], &pixels);
        for start in beginnings(&bytes) {
            let bad = scratch.write("bad.png", start);
            let args = ["predict", "--weights", &path, &bad];
            // A PNG without its last byte still has all pixels.
            let whole = format == ImageFormat::Png && start.len() + 1 == bytes.len();
            if whole { refused_or_fine(&args, "bad.png") } else { refused(&args, "bad.png") }
        }
        // All at once: each is refused or predicted, by its name.
        for (i, copy) in flipped(&bytes, 50).enumerate() {
            scratch.write(&format!("flips/{i}.png"), &copy);
        }
        refused_or_fine(&["predict", "--weights", &path, &scratch.path("flips")], "flips/");
    }
    // A PNG of 2^30 by 2^30 pixels in a few bytes.
    let mut lie = png(16, 16, &pixels);
    lie[16..24].copy_from_slice(&[0x40, 0, 0, 0, 0x40, 0, 0, 0]);
    let lie = scratch.write("lie.png", &lie);
    refused(&["predict", "--weights", &path, &lie], "lie.png");
}

#[test]
fn datasets_that_are_damaged() {
    let scratch = Scratch::new("robust-data");
    let idx = |dims: &[u32], data: &[u8]| {
        let mut bytes = vec![0, 0, 8, dims.len() as u8];
        dims.iter().for_each(|d| bytes.extend_from_slice(&d.to_be_bytes()));
        [bytes, data.to_vec()].concat()
    };
    let images = idx(&[20, 28, 28], &[9; 20 * 784]);
    let labels = idx(&[20], &[3; 20]);
    let train = |images: &[u8], labels: &[u8]| {
        for part in ["train", "t10k"] {
            scratch.write(&format!("mnist/{part}-images-idx3-ubyte"), images);
            scratch.write(&format!("mnist/{part}-labels-idx1-ubyte"), labels);
        }
    };
    let data = scratch.path("mnist");
    let args = ["train", "--model", "mlp", "--epochs", "1", "--quiet", "--data", &data];
    train(&images, &labels);
    assert_eq!(limited(&args).0, 0);
    for start in beginnings(&images) {
        train(start, &labels);
        refused(&args, "-ubyte");
    }
    for start in beginnings(&labels) {
        train(&images, start);
        refused(&["data", &data, "--check"], "-ubyte");
    }
    for dims in [[u32::MAX; 3], [u32::MAX, 28, 28], [20, 0, 28], [21, 28, 28]] {
        train(&idx(&dims, &[9; 20 * 784]), &labels);
        refused(&["data", &data], "-ubyte");
    }
    // Five bytes of gzip that claim nothing and hold nothing.
    train(b"\x1f\x8b\x08\x00\x00", &labels);
    refused(&["data", &data], "-ubyte");
    for (i, copy) in flipped(&images[..16], 16).enumerate() {
        train(&[&copy[..], &images[16..]].concat(), &labels);
        let commands: [&[&str]; 2] = [&["data", &data, "--check"], &args];
        refused_or_fine(commands[i % 2], "-ubyte");
    }
    let array = b"\x93NUMPY\x01\x00\x50\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 784), }        \n";
    scratch.write("npy/images.npy", array);
    scratch.write("npy/labels.npy", array);
    refused(&["data", &scratch.path("npy")], ".npy");
}

#[test]
fn models_that_are_damaged() {
    let scratch = Scratch::new("robust-models");
    let text = dahl(&["models", "resnet18", "--toml"]).1;
    for (i, start) in beginnings(text.as_bytes()).enumerate() {
        let bad = scratch.write("bad.toml", start);
        let commands: [&[&str]; 2] = [&["plan", "--batch", "2", &bad], &["models", &bad]];
        // The last line break may be missing.
        refused_or_fine(commands[i % 2], "bad.toml");
    }
    for copy in flipped(text.as_bytes(), 40) {
        let bad = scratch.write("bad.toml", &copy);
        let (code, stderr) = limited(&["models", &bad]);
        assert!([0, 4].contains(&code), "{code}: {stderr}");
        assert!(code == 0 || stderr.contains("bad.toml"), "{stderr}");
    }
    let lie = |text: &str| {
        let lie = scratch.write("lie.toml", text.as_bytes());
        let (code, stderr) = limited(&["train", "--limit", "8", "--model", &lie]);
        assert!([2, 3, 4].contains(&code), "{text}: {code}: {stderr}");
        assert!(stderr.starts_with("error: "), "{stderr}");
    };
    let layer = |layer: &str| format!("input = [1, 8, 8]\nlayers = [{layer}]");
    lie(&layer("{ type = \"flatten\" }, { type = \"linear\", out = 68719476736 }"));
    lie(&layer("{ type = \"flatten\" }, { type = \"linear\", out = 9223372036854775807 }"));
    lie(&layer("{ type = \"conv2d\", out = 1099511627776, kernel = 3 }"));
    lie(&layer("{ type = \"conv2d\", out = 1, kernel = 9223372036854775807 }"));
    lie(&layer("{ type = \"conv2d\", out = 1, kernel = 1, padding = 9223372036854775807 }"));
    lie(&layer("{ type = \"conv2d\", out = 1, kernel = 1, padding = 1099511627776 }"));
    lie(&layer("{ type = \"max_pool2d\", kernel = 0 }"));
    lie(&layer("{ type = \"batch_norm2d\", eps = -1 }, { type = \"linear\", out = 0 }"));
    lie("input = [9223372036854775807, 9223372036854775807]\nlayers = []");
    lie(&format!("input = [1, 8, 8]\nlayers = {}{}", "[".repeat(100_000), "]".repeat(100_000)));
    let nested = "{ type = \"sequential\", layers = [".repeat(20_000);
    lie(&format!("input = [1, 8, 8]\nlayers = [{nested}"));
    let binary = scratch.write("binary.toml", &[0xff; 64]);
    refused(&["train", "--model", &binary], "binary.toml");
    refused(&["train", "--model", &scratch.path("nowhere.toml")], "nowhere.toml");
}

/// The error said that less was needed than allowed, for address space was not looked at.
#[test]
fn a_plan_that_needs_more_than_is_available_is_refused() {
    let scratch = Scratch::new("robust-memory");
    // 20,000 x 20,000 weights: 1.5 GiB.
    let layers = "{ type = \"flatten\" }, { type = \"linear\", out = 20000 }, \
                  { type = \"linear\", out = 20000 }, { type = \"linear\", out = 10 }";
    let model = format!("input = [1, 8, 8]\nlayers = [{layers}]");
    let model = scratch.write("large.toml", model.as_bytes());
    let args = ["train", "--limit", "8", "--no-run", "--workers", "1", "--optimizer", "sgd"];
    let (code, stderr) = limited(&[&args[..], &["--model", &model]].concat());
    assert_eq!(code, 3, "{stderr}");
    for part in [
        "error: the plan needs 4.5 GiB of memory and 1.5 GiB for a copy of its persistent values, ",
        "available: the limit on the address space of this process is 1.4 GiB, ",
        "are in use; the largest tensors are ",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
}
