//! The commands as a user runs them.

mod commands;
mod diff;
mod predict;
mod robust;
mod support;
