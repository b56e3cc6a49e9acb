//! The description of a dataset, in a few lines.

use super::Dataset;
use super::normalise::Moments;
use crate::error::{Result, one_line};
use dahl_kernels::Shape;
use std::fmt;

/// So many classes, and means of channels, are shown one by one.
const SHOWN: usize = 50;

/// The description of a dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The name of the set.
    pub name: String,
    /// Number of samples.
    pub samples: usize,
    /// The shape of a sample.
    pub shape: Shape,
    /// Classes with how many samples they have.
    pub classes: Vec<(String, usize)>,
    /// On how many samples the following is measured.
    pub measured: usize,
    /// A mean a channel.
    pub mean: Vec<f64>,
    /// A standard deviation a channel.
    pub std: Vec<f64>,
    /// The least and the largest value.
    pub range: (f32, f32),
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Describes a dataset: counts all labels, and measures values on at most
/// `samples` samples, evenly spread; `progress` receives how many of these were read.
///
/// # Errors
/// Where a sample cannot be read.
pub fn describe(
    dataset: &dyn Dataset,
    samples: usize,
    progress: &mut dyn FnMut(usize),
) -> Result<Description> {
    let mut counts = vec![0; dataset.classes().len()];
    for index in 0..dataset.len() {
        // A label without a class is for `check` to tell.
        if let Some(count) = counts.get_mut(dataset.label(index)?) {
            *count += 1;
        }
    }
    let Moments { samples: measured, mean, std, range, .. } =
        Moments::measure::<f64>(dataset, samples, progress)?;
    Ok(Description {
        name: dataset.name(),
        samples: dataset.len(),
        shape: dataset.shape(),
        classes: dataset.classes().iter().cloned().zip(counts).collect(),
        measured,
        mean,
        std,
        range: (range.0 as f32, range.1 as f32),
        notes: dataset.notes().to_vec(),
    })
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &[f64]| {
            let some: Vec<String> = values.iter().take(SHOWN).map(|x| format!("{x:.4}")).collect();
            some.join(" ") + if values.len() > SHOWN { " …" } else { "" }
        };
        writeln!(f, "{}: {} samples of {}", one_line(&self.name), self.samples, self.shape)?;
        writeln!(
            f,
            "  mean {}, std {}, from {} to {} (of {} samples)",
            list(&self.mean),
            list(&self.std),
            self.range.0,
            self.range.1,
            self.measured
        )?;
        write!(f, "  {} classes", self.classes.len())?;
        let shown = || self.classes.iter().take(SHOWN).map(|(name, count)| (one_line(name), count));
        let wide = shown().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (class, count) in shown() {
            write!(f, "\n    {class:wide$} {count:>7}")?;
        }
        if self.classes.len() > SHOWN {
            write!(f, "\n    and {} more", self.classes.len() - SHOWN)?;
        }
        self.notes.iter().try_for_each(|note| write!(f, "\n  note: {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Part, digits};

    #[test]
    fn a_description_reads_well() {
        let set = digits(Part::Test).unwrap();
        let text = describe(&set, 100, &mut |_| ()).unwrap().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "digits, test: 359 samples of [1, 8, 8]");
        assert!(lines[1].starts_with("  mean 0.3"), "{text}");
        assert!(lines[1].ends_with("from 0 to 1 (of 100 samples)"), "{text}");
        assert_eq!(lines[2], "  10 classes");
        assert_eq!(lines.len(), 13);
    }
}
