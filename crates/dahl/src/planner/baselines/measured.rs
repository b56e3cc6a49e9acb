//! dahl's own format of measured networks: seconds by layer, unit type and samples of a micro-batch
//! (docs/planner.md).

use super::import::{MOST_NODES, in_order};
use crate::error::{Error, Result};
use crate::planner::pipeline::{Layer, Machinery, UnitType};
use crate::platform::Platform;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A network with times by layer, unit type and micro-batch.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredProfile {
    /// Its name.
    pub name: String,
    /// Where the measurements come from.
    pub origin: String,
    /// Samples per batch.
    pub batch: usize,
    /// Layers, each behind its inputs.
    pub layers: Vec<MeasuredLayer>,
}

/// A layer.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredLayer {
    /// Its name.
    pub name: String,
    /// Bytes of its parameters.
    pub parameter_bytes: f64,
    /// Bytes of its output per sample.
    pub output_bytes: f64,
    /// The layers whose outputs it takes, all of them earlier.
    pub inputs: Vec<usize>,
    /// Seconds of the forward and backward pass of a micro-batch, by unit type, then by its samples in
    /// ascending order.
    pub seconds: BTreeMap<String, Vec<(usize, f64)>>,
}

/// The version of the format.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    dahl_profile: u32,
    name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    origin: String,
    batch: usize,
    layers: Vec<FileLayer>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLayer {
    name: String,
    #[serde(default)]
    parameter_bytes: f64,
    #[serde(default)]
    output_bytes: f64,
    /// Without them, the layer before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inputs: Option<Vec<String>>,
    seconds: BTreeMap<String, BTreeMap<String, Seconds>>,
}

/// Both passes together, or the forward and the backward pass.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum Seconds {
    Both(f64),
    Passes([f64; 2]),
}

impl Seconds {
    fn sum(self) -> f64 {
        match self {
            Self::Both(seconds) => seconds,
            Self::Passes([forward, backward]) => forward + backward,
        }
    }
}

impl MeasuredProfile {
    /// Whether a text is one rather than another file in JSON.
    pub(super) fn is_text_of(text: &str) -> bool {
        text.contains("\"dahl_profile\"")
    }

    /// Reads the text of a file; the path is for errors.
    ///
    /// # Errors
    /// If it is no profile: with the place of the fault.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let file: File = serde_json::from_str(text)
            .map_err(|error| Error::data(path, "file", "a profile of measured layers", error))?;
        let fault = |place: String, expected: &str, found: String| {
            Error::data(path, place, expected.to_owned(), found)
        };
        if file.dahl_profile != VERSION {
            let found = file.dahl_profile.to_string();
            return Err(fault("dahl_profile".to_owned(), "version 1", found));
        }
        if !(1..=1_000_000_000).contains(&file.batch) {
            return Err(fault("batch".to_owned(), "1 to 1e9 samples", file.batch.to_string()));
        }
        if !(1..=MOST_NODES).contains(&file.layers.len()) {
            let expected = format!("1 to {MOST_NODES}");
            return Err(fault("layers".to_owned(), &expected, file.layers.len().to_string()));
        }
        let mut places = BTreeMap::new();
        for (i, layer) in file.layers.iter().enumerate() {
            if places.insert(layer.name.clone(), i).is_some() {
                let found = format!("{:?} again", layer.name);
                return Err(fault("layers".to_owned(), "another name", found));
            }
        }
        let mut layers = Vec::new();
        for (i, layer) in file.layers.into_iter().enumerate() {
            let place = |key: &str| format!("layer {:?}: {key}", layer.name);
            let number = |key: &str, x: f64| match (0.0..=1e18).contains(&x) {
                true => Ok(x),
                false => Err(fault(place(key), "a number from 0 to 1e18", x.to_string())),
            };
            let mut inputs = match &layer.inputs {
                None => i.checked_sub(1).into_iter().collect(),
                Some(names) => {
                    let find = |name: &String| {
                        let unknown =
                            || fault(place("inputs"), "names of layers", format!("{name:?}"));
                        places.get(name).copied().ok_or_else(unknown)
                    };
                    names.iter().map(find).collect::<Result<Vec<usize>>>()?
                }
            };
            inputs.sort_unstable();
            inputs.dedup();
            let mut seconds = BTreeMap::new();
            for (unit, times) in &layer.seconds {
                let key = format!("seconds: {unit}");
                let mut known = Vec::new();
                for (samples, time) in times {
                    let count = samples.parse().ok().filter(|n| (1..=1_000_000_000).contains(n));
                    let Some(count) = count else {
                        let expected = "numbers of samples such as \"8\" as keys";
                        return Err(fault(place(&key), expected, format!("{samples:?}")));
                    };
                    known.push((count, number(&format!("{key}: {samples}"), time.sum())?));
                }
                known.sort_unstable_by_key(|(samples, _)| *samples);
                if known.is_empty() || known.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                    let expected = "one time for each of at least one number of samples";
                    return Err(fault(place(&key), expected, format!("{} times", known.len())));
                }
                seconds.insert(unit.clone(), known);
            }
            layers.push(MeasuredLayer {
                parameter_bytes: number("parameter_bytes", layer.parameter_bytes)?,
                output_bytes: number("output_bytes", layer.output_bytes)?,
                inputs,
                seconds,
                name: layer.name,
            });
        }
        let inputs: Vec<Vec<usize>> = layers.iter().map(|layer| layer.inputs.clone()).collect();
        let keys: Vec<u64> = (0..layers.len() as u64).collect();
        let Some(order) = in_order(&inputs, &keys) else {
            return Err(fault("layers: inputs".to_owned(), "no cycle", "one".to_owned()));
        };
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
        let renumbered = order.iter().map(|&old| {
            let mut layer = layers[old].clone();
            layer.inputs.iter_mut().for_each(|from| *from = place[*from]);
            layer.inputs.sort_unstable();
            layer
        });
        let layers = renumbered.collect();
        Ok(Self { name: file.name, origin: file.origin, batch: file.batch, layers })
    }

    /// The text of a file.
    pub fn to_json(&self) -> String {
        let layer = |layer: &MeasuredLayer| FileLayer {
            name: layer.name.clone(),
            parameter_bytes: layer.parameter_bytes,
            output_bytes: layer.output_bytes,
            inputs: Some(layer.inputs.iter().map(|&i| self.layers[i].name.clone()).collect()),
            seconds: {
                let times = |known: &Vec<(usize, f64)>| {
                    let time =
                        |(samples, s): &(usize, f64)| (samples.to_string(), Seconds::Both(*s));
                    known.iter().map(time).collect()
                };
                layer.seconds.iter().map(|(unit, known)| (unit.clone(), times(known))).collect()
            },
        };
        let file = File {
            dahl_profile: VERSION,
            name: self.name.clone(),
            origin: self.origin.clone(),
            batch: self.batch,
            layers: self.layers.iter().map(layer).collect(),
        };
        serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
    }

    /// The unit types that a layer was measured on.
    fn measured_on(&self) -> Vec<&str> {
        let mut all: Vec<&str> =
            self.layers.iter().flat_map(|layer| layer.seconds.keys().map(String::as_str)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The layers on the units of a platform, for batches of so many micro-batches. Units that no
    /// layer was measured on cannot be used: none of them are left.
    ///
    /// # Errors
    /// If no unit was measured, or only some layers were on one.
    pub fn layers(
        &self,
        platform: &Platform,
        machines: &mut Machinery,
        micro_batches: usize,
    ) -> Result<Vec<Layer>> {
        let names: Vec<Vec<String>> = kinds(platform, machines);
        let mut layers: Vec<Layer> = self.layers.iter().map(|layer| self.plain(layer)).collect();
        let mut any = false;
        for (unit, names) in names.iter().enumerate() {
            let known = |layer: &MeasuredLayer| {
                names.iter().find_map(|name| layer.seconds.get(name)).cloned()
            };
            let there = self.layers.iter().any(|layer| known(layer).is_some());
            any |= there;
            if !there {
                machines.leave_out(unit);
            }
            for (layer, plain) in self.layers.iter().zip(&mut layers) {
                plain.seconds.push(match known(layer) {
                    Some(known) => self.batch_seconds(&known, micro_batches),
                    None if !there => 0.0,
                    None => {
                        let expected =
                            format!("seconds on {}, as other layers have", names.join(" or "));
                        return Err(Error::config(
                            format!("layer {:?}", layer.name),
                            expected,
                            "none",
                        ));
                    }
                });
            }
        }
        if any {
            return Ok(layers);
        }
        let all: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
        let expected = format!("seconds on units of the platform ({})", all.join(", "));
        Err(Error::config("profile", expected, self.measured_on().join(", ")))
    }

    fn plain(&self, layer: &MeasuredLayer) -> Layer {
        Layer {
            name: layer.name.clone(),
            seconds: Vec::new(),
            output_bytes: layer.output_bytes * self.batch as f64,
            parameter_bytes: layer.parameter_bytes,
            inputs: layer.inputs.clone(),
        }
    }

    /// Seconds of a batch in so many micro-batches.
    fn batch_seconds(&self, known: &[(usize, f64)], micro_batches: usize) -> f64 {
        let micro = self.batch as f64 / micro_batches as f64;
        micro_batches as f64 * seconds_of(known, micro)
    }
}

/// Seconds of so many samples: between two measurements on the line between them; below the smallest
/// as long as that; above the largest in pieces of the largest.
fn seconds_of(known: &[(usize, f64)], samples: f64) -> f64 {
    let after = known.partition_point(|(n, _)| (*n as f64) < samples);
    match (after.checked_sub(1).map(|before| known[before]), known.get(after)) {
        (Some((a, at_a)), Some(&(b, at_b))) => {
            at_a + (at_b - at_a) * (samples - a as f64) / (b as f64 - a as f64)
        }
        (None, Some(&(_, least))) => least,
        (Some((most, at_most)), None) => at_most * samples / most as f64,
        (None, None) => 0.0,
    }
}

/// The names under which a profile may have each unit type of a platform: its own, those of its units,
/// and their kinds.
fn kinds(platform: &Platform, machines: &Machinery) -> Vec<Vec<String>> {
    let names = |(unit, declared): (&UnitType, &Vec<(usize, usize)>)| {
        let own = declared.iter().flat_map(|&(node, unit)| {
            let (node, unit) = (&platform.nodes[node], &platform.nodes[node].units[unit]);
            [format!("{}/{}", node.name, unit.name), unit.kind.clone()]
        });
        let mut names = vec![unit.name.clone()];
        own.for_each(|name| {
            if !names.contains(&name) {
                names.push(name);
            }
        });
        names
    };
    machines.units.iter().zip(&machines.declared).map(names).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::pipeline::{Objective, Problem, Semantics, Watts, machinery};

    const SMALL: &str = r#"{
        "dahl_profile": 1, "name": "two layers", "origin": "by hand", "batch": 32,
        "layers": [
            { "name": "head", "parameter_bytes": 10, "output_bytes": 1, "inputs": ["body"],
              "seconds": { "fast": { "1": 0.25, "4": [0.5, 0.5] }, "b/gpu": { "8": 4.0 } } },
            { "name": "body", "parameter_bytes": 1000, "output_bytes": 20, "inputs": [],
              "seconds": { "fast": { "2": 1.0, "8": 2.5 }, "b/gpu": { "8": 8 } } }
        ]
    }"#;

    fn platform() -> Platform {
        let node = |name: &str, kind: &str| {
            format!(
                "[[node]]\nname = {name:?}\nbase_watts = 0\ncount = 2\n\
                 memory = [{{ name = \"ram\", bytes = \"1 GiB\", bandwidth = 1e9 }}]\n\
                 [[node.unit]]\nname = \"gpu\"\nkind = {kind:?}\nbusy_watts = 2\n\
                 spinning_watts = 2\nidle_watts = 1\n"
            )
        };
        let text = format!(
            "dahl_platform = 1\nname = \"three\"\nlink = [{{ name = \"net\", connects = [\"a\", \"b\", \"c\"], \
             bandwidth = 1e9, latency = 0, joules_per_byte = 0 }}]\n{}{}{}",
            node("a", "fast"),
            node("b", "slow"),
            node("c", "unknown")
        );
        Platform::parse(Path::new("three.toml"), &text).unwrap()
    }

    #[test]
    fn times_are_those_of_unit_layer_and_micro_batch() {
        let profile = MeasuredProfile::parse(SMALL, Path::new("small.json")).unwrap();
        let again = MeasuredProfile::parse(&profile.to_json(), Path::new("small.json")).unwrap();
        assert_eq!(again, profile);
        let platform = platform();
        let mut machines = machinery(&platform, Watts::Likely).unwrap();
        // Eight micro-batches of four samples.
        let layers = profile.layers(&platform, &mut machines, 8).unwrap();
        let names: Vec<&str> = layers.iter().map(|layer| &*layer.name).collect();
        assert_eq!(names, ["body", "head"]);
        assert_eq!((&layers[1].inputs[..], layers[0].output_bytes), (&[0][..], 640.0));
        // Four samples lie between two and eight; on b, eight were the fewest.
        assert_eq!(layers[0].seconds, [8.0 * 1.5, 8.0 * 8.0, 0.0]);
        assert_eq!(layers[1].seconds, [8.0 * 1.0, 8.0 * 4.0, 0.0]);
        let counts: Vec<usize> = machines.units.iter().map(|unit| unit.count).collect();
        assert_eq!(counts, [2, 2, 0]);
        // One micro-batch of 32 samples is four pieces of eight.
        let layers = profile.layers(&platform, &mut machines, 1).unwrap();
        assert_eq!(layers[0].seconds, [4.0 * 2.5, 4.0 * 8.0, 0.0]);
    }

    /// Units that a profile has no times of stayed in the parts of the platform that are near to each
    /// other, which then had more units than the platform; units of a server that are one type had
    /// another name than in the file.
    #[test]
    fn units_without_times_are_in_no_scope() {
        let gpu = |name: &str, kind: &str, memory: &str| {
            format!(
                "[[node.unit]]\nname = {name:?}\nkind = {kind:?}\nmemory = {memory:?}\nbusy_watts = 2\n\
                 spinning_watts = 2\nidle_watts = 1\n"
            )
        };
        let memory =
            |name: &str| format!("{{ name = {name:?}, bytes = \"1 GiB\", bandwidth = 1e9 }}");
        let text = format!(
            "dahl_platform = 1\nname = \"scopes\"\n[[node]]\nname = \"server\"\nbase_watts = 0\n\
             memory = [{}, {}, {}]\n{}{}[[node.link]]\nname = \"pcie\"\nconnects = [\"ram\", \"m0\", \"m1\"]\n\
             bandwidth = 1e10\nlatency = 0\njoules_per_byte = 0\n[[node]]\nname = \"pi\"\ncount = 2\n\
             base_watts = 0\nmemory = [{}]\n{}[[link]]\nname = \"wifi\"\nconnects = [\"server\", \"pi\"]\n\
             bandwidth = 1e6\nlatency = 0\njoules_per_byte = 0\n",
            memory("ram"),
            memory("m0"),
            memory("m1"),
            gpu("gpu0", "fast", "m0"),
            gpu("gpu1", "fast", "m1"),
            memory("ram"),
            gpu("core", "arm", "ram"),
        );
        let platform = Platform::parse(Path::new("scopes.toml"), &text).unwrap();
        let machines = || machinery(&platform, Watts::Likely).unwrap();
        assert!(!machines().scopes.is_empty());
        let named = SMALL.replace("fast", "server/gpu1").replace("b/gpu", "pi/core");
        for (text, left) in [(SMALL.to_owned(), [2, 0]), (named, [2, 2])] {
            let profile = MeasuredProfile::parse(&text, Path::new("small.json")).unwrap();
            let mut machines = machines();
            let layers = profile.layers(&platform, &mut machines, 1).unwrap();
            let counts: Vec<usize> = machines.units.iter().map(|unit| unit.count).collect();
            assert_eq!(counts, left);
            let problem = Problem {
                layers,
                units: machines.units,
                nodes: machines.nodes,
                scopes: machines.scopes,
                semantics: Semantics::Stale,
                objective: Objective::Time,
                period_cap: None,
                power_cap: None,
                samples: None,
            };
            assert_eq!(problem.check(), Ok(()));
        }
    }

    #[test]
    fn wrong_profiles_are_refused_with_the_place() {
        let refused = |from: &str, to: &str, expected: &str| {
            let text = SMALL.replacen(from, to, 1);
            assert_ne!(text, SMALL);
            let error = MeasuredProfile::parse(&text, Path::new("p.json")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused("\"dahl_profile\": 1", "\"dahl_profile\": 2", "expected version 1, found 2");
        refused("\"batch\": 32", "\"batch\": 0", "batch: expected 1 to 1e9 samples");
        refused("\"body\"]", "\"torso\"]", "layer \"head\": inputs: expected names of layers");
        refused("\"inputs\": []", "\"inputs\": [\"head\"]", "expected no cycle");
        refused("\"name\": \"body\"", "\"name\": \"head\"", "\"head\" again");
        refused("\"1\": 0.25", "\"one\": 0.25", "seconds: fast: expected numbers of samples");
        refused("\"1\": 0.25", "\"1\": -0.25", "seconds: fast: 1: expected a number from 0");
        refused("\"1\": 0.25", "\"04\": 0.25", "expected one time for each");
        refused("\"batch\"", "\"bach\"", "unknown field `bach`");
        let none = MeasuredProfile::parse(
            &SMALL.replace("fast", "tpu").replace("b/gpu", "npu"),
            Path::new("p"),
        );
        let platform = platform();
        let mut machines = machinery(&platform, Watts::Likely).unwrap();
        let error = none.unwrap().layers(&platform, &mut machines, 1).unwrap_err().to_string();
        assert!(error.contains("(a/gpu, ") && error.ends_with("found npu, tpu"), "{error}");
        let part = SMALL.replacen("\"b/gpu\": { \"8\": 4.0 }", "\"tpu\": { \"8\": 4.0 }", 1);
        let part = MeasuredProfile::parse(&part, Path::new("p")).unwrap();
        let error = part.layers(&platform, &mut machines, 1).unwrap_err().to_string();
        assert!(error.contains("layer \"head\": expected seconds on b/gpu or slow"), "{error}");
    }
}
