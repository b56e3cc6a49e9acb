//! Tests of pipelines.

mod brute;
mod changes;
mod forged;
mod fuzz;
mod known;
mod made;
mod measured;
mod parted;
mod simulated;

/// The first fifth of so many problems; all with `CAMPAIGN=all`, as `.ci/run` has it.
fn tried(problems: u64) -> std::ops::Range<u64> {
    let all = std::env::var("CAMPAIGN").is_ok_and(|tries| tries == "all");
    0..if all { problems } else { problems / 5 }
}
