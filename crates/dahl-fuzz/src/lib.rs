//! Fuzzing of the file formats that dahl reads.
//!
//! A [`Target`] has a directory of kept files (`corpus/<format>`) and a function that reads
//! one of them. [`fuzz!`] runs it on every kept case, then on mutated ones, and fails on a
//! panic, on a result that does not survive printing and parsing, and on more memory than
//! the target's bound.
//!
//! `cargo test` runs the same few mutations on every machine, and `FUZZ_TIMES` as many
//! where that is set, as `.ci/run` does. With `BOLERO_RANDOM_TEST_TIME_MS` or
//! `BOLERO_RANDOM_ITERATIONS`, as `scripts/fuzz.sh` sets them, bolero draws others, for as
//! long as they say.

mod case;
mod memory;
mod mutate;
mod run;

pub use bolero;
pub use case::Case;
pub use memory::{Counting, Used, used};
pub use mutate::Mutated;
pub use run::{Bound, Run, Target, is_campaign};

/// Runs a [`Target`] in a test.
#[macro_export]
macro_rules! fuzz {
    ($target:expr) => {{
        let run = $crate::Run::new($target);
        if $crate::is_campaign() {
            $crate::bolero::check!()
                .with_generator(run.mutated())
                .for_each(|case: &$crate::Case| run.execute(case));
        } else {
            run.few();
        }
        run.report();
    }};
}
