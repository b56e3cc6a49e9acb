//! The plan as text.

/// The version of the plan's text.
pub const VERSION: u32 = 1;
