//! The commands as a user runs them.

mod commands;
mod diff;
mod runs;
mod survival;
