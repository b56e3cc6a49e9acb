//! A target on kept and mutated cases, with its counts.

use crate::{Case, Mutated, used};
use bolero::generator::ValueGenerator;
use bolero::generator::bolero_generator::driver::{Options, Rng};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An execution of a campaign that takes longer is taken for a hang, on a busy machine too.
const LONGEST: Duration = Duration::from_secs(60);

/// What a file of some bytes may take: so many times its length, and this beside it.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Bytes for each byte of the files.
    pub times: usize,
    /// Bytes whatever their length.
    pub plus: usize,
}

impl Bound {
    fn of(self, length: usize) -> usize {
        self.times * length + self.plus
    }
}

/// One format and how it is read.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The directory below `corpus`.
    pub format: &'static str,
    /// The most memory at one time.
    pub peak: Bound,
    /// All allocations together.
    pub total: Bound,
    /// Mutations of a plain `cargo test`.
    pub few: u64,
    /// Cases beside the kept ones, of formats whose files fit one version of the programs.
    pub made: fn() -> Vec<Case>,
    /// Makes checksums and lengths right again after a mutation.
    pub repair: fn(&mut Case),
    /// Reads a case, whose files are in the directory, and checks what came out; true where
    /// it was not refused.
    pub read: fn(&Case, &Path) -> bool,
}

#[derive(Default)]
struct Counts {
    executions: u64,
    taken: u64,
    peak: usize,
    longest: Duration,
}

/// A target that runs.
pub struct Run {
    target: Target,
    kept: Vec<Case>,
    place: PathBuf,
    counts: Mutex<Counts>,
}

/// Whether bolero draws the mutations, for as long as the environment says.
pub fn is_campaign() -> bool {
    let asked = ["BOLERO_RANDOM_TEST_TIME_MS", "BOLERO_RANDOM_ITERATIONS", "BOLERO_RANDOM_SEED"];
    asked.iter().any(|name| std::env::var_os(name).is_some())
}

impl Run {
    /// Reads the corpus and runs every kept case.
    ///
    /// # Panics
    /// Where a case fails.
    pub fn new(target: Target) -> Self {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.format);
        let name = format!("dahl-fuzz-{}-{}", target.format, std::process::id());
        let place = std::env::temp_dir().join(name);
        let mut kept = Case::all(&corpus);
        kept.extend((target.made)());
        let run = Self { target, kept, place, counts: Mutex::default() };
        assert!(!run.kept.is_empty(), "{}: expected kept cases, found none", corpus.display());
        run.kept.iter().for_each(|case| run.execute(case));
        let taken = run.counts.lock().unwrap_or_else(PoisonError::into_inner).taken;
        assert!(taken > 0, "{}: expected a case that is read, found none", corpus.display());
        run
    }

    /// What makes cases of the kept ones.
    pub fn mutated(&self) -> Mutated<'_> {
        Mutated { kept: &self.kept, repair: self.target.repair }
    }

    /// The mutations that are the same everywhere; `FUZZ_TIMES` as many as usual.
    ///
    /// # Panics
    /// Where one fails.
    pub fn few(&self) {
        let times = std::env::var("FUZZ_TIMES").ok();
        let times = times.map_or(1, |times| times.parse::<u64>().expect("a number of times"));
        for seed in 0..times * self.target.few {
            let options = Options::default();
            let mut driver = Rng::new(ChaCha8Rng::seed_from_u64(seed), &options);
            let case = self.mutated().generate(&mut driver).expect("a driver that does not end");
            self.execute(&case);
        }
    }

    /// Reads a case. Its files are left in place where that fails, however it fails.
    ///
    /// # Panics
    /// Where reading does, or takes too much.
    pub fn execute(&self, case: &Case) {
        let place = self.place.join("now");
        let _ = fs::remove_dir_all(&place);
        case.write(&place);
        let failing = Failing { now: &place, kept: self.place.join("failed") };
        let from = Instant::now();
        let (taken, used) = used(|| (self.target.read)(case, &place));
        let elapsed = from.elapsed();
        let Target { format, peak, total, .. } = self.target;
        for (what, used, bound) in [("peak", used.peak, peak), ("total", used.total, total)] {
            let most = bound.of(case.len());
            assert!(used <= most, "{format}: {what}: expected at most {most} bytes, found {used}");
        }
        // A plain test does not depend on the clock.
        let slow = is_campaign() && elapsed > LONGEST;
        assert!(!slow, "{format}: expected at most {LONGEST:?}, found {elapsed:?}");
        drop(failing);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.executions += 1;
        counts.taken += u64::from(taken);
        counts.peak = counts.peak.max(used.peak);
        counts.longest = counts.longest.max(elapsed);
    }

    /// Prints the counts, and leaves nothing behind.
    #[expect(clippy::print_stdout, reason = "what a campaign is run for")]
    pub fn report(&self) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { executions, taken, peak, longest } = *counts;
        let (format, kept) = (self.target.format, self.kept.len());
        println!(
            "fuzz\t{format}\t{kept} kept\t{executions} executions\t{taken} read\t\
             {} KiB peak\t{} ms longest\t0 failures",
            peak.div_ceil(1024),
            longest.as_millis(),
        );
        let _ = fs::remove_dir_all(&self.place);
    }
}

/// Keeps the files of a case that panics.
struct Failing<'a> {
    now: &'a Path,
    kept: PathBuf,
}

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.kept);
            let _ = fs::rename(self.now, &self.kept);
        }
    }
}
