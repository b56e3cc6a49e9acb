//! A whole run: epochs, evaluation, checkpoints, going on where one stopped.

use super::Trainer;
use super::checkpoint::{About, Checkpoint, State, check_finite};
use super::checkpoints::{Checkpoints, Writer};
use super::loop_config::{End, EpochRecord, Event, Every, LoopConfig, SampleOrder, Watcher};
use super::pass::{Pass, Samples, Use};
use crate::data::{Dataset, Order, fingerprint};
use crate::error::{Error, Result, Unexpected};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// A run over epochs that can be stopped at any step, by any means, and goes on
/// from its last checkpoint to the same bits.
///
/// Checkpoints are written from snapshots on a thread of their own: training
/// does not wait for the disk. Where the disk is slower than requested, there
/// are fewer checkpoints.
///
/// ```
/// use dahl::data::{Synthetic, Transform};
/// use dahl::model::{Model, Optimizer, TrainSpec};
/// use dahl::train::{Checkpoints, LoopConfig, End, Every, Event, TrainLoop, Trainer};
/// use std::ops::ControlFlow;
///
/// let data = Synthetic::new(dahl::Shape::new(&[1, 4, 4]), 2, 20, 1)?;
/// let model = Model::sequential("small", &[1, 4, 4], |s| s.flatten().linear(2));
/// let spec = TrainSpec::new(5, dahl::DType::F32, Optimizer::adam(0.01));
/// let directory = std::env::temp_dir().join(format!("dahl-doc-{}", std::process::id()));
/// let weights = |stop_after: u64, directory: Option<&std::path::Path>| -> dahl::Result<String> {
///     let grain = dahl::planner::Grain::for_workers(1);
///     let mut trainer = Trainer::new(&model, &spec, grain, &dahl::native::Native::default())?;
///     let config = LoopConfig {
///         train: &data,
///         transform: &Transform::default(),
///         eval_sets: &[],
///         batch: 5,
///         seed: 1,
///         order: Default::default(),
///         epochs: 2,
///         canonical: |_, text| text.to_owned(),
///         recipe: Default::default(),
///         metadata: Default::default(),
///     };
///     let mut training = TrainLoop::new(&mut trainer, config)?;
///     if let Some(directory) = directory {
///         training.save_to(Checkpoints::open(directory, 2)?, Every::Steps(100))?;
///     }
///     let mut steps = 0;
///     training.go(&mut |event| {
///         steps += u64::from(matches!(event, Event::Step { .. }));
///         if steps < stop_after { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
///     })?;
///     Ok(trainer.weights()?.sha256())
/// };
/// weights(3, Some(&directory))?; // stops in the middle of the first epoch
/// assert_eq!(weights(100, Some(&directory))?, weights(100, None)?);
/// # std::fs::remove_dir_all(directory).ok();
/// # Ok::<(), dahl::Error>(())
/// ```
pub struct TrainLoop<'a> {
    trainer: &'a mut Trainer,
    config: LoopConfig<'a>,
    state: State,
    writer: Option<Writer>,
    due: Due,
}

/// When the next checkpoint is to be written.
struct Due {
    every: Every,
    /// When the last one was begun.
    last: Instant,
    /// One was due while another one was being written, or while steps were under way.
    late: bool,
}

impl Due {
    fn new(every: Every) -> Self {
        Self { every, last: Instant::now(), late: false }
    }

    fn is_due(&self, state: &State) -> bool {
        self.late
            || match self.every {
                Every::EpochAnd(time) => state.batch == 0 || self.last.elapsed() >= time,
                Every::Steps(steps) => state.steps.is_multiple_of(steps.max(1)),
            }
    }

    /// Begins to write a checkpoint, or remembers to, where the disk is slow.
    fn save(&mut self, writer: &mut Writer, trainer: &mut Trainer, state: &State) -> Result<()> {
        self.late = writer.is_busy();
        if !self.late {
            writer.begin(state.clone(), trainer.snapshot()?);
            self.last = Instant::now();
        }
        Ok(())
    }
}

impl<'a> TrainLoop<'a> {
    /// A run from the beginning, without checkpoints.
    ///
    /// # Errors
    /// [`Error::Config`] where there is nothing to learn from.
    pub fn new(trainer: &'a mut Trainer, config: LoopConfig<'a>) -> Result<Self> {
        if config.batch == 0 {
            return Err(Error::config("batch", "at least 1 sample", 0));
        }
        if config.train.is_empty() {
            return Err(Error::config("data", "training samples", "none"));
        }
        let state = State { recipe: recipe(trainer, &config), ..State::default() };
        let due = Due::new(Every::EpochAnd(Duration::MAX));
        Ok(Self { trainer, config, state, writer: None, due })
    }

    /// Writes checkpoints to a directory, and goes on from the newest that is
    /// there.
    ///
    /// # Errors
    /// [`Error::Data`] where that one is damaged or of another run, naming file,
    /// expected and found; [`Error::Config`] where it is beyond the last epoch.
    pub fn save_to(&mut self, checkpoints: Checkpoints, every: Every) -> Result<()> {
        let known = fingerprint(self.config.train);
        self.state.recipe.insert(TRAINING_SET.to_owned(), known);
        if let Some(checkpoint) = checkpoints.latest()? {
            self.resume(&checkpoint)?;
        }
        let store = self.trainer.lowered().programs.store.clone();
        let metadata = self.config.metadata.clone();
        self.writer = Some(Writer::new(checkpoints, About { store, metadata })?);
        self.due = Due::new(every);
        Ok(())
    }

    /// Goes on from a checkpoint.
    fn resume(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let bad = |what: &str, expected: String, found: String| {
            Error::data(checkpoint.path(), what, expected, found)
        };
        let (state, recipe) = (&checkpoint.state, &self.state.recipe);
        // The hash says least, so it speaks last.
        let keys = recipe.keys().chain(state.recipe.keys()).filter(|key| *key != PROGRAMS);
        let programs = PROGRAMS.to_owned();
        for key in keys.chain([&programs]) {
            let of = |recipe: &BTreeMap<String, String>| {
                recipe.get(key).cloned().unwrap_or_else(|| "nothing".to_owned())
            };
            let canonical = |text: String| (self.config.canonical)(key, &text);
            let (trained, given) = (canonical(of(&state.recipe)), canonical(of(recipe)));
            if trained != given && key == TRAINING_SET {
                let was = format!("the training set of the run, {trained}");
                let next = "labels, names or lengths differ; restore the old data, or start a \
                            new run";
                return Err(bad(key, was, format!("{given}: {next}")));
            }
            if trained != given {
                let trained = format!("{trained}, as the run was trained with");
                let (path, fault) = (checkpoint.path(), Unexpected::new(key, trained, given));
                return Err(match key.as_str() {
                    PROGRAMS => Error::OtherPrograms { path: Some(path.to_owned()), fault },
                    TRANSFORM => Error::OtherTransform { path: path.to_owned(), fault },
                    _ => Error::Data { path: path.to_owned(), fault },
                });
            }
        }
        // The numbers say the same several times; all must agree.
        let (samples, size) = (self.config.train.len() as u64, self.config.batch as u64);
        let steps = state.epoch.checked_mul(samples.div_ceil(size));
        let steps = steps.and_then(|steps| steps.checked_add(state.batch));
        if state.batch > samples.div_ceil(size) || steps != Some(state.steps) {
            let expected = format!("{} steps per epoch", samples.div_ceil(size));
            let found = format!("step {} in {}", state.steps, state.name());
            return Err(bad("steps", expected, found));
        }
        let seen = samples.min(state.batch * size);
        if state.pass.samples as u64 != seen || !state.pass.total_loss.is_finite() {
            let found = format!("{} with a loss of {}", state.pass.samples, state.pass.total_loss);
            return Err(bad("pass", format!("{seen} samples, a finite loss"), found));
        }
        if state.history.len() as u64 != state.epoch {
            let found = format!("{} epochs", state.history.len());
            return Err(bad("history", format!("{} epochs", state.epoch), found));
        }
        // The results after fewer epochs are not those of the weights now.
        let (begun, how) = match state.batch {
            0 => (state.epoch, "has done"),
            _ => (state.epoch + 1, "is in"),
        };
        if begun > self.config.epochs {
            let expected = format!("at least {begun}, which the run {how}");
            return Err(Error::config("epochs", expected, self.config.epochs));
        }
        checkpoint.restore(self.trainer)?;
        self.state = state.clone();
        Ok(())
    }

    /// Its progress.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The newest whole checkpoint.
    pub fn last_checkpoint(&self) -> Option<&Path> {
        self.writer.as_ref()?.last()
    }

    /// Whether all epochs are done.
    pub fn is_finished(&self) -> bool {
        self.state.epoch >= self.config.epochs
    }

    /// Trains until all epochs are done or `watch` breaks, which ends the run
    /// after the step. At its end a checkpoint is written.
    ///
    /// # Errors
    /// [`Error::NotFinite`] and [`Error::EvalNotFinite`] where a loss is not finite, [`Error::Overflow`]
    /// where a value to be saved is not, [`Error::NotSaved`] where the last
    /// checkpoint cannot be written. Earlier checkpoints are as they were.
    pub fn go(&mut self, watch: &mut Watcher<'_>) -> Result<End> {
        let mut end = End::Finished;
        let result = loop {
            if self.is_finished() {
                break Ok(());
            }
            match self.epoch(watch) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) if self.is_finished() => break Ok(()),
                Ok(ControlFlow::Break(())) => {
                    end = End::Stopped;
                    break Ok(());
                }
                Err(error) => break Err(error),
            }
        };
        // Whatever happened, the one that is being written is reported.
        let saved = self.writer.as_mut().and_then(Writer::wait);
        let saved = saved.map_or(Ok(()), |result| tell(result, watch).map(drop));
        result.and(saved)?;
        self.save_last(watch)?;
        Ok(end)
    }

    /// The rest of an epoch, and its eval_sets.
    fn epoch(&mut self, watch: &mut Watcher<'_>) -> Result<ControlFlow<()>> {
        let LoopConfig { train, transform, batch, seed, order, .. } = self.config;
        let (epoch, from) = (self.state.epoch, Instant::now());
        let order = match order {
            SampleOrder::Shuffled => Order::shuffled(train.len(), seed, epoch),
            SampleOrder::InOrder => Order::sequential(train.len()),
        };
        let shared = Some(0);
        let samples = Samples { data: train, transform, order: &order, epoch, batch, shared };
        let before = self.state.seconds;
        let (state, writer, due) = (&mut self.state, &mut self.writer, &mut self.due);
        let mut flow = ControlFlow::Continue(());
        self.trainer.pass(&samples, Use::Train, state.pass, &mut |trainer, pass| {
            state.pass = *pass;
            state.steps = trainer.ended();
            state.batch += 1;
            state.seconds = before + from.elapsed().as_secs_f64();
            flow = both(flow, watch(Event::Step { epoch: epoch + 1, pass }));
            if let Some(writer) = writer {
                flow = both(flow, poll(writer, watch)?);
                let whole = pass.samples == train.len();
                // The end of the epoch has one of its own.
                if flow.is_continue() && !whole && due.is_due(state) {
                    // What is saved is the state behind a step, with none under way.
                    match trainer.ended() == trainer.steps() {
                        true => due.save(writer, trainer, state)?,
                        false => {
                            due.late = true;
                            trainer.settle();
                        }
                    }
                }
            }
            Ok(flow)
        })?;
        if flow.is_break() {
            return Ok(flow);
        }
        let mut evaluated = Vec::new();
        for (number, set) in self.config.eval_sets.iter().enumerate() {
            let order = Order::sequential(set.data.len());
            let (data, transform) = (set.data, set.transform);
            let shared = Some(1 + number as u32);
            let samples = Samples { data, transform, order: &order, epoch: 0, batch, shared };
            let (nothing, name, of) = (Pass::default(), set.name, data.len());
            let pass = self.trainer.pass(&samples, Use::Evaluate, nothing, &mut |_, pass| {
                flow = watch(Event::Evaluating { name, pass, of });
                Ok(flow)
            })?;
            if flow.is_break() {
                // It is evaluated again when the run goes on.
                return Ok(flow);
            }
            evaluated.push((name.to_owned(), pass));
        }
        let record = self.finish_epoch(evaluated);
        flow = watch(Event::Epoch(&record));
        let finished = self.is_finished();
        if let Some(writer) = &mut self.writer {
            flow = both(flow, poll(writer, watch)?);
            // The end of the run has one of its own.
            if flow.is_continue() && !finished && self.due.is_due(&self.state) {
                self.due.save(writer, self.trainer, &self.state)?;
            }
        }
        Ok(flow)
    }

    fn finish_epoch(&mut self, evaluated: Vec<(String, Pass)>) -> EpochRecord {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let state = &mut self.state;
        let record = EpochRecord {
            epoch: state.epoch + 1,
            steps: state.steps,
            train: state.pass,
            evaluated,
            seconds: state.seconds,
            time: now.map_or(0.0, |d| d.as_secs_f64()),
            lr: Some(self.trainer.learning_rate(state.steps.saturating_sub(1))),
        };
        state.history.push(record.clone());
        (state.epoch, state.batch, state.seconds) = (state.epoch + 1, 0, 0.0);
        state.pass = Pass::default();
        record
    }

    /// Writes the checkpoint that the run ends with, and waits for it.
    fn save_last(&mut self, watch: &mut Watcher<'_>) -> Result<()> {
        let Some(writer) = &mut self.writer else {
            return check_finite(self.state.steps, &self.trainer.snapshot()?);
        };
        let saved = writer.last().and_then(Path::file_name);
        if saved.is_some_and(|name| *name == *self.state.name()) || self.state.steps == 0 {
            return Ok(());
        }
        self.due.save(writer, self.trainer, &self.state)?;
        match writer.wait() {
            Some(Err(error @ Error::Overflow { .. })) => Err(error),
            Some(Err(source)) => Err(Error::NotSaved {
                directory: writer.checkpoints().directory().to_owned(),
                kept: writer.last().map(Path::to_owned),
                source: Box::new(source),
            }),
            Some(Ok(path)) => {
                let _ = watch(Event::Saved(&path));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// The key of the fingerprint of the training set. A run that is not saved has
/// none.
const TRAINING_SET: &str = "training set";

/// The key of the hash of everything that a step computes.
const PROGRAMS: &str = "programs";

/// The key of what is done to samples.
const TRANSFORM: &str = "transform";

/// The identity of a run, by key: the values that decide its bits.
fn recipe(trainer: &Trainer, config: &LoopConfig<'_>) -> BTreeMap<String, String> {
    let mut recipe = config.recipe.clone();
    let known = [
        // Model, element type, batch sizes, optimizer: everything but the rate.
        (PROGRAMS, trainer.plan().numerics_hash()),
        ("learning rate", format!("{:?} {:?}", trainer.lr, trainer.schedule)),
        // Not the name: a dataset may be moved, and named by another path.
        ("training samples", samples(config.train)),
        (TRANSFORM, format!("{:?}", config.transform)),
        ("batch", config.batch.to_string()),
        ("seed", config.seed.to_string()),
        ("visits", format!("{:?}", config.order)),
    ];
    recipe.extend(known.map(|(key, value)| (key.to_owned(), value)));
    recipe
}

fn samples(data: &dyn Dataset) -> String {
    format!("{} of {} in {} classes", data.len(), data.shape(), data.classes().len())
}

fn poll(writer: &mut Writer, watch: &mut Watcher<'_>) -> Result<ControlFlow<()>> {
    match writer.poll() {
        Some(result) => tell(result, watch),
        None => Ok(ControlFlow::Continue(())),
    }
}

/// Tells what became of a checkpoint. Values that are not finite end the run;
/// a disk that refuses does not.
fn tell(result: Result<PathBuf>, watch: &mut Watcher<'_>) -> Result<ControlFlow<()>> {
    match result {
        Ok(path) => Ok(watch(Event::Saved(&path))),
        Err(error @ Error::Overflow { .. }) => Err(error),
        Err(error) => Ok(watch(Event::NotSaved(&error))),
    }
}

/// Breaks where either breaks.
fn both(a: ControlFlow<()>, b: ControlFlow<()>) -> ControlFlow<()> {
    if a.is_break() { a } else { b }
}
