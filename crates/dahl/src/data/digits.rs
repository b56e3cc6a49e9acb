//! The handwritten digits that come with the crate (assets/digits/README.md).

use super::input::Input;
use super::pixels::numbered;
use super::{Part, PixelParts, Pixels};
use crate::error::Result;
use dahl_kernels::Shape;
use std::path::Path;

/// E. Alpaydin, C. Kaynak, UCI repository, CC BY 4.0.
const FILE: &[u8] = include_bytes!("../../assets/digits/digits.csv.gz");

const PIXELS: usize = 64;

/// More than the file has: a bound, not a size.
const MAX_BYTES: u64 = 1 << 20;

/// Every fifth sample is for the test.
const FOLD: usize = 5;

/// The UCI optical digits: 1,797 images of 8x8 (E. Alpaydin, C. Kaynak, UCI
/// repository, CC BY 4.0), which need no file.
///
/// Every fifth sample is for the test (359), the others for training (1,438):
/// the rows are ordered by writer, so both have digits of all writers. What is
/// not for the test is for training.
///
/// # Errors
/// None: the file is part of the crate.
///
/// ```
/// use dahl::data::{Dataset, Part, digits};
/// assert_eq!(digits(Part::Train)?.len(), 1438);
/// # Ok::<(), dahl::Error>(())
/// ```
pub fn digits(part: Part) -> Result<Pixels> {
    let part = if part == Part::Test { part } else { Part::Train };
    let (all, labels) = rows()?;
    let mut chosen = PixelParts {
        name: format!("digits, {part}"),
        shape: Shape::new(&[1, 8, 8]),
        classes: numbered(10),
        pixels: Vec::with_capacity(all.len()),
        labels: Vec::with_capacity(labels.len()),
        white: 16,
    };
    for (i, (pixels, &label)) in all.chunks_exact(PIXELS).zip(&labels).enumerate() {
        if (i % FOLD == FOLD - 1) == (part == Part::Test) {
            chosen.pixels.extend_from_slice(pixels);
            chosen.labels.push(label);
        }
    }
    Pixels::new(chosen)
}

fn rows() -> Result<(Vec<u8>, Vec<u8>)> {
    let mut input = Input::from_bytes(Path::new("digits.csv.gz"), FILE)?;
    let text = input.up_to("rows", MAX_BYTES)?;
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for (i, line) in text.split(|&b| b == b'\n').filter(|line| !line.is_empty()).enumerate() {
        match row(line) {
            Some((row, label)) => {
                pixels.extend_from_slice(&row);
                labels.push(label);
            }
            None => {
                let found = String::from_utf8_lossy(line);
                return Err(input.bad(format_args!("row {i}"), "65 numbers", found));
            }
        }
    }
    input.end()?;
    Ok((pixels, labels))
}

/// The pixels and the label of a line, digit by digit: every start of a program on these samples
/// reads 117,000 numbers, in tests without optimisation.
fn row(line: &[u8]) -> Option<([u8; PIXELS], u8)> {
    let mut numbers = [0; PIXELS + 1];
    let (mut at, mut digits) = (0, 0);
    for &byte in line {
        match byte {
            b'0'..=b'9' => {
                let number: &mut u8 = numbers.get_mut(at)?;
                *number = number.checked_mul(10)?.checked_add(byte - b'0')?;
                digits += 1;
            }
            b',' if digits > 0 => (at, digits) = (at + 1, 0),
            b'\r' => {}
            _ => return None,
        }
    }
    let (&label, row) = numbers.split_last()?;
    (at == PIXELS && digits > 0).then_some((row.try_into().ok()?, label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;

    #[test]
    fn the_embedded_file_is_whole() {
        let (train, test) = (digits(Part::Train).unwrap(), digits(Part::Test).unwrap());
        assert_eq!((train.len(), test.len()), (1438, 359));
        let mut counts = [0; 10];
        for set in [&train, &test] {
            (0..set.len()).for_each(|i| counts[set.label(i).unwrap()] += 1);
        }
        // As UCI's description of the set says.
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        let mut image = [0.0; 64];
        assert_eq!(train.read(0, &mut image).unwrap(), 0);
        assert_eq!(image[..6], [0.0, 0.0, 5.0 / 16.0, 13.0 / 16.0, 9.0 / 16.0, 1.0 / 16.0]);
    }
}
