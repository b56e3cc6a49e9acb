//! Integration tests, in one binary.

mod bits;
mod golden;
mod layers;
mod schedules;
mod support;
