//! Two runs side by side: which is faster, which is cheaper, and why.
//!
//! Figures are those of a training sample, so that runs of different lengths and batches
//! can be compared. Energies are compared where both are measured, or both modelled.

use super::energy::Energy;
use super::record::RunRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many reasons are told.
const TOLD: usize = 8;

/// Which of two runs has less of something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What: `training time a sample`.
    pub what: String,
    /// The unit of the figures.
    pub unit: String,
    /// The figures of both.
    pub of: [f64; 2],
    /// The run with less, by index; none where they are equal to a part in a hundred.
    pub less: Option<usize>,
    /// In words.
    pub text: String,
}

/// A codelet's time in both runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The op and its variant.
    pub codelet: String,
    /// Nanoseconds a training sample in both runs.
    pub nanos: [f64; 2],
    /// Calls a training sample in both runs.
    pub calls: [f64; 2],
}

/// Two runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Their names.
    pub names: [String; 2],
    /// Which is faster.
    pub faster: Option<Verdict>,
    /// Which is cheaper.
    pub cheaper: Option<Verdict>,
    /// The codelets whose times differ most.
    pub reasons: Vec<Reason>,
    /// What workers did a training sample, in nanoseconds: busy, spinning, waiting, and
    /// the rest.
    pub workers: Vec<(String, [f64; 2])>,
}

/// Training samples and seconds of a run's epochs.
fn speed(run: &RunRecord) -> Option<f64> {
    let samples: f64 = run
        .epochs
        .iter()
        .filter_map(|e| Some(e["seconds"].as_f64()? * e["samples_per_second"].as_f64()?))
        .sum();
    (samples > 0.0).then(|| 1e9 * run.seconds() / samples)
}

fn verdict([what, unit, word]: [&str; 3], names: [&str; 2], of: [f64; 2]) -> Verdict {
    let [a, b] = of;
    let less = if (a - b).abs() <= 0.01 * a.max(b) { None } else { Some(usize::from(b < a)) };
    let text = match less {
        None => format!("{} and {} are equal to 1 %: {a:.4} and {b:.4} {unit}", names[0], names[1]),
        Some(less) => {
            let (low, high) = (of[less], of[1 - less]);
            format!(
                "{} is {word}: {low:.4} {unit}, {} takes {high:.4} ({:.1} % more)",
                names[less],
                names[1 - less],
                100.0 * (high / low.max(f64::MIN_POSITIVE) - 1.0)
            )
        }
    };
    Verdict { what: what.to_owned(), unit: unit.to_owned(), of, less, text }
}

/// Compares two runs.
pub fn compare(a: &RunRecord, b: &RunRecord) -> Comparison {
    let names = [a, b].map(|run| run.name.as_str());
    let both = |of: &dyn Fn(&RunRecord) -> Option<f64>| Some([of(a)?, of(b)?]);
    let faster = both(&speed).map(|of| {
        let of = of.map(|nanos| nanos / 1e3);
        verdict(["training time a sample", "µs a sample", "faster"], names, of)
    });
    let per_sample = |of: fn(&RunRecord) -> Option<Energy>| {
        move |run: &RunRecord| of(run).map(|energy| 1e3 * energy.per_sample)
    };
    let measured = both(&per_sample(Energy::measured));
    let modelled = both(&per_sample(Energy::modelled));
    let cheaper = match (measured, modelled) {
        (Some(of), _) => Some((of, "mJ a sample, measured")),
        (None, Some(of)) => Some((of, "mJ a sample, modelled")),
        (None, None) => None,
    };
    let cheaper = cheaper.map(|(of, unit)| verdict(["energy", unit, "cheaper"], names, of));
    let mut rows: BTreeMap<&str, Reason> = BTreeMap::new();
    for (i, run) in [a, b].into_iter().enumerate() {
        let Some(counted) = &run.counted else { continue };
        let samples = counted.samples.max(1) as f64;
        for shape in &counted.shapes {
            let row = rows.entry(&shape.codelet).or_insert_with(|| Reason {
                codelet: shape.codelet.clone(),
                nanos: [0.0; 2],
                calls: [0.0; 2],
            });
            row.nanos[i] += shape.nanos as f64 / samples;
            row.calls[i] += shape.calls as f64 / samples;
        }
    }
    let mut reasons: Vec<Reason> = rows.into_values().collect();
    let apart = |row: &Reason| (row.nanos[0] - row.nanos[1]).abs();
    reasons.sort_by(|x, y| apart(y).total_cmp(&apart(x)).then(x.codelet.cmp(&y.codelet)));
    reasons.truncate(TOLD);
    let names = names.map(str::to_owned);
    Comparison { names, faster, cheaper, reasons, workers: workers(a, b) }
}

fn workers(a: &RunRecord, b: &RunRecord) -> Vec<(String, [f64; 2])> {
    let of = |run: &RunRecord| {
        let counted = run.counted.as_ref()?;
        let samples = counted.samples.max(1) as f64;
        let sum = |part: fn(&crate::trace::WorkerTime) -> u64| {
            counted.activity.workers.iter().map(part).sum::<u64>() as f64 / samples
        };
        let all = counted.activity.elapsed as f64 * counted.activity.workers.len() as f64 / samples;
        let known = [sum(|w| w.busy), sum(|w| w.spinning), sum(|w| w.parked)];
        let rest = (all - known.iter().sum::<f64>()).max(0.0);
        Some([known[0], known[1], known[2], rest])
    };
    let (Some(a), Some(b)) = (of(a), of(b)) else { return Vec::new() };
    let names = ["busy", "spinning", "waiting", "no work"];
    (0..4).map(|i| (names[i].to_owned(), [a[i], b[i]])).collect()
}

impl Comparison {
    /// In words, the verdicts and the largest reasons.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for verdict in [&self.faster, &self.cheaper].into_iter().flatten() {
            text += &format!("{}\n", verdict.text);
        }
        if !self.reasons.is_empty() {
            text += &format!("why: ns a sample, {} and {}\n", self.names[0], self.names[1]);
        }
        for row in &self.reasons {
            let [a, b] = row.nanos;
            text += &format!("  {a:>12.1} {b:>12.1} {:>+12.1}  {}\n", b - a, row.codelet);
        }
        for (what, [a, b]) in &self.workers {
            text += &format!("  {a:>12.1} {b:>12.1} {:>+12.1}  workers, {what}\n", b - a);
        }
        text
    }
}
