//! Tests of pipelines.

mod brute;
mod fuzz;
mod known;
mod made;
mod measured;
mod parted;
mod simulated;
