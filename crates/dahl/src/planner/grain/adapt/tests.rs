use super::*;

fn cell(shape: &str, workers: &[(u64, u64)]) -> WorkerCounts {
    let (codelet, shape) = ("linear.gemm".to_owned(), shape.to_owned());
    WorkerCounts { codelet, shape, workers: workers.to_vec() }
}

fn unknown(_: &WorkerCounts) -> Option<f64> {
    None
}

#[test]
fn speeds_are_those_of_the_same_shapes() {
    let cells = [
        cell("a", &[(10, 1000), (10, 2000)]),
        cell("b", &[(10, 500), (10, 1010)]),
        // Disturbed on one of them: the median does not see it.
        cell("c", &[(10, 100), (10, 900)]),
        // Run by one alone.
        cell("d", &[(5, 700), (0, 0)]),
    ];
    let found = speeds(&cells, &unknown, 3);
    assert_eq!(found[0], Some(1.0));
    assert!((found[1].unwrap() - 0.5).abs() < 0.01, "{found:?}");
    assert_eq!(found[2], None);
}

#[test]
fn shapes_that_only_one_has_run_are_compared_with_what_they_should_take() {
    // Pieces of six samples here, of five there.
    let cells = [cell("six", &[(10, 600), (0, 0)]), cell("five", &[(0, 0), (10, 1000)])];
    let expected = |c: &WorkerCounts| Some(if c.shape == "six" { 60.0 } else { 50.0 });
    assert_eq!(speeds(&cells, &expected, 2), [Some(1.0), Some(0.5)]);
    // Whoever computed longest is what the others are compared with.
    assert_eq!(speeds(&cells, &unknown, 2), [None, Some(1.0)]);
}

#[test]
fn the_slowest_may_be_the_first() {
    let cells = [cell("a", &[(10, 3000), (10, 1000)])];
    let found = speeds(&cells, &unknown, 2);
    assert!((found[0].unwrap() - 1.0 / 3.0).abs() < 1e-9, "{found:?}");
    assert_eq!(found[1], Some(1.0));
}

#[track_caller]
fn check_shared(speeds: &[f64], samples: usize, expected: &str) {
    let grains = shared(speeds, samples, &Grain::for_workers(speeds.len()));
    let found: Vec<String> = grains.iter().map(|grain| grain.to_string()).collect();
    assert!(found.iter().any(|grain| grain == expected), "{expected} in {found:?}");
    assert!(found.len() <= 1 + SOONEST + COARSEST, "{found:?}");
}

#[test]
fn shares_suit_the_speeds() {
    check_shared(&[1.0, 0.5], 64, "sample=3,shares=2:1");
    check_shared(&[1.0, 0.5], 64, "sample=6,shares=2:1");
    check_shared(&[0.25, 1.0], 64, "sample=5,shares=1:4");
    check_shared(&[1.0, 1.0], 64, "sample=2");
    check_shared(&[1.0, 0.6], 64, "sample=8,shares=5:3");
    // Coarse cuts are among them though many fine ones end a little sooner.
    check_shared(&[1.0, 0.49], 32, "sample=3,shares=2:1");
    // The fastest alone is among them, and there are never more pieces than samples.
    check_shared(&[1.0, 0.1], 64, "sample=1,shares=1:0");
    check_shared(&[0.1, 1.0], 64, "sample=1,shares=0:1");
    check_shared(&[1.0, 0.5], 1, "sample=1,shares=1:0");
    check_shared(&[1.0, 1.0, 0.5], 60, "sample=5,shares=2:2:1");
}

#[test]
fn a_change_must_be_worth_it() {
    assert!(is_worth(Nanos(100), Nanos(94), 0.05));
    assert!(!is_worth(Nanos(100), Nanos(95), 0.05));
    assert!((differs(&[1.0, 0.5], &[1.0, 1.0]) - 0.5).abs() < 1e-9);
    assert_eq!(words(&[1.0, 0.5]), "worker 1 at 0.50 of the fastest one's speed");
}
