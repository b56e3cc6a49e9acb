use super::*;
use proptest::prelude::*;

/// A product of matrices: a batch of `n` by weights that are read whatever it is.
fn shape(n: u64, channels: u64) -> (Form, Features) {
    let text = format!("f32[{n},{channels}] f32[{channels},9] -> f32[{n},9]");
    let flops = 18 * n * channels;
    (Form::of(&text), Features { flops, bytes: 4 * (n * channels + 9 * channels + 9 * n) })
}

/// The guess for the last of some shapes from the others.
fn last(shapes: &[(u64, u64)], nanos: impl Fn(u64, Features) -> f64) -> (Guess, f64) {
    let all: Vec<(Form, Features)> = shapes.iter().map(|&(n, c)| shape(n, c)).collect();
    let points = all.iter().zip(shapes).map(|((form, features), &(n, _))| Point {
        form,
        features: *features,
        nanos: nanos(n, *features),
        demand: None,
    });
    let points: Vec<Point<'_>> = points.collect();
    let (wanted, known) = points.split_last().expect("a shape");
    let guess = guess(known, wanted.form, wanted.features).expect("a guess");
    (guess, guess.nanos / wanted.nanos)
}

#[track_caller]
fn check(shapes: &[(u64, u64)], within: f64, nanos: impl Fn(u64, Features) -> f64) {
    let (guess, ratio) = last(shapes, nanos);
    assert!((ratio - 1.0).abs() <= within, "{ratio} {guess:?}");
}

fn roofline(_: u64, at: Features) -> f64 {
    300.0 + at.flops as f64 / 20.0 + at.bytes as f64 / 5.0
}

#[test]
fn a_length_between_two_is_within_a_few_percent() {
    check(&[(8, 64), (32, 64), (16, 64)], 0.03, roofline);
    check(&[(1, 64), (64, 64), (8, 64)], 0.05, roofline);
    // Faster by the sample the more there are, and slower.
    check(&[(8, 64), (32, 64), (16, 64)], 0.05, |n, _| 1e3 * (n as f64).powf(0.8));
    check(&[(8, 64), (32, 64), (16, 64)], 0.05, |n, _| 1e3 * (n as f64).powf(1.15));
    // Cold beyond a size: the guess lies between.
    let (guess, _) = last(&[(8, 64), (32, 64), (16, 64)], |n, at| {
        if n > 20 { 2.0 * roofline(n, at) } else { roofline(n, at) }
    });
    let bounds = [8, 32].map(|n| roofline(n, shape(n, 64).1));
    assert!(guess.nanos > bounds[0] && guess.nanos < 2.0 * bounds[1], "{guess:?}");
}

#[test]
fn another_layer_follows_the_trend_and_its_nearest() {
    let layers = [(8, 16), (8, 64), (8, 256), (32, 16), (32, 64), (32, 256)];
    let and = |wanted| [&layers[..], &[wanted]].concat();
    check(&and((16, 128)), 0.03, roofline);
    check(&and((64, 512)), 0.03, roofline);
    // A layer that is twice as slow as the others is so on other pieces of it.
    let slow = |n: u64, at: Features| {
        let twice = at.flops / n == 18 * 64;
        if twice { 2.0 * roofline(n, at) } else { roofline(n, at) }
    };
    check(&and((16, 64)), 0.05, slow);
    check(&and((16, 256)), 0.15, slow);
}

#[test]
fn an_error_is_what_leaving_out_shows() {
    let lengths = [(4, 64), (8, 64), (16, 64), (32, 64), (64, 64), (24, 64)];
    let error = |noise: f64| {
        let off = |n: u64, at| roofline(n, at) * (1.0 + noise * f64::from(n.ilog2() % 2));
        last(&lengths, off).0.error.expect("others to leave out")
    };
    assert!(error(0.0) < 0.01, "{}", error(0.0));
    assert!(error(0.2) > 0.05 && error(0.2) < 0.3, "{}", error(0.2));
    // Nothing is left where the only shape is left out.
    assert_eq!(last(&[(8, 64), (16, 64)], roofline).0.error, None);
}

#[test]
fn one_odd_shape_spoils_none_but_its_neighbours() {
    let shapes = [(4, 64), (8, 64), (16, 64), (32, 64), (1024, 4096), (24, 64)];
    check(&shapes, 0.05, |n, at| if n == 1024 { 10.0 } else { 1.0 } * roofline(n, at));
}

#[test]
fn a_single_shape_is_scaled() {
    let (guess, _) = last(&[(8, 64), (16, 64)], roofline);
    let alone = roofline(8, shape(8, 64).1);
    assert!(guess.nanos > 1.3 * alone && guess.nanos < 2.1 * alone, "{guess:?} {alone}");
}

#[test]
fn other_elements_say_nothing() {
    let (form, features) = shape(8, 64);
    let point = Point { form: &form, features, nanos: 100.0, demand: None };
    let other = Form::of("f64[8,64] f64[64,9] -> f64[8,9]");
    assert_eq!(guess(&[point], &other, features), None);
    assert_eq!(guess(&[], &form, features), None);
}

#[test]
fn demands_are_those_of_the_neighbours() {
    let shapes = [shape(8, 64), shape(32, 64)];
    let demands = [Some(2e9), Some(4e9)];
    let points = shapes.iter().zip(demands).map(|((form, features), demand)| Point {
        form,
        features: *features,
        nanos: 1000.0,
        demand,
    });
    let points: Vec<Point<'_>> = points.collect();
    let (form, features) = shape(16, 64);
    let between = guess(&points, &form, features).unwrap().demand.unwrap();
    assert!(between > 2.5e9 && between < 3.5e9, "{between}");
    let one = guess(&points[..1], &form, features).unwrap().demand;
    assert_eq!(one, Some(2e9));
}

proptest! {
    /// Whatever was measured, a guess is a time, and it does not depend on the unit.
    #[test]
    fn a_guess_is_a_time(
        times in proptest::collection::vec(1.0f64..1e9, 1..8),
        lengths in proptest::collection::vec(1u64..1000, 8),
        wanted in 1u64..1000,
        unit in 0.1f64..10.0,
    ) {
        let shapes: Vec<(Form, Features)> = lengths.iter().map(|&n| shape(n, n % 7 + 1)).collect();
        let (form, features) = shape(wanted, 3);
        let guess = |unit: f64| {
            let points = shapes.iter().zip(&times).map(|((form, features), nanos)| Point {
                form, features: *features, nanos: unit * nanos, demand: None,
            });
            guess(&points.collect::<Vec<_>>(), &form, features).expect("something was measured")
        };
        let found = guess(1.0);
        prop_assert!(found.nanos.is_finite() && found.nanos > 0.0);
        prop_assert!(found.error.is_none_or(|e| e.is_finite() && e >= 0.0));
        prop_assert!((guess(unit).nanos / (unit * found.nanos) - 1.0).abs() < 1e-6);
    }
}
