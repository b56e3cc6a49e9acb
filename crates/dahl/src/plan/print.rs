//! The plan as text: TOML, a line per node, a group and a storage
//! (`docs/plan-format.md`).

use super::{
    AxisCut, Group, Home, Layout, MOST_WORKERS, Memory, Numerics, Placement, Plan, PlannedPrograms,
    ProgramMemory, ProgramNumerics, ProgramPlacement, Recompute, Space, SpaceMemory,
};
use crate::error::{Error, Result};
use crate::graph::{Graph, Programs};
use crate::units::{NodeId, SpaceId, WorkerId};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// The version of the plan's text.
pub const VERSION: u32 = 1;

/// The first 16 digits of the text's SHA-256.
fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// What a plan is made for: the programs' graphs and what they share.
pub fn programs_hash(programs: &Programs) -> String {
    let mut text = String::new();
    for value in &programs.store.values {
        let _ = writeln!(text, "{} {} {:?}", value.name, value.meta, value.class);
    }
    for program in &programs.programs {
        let _ = writeln!(
            text,
            "program {:?} {}\n{}",
            program.name, program.output_slots, program.graph
        );
    }
    hash(&text)
}

impl PlannedPrograms {
    /// The hash of what decides the bits, the programs and the numerics: plans
    /// with equal hashes give the same results.
    pub fn numerics_hash(&self) -> String {
        hash(&(programs_hash(self.programs()) + &numerics_text(&self.numerics, self.programs())))
    }

    /// The plan as text.
    pub fn to_text(&self) -> String {
        let mut body = String::new();
        let _ = writeln!(body, "programs = \"{}\"", programs_hash(self.programs()));
        let _ = writeln!(body, "bits = \"{}\"", self.numerics_hash());
        body += &numerics_text(&self.numerics, self.programs());
        body += &placement_text(self);
        body += &memory_text(self);
        let _ = writeln!(body, "\n[prediction]\nbytes = {}", self.memory.peak().0);
        format!("dahl_plan = {VERSION}\nhash = \"{}\"\n{body}", hash(&body))
    }

    /// Reads a plan and checks it against the programs.
    ///
    /// A plan that was edited has another hash: without its `hash` line it is
    /// taken as it is, as long as it contradicts nothing.
    pub fn parse(text: &str, programs: &Programs) -> Result<Self> {
        let wrong = |place: &str, expected: &str, found: &str| Error::plan(place, expected, found);
        let read: Text =
            toml::from_str(text).map_err(|e| wrong("text", "a plan", e.to_string().trim_end()))?;
        if read.dahl_plan != VERSION {
            let expected = format!("version {VERSION}");
            return Err(wrong("dahl_plan", &expected, &read.dahl_plan.to_string()));
        }
        let made_for = programs_hash(programs);
        if read.programs != made_for {
            let expected = format!("a plan for these programs ({made_for})");
            let found = format!("one for {}: {}", read.programs, read.difference(programs));
            return Err(Error::other_programs(expected, found));
        }
        let planned = Self::new(programs, read.plan(programs)?)?;
        if let Some(stored) = read.hash {
            let (_, body) = text.split_once("hash = ").unwrap_or_default();
            let expected = hash(body.split_once('\n').unwrap_or_default().1);
            if expected != stored {
                let found = format!("{stored}: it was edited; remove the line to use it");
                return Err(wrong("hash", &expected, &found));
            }
        }
        Ok(planned)
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn numerics_text(numerics: &Numerics, programs: &Programs) -> String {
    let mut text = format!("\n[numerics]\nisa = {}\n", quoted(numerics.isa.name()));
    if programs.shards.count() > 1 {
        let _ = writeln!(text, "shards = {:?}", programs.shards.shares());
    }
    for (part, program) in numerics.programs.iter().zip(&programs.programs) {
        let _ = writeln!(text, "\n[numerics.{}]\nnodes = [", quoted(&program.name));
        for (i, node) in program.graph.nodes.iter().enumerate() {
            let variant = node.op.variants()[part.variants[i]];
            let _ = writeln!(
                text,
                "  {{ node = {i}, op = {}, path = {}, variant = {}, blocks = {} }},",
                quoted(node.op.name()),
                quoted(&node.path),
                quoted(variant),
                part.blocks[i]
            );
        }
        text += "]\n";
    }
    text
}

fn placement_text(planned: &PlannedPrograms) -> String {
    let (placement, expanded) = (&planned.placement, planned.expanded());
    let mut text = format!("\n[placement]\nworkers = {}\n", placement.workers);
    if placement.spaces.len() > 1 {
        let spaces: Vec<String> = placement.spaces.iter().map(Space::to_string).collect();
        let of: Vec<u32> = placement.space_of.iter().map(|space| space.0).collect();
        let _ = writeln!(text, "spaces = {spaces:?}\nspace_of = {of:?}");
    }
    if !placement.units.is_empty() {
        let units: Vec<String> = placement.units.iter().map(|unit| quoted(unit)).collect();
        let _ = writeln!(text, "units = [{}]", units.join(", "));
    }
    if !placement.ahead.is_empty() {
        let _ = writeln!(text, "ahead = {:?}", placement.ahead);
    }
    for (i, (part, program)) in placement.programs.iter().zip(&expanded.programs).enumerate() {
        let _ = writeln!(text, "\n[placement.{}]", quoted(&program.name));
        let again = &planned.recompute.programs[i];
        if !again.is_empty() {
            let graph = &planned.programs().programs[i].graph;
            let again = again.iter().map(|id| quoted(&call_text(graph, *id, &[])));
            let _ = writeln!(text, "recompute = [{}]", again.collect::<Vec<_>>().join(", "));
        }
        text += "groups = [\n";
        for group in &part.groups {
            let calls: Vec<String> = group
                .nodes
                .iter()
                .zip(&group.cuts)
                .map(|(id, cuts)| quoted(&call_text(&program.graph, *id, cuts)))
                .collect();
            let workers: Vec<String> = group.workers.iter().map(|w| w.0.to_string()).collect();
            let _ = writeln!(
                text,
                "  {{ {}workers = [{}], calls = [{}] }},",
                if group.everywhere { "everywhere = true, " } else { "" },
                workers.join(", "),
                calls.join(", ")
            );
        }
        text += "]\n";
    }
    text
}

/// `12 conv2d 0/2 1/3`: node 12, a conv2d, in 2 pieces along axis 0 and 3
/// along axis 1.
fn call_text(graph: &Graph, id: NodeId, cuts: &[AxisCut]) -> String {
    let mut text = format!("{} {}", id.0, graph.node(id).op.name());
    for cut in cuts {
        let _ = write!(text, " {cut}");
    }
    text
}

fn memory_text(planned: &PlannedPrograms) -> String {
    let (memory, expanded) = (&planned.memory, planned.expanded());
    let mut text = format!("\n[memory]\ninput_slots = {}\npersistent = [\n", memory.input_slots);
    let spaces = &planned.placement.spaces;
    // Of one space, there is no need to say it.
    let space_of = |space: SpaceId| match spaces.len() {
        1 => String::new(),
        _ => format!(", space = \"{}\"", spaces[space.index()]),
    };
    for (replica, offset) in memory.replicas.iter().zip(&memory.persistent) {
        let (name, bytes) =
            (&expanded.store.get(replica.value).name, replica.bytes(&expanded.store));
        let rows = if spaces.len() > 1 {
            format!(", box = \"{}\"", replica.region)
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "  {{ name = {}, offset = {offset}, bytes = {bytes}{rows}{} }},",
            quoted(name),
            space_of(replica.space)
        );
    }
    let _ =
        writeln!(text, "]\npersistent_bytes = {}", each(memory.persistent_bytes.iter().copied()));
    for ((part, program), graph) in
        memory.programs.iter().zip(&expanded.programs).zip(planned.graphs())
    {
        let _ = writeln!(
            text,
            "\n[memory.{}]\ninputs = {}\noutputs = {}\noutput_slots = {}\nwork = {}\nscratch = {}\nstorages = [",
            quoted(&program.name),
            each(part.spaces.iter().map(|of| of.inputs)),
            each(part.spaces.iter().map(|of| of.outputs)),
            part.output_slots,
            each(part.spaces.iter().map(|of| of.work)),
            each(part.spaces.iter().map(|of| of.scratch))
        );
        let layout: &Layout = &graph.layout;
        for (storage, offset) in layout.storages.iter().zip(&part.offsets) {
            let home = match storage.home {
                Home::Input => "input",
                Home::Output => "output",
                Home::Persistent(_) => "persistent",
                Home::Work => "work",
            };
            let _ = writeln!(
                text,
                "  {{ value = {}, name = {}, box = {}, home = \"{home}\", offset = {offset}, bytes = {}{} }},",
                storage.root.0,
                quoted(&program.graph.value(storage.root).name),
                quoted(&storage.region.to_string()),
                storage.bytes,
                space_of(storage.space)
            );
        }
        text += "]\n";
    }
    text
}

/// A number per space: of one space just that.
fn each(numbers: impl Iterator<Item = usize>) -> String {
    let all: Vec<usize> = numbers.collect();
    if let [one] = all[..] { one.to_string() } else { format!("{all:?}") }
}

/// What [`each`] prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum Each {
    One(usize),
    All(Vec<usize>),
}

impl Each {
    fn of(&self, space: usize) -> Option<usize> {
        match self {
            Self::One(one) => (space == 0).then_some(*one),
            Self::All(all) => all.get(space).copied(),
        }
    }

    fn to_vec(&self) -> Vec<usize> {
        (0..).map_while(|space| self.of(space)).collect()
    }
}

/// The text's structure; names that are there for people are checked by the
/// hash of the programs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    dahl_plan: u32,
    hash: Option<String>,
    programs: String,
    #[serde(rename = "bits")]
    _bits: String,
    numerics: Section<NumericsHead, NodesText>,
    placement: Section<PlacementHead, GroupsText>,
    memory: Section<MemoryHead, StoragesText>,
    #[serde(rename = "prediction")]
    _prediction: PredictionText,
}

#[derive(Deserialize)]
struct Section<H, P> {
    #[serde(flatten)]
    head: H,
    #[serde(flatten)]
    programs: std::collections::BTreeMap<String, P>,
}

#[derive(Deserialize)]
struct NumericsHead {
    isa: String,
    #[serde(default)]
    shards: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodesText {
    nodes: Vec<NodeText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeText {
    node: usize,
    op: String,
    path: String,
    variant: String,
    blocks: usize,
}

#[derive(Deserialize)]
struct PlacementHead {
    workers: usize,
    #[serde(default)]
    spaces: Vec<String>,
    #[serde(default)]
    space_of: Vec<u32>,
    #[serde(default)]
    units: Vec<String>,
    #[serde(default)]
    ahead: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupsText {
    #[serde(default)]
    recompute: Vec<String>,
    groups: Vec<GroupText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
    #[serde(default)]
    everywhere: bool,
    workers: Vec<u32>,
    calls: Vec<String>,
}

#[derive(Deserialize)]
struct MemoryHead {
    input_slots: usize,
    persistent: Vec<PersistentText>,
    persistent_bytes: Each,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PersistentText {
    #[serde(rename = "name")]
    _name: String,
    offset: usize,
    #[serde(rename = "bytes")]
    _bytes: usize,
    #[serde(rename = "space", default)]
    _space: String,
    #[serde(rename = "box", default)]
    _box: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoragesText {
    inputs: Each,
    outputs: Each,
    output_slots: usize,
    work: Each,
    scratch: Each,
    storages: Vec<StorageText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StorageText {
    #[serde(rename = "value")]
    _value: u32,
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "box")]
    _box: String,
    #[serde(rename = "home")]
    _home: String,
    offset: usize,
    #[serde(rename = "bytes")]
    _bytes: usize,
    #[serde(rename = "space", default)]
    _space: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PredictionText {
    #[serde(rename = "bytes")]
    _bytes: u64,
}

impl Text {
    /// In what the programs that it is for differ from others, as far as it says.
    fn difference(&self, programs: &Programs) -> String {
        for program in &programs.programs {
            let Some(part) = self.numerics.programs.get(&program.name) else {
                let names: Vec<&str> = self.numerics.programs.keys().map(|n| &**n).collect();
                return format!("it has {1}, not {0:?}", program.name, names.join(", "));
            };
            let nodes = &program.graph.nodes;
            for (i, node) in nodes.iter().enumerate() {
                let here = format!("{} {:?}", node.op.name(), node.path);
                match part.nodes.get(i).map(|line| format!("{} {:?}", line.op, line.path)) {
                    Some(there) if there == here => {}
                    there => {
                        let there = there.unwrap_or("nothing".to_owned());
                        let name = &program.name;
                        return format!(
                            "node {i} of {name:?} is {there} in the plan and {here} in the program"
                        );
                    }
                }
            }
        }
        "the same ops on other shapes, elements or with other settings".to_owned()
    }

    fn plan(&self, programs: &Programs) -> Result<Plan> {
        let shards = &self.numerics.head.shards;
        if shards != programs.shards.shares() {
            let shares = |shares: &[usize]| match shares {
                [] => "one shard".to_owned(),
                shares => format!("shards {shares:?}"),
            };
            return Err(Error::plan("numerics", shares(programs.shards.shares()), shares(shards)));
        }
        let numerics = programs.programs.iter().map(|program| {
            let part = section(&self.numerics.programs, "numerics", &program.name)?;
            let nodes = &program.graph.nodes;
            let place = format!("numerics of {:?}", program.name);
            if part.nodes.len() != nodes.len() {
                let expected = format!("{} nodes", nodes.len());
                return Err(Error::plan(place, expected, part.nodes.len()));
            }
            let mut result = ProgramNumerics::default();
            for (i, (line, node)) in part.nodes.iter().zip(nodes).enumerate() {
                if line.node != i || line.op != node.op.name() {
                    let expected = format!("node {i}, {}", node.op.name());
                    return Err(Error::plan(place, expected, format!("{} {}", line.node, line.op)));
                }
                let variant = node.op.variants().iter().position(|v| *v == line.variant);
                let Some(variant) = variant else {
                    let expected = format!("one of {:?} for node {i}", node.op.variants());
                    return Err(Error::plan(place, expected, &line.variant));
                };
                result.variants.push(variant);
                result.blocks.push(line.blocks);
            }
            Ok(result)
        });
        let numerics = Numerics {
            isa: self.numerics.head.isa.parse().map_err(|expected: String| {
                Error::plan("numerics", expected, &self.numerics.head.isa)
            })?,
            programs: numerics.collect::<Result<_>>()?,
        };
        let again = programs.programs.iter().map(|program| {
            let part = section(&self.placement.programs, "placement", &program.name)?;
            part.recompute.iter().map(|node| repeated(node, &program.graph)).collect()
        });
        let recompute = Recompute { programs: again.collect::<Result<_>>()? };
        let placed = programs.programs.iter().map(|program| {
            let part = section(&self.placement.programs, "placement", &program.name)?;
            let groups = part.groups.iter().enumerate().map(|(g, group)| {
                let place = format!("placement of {:?}, group {g}", program.name);
                let mut result = Group {
                    nodes: Vec::new(),
                    cuts: Vec::new(),
                    workers: group.workers.iter().map(|&w| WorkerId(w)).collect(),
                    everywhere: group.everywhere,
                };
                for call in &group.calls {
                    let Some((node, cuts)) = parse_call(call) else {
                        return Err(Error::plan(place, "a node, its op and axis/count", call));
                    };
                    result.nodes.push(node);
                    result.cuts.push(cuts);
                }
                Ok(result)
            });
            Ok(ProgramPlacement { groups: groups.collect::<Result<_>>()? })
        });
        let head = &self.placement.head;
        let mut placement =
            Placement::new(head.workers.min(MOST_WORKERS + 1), placed.collect::<Result<_>>()?);
        // Too many are refused when the plan is checked.
        placement.workers = head.workers;
        placement.ahead.clone_from(&head.ahead);
        placement.units.clone_from(&head.units);
        if !head.spaces.is_empty() {
            placement.spaces =
                head.spaces.iter().map(|name| name.parse()).collect::<Result<_>>()?;
            placement.space_of = head.space_of.iter().map(|&space| SpaceId(space)).collect();
        }
        let memories = programs.programs.iter().map(|program| {
            let part = section(&self.memory.programs, "memory", &program.name)?;
            Ok(ProgramMemory {
                offsets: part.storages.iter().map(|s| s.offset).collect(),
                output_slots: part.output_slots,
                spaces: (0..)
                    .map_while(|space| {
                        Some(SpaceMemory {
                            inputs: part.inputs.of(space)?,
                            outputs: part.outputs.of(space)?,
                            work: part.work.of(space)?,
                            scratch: part.scratch.of(space)?,
                        })
                    })
                    .collect(),
            })
        });
        let head = &self.memory.head;
        let memory = Memory {
            input_slots: head.input_slots,
            persistent: head.persistent.iter().map(|p| p.offset).collect(),
            persistent_bytes: head.persistent_bytes.to_vec(),
            programs: memories.collect::<Result<_>>()?,
            workers: super::memory::workers(&placement),
            // They follow from the placement.
            replicas: Vec::new(),
        };
        Ok(Plan { numerics, recompute, placement, memory })
    }
}

fn section<'a, P>(
    parts: &'a std::collections::BTreeMap<String, P>,
    section: &str,
    program: &str,
) -> Result<&'a P> {
    parts
        .get(program)
        .ok_or_else(|| Error::plan(section, format!("a part for {program:?}"), "none"))
}

/// `12 conv2d`: node 12 of the lowered graph, a conv2d.
fn repeated(text: &str, graph: &Graph) -> Result<NodeId> {
    let found = parse_call(text).map(|(id, _)| id).filter(|id| {
        let node = graph.nodes.get(id.index());
        node.is_some_and(|_| call_text(graph, *id, &[]) == text)
    });
    found.ok_or_else(|| Error::plan("recompute", "a node of the lowered graph and its op", text))
}

fn parse_call(text: &str) -> Option<(NodeId, Vec<AxisCut>)> {
    let mut words = text.split_whitespace();
    let node = NodeId(words.next()?.parse().ok()?);
    words.next()?;
    Some((node, words.map(AxisCut::parse).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Builder, Program, Store};
    use crate::ops::Meta;
    use dahl_kernels::DType;

    fn programs() -> Programs {
        let mut store = Store::default();
        let mut b = Builder::new(&mut store);
        let x = b.input("x", Meta::new([4, 2], DType::F64));
        let y = b.ops().relu(x);
        let sum = b.ops().sum_channels(y);
        b.fetch("sum", sum);
        let graph = b.finish().unwrap();
        Programs {
            store,
            programs: vec![Program { name: "p".into(), graph, output_slots: 2, turn: 0 }],
            ..Programs::default()
        }
    }

    fn plan(programs: &Programs) -> PlannedPrograms {
        let group = |nodes: &[u32], cuts: &[(usize, usize)], workers: &[u32]| {
            let cuts: Vec<AxisCut> = cuts.iter().map(|&cut| cut.into()).collect();
            Group::new(
                nodes.iter().map(|&n| NodeId(n)).collect(),
                vec![cuts; nodes.len()],
                workers.iter().map(|&w| WorkerId(w)).collect(),
            )
        };
        let groups = vec![group(&[0, 1], &[(0, 2)], &[0, 1]), group(&[2], &[], &[0])];
        let placement = Placement::new(2, vec![ProgramPlacement::new(groups)]);
        let mut numerics = Numerics::default_for(programs, crate::Isa::detect());
        numerics.programs[0].blocks = vec![1, 4];
        PlannedPrograms::placed(programs, numerics, placement).unwrap()
    }

    #[test]
    fn text_is_read_back() {
        let programs = programs();
        let plan = plan(&programs);
        let text = plan.to_text();
        assert_eq!(*PlannedPrograms::parse(&text, &programs).unwrap(), *plan);
        assert!(text.contains("calls = [\"0 relu 0/2\", \"1 sum_channels 0/2\"]"), "{text}");
    }

    #[test]
    fn an_edited_plan_is_refused_until_its_hash_is_dropped() {
        let programs = programs();
        let text = plan(&programs).to_text();
        let edited = text.replace("workers = [0, 1]", "workers = [1, 0]");
        let error = PlannedPrograms::parse(&edited, &programs).unwrap_err().to_string();
        assert!(error.contains("it was edited; remove the line to use it"), "{error}");
        let without: String =
            edited.lines().filter(|l| !l.starts_with("hash")).map(|l| format!("{l}\n")).collect();
        assert!(PlannedPrograms::parse(&without, &programs).is_ok());
    }

    #[test]
    fn what_contradicts_the_programs_is_refused() {
        let programs = programs();
        let text = plan(&programs).to_text();
        for (from, to, expected) in [
            ("dahl_plan = 1", "dahl_plan = 9", "dahl_plan: expected version 1, found 9"),
            ("0 relu 0/2", "0 relu 7/2", "expected relu cut along one of the axes [0, 1]"),
            ("workers = [0, 1]", "workers = [0, 5]", "expected one of 2 workers, found w5"),
            ("variant = \"plain\"", "variant = \"magic\"", "expected one of [\"plain\"]"),
            ("programs = \"", "programs = \"x", "the same ops on other shapes"),
            ("programs = \"", "programs = \"x", "expected a plan for these programs"),
        ] {
            let error =
                PlannedPrograms::parse(&text.replace(from, to), &programs).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
