//! What views know of a run.

use crate::rundir::metrics;
use dahl::exec::Gauge;
use dahl::meter::Total;
use dahl::report::{Counted, EnergyLine, RunRecord};
use dahl::train::{EpochRecord, Pass};
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// How many losses of steps are kept.
const LOSSES: usize = 2000;

/// What can be asked of a session at any time, from any thread.
pub(crate) struct Probe {
    pub(crate) gauge: Arc<dyn Gauge>,
    /// What meters said last.
    pub(crate) totals: Box<dyn Fn() -> Vec<Total> + Send + Sync>,
    pub(crate) planned: Vec<(String, u64)>,
}

/// The state of a run, as far as it is told.
#[derive(Clone, Default)]
pub(crate) struct Now {
    pub(crate) epoch: u64,
    /// Training steps of the run.
    pub(crate) step: u64,
    pub(crate) pass: Pass,
    pub(crate) epochs: Vec<Value>,
    pub(crate) energy: Vec<EnergyLine>,
    /// The mean loss of steps.
    pub(crate) losses: Vec<f64>,
    /// Steps and samples of this session.
    pub(crate) steps: u64,
    pub(crate) samples: u64,
}

/// What the run tells and views read.
pub(crate) struct Shared {
    pub(crate) model: String,
    config: String,
    pub(crate) probe: Probe,
    pub(crate) begin: Instant,
    now: Mutex<Now>,
}

impl Shared {
    pub(crate) fn new(model: &str, config: &str, probe: Probe) -> Self {
        let (model, config) = (model.to_owned(), config.to_owned());
        Self { model, config, probe, begin: Instant::now(), now: Mutex::new(Now::default()) }
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A training step has ended.
    pub(crate) fn step(&self, epoch: u64, step: u64, pass: &Pass) {
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
        now.steps += 1;
        (now.epoch, now.step, now.pass) = (epoch, step, *pass);
    }

    /// An epoch has ended.
    pub(crate) fn epoch(&self, record: &EpochRecord) {
        let mut now = self.lock();
        now.epochs.push(metrics(record));
        (now.pass, now.epoch) = (Pass::default(), 0);
    }

    /// What an epoch took.
    pub(crate) fn line(&self, line: &EnergyLine) {
        self.lock().energy.push(line.clone());
    }

    pub(crate) fn now(&self) -> Now {
        self.lock().clone()
    }

    /// The run so far, as a report takes it.
    pub(crate) fn record(&self) -> RunRecord {
        let now = self.now();
        let counted = Counted {
            from_step: now.step - now.steps.min(now.step),
            steps: now.steps,
            samples: now.samples,
            activity: self.probe.gauge.activity(),
            shapes: self.probe.gauge.shapes().into_iter().filter(|s| s.calls > 0).collect(),
            planned: self.probe.planned.clone(),
            resident: Vec::new(),
            peak: dahl::native::peak_bytes(),
        };
        RunRecord {
            name: format!("{}, step {}", self.model, now.step),
            config: self.config.clone(),
            epochs: now.epochs,
            counted: Some(counted),
            energy: now.energy,
            ..RunRecord::default()
        }
    }
}
