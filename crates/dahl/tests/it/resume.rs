//! Runs that stop and go on, and checkpoints that are damaged.

use dahl::data::{Augment, Synthetic, Transform};
use dahl::file::TensorFile;
use dahl::model::{Model, Optimizer, Schedule, TrainSpec};
use dahl::native::Native;
use dahl::planner::Grain;
use dahl::train::{
    Checkpoint, Checkpoints, End, EpochRecord, EvalSet, Event, Every, LoopConfig, TrainLoop,
    Trainer, Watcher,
};
use dahl::{DType, Error, Result, Shape};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// A directory that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dahl-run-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a run is made of.
#[derive(Clone)]
struct Recipe {
    dtype: DType,
    optimizer: Optimizer,
    schedule: Schedule,
    epochs: u64,
    seed: u64,
}

impl Recipe {
    fn new(dtype: DType, optimizer: Optimizer) -> Self {
        Self { dtype, optimizer, schedule: Schedule::Constant, epochs: 2, seed: 3 }
    }
}

fn momentum() -> Optimizer {
    let mut optimizer = Optimizer::sgd(0.05);
    if let Optimizer::Sgd { sgd, .. } = &mut optimizer {
        (sgd.momentum, sgd.nesterov) = (0.9, true);
    }
    optimizer
}

/// What a run gave.
#[derive(Debug, PartialEq)]
struct Outcome {
    end: End,
    weights: TensorFile,
    history: Vec<EpochRecord>,
    saved: Vec<PathBuf>,
}

/// Training steps of a run: 22 samples by 5.
const STEPS: u64 = 5;

type Into<'a> = Option<(&'a Path, Every)>;

/// Runs until the end or so many events of steps, judging included.
fn run(recipe: &Recipe, workers: usize, into: Into<'_>, stop: u64) -> Result<Outcome> {
    let (mut steps, mut saved) = (0, Vec::new());
    let gave = run_with(recipe, workers, into, &mut |event| {
        match event {
            Event::Step { .. } | Event::Evaluating { .. } => steps += 1,
            Event::Saved(path) => saved.push(path.to_owned()),
            Event::NotSaved(error) => panic!("{error}"),
            _ => {}
        }
        if steps < stop { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(Outcome { saved, ..gave })
}

fn run_with(
    recipe: &Recipe,
    workers: usize,
    into: Into<'_>,
    watch: &mut Watcher<'_>,
) -> Result<Outcome> {
    let train = Synthetic::new(Shape::new(&[1, 6, 6]), 3, 22, 1)?;
    let test = Synthetic::new(Shape::new(&[1, 6, 6]), 3, 7, 2)?;
    let model = Model::sequential("small", &[1, 6, 6], |s| {
        s.conv2d(2, 3).batch_norm2d().relu().dropout(0.3).flatten().linear(3)
    });
    let spec = TrainSpec {
        train: vec![5, 2],
        eval: vec![5, 2],
        seed: recipe.seed,
        ..TrainSpec::new(5, recipe.dtype, recipe.optimizer)
    };
    let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(workers), &Native::default())?;
    trainer.set_schedule(recipe.schedule.clone());
    let augment = Some(Augment { seed: recipe.seed, padding: 1, flip: true });
    let (learned, evaluated) = (Transform { augment, normalise: None }, Transform::default());
    let course = LoopConfig {
        train: &train,
        transform: &learned,
        eval_sets: &[EvalSet { name: "test", data: &test, transform: &evaluated }],
        batch: 5,
        seed: recipe.seed,
        order: Default::default(),
        epochs: recipe.epochs,
        canonical: |_, text| text.to_owned(),
        recipe: Default::default(),
        metadata: Default::default(),
    };
    let mut run = TrainLoop::new(&mut trainer, course)?;
    if let Some((directory, every)) = into {
        run.save_to(Checkpoints::open(directory, 2)?, every)?;
    }
    let end = run.go(watch)?;
    let mut history = run.state().history.clone();
    history.iter_mut().for_each(|record| (record.seconds, record.time) = (0.0, 0.0));
    Ok(Outcome { end, weights: trainer.weights()?, history, saved: Vec::new() })
}

const EPOCH: Every = Every::EpochAnd(std::time::Duration::MAX);

#[test]
fn a_run_that_was_stopped_anywhere_ends_with_the_same_bits() {
    let scheduled = Recipe {
        schedule: Schedule::Warmup {
            steps: 3,
            then: Box::new(Schedule::Cosine { steps: 7, least: 0.1 }),
        },
        ..Recipe::new(DType::F32, Optimizer::adamw(0.01))
    };
    for (i, recipe) in [
        Recipe::new(DType::F32, Optimizer::adam(0.01)),
        Recipe::new(DType::F64, momentum()),
        scheduled,
    ]
    .iter()
    .enumerate()
    {
        let whole = run(recipe, 1, None, u64::MAX).unwrap();
        // In the middle, at the end of training, while judging, at an epoch's end.
        for stop in 1..2 * (STEPS + 2) {
            let scratch = Scratch::new(&format!("stopped-{i}-{stop}"));
            let into = Some((&*scratch.0, EPOCH));
            let stopped = run(recipe, 1, into, stop).unwrap();
            assert_eq!((stopped.end, stopped.saved.is_empty()), (End::Stopped, false), "{stop}");
            let rest = run(recipe, 1 + stop as usize % 3, into, u64::MAX).unwrap();
            assert_eq!((rest.end, &rest.weights), (End::Finished, &whole.weights), "after {stop}");
            assert_eq!(rest.history, whole.history, "after {stop}");
        }
    }
}

#[test]
fn a_run_that_stops_at_every_step_ends_with_the_same_bits() {
    let recipe = Recipe::new(DType::F32, Optimizer::adam(0.01));
    let scratch = Scratch::new("every");
    let mut runs = 0;
    let last = loop {
        // Evaluating takes two steps, and starts anew.
        let stop = if runs % 2 == 0 { 1 } else { 3 };
        let gave = run(&recipe, 1, Some((&scratch.0, EPOCH)), stop).unwrap();
        runs += 1;
        if gave.end == End::Finished {
            break gave;
        }
    };
    assert!(runs > 5, "{runs} runs");
    let whole = run(&recipe, 2, None, u64::MAX).unwrap();
    assert_eq!((last.weights, last.history), (whole.weights, whole.history));
}

#[test]
fn checkpoints_change_no_bit_and_the_newest_are_kept() {
    let recipe = Recipe { epochs: 4, ..Recipe::new(DType::F64, Optimizer::adam(0.01)) };
    let whole = run(&recipe, 1, None, u64::MAX).unwrap();
    let always = Every::EpochAnd(std::time::Duration::ZERO);
    for (name, every) in [("epochs", EPOCH), ("steps", Every::Steps(2)), ("always", always)] {
        let scratch = Scratch::new(name);
        let gave = run(&recipe, 2, Some((&scratch.0, every)), u64::MAX).unwrap();
        assert_eq!((gave.weights, gave.history), (whole.weights.clone(), whole.history.clone()));
        let mut left: Vec<String> = fs::read_dir(&scratch.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left.len(), 3, "two checkpoints and the lock: {left:?}");
        assert_eq!(left[1], "epoch-00004-batch-0000000", "{every:?}");
    }
}

#[test]
fn a_directory_is_for_one_run_at_a_time_and_cleared_of_what_was_left() {
    let scratch = Scratch::new("lock");
    let first = Checkpoints::open(&scratch.0, 2).unwrap();
    let error = Checkpoints::open(&scratch.0, 2).unwrap_err().to_string();
    assert!(error.starts_with("run: expected a directory that no other process"), "{error}");
    drop(first);
    let half = scratch.0.join(".epoch-00001-batch-0000000.1.tmp");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("weights.safetensors"), "half").unwrap();
    assert!(Checkpoints::open(&scratch.0, 2).unwrap().latest().unwrap().is_none());
    assert!(!half.exists());
}

#[test]
fn another_recipe_is_refused_by_name() {
    let recipe = Recipe::new(DType::F32, Optimizer::adam(0.01));
    let scratch = Scratch::new("recipe");
    let into = Some((&*scratch.0, EPOCH));
    run(&recipe, 1, into, 2).unwrap();
    let check = |other: Recipe, what: &str| {
        let error = run(&other, 1, into, u64::MAX).unwrap_err();
        let text = error.to_string();
        let kind = matches!(error, Error::Data { .. } | Error::OtherPrograms { path: Some(_), .. });
        assert!(kind && text.contains(what), "{text}");
        assert!(text.contains("epoch-00000-batch-0000002: "), "{text}");
    };
    check(
        Recipe { seed: 4, ..recipe.clone() },
        "seed: expected 3, as the run was trained with, found 4",
    );
    let lr = Optimizer::adam(0.02);
    check(Recipe { optimizer: lr, ..recipe.clone() }, "learning rate: expected 0.01");
    check(Recipe { dtype: DType::F64, ..recipe.clone() }, "programs: expected");
    check(Recipe { optimizer: momentum(), ..recipe.clone() }, "expected");
    // More epochs of the same are no other run.
    let longer = Recipe { epochs: 3, ..recipe };
    let rest = run(&longer, 1, into, u64::MAX).unwrap();
    assert_eq!(rest.weights, run(&longer, 1, None, u64::MAX).unwrap().weights);
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_old_one_and_the_run_goes_on() {
    let recipe = Recipe::new(DType::F32, Optimizer::adam(0.01));
    let scratch = Scratch::new("unwritten");
    let into = Some((&*scratch.0, EPOCH));
    let old = run(&recipe, 1, into, 2).unwrap().saved.remove(0);
    let sums = fs::read(old.join("SHA256SUMS")).unwrap();
    // A file has the name under which each of the next two would be written.
    let block = |epoch: u64| {
        let name = format!(".epoch-{epoch:05}-batch-0000000.{}.tmp", std::process::id());
        fs::write(scratch.0.join(name), "").unwrap();
    };
    let mut failures = Vec::new();
    let error = run_with(&recipe, 1, into, &mut |event| {
        match event {
            Event::Step { .. } => [1, 2].into_iter().for_each(block),
            Event::NotSaved(error) => failures.push(error.to_string()),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::NotSaved { .. }), "{error}");
    let kept = format!("{} is complete; remove the cause and resume the run", old.display());
    assert!(error.to_string().ends_with(&kept), "{error}");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(fs::read(old.join("SHA256SUMS")).unwrap(), sums);
    let rest = run(&recipe, 1, into, u64::MAX).unwrap();
    assert_eq!(rest.weights, run(&recipe, 1, None, u64::MAX).unwrap().weights);
}

/// Each file of a small checkpoint, cut off at every length and with random
/// bits flipped, with and without a sum that fits.
#[test]
fn damaged_checkpoints_are_refused() {
    let recipe = Recipe::new(DType::F32, Optimizer::sgd(0.01));
    let scratch = Scratch::new("damaged");
    let path = run(&recipe, 1, Some((&scratch.0, EPOCH)), 3).unwrap().saved.remove(0);
    Checkpoint::read(&path).unwrap();
    let refused = |what: &str| match Checkpoint::read(&path) {
        Ok(_) => panic!("{what} was not noticed"),
        Err(error @ (Error::Data { .. } | Error::Io { .. })) => {
            let text = error.to_string();
            assert!(text.contains(path.to_str().unwrap()), "{what}: {text}");
        }
        Err(error) => panic!("{what}: {error}"),
    };
    let mut random = 1u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize % below
    };
    for file in ["state.json", "weights.safetensors", "optimizer.safetensors", "SHA256SUMS"] {
        let file = path.join(file);
        let whole = fs::read(&file).unwrap();
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            refused(&format!("{} cut off at {length}", file.display()));
        }
        for _ in 0..250 {
            let (at, bit) = (next(whole.len()), next(8));
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&file, &bytes).unwrap();
            refused(&format!("{} with bit {bit} of byte {at} flipped", file.display()));
        }
        fs::remove_file(&file).unwrap();
        refused("a file that is missing");
        fs::write(&file, &whole).unwrap();
    }
    Checkpoint::read(&path).unwrap();
}
