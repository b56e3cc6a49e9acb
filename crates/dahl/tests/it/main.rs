//! Integration tests, in one binary.

mod bits;
mod golden;
mod layers;
mod memory;
mod models;
mod panics;
mod schedules;
mod session;
mod support;
