//! Where joules are read: counters of processors and graphics cards, batteries, meters
//! of one's own, and the model of a platform.
//!
//! Every [`Total`] says its source, what it covers, how often it was read and what it
//! missed. Measured and modelled figures are different types and are never added.
//!
//! | source | is read from | misses |
//! |---|---|---|
//! | [`Rapl`] | `energy_uj` of powercap, Intel and AMD | what is outside of the package and its memory |
//! | `Nvml` | NVIDIA's library, loaded at run time | the host |
//! | [`Battery`] | `energy_now`, or `charge_now` and the voltage | everything while it charges |
//! | [`Command`] | the lines of a command | what the command does not see |
//! | [`model()`](model()) | watts of a platform and what workers did | that watts depend on what is computed, heat, other programs |

mod battery;
mod command;
mod model;
#[cfg(feature = "nvml")]
mod nvml;
mod rapl;
mod sampler;

pub use battery::Battery;
pub use command::Command;
pub use model::{Modelled, Part, model, model_of, unit};
#[cfg(feature = "nvml")]
pub use nvml::Nvml;
pub use rapl::Rapl;
pub use sampler::{Power, Sample, Sampler};

use crate::units::Joules;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{Duration, Instant};

/// The source of a measured figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The processor's counters.
    Rapl,
    /// NVIDIA's management library.
    Nvml,
    /// A battery.
    Battery,
    /// A command that the user set.
    Command,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Rapl => "RAPL",
            Source::Nvml => "NVML",
            Source::Battery => "battery",
            Source::Command => "meter-cmd",
        })
    }
}

/// The hardware whose energy a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Covers {
    /// The whole machine.
    Machine,
    /// A processor's package.
    Package,
    /// Memory beside a package.
    Memory,
    /// A graphics card.
    Gpu,
    /// A part of a package, which its figure contains.
    Part,
}

/// In seconds: a counter that says the same for longer does not count.
const STILL: f64 = 0.2;

/// The readings of a meter since it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Its name: `package-0`.
    pub name: String,
    /// The source.
    pub source: Source,
    /// The hardware whose energy it is.
    pub covers: Covers,
    /// Joules so far.
    pub joules: f64,
    /// Seconds that are in it.
    pub seconds: f64,
    /// Seconds that are not.
    pub missed: f64,
    /// Why they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Total {
    fn new(name: String, source: Source, covers: Covers) -> Self {
        Self { name, source, covers, joules: 0.0, seconds: 0.0, missed: 0.0, why: None }
    }

    /// Whether something is missing in it.
    pub fn is_partial(&self) -> bool {
        self.missed > 0.0
    }

    /// Whether a counter of the processor did not move, though two hundred of its ticks of a
    /// millisecond went by: no processor takes nothing, so its joules are not known. Of a part
    /// of a package it may be true.
    pub fn stands_still(&self) -> bool {
        let counter = self.source == Source::Rapl && self.covers != Covers::Part;
        counter && self.joules == 0.0 && self.seconds >= STILL
    }

    /// The part of the time that is not in it.
    pub fn unseen(&self) -> f64 {
        let all = self.seconds + self.missed;
        if all > 0.0 && !self.stands_still() { self.missed / all } else { 1.0 }
    }

    fn add(&mut self, joules: f64, time: Duration) {
        self.joules += joules;
        self.seconds += time.as_secs_f64();
    }

    fn miss(&mut self, time: Duration, why: impl fmt::Display) {
        self.missed += time.as_secs_f64();
        self.why = Some(why.to_string());
    }

    /// The difference to an earlier reading.
    pub fn since(&self, earlier: Option<&Self>) -> Self {
        let Some(earlier) = earlier else { return self.clone() };
        let missed = (self.missed - earlier.missed).max(0.0);
        Self {
            joules: self.joules - earlier.joules,
            seconds: self.seconds - earlier.seconds,
            missed,
            why: self.why.clone().filter(|_| missed > 0.0),
            ..self.clone()
        }
    }
}

/// Something that joules are read from.
pub trait Meter: Send {
    /// Reads it, and says what it has read since it began. The first reading begins.
    fn read(&mut self, now: Instant) -> Vec<Total>;
}

/// Meters that together see one thing: the machine at the wall, or its parts. Figures of
/// different scopes see the same joules, and are never added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// A meter of the user's own, which sees the whole machine.
    Command,
    /// Batteries.
    Battery,
    /// The board, as the processor counts it (`psys`).
    Board,
    /// Packages, memories and graphics cards, which are apart from each other.
    Parts,
}

impl Scope {
    /// All of them: what sees more comes first.
    pub const ALL: [Self; 4] = [Scope::Command, Scope::Battery, Scope::Board, Scope::Parts];

    /// Whether a figure is one of this scope.
    pub fn has(self, total: &Total) -> bool {
        let machine = total.covers == Covers::Machine;
        match self {
            Scope::Command => machine && total.source == Source::Command,
            Scope::Battery => machine && total.source == Source::Battery,
            Scope::Board => machine && total.source == Source::Rapl,
            Scope::Parts => !machine && total.covers != Covers::Part,
        }
    }
}

/// The readings of the meters of one scope.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<'a> {
    /// The hardware that they cover.
    pub scope: Scope,
    /// Each of them, those that read nothing too.
    pub of: Vec<&'a Total>,
}

impl<'a> Reading<'a> {
    /// The readings of the meters of a scope; `None` if there are none.
    pub fn of(scope: Scope, totals: &'a [Total]) -> Option<Self> {
        let of: Vec<&Total> = totals.iter().filter(|total| scope.has(total)).collect();
        of.iter().any(|total| total.seconds > 0.0).then_some(Self { scope, of })
    }

    /// All that was read.
    pub fn joules(&self) -> Joules {
        Joules(self.of.iter().map(|total| total.joules).sum())
    }

    /// The part of the time that was missed, of the meter that missed most.
    pub fn missed(&self) -> f64 {
        self.of.iter().map(|total| total.unseen()).fold(0.0, f64::max)
    }
}

/// A meter that missed a larger part of the time does not speak for the others.
const RELIED_ON: f64 = 0.1;

/// The measured energy that says most: that of the widest scope whose meters missed little,
/// else of the one that missed least.
pub fn widest(totals: &[Total]) -> Option<Reading<'_>> {
    let known: Vec<Reading<'_>> =
        Scope::ALL.iter().filter_map(|&scope| Reading::of(scope, totals)).collect();
    let relied = known.iter().position(|reading| reading.missed() <= RELIED_ON);
    let least = || {
        let missed = |i: &usize| known[*i].missed();
        // The first of equal ones.
        (0..known.len()).min_by(|a, b| missed(a).total_cmp(&missed(b)))
    };
    let chosen = relied.or_else(least)?;
    known.into_iter().nth(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(name: &str, source: Source, covers: Covers, joules: f64) -> Total {
        Total { joules, seconds: 1.0, ..Total::new(name.to_owned(), source, covers) }
    }

    #[test]
    fn parts_are_not_counted_twice() {
        let mut all = vec![
            total("package-0", Source::Rapl, Covers::Package, 10.0),
            total("package-0/core", Source::Rapl, Covers::Part, 7.0),
            total("package-0/dram", Source::Rapl, Covers::Memory, 2.0),
            total("gpu 0", Source::Nvml, Covers::Gpu, 30.0),
        ];
        let joules = |all: &[Total]| widest(all).unwrap().joules();
        assert_eq!(joules(&all), Joules(42.0));
        all.push(total("psys", Source::Rapl, Covers::Machine, 60.0));
        assert_eq!(joules(&all), Joules(60.0));
        all.push(total("wall", Source::Command, Covers::Machine, 80.0));
        assert_eq!(joules(&all), Joules(80.0));
        assert!(widest(&[]).is_none());
    }

    #[test]
    fn a_meter_that_read_nothing_hides_none_that_works() {
        let works = total("package-0", Source::Rapl, Covers::Package, 10.0);
        let mut dead = Total::new("battery".to_owned(), Source::Battery, Covers::Machine);
        assert!(widest(std::slice::from_ref(&dead)).is_none(), "nothing is not 0 J");
        dead.miss(Duration::from_secs(1), "no battery is discharging");
        let all = [works.clone(), dead.clone()];
        assert_eq!(widest(&all).unwrap().scope, Scope::Parts);
        // Nor does one that read a little.
        dead.add(0.5, Duration::from_millis(100));
        let all = [works.clone(), dead.clone()];
        assert_eq!(widest(&all).unwrap().scope, Scope::Parts);
        // Where all missed something, the one that missed least speaks.
        let mut gone = works;
        gone.miss(Duration::from_secs(100), "gone");
        assert_eq!(widest(&[gone, dead]).unwrap().scope, Scope::Battery);
    }

    #[test]
    fn a_counter_that_stands_still_hides_none_that_moves() {
        let still = total("psys", Source::Rapl, Covers::Machine, 0.0);
        let works = total("package-0", Source::Rapl, Covers::Package, 10.0);
        assert!(still.stands_still() && !works.stands_still());
        assert_eq!(widest(&[still.clone(), works]).unwrap().scope, Scope::Parts);
        assert_eq!(widest(std::slice::from_ref(&still)).unwrap().missed(), 1.0);
        // It may not have ticked yet, and a core may have slept.
        assert!(!Total { seconds: 0.05, ..still.clone() }.stands_still());
        assert!(!Total { covers: Covers::Part, ..still }.stands_still());
    }

    #[test]
    fn a_difference_keeps_what_it_missed() {
        let early = Total { missed: 1.0, ..total("x", Source::Rapl, Covers::Package, 5.0) };
        let mut late = Total { joules: 9.0, seconds: 3.0, ..early.clone() };
        late.why = Some("gone".to_owned());
        let whole = late.since(Some(&early));
        assert_eq!((whole.joules, whole.seconds, whole.is_partial()), (4.0, 2.0, false));
        assert_eq!(whole.why, None);
        late.miss(Duration::from_secs(1), "gone");
        assert!(late.since(Some(&early)).is_partial());
    }
}
