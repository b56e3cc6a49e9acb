//! The energy of a run: joules per sample, per epoch, to an accuracy; and their meaning for the
//! climate.
//!
//! A figure has one source: meters of one scope, or the watts of one platform. Where a run
//! was measured by several, or by others in a later session, each has a figure of its own,
//! which says what it has not seen; they are never added.

use super::stats::percents;
use crate::meter::{Modelled, Part, Reading, Scope, Total};
use crate::run::{EnergyLine, EpochMetrics, RunRecord};
use crate::units::{Joules, digits, is_exact, significant};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// An amount of energy with where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Joules.
    pub joules: f64,
    /// The interval of a modelled figure; that of a measured one is the reading.
    pub interval: [f64; 2],
    /// `measured by …` or `modelled from …`, and how often or which kind of watts.
    pub source: String,
    /// Why it is not all, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
}

impl Figure {
    /// The joules with no more digits than are known.
    fn about(&self) -> String {
        Joules(self.joules).about(self.interval)
    }

    /// Number of significant digits, if it has an interval.
    fn digits(&self) -> Option<usize> {
        (!is_exact(self.joules, self.interval)).then(|| digits(self.joules, self.interval))
    }
}

/// Energy of one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Its parts by cause.
    pub name: String,
    /// Joules, and what they lie in.
    pub energy: Part,
}

/// The origin of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Meters read it.
    #[default]
    Measured,
    /// It follows from the watts of a platform.
    Modelled,
}

/// The energy of a run by one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Its origin.
    pub kind: Kind,
    /// All that the source has seen.
    pub total: Figure,
    /// The time that it was spent in, in seconds.
    pub seconds: f64,
    /// Training samples that were learned from meanwhile.
    pub samples: u64,
    /// Joules a training sample.
    pub per_sample: f64,
    /// Joules of each epoch, all that was spent on it.
    pub epochs: Vec<(u64, f64)>,
    /// Two standard errors over epochs of the joules a training sample; none of fewer than
    /// two whole ones.
    #[serde(default)]
    pub error: Option<f64>,
    /// Joules by cause.
    pub causes: Vec<Cause>,
    /// The readings of each meter.
    pub domains: Vec<Total>,
    /// Energy times delay, in joule-seconds.
    pub edp: f64,
    /// Test accuracies and the joules after which they were reached first.
    pub to_accuracy: Vec<(f64, f64)>,
}

/// Accuracies that people ask for.
const ACCURACIES: [f64; 8] = [0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99];

/// Maximum number of epochs that are listed individually.
const EPOCHS: usize = 10;

/// A source that has not seen a larger part of the time comes after others.
const RELIED_ON: f64 = 0.1;

impl Energy {
    /// Measured energy, one figure per source; the first covers most.
    pub fn measured(run: &RunRecord) -> Vec<Self> {
        let mut keys: Vec<(Scope, Vec<&str>)> = Vec::new();
        for scope in Scope::ALL {
            for line in &run.energy {
                if let Some(reading) = Reading::of(scope, &line.measured) {
                    let key = (scope, names(&reading));
                    if !keys.contains(&key) {
                        keys.push(key);
                    }
                }
            }
        }
        let mut found: Vec<(f64, Self)> = keys.iter().map(|key| of_meters(run, key)).collect();
        // Those that are relied on stay in the order of what they see.
        let rank = |unseen: f64| if unseen <= RELIED_ON { 0.0 } else { unseen };
        found.sort_by(|a, b| rank(a.0).total_cmp(&rank(b.0)));
        found.into_iter().map(|(_, energy)| energy).collect()
    }

    /// Modelled energy, one figure per platform, longest use first.
    pub fn modelled(run: &RunRecord) -> Vec<Self> {
        let mut keys: Vec<(&str, &str)> = Vec::new();
        for of in run.energy.iter().filter_map(|line| line.modelled.as_ref()) {
            let key = (of.platform.as_str(), of.watts.as_str());
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let mut found: Vec<Self> = keys.iter().map(|&key| of_platform(run, key)).collect();
        found.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        found
    }

    /// The figure that says most: what was measured, where something was, else what was
    /// modelled.
    pub fn best(run: &RunRecord) -> Option<Self> {
        let first = |all: Vec<Self>| all.into_iter().next();
        first(Self::measured(run)).or_else(|| first(Self::modelled(run)))
    }

    /// The total of each meter, with its last error.
    fn meters(run: &RunRecord) -> BTreeMap<&str, Total> {
        let mut meters: BTreeMap<&str, Total> = BTreeMap::new();
        for total in run.energy.iter().flat_map(|line| &line.measured) {
            match meters.get_mut(total.name.as_str()) {
                Some(sum) => add(sum, total),
                None => drop(meters.insert(&total.name, total.clone())),
            }
        }
        meters
    }

    /// The meters that never read anything, each with why.
    pub fn silent(run: &RunRecord) -> Vec<String> {
        let dead = Self::meters(run).into_iter().filter(|(_, total)| total.seconds == 0.0);
        dead.map(|(name, total)| {
            let why = total.why.as_deref().unwrap_or("the run was too short");
            format!("{} ({name}) gave no readings: {why}", total.source)
        })
        .collect()
    }

    /// The meters that read something and missed something, each with why.
    pub fn missed(run: &RunRecord) -> Vec<String> {
        let read = Self::meters(run).into_iter().filter(|(_, total)| total.seconds > 0.0);
        let shown = |(name, total): (&str, Total)| {
            Some(format!("{} ({name}): {}", total.source, gap(&total)?))
        };
        read.filter_map(shown).collect()
    }

    /// Sums the lines that a source has a figure of.
    fn sum(run: &RunRecord, figure: &dyn Fn(&EnergyLine) -> Option<Part>) -> Self {
        let mut energy = Self::default();
        let mut total = Part::default();
        // Joules, samples, and whether it has ended.
        let mut epochs: BTreeMap<u64, (f64, u64, bool)> = BTreeMap::new();
        for line in &run.energy {
            let Some(part) = figure(line) else { continue };
            total = total + part;
            energy.seconds += line.seconds;
            energy.samples += line.samples;
            let Some(epoch) = line.epoch else { continue };
            let sum = epochs.entry(epoch).or_default();
            *sum = (sum.0 + part.value, sum.1 + line.samples, !line.unfinished);
            if line.unfinished {
                continue;
            }
            let record = run.epochs.iter().find(|record| record.epoch == epoch);
            let accuracy = record.and_then(EpochMetrics::test_accuracy).unwrap_or(0.0);
            for wanted in ACCURACIES {
                if accuracy >= wanted && energy.to_accuracy.iter().all(|(a, _)| *a != wanted) {
                    energy.to_accuracy.push((wanted, total.value));
                }
            }
        }
        energy.total.joules = total.value;
        energy.total.interval = [total.low, total.high];
        energy.per_sample = total.value / energy.samples.max(1) as f64;
        energy.edp = total.value * energy.seconds;
        let whole = epochs.values().filter(|epoch| epoch.2 && epoch.1 > 0);
        let whole: Vec<(f64, f64)> = whole.map(|epoch| (epoch.0, epoch.1 as f64)).collect();
        energy.error = Some(per_sample(&whole).1).filter(|_| whole.len() > 1);
        energy.epochs = epochs.into_iter().map(|(epoch, sum)| (epoch, sum.0)).collect();
        energy
    }

    /// Notes what the figure does not have.
    fn lacks(&mut self, run: &RunRecord, own: Vec<String>) {
        let mut why = own;
        let all: f64 = run.energy.iter().map(|line| line.seconds).sum();
        if all > self.seconds {
            why.push(format!(
                "{:.1} s of {all:.1} s have no reading of this source",
                all - self.seconds
            ));
        }
        let ended = |n: u64| run.energy.iter().any(|line| line.session == n && line.last);
        // Runs of earlier versions do not tell sessions apart.
        let apart = run.energy.iter().any(|line| line.session > 0);
        let killed = (1..=run.sessions.len() as u64).filter(|&n| apart && !ended(n));
        for session in killed {
            why.push(format!("session {session} has no record of its end"));
        }
        self.total.partial = (!why.is_empty()).then(|| why.join("; "));
    }

    /// Grams of CO2 at a grid's intensity in grams a kilowatt-hour.
    pub fn co2(&self, grams_per_kwh: f64) -> f64 {
        self.total.joules / 3.6e6 * grams_per_kwh
    }

    /// The figure in a line, with where it comes from.
    pub fn headline(&self) -> String {
        let partial = self.total.partial.as_ref().map(|why| format!(", partial: {why}"));
        let partial = partial.unwrap_or_default();
        format!("{}, {}{partial}", self.total.about(), self.total.source)
    }

    /// As text, a line a figure; `grid` in grams of CO2 a kilowatt-hour.
    pub fn to_text(&self, grid: Option<f64>) -> String {
        // Parts of a total are known no better than it is.
        let digits = self.total.digits();
        let joules = |j: f64| match digits {
            Some(digits) => Joules(j).rounded(digits),
            None if j < 0.0 => format!("-{}", Joules(-j)),
            None => Joules(j).to_string(),
        };
        let number = |x: f64, decimals: usize| match digits {
            Some(digits) => significant(x, digits),
            None => format!("{x:.decimals$}"),
        };
        let mut text = format!("energy {}: {}\n", self.total.about(), self.total.source);
        if let Some(why) = &self.total.partial {
            let _ = writeln!(text, "  partial: {why}");
        }
        let parts: Vec<f64> = self.causes.iter().map(|cause| cause.energy.value).collect();
        let shares = percents(&parts);
        for (cause, share) in self.causes.iter().zip(shares) {
            // Less than nothing is no part of a whole.
            let share = match parts.iter().all(|part| *part >= 0.0) {
                true => format!("{share:5.1} %"),
                false => "       ".to_owned(),
            };
            let _ = writeln!(text, "  {:>10}  {share}  {}", joules(cause.energy.value), cause.name);
        }
        for domain in self.domains.iter().filter(|_| self.domains.len() > 1) {
            let within = match domain.covers {
                crate::meter::Covers::Part => ", a part of its package",
                _ => "",
            };
            let _ =
                writeln!(text, "  {:>10}  read by {}{within}", joules(domain.joules), domain.name);
        }
        if self.samples > 0 {
            let _ = write!(text, "  per sample {}, ", joules(self.per_sample));
        } else {
            text.push_str("  ");
        }
        let _ = writeln!(text, "EDP {} J s", number(self.edp, 3));
        if !self.epochs.is_empty() {
            let shown = self.epochs.iter().take(EPOCHS);
            let shown: Vec<String> =
                shown.map(|(epoch, j)| format!("{epoch}: {}", joules(*j))).collect();
            let rest = match self.epochs.len().saturating_sub(EPOCHS) {
                0 => String::new(),
                rest => format!(", … and {rest} more"),
            };
            let _ = writeln!(text, "  by epoch {}{rest}", shown.join(", "));
        }
        for (accuracy, spent) in &self.to_accuracy {
            let _ = writeln!(text, "  to {:.0} % of the test {}", 100.0 * accuracy, joules(*spent));
        }
        if let Some(grid) = grid {
            let grams = number(self.co2(grid), 4);
            let _ = writeln!(text, "  {grams} g of CO2 at {grid} g/kWh");
        }
        text
    }
}

/// What a sample took in the mean, and two standard errors over epochs: each with what it
/// took and its samples. Of one epoch it is not known how much epochs differ.
pub(super) fn per_sample(epochs: &[(f64, f64)]) -> (f64, f64) {
    let [all, samples] = [|e: &(f64, f64)| e.0, |e: &(f64, f64)| e.1]
        .map(|part| epochs.iter().map(part).sum::<f64>());
    let (mean, n) = (all / samples, epochs.len() as f64);
    let squares: f64 = epochs.iter().map(|(x, k)| (x / k - mean).powi(2)).sum();
    (mean, if n > 1.0 { 2.0 * (squares / (n - 1.0) / n).sqrt() } else { 0.0 })
}

/// Adds what a meter read in a later line.
fn add(sum: &mut Total, more: &Total) {
    sum.joules += more.joules;
    sum.seconds += more.seconds;
    sum.missed += more.missed;
    sum.why = more.why.clone().or(sum.why.take());
}

/// The time that a meter missed, and why.
fn gap(total: &Total) -> Option<String> {
    let Total { seconds, missed, why, .. } = total;
    let why = why.as_deref().unwrap_or("not read");
    let missed = total
        .is_partial()
        .then(|| format!("{missed:.1} s of {:.1} s missed, {why}", seconds + missed));
    let still = total.stands_still().then(|| format!("the counter did not move in {seconds:.1} s"));
    let shown: Vec<String> = missed.into_iter().chain(still).collect();
    (!shown.is_empty()).then(|| shown.join(", and "))
}

fn names<'a>(reading: &Reading<'a>) -> Vec<&'a str> {
    reading.of.iter().map(|total| total.name.as_str()).collect()
}

/// A figure of meters, and the part of the run that they have not seen.
fn of_meters(run: &RunRecord, (scope, domains): &(Scope, Vec<&str>)) -> (f64, Energy) {
    // A line without their readings counts too: they missed its whole time.
    let reading = |line: &EnergyLine| -> Option<Vec<Total>> {
        let of: Vec<Total> = line.measured.iter().filter(|t| scope.has(t)).cloned().collect();
        of.iter().map(|total| total.name.as_str()).eq(domains.iter().copied()).then_some(of)
    };
    let exactly = |joules: f64| Part { value: joules, low: joules, high: joules };
    let joules =
        |line: &EnergyLine| Some(exactly(reading(line)?.iter().map(|total| total.joules).sum()));
    let mut energy = Energy::sum(run, &joules);
    // Each meter over all lines, those that are parts of others too.
    let mut sums: Vec<Total> = Vec::new();
    for line in run.energy.iter().filter(|line| reading(line).is_some()) {
        let own = |t: &&Total| {
            scope.has(t) || (*scope == Scope::Parts && t.covers == crate::meter::Covers::Part)
        };
        for total in line.measured.iter().filter(own) {
            match sums.iter_mut().find(|sum| sum.name == total.name) {
                Some(sum) => add(sum, total),
                None => sums.push(total.clone()),
            }
        }
    }
    let mut sources: Vec<String> =
        sums.iter().filter(|t| scope.has(t)).map(|total| total.source.to_string()).collect();
    sources.dedup();
    let interval =
        run.energy.iter().find(|line| reading(line).is_some()).map_or(0.0, |l| l.interval);
    energy.total.source =
        format!("measured by {} ({}), every {interval} s", sources.join(", "), domains.join(", "));
    let own = sums.iter().filter(|total| scope.has(total));
    let partial = own.filter_map(|total| Some(format!("{}: {}", total.name, gap(total)?)));
    let partial = partial.collect();
    energy.lacks(run, partial);
    energy.causes = at_rest(run, &reading, energy.total.joules).unwrap_or_default();
    let seen = |total: &Total| if total.stands_still() { 0.0 } else { total.seconds };
    let seen = sums.iter().filter(|t| scope.has(t)).map(seen).fold(f64::MAX, f64::min);
    let all: f64 = run.energy.iter().map(|line| line.seconds).sum();
    energy.domains = sums;
    (if all > 0.0 { (1.0 - seen / all).max(0.0) } else { 0.0 }, energy)
}

/// Parts what was measured by the watts of the machine at rest, where all of its lines know
/// them.
fn at_rest(
    run: &RunRecord,
    reading: &dyn Fn(&EnergyLine) -> Option<Vec<Total>>,
    joules: f64,
) -> Option<Vec<Cause>> {
    let mut idle = 0.0;
    let (mut read, mut missed) = (0.0f64, 0.0f64);
    for line in &run.energy {
        for total in reading(line).into_iter().flatten() {
            let rest = line.idle.iter().find(|rest| rest.name == total.name)?;
            if rest.seconds <= 0.0 {
                return None;
            }
            idle += rest.joules / rest.seconds * total.seconds;
            (read, missed) = (read.max(rest.seconds), missed.max(rest.missed));
        }
    }
    let of = match missed > 0.0 {
        true => format!("over {read:.1} s before the run, {missed:.1} s were missed"),
        false => format!("over {read:.1} s before the run"),
    };
    let busy = match joules < idle {
        true => "busy: less than idle, so one of the two measurements is wrong",
        false => "busy",
    };
    let cause = |name: String, joules: f64| {
        let energy = Part { value: joules, low: joules, high: joules };
        Cause { name, energy }
    };
    Some(vec![
        cause(format!("base and idle (measured {of})"), idle),
        cause(busy.to_owned(), joules - idle),
    ])
}

/// A figure of a platform.
fn of_platform(run: &RunRecord, (platform, watts): (&str, &str)) -> Energy {
    let own = |line: &EnergyLine| -> Option<Modelled> {
        line.modelled.clone().filter(|of| of.platform == platform && of.watts == watts)
    };
    let mut energy = Energy::sum(run, &|line| own(line).map(|of| of.total()));
    energy.kind = Kind::Modelled;
    energy.total.source = match watts {
        "guess" => format!("modelled from {platform:?}, with estimated power values"),
        watts => format!("modelled from {platform:?} (power values: {watts})"),
    };
    let all: Vec<Modelled> = run.energy.iter().filter_map(own).collect();
    let sum = |of: fn(&Modelled) -> Part| all.iter().map(of).sum::<Part>();
    let mut cause = |name: String, energy_of: Part| {
        energy.causes.push(Cause { name, energy: energy_of });
    };
    cause("base".to_owned(), sum(|m| m.base));
    cause("idle".to_owned(), sum(|m| m.idle));
    cause("spinning".to_owned(), sum(|m| m.spinning));
    let workers = all.iter().map(|m| m.busy.len()).max().unwrap_or(0);
    for w in 0..workers {
        let busy = all.iter().filter_map(|m| m.busy.get(w)).copied().sum();
        cause(format!("busy, worker {w}"), busy);
    }
    energy.lacks(run, Vec::new());
    energy
}

#[cfg(test)]
mod tests;
