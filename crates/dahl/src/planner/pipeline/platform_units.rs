//! The units, machines and ways of a platform, as pipelines are planned over them.
//!
//! A type is fed over the narrowest way from any other unit, and sums gradients over the
//! narrowest way between two of its own: so that a plan holds wherever its stages are.
//! A memory that several units have is divided evenly among them.

use crate::error::{Error, Result};
use crate::platform::{Expanded, Figure, MemoryId, Platform, Route};
use dahl_certify::{NodeType, Power, UnitType, Way};

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
    /// Units by type; a type of each kind of machine is a type of its own.
    pub units: Vec<UnitType>,
    /// Kinds of machines.
    pub nodes: Vec<NodeType>,
    /// How much slower each type is than the unit that a profile was measured on.
    pub slowdowns: Vec<f64>,
}

/// Reads units, machines and ways off a platform. A profile is of the fastest unit where all
/// say their operations per second and speeds do not compare them, since there are several kinds
/// or all are 1; else of units of speed 1.
pub fn machinery(platform: &Platform, watts: Watts) -> Result<Machinery> {
    let all = platform.expand();
    let mut types = Vec::new();
    let mut nodes = Vec::new();
    for (kind, node) in platform.nodes.iter().enumerate() {
        nodes.push(NodeType { name: node.name.clone(), base_watts: watts.of(&node.base_watts) });
        types.extend((0..node.units.len()).map(|unit| (kind, unit)));
    }
    let of = |(kind, unit): (usize, usize)| &platform.nodes[kind].units[unit];
    let flops: Option<Vec<f64>> =
        types.iter().map(|&place| of(place).flops.map(|flops| flops.value)).collect();
    // Speeds are those among units of one kind.
    let kinds = types.iter().any(|&place| of(place).kind != of(types[0]).kind);
    let plain = types.iter().all(|&place| of(place).speed.value == 1.0);
    let slowdowns: Vec<f64> = match flops.filter(|_| (plain || kinds) && types.len() > 1) {
        Some(flops) => {
            let most = flops.iter().copied().fold(0.0, f64::max);
            flops.iter().map(|own| most / own).collect()
        }
        None => types.iter().map(|&place| 1.0 / of(place).speed.value).collect(),
    };
    let mut units = Vec::new();
    for &(kind, unit) in &types {
        let (node, it) = (&platform.nodes[kind], of((kind, unit)));
        let sharing = node.units.iter().filter(|other| other.memory == it.memory);
        let sharing: usize = sharing.map(|other| other.count).sum();
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
        let many = platform.nodes.len() > 1 || node.units.len() > 1;
        units.push(UnitType {
            name: if many { format!("{}/{}", node.name, it.name) } else { it.name.clone() },
            count: node.count * it.count,
            powers: [full].into_iter().chain(states).collect(),
            idle_watts,
            memory_bytes: (node.memories[it.memory].bytes / sharing.max(1) as u64) as f64,
            input: Way { seconds_per_byte: 0.0, joules_per_byte: 0.0 },
            reduce: Way { seconds_per_byte: 0.0, joules_per_byte: 0.0 },
            node: kind,
            per_node: it.count,
        });
    }
    for (a, &from) in types.iter().enumerate() {
        for (b, &to) in types.iter().enumerate() {
            for route in routes(&all, [from, to])? {
                let way = Way {
                    seconds_per_byte: 1.0 / route.bandwidth,
                    joules_per_byte: route.joules_per_byte,
                };
                widen(&mut units[b].input, way);
                if a == b {
                    widen(&mut units[b].reduce, way);
                }
            }
        }
    }
    Ok(Machinery { units, nodes, slowdowns })
}

fn widen(known: &mut Way, other: Way) {
    known.seconds_per_byte = known.seconds_per_byte.max(other.seconds_per_byte);
    known.joules_per_byte = known.joules_per_byte.max(other.joules_per_byte);
}

/// The ways between different units of two types that have different memories.
fn routes(all: &Expanded<'_>, [from, to]: [(usize, usize); 2]) -> Result<Vec<Route>> {
    let memory = |(kind, unit): (usize, usize), which: usize| -> Option<MemoryId> {
        let nodes = all.nodes.iter().enumerate().filter(|(_, of)| **of == kind);
        let (node, _) = nodes.map(|(node, _)| (node, ())).nth(which)?;
        let first = all.memories_of(crate::platform::NodeId(node as u32)).start;
        Some(MemoryId(first + all.platform.nodes[kind].units[unit].memory as u32))
    };
    let mut pairs = Vec::new();
    if from != to || from.0 != to.0 {
        pairs.push((memory(from, 0), memory(to, 0)));
    }
    if from.0 == to.0 {
        pairs.push((memory(from, 0), memory(to, 1)));
    }
    let mut found = Vec::new();
    for pair in pairs {
        let (Some(a), Some(b)) = pair else { continue };
        if a != b {
            found.push(all.route(a, b)?);
        }
    }
    Ok(found)
}

impl Machinery {
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
