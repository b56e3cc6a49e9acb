//! What a pipeline is planned from, and what a plan is: plain data.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// More unit types are refused: their combinations are beyond counting.
pub(super) const MOST_TYPES: usize = 32;

/// A layer, or an operator, of a network whose weights nobody needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// What people call it.
    pub name: String,
    /// Forwards and backwards of a batch on one unit, by unit type, at full power.
    pub seconds: Vec<f64>,
    /// Bytes that come out of it for a batch.
    pub output_bytes: f64,
    /// Bytes of its parameters.
    pub parameter_bytes: f64,
    /// The layers whose outputs it takes, all of them earlier.
    pub inputs: Vec<usize>,
}

/// How fast a unit runs, and what it draws.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// What people call it.
    pub name: String,
    /// Beside full power.
    pub speed: f64,
    /// Watts while it computes.
    pub busy_watts: f64,
}

/// What bytes go over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Seconds for each byte; nothing where both ends have one memory.
    pub seconds_per_byte: f64,
    /// Joules for each byte.
    pub joules_per_byte: f64,
}

impl Way {
    /// A way of so many bytes a second.
    pub fn new(bytes_per_second: f64, joules_per_byte: f64) -> Self {
        Self { seconds_per_byte: 1.0 / bytes_per_second, joules_per_byte }
    }
}

/// Units that are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitType {
    /// What people call it.
    pub name: String,
    /// How many there are.
    pub count: usize,
    /// The ways to run one; the first is full power.
    pub powers: Vec<Power>,
    /// Watts of one that is on and computes nothing.
    pub idle_watts: f64,
    /// What one may hold; infinite is `null` in files.
    #[serde(with = "unlimited")]
    pub memory_bytes: f64,
    /// What it is fed over: the narrowest way from any other unit.
    pub input: Way,
    /// What it sums gradients over: the narrowest way to another of its type.
    pub reduce: Way,
    /// The kind of machine that it is in, and how many of it are in one.
    pub node: usize,
    /// How many of the type are in a machine.
    pub per_node: usize,
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

/// Machines that units are in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeType {
    /// What people call it.
    pub name: String,
    /// Watts of one that is on, without its units.
    pub base_watts: f64,
}

/// When weights change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Semantics {
    /// Once a batch, from the gradient of the whole batch: the pipeline is emptied
    /// after so many micro-batches.
    Synchronous {
        /// Into how many a batch is cut.
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

/// What is to be least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Joules a batch.
    Energy,
    /// Seconds a batch.
    Time,
    /// Their product.
    Edp,
}

impl Objective {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Energy => "energy",
            Self::Time => "time",
            Self::Edp => "edp",
        }
    }

    /// What a plan of such a period and such an energy is worth.
    pub fn value(self, seconds: f64, joules: f64) -> f64 {
        match self {
            Self::Energy => joules,
            Self::Time => seconds,
            Self::Edp => seconds * joules,
        }
    }
}

/// Everything that a pipeline is planned from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// Each behind the ones that it takes outputs of.
    pub layers: Vec<Layer>,
    /// Units by type.
    pub units: Vec<UnitType>,
    /// The machines that they are in.
    pub nodes: Vec<NodeType>,
    /// When weights change.
    pub semantics: Semantics,
    /// What is to be least.
    pub objective: Objective,
    /// Seconds that a batch may take.
    pub period_cap: Option<f64>,
    /// Watts that may be drawn, on the average of a batch.
    pub power_cap: Option<f64>,
    /// Samples of a batch, where units may have unequal shares of it (`parted.rs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
}

/// Layers on units of one type, which have a part of every batch each (synchronous)
/// or take batches by turns (stale).
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
pub struct Pipeline {
    /// The first stage first.
    pub stages: Vec<Stage>,
    /// Where the stages are not one behind the other but side by side, each with all layers:
    /// how many samples each of their units has, by stage. Empty in a pipeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Vec<usize>>,
    /// Seconds a batch.
    pub period_s: f64,
    /// Joules a batch.
    pub energy_j: f64,
}

impl Problem {
    /// Watts that units of the types draw with their machines while they wait.
    pub fn idle_watts(&self, used: &[usize]) -> f64 {
        let mut watts = 0.0;
        for (unit, &n) in self.units.iter().zip(used) {
            watts += n as f64 * unit.idle_watts;
        }
        for (node, it) in self.nodes.iter().enumerate() {
            let of = self.units.iter().zip(used).filter(|(unit, _)| unit.node == node);
            let on = of.map(|(unit, n)| n.div_ceil(unit.per_node)).max().unwrap_or(0);
            watts += on as f64 * it.base_watts;
        }
        watts
    }

    /// More joules than any plan takes that ends within so many seconds.
    pub fn most_joules(&self, seconds: f64) -> f64 {
        self.most_joules_with(self.most_busy_joules(), seconds)
    }

    /// The same with the joules that do not depend on time.
    pub(super) fn most_joules_with(&self, busy: f64, seconds: f64) -> f64 {
        let all: Vec<usize> = self.units.iter().map(|unit| unit.count).collect();
        let total = busy + self.idle_watts(&all) * seconds;
        if total.is_nan() { f64::INFINITY } else { total * 1.001 }
    }

    /// More joules than computing and moving take in any plan.
    pub(super) fn most_busy_joules(&self) -> f64 {
        let dearest = |layer: &Layer| {
            let each = self.units.iter().zip(&layer.seconds).flat_map(|(unit, seconds)| {
                unit.powers
                    .iter()
                    .map(move |p| seconds / p.speed * (p.busy_watts - unit.idle_watts))
            });
            each.fold(0.0, f64::max)
        };
        let ways = self.units.iter().flat_map(|unit| [unit.input, unit.reduce]);
        let joules = ways.map(|way| way.joules_per_byte).fold(0.0, f64::max);
        // Each stage takes each output at most once, and there are no more stages than layers.
        let outputs: f64 = self.layers.iter().map(|layer| layer.output_bytes).sum();
        let parameters: f64 = self.layers.iter().map(|layer| layer.parameter_bytes).sum();
        let moved = 2.0 * outputs * self.layers.len() as f64 + 4.0 * parameters;
        let computing: f64 = self.layers.iter().map(dearest).sum();
        computing + joules * moved
    }

    /// Everything that cannot be, or nothing.
    pub fn check(&self) -> Result<()> {
        let wrong =
            |key: &str, expected: &str, found: String| Err(Error::config(key, expected, found));
        if self.layers.is_empty() {
            return wrong("profile", "at least one layer", "none".to_owned());
        }
        let finite = |x: f64| x.is_finite() && (0.0..=1e18).contains(&x);
        for (i, layer) in self.layers.iter().enumerate() {
            let place = format!("layer {:?}", layer.name);
            if layer.seconds.len() != self.units.len() {
                return wrong(&place, "a time for each unit type", layer.seconds.len().to_string());
            }
            let figures = layer.seconds.iter().chain([&layer.output_bytes, &layer.parameter_bytes]);
            if let Some(bad) = figures.copied().find(|x| !finite(*x)) {
                return wrong(&place, "figures from 0 to 1e18", bad.to_string());
            }
            if let Some(bad) = layer.inputs.iter().find(|&&from| from >= i) {
                return wrong(&place, "inputs of earlier layers", bad.to_string());
            }
        }
        if self.units.len() > MOST_TYPES {
            let expected = format!("at most {MOST_TYPES} unit types");
            return wrong("platform", &expected, self.units.len().to_string());
        }
        if self.units.iter().all(|unit| unit.count == 0) {
            return wrong("platform", "at least one unit", "none".to_owned());
        }
        for unit in &self.units {
            let place = format!("unit {:?}", unit.name);
            let ways = [unit.input, unit.reduce].map(|w| [w.seconds_per_byte, w.joules_per_byte]);
            let ways = ways.concat();
            if let Some(bad) = ways.iter().chain([&unit.idle_watts]).copied().find(|x| !finite(*x))
            {
                return wrong(&place, "figures from 0 to 1e18", bad.to_string());
            }
            if unit.powers.len() > 255 || unit.count > 65_535 {
                let found = format!("{} powers, {} units", unit.powers.len(), unit.count);
                return wrong(&place, "at most 255 powers and 65535 units", found);
            }
            if unit.per_node > 65_535 {
                return wrong(&place, "at most 65535 in a machine", unit.per_node.to_string());
            }
            if unit.powers.is_empty() || unit.per_node == 0 || unit.node >= self.nodes.len() {
                return wrong(&place, "at least one power and a machine", "none".to_owned());
            }
            let right = |p: &Power| p.speed > 0.0 && finite(p.speed) && finite(p.busy_watts);
            if let Some(bad) =
                unit.powers.iter().find(|p| !right(p) || p.busy_watts < unit.idle_watts)
            {
                let found = format!("speed {}, {} W", bad.speed, bad.busy_watts);
                return wrong(&place, "a speed above 0, and at least the idle watts", found);
            }
            if unit.memory_bytes.is_nan() || unit.memory_bytes < 0.0 {
                return wrong(&place, "bytes of memory", unit.memory_bytes.to_string());
            }
        }
        if let Some(node) = self.nodes.iter().find(|node| !finite(node.base_watts)) {
            return wrong(&node.name, "base watts from 0 to 1e18", node.base_watts.to_string());
        }
        if let Semantics::Synchronous { micro_batches: 0 } = self.semantics {
            return wrong("micro-batches", "at least 1", "0".to_owned());
        }
        for (key, cap) in [("period", self.period_cap), ("power-cap", self.power_cap)] {
            if let Some(cap) = cap.filter(|cap| !cap.is_finite() || *cap <= 0.0) {
                return wrong(key, "a number above 0", cap.to_string());
            }
        }
        Ok(())
    }
}
