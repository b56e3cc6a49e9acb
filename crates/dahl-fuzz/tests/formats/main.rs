//! One fuzz target per file format: what is read is read or refused, within its memory.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod networks;
mod records;
mod repair;
mod samples;

use dahl_fuzz::{Bound, Case, Counting, Target};
use std::hint::black_box;
use std::path::Path;

#[global_allocator]
static COUNTING: Counting = Counting;

/// The bounds of formats of text, which are parsed to structures of small strings. The parser of
/// TOML keeps an error of 100 bytes for each wrong brace, in a list that doubles.
const TEXT: Target = Target {
    format: "",
    peak: Bound { times: 300, plus: 1 << 20 },
    total: Bound { times: 1000, plus: 8 << 20 },
    few: 200,
    made: Vec::new,
    repair: |_| {},
    read: |_, _| false,
};

/// A target of text without directories.
const fn text(format: &'static str, read: fn(&Case, &Path) -> bool) -> Target {
    Target { format, read, ..TEXT }
}

#[test]
fn memory_is_counted_at_its_peak() {
    let (length, used) = dahl_fuzz::used(|| {
        let small = black_box(vec![1u8; 1000]).len();
        small + black_box(vec![1u8; 5000]).len()
    });
    assert_eq!((length, used.peak, used.total), (6000, 5000, 6000));
}
