//! Datasets: IDX, CIFAR-10, CSV with images, NumPy, PNG, JPEG.

use crate::repair;
use dahl::data::{
    Dataset, Folder, ImageOptions, Images, Npy, Part, TableOptions, cifar10, idx_pair,
};
use dahl::{Result, Shape};
use dahl_fuzz::{Bound, Case, Target, fuzz};
use std::path::Path;

/// Samples that are read of a set: more are read the same way.
const SAMPLES: usize = 4;

/// A file of pixels is kept as it is; gzip expands up to 1032 times.
const PIXELS: Target = Target {
    format: "",
    peak: Bound { times: 3 * 1032, plus: 1 << 20 },
    total: Bound { times: 8 * 1032, plus: 1 << 20 },
    few: 200,
    made: Vec::new,
    repair: |_| {},
    read: |_, _| false,
};

/// Reads the first samples, as a loader does.
fn samples(set: Result<impl Dataset>) -> bool {
    let Ok(set) = set else { return false };
    assert!(!set.is_empty(), "a set without samples");
    let mut out = vec![0.0; set.shape().elements()];
    for index in 0..set.len().min(SAMPLES) {
        if let Ok(label) = set.read(index, &mut out) {
            assert!(label < set.classes().len(), "{label}");
        }
    }
    true
}

#[test]
fn fuzz_idx() {
    let read = |_: &Case, place: &Path| {
        let classes = (0..10).map(|class| class.to_string()).collect();
        samples(idx_pair(&place.join("images"), &place.join("labels"), classes, "set"))
    };
    fuzz!(Target { format: "idx", read, ..PIXELS });
}

#[test]
fn fuzz_cifar() {
    let read = |_: &Case, place: &Path| samples(cifar10(&[place.to_owned()], Part::Test));
    fuzz!(Target { format: "cifar", read, ..PIXELS });
}

#[test]
fn fuzz_numpy() {
    let read = |_: &Case, place: &Path| {
        samples(Npy::open(&place.join("samples.npy"), &place.join("labels.npy")))
    };
    let peak = Bound { times: 64, plus: 1 << 20 };
    fuzz!(Target { format: "numpy", peak, total: peak, repair: repair::numpy, read, ..PIXELS });
}

const IMAGES: ImageOptions =
    ImageOptions { height: 8, width: 8, channels: 3, fit: dahl::data::Fit::Stretch };

#[test]
fn fuzz_csv() {
    let read = |_: &Case, place: &Path| {
        let table = place.join("styles.csv");
        samples(Folder::from_table(&table, &TableOptions::default(), IMAGES))
    };
    fuzz!(Target { format: "csv", read, ..DECODED });
}

/// Decodes one image, stretched and cropped.
fn image(_: &Case, place: &Path, file: &str) -> bool {
    let mut taken = false;
    for fit in [dahl::data::Fit::Stretch, dahl::data::Fit::Crop] {
        let set = Images::open(&[place.join(file)], ImageOptions { fit, ..IMAGES }).unwrap();
        let mut out = [f32::NAN; 3 * 64];
        assert_eq!(set.shape(), Shape::new(&[3, 8, 8]));
        taken = set.read(0, &mut out).is_ok();
        assert!(!taken || out.iter().all(|x| (0.0..=1.0).contains(x)), "{out:?}");
    }
    taken
}

/// Eight pixels for each of 1032 bytes for each byte of the file: a PNG of one bit a pixel.
/// An image is there decoded, and as the rows or columns that are being resized.
const DECODED: Target = Target {
    peak: Bound { times: 20 * 8 * 1032, plus: 4 << 20 },
    total: Bound { times: 32 * 8 * 1032, plus: 16 << 20 },
    ..PIXELS
};

#[test]
fn fuzz_png() {
    let read = |case: &Case, place: &Path| image(case, place, "input.png");
    fuzz!(Target { format: "png", repair: repair::png, read, ..DECODED });
}

#[test]
fn fuzz_jpeg() {
    let read = |case: &Case, place: &Path| image(case, place, "input.jpg");
    fuzz!(Target { format: "jpeg", read, ..DECODED });
}
