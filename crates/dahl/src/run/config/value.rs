//! The texts of settings: how each type of value is read and printed.

use super::choices::{GrainChoice, PlanChoice, StagesChoice};
use crate::data::{self, HoldOut, Normalization};
use crate::error::{Error, Expected};
use crate::graph::Shards;
use crate::model::ScheduleSpec;
use crate::names::{Named, named};
use crate::native::Throttle;
use crate::plan::{MemoryLimits, Space};
use crate::planner::pipeline::Objective;
use crate::units::{Bytes, Joules};
use dahl_kernels::{DType, Isa};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A value of a setting.
pub trait Value: Sized {
    /// The values that there are with what each means, where they are few.
    const CHOICES: &'static [(&'static str, &'static str)] = &[];

    /// Reads a text.
    fn parse(text: &str) -> Result<Self, Expected>;

    /// The text that is read back as this value.
    fn print(&self) -> String;

    /// The same value for every working directory.
    fn absolute(self) -> Result<Self, Expected> {
        Ok(self)
    }

    /// The same value as it is called from the working directory.
    fn nearby(self) -> Self {
        self
    }
}

/// The field of a setting: a value, an optional value, a list, or a switch.
pub(super) trait Field {
    type Item: Value;
    const ARITY: Arity;
    fn put(&mut self, items: Vec<Self::Item>);
    fn items(&self) -> Vec<String>;
    fn map_items(
        self,
        change: impl Fn(Self::Item) -> Result<Self::Item, Expected>,
    ) -> Result<Self, Expected>
    where
        Self: Sized;
}

/// The number of values that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// It is on or off.
    Switch,
    /// One value.
    One,
    /// Any number of values.
    Many,
}

impl<T: Value> Field for T {
    type Item = T;
    const ARITY: Arity = Arity::One;

    fn put(&mut self, items: Vec<T>) {
        items.into_iter().for_each(|item| *self = item);
    }

    fn items(&self) -> Vec<String> {
        vec![self.print()]
    }

    fn map_items(self, change: impl Fn(T) -> Result<T, Expected>) -> Result<Self, Expected> {
        change(self)
    }
}

impl<T: Value> Field for Option<T> {
    type Item = T;
    const ARITY: Arity = Arity::One;

    fn put(&mut self, items: Vec<T>) {
        *self = items.into_iter().last();
    }

    fn items(&self) -> Vec<String> {
        self.iter().map(T::print).collect()
    }

    fn map_items(self, change: impl Fn(T) -> Result<T, Expected>) -> Result<Self, Expected> {
        self.map(change).transpose()
    }
}

impl<T: Value> Field for Vec<T> {
    type Item = T;
    const ARITY: Arity = Arity::Many;

    fn put(&mut self, items: Vec<T>) {
        *self = items;
    }

    fn items(&self) -> Vec<String> {
        self.iter().map(T::print).collect()
    }

    fn map_items(self, change: impl Fn(T) -> Result<T, Expected>) -> Result<Self, Expected> {
        self.into_iter().map(change).collect()
    }
}

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switch(pub bool);

impl Value for OnOff {
    fn parse(text: &str) -> Result<Self, Expected> {
        match text {
            "true" => Ok(OnOff),
            _ => Err("true or false".into()),
        }
    }

    fn print(&self) -> String {
        "true".to_owned()
    }
}

/// The value of a switch that is on.
pub(super) struct OnOff;

impl Field for Switch {
    type Item = OnOff;
    const ARITY: Arity = Arity::Switch;

    fn put(&mut self, items: Vec<OnOff>) {
        self.0 = !items.is_empty();
    }

    fn items(&self) -> Vec<String> {
        self.0.then(|| OnOff.print()).into_iter().collect()
    }

    fn map_items(self, _: impl Fn(OnOff) -> Result<OnOff, Expected>) -> Result<Self, Expected> {
        Ok(self)
    }
}

impl<T: Named> Value for T {
    const CHOICES: &'static [(&'static str, &'static str)] = T::CHOICES;

    fn parse(text: &str) -> Result<Self, Expected> {
        text.parse()
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

/// The pipelines that a run may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineKind {
    /// All micro-batches forward, then all backward; then the update.
    Gpipe,
    /// One forward, one backward; then the update.
    OneForwardOneBackward,
    /// One step behind the other, with the weights that each began with.
    Pipedream,
    /// Micro-batches, with the weights of the update before the last.
    TwoBw,
}

impl Value for Objective {
    const CHOICES: &'static [(&'static str, &'static str)] = &[
        ("energy", "Energy per batch"),
        ("time", "Time per batch (period)"),
        ("edp", "Energy-delay product: energy per batch times time per batch"),
    ];

    fn parse(text: &str) -> Result<Self, Expected> {
        let found = Self::ALL.into_iter().find(|objective| objective.name() == text);
        found.ok_or_else(|| Self::ALL.map(Self::name).join(", ").into())
    }

    fn print(&self) -> String {
        self.name().to_owned()
    }
}

named! {
    PipelineKind {
        Gpipe = "gpipe": "GPipe: all forward passes of micro-batches, then all backward passes, \
            then the update",
        OneForwardOneBackward = "1f1b": "1F1B: forward and backward passes of micro-batches \
            alternately, then the update; needs less memory than gpipe",
        Pipedream = "pipedream": "PipeDream: as many steps in flight as stages, with weight \
            stashing (needs `allow-stale`)",
        TwoBw = "2bw": "PipeDream-2BW: micro-batches with double-buffered weights (needs \
            `allow-stale`)",
    }
}

impl PipelineKind {
    /// Whether steps compute with weights that miss some updates.
    pub fn is_stale(self) -> bool {
        matches!(self, PipelineKind::Pipedream | PipelineKind::TwoBw)
    }
}

/// Values with a parser of their own, whose texts read back.
macro_rules! parsed {
    ($($type:ty: $parse:expr;)+) => {$(
        impl Value for $type {
            fn parse(text: &str) -> Result<Self, Expected> {
                ($parse)(text)
            }

            fn print(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

parsed! {
    usize: at_least_one;
    u64: |text: &str| text.parse().map_err(|_| "a whole number".into());
    f64: |text: &str| text.parse().map_err(|_| "a number".into());
    String: |text: &str| Ok(text.to_owned());
    DType: |text: &str| text.parse().map_err(|_| "f32 or f64".into());
    Isa: |text: &str| text.parse().map_err(|_| {
        format!("one of {}", Isa::ALL.map(Isa::name).join(", ")).into()
    });
    ScheduleSpec: ScheduleSpec::parse;
    Normalization: Normalization::parse;
    HoldOut: HoldOut::parse;
    GrainChoice: GrainChoice::parse;
    StagesChoice: StagesChoice::parse;
    PlanChoice: |text: &str| Ok(match text {
        "auto" => PlanChoice::Auto,
        path => PlanChoice::File(path.into()),
    });
}

/// A whole number from 1 on.
pub fn at_least_one(text: &str) -> Result<usize, Expected> {
    match text.parse() {
        Ok(0) => Err("at least 1".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("a whole number".into()),
    }
}

/// Threads per processor beyond which a run makes no progress.
const THREADS_PER_PROCESSOR: usize = 16;

/// The number of worker threads where none is set: one per processor.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A number of threads that this machine can run.
pub fn threads(text: &str) -> Result<usize, Expected> {
    let threads = at_least_one(text)?;
    let most = THREADS_PER_PROCESSOR * processors();
    if threads <= most {
        return Ok(threads);
    }
    Err(format!("at most {most}, {THREADS_PER_PROCESSOR} per processor").into())
}

/// An instruction set that this machine has.
pub(super) fn available_isa(text: &str) -> Result<Isa, Expected> {
    let isa = Isa::parse(text)?;
    available(isa).map_err(|found| format!("one of this machine, found {found}"))?;
    Ok(isa)
}

/// Refuses an instruction set that this machine does not have, with `a machine that has` those
/// that it has.
pub fn available(isa: Isa) -> Result<(), String> {
    if isa.is_available() {
        return Ok(());
    }
    let have = Isa::ALL.into_iter().filter(|isa| isa.is_available()).map(Isa::name);
    Err(format!("a machine that has {}", have.collect::<Vec<_>>().join(", ")))
}

pub(super) fn not_negative(text: &str) -> Result<f64, Expected> {
    number(text, "a number from 0 on", |x| x >= 0.0)
}

pub(super) fn positive(text: &str) -> Result<f64, Expected> {
    number(text, "a number above 0", |x| x > 0.0)
}

pub(super) fn below_one(text: &str) -> Result<f64, Expected> {
    number(text, "0 to below 1", |x| (0.0..1.0).contains(&x))
}

fn number(text: &str, expected: &'static str, fits: impl Fn(f64) -> bool) -> Result<f64, Expected> {
    let number = text.parse().ok().filter(|x: &f64| x.is_finite() && fits(*x));
    number.ok_or_else(|| expected.into())
}

/// Two numbers of one setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Betas(pub [f64; 2]);

impl Value for Betas {
    fn parse(text: &str) -> Result<Self, Expected> {
        let wrong = || Expected::from("two numbers from 0 to below 1, such as 0.9,0.999");
        let (first, second) = text.split_once(',').ok_or_else(wrong)?;
        let part = |text: &str| below_one(text.trim()).map_err(|_| wrong());
        Ok(Betas([part(first)?, part(second)?]))
    }

    fn print(&self) -> String {
        let Betas([first, second]) = self;
        format!("{first},{second}")
    }
}

/// Relative speeds of the workers of stages.
#[derive(Clone, Debug, PartialEq)]
pub struct Speeds(pub Vec<f64>);

impl Value for Speeds {
    fn parse(text: &str) -> Result<Self, Expected> {
        let speed = |text: &str| positive(text.trim());
        let speeds = text.split(',').map(speed).collect::<Result<_, _>>();
        speeds.map(Speeds).map_err(|_| "numbers above 0, such as 1,0.5".into())
    }

    fn print(&self) -> String {
        let texts: Vec<String> = self.0.iter().map(f64::to_string).collect();
        texts.join(",")
    }
}

/// A number with one of these units and what each stands for; the first unit may be left out.
fn quantity(text: &str, units: &[(&str, f64)], expected: &'static str) -> Result<f64, Expected> {
    let digits = text.trim().find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.trim().split_at(digits.unwrap_or(text.trim().len()));
    let scale = match unit.trim() {
        "" => Some(units[0].1),
        unit => units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale),
    };
    let number: Option<f64> = number.parse().ok();
    number.zip(scale).map(|(number, scale)| number * scale).ok_or_else(|| expected.into())
}

/// Shards of the batch: how many equal ones, or the samples of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardsChoice(pub Vec<usize>);

impl ShardsChoice {
    /// The shards of a batch.
    ///
    /// # Errors
    /// Where there are more than samples, or they are not the samples of the batch together.
    pub fn of(&self, batch: usize) -> crate::error::Result<Shards> {
        if let &[count] = &self.0[..] {
            return Shards::even(batch, count);
        }
        let shards = Shards::new(self.0.clone())?;
        if shards.samples() != Some(batch) {
            let expected = format!("the {batch} samples of the batch in shares, or their number");
            return Err(Error::config("shards", expected, self.print()));
        }
        Ok(shards)
    }
}

impl Value for ShardsChoice {
    fn parse(text: &str) -> Result<Self, Expected> {
        let share = |text: &str| at_least_one(text.trim()).ok();
        let shares: Option<Vec<usize>> = text.split(',').map(share).collect();
        let expected = "a number of shards, or the samples of each, such as 21,11";
        shares.map(Self).ok_or_else(|| expected.into())
    }

    fn print(&self) -> String {
        let texts: Vec<String> = self.0.iter().map(usize::to_string).collect();
        texts.join(",")
    }
}

impl Value for Bytes {
    fn parse(text: &str) -> Result<Self, Expected> {
        let [k, m, g, t] = [10, 20, 30, 40].map(|bits| (1u64 << bits) as f64);
        let binary = [("KiB", k), ("MiB", m), ("GiB", g), ("TiB", t)];
        let short = [("K", k), ("M", m), ("G", g), ("T", t)];
        let units = [&[("B", 1.0)][..], &binary, &short].concat();
        let expected = "bytes, KiB, MiB, GiB or TiB, as in 2GiB";
        quantity(text, &units, expected).map(|bytes| Bytes(bytes as u64))
    }

    fn print(&self) -> String {
        self.0.to_string()
    }
}

impl Value for MemoryLimits {
    /// `2GiB`, `host1=2GiB,gpu0=1GiB`, or both.
    fn parse(text: &str) -> Result<Self, Expected> {
        let expected = "bytes, such as 2GiB, or those of spaces, such as host1=2GiB,gpu0=1GiB";
        let wrong = || Expected::from(expected);
        let mut limits = Self::default();
        for part in text.split(',').map(str::trim) {
            let before = match part.split_once('=') {
                None => limits.total.replace(Bytes::parse(part).map_err(|_| wrong())?),
                Some((space, bytes)) => {
                    let space = space.trim().parse::<Space>().map_err(|_| wrong())?;
                    limits.spaces.insert(space, Bytes::parse(bytes).map_err(|_| wrong())?)
                }
            };
            if before.is_some() {
                return Err("each space once".into());
            }
        }
        Ok(limits)
    }

    fn print(&self) -> String {
        let total = self.total.iter().map(Bytes::print);
        let spaces = self.spaces.iter().map(|(space, bytes)| format!("{space}={}", bytes.print()));
        total.chain(spaces).collect::<Vec<_>>().join(",")
    }
}

impl Value for Duration {
    /// `90s`, `10m`, `2h`, `1d`, `500ms`; a number alone is seconds.
    fn parse(text: &str) -> Result<Self, Expected> {
        let expected = "a time such as 90s, 10m, 2h or 1d";
        let units = [("s", 1.0), ("ms", 1e-3), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
        let seconds = quantity(text, &units, expected)?;
        Duration::try_from_secs_f64(seconds).map_err(|_| expected.into())
    }

    fn print(&self) -> String {
        format!("{}s", self.as_secs_f64())
    }
}

/// An interval that meters can be read in.
pub(super) fn interval(text: &str) -> Result<Duration, Expected> {
    let time = Duration::parse(text)?;
    let known = Duration::from_millis(1)..=Duration::from_secs(60);
    if known.contains(&time) { Ok(time) } else { Err("1ms to 60s".into()) }
}

impl Value for Joules {
    /// `500J`, `2kJ`, `3Wh`, `0.1kWh`; a number alone is joules.
    fn parse(text: &str) -> Result<Self, Expected> {
        let expected = "an energy such as 500J, 2kJ, 3Wh or 0.1kWh";
        let hours = [("Wh", 3.6e3), ("kWh", 3.6e6)];
        let units = [&[("J", 1.0), ("mJ", 1e-3), ("kJ", 1e3), ("MJ", 1e6)][..], &hours].concat();
        let joules = quantity(text, &units, expected)?;
        Some(joules).filter(|j| *j > 0.0).map(Joules).ok_or_else(|| expected.into())
    }

    fn print(&self) -> String {
        format!("{}J", self.0)
    }
}

/// The speed of a worker that is slowed down.
pub fn throttle_speed(text: &str) -> Result<f64, Expected> {
    let speed = text.parse().ok().filter(|speed| (Throttle::SLOWEST..=1.0).contains(speed));
    speed.ok_or_else(|| format!("a number from {} to 1, such as 0.5", Throttle::SLOWEST).into())
}

impl Value for Throttle {
    fn parse(text: &str) -> Result<Self, Expected> {
        let (of, from_step) = match text.split_once('@') {
            Some((of, step)) => (of, step.parse().ok()),
            None => (text, Some(0)),
        };
        let (worker, text) = of.split_once('=').unwrap_or((of, ""));
        match (worker.parse().ok(), throttle_speed(text).ok(), from_step) {
            (Some(worker), Some(speed), Some(from_step)) => {
                Ok(Throttle { worker, speed, from_step })
            }
            _ => Err(format!(
                "a worker and its speed from {} to 1, such as 1=0.5 or 1=0.5@100",
                Throttle::SLOWEST
            )
            .into()),
        }
    }

    fn print(&self) -> String {
        format!("{}={}@{}", self.worker, self.speed, self.from_step)
    }
}

impl Value for PathBuf {
    fn parse(text: &str) -> Result<Self, Expected> {
        if text.is_empty() { Err("a path".into()) } else { Ok(text.into()) }
    }

    fn print(&self) -> String {
        self.display().to_string()
    }

    fn absolute(self) -> Result<Self, Expected> {
        let refused = || "a path in UTF-8, which the run's configuration can hold";
        let path = std::path::absolute(&self).unwrap_or(self);
        if path.to_str().is_some() { Ok(path) } else { Err(refused().into()) }
    }

    fn nearby(self) -> Self {
        let here = std::env::current_dir().unwrap_or_default();
        let below = self.strip_prefix(&here).ok().filter(|_| here.is_absolute());
        match below.filter(|below| *below != Path::new("")) {
            Some(below) => below.to_owned(),
            None => self,
        }
    }
}

/// Texts that name something, or are the path of a file or directory.
macro_rules! names_or_paths {
    ($($(#[$doc:meta])* $type:ident: $is_path:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $type(pub String);

        impl $type {
            /// Whether it is a path, not a name.
            pub fn is_path(&self) -> bool {
                ($is_path)(&self.0)
            }
        }

        impl Value for $type {
            fn parse(text: &str) -> Result<Self, Expected> {
                Ok(Self(text.to_owned()))
            }

            fn print(&self) -> String {
                self.0.clone()
            }

            fn absolute(self) -> Result<Self, Expected> {
                if !self.is_path() {
                    return Ok(self);
                }
                Ok(Self(PathBuf::from(self.0).absolute()?.print()))
            }

            fn nearby(self) -> Self {
                if !self.is_path() {
                    return self;
                }
                let below = Self(PathBuf::from(&self.0).nearby().print());
                if below.is_path() { below } else { self }
            }
        }
    )+};
}

names_or_paths! {
    /// A model by its name, or a TOML file.
    ModelRef: |text: &str| Path::new(text).extension().is_some_and(|e| e == "toml");
    /// A dataset by its name, or a directory or file.
    DataRef: |text: &str| !data::is_name(text);
}
