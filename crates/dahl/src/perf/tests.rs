use super::*;
use std::path::Path;

fn key(shape: &str) -> Key {
    Key {
        codelet: "linear".into(),
        variant: "gemm".into(),
        kind: "cpu-avx2".into(),
        shape: shape.into(),
    }
}

fn about() -> About {
    About {
        cpu: "A CPU".into(),
        processors: 2,
        isa: "avx2".into(),
        dahl: "1.2.3".into(),
        date: "2026-01-02".into(),
    }
}

const WORK: Features = Features { flops: 1000, bytes: 4000 };

fn series(nanos: &[u64], contention: Contention) -> Series<'_> {
    Series { nanos, most: 64, contention }
}

fn model() -> PerfModel {
    let mut model = PerfModel::new(about());
    let half = Features { flops: 500, bytes: 2000 };
    model.add(&key("f32[4] -> f32[4]"), half, series(&[990, 1000, 1010], Contention::None));
    model.add(&key("f32[8] -> f32[8]"), WORK, series(&[2000, 2000, 90_000], Contention::None));
    model.add(&key("f32[8] -> f32[8]"), WORK, series(&[3000], Contention::Stream));
    model.bandwidth = Some(Bandwidth { one: 8e9, two: 10e9 });
    model.overheads =
        Some(Overheads { overhead_ns: 20.5, step_ns: 300.0, hop_ns: None, spin_ns: 2e4 });
    let profile = Profile { flops: 1e12, bandwidth: 1e11 };
    model.profiles.insert("gpu".into(), profile);
    model
}

#[test]
fn an_estimate_says_where_it_comes_from() {
    let model = model();
    let measured = model.estimate(&key("f32[8] -> f32[8]"), WORK).unwrap();
    assert_eq!((measured.nanos, measured.source), (2000.0, Source::Measured));
    // Slowed down by 1.5 beside a stream, which leaves it 5 GB/s: 7.5 GB/s for 2 µs.
    assert_eq!(measured.traffic, Some(Bytes(15_000)));
    let known = model.estimate(&key("f32[4] -> f32[4]"), WORK).unwrap();
    assert_eq!((known.nanos, known.traffic), (1000.0, None));
    assert!(known.spread > 0.005 && known.error < known.spread);

    let between = Features { flops: 750, bytes: 3000 };
    let guessed = model.estimate(&key("f32[6] -> f32[6]"), between).unwrap();
    assert_eq!(guessed.source, Source::Regression);
    assert!((guessed.nanos / 1500.0 - 1.0).abs() < 0.05, "{guessed:?}");
    assert!(guessed.error > 0.0 && guessed.traffic.is_some());

    let gpu = Key { kind: "gpu".into(), ..key("f32[8] -> f32[8]") };
    let profiled = model.estimate(&gpu, WORK).unwrap();
    // 4000 bytes at 100 GB/s take longer than 1000 operations.
    assert_eq!((profiled.nanos, profiled.source), (40.0, Source::Profile));

    for unknown in [
        Key { kind: "cpu-neon".into(), ..key("f32[8] -> f32[8]") },
        Key { kind: "tpu".into(), ..key("f64[8] -> f64[8]") },
    ] {
        assert_eq!(model.estimate(&unknown, WORK), None, "{unknown:?}");
    }
}

#[test]
fn text_is_read_back() {
    let model = model();
    let text = model.to_text();
    let read = PerfModel::parse(&text, Path::new("c.json")).unwrap();
    assert_eq!(read, model);
    assert_eq!(read.to_text(), text);
    let empty = PerfModel::default();
    assert_eq!(PerfModel::parse(&empty.to_text(), Path::new("c.json")).unwrap(), empty);
    let line = "\"shape\":\"f32[8] -> f32[8]\",\"flops\":1000,\"bytes\":4000,\"rejected\":1,\
                \"nanos\":[2000,2000],\"nanos_beside\":[3000]}";
    assert!(text.contains(line), "{text}");
}

#[test]
fn rejected_calls_that_cannot_be_are_an_error_at_their_line() {
    let wrong = model().to_text().replace("\"rejected\":1,", "\"rejected\":18446744073709551615,");
    let error = PerfModel::parse(&wrong, Path::new("c.json")).unwrap_err().to_string();
    let expected = "c.json: line 10: expected a calibration, found 18446744073709551615 calls";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn what_cannot_be_is_an_error_at_its_line() {
    let text = model().to_text();
    let check = |from: &str, to: &str, expected: &str| {
        let wrong = text.replacen(from, to, 1);
        assert_ne!(wrong, text, "{from}");
        let error = PerfModel::parse(&wrong, Path::new("c.json")).unwrap_err().to_string();
        assert!(error.starts_with(&format!("c.json: {expected}")), "{error}");
    };
    check("[2000,2000]", "[2000,0]", "line 10: expected a calibration, found a time of 0 ns");
    check("[2000,2000]", "[99999999999999999]", "line 10: expected a calibration, found a time");
    check("[2000,2000]", "[-5]", "line 10: expected a calibration, found invalid value: integer");
    check("\"flops\":1000,", "", "line 10: expected a calibration, found missing field `flops`");
    check("\"flops\":1000,", "\"flop\":1,", "line 10: expected a calibration, found unknown field");
    check("8000000000.0", "-1", "line 5: expected a calibration, found -1, which is impossible");
    check("8000000000.0", "0", "line 5: expected a calibration, found 0, which is impossible");
    check("20.5", "-0.5", "line 4: expected a calibration, found -0.5, which is impossible");
    check("null", "-7", "line 4: expected a calibration, found -7, which is impossible");
    check("100000000000.0", "1e999", "line 6: expected a calibration, found number out of");
    check("dahl_calibration\":1", "dahl_calibration\":2", "dahl_calibration: expected 1, found 2");
    check("{", "", "line 2: expected a calibration's JSON, found ");
}

#[test]
fn another_machine_or_version_is_noticed() {
    let model = model();
    let check = |now: About, expected: Option<&str>| {
        assert_eq!(model.is_stale(&now).as_deref(), expected);
    };
    check(About { date: "later".into(), ..about() }, None);
    check(About { cpu: "B".into(), ..about() }, Some("it was measured on A CPU, this is B"));
    check(
        About { processors: 4, ..about() },
        Some("it was measured on 2 processors, this is 4 processors"),
    );
    check(
        About { isa: "avx512".into(), ..about() },
        Some("it was measured with avx2, this is avx512"),
    );
    check(
        About { dahl: "2.0.0".into(), ..about() },
        Some("it was measured by dahl 1.2.3, this is 2.0.0"),
    );
}

#[test]
fn times_of_another_machine_are_marked() {
    let mut here = PerfModel::new(About { cpu: "Mine".into(), ..about() });
    let mine = Key { kind: "cpu-neon".into(), ..key("f32[4] -> f32[4]") };
    here.add(&mine, WORK, series(&[5], Contention::None));
    here.borrow(&model());
    assert_eq!(here.kinds(), ["cpu-avx2", "cpu-neon"]);
    assert_eq!(here.borrowed.get("cpu-avx2").map(String::as_str), Some("A CPU"));
    assert_eq!(here.borrowed.get("cpu-neon"), None);
    assert!(here.profiles.contains_key("gpu"));
    assert_eq!(here.estimate(&key("f32[8] -> f32[8]"), WORK).unwrap().nanos, 2000.0);
    // What is known is not taken.
    let mut other = model();
    other.borrow(&here);
    assert_eq!(other.kinds(), ["cpu-avx2", "cpu-neon"]);
    assert_eq!(other.borrowed.len(), 1);
}

#[test]
fn a_codelet_is_summed_up() {
    let found = model().summaries();
    let [linear] = &found[..] else { panic!("{found:?}") };
    assert_eq!(linear.codelet, Codelet::from(&key("")));
    assert_eq!((linear.shapes, linear.stats.count, linear.rejected), (2, 5, 1));
    assert_eq!((linear.stats.mean, linear.stats.p50), (1400.0, 1010.0));
    assert!(linear.error.is_some_and(|e| e < 0.5), "{linear:?}");
}

/// One calibration is enough to predict what it did not measure, with wider intervals the less
/// alike it is.
#[test]
fn what_was_not_measured_is_estimated_from_what_was() {
    let mut model = PerfModel::default();
    let mut add = |codelet: &str, variant: &str, element: &str, n: u64, nanos: u64| {
        let shape = format!("{element}[{n},64] -> {element}[{n},64]");
        let size = if element == "f64" { 8 } else { 4 };
        let features = Features { flops: 1000 * n, bytes: 128 * n * size };
        let key = key_of(codelet, variant, &shape);
        let series = Series { nanos: &[nanos; 8], most: 8, contention: Contention::None };
        model.add(&key, features, series);
    };
    for n in [8, 16, 32, 64] {
        add("linear", "gemm", "f32", n, 100 * n);
        add("relu", "plain", "f32", n, 20 * n);
        add("relu", "plain", "f64", n, 40 * n);
    }
    let ask = |codelet: &str, variant: &str, element: &str| {
        let size = if element == "f64" { 8 } else { 4 };
        let features = Features { flops: 1000 * 48, bytes: 128 * 48 * size };
        let shape = format!("{element}[48,64] -> {element}[48,64]");
        model.estimate(&key_of(codelet, variant, &shape), features)
    };
    let same = ask("linear", "gemm", "f32").unwrap();
    assert_eq!(same.source, Source::Regression);
    assert!((same.nanos / 4800.0 - 1.0).abs() < 0.01, "{same:?}");
    // Another variant, and an element type that was measured of other ops only.
    let variant = ask("linear", "plain", "f32").unwrap();
    assert_eq!(variant.source, Source::OtherKernels);
    assert!((variant.nanos / 4800.0 - 1.0).abs() < 0.05, "{variant:?}");
    let wide = ask("linear", "gemm", "f64").unwrap();
    assert_eq!(wide.source, Source::OtherKernels);
    assert!((wide.nanos / 9600.0 - 1.0).abs() < 0.1, "{wide:?}");
    let other = ask("gelu", "plain", "f32").unwrap();
    assert_eq!(other.source, Source::OtherOps);
    assert!((960.0..4800.0).contains(&other.nanos), "{other:?}");
    assert!(same.error < variant.error && variant.error < other.error);
    // Of a kind of unit that was never calibrated nothing is known.
    let features = Features { flops: 1, bytes: 1 };
    let gpu = Key { kind: "gpu".to_owned(), ..key_of("linear", "gemm", "f32[1] -> f32[1]") };
    assert_eq!(model.estimate(&gpu, features), None);
}

fn key_of(codelet: &str, variant: &str, shape: &str) -> Key {
    let [codelet, variant, shape] = [codelet, variant, shape].map(str::to_owned);
    Key { codelet, variant, kind: "cpu-test".to_owned(), shape }
}

#[test]
fn copies_read_back_and_take_no_negative_time() {
    let copies = Some(Copies { hop_ns: 5e3, copy_ns: [200.0, 3e3, 1e5, 2e6] });
    let model = PerfModel { copies, ..model() };
    let text = model.to_text();
    assert_eq!(PerfModel::parse(&text, Path::new("c.json")).unwrap(), model);
    let wrong = text.replace("[200.0,", "[-200.0,");
    assert!(PerfModel::parse(&wrong, Path::new("c.json")).is_err());
}
