//! Walks a dataset and says what is wrong with which sample.

use super::Dataset;
use super::in_order::in_order;
use crate::error::{Error, Result};
use dahl_kernels::Float;
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};

/// So many problems are listed one by one; the others are counted.
const SHOWN: usize = 100;

/// A fault of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The sample.
    pub index: usize,
    /// Where it is.
    pub place: String,
    /// The fault.
    pub what: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Number of samples that were read.
    pub samples: usize,
    /// Number of faulty samples.
    pub wrong: usize,
    /// The first of them.
    pub problems: Vec<Problem>,
}

/// Reads the samples of a range: whether they decode, are finite and have a
/// class. [`check_on`] does it on several threads.
///
/// ```
/// use dahl::data::{Part, check, digits};
/// let set = digits(Part::Test)?;
/// assert_eq!(check(&set, 0..359).to_string(), "359 samples, none wrong");
/// # Ok::<(), dahl::Error>(())
/// ```
///
/// # Panics
/// Where the range ends beyond the samples.
#[track_caller]
pub fn check(dataset: &dyn Dataset, range: Range<usize>) -> Check {
    assert!(range.end <= dataset.len(), "expected samples below {}", dataset.len());
    check_range(dataset, range, &|_| None)
}

/// The fault of a label that is a class of the dataset.
type Unknown<'a> = dyn Fn(usize) -> Option<String> + Sync + 'a;

fn check_range(dataset: &dyn Dataset, range: Range<usize>, unknown: &Unknown<'_>) -> Check {
    let mut found = Check::default();
    let mut sample = vec![0.0; dataset.shape().elements()];
    for index in range {
        found.samples += 1;
        if let Some(what) = problem(dataset, index, &mut sample, unknown) {
            found.wrong += 1;
            if found.problems.len() < SHOWN {
                found.problems.push(Problem { index, place: dataset.place(index), what });
            }
        }
    }
    found
}

/// As [`check`] of all samples, on several threads; `progress` receives how many
/// samples were read. It finds the same in the same order.
///
/// ```
/// use dahl::data::{Part, check, check_on, digits};
/// let set = digits(Part::Test)?;
/// let two = std::num::NonZeroUsize::new(2).expect("2");
/// assert_eq!(check_on(&set, two, &mut |_| ()), check(&set, 0..359));
/// # Ok::<(), dahl::Error>(())
/// ```
pub fn check_on(
    dataset: &dyn Dataset,
    threads: NonZeroUsize,
    progress: &mut dyn FnMut(usize),
) -> Check {
    walk(dataset, threads, &|_| None, progress)
}

fn walk(
    dataset: &dyn Dataset,
    threads: NonZeroUsize,
    unknown: &Unknown<'_>,
    progress: &mut dyn FnMut(usize),
) -> Check {
    let mut found = Check::default();
    let work = |range| check_range(dataset, range, unknown);
    in_order(dataset.len(), threads, work, &mut |part| {
        found.join(part);
        progress(found.samples);
        ControlFlow::Continue(())
    });
    found
}

/// As [`check_on`] of a test set, whose labels must be of classes that training samples
/// have: a network cannot learn others.
///
/// ```
/// use dahl::data::{Part, check_against, digits};
/// let (train, test) = (digits(Part::Train)?, digits(Part::Test)?);
/// let threads = std::num::NonZeroUsize::MIN;
/// assert_eq!(check_against(&train, &test, threads, &mut |_| ()).wrong, 0);
/// # Ok::<(), dahl::Error>(())
/// ```
pub fn check_against(
    train: &dyn Dataset,
    test: &dyn Dataset,
    threads: NonZeroUsize,
    progress: &mut dyn FnMut(usize),
) -> Check {
    // What is wrong with a label of the training set is reported of that.
    let known: BTreeSet<usize> = (0..train.len()).filter_map(|i| train.label(i).ok()).collect();
    let unknown = |label: usize| {
        let name = test.classes().get(label).map_or_else(|| label.to_string(), String::clone);
        let expected = "label: expected a class that a training sample has";
        (!known.contains(&label)).then(|| format!("{expected}, found {name}"))
    };
    walk(test, threads, &unknown, progress)
}

fn problem(
    dataset: &dyn Dataset,
    index: usize,
    sample: &mut [f32],
    unknown: &Unknown<'_>,
) -> Option<String> {
    // What a dataset forgets to write is seen as not finite.
    sample.fill(f32::NAN);
    let label = match dataset.read(index, sample) {
        Ok(label) => label,
        Err(e) => return Some(e.to_string()),
    };
    let classes = dataset.classes().len();
    if label >= classes {
        return Some(format!("label: expected a class below {classes}, found {label}"));
    }
    if let Some(what) = unknown(label) {
        return Some(what);
    }
    let at = not_finite(sample)?;
    Some(format!("element {at}: expected a finite number, found {}", sample[at]))
}

/// The first element that is not finite.
fn not_finite<T: Float>(sample: &[T]) -> Option<usize> {
    // Without a way out, so that several elements are looked at at once.
    let any = sample.iter().fold(false, |any, x| any | !x.is_finite());
    if any { sample.iter().position(|x| !x.is_finite()) } else { None }
}

/// Refuses a sample that was read and is not finite.
pub(super) fn check_finite<T: Float>(
    dataset: &dyn Dataset,
    index: usize,
    sample: &[T],
) -> Result<()> {
    match not_finite(sample) {
        None => Ok(()),
        Some(at) => {
            let (place, what) = (dataset.place(index), format!("element {at}"));
            Err(Error::data(place, what, "a finite number", sample[at].to_string()))
        }
    }
}

impl Check {
    /// Adds what was found in a later range.
    pub fn join(&mut self, later: Check) {
        self.samples += later.samples;
        self.wrong += later.wrong;
        self.problems.extend(later.problems);
        self.problems.truncate(SHOWN);
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.wrong == 0 {
            return write!(f, "{} samples, none wrong", self.samples);
        }
        write!(f, "{} samples, {} wrong", self.samples, self.wrong)?;
        for Problem { place, what, .. } in &self.problems {
            // An error of a file names it itself.
            if what.starts_with(place.as_str()) {
                write!(f, "\n  {what}")?;
            } else {
                write!(f, "\n  {place}: {what}")?;
            }
        }
        match self.wrong - self.problems.len() {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dahl_kernels::Shape;

    /// Sample 1 has no class, sample 2 is not finite, sample 3 is not written.
    struct Wrong(Vec<String>);

    impl Dataset for Wrong {
        fn len(&self) -> usize {
            304
        }
        fn shape(&self) -> Shape {
            Shape::new(&[2])
        }
        fn classes(&self) -> &[String] {
            &self.0
        }
        fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
            match index {
                2 => out.copy_from_slice(&[0.0, f32::INFINITY]),
                3 => {}
                _ => out.fill(0.5),
            }
            Ok(usize::from(index == 1 || index > 100))
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let set = Wrong(vec!["only".to_owned()]);
        let mut found = check(&set, 0..4);
        let text = "4 samples, 3 wrong\n  \
                    dataset, sample 1: label: expected a class below 1, found 1\n  \
                    dataset, sample 2: element 1: expected a finite number, found inf\n  \
                    dataset, sample 3: element 0: expected a finite number, found NaN";
        assert_eq!(found.to_string(), text);
        found.join(check(&set, 4..304));
        assert_eq!((found.samples, found.wrong, found.problems.len()), (304, 206, SHOWN));
        assert!(found.to_string().ends_with("and 106 more"));
    }

    #[test]
    fn threads_find_the_same_in_the_same_order() {
        let set = Wrong(vec!["only".to_owned()]);
        let expected = check(&set, 0..304);
        for threads in [1, 2, 3, 50] {
            let mut shown = Vec::new();
            let threads = NonZeroUsize::new(threads).unwrap();
            let found = check_on(&set, threads, &mut |read| shown.push(read));
            assert_eq!(found, expected, "{threads} threads");
            assert_eq!((shown.len(), shown.last()), (10, Some(&304)));
            assert!(shown.is_sorted());
        }
    }
}
