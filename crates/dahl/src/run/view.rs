//! The state of a running job, for views on other threads: a page, a terminal.

use super::metered::Metered;
use super::record::{Counted, EnergyLine, EpochMetrics, Predicted, RunRecord};
use crate::train::{EpochRecord, Pass, State};
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Maximum number of losses of steps that are kept.
const LOSSES: usize = 2000;

/// A run's history from earlier sessions.
#[derive(Default)]
pub struct EarlierSessions {
    /// The records of its epochs.
    pub history: Vec<EpochRecord>,
    /// Its lines of energy.
    pub energy: Vec<EnergyLine>,
    /// Its sessions.
    pub sessions: Vec<Value>,
    /// The predicted step.
    pub predicted: Option<Predicted>,
}

/// The state of a run, as far as it is known.
#[derive(Clone, Default)]
pub struct RunState {
    /// The epoch under way, from 1.
    pub epoch: u64,
    /// Training steps of the run.
    pub step: u64,
    /// Loss and accuracy of the epoch so far.
    pub pass: Pass,
    /// The epochs that have ended.
    pub epochs: Vec<EpochMetrics>,
    /// The lines of energy.
    pub energy: Vec<EnergyLine>,
    /// The mean loss of steps.
    pub losses: Vec<f64>,
    /// Steps of this session.
    pub steps: u64,
    /// Training samples of this session.
    pub samples: u64,
    /// Samples since the last line of energy.
    unlined: u64,
    /// The number of the session.
    pub session: u64,
    /// All sessions.
    pub sessions: Vec<Value>,
    /// The predicted step.
    pub predicted: Option<Predicted>,
    /// The memory of the process over time.
    pub resident: Vec<(f64, u64)>,
}

/// The state that a run writes and views read, on any thread.
pub struct View {
    /// The name of the model.
    pub model: String,
    config: String,
    /// A view that can be read at any time, from any thread.
    pub metered: Arc<Metered>,
    /// The memory of the plan, part by part.
    pub planned: Vec<(String, u64)>,
    /// When the view was opened.
    pub begin: Instant,
    now: Mutex<RunState>,
}

impl View {
    /// A view of a session of a model, with the text of its configuration.
    pub fn new(
        [model, config]: [&str; 2],
        metered: Arc<Metered>,
        planned: Vec<(String, u64)>,
    ) -> Self {
        let (model, config) = (model.to_owned(), config.to_owned());
        let now = Mutex::new(RunState::default());
        Self { model, config, metered, planned, begin: Instant::now(), now }
    }

    /// The run goes on from a state, in an epoch of a session.
    pub fn go_on(&self, earlier: EarlierSessions, (session, epoch): (u64, u64), state: &State) {
        let mut now = self.lock();
        now.epochs = earlier.history.iter().map(EpochMetrics::from).collect();
        (now.energy, now.sessions) = (earlier.energy, earlier.sessions);
        (now.predicted, now.session) = (earlier.predicted, session);
        (now.epoch, now.step, now.pass) = (epoch, state.steps, state.pass);
    }

    /// The memory of the process over time.
    pub fn remember(&self, resident: Vec<(f64, u64)>) {
        self.lock().resident = resident;
    }

    fn lock(&self) -> MutexGuard<'_, RunState> {
        self.now.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A training step has ended.
    pub fn step(&self, epoch: u64, step: u64, pass: &Pass) {
        let mut now = self.lock();
        let before = if now.epoch == epoch { now.pass } else { Pass::default() };
        let samples = pass.samples.saturating_sub(before.samples);
        if samples > 0 {
            let loss = (pass.total_loss - before.total_loss) / samples as f64;
            if now.losses.len() >= LOSSES {
                let mut odd = false;
                now.losses.retain(|_| {
                    odd = !odd;
                    odd
                });
            }
            now.losses.push(loss);
        }
        now.samples += samples as u64;
        now.unlined += samples as u64;
        now.steps += 1;
        (now.epoch, now.step, now.pass) = (epoch, step, *pass);
    }

    /// An epoch has ended.
    pub fn epoch(&self, record: &EpochRecord) {
        let mut now = self.lock();
        now.epochs.push(record.into());
        (now.pass, now.epoch) = (Pass::default(), 0);
    }

    /// The energy of an epoch.
    pub fn line(&self, line: &EnergyLine) {
        let mut now = self.lock();
        now.unlined = now.unlined.saturating_sub(line.samples);
        now.energy.push(line.clone());
    }

    /// The state now.
    pub fn now(&self) -> RunState {
        self.lock().clone()
    }

    /// The run so far, as a report takes it.
    pub fn record(&self) -> RunRecord {
        let now = self.now();
        let counters = self.metered.counters();
        let counted = Counted {
            session: now.session,
            from_step: now.step - now.steps.min(now.step),
            steps: now.steps,
            samples: now.samples,
            activity: counters.activity(),
            shapes: counters.shapes().into_iter().filter(|s| s.calls > 0).collect(),
            planned: self.planned.clone(),
            resident: now.resident,
            peak: crate::native::peak_bytes(),
            ..Counted::default()
        };
        let mut energy = now.energy;
        // What was taken since the last line, as far as it is known.
        let epoch = Some(now.epochs.len() as u64 + 1);
        let (session, samples) = (now.session, now.unlined);
        let peek = self.metered.peek();
        energy.push(EnergyLine { session, epoch, unfinished: true, last: true, samples, ..peek });
        let power = self.metered.power();
        RunRecord {
            name: format!("{}, step {}", self.model, now.step),
            config: self.config.clone(),
            epochs: now.epochs,
            counted: Some(counted),
            energy,
            sessions: now.sessions,
            predicted: now.predicted,
            power: (!power.power.samples.is_empty()).then_some(power),
            ..RunRecord::default()
        }
    }
}
