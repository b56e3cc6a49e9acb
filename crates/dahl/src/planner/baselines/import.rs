//! Networks that others have measured: PipeDream's `graph.txt`, the JSON of dnn-partitioning, and
//! dahl's own format (`measured.rs`).

use super::groups::groups;
use super::measured::MeasuredProfile;
use crate::error::{Error, Result};
use crate::planner::pipeline::{Layer, Machinery};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Files of more nodes are refused.
pub(super) const MOST_NODES: usize = 20_000;

/// A node of a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileNode {
    /// Its id in the file.
    pub id: String,
    /// What it is: `ReLU(inplace)`.
    pub name: String,
    /// Forwards and backwards of a batch, in seconds.
    pub seconds: f64,
    /// Bytes that come out.
    pub output_bytes: f64,
    /// Bytes of parameters.
    pub parameter_bytes: f64,
    /// The nodes whose outputs it takes; all stand before it.
    pub inputs: Vec<usize>,
}

/// A network as PipeDream measured it, each node behind its inputs.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Profile {
    /// Without the node `Input`.
    pub nodes: Vec<ProfileNode>,
}

/// A node of a graph of operators.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    /// Its id in the file.
    pub id: i64,
    /// What it takes on an accelerator; nothing where it cannot run there.
    pub accelerator: Option<f64>,
    /// What it takes on a core.
    pub core: f64,
    /// Bytes that it needs.
    pub bytes: f64,
    /// Operators of one class go to the same device.
    pub colour: i64,
    /// Whether it is of the backward part.
    pub backward: bool,
    /// What it costs to pass its output on, on either side.
    pub pass: f64,
    /// Bytes of its output.
    pub output_bytes: f64,
    /// The operators whose outputs it takes.
    pub inputs: Vec<usize>,
}

/// A graph of operators and the devices that it is to be spread over.
#[derive(Clone, Debug, PartialEq)]
pub struct Operators {
    /// In the order of the file.
    pub nodes: Vec<Operator>,
    /// How many accelerators there are.
    pub accelerators: usize,
    /// What each of them may hold.
    pub accelerator_bytes: f64,
    /// How many cores there are.
    pub cores: usize,
}

/// What a file of a network holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Imported {
    /// PipeDream's.
    Profile(Profile),
    /// That of dnn-partitioning.
    Operators(Operators),
    /// dahl's own, with times by unit type and micro-batch.
    Measured(MeasuredProfile),
}

impl Imported {
    /// Reads a file of any kind.
    pub fn read(path: &Path) -> Result<Self> {
        let text = crate::os::disk::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file; the path is for what is said of it.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        match text.trim_start().starts_with('{') {
            true if MeasuredProfile::is_text_of(text) => {
                MeasuredProfile::parse(text, path).map(Self::Measured)
            }
            true => Operators::parse(text, path).map(Self::Operators),
            false => Profile::parse(text, path).map(Self::Profile),
        }
    }
}

fn figure(path: &Path, place: &str, key: &str, text: &str) -> Result<f64> {
    match text.trim().parse::<f64>() {
        Ok(x) if (0.0..=1e18).contains(&x) => Ok(x),
        _ => Err(Error::data(path, format!("{place}: {key}"), "a number from 0 to 1e18", text)),
    }
}

/// What is said of every node.
const FIGURES: [&str; 4] =
    ["forward_compute_time", "backward_compute_time", "activation_size", "parameter_size"];

impl Profile {
    /// Reads PipeDream's text: a node a line, then an edge a line.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let mut nodes: Vec<ProfileNode> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut edges: Vec<(String, String, usize)> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let place = format!("line {}", i + 1);
            let wrong = |expected: &str| Error::data(path, &place, expected, line.trim());
            if line.trim().is_empty() {
                continue;
            }
            let parts: Vec<&str> = line.split(" -- ").map(str::trim).collect();
            if line.starts_with(char::is_whitespace) {
                let [from, to] = parts[..] else {
                    return Err(wrong("an edge such as node1 -- node2"));
                };
                edges.push((from.to_owned(), to.to_owned(), i + 1));
                continue;
            }
            let [id, .., figures] = parts[..] else {
                return Err(wrong("a node: id -- name -- figures"));
            };
            if parts.len() < 3 {
                return Err(wrong("a node: id -- name -- figures"));
            }
            let mut node = ProfileNode {
                id: id.to_owned(),
                name: parts[1..parts.len() - 1].join(" -- "),
                seconds: 0.0,
                output_bytes: 0.0,
                parameter_bytes: 0.0,
                inputs: Vec::new(),
            };
            let mut seen = Vec::new();
            for pair in figures.split(", ") {
                let Some((key, value)) = pair.split_once('=') else { continue };
                seen.push(key.trim());
                match key.trim() {
                    "forward_compute_time" | "backward_compute_time" => {
                        node.seconds += figure(path, &place, key, value)? / 1000.0;
                    }
                    "activation_size" => node.output_bytes = outputs(path, &place, value)?,
                    "parameter_size" => node.parameter_bytes = figure(path, &place, key, value)?,
                    _ => {}
                }
            }
            if let Some(missing) = FIGURES.iter().find(|figure| !seen.contains(figure)) {
                return Err(wrong(&format!("{missing}=, as every node has")));
            }
            if places.insert(node.id.clone(), nodes.len()).is_some() {
                return Err(Error::data(path, place, "another id", format!("{:?} again", node.id)));
            }
            nodes.push(node);
            if nodes.len() > MOST_NODES {
                return Err(Error::data(
                    path,
                    place,
                    format!("at most {MOST_NODES} nodes"),
                    "more",
                ));
            }
        }
        for (from, to, line) in edges {
            let find = |id: &String| {
                let missing =
                    || Error::data(path, format!("line {line}"), "a node of the file", id);
                places.get(id).copied().ok_or_else(missing)
            };
            let (from, to) = (find(&from)?, find(&to)?);
            if !nodes[to].inputs.contains(&from) {
                nodes[to].inputs.push(from);
            }
        }
        let inputs: Vec<Vec<usize>> = nodes.iter().map(|node| node.inputs.clone()).collect();
        // Ids with a number in them go by it: node9 before node10.
        let number = |node: &ProfileNode| -> u64 {
            let digits: String = node.id.chars().filter(char::is_ascii_digit).collect();
            digits.parse().unwrap_or(u64::MAX)
        };
        let keys: Vec<u64> = nodes.iter().map(number).collect();
        let Some(order) = in_order(&inputs, &keys) else {
            return Err(Error::data(path, "edges", "no cycle", "one"));
        };
        let kept: Vec<usize> = order.into_iter().filter(|&i| !is_input(&nodes[i])).collect();
        let mut place = vec![None; nodes.len()];
        kept.iter().enumerate().for_each(|(new, &old)| place[old] = Some(new));
        let renumbered = kept.iter().map(|&old| {
            let mut node = nodes[old].clone();
            node.inputs = node.inputs.iter().filter_map(|&from| place[from]).collect();
            node.inputs.sort_unstable();
            node
        });
        let nodes: Vec<ProfileNode> = renumbered.collect();
        if nodes.is_empty() {
            return Err(Error::data(path, "nodes", "at least one", "none"));
        }
        Ok(Self { nodes })
    }

    /// The layers of a problem: how much slower each unit type is than the one that was
    /// measured.
    pub fn layers(&self, slowdowns: &[f64]) -> Vec<Layer> {
        let layer = |node: &ProfileNode| Layer {
            name: format!("{} {}", node.id, node.name),
            seconds: slowdowns.iter().map(|slow| node.seconds * slow).collect(),
            output_bytes: node.output_bytes,
            parameter_bytes: node.parameter_bytes,
            inputs: node.inputs.clone(),
        };
        self.nodes.iter().map(layer).collect()
    }
}

fn is_input(node: &ProfileNode) -> bool {
    node.name.starts_with("Input") && node.inputs.is_empty()
}

/// A number, or the numbers of several outputs: `[1.0; 2.0]`.
fn outputs(path: &Path, place: &str, text: &str) -> Result<f64> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    text.split(';').map(|part| figure(path, place, "activation_size", part)).sum()
}

/// Nodes behind their inputs, of the ready ones the one with the least key first; nothing
/// where there is a cycle.
pub(in crate::planner) fn in_order(inputs: &[Vec<usize>], keys: &[u64]) -> Option<Vec<usize>> {
    let mut left: Vec<usize> = inputs.iter().map(Vec::len).collect();
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); inputs.len()];
    for (to, from) in inputs.iter().enumerate() {
        from.iter().for_each(|&from| users[from].push(to));
    }
    let mut ready: BTreeSet<(u64, usize)> =
        (0..inputs.len()).filter(|&i| left[i] == 0).map(|i| (keys[i], i)).collect();
    let mut order = Vec::new();
    while let Some((_, next)) = ready.pop_first() {
        order.push(next);
        for &user in &users[next] {
            left[user] -= 1;
            if left[user] == 0 {
                ready.insert((keys[user], user));
            }
        }
    }
    (order.len() == inputs.len()).then_some(order)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GraphFile {
    #[serde(rename = "maxSizePerFPGA")]
    max_size: f64,
    #[serde(rename = "maxFPGAs")]
    max_fpgas: f64,
    #[serde(rename = "maxCPUs")]
    max_cpus: f64,
    nodes: Vec<GraphNode>,
    edges: Vec<GraphEdge>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GraphNode {
    id: i64,
    #[serde(default = "yes")]
    supported_on_fpga: YesNo,
    cpu_latency: f64,
    fpga_latency: f64,
    #[serde(default = "no")]
    is_backward_node: YesNo,
    color_class: Option<i64>,
    #[serde(default)]
    size: f64,
}

/// Files have 0 and 1, some writers the words.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum YesNo {
    Word(bool),
    Number(f64),
}

impl YesNo {
    fn is_yes(self) -> bool {
        match self {
            YesNo::Word(word) => word,
            YesNo::Number(number) => number != 0.0,
        }
    }
}

fn yes() -> YesNo {
    YesNo::Word(true)
}

fn no() -> YesNo {
    YesNo::Word(false)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GraphEdge {
    source_id: i64,
    dest_id: i64,
    #[serde(default)]
    cost: f64,
    #[serde(default)]
    size: f64,
}

impl Operators {
    /// Reads the JSON of dnn-partitioning.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let file: GraphFile = serde_json::from_str(text).map_err(|error| {
            Error::data(path, "file", "a graph of dnn-partitioning, or a profile of dahl", error)
        })?;
        let check = |what: String, x: f64| match (0.0..=1e18).contains(&x) {
            true => Ok(x),
            false => Err(Error::data(path, what, "a number from 0 to 1e18", x)),
        };
        let devices = |what: &str, x: f64| match (0.0..=10_000.0).contains(&x) {
            true => Ok(x as usize),
            false => Err(Error::data(path, what, "a number from 0 to 10000", x)),
        };
        if file.nodes.is_empty() || file.nodes.len() > MOST_NODES {
            let expected = format!("1 to {MOST_NODES}");
            return Err(Error::data(path, "nodes", expected, file.nodes.len()));
        }
        let mut places = BTreeMap::new();
        let mut nodes = Vec::new();
        for (i, node) in file.nodes.iter().enumerate() {
            let place = |key: &str| format!("node {}: {key}", node.id);
            if places.insert(node.id, i).is_some() {
                return Err(Error::data(path, place("id"), "another id", "the same again"));
            }
            let accelerator = check(place("fpgaLatency"), node.fpga_latency)?;
            nodes.push(Operator {
                id: node.id,
                accelerator: node.supported_on_fpga.is_yes().then_some(accelerator),
                core: check(place("cpuLatency"), node.cpu_latency)?,
                bytes: check(place("size"), node.size)?,
                // Without a class it is alone; classes of the file are not negative.
                colour: node.color_class.unwrap_or(i64::MIN + i as i64),
                backward: node.is_backward_node.is_yes(),
                pass: 0.0,
                output_bytes: 0.0,
                inputs: Vec::new(),
            });
        }
        for edge in &file.edges {
            let place = format!("edge {} to {}", edge.source_id, edge.dest_id);
            let find = |id: i64| {
                let missing = || Error::data(path, &place, "nodes of the file", id);
                places.get(&id).copied().ok_or_else(missing)
            };
            let (from, to) = (find(edge.source_id)?, find(edge.dest_id)?);
            // An output is passed on as a whole: all of its edges should say the same.
            nodes[from].pass = nodes[from].pass.max(check(format!("{place}: cost"), edge.cost)?);
            let bytes = check(format!("{place}: size"), edge.size)?;
            nodes[from].output_bytes = nodes[from].output_bytes.max(bytes);
            if !nodes[to].inputs.contains(&from) {
                nodes[to].inputs.push(from);
            }
        }
        let inputs: Vec<Vec<usize>> = nodes.iter().map(|node| node.inputs.clone()).collect();
        if in_order(&inputs, &vec![0; nodes.len()]).is_none() {
            return Err(Error::data(path, "edges", "no cycle", "one"));
        }
        Ok(Self {
            nodes,
            accelerators: devices("maxFPGAs", file.max_fpgas)?,
            accelerator_bytes: check("maxSizePerFPGA".to_owned(), file.max_size)?,
            cores: devices("maxCPUs", file.max_cpus)?,
        })
    }
}

impl Operators {
    /// The layers of a problem: operators of one colour together, with times in
    /// milliseconds as the published graphs have them. What of an operator's bytes are
    /// parameters the format does not say: none are.
    pub fn layers(&self, slowdowns: &[f64]) -> Vec<Layer> {
        let all = groups(self);
        let layer = |group: &super::groups::Group| {
            let own = &group.operators;
            let seconds: f64 = own
                .iter()
                .map(|&i| self.nodes[i].accelerator.unwrap_or(self.nodes[i].core) / 1e3)
                .sum();
            let forward = own.iter().filter(|&&i| !self.nodes[i].backward);
            let mut inputs: Vec<usize> = group.inputs.clone();
            inputs.sort_unstable();
            Layer {
                name: format!("node{}", self.nodes[own[0]].id),
                seconds: slowdowns.iter().map(|slow| seconds * slow).collect(),
                output_bytes: forward.map(|&i| self.nodes[i].output_bytes).sum(),
                parameter_bytes: 0.0,
                inputs,
            }
        };
        all.iter().map(layer).collect()
    }

    /// A profile as operators on the fastest units of a platform: times in milliseconds.
    pub fn of(profile: &Profile, machines: &Machinery) -> Result<Self> {
        let least = (0..machines.units.len())
            .min_by(|a, b| machines.slowdowns[*a].total_cmp(&machines.slowdowns[*b]));
        let Some(fastest) = least else {
            return Err(Error::platform("units", "at least one", "none"));
        };
        let unit = &machines.units[fastest];
        let nodes = profile.nodes.iter().enumerate().map(|(i, node)| {
            let milliseconds = 1e3 * node.seconds * machines.slowdowns[fastest];
            Operator {
                id: i as i64,
                accelerator: Some(milliseconds),
                core: milliseconds,
                bytes: 2.0 * node.parameter_bytes + node.output_bytes,
                colour: i as i64,
                backward: false,
                pass: 1e3 * 2.0 * node.output_bytes / machines.bandwidths[fastest],
                output_bytes: node.output_bytes,
                inputs: node.inputs.clone(),
            }
        });
        Ok(Self {
            nodes: nodes.collect(),
            accelerators: unit.count,
            accelerator_bytes: unit.memory_bytes,
            cores: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A figure that was not there, or misspelt, was 0.
    #[test]
    fn every_node_has_all_figures() {
        let node = |figures: &str| format!("node1 -- Linear -- {figures}\n");
        let whole = "forward_compute_time=1.0, backward_compute_time=2.0, \
                     activation_size=4.0, parameter_size=8.0";
        let read = |figures: &str| Profile::parse(&node(figures), Path::new("graph.txt"));
        assert!(read(whole).is_ok());
        for figure in FIGURES {
            let error = read(&whole.replace(figure, "other")).unwrap_err().to_string();
            assert!(error.contains(&format!("expected {figure}=")), "{error}");
        }
    }

    /// Graphs whose writer has booleans for what others write as 0 and 1 were refused.
    #[test]
    fn yes_and_no_are_words_or_numbers() {
        let graph = |no: &str, yes: &str| {
            format!(
                r#"{{"maxSizePerFPGA": 9, "maxFPGAs": 2, "maxCPUs": 1, "edges": [], "nodes": [
                {{"id": 0, "cpuLatency": 1, "fpgaLatency": 1, "supportedOnFpga": {no}}},
                {{"id": 1, "cpuLatency": 1, "fpgaLatency": 1, "isBackwardNode": {yes}}}]}}"#
            )
        };
        let read = |text: &str| Operators::parse(text, Path::new("graph.json")).unwrap();
        let [numbers, words] = [graph("0", "1.0"), graph("false", "true")].map(|t| read(&t));
        assert_eq!(numbers, words);
        let backward = numbers.nodes.iter().map(|node| (node.accelerator.is_some(), node.backward));
        assert_eq!(backward.collect::<Vec<_>>(), [(false, false), (true, true)]);
        assert!(Operators::parse(&graph("\"no\"", "1"), Path::new("graph.json")).is_err());
    }
}
