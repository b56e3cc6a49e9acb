//! What a pipeline is planned from, and what a plan is: plain data.

use crate::{Flaw, flaw, require};
use serde::{Deserialize, Serialize};

/// More unit types are refused: their combinations are beyond counting.
pub const MOST_TYPES: usize = 32;

/// A layer, or an operator, of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Seconds of the forward and backward pass of a batch on one unit at full power, by unit type.
    pub seconds: Vec<f64>,
    /// Bytes of its output per batch.
    pub output_bytes: f64,
    /// Bytes of its parameters.
    pub parameter_bytes: f64,
    /// The layers whose outputs it takes, all of them earlier.
    pub inputs: Vec<usize>,
}

/// A power state: how fast a unit runs, and its watts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Its name.
    pub name: String,
    /// Speed relative to full power.
    pub speed: f64,
    /// Watts while it computes.
    pub busy_watts: f64,
}

/// What the transfers of several units share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// Each end has a line of its own.
    #[default]
    Lines,
    /// All transfers share one medium.
    Bus,
}

/// A way between memories, over which bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Seconds per byte if both directions take turns, so half of those of a link that carries both
    /// directions at once; 0 where both ends have one memory.
    pub seconds_per_byte: f64,
    /// Joules per byte.
    pub joules_per_byte: f64,
    /// Seconds until the first byte of a message arrives.
    #[serde(default, skip_serializing_if = "is_default")]
    pub latency_s: f64,
    /// What transfers at the same time share.
    #[serde(default, skip_serializing_if = "is_default")]
    pub medium: Medium,
    /// Units of the type that share one end: those of a machine, or of a memory.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub units_per_end: usize,
}

fn is_default<T: Default + PartialEq>(x: &T) -> bool {
    *x == T::default()
}

fn one() -> usize {
    1
}

fn is_one(n: &usize) -> bool {
    *n == 1
}

impl Way {
    /// The way inside a memory.
    pub const FREE: Self = Self {
        seconds_per_byte: 0.0,
        joules_per_byte: 0.0,
        latency_s: 0.0,
        medium: Medium::Lines,
        units_per_end: 1,
    };

    /// A way of so many bytes per second, for both directions together.
    pub fn new(bytes_per_second: f64, joules_per_byte: f64) -> Self {
        Self { seconds_per_byte: 1.0 / bytes_per_second, joules_per_byte, ..Self::FREE }
    }
}

/// A type of processing units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitType {
    /// Its name.
    pub name: String,
    /// How many there are.
    pub count: usize,
    /// Its power states; the first is full power.
    pub powers: Vec<Power>,
    /// Watts of one that is on and computes nothing.
    pub idle_watts: f64,
    /// Bytes that one may hold; infinite is `null` in files.
    #[serde(with = "unlimited")]
    pub memory_bytes: f64,
    /// The way of its inputs: the narrowest between any two units that plans may use.
    pub input: Way,
    /// The way that gradients are summed over: the narrowest to another unit of its type.
    pub reduce: Way,
    /// The same for units of one machine, if it is another way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Way>,
    /// The kind of machine that it is in, by index.
    pub node: usize,
    /// Units of the type per machine.
    pub per_node: usize,
    /// Units of the type that are threads over one memory, which holds their weights once.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub sharing: usize,
}

/// Units near each other. A plan on no more than these communicates over their ways, whatever other
/// units there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// The units, for people.
    pub name: String,
    /// What there is of each unit type, by index.
    pub types: Vec<Reach>,
}

/// The units of a type in a [`Scope`], with the figures that are not those of the whole platform.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// How many there are; without any, the other figures do not matter.
    pub count: usize,
    /// The way of inputs.
    pub input: Way,
    /// The way that gradients are summed over.
    pub reduce: Way,
    /// The same for units of one machine, if it is another way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Way>,
}

/// JSON has no infinity.
mod unlimited {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(x: &f64, to: S) -> Result<S::Ok, S::Error> {
        x.is_finite().then_some(*x).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
    }
}

/// A kind of machine that units are in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeType {
    /// Its name.
    pub name: String,
    /// Watts of one that is on, without its units.
    pub base_watts: f64,
}

/// When weights change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Semantics {
    /// Once per batch, by the gradient of the whole batch: the pipeline is emptied after so
    /// many micro-batches.
    Synchronous {
        /// Micro-batches per batch.
        micro_batches: usize,
    },
    /// While other batches are on the way, each with the weights that it began with
    /// (PipeDream's stashing): the gradient is of weights that are some batches old.
    Stale,
}

impl Semantics {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Synchronous { .. } => "synchronous",
            Self::Stale => "stale",
        }
    }
}

/// The quantity to minimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Joules per batch.
    Energy,
    /// Seconds per batch.
    Time,
    /// Their product.
    Edp,
}

impl Objective {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Energy, Self::Time, Self::Edp];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Energy => "energy",
            Self::Time => "time",
            Self::Edp => "edp",
        }
    }
}

/// Everything that a pipeline is planned from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// Layers, each behind its inputs.
    pub layers: Vec<Layer>,
    /// Units by type.
    pub units: Vec<UnitType>,
    /// The machines that they are in.
    pub nodes: Vec<NodeType>,
    /// When weights change.
    pub semantics: Semantics,
    /// The quantity to minimise.
    pub objective: Objective,
    /// Upper bound on seconds per batch.
    pub period_cap: Option<f64>,
    /// Upper bound on the average watts of a batch.
    pub power_cap: Option<f64>,
    /// Samples of a batch, where units may have uneven shares of it (docs/planner.md).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
    /// Parts of the platform whose units are nearer to each other than all units are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Scope>,
}

/// Layers on units of one type, which each compute a part of every batch (synchronous) or take
/// batches by turns (stale).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Its layers, by index, ascending.
    pub layers: Vec<usize>,
    /// The unit type, by index.
    pub unit: usize,
    /// How many units.
    pub replicas: usize,
    /// Their power, by index.
    pub power: usize,
}

/// Stages in the order in which a batch passes them, and what they cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The first stage first.
    pub stages: Vec<Stage>,
    /// Where the stages are not one behind the other but side by side, each with all layers:
    /// how many samples each of their units has, by stage. Empty in a pipeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Vec<usize>>,
    /// Seconds per batch.
    pub period_s: f64,
    /// Joules per batch.
    pub energy_j: f64,
}

impl Way {
    fn check(&self, place: &str) -> Result<(), Flaw> {
        for x in [self.seconds_per_byte, self.joules_per_byte, self.latency_s] {
            require((0.0..=1e18).contains(&x), place, "figures from 0 to 1e18", x)?;
        }
        let units = self.units_per_end;
        require((1..=65_535).contains(&units), place, "1 to 65535 units per end", units)
    }
}

impl Problem {
    /// The problem of plans on the units of one scope; of all units where it is `None`.
    #[must_use]
    pub fn in_scope(&self, scope: Option<usize>) -> Self {
        let mut part = Self { scopes: Vec::new(), ..self.clone() };
        let types = scope.map_or(&[][..], |scope| &self.scopes[scope].types);
        for (unit, reach) in part.units.iter_mut().zip(types) {
            unit.count = reach.count;
            (unit.input, unit.reduce, unit.within) = (reach.input, reach.reduce, reach.within);
        }
        part
    }

    /// All scopes, the whole platform last.
    pub fn all_scopes(&self) -> impl Iterator<Item = Option<usize>> + use<> {
        (0..self.scopes.len()).map(Some).chain([None])
    }

    /// Refuses what no problem can have.
    ///
    /// # Errors
    /// The first such figure.
    pub fn check(&self) -> Result<(), Flaw> {
        require(!self.layers.is_empty(), "profile", "at least one layer", "none")?;
        let finite = |x: f64| x.is_finite() && (0.0..=1e18).contains(&x);
        let figures = |place: &str, of: &[f64]| match of.iter().find(|x| !finite(**x)) {
            Some(bad) => flaw(place, "figures from 0 to 1e18", bad),
            None => Ok(()),
        };
        for (i, layer) in self.layers.iter().enumerate() {
            let place = format!("layer {:?}", layer.name);
            let times = layer.seconds.len();
            require(times == self.units.len(), &place, "a time for each unit type", times)?;
            figures(&place, &layer.seconds)?;
            figures(&place, &[layer.output_bytes, layer.parameter_bytes])?;
            if let Some(bad) = layer.inputs.iter().find(|&&from| from >= i) {
                return flaw(place, "inputs of earlier layers", bad);
            }
        }
        let types = self.units.len();
        require(
            types <= MOST_TYPES,
            "platform",
            format!("at most {MOST_TYPES} unit types"),
            types,
        )?;
        let any = self.units.iter().any(|unit| unit.count > 0);
        require(any, "platform", "at least one unit", "none")?;
        for scope in &self.scopes {
            let place = format!("scope {:?}", scope.name);
            let found = scope.types.len();
            require(found == types, &place, "units of each unit type", found)?;
            for (reach, unit) in scope.types.iter().zip(&self.units) {
                require(reach.count <= unit.count, &place, "units that there are", reach.count)?;
                for way in [reach.input, reach.reduce].into_iter().chain(reach.within) {
                    way.check(&place)?;
                }
            }
            let any = scope.types.iter().any(|reach| reach.count > 0);
            require(any, &place, "at least one unit", "none")?;
        }
        for unit in &self.units {
            let place = format!("unit {:?}", unit.name);
            for way in [unit.input, unit.reduce].into_iter().chain(unit.within) {
                way.check(&place)?;
            }
            let threads = unit.sharing;
            require(threads > 0, &place, "at least one unit per memory", threads)?;
            figures(&place, &[unit.idle_watts])?;
            let found = format!("{} powers, {} units", unit.powers.len(), unit.count);
            let few = unit.powers.len() <= 255 && unit.count <= 65_535;
            require(few, &place, "at most 255 powers and 65535 units", found)?;
            let each = unit.per_node;
            require(each <= 65_535, &place, "at most 65535 in a machine", each)?;
            let placed = !unit.powers.is_empty() && each > 0 && unit.node < self.nodes.len();
            require(placed, &place, "at least one power and a machine", "none")?;
            let right = |p: &Power| p.speed > 0.0 && finite(p.speed) && finite(p.busy_watts);
            let wrong = |p: &&Power| !right(p) || p.busy_watts < unit.idle_watts;
            if let Some(bad) = unit.powers.iter().find(wrong) {
                let found = format!("speed {}, {} W", bad.speed, bad.busy_watts);
                return flaw(place, "a speed above 0, and at least the idle watts", found);
            }
            // Not a number is no such thing.
            require(unit.memory_bytes >= 0.0, &place, "bytes of memory", unit.memory_bytes)?;
        }
        for NodeType { name, base_watts } in &self.nodes {
            require(finite(*base_watts), name, "base watts from 0 to 1e18", base_watts)?;
        }
        let none = self.semantics == Semantics::Synchronous { micro_batches: 0 };
        require(!none, "micro-batches", "at least 1", 0)?;
        for (key, cap) in [("period", self.period_cap), ("power-cap", self.power_cap)] {
            let cap = cap.unwrap_or(1.0);
            require(cap.is_finite() && cap > 0.0, key, "a number above 0", cap)?;
        }
        Ok(())
    }
}
