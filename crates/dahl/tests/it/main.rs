//! Integration tests, in one binary.

mod bits;
mod golden;
mod layers;
mod memory;
mod panics;
mod schedules;
mod session;
mod support;
