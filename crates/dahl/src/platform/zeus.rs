//! Platforms of the tables that the project Zeus (You, Chung and Chowdhury 2023) published for each
//! GPU: seconds per epoch and average watts by network, batch size and power limit.
//!
//! Speeds, busy watts and power states are measured. Idle and base watts, bandwidths and links are
//! guesses, which people replace.

use super::{Figure, Link, Memory, Node, Origin, Place, Platform, PowerState, Sharing, Unit};
use crate::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A GPU with its table.
#[derive(Clone, Debug, PartialEq)]
pub struct ZeusTable {
    /// Name of the GPU: its node, and its kind behind `gpu-`.
    pub name: String,
    /// The file, `summary_power_a40.csv`.
    pub path: PathBuf,
    /// Bytes of the GPU's memory.
    pub memory: u64,
}

/// What is imported.
#[derive(Clone, Debug)]
pub struct ZeusRequest<'a> {
    /// The tables.
    pub tables: &'a [ZeusTable],
    /// The network whose figures are taken, `imagenet/resnet50` or `resnet50`.
    pub network: &'a str,
    /// Its batch size; without it the largest that all tables have.
    pub batch: Option<usize>,
}

#[derive(Deserialize)]
struct Row {
    dataset: String,
    network: String,
    batch_size: usize,
    power_limit: u32,
    time_per_epoch: f64,
    average_power: f64,
}

/// Seconds per epoch and watts, by power limit.
type Limits = BTreeMap<u32, (f64, f64)>;

/// Limits by network and batch size.
type Runs = BTreeMap<(String, usize), Limits>;

fn runs(text: &str, path: &Path) -> Result<Runs> {
    let mut runs = Runs::new();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    for (i, row) in reader.deserialize().enumerate() {
        let place = || format!("row {}", i + 1);
        let row: Row = row.map_err(|error| {
            let expected =
                "dataset, network, batch_size, power_limit, time_per_epoch and average_power";
            Error::data(path, place(), expected, error.to_string())
        })?;
        let figures = [row.time_per_epoch, row.average_power];
        if figures.iter().any(|x| !(1e-6..=1e9).contains(x)) || row.power_limit == 0 {
            let found = format!("{figures:?} at {} W", row.power_limit);
            return Err(Error::data(path, place(), "seconds and watts from 1e-6 to 1e9", found));
        }
        let limits = runs.entry((format!("{}/{}", row.dataset, row.network), row.batch_size));
        // Of two optimizers the first.
        limits.or_default().entry(row.power_limit).or_insert((figures[0], figures[1]));
    }
    match runs.is_empty() {
        true => Err(Error::data(path, "file", "a table with rows", "none")),
        false => Ok(runs),
    }
}

/// The figures at the highest power limit.
fn top(limits: &Limits) -> (f64, f64) {
    limits.last_key_value().map_or((1.0, 1.0), |(_, point)| *point)
}

fn measured(value: f64, others: impl IntoIterator<Item = f64>) -> Figure {
    let (mut low, mut high) = (value, value);
    for x in others {
        (low, high) = (low.min(x), high.max(x));
    }
    Figure { value, low, high, from: Origin::Measured }
}

fn guess(value: f64, low: f64, high: f64) -> Figure {
    Figure { value, low: low.min(value), high: high.max(value), from: Origin::Guess }
}

impl ZeusRequest<'_> {
    /// Reads the tables.
    ///
    /// # Errors
    /// If a table cannot be read or is wrong, or lacks the network or the batch size.
    pub fn read(&self) -> Result<Platform> {
        let text = |table: &ZeusTable| {
            crate::os::disk::read_to_string(&table.path)
                .map_err(|source| Error::Io { path: table.path.clone(), source })
        };
        let texts = self.tables.iter().map(text).collect::<Result<Vec<String>>>()?;
        self.parse(&texts)
    }

    /// The same from the texts of the tables.
    ///
    /// # Errors
    /// As [`ZeusRequest::read`].
    pub fn parse(&self, texts: &[String]) -> Result<Platform> {
        let with_text = self.tables.iter().zip(texts);
        let all = with_text
            .map(|(table, text)| runs(text, &table.path))
            .collect::<Result<Vec<Runs>>>()?;
        let (network, batch) = self.chosen(&all)?;
        let key = (network, batch);
        // The fastest GPU is the one that speeds are relative to.
        let times = all.iter().map(|runs| top(&runs[&key]).0);
        let fastest = times.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(i, _)| i);
        let nodes: Vec<Node> = self
            .tables
            .iter()
            .zip(&all)
            .map(|(table, runs)| node(table, runs, &all[fastest], &key))
            .collect();
        let ethernet = Link {
            name: "ethernet".to_owned(),
            connects: (0..nodes.len()).map(Place::Nodes).collect(),
            bandwidth: guess(1.17e9, 1e9, 1.25e9),
            latency: guess(30e-6, 10e-6, 100e-6),
            messages: Vec::new(),
            joules_per_byte: guess(1e-8, 2e-9, 3e-8),
            price_per_byte: 0.0,
            sharing: Sharing::Ends,
        };
        let platform = Platform {
            name: format!("GPUs that Zeus measured, {} at batch {}", key.0, key.1),
            nodes,
            links: if all.len() > 1 { vec![ethernet] } else { Vec::new() },
            ..Platform::default()
        };
        // What is written can be read.
        Platform::parse(Path::new("platform"), &platform.to_toml())
    }

    /// The network in the tables, and its batch size.
    fn chosen(&self, all: &[Runs]) -> Result<(String, usize)> {
        let matches = |name: &str| {
            name == self.network || name.split_once('/').is_some_and(|(_, own)| own == self.network)
        };
        let mut found: Option<String> = None;
        let mut common: Option<Vec<usize>> = None;
        for (table, runs) in self.tables.iter().zip(all) {
            let own = runs.keys().filter(|(name, _)| matches(name));
            let own = own.filter(|(name, _)| found.as_ref().is_none_or(|found| found == name));
            let own: Vec<&(String, usize)> = own.collect();
            let Some(first) = own.first() else {
                let mut names: Vec<&str> = runs.keys().map(|(name, _)| &**name).collect();
                names.dedup();
                let expected = format!("the network {}", self.network);
                return Err(Error::data(&table.path, "network", expected, names.join(", ")));
            };
            found = Some(first.0.clone());
            let sizes = own.iter().filter(|(name, _)| *name == first.0).map(|(_, batch)| *batch);
            let before = common.take();
            let both = |batch: &usize| before.as_ref().is_none_or(|known| known.contains(batch));
            common = Some(sizes.filter(both).collect());
        }
        let common = common.unwrap_or_default();
        let batch = match self.batch {
            Some(batch) => common.contains(&batch).then_some(batch),
            None => common.last().copied(),
        };
        match (found, batch) {
            (Some(network), Some(batch)) => Ok((network, batch)),
            _ => {
                let known: Vec<String> = common.iter().map(usize::to_string).collect();
                let expected = format!("a batch size that all tables have ({})", known.join(", "));
                let found = self.batch.map_or("none".to_owned(), |batch| batch.to_string());
                Err(Error::config("batch", expected, found))
            }
        }
    }
}

/// A machine with the GPU of a table.
fn node(table: &ZeusTable, runs: &Runs, fastest: &Runs, key: &(String, usize)) -> Node {
    let taken = &runs[key];
    let limit = taken.last_key_value().map_or(0, |(limit, _)| *limit);
    // Each network with its largest batch: smaller ones leave a GPU waiting.
    let mut busy: BTreeMap<&str, &Limits> = BTreeMap::new();
    runs.iter().for_each(|((name, _), limits)| {
        busy.insert(name, limits);
    });
    let least = runs.values().flat_map(|limits| limits.values().map(|(_, watts)| *watts));
    let least = least.fold(f64::INFINITY, f64::min);
    let watts = |limit: u32, own: f64| {
        measured(
            own,
            busy.values().filter_map(|limits| limits.get(&limit)).map(|(_, watts)| *watts),
        )
    };
    let speeds = runs.iter().filter_map(|(key, own)| Some(top(fastest.get(key)?).0 / top(own).0));
    let speed = measured(top(&fastest[key]).0 / top(taken).0, speeds);
    let states = taken.iter().rev().skip(1).map(|(&limit, &(seconds, own))| {
        let relative =
            |limits: &&Limits| limits.get(&limit).map(|(seconds, _)| top(limits).0 / seconds);
        PowerState {
            name: format!("{limit} W"),
            speed: measured(top(taken).0 / seconds, busy.values().filter_map(relative)),
            busy_watts: watts(limit, own),
        }
    });
    let idle = least.min(30.0);
    let unit = Unit {
        name: "gpu".to_owned(),
        kind: format!("gpu-{}", table.name),
        count: 1,
        memory: 1,
        speed,
        flops: None,
        busy_watts: watts(limit, top(taken).1),
        spinning_watts: guess(least, idle, top(taken).1),
        idle_watts: guess(idle, 0.5 * idle, least),
        price_per_hour: 0.0,
        states: states.collect(),
    };
    let memory = |name: &str, bytes, bandwidth| Memory { name: name.to_owned(), bytes, bandwidth };
    let pcie = Link {
        name: "pcie".to_owned(),
        connects: vec![0, 1],
        bandwidth: guess(12e9, 9.6e9, 25e9),
        latency: guess(8e-6, 3e-6, 20e-6),
        messages: Vec::new(),
        joules_per_byte: guess(1e-10, 5e-11, 5e-10),
        price_per_byte: 0.0,
        sharing: Sharing::Ends,
    };
    Node {
        name: table.name.clone(),
        count: 1,
        base_watts: guess(100.0, 60.0, 250.0),
        price_per_hour: 0.0,
        price_per_kwh: None,
        sleep: None,
        memories: vec![
            memory("ram", 128 << 30, guess(80e9, 40e9, 200e9)),
            memory("gpu-memory", table.memory, guess(700e9, 500e9, 900e9)),
        ],
        units: vec![unit],
        links: vec![pcie],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(names: &[&str]) -> Vec<ZeusTable> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/planner/zeus");
        let table = |name: &&str| ZeusTable {
            name: (*name).to_owned(),
            path: root.join(format!("excerpt_{name}.csv")),
            memory: 32_000_000_000,
        };
        names.iter().map(table).collect()
    }

    /// The figures that scripts/platform_from_zeus.py takes of the same tables, but for intervals.
    #[test]
    fn measured_figures_are_those_of_the_tables() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../platforms/zeus.toml");
        let expected = Platform::read(&path).unwrap();
        let tables = tables(&["a40", "v100"]);
        let request = ZeusRequest { tables: &tables, network: "resnet50", batch: Some(128) };
        let found = request.read().unwrap();
        assert_eq!(found.nodes.len(), 2);
        let same = |a: &Figure, b: &Figure| {
            assert!((a.value / b.value - 1.0).abs() < 1e-3, "{a:?} {b:?}");
            assert!(a.from == Origin::Measured && a.low <= a.value && a.value <= a.high);
        };
        for (node, expected) in found.nodes.iter().zip(&expected.nodes) {
            let (unit, expected) = (&node.units[0], &expected.units[0]);
            assert_eq!((&unit.kind, unit.states.len()), (&expected.kind, expected.states.len()));
            same(&unit.busy_watts, &expected.busy_watts);
            for (state, expected) in unit.states.iter().zip(&expected.states) {
                assert_eq!(state.name, expected.name);
                same(&state.speed, &expected.speed);
                same(&state.busy_watts, &expected.busy_watts);
            }
            assert_eq!(unit.idle_watts.from, Origin::Guess);
        }
        // Speeds are relative to the fastest, as operations per second are.
        let flops = |i: usize| expected.nodes[i].units[0].flops.expect("flops").value;
        let ratio = found.nodes[0].units[0].speed.value / found.nodes[1].units[0].speed.value;
        assert!((ratio / (flops(0) / flops(1)) - 1.0).abs() < 1e-3, "{ratio}");
        // The largest batch that both have.
        let largest = ZeusRequest { batch: None, ..request }.read().unwrap();
        assert!(largest.name.ends_with("imagenet/resnet50 at batch 128"), "{}", largest.name);
    }

    #[test]
    fn what_a_table_lacks_is_named() {
        let tables = tables(&["a40", "v100"]);
        let request = ZeusRequest { tables: &tables, network: "resnet50", batch: Some(128) };
        let other = ZeusRequest { network: "vgg", ..request.clone() };
        let error = other.read().unwrap_err().to_string();
        assert!(error.contains("expected the network vgg, found imagenet/resnet50"), "{error}");
        let error =
            ZeusRequest { batch: Some(7), ..request.clone() }.read().unwrap_err().to_string();
        assert!(error.contains("a batch size that all tables have ("), "{error}");
        let parse = |text: &str| {
            request.parse(&[text.to_owned(), text.to_owned()]).unwrap_err().to_string()
        };
        assert!(
            parse("a,b\n1,2\n").contains("row 1: expected dataset, network"),
            "{}",
            parse("a,b\n1,2\n")
        );
        let head =
            "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n";
        assert!(parse(head).contains("a table with rows"));
        let wrong = format!("{head}imagenet,resnet50,128,sgd,100,-1,50\n");
        assert!(parse(&wrong).contains("row 1: expected seconds and watts"), "{}", parse(&wrong));
    }
}
