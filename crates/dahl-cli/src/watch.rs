//! What is kept of a run while it goes on, beside its results: counters, energy, traces.

use crate::energy::Meters;
use crate::grain::at_least_one;
use crate::live::{LiveArgs, Probe, Shared};
use crate::rundir::RunDir;
use clap::Args;
use dahl::exec::Gauge;
use dahl::meter::{Total, model, widest};
use dahl::native::{TraceLimit, peak_bytes, resident_bytes};
use dahl::report::{Counted, EnergyLine, Figure, Predicted, TimedPower, files};
use dahl::trace::{Activity, Trace};
use dahl::train::{EpochRecord, Pass};
use dahl::units::Joules;
use dahl::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Traces and live views
#[derive(Args)]
#[command(next_help_heading = "Watching")]
pub(crate) struct WatchArgs {
    /// Record what every worker does, in trace.jsonl of the run
    #[arg(long, conflicts_with = "no_run")]
    pub(crate) trace: bool,
    /// The first step that is recorded, of this session
    #[arg(long, value_name = "STEP", default_value_t = 0, requires = "trace")]
    trace_from: u64,
    /// The most events that are recorded, in whole steps; 100 bytes each
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = at_least_one, requires = "trace")]
    trace_events: usize,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
}

impl WatchArgs {
    pub(crate) fn limit(&self) -> TraceLimit {
        TraceLimit { from_step: self.trace_from, events: self.trace_events }
    }
}

/// How often the process' memory is looked at, at most.
const MEMORY: Duration = Duration::from_millis(500);
/// How many looks are kept.
const LOOKS: usize = 2000;

/// What is counted and metered of a session.
pub(crate) struct Watched {
    gauge: Arc<dyn Gauge>,
    meters: Arc<Meters>,
    budget: Option<Joules>,
    counted: Counted,
    idle_watts: Option<f64>,
    /// What the meters and the workers had done at the last line.
    last: (Instant, Activity, Vec<Total>),
    /// Where training began, for the budget.
    begin: (Activity, Vec<Total>),
    clock: i64,
    looked: Instant,
    begun: Instant,
    samples: u64,
    pub(crate) lines: Vec<EnergyLine>,
    pub(crate) shared: Option<Arc<Shared>>,
}

impl Watched {
    /// Begins to watch a session that was just prepared.
    pub(crate) fn begin(
        (gauge, planned): (Arc<dyn Gauge>, Vec<(String, u64)>),
        meters: Meters,
        idle: Option<Duration>,
    ) -> Self {
        let before = meters.sampler.read();
        let idle_watts = idle.and_then(|time| {
            std::thread::sleep(time);
            let after = meters.sampler.read();
            let (joules, _) = widest(&since(&after, &before))?;
            Some(joules.0 / time.as_secs_f64().max(1e-9))
        });
        // The sampler began before the session's clock shows this.
        let activity = gauge.activity();
        let clock = activity.elapsed as i64 - meters.sampler.begin().elapsed().as_nanos() as i64;
        let now = Instant::now();
        let totals = meters.sampler.read();
        Self {
            gauge,
            meters: Arc::new(meters),
            budget: None,
            counted: Counted { planned, ..Counted::default() },
            idle_watts,
            last: (now, activity.clone(), totals.clone()),
            begin: (activity, totals),
            clock,
            looked: now,
            begun: now,
            samples: 0,
            lines: Vec::new(),
            shared: None,
        }
    }

    /// What views may ask at any time.
    pub(crate) fn probe(&self) -> Probe {
        let meters = self.meters.clone();
        Probe {
            gauge: self.gauge.clone(),
            totals: Box::new(move || meters.sampler.last()),
            planned: self.counted.planned.clone(),
        }
    }

    /// The limit, and the step that the session goes on from.
    pub(crate) fn limited(&mut self, budget: Option<Joules>, from_step: u64) {
        self.budget = budget;
        self.counted.from_step = from_step;
    }

    /// A training step has ended.
    pub(crate) fn step(&mut self, epoch: u64, pass: &Pass) {
        self.counted.steps += 1;
        let seen = (pass.samples as u64).checked_sub(self.samples).unwrap_or(pass.samples as u64);
        self.counted.samples += seen;
        self.samples = pass.samples as u64;
        if self.looked.elapsed() >= MEMORY || self.counted.resident.is_empty() {
            self.looked = Instant::now();
            if let Some(bytes) = resident_bytes() {
                let at = self.begun.elapsed().as_secs_f64();
                self.counted.resident.push((at, bytes));
                if self.counted.resident.len() >= LOOKS {
                    let mut odd = false;
                    self.counted.resident.retain(|_| {
                        odd = !odd;
                        odd
                    });
                }
            }
        }
        if let Some(shared) = &self.shared {
            shared.step(epoch, self.counted.from_step + self.counted.steps, pass);
        }
    }

    /// What this session has taken since training began, and by which kind of figure.
    pub(crate) fn spent(&self) -> Option<(Joules, &'static str)> {
        let totals = since(&self.meters.sampler.read(), &self.begin.1);
        if let Some((joules, _)) = widest(&totals) {
            return Some((joules, "measured"));
        }
        let activity = self.gauge.activity().since(&self.begin.0);
        let modelled = model(self.meters.platform.as_ref()?, &activity)?;
        Some((modelled.joules(), "modelled"))
    }

    /// Whether the session has taken more than it may.
    pub(crate) fn is_over_budget(&self) -> bool {
        let Some(budget) = self.budget else { return false };
        self.spent().is_some_and(|(spent, _)| spent.0 >= budget.0)
    }

    /// What was taken since the last line.
    fn line(&mut self, epoch: Option<u64>, samples: u64) -> EnergyLine {
        let (now, activity) = (Instant::now(), self.gauge.activity());
        let totals = self.meters.sampler.read();
        let (then, before, read) = std::mem::replace(&mut self.last, (now, activity, totals));
        let platform = self.meters.platform.as_ref();
        EnergyLine {
            epoch,
            seconds: (now - then).as_secs_f64(),
            samples,
            measured: since(&self.last.2, &read),
            interval: self.meters.sampler.interval().as_secs_f64(),
            idle_watts: self.idle_watts,
            modelled: platform.and_then(|p| model(p, &self.last.1.since(&before))),
        }
    }

    /// Counters as they are now.
    pub(crate) fn counted(&self) -> Counted {
        Counted {
            activity: self.gauge.activity(),
            shapes: self.gauge.shapes().into_iter().filter(|shape| shape.calls > 0).collect(),
            peak: peak_bytes(),
            ..self.counted.clone()
        }
    }

    /// An epoch has ended: what it took goes to the run's directory.
    pub(crate) fn epoch(&mut self, record: &EpochRecord, run: Option<&RunDir>) -> Result<()> {
        let line = self.line(Some(record.epoch), record.train.samples as u64);
        self.samples = 0;
        if let Some(shared) = &self.shared {
            shared.epoch(record);
        }
        self.write(line, run)
    }

    fn write(&mut self, line: EnergyLine, run: Option<&RunDir>) -> Result<()> {
        self.lines.push(line.clone());
        if let Some(shared) = &self.shared {
            shared.line(&line);
        }
        let Some(run) = run else { return Ok(()) };
        run.append(files::ENERGY, &json(&line))?;
        run.write(files::COUNTERS, &json(&self.counted()))
    }

    /// The session has ended.
    pub(crate) fn end(&mut self, run: Option<&RunDir>, trace: Option<&Trace>) -> Result<()> {
        let samples = self.samples;
        let line = self.line(None, samples);
        self.write(line, run)?;
        let Some(run) = run else { return Ok(()) };
        let power = self.meters.sampler.power();
        if !power.samples.is_empty() {
            let interval = self.meters.sampler.interval().as_secs_f64();
            run.write(files::POWER, &json(&TimedPower { begin: self.clock, interval, power }))?;
        }
        if let Some(trace) = trace {
            dahl::file::replace(run.path().join(files::TRACE), |out| trace.write_to(out))
                .map_err(Error::while_writing)?;
        }
        Ok(())
    }

    /// The energy of the session in a line, with where it comes from.
    pub(crate) fn summary(&self) -> Option<String> {
        let sum = |of: fn(&EnergyLine) -> Option<Figure>| {
            let figures: Option<Vec<Figure>> = self.lines.iter().map(of).collect();
            let figures = figures.filter(|all| !all.is_empty())?;
            let partial = figures.iter().any(|figure| figure.partial.is_some());
            let joules = figures.iter().map(|figure| figure.joules).sum();
            let (source, _) = figures[0].source.rsplit_once("), ")?;
            let partial = if partial { ", partial" } else { "" };
            Some(format!("{}, {source}){partial}", Joules(joules)))
        };
        sum(Figure::measured).or_else(|| sum(Figure::modelled))
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain data") + "\n"
}

fn since(now: &[Total], before: &[Total]) -> Vec<Total> {
    now.iter().enumerate().map(|(i, total)| total.since(before.get(i))).collect()
}

/// Writes what a step is expected to take.
pub(crate) fn keep_prediction(run: &RunDir, predicted: &Predicted) -> Result<()> {
    run.write(files::PREDICTION, &json(predicted))
}
