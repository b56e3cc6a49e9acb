//! Some figures of this machine, measured in seconds.

use crate::bench::measure::{on_all, peak_of, read_rates};
use dahl::platform::{Detected, Figure, Origin};
use dahl::{DType, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Repetitions of each measurement.
const TRIES: usize = 5;

/// Duration of measurements of watts.
const WATTS_TIME: Duration = Duration::from_millis(300);

/// Bytes that all threads read together, and each at least: far more than caches hold.
const READ: usize = 512 << 20;
const READ_EACH: usize = 64 << 20;

/// Puts what can be measured into the place of guesses.
///
/// # Errors
/// [`dahl::Error::Thread`] where there is no thread for every unit.
pub(super) fn refine(found: &mut Detected) -> Result<()> {
    let node = &mut found.platform.nodes[0];
    let threads: usize = node.units.iter().map(|unit| unit.count).sum();
    // No more than a small part of the memory.
    let most = (node.memories[0].bytes / 8) as usize / threads;
    let bytes = (READ / threads).max(READ_EACH).min(most);
    node.memories[0].bandwidth = figure(read_rates(threads, bytes, TRIES)?);
    let flops = (0..TRIES).map(|_| peak_of(DType::F32, threads)).collect::<Result<Vec<f64>>>()?;
    let flops = figure(flops);
    // Threads go where the system likes: what is one's own part is a guess where
    // cores differ.
    let equal = node.units.len() == 1;
    let speeds: f64 = node.units.iter().map(|unit| unit.count as f64 * unit.speed.value).sum();
    for unit in &mut node.units {
        let part = unit.speed.value / speeds;
        unit.flops = Some(Figure {
            value: rounded(part * flops.value),
            // The peak of multiply-adds, of which kernels reach a half and more.
            low: rounded(0.5 * part * flops.low),
            high: rounded(part * flops.high),
            from: if equal { Origin::Measured } else { Origin::Guess },
        });
    }
    found.notes.push("flops is the peak rate; kernels reach half of it or more".to_owned());
    let [unit] = &mut node.units[..] else { return Ok(()) };
    let each = |work: &(dyn Fn() + Sync)| {
        // All threads were there before.
        let run = || drop(on_all(threads, work));
        let watts = (0..TRIES).map(|_| watts(&found.counters, run));
        let each = watts.map(|watts| Some(watts? / threads as f64));
        each.collect::<Option<Vec<f64>>>().map(figure)
    };
    let (Some(idle), Some(busy), Some(spinning)) = (
        each(&|| std::thread::sleep(WATTS_TIME)),
        each(&|| for_a_while(burst)),
        each(&|| for_a_while(std::hint::spin_loop)),
    ) else {
        return Ok(());
    };
    // Otherwise another process was busy.
    if idle.value <= busy.value && idle.value <= spinning.value {
        (unit.idle_watts, unit.busy_watts, unit.spinning_watts) = (idle, busy, spinning);
        for state in &mut unit.states {
            let value = state.busy_watts.value.clamp(idle.value, busy.value);
            let (low, high) = (idle.low.min(value), busy.high.max(value));
            state.busy_watts = Figure { value, low, high, from: Origin::Guess };
        }
    }
    Ok(())
}

/// More digits than were measured help nobody.
fn rounded(x: f64) -> f64 {
    format!("{x:.2e}").parse().unwrap_or(x)
}

fn burst() {
    dahl::peak::burst(dahl::Isa::detect(), DType::F32);
}

fn for_a_while(work: impl Fn()) {
    let end = Instant::now() + WATTS_TIME;
    while Instant::now() < end {
        work();
    }
}

/// The median of some measurements, between the least and the most.
fn figure(mut values: Vec<f64>) -> Figure {
    values.sort_by(f64::total_cmp);
    let [low, value, high] =
        [0, values.len() / 2, values.len() - 1].map(|i: usize| rounded(values[i]));
    Figure { value, low, high, from: Origin::Measured }
}

/// The watts of some counters while something runs; none where one cannot be read.
fn watts(counters: &[PathBuf], work: impl FnOnce()) -> Option<f64> {
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let read = |file: &str| {
        let values = counters.iter().map(|counter| number(&counter.join(file)));
        values.collect::<Option<Vec<u64>>>().filter(|values| !values.is_empty())
    };
    let ranges = read("max_energy_range_uj")?;
    let (from, before) = (Instant::now(), read("energy_uj")?);
    work();
    let (seconds, after) = (from.elapsed().as_secs_f64(), read("energy_uj")?);
    let pairs = before.into_iter().zip(after).zip(ranges);
    let microjoules: u64 =
        pairs.map(|((before, after), range)| spent([before, after], range)).sum();
    Some(microjoules as f64 / 1e6 / seconds)
}

/// The difference of two readings of a counter, which wraps around at its range.
fn spent([before, after]: [u64; 2], range: u64) -> u64 {
    if after >= before { after - before } else { after + range.saturating_sub(before) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_figure_is_the_median_between_the_bounds() {
        let found = figure(vec![3.0, 1.0, 2.0004]);
        assert_eq!(found, Figure { value: 2.0, low: 1.0, high: 3.0, from: Origin::Measured });
    }

    #[test]
    fn counters_are_read_before_and_after_and_may_begin_again() {
        let root = std::env::temp_dir().join(format!("dahl-counters-{}", std::process::id()));
        let write = |file: &str, value: u64| {
            std::fs::write(root.join(file), value.to_string()).expect("a file");
        };
        std::fs::create_dir_all(&root).expect("a directory");
        write("max_energy_range_uj", 1000);
        write("energy_uj", 900);
        let ran = Cell::new(false);
        let work = || {
            ran.set(true);
            write("energy_uj", 100);
        };
        // However long it took, 200 microjoules were spent.
        let found = watts(std::slice::from_ref(&root), work).expect("counters");
        assert!(ran.get() && found > 0.0, "{found}");
        assert_eq!(spent([900, 100], 1000), 200);
        assert_eq!(spent([100, 900], 1000), 800);
        assert_eq!(watts(&[], || ()), None);
        assert_eq!(watts(&[root.join("nowhere")], || ()), None);
        let _ = std::fs::remove_dir_all(&root);
    }
}
