//! Integration tests, in one binary.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod adaptive;
mod bits;
mod claims;
mod damaged;
mod golden;
mod layers;
mod machines;
mod memory;
mod models;
mod ops;
mod outside_engine;
mod panics;
mod pipelines;
mod ranks;
mod recompute;
mod refusals;
mod report;
mod resume;
mod schedules;
mod session;
mod sim;
mod spaces;
mod spaces_cover;
mod support;
mod tensor;
mod timed;
mod trace;
mod updates;
