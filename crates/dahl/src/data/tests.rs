//! Damaged files, and the real sets where they are there.

use super::decode::tests::{encoded, gradient};
use super::input::gzip;
use super::*;
use crate::error::Error;
use image::ImageFormat;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::fs;
use std::path::{Path, PathBuf};

/// A directory that is removed at the end of the test.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dahl-data-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    pub(super) fn write(&self, file: &str, bytes: &[u8]) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Every prefix of a file and 1,000 copies with a few bits flipped give a
/// valid set or an error that names file, expected and found. Returns how many
/// were refused.
fn check_damaged(file: &str, bytes: &[u8], read: impl Fn(&[u8]) -> crate::Result<()>) -> usize {
    read(bytes).unwrap();
    let mut refused = 0;
    let mut check = |damaged: &[u8], how: &str| match read(damaged) {
        Ok(()) => {}
        Err(
            e @ (Error::Data { .. }
            | Error::Columns { .. }
            | Error::Images { .. }
            | Error::Shape { .. }),
        ) => {
            let text = e.to_string();
            assert!(text.contains("expected") && text.contains(file), "{how}: {text}");
            refused += 1;
        }
        Err(e) => panic!("{how}: {e}"),
    };
    for length in 0..bytes.len() {
        check(&bytes[..length], &format!("the first {length} bytes"));
    }
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for i in 0..1000 {
        let mut damaged = bytes.to_vec();
        for _ in 0..1 + i % 3 {
            let at = random.next_u64() as usize % damaged.len();
            damaged[at] ^= 1 << (random.next_u32() % 8);
        }
        check(&damaged, &format!("flips {i}"));
    }
    refused
}

fn read_all(set: &dyn Dataset) -> crate::Result<()> {
    let mut out = vec![0.0; set.shape().elements()];
    for index in 0..set.len() {
        let label = set.read(index, &mut out)?;
        assert!(label < set.classes().len());
    }
    Ok(())
}

#[test]
fn damaged_idx_files_are_refused() {
    let images = idx::tests::file(&[3, 4, 5], &[9; 60]);
    let labels = idx::tests::file(&[3], &[0, 1, 9]);
    for (images, labels) in [(images.clone(), labels.clone()), (gzip(&images), gzip(&labels))] {
        let read =
            |images: &[u8], labels: &[u8]| read_all(&idx::tests::parse_bytes(images, labels)?);
        let refused = check_damaged("s: ", &images, |bytes| read(bytes, &labels));
        assert!(refused >= images.len());
        let refused = check_damaged("s: ", &labels, |bytes| read(&images, bytes));
        assert!(refused >= labels.len());
    }
}

#[test]
fn damaged_cifar_files_are_refused() {
    let records = cifar10::tests::records(&[3]);
    for bytes in [gzip(&records), records] {
        let read = |bytes: &[u8]| read_all(&cifar10::tests::parse_bytes(bytes)?);
        let refused = check_damaged("batch.bin", &bytes, read);
        assert!(refused >= bytes.len());
    }
}

#[test]
fn damaged_arrays_are_refused() {
    let scratch = Scratch::new("damaged-npy");
    let samples = npy::tests::file("<f4", "(3, 2)", &[1; 24]);
    let labels = npy::tests::file("<i8", "(3,)", &[0; 24]);
    let read = |samples: &[u8], labels: &[u8]| {
        scratch.write("images.npy", samples);
        scratch.write("labels.npy", labels);
        read_all(&Npy::open(&scratch.path("images.npy"), &scratch.path("labels.npy"))?)
    };
    assert!(check_damaged(".npy", &samples, |bytes| read(bytes, &labels)) >= samples.len());
    assert!(check_damaged(".npy", &labels, |bytes| read(&samples, bytes)) >= labels.len());
}

#[test]
fn damaged_images_are_refused() {
    let options = ImageOptions { height: 8, width: 8, ..Default::default() };
    for format in [ImageFormat::Png, ImageFormat::Jpeg] {
        let bytes = encoded(&gradient(9, 7), format);
        let read = |bytes: &[u8]| {
            let mut out = vec![f32::NAN; options.shape().elements()];
            decode::decode(Path::new("a.png"), bytes, &options, &mut out)?;
            assert!(out.iter().all(|x| (0.0..=1.0).contains(x)));
            Ok(())
        };
        let refused = check_damaged("a.png", &bytes, read);
        assert!(refused > bytes.len() / 2, "{refused}");
    }
}

#[test]
fn damaged_tables_are_refused() {
    let scratch = Scratch::new("damaged-table");
    let text = b"id,masterCategory,season\n1,Apparel,\"all, or none\"\n2,Shoes,Fall\n";
    for image in ["images/1.jpg", "images/2.jpg"] {
        scratch.write(image, &encoded(&gradient(9, 7), ImageFormat::Jpeg));
    }
    let options = ImageOptions { height: 8, width: 8, ..Default::default() };
    let read = |bytes: &[u8]| {
        scratch.write("styles.csv", bytes);
        let table = scratch.path("styles.csv");
        read_all(&Folder::from_table(&table, &TableOptions::default(), options)?)
    };
    assert!(check_damaged("styles.csv", text, read) > 100);
}

/// Any thread reads the same.
#[test]
fn threads_share_a_set() {
    let set = digits(Part::Train).unwrap();
    let transform = Transform {
        augment: Some(Augment { seed: 1, padding: 2, flip: true }),
        normalise: Some(Normalise { mean: vec![0.3], std: vec![0.4] }),
    };
    let read = |from: usize, step: usize| {
        let mut samples = Vec::new();
        for index in (from..200).step_by(step) {
            let mut out = vec![0.0f32; 64];
            transform.read(&set, Visit { epoch: 4, index }, &mut out).unwrap();
            samples.push((index, out));
        }
        samples
    };
    let mut together = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|i| scope.spawn(move || read(i, 3))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    together.sort_by_key(|(index, _)| *index);
    assert_eq!(together, read(0, 1));
}
