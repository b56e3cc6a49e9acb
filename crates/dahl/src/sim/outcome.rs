//! What a simulated run took: time and joules, by unit, node and cause.
//!
//! The energy of a run is that of its units, busy, looking for work or idle, for as
//! long as the run takes, plus the base power of every node that has a worker, plus
//! what moving bytes and waking nodes costs. A node without a worker counts nothing:
//! it is off, or somebody else's.

use crate::platform::NodeId;
use crate::units::{Bytes, Joules, Nanos};

/// What a worker did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerUse {
    /// It computed, or prepared to.
    pub busy: Nanos,
    /// It looked for work.
    pub spinning: Nanos,
    /// It did nothing.
    pub idle: Nanos,
    /// Joules of each.
    pub joules: [Joules; 3],
}

/// What a node took beside its units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeUse {
    /// Which.
    pub node: NodeId,
    /// Its base power, and units that have no worker.
    pub base: Joules,
    /// To wake it.
    pub wake: Joules,
}

/// What moving bytes took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    /// How many.
    pub bytes: Bytes,
    /// The time of all transfers together.
    pub time: Nanos,
    /// What it cost.
    pub joules: Joules,
}

/// A simulated run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// How jobs were given to workers: `static`, or a policy's name.
    pub scheduling: &'static str,
    /// Until the last job had ended.
    pub makespan: Nanos,
    /// When each job began and ended.
    pub spans: Vec<(Nanos, Nanos)>,
    /// Who ran each job, where somebody did.
    pub ran: Vec<Option<u32>>,
    /// By worker.
    pub workers: Vec<WorkerUse>,
    /// By node that has a worker.
    pub nodes: Vec<NodeUse>,
    /// All transfers.
    pub moved: Moved,
}

impl Outcome {
    /// The energy of the run.
    pub fn joules(&self) -> Joules {
        let units: Joules = self.workers.iter().flat_map(|w| w.joules).sum();
        let nodes: Joules = self.nodes.iter().map(|n| n.base + n.wake).sum();
        units + nodes + self.moved.joules
    }
}
