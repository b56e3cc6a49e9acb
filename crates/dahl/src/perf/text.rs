//! A model as a file: JSON, a line per shape.

use super::work::{Features, Form};
use super::{Bandwidth, Copies, Entry, History, Key, Overheads, PerfModel, Profile};
use crate::error::{Error, Result};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The version of the file format.
pub const VERSION: u32 = 1;

/// Where, when and by what times were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The processor's name.
    pub cpu: String,
    /// How many processors there are.
    pub processors: usize,
    /// The widest instruction set.
    pub isa: String,
    /// The version of dahl.
    pub dahl: String,
    /// When, for people.
    pub date: String,
}

/// The longest time that is believed: a day.
const LONGEST: u64 = 86_400_000_000_000;

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    codelet: String,
    variant: String,
    kind: String,
    shape: String,
    flops: u64,
    bytes: u64,
    #[serde(deserialize_with = "calls")]
    rejected: u64,
    #[serde(deserialize_with = "times")]
    nanos: Vec<u64>,
    #[serde(deserialize_with = "times")]
    nanos_beside: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[expect(dead_code, reason = "looked at before the rest")]
    dahl_calibration: u32,
    about: About,
    overheads: Option<Overheads>,
    bandwidth: Option<Bandwidth>,
    #[serde(default)]
    copies: Option<Copies>,
    profiles: BTreeMap<String, Profile>,
    borrowed: BTreeMap<String, String>,
    shapes: Vec<Line>,
}

impl About {
    /// Why times of another machine or version say little here; `None` where they
    /// are as good as new.
    pub fn differs(&self, now: &Self) -> Option<String> {
        let changed = |what: &str, then: &dyn std::fmt::Display, now: &dyn std::fmt::Display| {
            Some(format!("it was measured {what} {then}, this is {now}"))
        };
        if self.cpu != now.cpu {
            changed("on", &self.cpu, &now.cpu)
        } else if self.processors != now.processors {
            let processors = |about: &Self| format!("{} processors", about.processors);
            changed("on", &processors(self), &processors(now))
        } else if self.isa != now.isa {
            changed("with", &self.isa, &now.isa)
        } else if self.dahl != now.dahl {
            changed("by dahl", &self.dahl, &now.dahl)
        } else {
            None
        }
    }
}

impl PerfModel {
    /// Why the model should not be used here; `None` where it may be.
    pub fn is_stale(&self, now: &About) -> Option<String> {
        self.about.differs(now)
    }

    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self> {
        let text = crate::os::disk::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Writes a file, all of it or nothing.
    pub fn save(&self, path: &Path) -> Result<()> {
        crate::file::replace(path, |out| out.write_all(self.to_text().as_bytes()))
    }

    /// The model as text.
    pub fn to_text(&self) -> String {
        fn json(value: &impl Serialize) -> String {
            serde_json::to_string(value).expect("plain data")
        }
        let copies = self.copies.map(|copies| ("copies", json(&copies)));
        let head = [
            ("dahl_calibration", json(&VERSION)),
            ("about", json(&self.about)),
            ("overheads", json(&self.overheads)),
            ("bandwidth", json(&self.bandwidth)),
            ("profiles", json(&self.profiles)),
            ("borrowed", json(&self.borrowed)),
        ];
        let head: Vec<String> =
            head.iter().chain(&copies).map(|(k, v)| format!("\"{k}\":{v},\n")).collect();
        let lines = self.codelets.iter().flat_map(|(codelet, shapes)| {
            shapes.iter().map(|(shape, entry)| Line {
                codelet: codelet.codelet.clone(),
                variant: codelet.variant.clone(),
                kind: codelet.kind.clone(),
                shape: shape.clone(),
                flops: entry.features.flops,
                bytes: entry.features.bytes,
                rejected: entry.alone.rejected(),
                nanos: entry.alone.samples().to_vec(),
                nanos_beside: entry.beside.samples().to_vec(),
            })
        });
        let lines: Vec<String> = lines.map(|line| json(&line)).collect();
        format!("{{\n{}\"shapes\":[\n{}\n]}}\n", head.concat(), lines.join(",\n"))
    }

    /// Reads the text of a model; `path` is for the errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            dahl_calibration: u32,
        }
        let wrong = |expected: &str, e: serde_json::Error| {
            let message = e.to_string();
            let found = message.split(" at line ").next().unwrap_or_default();
            Error::data(path, format!("line {}", e.line()), expected, found)
        };
        let version: Version =
            serde_json::from_str(text).map_err(|e| wrong("a calibration's JSON", e))?;
        if version.dahl_calibration != VERSION {
            let expected = format!("{VERSION}");
            return Err(Error::data(path, "dahl_calibration", expected, version.dahl_calibration));
        }
        let file: File = serde_json::from_str(text).map_err(|e| wrong("a calibration", e))?;
        let mut model = Self {
            about: file.about,
            overheads: file.overheads,
            bandwidth: file.bandwidth,
            copies: file.copies,
            profiles: file.profiles,
            borrowed: file.borrowed,
            ..Self::default()
        };
        for line in file.shapes {
            let Line { codelet, variant, kind, shape, flops, bytes, .. } = line;
            let entry = Entry {
                form: Form::of(&shape),
                features: Features { flops, bytes },
                alone: History::restored(line.nanos, line.rejected),
                beside: History::restored(line.nanos_beside, 0),
            };
            let key = Key { codelet, variant, kind, shape };
            model.codelets.entry((&key).into()).or_default().insert(key.shape, entry);
        }
        Ok(model)
    }
}

/// Times that can be.
fn times<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    let times = Vec::<u64>::deserialize(from)?;
    match times.iter().find(|&&t| t == 0 || t > LONGEST) {
        Some(t) => Err(D::Error::custom(format!("a time of {t} ns, which is impossible"))),
        None => Ok(times),
    }
}

/// The most calls that are believed: a million a second for ten days. Sums of them fit.
const MOST_CALLS: u64 = 1_000_000_000_000;

/// A number of calls that can be.
fn calls<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let calls = u64::deserialize(from)?;
    match calls > MOST_CALLS {
        true => Err(D::Error::custom(format!("{calls} calls, which is impossible"))),
        false => Ok(calls),
    }
}

/// The largest number of anything: what is beyond is a mistake.
const MOST: f64 = 1e18;

fn number<E: serde::de::Error>(number: f64, fits: bool) -> Result<f64, E> {
    let fits = fits && number <= MOST;
    fits.then_some(number).ok_or_else(|| E::custom(format!("{number}, which is impossible")))
}

/// A number from 0 on.
pub(super) fn not_negative<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    f64::deserialize(from).and_then(|n| number(n, n >= 0.0))
}

/// Numbers from 0 on.
pub(super) fn all_not_negative<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 4], D::Error> {
    let found = <[f64; 4]>::deserialize(from)?;
    found.iter().try_for_each(|&n| number::<D::Error>(n, n >= 0.0).map(drop))?;
    Ok(found)
}

/// A number from 0 on, or none.
pub(super) fn maybe_not_negative<'de, D>(from: D) -> Result<Option<f64>, D::Error>
where
    D: Deserializer<'de>,
{
    let found = Option::<f64>::deserialize(from)?;
    found.map(|n| number(n, n >= 0.0)).transpose()
}

/// A number above 0.
pub(super) fn above_zero<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    f64::deserialize(from).and_then(|n| number(n, n > 0.0))
}
