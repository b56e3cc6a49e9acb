//! Tests of pipelines.

mod brute;
mod forged;
mod fuzz;
mod known;
mod made;
mod measured;
mod parted;
mod simulated;
