//! The execution of a run: training, what is kept of it, and what ends it.

use super::config::{RunConfig, canonical};
use super::data::RunData;
use super::directory::{Log, RunDirectory, Start};
use super::events::{Event, Failed, Outcome, Stage, StopReason, Warning};
use super::files;
use super::forecast::planned_parts;
use super::meters::Meters;
use super::open::{Opened, Place};
use super::placements::{Changes, announced};
use super::prepare::Prepared;
use super::record::{EpochMetrics, Predicted};
use super::recorder::Recorder;
use super::scheduled::Scheduled;
use crate::data::Order;
use crate::error::{Error, Result};
use crate::exec::Engine;
use crate::file::TensorFile;
use crate::model::Span;
use crate::native::{Native, TraceLimit, peak_bytes, resident_bytes};
use crate::perf::PerfModel;
use crate::train::{
    Card, Checkpoints, End, EpochRecord, EvalSet, Event as Step, Every, LoopConfig, SampleOrder,
    Samples, State, TrainLoop, Trainer,
};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Checkpoints are at most this far apart, unless their distance in steps is set.
const CHECKPOINT_TIME: Duration = Duration::from_secs(30);

/// A run that is ready to train.
pub struct Run<'a> {
    config: RunConfig,
    data: &'a RunData,
    place: Place,
    trainer: Trainer,
    recorder: Recorder,
    changes: Changes,
    predicted: Option<Predicted>,
    /// The files of the run directory that are known beforehand.
    texts: Vec<(&'static str, String)>,
    card: TensorFile,
    start: Start,
    begin: Instant,
}

impl<'a> Run<'a> {
    /// Makes memory, engine and meters ready. `known` are the times of calls, which a policy may
    /// ask for; `start` says what the session is kept as, and `begin` when it began.
    ///
    /// # Errors
    /// Where the engine cannot run the plan, or the initial weights do not fit.
    pub fn new(
        opened: Opened,
        data: &'a RunData,
        prepared: Prepared,
        (meters, known): (Meters, PerfModel),
        (start, begin): (Start, Instant),
    ) -> Result<Self> {
        let Prepared { config, spec, lowered, plan, adapter, scheduling, predicted, .. } = prepared;
        let session = &config.session;
        let native = Native {
            record: session.trace.0,
            limit: TraceLimit { from_step: session.trace_from, events: session.trace_events },
            throttles: session.throttle.clone(),
            scheduling,
            ..Native::default()
        };
        let engine = Scheduled::new(native, &config.placement, known);
        let (session, changes) = announced(engine.prepare(&plan)?);
        let mut trainer = Trainer::with_session(lowered, plan, &spec, session)?;
        trainer.session().share(Arc::new(data.shared()))?;
        adapter.into_iter().for_each(|adapter| trainer.adapt(adapter));
        let (epochs, batch) = (config.placement.epochs, config.identity.batch);
        let steps_per_epoch = data.train.len().div_ceil(batch);
        trainer.set_schedule(config.identity.schedule.over(Span { epochs, steps_per_epoch }));
        if let Some((path, file)) = &opened.init {
            trainer.set_weights(file, path)?;
        }
        let mut card = TensorFile::default();
        Card::put(&data.card(&config), &mut card)?;
        let texts = vec![
            (files::CONFIG, config.to_toml()?),
            (files::MODEL, data.model.to_toml()?),
            (files::PLAN, trainer.plan().to_text()),
        ];
        let planned = planned_parts(&trainer.plan().memory);
        let mut recorder = Recorder::begin((trainer.session().counters(), planned), meters);
        recorder.limit(config.session.energy_budget)?;
        let place = opened.place;
        Ok(Self {
            config,
            data,
            place,
            trainer,
            recorder,
            changes,
            predicted,
            texts,
            card,
            start,
            begin,
        })
    }

    /// What counts and meters the session; views on it can be opened.
    pub fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }

    /// The text of the configuration.
    pub fn config_text(&self) -> &str {
        &self.texts[0].1
    }

    /// Trains to the end, or until a limit or a signal stops the run; then writes the weights
    /// and what is kept of the run.
    ///
    /// # Errors
    /// Where training failed. What could not be written at the end is in the outcome.
    pub fn go(
        mut self,
        signal: &dyn Fn() -> Option<u8>,
        events: &mut dyn FnMut(Event<'_>),
    ) -> Result<Outcome, Failed> {
        self.config.session.idle_time.into_iter().for_each(|time| self.recorder.rest(time));
        let trained = self.train(signal, events);
        // A run that failed is looked at most of all.
        let trace = self.config.session.trace.0.then(|| self.trainer.session().take_trace());
        trace.iter().for_each(|trace| events(Event::Trace(trace)));
        if self.trainer.changes() > 0 {
            self.recorder.replanned(planned_parts(&self.trainer.plan().memory));
        }
        if let Some(error) = self.trainer.stopped_adapting() {
            events(Event::Warning(Warning::AdaptingEnded(error)));
        }
        let unkept = self.recorder.end(trace);
        let energy = self.recorder.energy();
        events(Event::Warning(Warning::Energy(&energy)));
        let Trained { directory, history, from, steps, stopped, idle, unsaved, errors } =
            trained.inspect_err(|_| {
                let warn = |error| events(Event::Warning(Warning::AfterFailure(error)));
                unkept.iter().for_each(warn);
            })?;
        let errors = errors.into_iter().chain(unkept).collect();
        let weights = TensorFile { tensors: self.trainer.weights()?.tensors, ..self.card.clone() };
        let mut outcome = Outcome {
            directory: directory.as_ref().map(|directory| directory.path().to_owned()),
            history,
            from,
            steps,
            stopped,
            signal: None,
            idle,
            unsaved,
            errors,
            sha256: weights.sha256(),
            save: None,
            kept: None,
            confusion: None,
            energy,
            overspent: self.recorder.overspent(),
            planned: self.trainer.plan().memory.peak(),
            predicted: self.predicted.take(),
            batch: self.config.identity.batch,
            seconds: 0.0,
        };
        if let (Some(directory), true) = (&directory, self.trainer.changes() > 0) {
            // The plan that the run ended with.
            let written = directory.write(files::PLAN, &self.trainer.plan().to_text());
            outcome.errors.extend(written.err());
        }
        if self.config.session.confusion.0 && outcome.stopped.is_none() {
            self.confusion(&mut outcome, signal, events);
        }
        self.write(&mut outcome, &weights, directory.as_ref());
        outcome.seconds = self.begin.elapsed().as_secs_f64();
        outcome.signal = signal().map(StopReason::Signal);
        Ok(outcome)
    }

    /// The confusion matrix of the test set.
    fn confusion(
        &mut self,
        outcome: &mut Outcome,
        signal: &dyn Fn() -> Option<u8>,
        events: &mut dyn FnMut(Event<'_>),
    ) {
        let (data, transform) = (&*self.data.test, &self.data.transform);
        let (order, batch) = (Order::sequential(data.len()), self.config.identity.batch);
        // The test set is the last that is evaluated.
        let shared = Some(self.data.eval_sets().len() as u32);
        let samples = Samples { data, transform, order: &order, epoch: 0, batch, shared };
        let seen = self.trainer.confusion_pass_while(&samples, &mut || match signal() {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        });
        match seen {
            Ok((pass, confusion)) => {
                let whole = pass.samples == data.len();
                if let (Some(number), false) = (signal(), whole) {
                    let why = StopReason::Signal(number);
                    events(Event::Warning(Warning::Confusion(why)));
                }
                // A matrix of some of them would be taken for one of all.
                outcome.confusion = Some(confusion).filter(|_| whole);
            }
            // The weights are still to be written.
            Err(error) => outcome.errors.push(error),
        }
    }

    /// Writes the weights to every place that they are to be in, and the result behind them.
    fn write(&self, outcome: &mut Outcome, weights: &TensorFile, directory: Option<&RunDirectory>) {
        // A signal is no end that was requested: the file stays as it is, unless the state of
        // the run is nowhere else.
        let by_signal = matches!(outcome.stopped, Some(StopReason::Signal(_)));
        let wanted = outcome.unsaved.is_some() || !by_signal;
        if let Some(path) = self.config.placement.save.as_ref().filter(|_| wanted) {
            match weights.write(path) {
                Ok(()) => outcome.save = Some(path.clone()),
                Err(error) => outcome.errors.push(error.while_writing()),
            }
        }
        let (Some(directory), None, Some(last)) =
            (directory, outcome.stopped, outcome.history.last())
        else {
            return;
        };
        if outcome.idle {
            outcome.kept = Some(directory.weights());
            return;
        }
        match weights.write(directory.weights()) {
            Ok(()) => outcome.kept = Some(directory.weights()),
            Err(error) => outcome.errors.push(error.while_writing()),
        }
        // A run whose last state is not saved has not ended: it goes on from the one before.
        if outcome.kept.is_some() && outcome.unsaved.is_none() {
            let mut result = EpochMetrics::from(last).to_json();
            result["weights_sha256"] = json!(outcome.sha256);
            result["memory_planned_bytes"] = json!(outcome.planned.0);
            result["memory_resident_bytes"] = json!(resident_bytes());
            result["memory_peak_bytes"] = json!(peak_bytes());
            outcome.errors.extend(directory.conclude(&result).err());
        }
    }

    /// Trains, and keeps the run directory up to date.
    fn train(
        &mut self,
        signal: &dyn Fn() -> Option<u8>,
        events: &mut dyn FnMut(Event<'_>),
    ) -> Result<Trained, Failed> {
        let RunConfig { identity, placement, session } = &self.config;
        let (data, batch, recorder) = (self.data, identity.batch, &mut self.recorder);
        let of = data.train.len();
        let eval_sets: Vec<EvalSet<'_>> = data.eval_sets();
        let order =
            if identity.no_shuffle.0 { SampleOrder::InOrder } else { SampleOrder::Shuffled };
        let config = LoopConfig {
            train: &*data.train,
            transform: &data.training,
            eval_sets: &eval_sets,
            batch,
            seed: identity.seed,
            order,
            epochs: placement.epochs as u64,
            canonical,
            recipe: self.config.identity(),
            metadata: self.card.metadata.clone(),
        };
        let mut training = TrainLoop::new(&mut self.trainer, config)?;
        let place = std::mem::replace(&mut self.place, Place::Nowhere);
        let taken = place.take(&self.config);
        let taken = taken.map_err(|error| Failed { error, at: Box::new(Stage::Placing) })?;
        let mut kept: Option<Kept> = None;
        if let Some((directory, checkpoints)) = taken {
            let every = match placement.checkpoint_every {
                Some(steps) => Every::Steps(steps as u64),
                None => Every::EpochAnd(CHECKPOINT_TIME),
            };
            resume(
                &mut training,
                (&directory, checkpoints, every),
                session.resume.is_some(),
                events,
            )?;
            let mut logs = vec![directory.metrics()];
            logs.extend(placement.tensorboard.0.then(|| directory.tensorboard()));
            let state = training.state();
            let idle = training.is_finished() && directory.has_result();
            let number = match idle {
                true => 0,
                false => directory.begin(&self.texts, &self.start, state.steps)?,
            };
            logs.iter_mut().try_for_each(|log| log.rewrite(&state.history))?;
            if idle {
                directory.configure(&self.texts[0].1)?;
                state.history.last().into_iter().for_each(|last| events(Event::Epoch(last)));
                return Ok(Trained::idle(directory, state));
            }
            if let Some(predicted) = &self.predicted {
                directory.predicted(predicted)?;
            }
            events(Event::Directory { path: directory.path(), state });
            kept = Some(Kept { directory, number, logs });
        }
        events(Event::Begin(training.state()));
        let (mut history, from) = (training.state().history.clone(), training.state().steps);
        let mut limits = Limits::new(&self.config, self.begin, (from, of));
        let directory = kept.as_ref().map(|kept| (&kept.directory, kept.number));
        recorder.go_on(training.state(), directory)?;
        let mut logs = kept.as_mut().map_or(Vec::new(), |kept| std::mem::take(&mut kept.logs));
        let changes = &self.changes;
        let mut why = None;
        let end = training.go(&mut |event| {
            let mut unwritten = Vec::new();
            match event {
                Step::Step { epoch, pass } => {
                    limits.count_step();
                    recorder.step(epoch, pass, of);
                    changes.take().iter().for_each(|line| events(Event::Placement(line)));
                    events(Event::Step { epoch, pass });
                }
                Step::Evaluating { name, pass, of } => {
                    recorder.pause();
                    events(Event::Evaluating { name, pass, of });
                }
                Step::Epoch(record) => {
                    history.push(record.clone());
                    unwritten.extend(logs.iter_mut().filter_map(|log| log.add(record).err()));
                    for error in unwritten.drain(..) {
                        events(Event::Warning(Warning::Unwritten(&error)));
                    }
                    events(Event::Epoch(record));
                    // The last: what follows is the next epoch.
                    unwritten.extend(recorder.epoch(record).err());
                }
                Step::Saved(_) => unwritten.extend(recorder.saved().err()),
                Step::NotSaved(error) => events(Event::Warning(Warning::NotSaved(error))),
            }
            unwritten.iter().for_each(|error| events(Event::Warning(Warning::Unwritten(error))));
            let budget = || recorder.is_over_budget().then_some(StopReason::EnergyBudget);
            why = signal().map(StopReason::Signal).or_else(|| limits.reason()).or_else(budget);
            if why.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        events(Event::Ended);
        let errors: Vec<Error> = logs.iter_mut().filter_map(|log| log.finish().err()).collect();
        let failed = |error| {
            let run = kept.as_ref().map(|kept| kept.directory.path().to_owned());
            let last = training.last_checkpoint().map(Path::to_owned);
            Failed { error, at: Box::new(Stage::Training { run, last }) }
        };
        let (end, unsaved) = match end {
            Ok(end) => (end, None),
            // What it has learned may still be written elsewhere.
            Err(error @ Error::NotSaved { .. }) => {
                let end = if training.is_finished() { End::Finished } else { End::Stopped };
                (end, Some(failed(error)))
            }
            Err(error) => {
                let failed = failed(error);
                let warn = |error| events(Event::Warning(Warning::AfterFailure(error)));
                errors.iter().for_each(warn);
                return Err(failed);
            }
        };
        let (stopped, steps) = (why.filter(|_| end == End::Stopped), training.state().steps);
        let directory = kept.map(|kept| kept.directory);
        Ok(Trained { directory, history, from, steps, stopped, idle: false, unsaved, errors })
    }
}

/// Goes on from the newest checkpoint, if there is one.
fn resume(
    training: &mut TrainLoop<'_>,
    (directory, checkpoints, every): (&RunDirectory, Checkpoints, Every),
    expected: bool,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<(), Failed> {
    let all = checkpoints.list()?;
    if expected && all.is_empty() {
        if directory.has_result() {
            // To train it anew would undo its result.
            let run = directory.path().to_owned();
            return Err(Error::NoCheckpoint { run }.into());
        }
        events(Event::Warning(Warning::NoCheckpoint(checkpoints.directory())));
    }
    training.save_to(checkpoints, every).map_err(|error| {
        let run = directory.path().to_owned();
        Failed { error, at: Box::new(Stage::Resuming { run, checkpoints: all }) }
    })
}

/// A run directory with the number of the session and the files that grow.
struct Kept {
    directory: RunDirectory,
    number: u64,
    logs: Vec<Log>,
}

/// What is known when training has ended.
struct Trained {
    directory: Option<RunDirectory>,
    history: Vec<EpochRecord>,
    from: u64,
    steps: u64,
    stopped: Option<StopReason>,
    idle: bool,
    unsaved: Option<Failed>,
    errors: Vec<Error>,
}

impl Trained {
    /// A run that had ended before.
    fn idle(directory: RunDirectory, state: &State) -> Self {
        Self {
            directory: Some(directory),
            history: state.history.clone(),
            from: state.steps,
            steps: state.steps,
            stopped: None,
            idle: true,
            unsaved: None,
            errors: Vec::new(),
        }
    }
}

/// The limits on the time and the steps of a session.
struct Limits {
    deadline: Option<Instant>,
    steps: Option<usize>,
}

impl Limits {
    fn new(config: &RunConfig, begin: Instant, (from, samples): (u64, usize)) -> Self {
        let session = &config.session;
        // Where the last step that is allowed is the last of all, the run ends as all do.
        let all = config.placement.epochs.saturating_mul(samples.div_ceil(config.identity.batch));
        let stops = |most: &usize| from.saturating_add(*most as u64) < all as u64;
        // A time beyond all clocks never comes.
        let deadline = session.max_time.and_then(|time| begin.checked_add(time));
        Self { deadline, steps: session.max_steps.filter(stops) }
    }

    fn count_step(&mut self) {
        self.steps = self.steps.map(|left| left.saturating_sub(1));
    }

    fn reason(&self) -> Option<StopReason> {
        if self.deadline.is_some_and(|at| Instant::now() >= at) {
            return Some(StopReason::MaxTime);
        }
        (self.steps == Some(0)).then_some(StopReason::MaxSteps)
    }
}
