//! Tests of pipelines.

mod brute;
mod fuzz;
mod independent;
pub(crate) mod made;
mod model_layers;
mod simulated;
mod topology;
mod uneven_shares;

/// The first fifth of so many problems; all with `CAMPAIGN=all`, as `.ci/run` has it.
pub(crate) fn tried(problems: u64) -> std::ops::Range<u64> {
    some(problems, problems / 5)
}

/// So many problems with `CAMPAIGN=all`, else a few.
pub(crate) fn some(all: u64, few: u64) -> std::ops::Range<u64> {
    let campaign = std::env::var("CAMPAIGN").is_ok_and(|tries| tries == "all");
    0..if campaign { all } else { few }
}
