//! Model and plan files that are cut off or damaged are read or refused, never a panic.

use dahl::exec::Engine;
use dahl::graph::{Programs, needed_again, recomputable};
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::plan::{Numerics, PlannedPrograms, Recompute};
use dahl::planner::{Grain, Placer};
use dahl::units::Bytes;
use dahl::{DType, Error};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::BTreeMap;

/// A block with everything that a file can say, short enough for every prefix.
const TEXT: &str = r#"name = "a"
input = [3, 8, 8]
layers = [
  { type = "conv2d", name = "stem", out = 8, kernel = [3, 1], stride = 2, padding = 1, groups = 1, bias = false },
  { type = "batch_norm2d", eps = 1e-5, momentum = 0.1 },
  { type = "leaky_relu", negative_slope = 0.2 },
  { type = "residual", body_name = "", body = [{ type = "conv2d", out = 8, kernel = 1 }, { type = "dropout", p = 0.5 }], shortcut = [], then = [{ type = "gelu" }] },
  { type = "sequential", layers = [{ type = "max_pool2d", kernel = 2, stride = 1, padding = 1 }, { type = "global_avg_pool2d" }] },
  { type = "flatten" },
  { type = "linear", out = 10 },
]
"#;

/// True where the text is a model that can be trained.
fn read(text: &str) -> bool {
    let spec = TrainSpec::new(2, DType::F32, Optimizer::sgd(0.1));
    let result = Model::parse(text).and_then(|model| {
        model.lower(&spec)?;
        match model.to_torch() {
            Ok(_) | Err(Error::Unsupported { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    });
    match result {
        Ok(()) => true,
        Err(e @ (Error::Model(_) | Error::Config { .. })) => {
            assert!(e.to_string().contains("expected"), "{e}");
            false
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn every_prefix_of_a_model_is_refused() {
    assert!(read(TEXT));
    for length in (0..TEXT.len() - 1).filter(|&n| TEXT.is_char_boundary(n)) {
        // The last character but one closes the list.
        assert!(!read(&TEXT[..length]), "{}", &TEXT[..length]);
    }
}

#[test]
fn flipped_bits_of_a_model_never_panic() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let (mut taken, mut refused) = (0, 0);
    for i in 0..1000 {
        let mut bytes = TEXT.as_bytes().to_vec();
        for _ in 0..1 + i % 3 {
            let at = random.next_u64() as usize % bytes.len();
            bytes[at] ^= 1 << (random.next_u32() % 8);
        }
        let fine = read(&String::from_utf8_lossy(&bytes));
        *(if fine { &mut taken } else { &mut refused }) += 1;
    }
    // A few only change a name.
    assert!(taken > 0 && refused > 900, "{taken} taken, {refused} refused");
}

/// Numbers of any size in the place of any number: nothing overflows.
#[test]
fn numbers_of_a_model_that_lie_never_panic() {
    let digits: Vec<usize> =
        (0..TEXT.len()).filter(|&i| TEXT.as_bytes()[i].is_ascii_digit()).collect();
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let mut taken = 0;
    for i in 0..1000 {
        let at = digits[i % digits.len()];
        let lie = match i / digits.len() % 4 {
            0 => (random.next_u32() % 4).to_string(),
            1 => (1u64 << (random.next_u32() % 63)).to_string(),
            2 => i64::MAX.to_string(),
            _ => format!("{}.5e{}", random.next_u32() % 10, random.next_u32() % 400),
        };
        taken += usize::from(read(&format!("{}{lie}{}", &TEXT[..at], &TEXT[at + 1..])));
    }
    assert!(taken > 100, "{taken} taken");
}

/// The text of a small plan with two pieces, two workers and a node that runs again, without
/// its hash.
fn plan_text() -> (Programs, String) {
    let model = Model::sequential("m", &[3], |s| s.linear(2).relu().linear(2));
    let spec = TrainSpec::new(2, DType::F64, Optimizer::sgd(0.1));
    let programs = model.lower(&spec).unwrap().programs;
    let again = programs.programs.iter().map(|p| needed_again(&p.graph, &recomputable(&p.graph)));
    let recompute = Recompute { programs: again.collect() };
    let numerics = Numerics::default_for(&programs, dahl::Isa::detect());
    let place = |expanded: &_| Grain::for_workers(2).placement(expanded);
    let plan = PlannedPrograms::plan(&programs, numerics, recompute, place).unwrap();
    let text = plan.to_text();
    let text = text.lines().filter(|line| !line.starts_with("hash")).collect::<Vec<_>>().join("\n");
    (programs, text + "\n")
}

/// True where the text is a plan, which can then be run and printed.
fn is_plan(text: &str, programs: &Programs) -> bool {
    match PlannedPrograms::parse(text, programs) {
        Ok(plan) => {
            let peak = plan.memory.peak();
            // More workers or memory than this machine has are no fault of the plan.
            if plan.placement.workers <= 2 && peak < Bytes(1 << 20) {
                Native::default().prepare(&plan).unwrap();
            }
            assert_eq!(*PlannedPrograms::parse(&plan.to_text(), programs).unwrap(), *plan);
            true
        }
        Err(error @ (Error::Plan(_) | Error::OtherPrograms { path: None, .. })) => {
            assert!(error.to_string().contains("expected"), "{error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// One `storages` line less was a panic, wherever plans are read.
#[test]
fn a_plan_without_one_of_its_lines_is_refused() {
    let (programs, text) = plan_text();
    assert!(is_plan(&text, &programs), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    for (i, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("  {")) {
        let rest = [&lines[..i], &lines[i + 1..]].concat().join("\n");
        assert!(!is_plan(&rest, &programs), "without {line}");
        let twice = [&lines[..=i], &lines[i..]].concat().join("\n");
        assert!(!is_plan(&twice, &programs), "{line} twice");
    }
    let storages: Vec<&&str> = lines.iter().filter(|line| line.contains("home = ")).collect();
    let error =
        PlannedPrograms::parse(&text.replacen(&format!("{}\n", storages[0]), "", 1), &programs);
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("plan: memory of \"train 2\": expected "), "{error}");
    assert!(error.contains(" storages, found "), "{error}");
}

/// Every number and every word of one line of each kind, replaced.
#[test]
fn damaged_plans_are_refused_or_run() {
    let (programs, text) = plan_text();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut kinds, mut plans, mut begin) = (BTreeMap::new(), 0, 0);
    for line in text.split_inclusive('\n') {
        // The keys without their values.
        let kind: String = line.split('"').step_by(2).collect();
        let seen: &mut usize =
            kinds.entry(kind.replace(|c: char| c.is_ascii_digit(), "")).or_default();
        *seen += 1;
        let mut at = if *seen > 1 { line.len() } else { 0 };
        while let Some(start) = line[at..].find(word).map(|start| at + start) {
            let end = line[start..].find(|c| !word(c)).map_or(line.len(), |end| start + end);
            let others: &[&str] = match line.as_bytes()[start].is_ascii_digit() {
                true => &["0", "1000000000", "18446744073709551615"],
                false => &["x"],
            };
            for other in others {
                let edited = [&text[..begin + start], other, &text[begin + end..]].concat();
                plans += usize::from(is_plan(&edited, &programs));
            }
            at = end;
        }
        begin += line.len();
    }
    assert!(plans > 0, "some edits are plans");
}

#[test]
fn more_workers_than_any_machine_has_are_refused() {
    let (programs, text) = plan_text();
    let text = text.replacen("workers = 2", "workers = 1000000000", 1);
    let error = PlannedPrograms::parse(&text, &programs).unwrap_err().to_string();
    let expected = "placement: expected 1 to 65536 workers, found 1000000000";
    assert!(error.contains(expected), "{error}");
    let error = Grain::for_workers(1_000_000_000).plan(&programs).unwrap_err().to_string();
    assert_eq!(error, "workers: expected at most 65536, found 1000000000");
}
