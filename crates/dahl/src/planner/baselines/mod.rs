//! What plans are compared with: PipeDream's planner, the max-load model of dnn-partitioning, and
//! the files that both read.

mod groups;
mod import;
mod max_load;
mod measured;
mod pipedream;
mod sailor;
#[cfg(test)]
pub(crate) mod tests;

pub(in crate::planner) use groups::device_load;
pub(in crate::planner) use import::in_order;
pub use import::{Imported, Operator, Operators, Profile, ProfileNode};
pub use max_load::{Compared, Device, Effort, Load, MaxLoad, max_load};
pub use measured::{MeasuredLayer, MeasuredProfile};
pub use pipedream::{Machines, PipeDreamPlan, pipedream};
pub use sailor::SailorRequest;
