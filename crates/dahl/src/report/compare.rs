//! Two runs side by side: which is faster, which is cheaper, and why.
//!
//! Figures are those of a training sample, so that runs of different lengths and batches
//! can be compared. A verdict says how sure it is, and there is none where the figures lie
//! within each other's uncertainty: two standard errors over the epochs of one run each,
//! which say nothing of how much runs of the same command differ. Energies are compared where
//! both come from the same kind of meter, or from one platform.

use super::energy::{Energy, Kind, per_sample};
use crate::run::RunRecord;
use crate::units::{digits, is_exact, significant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The limit of every verdict on two runs.
const NOTE: &str =
    "two more runs of the same commands may compare differently; repeat both runs to be sure";

/// Maximum number of reasons that are listed individually.
const SHOWN: usize = 12;

/// Which of two runs has less of something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The compared quantity: `training time per sample`.
    pub what: String,
    /// The unit of the figures.
    pub unit: String,
    /// The figures of both.
    pub of: [f64; 2],
    /// The interval of each.
    pub intervals: [[f64; 2]; 2],
    /// The run with less, by index; none where that cannot be said.
    pub less: Option<usize>,
    /// In words.
    pub text: String,
}

/// A part of the time of a training sample in both runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The cause: a codelet, or another state of the workers.
    pub what: String,
    /// Wall time in nanoseconds per training sample, in both runs: the time of all
    /// workers by their number. Those of all reasons sum up to the time of a sample.
    pub nanos: [f64; 2],
    /// Calls a training sample in both runs, of a codelet.
    pub calls: Option<[f64; 2]>,
}

impl Reason {
    /// The difference of the second to the first.
    pub fn difference(&self) -> f64 {
        self.nanos[1] - self.nanos[0]
    }
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
    /// The limit of the verdicts, if there is one.
    #[serde(default)]
    pub note: Option<String>,
    /// Where the difference in time comes from, the largest first; they sum up to it.
    pub reasons: Vec<Reason>,
}

/// A figure with what it lies in.
#[derive(Clone, Copy)]
struct Sure {
    value: f64,
    interval: [f64; 2],
}

impl Sure {
    /// A time or an energy, which is not negative.
    fn around(value: f64, error: f64) -> Self {
        Self { value, interval: [(value - error).max(0.0), value + error] }
    }
}

/// Nanoseconds of training a sample, with two standard errors over epochs.
fn speed(run: &RunRecord) -> Option<Sure> {
    let epochs = run.epochs.iter().map(|e| (e.seconds, e.seconds * e.samples_per_second));
    let epochs: Vec<(f64, f64)> = epochs.filter(|(_, samples)| *samples > 0.0).collect();
    if epochs.is_empty() {
        return None;
    }
    let (value, error) = per_sample(&epochs);
    Some(Sure::around(1e9 * value, 1e9 * error))
}

/// The compared quantity, its unit, and the verb phrase for the run with less.
type Words<'a> = [&'a str; 3];

/// Two figures with the same number of significant digits: the digits that are known of both.
fn figures(of: [Sure; 2]) -> [String; 2] {
    let exact = of.map(|sure| is_exact(sure.value, sure.interval));
    let known = [0, 1].map(|i| match exact[i] {
        true => 4,
        false => digits(of[i].value, of[i].interval),
    });
    let shown = |figure: f64| padded(figure, known[0].min(known[1]));
    [0, 1].map(|i| match exact[i] {
        true => shown(of[i].value),
        false => {
            let [value, low, high] = [of[i].value, of[i].interval[0], of[i].interval[1]].map(shown);
            format!("{value} ({low} to {high})")
        }
    })
}

/// A number with this many significant digits, zeros included.
fn padded(x: f64, digits: usize) -> String {
    let text = significant(x, digits);
    let found = text.trim_start_matches(['0', '.', '-']).replace('.', "").len();
    match digits.saturating_sub(found) {
        zeros if zeros > 0 && found > 0 => {
            let point = if text.contains('.') { "" } else { "." };
            format!("{text}{point}{}", "0".repeat(zeros))
        }
        _ => text,
    }
}

/// Compares two figures; `apart` gives the reason if they cannot be distinguished.
fn verdict(
    [what, unit, word]: Words<'_>,
    names: [&str; 2],
    of: [Sure; 2],
    apart: Option<String>,
) -> Verdict {
    let values = of.map(|sure| sure.value);
    let [a, b] = values;
    let equal = (a - b).abs() <= 0.01 * a.max(b);
    let [x, y] = figures(of);
    let [first, second] = names;
    let less = (apart.is_none() && !equal).then_some(usize::from(b < a));
    let text = match (less, apart) {
        (None, Some(why)) => {
            format!("{what}: {first} {x}, {second} {y} {unit}; no verdict, because {why}")
        }
        (None, None) => {
            format!("{what}: {first} and {second} differ by at most 1 %: {x} and {y} {unit}")
        }
        (Some(less), _) => {
            let (low, high) = (values[less], values[1 - less]);
            let more = match low > 0.0 {
                true => format!("{:.1} % more", 100.0 * (high / low - 1.0)),
                false => "more".to_owned(),
            };
            let (own, other) = (names[less], names[1 - less]);
            let (x, y) = if less == 0 { (x, y) } else { (y, x) };
            format!("{own} {word} {other}: {x} against {y} {unit}; {other} needs {more}")
        }
    };
    let intervals = of.map(|sure| sure.interval);
    Verdict { what: what.to_owned(), unit: unit.to_owned(), of: values, intervals, less, text }
}

/// Whether two intervals have something in common.
fn overlap([a, b]: [[f64; 2]; 2]) -> bool {
    a[0] <= b[1] && b[0] <= a[1]
}

fn faster(a: &RunRecord, b: &RunRecord, names: [&str; 2]) -> Option<Verdict> {
    let micros = |sure: Sure| Sure {
        value: sure.value / 1e3,
        interval: sure.interval.map(|nanos| nanos / 1e3),
    };
    let of = [micros(speed(a)?), micros(speed(b)?)];
    let single = [a, b].iter().any(|run| run.epochs.len() < 2);
    let apart = (!single && overlap(of.map(|sure| sure.interval)))
        .then(|| "the epochs of each run differ by more than the runs".to_owned());
    let mut found = verdict(["training time", "µs per sample", "is faster than"], names, of, apart);
    if single && found.less.is_some() {
        found.text += SINGLE;
    }
    Some(found)
}

/// The remark on a verdict without a spread.
const SINGLE: &str = "; the spread over epochs is unknown, because a run has only one epoch";

/// Compares what samples took, in millijoules: measured where both were, else modelled.
fn cheaper(a: &RunRecord, b: &RunRecord, names: [&str; 2]) -> Option<Verdict> {
    let runs = [a, b];
    let known = |energy: &Energy| energy.samples > 0;
    let pair = |of: fn(&RunRecord) -> Vec<Energy>| {
        let [x, y] = runs.map(|run| of(run).into_iter().find(known));
        Some([x?, y?])
    };
    let of = pair(Energy::measured).or_else(|| pair(Energy::modelled))?;
    let errors = [0, 1].map(|i| of[i].error.map(|joules| 1e3 * joules));
    let sure = |i: usize| {
        let mj = |joules: f64| 1e3 * joules / of[i].samples as f64;
        let (value, watts) = (mj(of[i].total.joules), of[i].total.interval.map(mj));
        match of[i].kind {
            Kind::Measured => Sure::around(value, errors[i].unwrap_or(0.0)),
            Kind::Modelled => Sure { value, interval: watts },
        }
    };
    let sures = [sure(0), sure(1)];
    // Up to how often: which meter sees what, or which platform.
    let sources =
        [0, 1].map(|i| of[i].total.source.split(", every").next().unwrap_or_default().to_owned());
    let partial = of.iter().zip(names).find_map(|(energy, name)| {
        let why = energy.total.partial.as_ref()?;
        Some(format!("the energy of {name} is incomplete: {why}"))
    });
    let (kind, same) = (of[0].kind, sources[0] == sources[1]);
    let apart = match kind {
        _ if partial.is_some() => partial,
        _ if !same => Some(format!("the sources differ: {} and {}", sources[0], sources[1])),
        Kind::Modelled if either_sign(&of) => Some(
            "either run may need less, depending on power values within the platform's intervals"
                .to_owned(),
        ),
        // Whatever the watts are, the time that they are taken for differs too.
        _ => spread([0, 1].map(|i| (sures[i].value, errors[i]))),
    };
    let unit = match kind {
        Kind::Measured => "mJ per sample, measured",
        Kind::Modelled => "mJ per sample, modelled",
    };
    let mut found = verdict(["energy", unit, "needs less energy than"], names, sures, apart);
    if found.less.is_some() && errors.contains(&None) {
        found.text += SINGLE;
    }
    if same {
        found.text += &format!("; {}", sources[0]);
    }
    Some(found)
}

/// Why two energies per sample cannot be distinguished by their errors over epochs, where both
/// are known.
fn spread(of: [(f64, Option<f64>); 2]) -> Option<String> {
    let [(a, Some(x)), (b, Some(y))] = of else { return None };
    overlap([Sure::around(a, x), Sure::around(b, y)].map(|sure| sure.interval)).then(|| {
        let [x, y] = [x, y].map(|error| significant(error, 3));
        format!("the epochs of each run differ by more than the runs (±{x} and ±{y})")
    })
}

/// Whether either of two modelled energies per sample may be the smaller one. Both are of
/// the same watts: each cause is compared at its least and at its most.
fn either_sign(of: &[Energy; 2]) -> bool {
    let mut causes: BTreeMap<&str, [[f64; 2]; 2]> = BTreeMap::new();
    for (i, energy) in of.iter().enumerate() {
        for cause in &energy.causes {
            let mj = |joules: f64| 1e3 * joules / energy.samples.max(1) as f64;
            // Workers are units of one kind.
            let name = if cause.name.starts_with("busy") { "busy" } else { &cause.name };
            let sum = &mut causes.entry(name).or_default()[i];
            *sum = [sum[0] + mj(cause.energy.low), sum[1] + mj(cause.energy.high)];
        }
    }
    let ends = causes.values().map(|[a, b]| [b[0] - a[0], b[1] - a[1]]);
    let sum = |[low, high]: [f64; 2], [x, y]: [f64; 2]| [low + x.min(y), high + x.max(y)];
    let [low, high] = ends.fold([0.0; 2], sum);
    low <= 0.0 && high >= 0.0
}

/// The parts of a sample's time, by name: calls and nanoseconds of the wall's clock.
fn parts(run: &RunRecord) -> Option<BTreeMap<String, (Option<f64>, f64)>> {
    let of = &run.counted.as_ref()?.training;
    let (workers, samples) = (of.activity.workers.len() as f64, of.samples as f64);
    if of.samples == 0 || of.activity.workers.is_empty() {
        return None;
    }
    let by = |nanos: u64| nanos as f64 / workers / samples;
    let mut parts = BTreeMap::new();
    // Counters of all epochs share their time; those of a last session have its own.
    let learned = run.epochs.iter().map(|e| (e.seconds * e.samples_per_second).round() as u64);
    let whole = learned.sum::<u64>() == of.samples;
    let counted = of.activity.elapsed as f64 / samples;
    let mut left = speed(run).filter(|_| whole).map_or(counted, |sure| sure.value);
    let mut part = |name: &str, calls: Option<u64>, nanos: f64| {
        left -= nanos;
        parts.insert(name.to_owned(), (calls.map(|calls| calls as f64 / samples), nanos));
    };
    for (codelet, &(calls, nanos)) in &of.codelets {
        part(codelet, Some(calls), by(nanos));
    }
    let sum = |of_worker: fn(&crate::trace::WorkerTime) -> u64| {
        by(of.activity.workers.iter().map(of_worker).sum())
    };
    part("workers wait for each other", None, sum(|w| w.parked));
    part("workers spin while they wait", None, sum(|w| w.spinning));
    parts.insert("no step to run, and engine overhead".to_owned(), (None, left));
    Some(parts)
}

/// Whether two records are of one run.
fn is_same(a: &RunRecord, b: &RunRecord) -> bool {
    // Sessions say when they began and who ran them.
    a.name == b.name && a.sessions == b.sessions && a.epochs == b.epochs && a.energy == b.energy
}

/// Compares two runs.
pub fn compare(a: &RunRecord, b: &RunRecord) -> Comparison {
    let names = [a, b].map(|run| run.name.as_str());
    if is_same(a, b) {
        let note = Some(format!("{} is the same run twice: nothing is compared", a.name));
        let (names, reasons) = (names.map(str::to_owned), Vec::new());
        return Comparison { names, faster: None, cheaper: None, note, reasons };
    }
    let (faster, cheaper) = (faster(a, b, names), cheaper(a, b, names));
    let mut rows: BTreeMap<String, Reason> = BTreeMap::new();
    if let (Some(first), Some(second)) = (parts(a), parts(b)) {
        for (i, parts) in [first, second].into_iter().enumerate() {
            for (what, (calls, nanos)) in parts {
                let row = rows.entry(what.clone()).or_insert(Reason {
                    what,
                    nanos: [0.0; 2],
                    calls: None,
                });
                row.nanos[i] = nanos;
                if let Some(calls) = calls {
                    row.calls.get_or_insert([0.0; 2])[i] = calls;
                }
            }
        }
    }
    let mut reasons: Vec<Reason> = rows.into_values().collect();
    // What is counted is the last session; the verdict is of all epochs.
    if let (Some(verdict), false) = (&faster, reasons.is_empty()) {
        let sum = |i: usize| reasons.iter().map(|row| row.nanos[i]).sum::<f64>();
        let nanos = [0, 1].map(|i| 1e3 * verdict.of[i] - sum(i));
        if nanos.iter().any(|left| left.abs() > 0.1) {
            let what = "not counted: earlier invocations differ from the last".to_owned();
            reasons.push(Reason { what, nanos, calls: None });
        }
    }
    let by_size = |x: &Reason, y: &Reason| {
        y.difference().abs().total_cmp(&x.difference().abs()).then(x.what.cmp(&y.what))
    };
    reasons.sort_by(by_size);
    if reasons.len() > SHOWN {
        let rest = reasons.split_off(SHOWN - 1);
        let sum = |i: usize| rest.iter().map(|row| row.nanos[i]).sum::<f64>();
        let what = format!("{} smaller differences", rest.len());
        reasons.push(Reason { what, nanos: [sum(0), sum(1)], calls: None });
    }
    let said = [&faster, &cheaper].into_iter().flatten().any(|verdict| verdict.less.is_some());
    let note = said.then(|| NOTE.to_owned());
    Comparison { names: names.map(str::to_owned), faster, cheaper, note, reasons }
}

impl Comparison {
    /// As text: the verdicts, and the causes of the difference in time.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for verdict in [&self.faster, &self.cheaper].into_iter().flatten() {
            text += &format!("{}\n", verdict.text);
        }
        if let Some(note) = &self.note {
            text += &format!("note: {note}\n");
        }
        if self.reasons.is_empty() {
            return text;
        }
        text += &format!(
            "wall-clock time in ns per sample: {}, {}, difference, cause\n",
            self.names[0], self.names[1]
        );
        let line = |[a, b]: [f64; 2], what: &str| {
            format!("  {a:>12.1} {b:>12.1} {:>+12.1}  {what}\n", b - a)
        };
        for row in &self.reasons {
            text += &line(row.nanos, &row.what);
        }
        let sum = |i: usize| self.reasons.iter().map(|row| row.nanos[i]).sum::<f64>();
        text + &line([sum(0), sum(1)], "total")
    }
}

#[cfg(test)]
mod tests;
