//! The native engine with the scheduling policy of a run.

use super::config::PlacementSettings;
use crate::calibrate::{self, this_machine};
use crate::error::Result;
use crate::exec::{Engine, Session};
use crate::native::Native;
use crate::perf::{PerfModel, cpu_kind};
use crate::plan::PlannedPrograms;
use crate::platform::UnitId;
use crate::sched::{Confined, Expectations, Policy, Rule};
use crate::sim::{Known, Worker, expectations};
use crate::units::ProgramId;
use std::sync::Mutex;
use std::time::Duration;

impl PlacementSettings {
    /// The scheduling policy; `None` where tasks run as the plan says.
    pub fn rule(&self) -> Option<Rule> {
        Some(self.scheduling).filter(|rule| *rule != Rule::Static)
    }

    /// That policy, for these tasks and workers.
    pub fn policy(&self, expected: &Expectations) -> Option<Box<dyn Policy>> {
        self.scheduling.policy(expected, 1e9 * self.joule_seconds)
    }
}

/// The native engine, with a policy that may ask for the times of tasks.
pub struct Scheduled {
    native: Native,
    settings: PlacementSettings,
    /// Grows by what is measured, program by program.
    known: Mutex<PerfModel>,
}

impl Scheduled {
    /// An engine with the policy of a run; times that `known` lacks are measured where the policy
    /// needs them.
    pub fn new(native: Native, settings: &PlacementSettings, known: PerfModel) -> Self {
        Self { native, settings: settings.clone(), known: Mutex::new(known) }
    }

    fn expectations(&self, planned: &PlannedPrograms) -> Result<Expectations> {
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        let kind = cpu_kind(planned.numerics.isa);
        let expected = |known: &PerfModel| {
            let platform = this_machine(known)?;
            let on = platform.expand();
            // Workers beyond the units share them; a task takes the same time on each.
            let units = on.units.len().max(1);
            let unit = |w: usize| Worker { unit: UnitId((w % units) as u32), state: None };
            let workers: Vec<Worker> = (0..planned.placement.workers).map(unit).collect();
            expectations(planned, (&on, &workers), &mut Known::new(known))
        };
        if known.kinds().contains(&kind)
            && let Ok(found) = expected(&known)
        {
            return Ok(found);
        }
        for program in 0..planned.graphs().len() {
            let program = ProgramId::new(program);
            calibrate::steps(planned, program, Duration::ZERO, &kind, &mut known)?;
        }
        expected(&known)
    }
}

impl Engine for Scheduled {
    fn name(&self) -> &'static str {
        self.native.name()
    }

    fn prepare(&self, planned: &PlannedPrograms) -> Result<Box<dyn Session>> {
        let expected = match self.settings.scheduling.expects() {
            true => self.expectations(planned)?,
            false => Expectations::of_workers(planned.placement.workers),
        };
        if self.settings.policy(&expected).is_none() {
            return self.native.prepare(planned);
        }
        let (native, settings) = (self.native.clone(), self.settings.clone());
        self.native.prepare_ranks(planned, move |part, transport| {
            let native = Native { transport, ..native.clone() };
            let (workers, space_of) = (part.placement.workers, &part.placement.space_of);
            let policy = |expected: &Expectations| settings.policy(expected).expect("as before");
            let policy = match part.placement.spaces.len() {
                1 => policy(&expected),
                _ => Box::new(Confined::new(space_of, part.lanes() - workers, &|own| {
                    policy(&expected.among(own))
                })),
            };
            Ok(Box::new(native.prepare_with(part, policy)?))
        })
    }
}
