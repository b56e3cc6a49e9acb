//! The units, machines and ways of a platform, as pipelines are planned over them.
//!
//! Ways are in `platform_scopes.rs`. A memory that several units have is divided evenly among them.

use super::platform_scopes::Ways;
use crate::error::{Error, Result};
use crate::platform::{
    Expanded, Figure, Link, MemoryId, NodeId, Place, Platform, Route, Sharing, Unit, UnitId,
};
use dahl_certify::{NodeType, Power, Scope, UnitType, Way};

/// Which end of each figure's interval is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watts {
    /// The most likely value.
    #[default]
    Likely,
    /// The least.
    Low,
    /// The most.
    High,
}

impl Watts {
    fn of(self, figure: &Figure) -> f64 {
        match self {
            Self::Likely => figure.value,
            Self::Low => figure.low,
            Self::High => figure.high,
        }
    }
}

/// What a platform has for pipelines.
#[derive(Clone, Debug, PartialEq)]
pub struct Machinery {
    /// Units by type. Equal units of a machine are one type, and so are those of equal machines; a
    /// type of each other kind of machine is a type of its own.
    pub units: Vec<UnitType>,
    /// Kinds of machines.
    pub nodes: Vec<NodeType>,
    /// Parts of the platform whose units are nearer to each other than all units are.
    pub scopes: Vec<Scope>,
    /// How much slower each type is than the unit that a profile was measured on.
    pub slowdowns: Vec<f64>,
    /// The declarations of each type in the platform: kinds of nodes, and their units, by index.
    pub declared: Vec<Vec<(usize, usize)>>,
    /// Their names, such as `server/gpu0`.
    pub declared_names: Vec<Vec<String>>,
    /// Bytes per second, in one direction, of the narrowest way between two units of each type.
    pub bandwidths: Vec<f64>,
}

/// Reads units, machines and ways off a platform. A profile is of the fastest unit where all
/// say their operations per second and speeds do not compare them, since there are several kinds
/// or all are 1; else of units of speed 1.
pub fn machinery(platform: &Platform, watts: Watts) -> Result<Machinery> {
    let all = platform.expand();
    let kinds = equal_kinds(platform);
    let mut nodes = Vec::new();
    let mut declared: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut node_of = Vec::new();
    for (node, same) in kinds.iter().enumerate() {
        let first = &platform.nodes[same[0]];
        let names: Vec<&str> = same.iter().map(|&kind| &*platform.nodes[kind].name).collect();
        nodes.push(NodeType { name: joined(&names), base_watts: watts.of(&first.base_watts) });
        for units in equal_units(&all, same[0])? {
            let of = same.iter().flat_map(|&kind| units.iter().map(move |&unit| (kind, unit)));
            declared.push(of.collect());
            node_of.push(node);
        }
    }
    let of = |(kind, unit): (usize, usize)| &platform.nodes[kind].units[unit];
    let flops: Option<Vec<f64>> =
        declared.iter().map(|of_type| of(of_type[0]).flops.map(|flops| flops.value)).collect();
    // Speeds are those among units of one kind.
    let several = declared.iter().any(|of_type| of(of_type[0]).kind != of(declared[0][0]).kind);
    let plain = declared.iter().all(|of_type| of(of_type[0]).speed.value == 1.0);
    let slowdowns: Vec<f64> = match flops.filter(|_| (plain || several) && declared.len() > 1) {
        Some(flops) => {
            let most = flops.iter().copied().fold(0.0, f64::max);
            flops.iter().map(|own| most / own).collect()
        }
        None => declared.iter().map(|of_type| 1.0 / of(of_type[0]).speed.value).collect(),
    };
    let mut units = Vec::new();
    for (of_type, &node) in declared.iter().zip(&node_of) {
        let kind = of_type[0].0;
        let (machine, it) = (&platform.nodes[kind], of(of_type[0]));
        let on_memory = machine.units.iter().filter(|other| other.memory == it.memory);
        let on_memory: usize = on_memory.map(|other| other.count).sum();
        // In one machine: its units of the type, and those of them in the memory of the first.
        let own = of_type.iter().filter(|(other, _)| *other == kind);
        let own: Vec<&Unit> = own.map(|&place| of(place)).collect();
        let per_node: usize = own.iter().map(|unit| unit.count).sum();
        let sharing = own.iter().filter(|unit| unit.memory == it.memory);
        let sharing: usize = sharing.map(|unit| unit.count).sum();
        let machines: usize = kinds[node].iter().map(|&kind| platform.nodes[kind].count).sum();
        let idle_watts = watts.of(&it.idle_watts);
        let full = Power {
            name: "full".to_owned(),
            speed: 1.0,
            busy_watts: watts.of(&it.busy_watts).max(idle_watts),
        };
        let states = it.states.iter().map(|state| Power {
            name: state.name.clone(),
            speed: state.speed.value,
            busy_watts: watts.of(&state.busy_watts).max(idle_watts),
        });
        let names: Vec<&str> = own.iter().map(|unit| &*unit.name).collect();
        let name = joined(&names);
        let many = nodes.len() > 1 || node_of.iter().filter(|other| **other == node).count() > 1;
        units.push(UnitType {
            name: if many { format!("{}/{name}", nodes[node].name) } else { name },
            count: machines * per_node,
            powers: [full].into_iter().chain(states).collect(),
            idle_watts,
            memory_bytes: (machine.memories[it.memory].bytes / on_memory.max(1) as u64) as f64,
            input: Way::FREE,
            reduce: Way::FREE,
            within: None,
            node,
            per_node: per_node.max(1),
            sharing: sharing.max(1),
        });
    }
    let ways = Ways::of(&all, &declared, &units)?;
    let bandwidths = ways.bandwidths();
    let scopes = ways.scopes(&mut units);
    let name = |&(kind, unit): &(usize, usize)| {
        let node = &platform.nodes[kind];
        format!("{}/{}", node.name, node.units[unit].name)
    };
    let declared_names = declared.iter().map(|all| all.iter().map(name).collect()).collect();
    Ok(Machinery { units, nodes, scopes, slowdowns, declared, declared_names, bandwidths })
}

/// Kinds of nodes that are equal but for their names, and that the same links connect; kinds
/// without nodes are apart.
fn equal_kinds(platform: &Platform) -> Vec<Vec<usize>> {
    let plain = |kind: usize| {
        let mut node = platform.nodes[kind].clone();
        (node.name, node.count) = (String::new(), 1);
        node
    };
    // The links of a kind, with the other places that they connect but for one.
    let links = |kind: usize, but: usize| -> Vec<Link<Place>> {
        let own = Place::Nodes(kind);
        let connected = platform.links.iter().filter(|link| link.connects.contains(&own));
        let plain = |link: &Link<Place>| {
            let mut link = link.clone();
            let both = link.connects.contains(&Place::Nodes(but));
            // A line of its own is like another, a bus of its own is not.
            if link.sharing != Sharing::All {
                link.name = String::new();
            }
            link.connects.retain(|place| *place != own && *place != Place::Nodes(but));
            link.connects.sort_unstable();
            link.connects.extend(both.then_some(own).map(|_| Place::Nodes(usize::MAX)));
            link
        };
        connected.map(plain).collect()
    };
    let mut all: Vec<Vec<usize>> = Vec::new();
    for kind in 0..platform.nodes.len() {
        let here = platform.nodes[kind].count > 0;
        let equal = |same: &Vec<usize>| {
            let other = same[0];
            let there = platform.nodes[other].count > 0;
            here && there && links(kind, other) == links(other, kind) && plain(kind) == plain(other)
        };
        // Machines that nothing connects are no replicas of each other.
        let linked = !links(kind, kind).is_empty();
        match all.iter_mut().find(|same| linked && equal(same)) {
            Some(same) => same.push(kind),
            None => all.push(vec![kind]),
        }
    }
    all
}

/// Units of a machine that are equal but for their names: in one memory, or in equal memories with
/// equal ways to all others. Processors are one type only where they stand beside each other, since
/// the workers of a stage are.
fn equal_units(all: &Expanded<'_>, kind: usize) -> Result<Vec<Vec<usize>>> {
    let machine = &all.platform.nodes[kind];
    let on_memory = |unit: &Unit| {
        let own = machine.units.iter().filter(|other| other.memory == unit.memory);
        own.map(|other| other.count).sum::<usize>()
    };
    let first = all.nodes.iter().position(|of| *of == kind);
    let far = |from: usize, to: usize| -> Result<Option<Route>> {
        let Some(first) = first.filter(|_| from != to) else { return Ok(None) };
        let start = all.memories_of(NodeId(first as u32)).start;
        let route = all.route(MemoryId(start + from as u32), MemoryId(start + to as u32))?;
        Ok(Some(Route { capacities: Vec::new(), ..route }))
    };
    let equal = |a: usize, b: usize| -> Result<bool> {
        let [x, y] = [a, b].map(|unit| &machine.units[unit]);
        let plain = |unit: &Unit| Unit { name: String::new(), memory: 0, ..unit.clone() };
        let [m, n] = [x.memory, y.memory];
        let size = |memory: usize| {
            let memory = &machine.memories[memory];
            (memory.bytes, memory.bandwidth)
        };
        let figures = plain(x) == plain(y) && size(m) == size(n) && on_memory(x) == on_memory(y);
        if !figures || m == n {
            return Ok(figures);
        }
        for other in (0..machine.memories.len()).filter(|other| *other != m && *other != n) {
            if far(m, other)? != far(n, other)? {
                return Ok(false);
            }
        }
        // Links to other machines begin at the first memory.
        Ok(m != 0 && n != 0 || all.platform.links.is_empty())
    };
    let mut types: Vec<Vec<usize>> = Vec::new();
    'units: for unit in 0..machine.units.len() {
        let processor = machine.units[unit].kind.starts_with("cpu");
        for own in &mut types {
            let near = !processor || own.last().is_some_and(|last| last + 1 == unit);
            if near && equal(own[0], unit)? {
                own.push(unit);
                continue 'units;
            }
        }
        types.push(vec![unit]);
    }
    Ok(types)
}

/// One name for several: what they begin with, without numbers at its end.
fn joined(names: &[&str]) -> String {
    let Some((first, rest)) = names.split_first() else { return String::new() };
    if rest.iter().all(|name| name == first) {
        return (*first).to_owned();
    }
    let common = |name: &&str| {
        let same = first.chars().zip(name.chars()).take_while(|(a, b)| a == b);
        same.map(|(c, _)| c.len_utf8()).sum::<usize>()
    };
    let length = rest.iter().map(common).min().unwrap_or(0);
    let stem = first[..length].trim_end_matches(|c: char| !c.is_alphabetic());
    if stem.is_empty() { names.join("+") } else { stem.to_owned() }
}

impl Machinery {
    /// The units of each type, machine by machine.
    pub fn units_of(&self, on: &Expanded<'_>) -> Vec<Vec<UnitId>> {
        let of_type = |declared: &Vec<(usize, usize)>| {
            let units = on.units.iter().enumerate();
            let own = units.filter(|(_, of)| declared.contains(&(of.kind, of.unit)));
            own.map(|(unit, _)| UnitId(unit as u32)).collect()
        };
        self.declared.iter().map(of_type).collect()
    }

    /// No unit of a type can be used.
    pub fn leave_out(&mut self, unit: usize) {
        self.units[unit].count = 0;
        self.scopes.iter_mut().for_each(|scope| scope.types[unit].count = 0);
        self.scopes.retain(|scope| scope.types.iter().any(|reach| reach.count > 0));
    }

    /// No unit may hold more than so many bytes.
    pub fn limit_memory(&mut self, bytes: f64) {
        self.units.iter_mut().for_each(|unit| unit.memory_bytes = unit.memory_bytes.min(bytes));
    }

    /// The type of a name, such as `a40/gpu`; of the name of its machine, or of the beginning of
    /// its own, where no other type has them. Capital letters do not count.
    ///
    /// # Errors
    /// Names the types that it may be.
    pub fn find(&self, name: &str) -> Result<usize> {
        let wanted = name.to_lowercase();
        let names: Vec<String> = self.units.iter().map(|unit| unit.name.to_lowercase()).collect();
        // The names of what a type was made of count too.
        let own = self
            .declared_names
            .iter()
            .position(|all| all.iter().any(|name| name.to_lowercase() == wanted));
        if let Some(unit) = own {
            return Ok(unit);
        }
        let those = |fits: &dyn Fn(&str) -> bool| -> Vec<usize> {
            (0..names.len()).filter(|&i| fits(&names[i])).collect()
        };
        let found = [
            those(&|own| own == wanted),
            those(&|own| own.split_once('/').is_some_and(|(machine, _)| machine == wanted)),
            those(&|own| own.starts_with(&wanted)),
            (0..names.len()).collect(),
        ];
        let closest = found.iter().find(|found| !found.is_empty()).map_or(&[][..], |found| found);
        match closest {
            [one] if names[*one].starts_with(&wanted) => Ok(*one),
            several => {
                let names: Vec<&str> = several.iter().map(|&i| &*self.units[i].name).collect();
                Err(Error::config("unit", format!("one of {}", names.join(", ")), name))
            }
        }
    }
}
