//! The commands as a user runs them.

mod commands;
mod config;
mod diff;
mod runs;
mod survival;
