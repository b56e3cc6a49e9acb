//! Plans of other planners, priced by the cost models of this one (docs/planner.md).
//!
//! A [`ForeignPlan`] is what a file says. On a problem it becomes a [`Score`], a plan with its costs;
//! on a graph of operators, [`Loads`] of devices. Plans that contradict themselves or the problem are
//! refused; plans that do not fit into memory or within a cap are priced, with their [`Misfit`]s.

mod foreign;
mod loads;
mod pipelines;
#[cfg(test)]
mod tests;

pub use foreign::ForeignPlan;
pub use loads::Loads;
pub use pipelines::Score;

/// What a plan that can be priced breaks.
#[derive(Clone, Debug, PartialEq)]
pub enum Misfit {
    /// Bytes of a unit.
    Memory {
        /// The stage or device, from 0.
        stage: usize,
        /// The type of the unit.
        unit: String,
        /// The bytes that the stage needs on it.
        needed: f64,
        /// The bytes that it has.
        there: f64,
    },
    /// The cap on the period.
    Period {
        /// Seconds per batch of the plan.
        seconds: f64,
        /// Seconds that are allowed.
        cap: f64,
    },
    /// The cap on the average watts: the idle watts of the units in use are more.
    Power {
        /// Watts that are allowed.
        cap: f64,
    },
    /// A node that does not run on an accelerator is on one.
    Unsupported {
        /// The device, from 0.
        stage: usize,
        /// The id of the node.
        node: i64,
    },
    /// Nodes of one colour class are on different devices.
    Parted {
        /// The class.
        class: i64,
    },
    /// No order of the devices exists in which each node comes behind its inputs.
    Circular,
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use crate::units::Bytes;
        match self {
            Self::Memory { stage, unit, needed, there } => {
                let [needed, there] = [needed, there].map(|bytes| Bytes(*bytes as u64));
                write!(f, "stage {stage} needs {needed} on each {unit}, which has {there}")
            }
            Self::Period { seconds, cap } => {
                write!(f, "a batch takes {seconds} s, more than {cap} s")
            }
            Self::Power { cap } => {
                write!(f, "the units in use draw more than {cap} W even while they wait")
            }
            Self::Unsupported { stage, node } => {
                write!(f, "node {node} of device {stage} does not run on accelerators")
            }
            Self::Parted { class } => {
                write!(f, "nodes of colour class {class} are on different devices")
            }
            Self::Circular => f.write_str("the forward parts of the devices are not contiguous"),
        }
    }
}
