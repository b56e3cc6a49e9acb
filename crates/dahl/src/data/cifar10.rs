//! CIFAR-10 in its binary version, gzipped or not.

use super::input::{Input, find};
use super::{Part, PixelParts, Pixels};
use crate::error::{Error, Result};
use dahl_kernels::Shape;
use std::path::PathBuf;

const CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

const PIXELS: usize = 3 * 32 * 32;

/// A label and an image.
const RECORD: usize = 1 + PIXELS;

/// As many records as a file of the set has.
const MAX_RECORDS: usize = 10_000;

const BATCHES: usize = 5;

/// CIFAR-10 (Krizhevsky 2009), 50,000 and 10,000 images of 3x32x32, from the
/// first of the directories that has its files.
///
/// What is not for the test is for training. A part of the five training files is enough; [`notes`](super::Dataset::notes)
/// then says which are missing.
///
/// # Errors
/// [`Error::Missing`] where there is no file of the part, [`Error::Data`] where
/// a file is damaged.
pub fn cifar10(directories: &[PathBuf], part: Part) -> Result<Pixels> {
    let part = if part == Part::Test { part } else { Part::Train };
    let files: Vec<String> = if part == Part::Test {
        vec!["test_batch.bin".to_owned()]
    } else {
        (1..=BATCHES).map(|i| format!("data_batch_{i}.bin")).collect()
    };
    let found: Vec<Option<PathBuf>> = files.iter().map(|file| find(directories, file)).collect();
    let mut records = Records::default();
    for path in found.iter().flatten() {
        records.read(Input::open(path)?)?;
    }
    if records.labels.is_empty() {
        return Err(Error::Missing {
            set: "CIFAR-10".to_owned(),
            looked_in: directories.to_vec(),
            files: files.iter().map(|file| format!("{file} or {file}.gz")).collect(),
            origin: "CIFAR-10 is A. Krizhevsky's, University of Toronto; it is the archive \
                     called 'CIFAR-10 binary version (suitable for C programs)', to be unpacked"
                .to_owned(),
        });
    }
    let mut set = records.finish(&format!("CIFAR-10, {part}"))?;
    let missing: Vec<&str> = files
        .iter()
        .zip(&found)
        .filter(|(_, path)| path.is_none())
        .map(|(file, _)| file.as_str())
        .collect();
    if !missing.is_empty() {
        set.note(format!("a part of CIFAR-10: {} not there", missing.join(", ")));
    }
    Ok(set)
}

#[derive(Default)]
struct Records {
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

impl Records {
    fn read(&mut self, mut input: Input) -> Result<()> {
        let limit = (MAX_RECORDS * RECORD) as u64;
        let bytes = input.up_to("records", limit)?;
        if bytes.is_empty() || bytes.len() % RECORD != 0 {
            let found = format!("{} bytes", bytes.len());
            let expected = format!("a multiple of {RECORD} bytes, a label and an image each");
            return Err(input.bad("records", expected, found));
        }
        self.pixels.reserve(bytes.len() / RECORD * PIXELS);
        for (i, record) in bytes.chunks_exact(RECORD).enumerate() {
            if usize::from(record[0]) >= CLASSES.len() {
                let what = format!("label of record {i}");
                return Err(input.bad(what, "a class below 10", record[0]));
            }
            self.labels.push(record[0]);
            self.pixels.extend_from_slice(&record[1..]);
        }
        input.end()
    }

    fn finish(self, name: &str) -> Result<Pixels> {
        Pixels::new(PixelParts {
            name: name.to_owned(),
            shape: Shape::new(&[3, 32, 32]),
            classes: CLASSES.map(str::to_owned).to_vec(),
            pixels: self.pixels,
            labels: self.labels,
            white: u8::MAX,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::data::input::gzip;
    use std::path::Path;

    pub(in crate::data) fn records(labels: &[u8]) -> Vec<u8> {
        let record = |label: &u8| {
            let mut bytes = vec![*label];
            bytes.extend((0..PIXELS).map(|i| i as u8));
            bytes
        };
        labels.iter().flat_map(record).collect()
    }

    pub(in crate::data) fn parse_bytes(bytes: &[u8]) -> Result<Pixels> {
        let mut records = Records::default();
        records.read(Input::from_bytes(Path::new("batch.bin"), bytes.to_vec())?)?;
        records.finish("small")
    }

    #[test]
    fn a_record_is_a_label_and_three_planes() {
        for bytes in [records(&[3, 9]), gzip(&records(&[3, 9]))] {
            let set = parse_bytes(&bytes).unwrap();
            let mut out = vec![0.0; PIXELS];
            assert_eq!(set.read(1, &mut out).unwrap(), 9);
            assert_eq!(out[51], 0.2);
            assert_eq!(set.classes()[3], "cat");
        }
    }

    #[test]
    fn damaged_files_are_named_with_what_was_expected() {
        let check = |bytes: &[u8], expected: &str| {
            assert_eq!(parse_bytes(bytes).unwrap_err().to_string(), expected);
        };
        let whole = "batch.bin: records: expected a multiple of 3073 bytes, a label and an image \
                     each, found";
        check(&[], &format!("{whole} 0 bytes"));
        check(&records(&[1, 2])[..4000], &format!("{whole} 4000 bytes"));
        check(
            &records(&[1, 10]),
            "batch.bin: label of record 1: expected a class below 10, found 10",
        );
        // A bomb: what is unpacked is bounded by what a file of the set has.
        let bomb = gzip(&vec![0; (MAX_RECORDS + 1) * RECORD]);
        check(&bomb, "batch.bin: content: expected the end after 30730000 bytes, found more bytes");
    }

    #[test]
    fn where_files_are_missing_the_error_says_which() {
        let error = cifar10(&["nowhere".into()], Part::Test).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "CIFAR-10 is not on the disk: expected test_batch.bin or test_batch.bin.gz in \
                 nowhere; CIFAR-10 is A. Krizhevsky's"
            ),
            "{error}"
        );
    }
}
