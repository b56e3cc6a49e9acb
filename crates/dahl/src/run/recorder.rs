//! Records of a run beside its results: counters, energy, traces.

use super::directory::RunDirectory;
use super::files;
use super::growing::Growing;
use super::metered::{Metered, Spent};
use super::meters::Meters;
use super::record::{Counted, EnergyLine, RunRecord, TimedPower};
use super::view::{EarlierSessions, View};
use crate::exec::Counters;
use crate::meter::Total;
use crate::native::{peak_bytes, resident_bytes};
use crate::trace::{Activity, CodeletCount, Trace};
use crate::train::{EpochRecord, Pass, State};
use crate::units::Joules;
use crate::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Minimum interval between readings of the process' memory.
const MEMORY: Duration = Duration::from_millis(500);
/// Maximum number of readings that are kept.
const LOOKS: usize = 2000;
/// Minimum interval between lines for checkpoints.
const LINES: Duration = Duration::from_secs(1);

/// Counters and meters of a session.
pub struct Recorder {
    metered: Arc<Metered>,
    budget: Option<Joules>,
    counted: Counted,
    /// Of the machine at rest.
    idle: Vec<Total>,
    /// The run's directory, where it is kept.
    run: Option<RunDirectory>,
    /// The counters at the start of the training steps in flight.
    learning: Option<(Activity, Vec<CodeletCount>)>,
    /// The epoch under way, its samples so far, and how many of them lines have.
    epoch: u64,
    samples: u64,
    lined: u64,
    /// When training began; nothing is kept of a session that has none.
    begun: Option<Instant>,
    looked: Instant,
    written: Instant,
    /// The energy when the budget was exceeded.
    stopped_at: Option<Spent>,
    lines: Vec<EnergyLine>,
    /// The file that they go to.
    energy: Option<Growing>,
    /// The state of the session for other threads, where a view was opened.
    shared: Option<Arc<View>>,
}

impl Recorder {
    /// Begins to watch a session that was just prepared.
    pub fn begin(
        (counters, planned): (Arc<dyn Counters>, Vec<(String, u64)>),
        meters: Meters,
    ) -> Self {
        let now = Instant::now();
        Self {
            metered: Arc::new(Metered::begin(counters, meters)),
            budget: None,
            counted: Counted { planned, ..Counted::default() },
            idle: Vec::new(),
            run: None,
            learning: None,
            epoch: 0,
            samples: 0,
            lined: 0,
            begun: None,
            looked: now,
            written: now,
            stopped_at: None,
            lines: Vec::new(),
            energy: None,
            shared: None,
        }
    }

    /// Measures the machine at rest.
    pub fn rest(&mut self, time: Duration) {
        self.idle = self.metered.rest(time);
    }

    /// Opens views of the session for others.
    pub fn share(&mut self, model: &str, config: &str) -> Arc<View> {
        let shared = View::new([model, config], self.metered.clone(), self.counted.planned.clone());
        self.shared.insert(Arc::new(shared)).clone()
    }

    /// The run goes on by another plan.
    pub fn replanned(&mut self, planned: Vec<(String, u64)>) {
        self.counted.planned = planned;
    }

    /// Sets the energy budget of the session.
    ///
    /// # Errors
    /// If there is neither a meter nor a platform.
    pub fn limit(&mut self, budget: Option<Joules>) -> Result<()> {
        self.budget = budget;
        if budget.is_some() && self.metered.spent().is_none() {
            let found = "no meter with readings and no platform";
            return Err(Error::config("energy-budget", "a meter or a platform", found));
        }
        Ok(())
    }

    /// Training begins, or goes on, in a directory, where there is one.
    pub fn go_on(&mut self, state: &State, run: Option<(&RunDirectory, u64)>) -> Result<()> {
        let now = Instant::now();
        (self.begun, self.looked, self.written) = (Some(now), now, now);
        self.counted.from_step = state.steps;
        (self.epoch, self.samples) = (state.epoch + 1, state.pass.samples as u64);
        self.lined = self.samples;
        let mut earlier = EarlierSessions::default();
        if let Some((run, session)) = run {
            (self.run, self.energy) = (Some(run.clone()), Some(run.growing(files::ENERGY)));
            self.counted.session = session;
            let name = |p: &crate::platform::Platform| p.to_toml();
            match self.metered.platform().map(name) {
                Some(text) => run.write(files::PLATFORM, &text)?,
                None => run.remove(files::PLATFORM)?,
            }
            if self.shared.is_some() {
                // What is wrong with it is reported by those who read the run.
                let before = RunRecord::read(run.path()).unwrap_or_default();
                let RunRecord { energy, sessions, predicted, .. } = before;
                earlier = EarlierSessions { energy, sessions, predicted, ..earlier };
            }
        }
        if let Some(shared) = &self.shared {
            earlier.history.clone_from(&state.history);
            shared.go_on(earlier, (self.counted.session, self.epoch), state);
        }
        self.metered.go_on();
        self.learning = Some(self.metered.counted());
        Ok(())
    }

    /// A training step has ended; an epoch has `of` samples.
    pub fn step(&mut self, epoch: u64, pass: &Pass, of: usize) {
        self.counted.steps += 1;
        self.counted.samples += (pass.samples as u64).saturating_sub(self.samples);
        (self.epoch, self.samples) = (epoch, pass.samples as u64);
        if pass.samples == of {
            self.pause();
        }
        if self.looked.elapsed() >= MEMORY || self.counted.resident.is_empty() {
            self.looked = Instant::now();
            self.remember();
        }
        if let Some(shared) = &self.shared {
            shared.step(epoch, self.counted.from_step + self.counted.steps, pass);
        }
    }

    /// Looks at the memory of the process.
    fn remember(&mut self) {
        let (Some(bytes), Some(begun)) = (resident_bytes(), self.begun) else { return };
        let resident = &mut self.counted.resident;
        resident.push((begun.elapsed().as_secs_f64(), bytes));
        if resident.len() >= LOOKS {
            let mut odd = false;
            resident.retain(|_| {
                odd = !odd;
                odd
            });
        }
        if let Some(shared) = &self.shared {
            shared.remember(resident.clone());
        }
    }

    /// No training steps are under way: something else is done.
    pub fn pause(&mut self) {
        let Some((before, codelets)) = self.learning.take() else { return };
        let (activity, now) = self.metered.counted();
        let training = &mut self.counted.training;
        training.samples = self.counted.samples;
        training.activity = sum(&training.activity, &activity.since(&before));
        for count in now {
            let old = codelets.iter().find(|old| old.name == count.name);
            let (calls, nanos) = old.map_or((0, 0), |old| (old.calls, old.time.0));
            let row = training.codelets.entry(count.name).or_default();
            *row = (row.0 + count.calls - calls, row.1 + count.time.0.saturating_sub(nanos));
        }
        training.codelets.retain(|_, row| row.0 > 0);
    }

    /// Whether the session has taken more than it may.
    pub fn is_over_budget(&mut self) -> bool {
        let Some(budget) = self.budget else { return false };
        let spent = self.metered.spent().filter(|spent| spent.joules.0 >= budget.0);
        if self.stopped_at.is_none() {
            self.stopped_at.clone_from(&spent);
        }
        spent.is_some()
    }

    /// The energy since the last line.
    fn line(&mut self) -> EnergyLine {
        let samples = self.samples - self.lined;
        self.lined = self.samples;
        self.written = Instant::now();
        let (session, idle) = (self.counted.session, self.idle.clone());
        EnergyLine { session, samples, idle, ..self.metered.line() }
    }

    /// Counters as they are now.
    fn counted(&self) -> Counted {
        let counters = self.metered.counters();
        Counted {
            activity: counters.activity(),
            shapes: counters.shapes().into_iter().filter(|shape| shape.calls > 0).collect(),
            peak: peak_bytes(),
            ..self.counted.clone()
        }
    }

    /// An epoch has ended: what it took goes to the run's directory.
    pub fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.samples = record.train.samples as u64;
        let line = EnergyLine { epoch: Some(record.epoch), ..self.line() };
        (self.epoch, self.samples, self.lined) = (record.epoch + 1, 0, 0);
        if let Some(shared) = &self.shared {
            shared.epoch(record);
        }
        let written = self.write(line);
        self.learning = Some(self.metered.counted());
        written
    }

    /// A checkpoint is there: should the process be killed, what it took is known up to here.
    pub fn saved(&mut self) -> Result<()> {
        if self.written.elapsed() < LINES || self.samples == 0 {
            return Ok(());
        }
        let line = EnergyLine { epoch: Some(self.epoch), unfinished: true, ..self.line() };
        self.write(line)
    }

    fn write(&mut self, line: EnergyLine) -> Result<()> {
        let added = self.add(line);
        self.write_counters().and(added)
    }

    fn add(&mut self, line: EnergyLine) -> Result<()> {
        self.lines.push(line.clone());
        if let Some(shared) = &self.shared {
            shared.line(&line);
        }
        self.energy.as_mut().map_or(Ok(()), |file| file.add(json(&line).as_bytes()))
    }

    fn write_counters(&self) -> Result<()> {
        let Some(run) = &self.run else { return Ok(()) };
        run.write(files::COUNTERS, &json(&self.counted()))
    }

    /// The session has ended, well or not: keeps what is known of it. Gives what could not be
    /// written.
    pub fn end(&mut self, trace: Option<Trace>) -> Vec<Error> {
        if self.begun.is_none() {
            return Vec::new();
        }
        self.pause();
        self.remember();
        let epoch = Some(self.epoch).filter(|_| self.samples > 0);
        let unfinished = epoch.is_some();
        let line = EnergyLine { epoch, unfinished, last: true, ..self.line() };
        // One that cannot be added is tried once more.
        let _ = self.add(line);
        let lines = self.energy.as_mut().map_or(Ok(()), Growing::finish);
        let mut written = vec![lines, self.write_counters()];
        let (Some(run), session) = (&self.run, self.counted.session) else { return Vec::new() };
        let power = self.metered.power();
        if !power.power.samples.is_empty() {
            written.push(run.write(files::POWER, &json(&TimedPower { session, ..power })));
        }
        if let Some(mut trace) = trace {
            trace.header.session = Some(session);
            let path = run.path().join(files::TRACE);
            let replaced = crate::file::replace(path, |out| trace.write_to(out));
            written.push(replaced.map_err(Error::while_writing));
        }
        written.into_iter().filter_map(Result::err).collect()
    }

    /// The energy of this session, as a run of its own.
    pub fn energy(&self) -> RunRecord {
        RunRecord { energy: self.lines.clone(), ..RunRecord::default() }
    }

    /// The energy when the budget was exceeded, with its source, and the energy after
    /// that.
    pub fn overspent(&self) -> Option<(Spent, Joules)> {
        let at = self.stopped_at.as_ref()?;
        let now = self.metered.spent()?;
        let more = Joules((now.joules.0 - at.joules.0).max(0.0));
        Some((at.clone(), more))
    }
}

/// The sum of the counters of two times.
fn sum(a: &Activity, b: &Activity) -> Activity {
    let none = crate::trace::WorkerTime::default();
    let worker = |w: usize| {
        let [x, y] = [a, b].map(|activity| *activity.workers.get(w).unwrap_or(&none));
        crate::trace::WorkerTime {
            busy: x.busy + y.busy,
            spinning: x.spinning + y.spinning,
            parked: x.parked + y.parked,
        }
    };
    let workers = a.workers.len().max(b.workers.len());
    Activity { elapsed: a.elapsed + b.elapsed, workers: (0..workers).map(worker).collect() }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain data") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Sampler;
    use crate::trace::{ShapeCount, WorkerCounts};

    /// Counters of a session that has run nothing.
    struct Nothing;

    impl Counters for Nothing {
        fn codelets(&self) -> Vec<CodeletCount> {
            Vec::new()
        }

        fn shapes(&self) -> Vec<ShapeCount> {
            Vec::new()
        }

        fn by_worker(&self) -> Vec<WorkerCounts> {
            Vec::new()
        }

        fn activity(&self) -> Activity {
            Activity::default()
        }
    }

    /// Reports showed the memory of the plan that an adaptive run began with.
    #[test]
    fn the_memory_of_the_last_plan_is_kept() {
        let sampler = Sampler::start(Vec::new(), Duration::from_secs(1)).expect("a thread");
        let (warnings, hints, platform) = (Vec::new(), Vec::new(), None);
        let meters = Meters { sampler, warnings, hints, platform };
        let work = |bytes| vec![("work".to_owned(), bytes)];
        let mut recorder = Recorder::begin((Arc::new(Nothing), work(7)), meters);
        assert_eq!(recorder.counted().planned, work(7));
        recorder.replanned(work(5));
        assert_eq!(recorder.counted().planned, work(5));
    }
}
