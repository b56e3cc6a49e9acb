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

/// What is known of a run's power, beside its trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watts<'a> {
    /// The platform whose watts are modelled.
    pub platform: Option<&'a Platform>,
    /// What meters said, and when they began on the trace's clock, in nanoseconds.
    pub measured: Option<(&'a Power, i64)>,
}
