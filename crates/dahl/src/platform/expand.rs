//! Every node, memory and unit of a platform, and the ways between memories.

use super::{Link, Node, Place, Platform, Sharing, Unit};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// A node of an expanded platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A memory of an expanded platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryId(pub u32);

/// A unit of an expanded platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u32);

/// Bytes a second that several may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapacityId(pub u32);

/// The owner of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOf {
    /// Its node.
    pub node: NodeId,
    /// The kind of that node, by index.
    pub kind: usize,
    /// Which memory of the kind it is.
    pub memory: usize,
}

/// The owner of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitOf {
    /// Its node.
    pub node: NodeId,
    /// The kind of that node, by index.
    pub kind: usize,
    /// Which unit type of the kind it is.
    pub unit: usize,
    /// The memory that it computes in.
    pub memory: MemoryId,
}

/// The way from a memory to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// The shared capacities on the path.
    pub capacities: Vec<CapacityId>,
    /// The bytes per second of the narrowest link.
    pub bandwidth: f64,
    /// Seconds until the first byte arrives.
    pub latency: f64,
    /// Joules for each byte.
    pub joules_per_byte: f64,
    /// Seconds for a byte in each direction, of the link that takes longest: links whose directions
    /// are apart carry both at once.
    pub round_trip_per_byte: f64,
    /// What shares that link.
    pub narrowest: Sharing,
}

/// A platform with everything counted out.
#[derive(Debug)]
pub struct Expanded<'a> {
    /// Its platform.
    pub platform: &'a Platform,
    /// The kind of each node, by index.
    pub nodes: Vec<usize>,
    /// All memories, node by node.
    pub memories: Vec<MemoryOf>,
    /// All units, node by node.
    pub units: Vec<UnitOf>,
    /// Bytes per second of everything that is shared; the memories come first.
    pub capacities: Vec<f64>,
    /// Where the capacities of a link between nodes begin.
    between: Vec<usize>,
    /// Where the capacities of a node's own links begin, by node.
    inside: Vec<usize>,
    /// The first node of each kind.
    first_node: Vec<usize>,
    /// The first memory of each node.
    first_memory: Vec<u32>,
}

/// A step of a way between places: a link, and the places before and after it.
type Step<P> = (usize, P, P);

impl Platform {
    /// Counts out nodes, memories, units and what is shared.
    pub fn expand(&self) -> Expanded<'_> {
        let mut result = Expanded {
            platform: self,
            nodes: Vec::new(),
            memories: Vec::new(),
            units: Vec::new(),
            capacities: Vec::new(),
            between: Vec::new(),
            inside: Vec::new(),
            first_node: Vec::new(),
            first_memory: Vec::new(),
        };
        for (kind, node) in self.nodes.iter().enumerate() {
            result.first_node.push(result.nodes.len());
            for _ in 0..node.count {
                let (id, first) = (NodeId(result.nodes.len() as u32), result.memories.len() as u32);
                result.nodes.push(kind);
                result.first_memory.push(first);
                for (memory, it) in node.memories.iter().enumerate() {
                    result.memories.push(MemoryOf { node: id, kind, memory });
                    result.capacities.push(it.bandwidth.value);
                }
                for (unit, it) in node.units.iter().enumerate() {
                    let memory = MemoryId(first + it.memory as u32);
                    let of = UnitOf { node: id, kind, unit, memory };
                    result.units.extend(std::iter::repeat_n(of, it.count));
                }
            }
        }
        for link in &self.links {
            result.between.push(result.capacities.len());
            result.add_capacities(link, self.ends(link));
        }
        for node in 0..result.nodes.len() {
            result.inside.push(result.capacities.len());
            for link in &self.nodes[result.nodes[node]].links {
                result.add_capacities(link, link.connects.len());
            }
        }
        result
    }

    /// What no link leads to, from the first memory of a node or from the first
    /// node: machines that are only looked at need no links, runs do.
    pub fn unconnected(&self) -> Vec<Error> {
        let mut few = self.clone();
        for node in &mut few.nodes {
            node.count = node.count.min(2);
            node.units.clear();
        }
        let all = few.expand();
        let mut errors = Vec::new();
        for node in (0..all.nodes.len()).map(|node| NodeId(node as u32)) {
            let kind = all.nodes[node.0 as usize];
            let memories = all.memories_of(node);
            let first = MemoryId(memories.start);
            let others = if all.first_node[kind] == node.0 as usize {
                // Nodes of other kinds and memories of this one.
                errors.extend(all.route(MemoryId(0), first).err());
                memories.skip(1).map(MemoryId).collect()
            } else {
                vec![MemoryId(all.memories_of(NodeId(node.0 - 1)).start)]
            };
            errors.extend(others.into_iter().filter_map(|other| all.route(first, other).err()));
        }
        errors
    }

    /// Number of nodes and switches that a link connects.
    pub(super) fn ends(&self, link: &Link<Place>) -> usize {
        let ends = link.connects.iter().map(|place| match place {
            Place::Nodes(kind) => self.nodes[*kind].count,
            Place::Switch(_) => 1,
        });
        ends.sum()
    }
}

/// Number of capacities of a link with so many ends.
fn capacities<P>(link: &Link<P>, ends: usize) -> usize {
    match link.sharing {
        Sharing::All => 1,
        Sharing::Ends => 2 * ends,
        Sharing::Nobody => 0,
    }
}

impl Expanded<'_> {
    fn add_capacities<P>(&mut self, link: &Link<P>, ends: usize) {
        let count = capacities(link, ends);
        self.capacities.extend(std::iter::repeat_n(link.bandwidth.value, count));
    }

    /// The bandwidth of a memory, as something that is shared.
    pub fn memory_capacity(&self, memory: MemoryId) -> CapacityId {
        CapacityId(memory.0)
    }

    /// The unit that a text such as `desktop[2]/core[5]` names: without numbers the
    /// first, without a unit the first of the node; else what was expected.
    pub fn find(&self, text: &str) -> std::result::Result<UnitId, String> {
        let (node, unit) = match text.split_once('/') {
            Some((node, unit)) => (node, Some(unit)),
            None => (text, None),
        };
        let (node, which) = numbered(node)?;
        let kinds = &self.platform.nodes;
        let Some(kind) = kinds.iter().position(|kind| kind.name == node) else {
            let names: Vec<&str> = kinds.iter().map(|kind| &*kind.name).collect();
            return Err(format!("a unit of one of the nodes {}", names.join(", ")));
        };
        if which >= kinds[kind].count {
            return Err(format!("a number below {}, of nodes {node:?}", kinds[kind].count));
        }
        let id = NodeId((self.first_node[kind] + which) as u32);
        let units = &kinds[kind].units;
        let (name, which) = match unit {
            Some(unit) => numbered(unit)?,
            None => (units.first().map_or("", |unit| &unit.name), 0),
        };
        let Some(place) = units.iter().position(|unit| unit.name == name) else {
            let names: Vec<&str> = units.iter().map(|unit| &*unit.name).collect();
            return Err(format!("one of the units {} of node {node:?}", names.join(", ")));
        };
        if which >= units[place].count {
            return Err(format!("a number below {}, of units {name:?}", units[place].count));
        }
        // Units are counted out node by node.
        let first = self.units.partition_point(|of| of.node < id);
        let skipped: usize = units[..place].iter().map(|unit| unit.count).sum();
        Ok(UnitId((first + skipped + which) as u32))
    }

    /// The declaration of a unit.
    pub fn unit(&self, unit: UnitId) -> &Unit {
        let of = self.units[unit.0 as usize];
        &self.platform.nodes[of.kind].units[of.unit]
    }

    /// The name of a unit, such as `desktop[2]/core[5]`.
    pub fn name_of(&self, unit: UnitId) -> String {
        let of = self.units[unit.0 as usize];
        // Units of a type follow each other.
        let same = |u: &&UnitOf| u.node == of.node && u.unit == of.unit;
        let before = self.units[..unit.0 as usize].iter().rev().take_while(same).count();
        format!("{}/{}[{before}]", self.name_of_node(of.node), self.unit(unit).name)
    }

    /// The name of a memory, such as `desktop[2]/ram`.
    pub fn name_of_memory(&self, memory: MemoryId) -> String {
        let of = self.memories[memory.0 as usize];
        let name = &self.platform.nodes[of.kind].memories[of.memory].name;
        format!("{}/{name}", self.name_of_node(of.node))
    }

    /// The name of a node, such as `desktop[2]`.
    pub fn name_of_node(&self, node: NodeId) -> String {
        let kind = self.nodes[node.0 as usize];
        let which = node.0 as usize - self.first_node[kind];
        format!("{}[{which}]", self.platform.nodes[kind].name)
    }

    /// The declaration of a node.
    pub fn node(&self, node: NodeId) -> &Node {
        &self.platform.nodes[self.nodes[node.0 as usize]]
    }

    /// The memories of a node.
    pub fn memories_of(&self, node: NodeId) -> Range<u32> {
        let first = self.first_memory[node.0 as usize];
        first..first + self.platform.nodes[self.nodes[node.0 as usize]].memories.len() as u32
    }

    /// The shortest way between two memories, over as few links as possible; of
    /// equal ones that of the links that stand first.
    pub fn route(&self, from: MemoryId, to: MemoryId) -> Result<Route> {
        let [a, b] = [from, to].map(|m| self.memories[m.0 as usize]);
        let mut route = Route { bandwidth: f64::INFINITY, ..Route::default() };
        if a.node == b.node {
            self.within(&mut route, a.node, a.memory, b.memory)?;
        } else {
            self.within(&mut route, a.node, a.memory, 0)?;
            self.across(&mut route, a, b)?;
            self.within(&mut route, b.node, 0, b.memory)?;
        }
        Ok(route)
    }

    /// Adds the way between two memories of a node.
    fn within(&self, route: &mut Route, node: NodeId, from: usize, to: usize) -> Result<()> {
        let kind = &self.platform.nodes[self.nodes[node.0 as usize]];
        let Some(steps) = shortest(&kind.links, from, to) else {
            let name = |m: usize| &kind.memories[m].name;
            let found = format!("none from {:?} to {:?}", name(from), name(to));
            return Err(Error::platform(format!("node {:?}", kind.name), "a link", found));
        };
        for (link, before, after) in steps {
            let skipped = kind.links[..link].iter().map(|l| capacities(l, l.connects.len()));
            let first = self.inside[node.0 as usize] + skipped.sum::<usize>();
            let link = &kind.links[link];
            let end = |m| link.connects.iter().position(|c| *c == m).expect("an end of the link");
            route.add(link, first, [Some(end(before)), Some(end(after))]);
        }
        Ok(())
    }

    /// Adds the way between two nodes.
    fn across(&self, route: &mut Route, from: MemoryOf, to: MemoryOf) -> Result<()> {
        let links = &self.platform.links;
        let [a, b] = [from, to].map(|of| Place::Nodes(of.kind));
        let steps = if a == b {
            // Over a link that both are on.
            let link = links.iter().position(|l| l.connects.contains(&a));
            link.map(|link| vec![(link, a, b)])
        } else {
            shortest(links, a, b)
        };
        let Some(steps) = steps else {
            let name = |of: MemoryOf| &self.platform.nodes[of.kind].name;
            let found = format!("none from {:?} to {:?}", name(from), name(to));
            return Err(Error::platform("links", "a way between nodes", found));
        };
        let last = steps.len() - 1;
        for (i, (link, before, after)) in steps.into_iter().enumerate() {
            let first = self.between[link];
            let link = &links[link];
            // Kinds in between stand for whoever passes the bytes on, and a switch is never
            // the limit: no one's end.
            let before = match before {
                Place::Nodes(_) if i > 0 => None,
                Place::Switch(_) => None,
                place => Some(self.end(link, place, from.node)),
            };
            let after = match after {
                Place::Nodes(_) if i < last => None,
                Place::Switch(_) => None,
                place => Some(self.end(link, place, to.node)),
            };
            route.add(link, first, [before, after]);
        }
        Ok(())
    }

    /// Which of a link's ends a node or switch has.
    fn end(&self, link: &Link<Place>, place: Place, node: NodeId) -> usize {
        let mut end = 0;
        for connected in &link.connects {
            match *connected {
                _ if *connected == place => break,
                Place::Nodes(kind) => end += self.platform.nodes[kind].count,
                Place::Switch(_) => end += 1,
            }
        }
        match place {
            Place::Nodes(kind) => end + node.0 as usize - self.first_node[kind],
            Place::Switch(_) => end,
        }
    }
}

impl Route {
    /// Adds a link whose capacities begin at `first`, from an end to another.
    fn add<P>(&mut self, link: &Link<P>, first: usize, ends: [Option<usize>; 2]) {
        let id = |offset: usize| CapacityId((first + offset) as u32);
        match link.sharing {
            Sharing::All => self.capacities.push(id(0)),
            Sharing::Ends => {
                self.capacities.extend(ends[0].map(|end| id(2 * end)));
                self.capacities.extend(ends[1].map(|end| id(2 * end + 1)));
            }
            Sharing::Nobody => {}
        }
        let round_trip = match link.sharing {
            Sharing::All => 2.0 / link.bandwidth.value,
            Sharing::Ends | Sharing::Nobody => 1.0 / link.bandwidth.value,
        };
        if round_trip > self.round_trip_per_byte {
            (self.round_trip_per_byte, self.narrowest) = (round_trip, link.sharing);
        }
        self.bandwidth = self.bandwidth.min(link.bandwidth.value);
        self.latency += link.latency.value;
        self.joules_per_byte += link.joules_per_byte.value;
    }
}

/// The fewest links from a place to another.
fn shortest<P: Copy + Ord>(links: &[Link<P>], from: P, to: P) -> Option<Vec<Step<P>>> {
    let mut reached: BTreeMap<P, Option<Step<P>>> = BTreeMap::from([(from, None)]);
    let mut queue = VecDeque::from([from]);
    while let Some(place) = queue.pop_front() {
        if place == to {
            break;
        }
        for (l, link) in links.iter().enumerate().filter(|(_, l)| l.connects.contains(&place)) {
            for &next in &link.connects {
                reached.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    Some((l, place, next))
                });
            }
        }
    }
    let mut steps = Vec::new();
    let mut at = to;
    while let Some(step) = *reached.get(&at)? {
        steps.push(step);
        at = step.1;
    }
    steps.reverse();
    Some(steps)
}

/// A name and the number in brackets behind it, or 0.
fn numbered(text: &str) -> std::result::Result<(&str, usize), String> {
    let Some((name, rest)) = text.split_once('[') else { return Ok((text, 0)) };
    let number = rest.strip_suffix(']').and_then(|number| number.parse().ok());
    number.map(|number| (name, number)).ok_or_else(|| "a number such as [2]".to_owned())
}
