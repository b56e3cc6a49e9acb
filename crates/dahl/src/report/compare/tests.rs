use super::*;
use crate::meter::{Covers, Modelled, Part, Source, Total};
use crate::run::{Counted, EnergyLine, EpochMetrics, Training};
use crate::trace::{Activity, WorkerTime};

/// A run whose epochs took these microseconds for each of 100 samples.
fn run(name: &str, micros: &[f64]) -> RunRecord {
    let epoch = |(i, micros): (usize, &f64)| {
        let seconds = 1e-6 * micros * 100.0;
        EpochMetrics {
            epoch: i as u64 + 1,
            seconds,
            samples_per_second: 100.0 / seconds,
            ..EpochMetrics::default()
        }
    };
    let epochs = micros.iter().enumerate().map(epoch).collect();
    RunRecord { name: name.to_owned(), epochs, ..RunRecord::default() }
}

/// Counters of 200 samples: nanoseconds of codelets, all workers together.
fn counted(run: RunRecord, workers: usize, elapsed: u64, codelets: &[(&str, u64)]) -> RunRecord {
    let codelets = codelets.iter().map(|&(name, nanos)| (name.to_owned(), (10, nanos))).collect();
    let busy = WorkerTime { busy: 0, spinning: 100, parked: 200 };
    let activity = Activity { elapsed, workers: vec![busy; workers] };
    let training = Training { samples: 200, activity, codelets };
    RunRecord { counted: Some(Counted { training, ..Counted::default() }), ..run }
}

#[test]
fn reasons_sum_up_to_the_difference_and_agree_with_the_verdict() {
    // Two workers: each call takes somewhat longer beside a neighbour, all together less.
    let two =
        counted(run("a", &[50.0, 50.0]), 2, 10_000_000, &[("conv", 16_000_000), ("relu", 800_000)]);
    let one =
        counted(run("b", &[70.0, 70.0]), 1, 14_000_000, &[("conv", 13_000_000), ("relu", 600_000)]);
    let found = compare(&two, &one);
    let verdict = found.faster.as_ref().unwrap();
    assert_eq!(verdict.less, Some(0), "{}", verdict.text);
    let sum = |i: usize| found.reasons.iter().map(|row| row.nanos[i]).sum::<f64>();
    assert!((sum(0) - 50_000.0).abs() < 1e-6 && (sum(1) - 70_000.0).abs() < 1e-6);
    let first = &found.reasons[0];
    assert_eq!((first.what.as_str(), first.nanos), ("conv", [40_000.0, 65_000.0]));
    assert!(first.difference() > 0.0, "b takes more, as the verdict says");
    let sizes: Vec<f64> = found.reasons.iter().map(|row| row.difference().abs()).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "all rows by size: {sizes:?}");
    assert!(found.to_text().contains("total"));
    assert_eq!(found.reasons.len(), 5, "nothing is left that was not counted: {found:?}");
    // Counters of half of the epochs: the rest has a row of its own.
    let later = counted(run("c", &[70.0; 4]), 1, 10_000_000, &[("conv", 9_000_000)]);
    let found = compare(&two, &later);
    assert!(found.to_text().contains("earlier invocations"), "{}", found.to_text());
    let sum: f64 = found.reasons.iter().map(Reason::difference).sum();
    assert!((sum - 20_000.0).abs() < 1e-6, "{sum}");
}

/// Two standard errors may be more than the mean.
#[test]
fn no_time_is_below_zero() {
    let verdict = compare(&run("a", &[1.0, 90.0]), &run("b", &[50.0, 51.0])).faster.unwrap();
    assert_eq!(verdict.intervals[0][0], 0.0, "{}", verdict.text);
    assert!(verdict.text.contains(" (0 to "), "{}", verdict.text);
}

#[test]
fn epochs_that_differ_by_more_give_no_verdict() {
    let found = compare(&run("a", &[50.0, 40.0, 60.0]), &run("b", &[51.0, 41.0, 61.0]));
    let verdict = found.faster.unwrap();
    assert_eq!(verdict.less, None);
    assert!(
        verdict.text.contains("no verdict, because the epochs of each run"),
        "{}",
        verdict.text
    );
    let sure = compare(&run("a", &[50.0, 50.1]), &run("b", &[55.0, 55.1])).faster.unwrap();
    assert_eq!(sure.less, Some(0), "{}", sure.text);
    let single = compare(&run("a", &[50.0]), &run("b", &[55.0])).faster.unwrap();
    assert!(single.text.contains("a run has only one epoch"), "{}", single.text);
}

fn measured(name: &str, joules: f64, missed: f64) -> RunRecord {
    let total = Total {
        name: "package-0".to_owned(),
        source: Source::Rapl,
        covers: Covers::Package,
        joules,
        seconds: 10.0,
        missed,
        why: None,
    };
    let line =
        EnergyLine { seconds: 10.0, samples: 100, measured: vec![total], ..Default::default() };
    RunRecord { energy: vec![line], ..run(name, &[50.0]) }
}

#[test]
fn partial_energies_give_no_verdict() {
    let verdict = |a: RunRecord, b: RunRecord| compare(&a, &b).cheaper.unwrap();
    let found = verdict(measured("a", 10.0, 0.0), measured("b", 20.0, 0.0));
    assert_eq!(found.less, Some(0));
    assert!(found.text.ends_with("measured by RAPL (package-0)"), "{}", found.text);
    let found = verdict(measured("a", 10.0, 0.0), measured("b", 0.0, 5.0));
    assert_eq!(found.less, None);
    assert!(
        found.text.contains("the energy of b is incomplete: package-0: 5.0 s of 15.0 s missed"),
        "{}",
        found.text
    );
    let nothing = verdict(measured("a", 0.0, 0.0), measured("b", 5.0, 0.0));
    assert!(!nothing.text.contains("inf"), "{}", nothing.text);
}

/// A run whose epochs took these joules for 100 samples each, by a meter or by watts that are
/// known.
fn by_epoch(name: &str, kind: Kind, joules: &[f64]) -> RunRecord {
    let line = |(i, &joules): (usize, &f64)| {
        let [one, none] =
            [joules, 0.0].map(|value| Part { value, low: 0.9 * value, high: 1.1 * value });
        let of = Modelled {
            platform: "p".to_owned(),
            watts: "measured".to_owned(),
            seconds: 10.0,
            base: one,
            idle: none,
            spinning: none,
            busy: vec![none],
        };
        let mut line = measured(name, joules, 0.0).energy.remove(0);
        line.epoch = Some(i as u64 + 1);
        if kind == Kind::Modelled {
            (line.measured, line.modelled) = (Vec::new(), Some(of));
        }
        line
    };
    let energy = joules.iter().enumerate().map(line).collect();
    RunRecord { energy, ..run(name, &[50.0, 50.0]) }
}

#[test]
fn both_figures_have_the_same_digits() {
    let text = |a: &[f64], b: &[f64]| compare(&run("a", a), &run("b", b)).faster.unwrap().text;
    // Two standard errors are 4 and 1.8 µs: two digits are known of the first, three of the second.
    let found = text(&[32.3, 36.3, 40.3], &[53.0, 54.0, 55.0]);
    assert!(found.starts_with("a is faster than b: "), "{found}");
    let figures =
        found.split([' ', '(', ')']).filter_map(|word| word.parse::<f64>().ok().map(|_| word));
    let digits: Vec<usize> = figures.take(6).map(|word| word.replace('.', "").len()).collect();
    assert!(digits.iter().all(|count| *count == digits[0]), "{found}");
    for (x, digits, expected) in
        [(54.0, 3, "54.0"), (0.05, 2, "0.050"), (1.0, 1, "1"), (0.0, 3, "0")]
    {
        assert_eq!(padded(x, digits), expected);
    }
}

#[test]
fn energies_whose_epochs_differ_by_more_give_no_verdict() {
    for kind in [Kind::Measured, Kind::Modelled] {
        let verdict = |a: &[f64], b: &[f64]| {
            compare(&by_epoch("a", kind, a), &by_epoch("b", kind, b)).cheaper.unwrap()
        };
        // Two standard errors of each are 11.5 J of 100 samples: 115 mJ a sample.
        let found = verdict(&[50.0, 40.0, 60.0], &[52.0, 42.0, 62.0]);
        assert_eq!(found.less, None, "{kind:?}: {}", found.text);
        let why = "no verdict, because the epochs of each run differ by more than the runs (±115 and ±115)";
        assert!(found.text.contains(why), "{}", found.text);
        let found = verdict(&[50.0, 49.0, 51.0], &[62.0, 61.0, 63.0]);
        assert_eq!(found.less, Some(0), "{kind:?}: {}", found.text);
        assert!(!found.text.contains("only one epoch"), "{}", found.text);
        // What follows an epoch that was not ended is no epoch.
        let found = verdict(&[50.0], &[62.0]);
        assert!(found.text.contains("a run has only one epoch"), "{}", found.text);
    }
}

#[test]
fn a_verdict_says_that_other_runs_may_differ_by_more() {
    let shown = |a: &[f64], b: &[f64]| compare(&run("a", a), &run("b", b)).to_text();
    let sure = shown(&[50.0, 50.1], &[55.0, 55.1]);
    assert_eq!(sure.matches("note: two more runs of the same commands").count(), 1, "{sure}");
    let open = shown(&[50.0, 40.0, 60.0], &[51.0, 41.0, 61.0]);
    assert!(!open.contains("note: "), "there is nothing to doubt: {open}");
}

#[test]
fn a_run_is_not_compared_with_itself() {
    let text = |a: &RunRecord, b: &RunRecord| compare(a, b).to_text();
    let own = run("a", &[50.0, 40.0]);
    assert_eq!(text(&own, &own), "note: a is the same run twice: nothing is compared\n");
    // Runs of one name may be in two directories.
    assert!(text(&own, &run("a", &[50.0, 41.0])).contains("no verdict"));
}

/// Modelled from base watts between 10 and 100, and busy ones between 1 and 2.
fn modelled(name: &str, platform: &str, base: f64, busy: f64) -> RunRecord {
    let part = |seconds: f64, [low, high]: [f64; 2]| Part {
        value: seconds * (low + high) / 2.0,
        low: seconds * low,
        high: seconds * high,
    };
    let of = Modelled {
        platform: platform.to_owned(),
        watts: "guess".to_owned(),
        seconds: base,
        base: part(base, [10.0, 100.0]),
        idle: Part::default(),
        spinning: Part::default(),
        busy: vec![part(busy, [1.0, 2.0])],
    };
    let line = EnergyLine { seconds: base, samples: 100, modelled: Some(of), ..Default::default() };
    RunRecord { energy: vec![line], ..run(name, &[50.0]) }
}

#[test]
fn modelled_energies_are_compared_at_the_same_watts() {
    let verdict = |a: RunRecord, b: RunRecord| compare(&a, &b).cheaper.unwrap();
    // Twice as long is dearer whatever the watts are, though the intervals overlap.
    let found = verdict(modelled("a", "p", 1.0, 1.0), modelled("b", "p", 2.0, 1.0));
    assert_eq!(found.less, Some(0), "{}", found.text);
    assert!(found.text.contains("to") && found.text.contains("modelled from \"p\""));
    // Longer, with less work: that depends on the watts.
    let found = verdict(modelled("a", "p", 1.0, 30.0), modelled("b", "p", 2.0, 1.0));
    assert_eq!(found.less, None, "{}", found.text);
    let found = verdict(modelled("a", "p", 1.0, 1.0), modelled("b", "q", 2.0, 1.0));
    assert!(found.text.contains("the sources differ"), "{}", found.text);
}
