//! Which classes are taken for which.

use super::{Pass, Samples, Trainer};
use crate::error::{Result, one_line};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

/// So many classes are shown as a matrix; more are shown one by one.
const MATRIX: usize = 20;

/// The confusion matrix: counts of samples by true and predicted class.
///
/// ```
/// use dahl::train::Confusion;
/// let mut confusion = Confusion::new(&["cat".to_owned(), "dog".to_owned()]);
/// confusion.add(0, &[0.9, 0.1]);
/// confusion.add(1, &[0.8, 0.3]);
/// assert_eq!(confusion.row(1), [1, 0]);
/// assert_eq!(confusion.accuracy(1), Some(0.0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    names: Vec<String>,
    /// By class and what it was taken for, where that happened: a table of all
    /// pairs of many classes would be mostly zeros.
    counts: BTreeMap<(usize, usize), u64>,
}

impl Confusion {
    /// No sample yet.
    pub fn new(classes: &[String]) -> Self {
        Self { names: classes.to_vec(), counts: BTreeMap::new() }
    }

    /// Adds a sample of class `label` with its outputs: it was taken for the
    /// first of the largest. Outputs beyond the classes are called by number.
    ///
    /// # Panics
    /// Where the label is beyond the classes.
    #[track_caller]
    pub fn add(&mut self, label: usize, outputs: &[f64]) {
        for i in self.names.len()..outputs.len() {
            self.names.push(format!("#{i}"));
        }
        let classes = self.names.len();
        assert!(label < classes, "expected a class below {classes}, found {label}");
        *self.counts.entry((label, largest(outputs))).or_default() += 1;
    }

    /// The names of the classes.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The predicted classes of the samples of a class.
    pub fn row(&self, class: usize) -> Vec<u64> {
        let mut row = vec![0; self.names.len()];
        self.taken_for(class).for_each(|(taken, n)| row[taken] = n);
        row
    }

    /// Number of samples of a class.
    pub fn samples(&self, class: usize) -> u64 {
        self.taken_for(class).map(|(_, n)| n).sum()
    }

    /// The part of a class that was right; `None` where it has no sample.
    pub fn accuracy(&self, class: usize) -> Option<f64> {
        let right = self.counts.get(&(class, class)).copied().unwrap_or(0);
        let all = self.samples(class);
        (all > 0).then(|| right as f64 / all as f64)
    }

    /// A predicted class, and its count.
    pub fn taken_for(&self, class: usize) -> impl Iterator<Item = (usize, u64)> {
        self.counts.range((class, 0)..=(class, usize::MAX)).map(|(&(_, taken), &n)| (taken, n))
    }

    /// The classes that a sample belongs to or was taken for.
    pub fn seen(&self) -> Vec<usize> {
        let both: BTreeSet<usize> = self.counts.keys().flat_map(|&(a, b)| [a, b]).collect();
        both.into_iter().collect()
    }

    /// The wrong predictions for samples of a class, most frequent first.
    fn mistakes(&self, class: usize) -> Vec<(usize, u64)> {
        let mut wrong: Vec<_> = self.taken_for(class).filter(|&(c, _)| c != class).collect();
        wrong.sort_by_key(|&(c, n)| (std::cmp::Reverse(n), c));
        wrong
    }
}

impl Trainer {
    /// Evaluates all samples and counts which class was taken for which.
    pub fn confusion_pass(&mut self, samples: &Samples<'_>) -> Result<(Pass, Confusion)> {
        self.confusion_pass_while(samples, &mut || ControlFlow::Continue(()))
    }

    /// The same, until `watch` breaks, which is called after every step: the
    /// samples of the pass say how far it came.
    pub fn confusion_pass_while(
        &mut self,
        samples: &Samples<'_>,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(Pass, Confusion)> {
        let mut confusion = Confusion::new(samples.data.classes());
        let mut count = |index, outputs: &[f64]| {
            confusion.add(samples.data.label(index)?, outputs);
            Ok(())
        };
        let pass = self.output_pass_while(samples, &mut count, watch)?;
        Ok((pass, confusion))
    }
}

/// The first of the largest values.
fn largest(values: &[f64]) -> usize {
    let mut best = 0;
    for (i, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = i;
        }
    }
    best
}

/// A row a class: how many were right, and what they were taken for.
impl fmt::Display for Confusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.seen();
        let names: Vec<_> = self.names.iter().map(|name| one_line(name)).collect();
        let length = |c: usize| names[c].chars().count();
        let first = seen.iter().map(|&c| length(c)).max().unwrap_or(0).max(5);
        let matrix = seen.len() <= MATRIX;
        write!(f, "{:first$}  {:>7}  {:>8}", "class", "samples", "right")?;
        let digits = |n: &u64| n.to_string().len();
        let widest = self.counts.values().map(digits).max().unwrap_or(1);
        let width = |c: usize| length(c).max(widest);
        if matrix {
            seen.iter().try_for_each(|&c| write!(f, "  {:>1$}", names[c], width(c)))?;
        } else {
            write!(f, "  taken for")?;
        }
        writeln!(f)?;
        for &class in &seen {
            let samples = self.samples(class);
            let right =
                self.accuracy(class).map_or("-".to_owned(), |a| format!("{:.2} %", 100.0 * a));
            write!(f, "{:first$}  {samples:>7}  {right:>8}", names[class])?;
            if matrix {
                let row = self.row(class);
                seen.iter().try_for_each(|&c| write!(f, "  {:>1$}", row[c], width(c)))?;
            } else {
                let worst = self.mistakes(class).into_iter().take(3);
                let worst: Vec<_> = worst.map(|(c, n)| format!("{} ({n})", names[c])).collect();
                write!(f, "  {}", worst.join(", "))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(n: usize) -> Vec<String> {
        (0..n).map(|i| format!("class-{i}")).collect()
    }

    #[test]
    fn a_name_with_a_line_end_is_one_row() {
        let mut confusion = Confusion::new(&["cat\n100 %".to_owned(), "dog".to_owned()]);
        confusion.add(0, &[1.0, 0.0]);
        confusion.add(1, &[1.0, 0.0]);
        let text = confusion.to_string();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("cat\\u000a100 %"), "{text}");
    }

    #[test]
    fn the_first_of_the_largest_is_taken() {
        let check = |outputs: &[f64], expected| assert_eq!(largest(outputs), expected);
        check(&[1.0, 3.0, 3.0], 1);
        check(&[-1.0, -2.0], 0);
        check(&[f64::NEG_INFINITY, 0.0, f64::INFINITY], 2);
        check(&[], 0);
    }

    #[test]
    fn a_small_table_is_a_matrix() {
        let classes: Vec<String> = ["cat", "dog", "horse"].map(str::to_owned).to_vec();
        let mut confusion = Confusion::new(&classes);
        for (label, taken) in [(0, 0), (0, 0), (0, 1), (1, 1), (1, 4)] {
            let mut outputs = [0.0; 5];
            outputs[taken] = 1.0;
            confusion.add(label, &outputs);
        }
        // Nothing is a horse, nothing was taken for one; #4 has no name.
        assert_eq!(
            confusion.to_string(),
            "class  samples     right  cat  dog  #4\n\
             cat          3   66.67 %    2    1   0\n\
             dog          2   50.00 %    0    1   1\n\
             #4           0         -    0    0   0\n"
        );
    }

    #[test]
    fn a_large_table_names_the_worst() {
        let mut confusion = Confusion::new(&names(30));
        for label in 0..30 {
            for taken in [label, label, 29, 0, 0] {
                let mut outputs = [0.0; 30];
                outputs[taken] = 1.0;
                confusion.add(label, &outputs);
            }
        }
        let text = confusion.to_string();
        let line = text.lines().nth(8).unwrap();
        assert_eq!(line, "class-7         5   40.00 %  class-0 (2), class-29 (1)");
        assert_eq!(text.lines().count(), 31);
    }

    #[test]
    #[should_panic(expected = "expected a class below 2, found 2")]
    fn a_label_beyond_the_classes_is_a_mistake_of_the_caller() {
        Confusion::new(&names(2)).add(2, &[0.0, 1.0]);
    }
}
