//! Whether a set is the one that it was, without decoding it.

use super::normalise::spread;
use super::{Access, Dataset};
use crate::file::durable::hex;
use sha2::{Digest, Sha256};
use std::fs;

/// The lengths of at most so many files are requested: a disk answers 100,000 a
/// second, another machine's may answer a thousand.
const LENGTHS: usize = 1 << 14;

/// So many samples are read where that takes microseconds, or where nothing else
/// is known of them.
const READ: usize = 64;

/// Together they have no more elements than this, but for the first.
const READ_ELEMENTS: usize = 1 << 22;

/// The value of an unknown number.
const UNKNOWN: u64 = u64::MAX;

/// A hash of what tells a set from another one: shape, classes, the labels in
/// their order, the names of files within the set with the lengths of up to
/// 16,384 of them, and 64 samples where they are in memory. Both are evenly
/// spread over the set.
///
/// No image is read, so one that was changed and kept its length is not seen. Where
/// the set lies does not matter. A million files take a few tenths of a second on
/// a disk whose directories are in memory. A set of one's own whose samples are files
/// that [`file`](Dataset::file) does not name is known by 64 labels.
///
/// ```
/// use dahl::data::{Part, digits, fingerprint, limit};
/// let set = std::sync::Arc::new(digits(Part::Train)?);
/// assert_eq!(fingerprint(&set), fingerprint(&digits(Part::Train)?));
/// assert_ne!(fingerprint(&set), fingerprint(&limit(set.clone(), 100)));
/// # Ok::<(), dahl::Error>(())
/// ```
pub fn fingerprint(dataset: &dyn Dataset) -> String {
    let mut marks = Marks(Sha256::new());
    let samples = dataset.len();
    let shape = dataset.shape();
    marks.number(samples as u64);
    marks.number(shape.rank() as u64);
    shape.axes().iter().for_each(|&axis| marks.number(axis as u64));
    marks.number(dataset.classes().len() as u64);
    dataset.classes().iter().for_each(|class| marks.text(class));
    let evenly = |most: usize| {
        let some = samples.min(most);
        (0..some).map(move |i| spread(i, some, samples))
    };
    // What cannot be read is reported when it is trained on.
    let label = |index| dataset.label(index).map_or(UNKNOWN, |label| label as u64);
    let named = samples > 0 && dataset.file(0).is_some();
    if named || dataset.access() == Access::Memory {
        (0..samples).for_each(|index| marks.number(label(index)));
    } else {
        evenly(READ).for_each(|index| marks.number(label(index)));
    }
    if named {
        let files = (0..samples).filter_map(|index| dataset.file(index));
        files.for_each(|file| marks.text(&file.name));
        for file in evenly(LENGTHS).filter_map(|index| dataset.file(index)) {
            marks.number(fs::metadata(file.path).map_or(UNKNOWN, |about| about.len()));
        }
    } else if dataset.access() == Access::Memory {
        let mut sample = vec![0.0f32; shape.elements()];
        for index in evenly(READ.min(READ_ELEMENTS / sample.len().max(1)).max(1)) {
            match dataset.read(index, &mut sample) {
                Ok(_) => sample.iter().for_each(|x| marks.0.update(x.to_bits().to_le_bytes())),
                Err(_) => marks.number(UNKNOWN),
            }
        }
    }
    hex(marks.0)
}

/// Numbers and texts that cannot be mistaken for each other's neighbours.
struct Marks(Sha256);

impl Marks {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::decode::tests::{encoded, gradient};
    use crate::data::npy::tests as npy;
    use crate::data::tests::Scratch;
    use crate::data::{Folder, ImageOptions, Npy};
    use image::ImageFormat;

    #[test]
    fn a_folder_is_known_by_names_classes_and_lengths_wherever_it_lies() {
        let scratch = Scratch::new("fingerprint-folder");
        let [small, large] = [5, 9].map(|n| encoded(&gradient(n, n), ImageFormat::Png));
        assert_ne!(small.len(), large.len());
        for i in 0..4 {
            scratch.write(&format!("pets/cat/{i}.png"), &small);
            scratch.write(&format!("pets/dog/{i}.png"), &large);
        }
        let print = |name| {
            fingerprint(&Folder::open(&scratch.path(name), ImageOptions::default()).unwrap())
        };
        let rename =
            |from: &str, to: &str| fs::rename(scratch.path(from), scratch.path(to)).unwrap();
        let swap = || {
            rename("pets/cat", "pets/third");
            rename("pets/dog", "pets/cat");
            rename("pets/third", "pets/dog");
        };
        let first = print("pets");
        swap();
        assert_ne!(print("pets"), first, "swapped classes");
        swap();
        scratch.write("pets/dog/3.png", &small);
        assert_ne!(print("pets"), first, "another length");
        scratch.write("pets/dog/3.png", &large);
        rename("pets/dog/3.png", "pets/dog/4.png");
        assert_ne!(print("pets"), first, "another name");
        rename("pets/dog/4.png", "pets/dog/3.png");
        rename("pets", "moved");
        assert_eq!(print("moved"), first);
    }

    #[test]
    fn arrays_are_known_by_labels_and_samples() {
        let scratch = Scratch::new("fingerprint-npy");
        let print = |pixels: [u8; 6], labels: [u8; 3]| {
            scratch.write("images.npy", &npy::file("|u1", "(3, 2)", &pixels));
            scratch.write("labels.npy", &npy::file("|u1", "(3,)", &labels));
            let (images, labels) = (scratch.path("images.npy"), scratch.path("labels.npy"));
            fingerprint(&Npy::open(&images, &labels).unwrap())
        };
        let first = print([1, 2, 3, 4, 5, 6], [0, 1, 2]);
        assert_eq!(print([1, 2, 3, 4, 5, 6], [0, 1, 2]), first);
        assert_ne!(print([1, 2, 3, 4, 5, 6], [1, 0, 2]), first);
        assert_ne!(print([1, 2, 3, 4, 5, 7], [0, 1, 2]), first);
    }
}
