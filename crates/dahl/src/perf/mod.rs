//! How long a call takes on a kind of unit, and how sure that is.
//!
//! A [`PerfModel`] keeps a [`History`] of times for each [`Key`]: op, variant, kind
//! of unit and shape. A shape that was not measured is estimated from those of the
//! same codelet that were (`regression.rs`); a codelet that was not measured from other
//! kernels of its op, else from other ops on this kind of unit; a kind of unit that was
//! never calibrated from its [`Profile`], where there is one. What nothing is known of
//! is `None`.
//!
//! # What it leaves out
//! Where the data of a call are: times are those of whole steps, so of data as warm
//! as the calls before left them, and another plan may leave them elsewhere. Where in
//! its value a piece lies. What neighbours take but memory's bandwidth
//! (`traffic.rs`). Heat, and other programs.
//!
//! docs/calibration.md has its error.

mod copies;
mod history;
mod regression;
mod text;
mod traffic;
mod work;

pub use copies::Copies;
pub use history::{History, Stats};
pub use text::{About, VERSION};
pub use traffic::Bandwidth;
pub use work::{Features, Key, Work, cpu_kind};

use crate::units::Bytes;
use regression::Point;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use work::Form;

/// What is known of times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerfModel {
    /// Where and by what it was measured.
    pub about: About,
    /// What the engine takes besides kernels.
    pub overheads: Option<Overheads>,
    /// What memory gives; `None` where there is nobody to share it with.
    pub bandwidth: Option<Bandwidth>,
    /// What copies between memories of this machine take, if that was measured.
    pub copies: Option<Copies>,
    /// Kinds of units that were not calibrated.
    pub profiles: BTreeMap<String, Profile>,
    /// Kinds of units whose times are another machine's, and which machine's.
    pub borrowed: BTreeMap<String, String>,
    codelets: BTreeMap<Codelet, BTreeMap<String, Entry>>,
}

/// An op in one variant on one kind of unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Codelet {
    /// The op.
    pub codelet: String,
    /// Its variant.
    pub variant: String,
    /// The kind of unit.
    pub kind: String,
}

impl From<&Key> for Codelet {
    fn from(key: &Key) -> Self {
        let Key { codelet, variant, kind, .. } = key.clone();
        Self { codelet, variant, kind }
    }
}

/// What was measured of one shape.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    form: Form,
    features: Features,
    /// Beside nobody, and beside a stream.
    alone: History,
    beside: History,
}

/// Who else uses the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contention {
    /// Nobody.
    None,
    /// Another processor that reads from it all the time.
    Stream,
}

/// What a call took step by step.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// The times.
    pub nanos: &'a [u64],
    /// How many of them are kept at most; see [`History::add`].
    pub most: usize,
    /// Who else used the memory.
    pub contention: Contention,
}

/// What the engine takes besides kernels, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overheads {
    /// A task, besides its calls.
    #[serde(deserialize_with = "text::not_negative")]
    pub overhead_ns: f64,
    /// A step, besides its tasks.
    #[serde(deserialize_with = "text::not_negative")]
    pub step_ns: f64,
    /// Until a worker sees that another has ended a task; `None` where there is one
    /// processor.
    #[serde(deserialize_with = "text::maybe_not_negative")]
    pub hop_ns: Option<f64>,
    /// How long a worker looks for work before it sleeps.
    #[serde(deserialize_with = "text::not_negative")]
    pub spin_ns: f64,
}

/// A kind of unit of which only the most that it can do is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Operations a second that it reaches in practice, in f32.
    #[serde(deserialize_with = "text::above_zero")]
    pub flops: f64,
    /// Bytes per second between it and its memory.
    #[serde(deserialize_with = "text::above_zero")]
    pub bandwidth: f64,
}

/// Where an estimate comes from, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// This shape was measured.
    Measured,
    /// Other shapes of the codelet were measured.
    Regression,
    /// Other variants of the op were measured, or other element types.
    OtherKernels,
    /// Other ops were measured on this kind of unit.
    OtherOps,
    /// Nothing of the kind was measured: a roofline.
    Profile,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Measured, Self::Regression, Self::OtherKernels, Self::OtherOps, Self::Profile];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Source::Measured => "measured",
            Source::Regression => "regression",
            Source::OtherKernels => "other kernels",
            Source::OtherOps => "other ops",
            Source::Profile => "profile",
        }
    }
}

/// What a call is expected to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean time in nanoseconds, with the memory to itself.
    pub nanos: f64,
    /// How much the time varies from call to call: the standard deviation over the
    /// mean.
    pub spread: f64,
    /// How wrong the mean may be: the standard deviation over the mean.
    pub error: f64,
    /// Where it comes from.
    pub source: Source,
    /// Bytes that it moves through memory; `None` where it was not measured beside
    /// a neighbour.
    pub traffic: Option<Bytes>,
}

/// The error of a roofline, of a single shape as a measure for all others, and the least error of
/// other ops as a measure of one.
const VAGUE: f64 = 0.5;

/// The least error of other variants and element types of an op as a measure of one.
const LOOSE: f64 = 0.25;

/// The least deviation of a time that was measured once or twice.
const FEW: f64 = 0.1;

/// What all shapes of a codelet say together.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Which codelet.
    pub codelet: Codelet,
    /// How many shapes were measured.
    pub shapes: usize,
    /// All times; the spread is the median of the shapes'.
    pub stats: Stats,
    /// How many times were left out since they were disturbed.
    pub rejected: u64,
    /// The median of what a shape's time is wrong by when it is predicted from the
    /// others.
    pub error: Option<f64>,
}

impl PerfModel {
    /// A model that knows nothing yet.
    pub fn new(about: About) -> Self {
        Self { about, ..Self::default() }
    }

    /// Adds what a call took step by step.
    pub fn add(&mut self, key: &Key, features: Features, series: Series<'_>) {
        let shapes = self.codelets.entry(key.into()).or_default();
        let entry = shapes.entry(key.shape.clone()).or_insert_with(|| Entry {
            form: Form::of(&key.shape),
            features,
            alone: History::default(),
            beside: History::default(),
        });
        let history = match series.contention {
            Contention::None => &mut entry.alone,
            Contention::Stream => &mut entry.beside,
        };
        history.add(series.nanos, series.most);
    }

    /// Takes the times and profiles of kinds of units that this model knows nothing
    /// of from that of another machine.
    pub fn borrow(&mut self, other: &Self) {
        let known = self.kinds();
        let new = |kind: &String| !known.contains(kind);
        for (codelet, shapes) in &other.codelets {
            if new(&codelet.kind) {
                self.codelets.insert(codelet.clone(), shapes.clone());
                let from = other.borrowed.get(&codelet.kind).unwrap_or(&other.about.cpu);
                self.borrowed.insert(codelet.kind.clone(), from.clone());
            }
        }
        for (kind, profile) in other.profiles.iter().filter(|(kind, _)| new(kind)) {
            self.profiles.entry(kind.clone()).or_insert(*profile);
        }
    }

    /// The kinds of units that were calibrated, sorted.
    pub fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> = self.codelets.keys().map(|c| c.kind.clone()).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// The history of a shape, alone.
    pub fn history(&self, key: &Key) -> Option<&History> {
        Some(&self.codelets.get(&key.into())?.get(&key.shape)?.alone)
    }

    /// What a call takes; `None` where nothing is known.
    pub fn estimate(&self, key: &Key, features: Features) -> Option<Estimate> {
        let shapes = self.codelets.get(&key.into());
        let measured = shapes.and_then(|s| s.get(&key.shape)).and_then(|e| self.measured(e));
        let guessed = || shapes.and_then(|shapes| self.guessed(shapes, key, features));
        let related = || self.related(key, features);
        let profiled = || Some(self.profiles.get(&key.kind)?.estimate(features));
        measured.or_else(guessed).or_else(related).or_else(profiled)
    }

    /// An estimate from other kernels of the op, or else from other ops on the kind of unit.
    fn related(&self, key: &Key, features: Features) -> Option<Estimate> {
        let of_kind = || self.codelets.iter().filter(|(codelet, _)| codelet.kind == key.kind);
        let of_op = || of_kind().filter(|(codelet, _)| codelet.codelet == key.codelet);
        let form = Form::of(&key.shape);
        let others = of_op().map(|(_, shapes)| shapes);
        if let Some(found) = self.across(others, (&form, features), LOOSE) {
            return Some(Estimate { source: Source::OtherKernels, ..found });
        }
        let others = of_kind().map(|(_, shapes)| shapes);
        let found = self.across(others, (&form, features), VAGUE)?;
        Some(Estimate { source: Source::OtherOps, ..found })
    }

    /// A guess from the shapes of several codelets, whatever their element types: wider elements
    /// count as more operations, since fewer fit into a vector.
    fn across<'a>(
        &self,
        codelets: impl Iterator<Item = &'a BTreeMap<String, Entry>>,
        (form, features): (&Form, Features),
        least: f64,
    ) -> Option<Estimate> {
        let weighted = |form: &Form, features: Features| Features {
            flops: features.flops.saturating_mul(form.widest()),
            ..features
        };
        let (mut forms, mut measured, mut spreads) = (Vec::new(), Vec::new(), Vec::new());
        for entry in codelets.flat_map(BTreeMap::values) {
            let Some(stats) = entry.alone.stats() else { continue };
            spreads.push(stats.deviation);
            forms.push(entry.form.of_any_elements());
            let features = weighted(&entry.form, entry.features);
            measured.push((features, stats.mean.max(1.0), self.demand(entry)));
        }
        let points: Vec<Point<'_>> = forms
            .iter()
            .zip(measured)
            .map(|(form, (features, nanos, demand))| Point { form, features, nanos, demand })
            .collect();
        let guess = regression::guess(&points, &form.of_any_elements(), weighted(form, features))?;
        spreads.sort_by(f64::total_cmp);
        let traffic = guess.demand.map(|demand| Bytes((demand * guess.nanos / 1e9) as u64));
        Some(Estimate {
            nanos: guess.nanos,
            spread: history::median(&spreads).unwrap_or(0.0),
            error: guess.error.unwrap_or(VAGUE).max(least),
            source: Source::OtherOps,
            traffic,
        })
    }

    fn measured(&self, entry: &Entry) -> Option<Estimate> {
        let Stats { count, mean, deviation: spread, .. } = entry.alone.stats()?;
        let traffic = self.demand(entry).map(|demand| Bytes((demand * mean / 1e9) as u64));
        // One or two times say little of how much they vary.
        let spread = if count < 3 { spread.max(FEW) } else { spread };
        let error = spread / (count as f64).sqrt();
        Some(Estimate { nanos: mean, spread, error, source: Source::Measured, traffic })
    }

    fn guessed(
        &self,
        shapes: &BTreeMap<String, Entry>,
        key: &Key,
        features: Features,
    ) -> Option<Estimate> {
        let points = self.points(shapes);
        let guess = regression::guess(&points, &Form::of(&key.shape), features)?;
        let traffic = guess.demand.map(|demand| Bytes((demand * guess.nanos / 1e9) as u64));
        Some(Estimate {
            nanos: guess.nanos,
            spread: usual(shapes, |stats| stats.deviation),
            error: guess.error.unwrap_or(VAGUE),
            source: Source::Regression,
            traffic,
        })
    }

    fn points<'a>(&self, shapes: &'a BTreeMap<String, Entry>) -> Vec<Point<'a>> {
        let measured = shapes.values().filter_map(|entry| {
            let nanos = entry.alone.stats()?.mean.max(1.0);
            let Entry { form, features, .. } = entry;
            Some(Point { form, features: *features, nanos, demand: self.demand(entry) })
        });
        measured.collect()
    }

    /// The bytes a second that a shape asks of memory.
    fn demand(&self, entry: &Entry) -> Option<f64> {
        let (alone, beside) = (entry.alone.stats()?, entry.beside.stats()?);
        let touched = entry.features.bytes as f64 / (alone.mean / 1e9);
        Some(self.bandwidth?.demand(beside.mean / alone.mean, touched))
    }

    /// Every codelet, in order.
    pub fn summaries(&self) -> Vec<Summary> {
        let all = self.codelets.iter().filter_map(|(codelet, shapes)| {
            let times: Vec<u64> =
                shapes.values().flat_map(|e| e.alone.samples().iter().copied()).collect();
            let points = self.points(shapes);
            let errors = (0..points.len()).filter_map(|i| regression::left_out(&points, i));
            let mut errors: Vec<f64> = errors.map(|e| e.abs().exp_m1()).collect();
            errors.sort_by(f64::total_cmp);
            Some(Summary {
                codelet: codelet.clone(),
                shapes: points.len(),
                stats: Stats { spread: usual(shapes, |stats| stats.spread), ..Stats::of(&times)? },
                rejected: shapes.values().map(|e| e.alone.rejected()).sum(),
                error: history::median(&errors),
            })
        });
        all.collect()
    }
}

/// The median of what the shapes' statistics say.
fn usual(shapes: &BTreeMap<String, Entry>, what: impl Fn(Stats) -> f64) -> f64 {
    let spreads = shapes.values().filter_map(|entry| Some(what(entry.alone.stats()?)));
    let mut spreads: Vec<f64> = spreads.collect();
    spreads.sort_by(f64::total_cmp);
    history::median(&spreads).unwrap_or(0.0)
}

impl Profile {
    /// The roofline: the operations at the most that the unit reaches, or the bytes
    /// at the rate of its memory, whichever is longer.
    pub fn estimate(&self, features: Features) -> Estimate {
        let seconds =
            (features.flops as f64 / self.flops).max(features.bytes as f64 / self.bandwidth);
        Estimate {
            nanos: 1e9 * seconds,
            spread: 0.0,
            error: VAGUE,
            source: Source::Profile,
            traffic: Some(Bytes(features.bytes)),
        }
    }
}

#[cfg(test)]
mod tests;
