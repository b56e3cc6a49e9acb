//! `--scheduling`: how ready tasks find their workers, shared by commands.

use crate::machine;
use crate::simulate::calibrations;
use clap::{Args, ValueEnum};
use dahl::Result;
use dahl::exec::{Engine, Session};
use dahl::graph::Programs;
use dahl::native::{Native, Scheduling as Own, Throttle};
use dahl::perf::{PerfModel, cpu_kind};
use dahl::plan::Plan;
use dahl::platform::UnitId;
use dahl::sched::{Expectations, Rule};
use dahl::sim::{Known, Worker, expectations};
use dahl::units::ProgramId;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// How ready tasks find their workers
#[derive(Args)]
pub(crate) struct SchedulingArgs {
    /// How ready tasks are given to workers; it changes no bit
    #[arg(long, value_enum, default_value_t = Scheduling::Static)]
    scheduling: Scheduling,
    /// The seconds that a joule is worth, with --scheduling least-energy
    #[arg(long, value_name = "SECONDS", default_value_t = 0.1, value_parser = crate::bench::seconds)]
    joule_seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scheduling {
    /// As the plan says
    Static,
    /// The first ready task for the first free worker
    FirstCome,
    /// A queue a worker, with stealing
    #[value(alias = "stealing")]
    WorkStealing,
    /// The task on the longest way to the end first
    CriticalPath,
    /// Each task to the worker that is expected to end it first
    EarliestFinish,
    /// The same, where the energy of a task counts too
    LeastEnergy,
}

impl SchedulingArgs {
    /// The policy that was asked for; `None` where tasks are where the plan says.
    pub(crate) fn rule(&self) -> Option<Rule> {
        Some(match self.scheduling {
            Scheduling::Static => return None,
            Scheduling::FirstCome => Rule::FirstCome,
            Scheduling::WorkStealing => Rule::WorkStealing,
            Scheduling::CriticalPath => Rule::CriticalPath,
            Scheduling::EarliestFinish => Rule::EarliestFinish,
            Scheduling::LeastEnergy => Rule::LeastEnergy { price: 1e9 * self.joule_seconds },
        })
    }

    /// The native engine with that policy. What tasks take is in calibrations; what is in
    /// none of them is measured.
    pub(crate) fn engine(&self, native: Native, calibrations: &[PathBuf]) -> Result<Scheduled> {
        let rule = self.rule();
        let known = match rule.is_some_and(Rule::expects) {
            true => self::calibrations(calibrations)?,
            false => PerfModel::default(),
        };
        Ok(Scheduled { native, rule, known: Mutex::new(known) })
    }
}

/// The native engine, with a policy that may ask what tasks take.
pub(crate) struct Scheduled {
    native: Native,
    rule: Option<Rule>,
    /// Grows by what is measured, program by program.
    known: Mutex<PerfModel>,
}

impl Engine for Scheduled {
    fn name(&self) -> &'static str {
        self.native.name()
    }

    fn prepare(&self, programs: &Programs, plan: &Plan) -> Result<Box<dyn Session>> {
        let of = |scheduling| Native { scheduling, ..self.native.clone() };
        match self.rule {
            None => self.native.prepare(programs, plan),
            Some(Rule::FirstCome) => of(Own::FirstCome).prepare(programs, plan),
            Some(Rule::WorkStealing) => of(Own::WorkStealing).prepare(programs, plan),
            Some(rule) => {
                let policy = self.expectations(programs, plan)?.policy(rule);
                Ok(Box::new(self.native.prepare_with(programs, plan, policy)?))
            }
        }
    }
}

impl Scheduled {
    fn expectations(&self, programs: &Programs, plan: &Plan) -> Result<Expectations> {
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        let kind = cpu_kind(plan.numerics.isa);
        let expected = |known: &PerfModel| {
            let platform = machine::platform(known)?;
            let on = platform.expand();
            // Workers beyond the units share them; what a task takes is the same on each.
            let units = on.units.len().max(1);
            let unit = |w: usize| Worker { unit: UnitId((w % units) as u32), state: None };
            let workers: Vec<Worker> = (0..plan.placement.workers).map(unit).collect();
            expectations((programs, plan), (&on, &workers), &mut Known::new(known))
        };
        if known.kinds().contains(&kind)
            && let Ok(found) = expected(&known)
        {
            return Ok(found);
        }
        for program in 0..programs.programs.len() {
            let program = ProgramId::new(program);
            dahl::calibrate::steps(programs, plan, program, Duration::ZERO, &kind, &mut known)?;
        }
        expected(&known)
    }
}

/// Reads the speed of a worker that is slowed down.
pub(crate) fn speed(text: &str) -> std::result::Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (Throttle::SLOWEST..=1.0).contains(speed));
    speed.ok_or_else(|| format!("expected a number from {} to 1, such as 0.5", Throttle::SLOWEST))
}

/// Reads a worker that is slowed down.
pub(crate) fn throttle(text: &str) -> std::result::Result<Throttle, String> {
    let (of, from_step) = match text.split_once('@') {
        Some((of, step)) => (of, step.parse().ok()),
        None => (text, Some(0)),
    };
    let (worker, text) = of.split_once('=').unwrap_or((of, ""));
    match (worker.parse().ok(), speed(text).ok(), from_step) {
        (Some(worker), Some(speed), Some(from_step)) => Ok(Throttle { worker, speed, from_step }),
        _ => Err(format!(
            "expected a worker and its speed from {} to 1, such as 1=0.5 or 1=0.5@100",
            Throttle::SLOWEST
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_is_read() {
        let found = throttle("1=0.5@100").unwrap();
        assert_eq!((found.worker, found.speed, found.from_step), (1, 0.5, 100));
        assert_eq!(throttle("0=0.25").unwrap().from_step, 0);
        for wrong in
            ["", "1", "1=", "1=0", "1=2", "x=0.5", "1=0.5@", "1=0.5@x", "1=nan", "0=1e-300"]
        {
            assert!(throttle(wrong).is_err(), "{wrong}");
        }
    }
}
