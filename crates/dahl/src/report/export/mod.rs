//! Traces in the formats of other tools.

mod csv;
mod dot;
mod paje;
mod perfetto;
mod watts;

pub use csv::csv;
pub use dot::dot;
pub use paje::paje;
pub use perfetto::perfetto;
pub use watts::{Curve, busy_curve, byte_curve, watt_curves};

use crate::meter::Power;
use crate::platform::Platform;

/// The power of a run, from other sources than its trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watts<'a> {
    /// The platform whose watts are modelled.
    pub platform: Option<&'a Platform>,
    /// The readings of meters, and their start on the trace's clock, in nanoseconds.
    pub measured: Option<(&'a Power, i64)>,
}
