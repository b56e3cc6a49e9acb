use super::*;

#[test]
fn ulps_f32() {
    let tiny = f32::from_bits(1);
    let cases = [
        (1.0, 1.0, 0),
        (1.0, 1.0 + f32::EPSILON, 1),
        (1.0, 1.0 - f32::EPSILON / 2.0, 1),
        (0.0, -0.0, 0),
        (0.0, tiny, 1),
        (-tiny, tiny, 2),
        (-1.0, 1.0, 2 * 0x3f80_0000),
        (f32::MIN, f32::MAX, 2 * 0x7f7f_ffff),
        (f32::NAN, -f32::NAN, 0),
        (f32::NAN, 1.0, u64::MAX),
        (f32::INFINITY, f32::INFINITY, 0),
        (f32::INFINITY, f32::MAX, u64::MAX),
        (f32::INFINITY, f32::NEG_INFINITY, u64::MAX),
        (f32::INFINITY, f32::NAN, u64::MAX),
    ];
    for (a, b, expected) in cases {
        assert_eq!(a.ulps(b), expected, "{a} and {b}");
        assert_eq!(b.ulps(a), expected, "{b} and {a}");
    }
}

#[test]
fn ulps_f64_and_integers() {
    assert_eq!(1f64.ulps(1.0 + f64::EPSILON), 1);
    assert_eq!(f64::MIN.ulps(f64::MAX), 2 * 0x7fef_ffff_ffff_ffff);
    assert_eq!(i64::MIN.ulps(i64::MAX), u64::MAX);
    assert_eq!(3u8.ulps(5), 2);
}

#[test]
fn ulps_walk_over_every_neighbour() {
    let mut x = -2e-45f64 as f32;
    for steps in 0..5 {
        assert_eq!((-2e-45f64 as f32).ulps(x), steps);
        x = x.next_up();
    }
}

#[test]
fn comparisons() {
    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;
    // reference, found, (differing, absolute, relative, worst)
    type Case<'a> = (&'a [f64], &'a [f64], (usize, f64, f64, Option<usize>));
    let cases: &[Case<'_>] = &[
        (&[], &[], (0, 0.0, 0.0, None)),
        (&[1.0, 2.0], &[1.0, 2.0], (0, 0.0, 0.0, None)),
        (&[4.0, -8.0, 1.0], &[4.5, -8.0, 0.5], (2, 0.5, 0.0625, Some(0))),
        (&[0.0, 0.0], &[0.0, 1.0], (1, 1.0, INF, Some(1))),
        (&[0.0], &[-0.0], (1, 0.0, 0.0, Some(0))),
        (&[NAN, 1.0], &[-NAN, 1.0], (0, 0.0, 0.0, None)),
        (&[2.0, 1.0], &[2.0, NAN], (1, INF, INF, Some(1))),
        (&[INF, 2.0], &[INF, 3.0], (1, 1.0, 0.5, Some(1))),
    ];
    for (reference, found, (differing, absolute, relative, worst)) in cases {
        let c = compare(reference, found);
        assert_eq!(
            (c.differing, c.absolute, c.relative(), c.worst),
            (*differing, *absolute, *relative, *worst),
            "{reference:?} and {found:?}"
        );
    }
}

#[test]
fn the_worst_come_first() {
    let reference = [1e6f32, 1.0, 1.0, 1.0, 0.0];
    let found = [1e6f32 + 0.0625, 1.0, 1.5, 1.5, -0.0];
    let cases = [
        (10, Tolerance::Exact, vec![2, 3, 0, 4]),
        (2, Tolerance::Exact, vec![2, 3]),
        (1, Tolerance::Ulps(0), vec![2]),
        (0, Tolerance::Exact, vec![]),
    ];
    for (limit, tolerance, expected) in cases {
        assert_eq!(worst(&reference, &found, limit, tolerance), expected, "{limit} {tolerance}");
    }
    // One ULP of a million is more than many ULPs of one.
    let (reference, found) = ([1e6f32, 1.0], [1e6f32.next_up(), 1.0 + 4.0 * f32::EPSILON]);
    assert_eq!(worst(&reference, &found, 2, Tolerance::Exact), [0, 1]);
    assert_eq!(worst(&reference, &found, 2, Tolerance::Ulps(1)), [1, 0]);
}

#[test]
fn tolerances() {
    let rounded = compare(&[100.0f32, 0.0], &[100.00001, -0.0]);
    let broken = compare(&[100.0f32], &[f32::NAN]);
    // tolerance, accepts `rounded` (1 ULP, 7.6e-8), accepts `broken`
    let cases = [
        ("exact", false, false),
        ("0", false, false),
        ("0ulp", false, false),
        ("1ulp", true, false),
        ("1 ulp", true, false),
        ("1e-8", false, false),
        ("1e-7", true, false),
        ("1e300", true, false),
    ];
    for (text, close, nan) in cases {
        let tolerance: Tolerance = text.parse().unwrap();
        assert_eq!(
            (tolerance.accepts(&rounded), tolerance.accepts(&broken)),
            (close, nan),
            "{text}"
        );
        assert_eq!(tolerance.to_string().parse(), Ok(tolerance));
    }
    for text in ["", "ulp", "-1", "-1ulp", "nan", "inf", "1e-6 ", "close"] {
        assert!(text.parse::<Tolerance>().is_err(), "{text:?}");
    }
}

/// Compares the three lines of two numbers, without trailing space.
#[track_caller]
fn check_lines<T: Ulp>(a: T, b: T, expected: [&str; 3]) {
    let lines = align(a, b, Emphasis::Carets);
    let marks = lines.marks.unwrap_or_default();
    assert_eq!(
        [lines.reference.trim_end(), lines.found.trim_end(), marks.trim_end()],
        expected,
        "{a} and {b}"
    );
}

#[test]
fn digits_stand_under_each_other() {
    let cases: &[(f64, f64, [&str; 3])] = &[
        (1.5, 1.5, ["1.5", "1.5", ""]),
        (12.001, 1.001, ["12.001", " 1.001", "^^^^^^"]),
        (1.001, 12.001, [" 1.001", "12.001", "^^^^^^"]),
        (1.25, 1.2501, ["1.25", "1.2501", "     ^"]),
        (100.0, 99.5, ["100", " 99.5", "^^^^^"]),
        (1.0, 2.0, ["1", "2", "^"]),
        (-1.25, -1.26, ["-1.25", "-1.26", "    ^"]),
        (-12.5, -2.5, ["-12.5", " -2.5", " ^^^^"]),
        (-1.5, 1.5, ["-1.5", " 1.5", "^^^^"]),
        (-1.5, 22.5, [" -1.5", " 22.5", " ^^^^"]),
        (0.0, -0.0, [" 0", "-0", "^^"]),
        (0.0, 1e-3, ["0", "0.001", "    ^"]),
        (1e-9, 1.25e-9, ["1.00e-9", "1.25e-9", "  ^^^^^"]),
        (1e-9, 2.5e-11, ["1.000e-9", "0.025e-9", "^^^^^^^^"]),
        (0.0, 2.5e-11, ["0.0e-11", "2.5e-11", "^^^^^^^"]),
        (-1e-9, 1e-9, ["-1e-9", " 1e-9", "^^^^^"]),
        (1e300, 1.5e300, ["1.0e300", "1.5e300", "  ^^^^^"]),
        (
            1e300,
            1e-300,
            ["1.000000000000000000..e300", "0.000000000000000000..e300", &"^".repeat(26)],
        ),
        (f64::NAN, 1.25, ["NaN", "1.25", "^^^^"]),
        (f64::INFINITY, f64::NEG_INFINITY, ["inf", "-inf", "^^^^"]),
        (f64::NAN, f64::NAN, ["NaN", "NaN", ""]),
    ];
    for &(a, b, expected) in cases {
        check_lines(a, b, expected);
    }
}

#[test]
fn digits_of_other_types() {
    // The shortest digits of the type, not those of the number widened.
    check_lines(0.1f32, 0.1f32.next_up(), ["0.1", "0.10000001", "         ^"]);
    check_lines(
        i64::MAX,
        i64::MIN,
        [" 9223372036854775807", "-9223372036854775808", &"^".repeat(20)],
    );
    check_lines(7u8, 200, ["  7", "200", "^^^"]);
}

#[test]
fn colour_replaces_carets() {
    let lines = align(1.25f64, 1.26, Emphasis::Ansi);
    assert_eq!(lines.reference, "1.2\x1b[1;31m5\x1b[0m");
    assert_eq!(lines.found, "1.2\x1b[1;31m6\x1b[0m");
    assert_eq!(lines.marks, None);
    assert_eq!(align(2.0f64, 2.0, Emphasis::Ansi).reference, "2");
}

#[test]
fn any_two_numbers_have_lines_of_one_width() {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.1,
        1e-5,
        9.9e-6,
        1e18,
        1e19,
        123456.789,
        1e-320,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        5e-324,
        1.0 / 3.0,
    ];
    for a in values {
        for b in values {
            let lines = align(a, b, Emphasis::Carets);
            assert_eq!(lines.reference.len(), lines.found.len(), "{a} and {b}");
            assert!(lines.reference.len() < 60, "{lines:?}");
            assert_eq!(lines.marks.is_none(), a.identical(b), "{a} and {b}");
            // Two dots stand for digits that are left out.
            let point = |s: &str| s.replace("..", "  ").find('.');
            if let (Some(x), Some(y)) = (point(&lines.reference), point(&lines.found))
                && a.is_finite()
                && b.is_finite()
            {
                assert_eq!(x, y, "{a} and {b}");
            }
        }
    }
}
