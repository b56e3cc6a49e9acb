//! PyTorch's answers, with every way to run a plan.

use crate::support::{engine, grain};
use dahl::model::Fusion;
use dahl::native::{Native, Scheduling};
use dahl::planner::{Gather, Grain};
use dahl::verify::{self, Settings};
use std::path::{Path, PathBuf};

fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Every case of a directory passes at a grain, fused and unfused.
#[track_caller]
fn check(directory: &Path, grain: Grain, engine: &Native) {
    let cases = verify::cases(directory).unwrap();
    let mut failed = Vec::new();
    for case in &cases {
        for fusion in [Fusion::On, Fusion::Off] {
            let settings = Settings { grain: grain.clone(), fusion, engine };
            let name = case.file_name().unwrap_or_default().to_string_lossy();
            match verify::run(case, &settings) {
                Ok(report) if report.passes() => {}
                Ok(report) => failed.push(format!("{name} {fusion:?}: {:?}", report.worst())),
                Err(e) => failed.push(format!("{name} {fusion:?}: {e}")),
            }
        }
    }
    assert!(failed.is_empty(), "of {} cases:\n{}", cases.len(), failed.join("\n"));
}

/// The ways to run a case: whole, cut, and cut small with everything checked.
fn ways() -> Vec<(Grain, Native)> {
    let plain = |scheduling| Native { scheduling, pin: false, ..Native::default() };
    vec![
        (grain(1, 1, 1, Gather::On), plain(Scheduling::Static)),
        (grain(2, 3, 1, Gather::On), plain(Scheduling::Static)),
        (grain(2, 3, 1, Gather::On), plain(Scheduling::WorkStealing)),
        (grain(3, 3, 2, Gather::Off), engine(Scheduling::Static)),
        (grain(3, 3, 2, Gather::Off), engine(Scheduling::FirstCome)),
    ]
}

#[test]
fn the_repository_has_its_fixtures() {
    let cases = verify::cases(&own()).unwrap();
    assert!(cases.len() >= 200, "expected at least 200 fixtures, found {}", cases.len());
}

#[test]
fn fixtures_pass_whole_on_one_worker() {
    let (grain, engine) = &ways()[0];
    check(&own(), grain.clone(), engine);
}

#[test]
fn fixtures_pass_in_pieces_on_two_workers() {
    for (grain, engine) in &ways()[1..3] {
        check(&own(), grain.clone(), engine);
    }
}

#[test]
fn fixtures_pass_in_small_pieces_on_three_workers_with_checks() {
    for (grain, engine) in &ways()[3..] {
        check(&own(), grain.clone(), engine);
    }
}

#[test]
fn a_wrong_answer_fails() {
    let right = own().join("relu_f64.safetensors");
    let mut file = dahl::file::TensorFile::read(&right).unwrap();
    let output = file.tensors["output"].clone();
    let mut values = output.to_f64_vec();
    values[0] += 1e-9;
    let wrong = dahl::file::StoredTensor::new::<f64>(output.shape(), &values);
    file.tensors.insert("output".to_owned(), wrong);
    let path = std::env::temp_dir().join(format!("dahl-wrong-{}.safetensors", std::process::id()));
    file.write(&path).unwrap();
    let (grain, engine) = &ways()[0];
    let settings = Settings { grain: grain.clone(), fusion: Fusion::On, engine };
    let report = verify::run(&path, &settings);
    std::fs::remove_file(&path).unwrap();
    let report = report.unwrap();
    assert!(!report.passes());
    assert_eq!(report.worst().unwrap().name, "output");
}
