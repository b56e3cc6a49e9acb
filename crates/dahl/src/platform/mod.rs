//! The machines that a run may use: units, memories, nodes, links, power.
//!
//! A [`Platform`] is plain data and a file (docs/platform-format.md). Every figure
//! says where it comes from and within what it lies. [`Platform::expand`] counts
//! out what the file says once: a node of a hundred, a core of sixteen.
//!
//! It does not describe caches, the parts of a memory that are near to some of the
//! units, temperatures, and that the power of a unit depends on what it computes.

mod detect;
mod expand;
mod figures;
mod headroom;
mod limits;
mod messages;
mod parse;
mod print;
mod reader;
mod root;
#[cfg(test)]
mod tests;
mod zeus;

pub use detect::{Detected, detect};
pub use expand::{CapacityId, Expanded, MemoryId, MemoryOf, NodeId, Route, UnitId, UnitOf};
pub use headroom::headroom;
pub use messages::Message;
pub use zeus::{ZeusRequest, ZeusTable};

use std::fmt;

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It was measured on the machine.
    Measured,
    /// Its maker says so.
    DataSheet,
    /// Somebody thinks so.
    #[default]
    Guess,
}

impl Origin {
    /// All of them, the surest first.
    pub const ALL: [Self; 3] = [Self::Measured, Self::DataSheet, Self::Guess];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Measured => "measured",
            Origin::DataSheet => "data sheet",
            Origin::Guess => "guess",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A figure, what it lies in, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The most likely value.
    pub value: f64,
    /// The least that it may be.
    pub low: f64,
    /// The most that it may be.
    pub high: f64,
    /// Where it comes from.
    pub from: Origin,
}

impl Figure {
    /// A figure without an interval.
    pub fn exact(value: f64, from: Origin) -> Self {
        Self { value, low: value, high: value, from }
    }
}

/// The machines of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Platform {
    /// Its name.
    pub name: String,
    /// The kinds of nodes.
    pub nodes: Vec<Node>,
    /// Points that only links meet in.
    pub switches: Vec<String>,
    /// The links between nodes and switches.
    pub links: Vec<Link<Place>>,
    /// How transfers share links.
    pub fairness: Fairness,
}

/// The way in which transfers share the bandwidth of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fairness {
    /// In inverse proportion to the latencies of their ways, as TCP does (Casanova
    /// and Marchal 2002).
    #[default]
    Latency,
    /// In equal parts.
    Equal,
}

impl Fairness {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Latency, Self::Equal];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Fairness::Latency => "latency",
            Fairness::Equal => "equal",
        }
    }
}

/// An end of a link between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// All nodes of a kind, by index.
    Nodes(usize),
    /// A switch, by index.
    Switch(usize),
}

/// A kind of computer, and their number.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Number of such nodes.
    pub count: usize,
    /// Watts of a node that is on, without its units.
    pub base_watts: Figure,
    /// Money per hour of a node that is in use.
    pub price_per_hour: f64,
    /// Money per kilowatt-hour where it stands, if the file has it.
    pub price_per_kwh: Option<f64>,
    /// Power and costs of sleeping.
    pub sleep: Option<Sleep>,
    /// Its memories; links to other nodes begin at the first.
    pub memories: Vec<Memory>,
    /// Its units, by type.
    pub units: Vec<Unit>,
    /// The links between its memories, by index.
    pub links: Vec<Link<usize>>,
}

/// A node that sleeps, and what waking it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sleep {
    /// Watts while it sleeps.
    pub watts: Figure,
    /// Seconds until it is awake.
    pub wake_seconds: Figure,
    /// Joules until it is awake.
    pub wake_joules: Figure,
}

/// A memory of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Its name.
    pub name: String,
    /// Bytes that it holds.
    pub bytes: u64,
    /// Bytes a second that all units together can move.
    pub bandwidth: Figure,
}

/// A type of unit that runs one task at a time, and how many a node has.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// The key of calibrations: `cpu-avx2`, `gpu-a40`.
    pub kind: String,
    /// Number per node.
    pub count: usize,
    /// The memory that it computes in, by index.
    pub memory: usize,
    /// Its speed relative to the unit that its kind was calibrated on.
    pub speed: Figure,
    /// Operations a second that it reaches in practice, in f32, `speed` included:
    /// what is taken where its kind was never calibrated.
    pub flops: Option<Figure>,
    /// Watts while it computes.
    pub busy_watts: Figure,
    /// Watts while it looks for work.
    pub spinning_watts: Figure,
    /// Watts while it does nothing.
    pub idle_watts: Figure,
    /// Money per hour of a unit that is in use.
    pub price_per_hour: f64,
    /// Slower ways to run it, of less power.
    pub states: Vec<PowerState>,
}

/// A way to run a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerState {
    /// Its name.
    pub name: String,
    /// The speed of the unit relative to its full speed.
    pub speed: Figure,
    /// Watts while it computes.
    pub busy_watts: Figure,
}

/// Something that bytes are moved over: between nodes, or between the memories of
/// a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Link<P> {
    /// Its name.
    pub name: String,
    /// Its ends.
    pub connects: Vec<P>,
    /// Bytes per second.
    pub bandwidth: Figure,
    /// Seconds until the first byte arrives.
    pub latency: Figure,
    /// Measured messages, from which bandwidth and latency are fitted where the file does not have them.
    pub messages: Vec<Message>,
    /// Joules for each byte.
    pub joules_per_byte: Figure,
    /// Money for each byte.
    pub price_per_byte: f64,
    /// The transfers that share the bandwidth.
    pub sharing: Sharing,
}

/// The transfers that share the bandwidth of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// All transfers together: a bus, a radio, a line.
    #[default]
    All,
    /// Each of the ends, once to send and once to receive: a switch that is never
    /// the limit itself.
    Ends,
    /// Each transfer.
    Nobody,
}

impl Sharing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::All, Self::Ends, Self::Nobody];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Sharing::All => "all",
            Sharing::Ends => "ends",
            Sharing::Nobody => "nobody",
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
