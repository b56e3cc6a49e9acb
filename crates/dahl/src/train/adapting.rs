//! Re-choosing the placement between steps.

use super::Trainer;
use crate::error::{Error, Result};
use crate::exec::{Decision, Session};
use crate::planner::Adapter;
use crate::units::Nanos;
use std::time::{Duration, Instant};

/// A placement that is re-chosen while steps go by.
pub(super) struct Adapting {
    /// The adapter, or the reason why it was switched off.
    adapter: Result<Adapter>,
    since: Since,
    /// The time of recent decisions and changes, which determines the next waiting time.
    spent: Nanos,
    changes: u64,
}

/// The activity since the last check.
struct Since {
    look: Instant,
    steps: u64,
    /// The time of steps, without evaluation, checkpoints and waiting for data.
    ran: Duration,
}

impl Since {
    fn now() -> Self {
        Self { look: Instant::now(), steps: 0, ran: Duration::ZERO }
    }
}

impl Trainer {
    /// Re-chooses the placement between steps from what the workers take. No bit changes.
    /// It needs an engine that can change its plan, such as the native one without a policy.
    /// Where nobody can say what would be better, the placement stays as it is.
    pub fn adapt(&mut self, adapter: Adapter) {
        let (adapter, since) = (Ok(adapter), Since::now());
        self.adapting = Some(Adapting { adapter, since, spent: Nanos(0), changes: 0 });
    }

    /// Number of changes of placement.
    pub fn changes(&self) -> u64 {
        self.adapting.as_ref().map_or(0, |adapting| adapting.changes)
    }

    /// Why the placement is not re-chosen any more, where that failed.
    pub fn stopped_adapting(&self) -> Option<&Error> {
        self.adapting.as_ref().and_then(|adapting| adapting.adapter.as_ref().err())
    }

    /// Does something during which training steps run, and counts how long.
    pub(super) fn running<T>(&mut self, body: impl FnOnce(&mut dyn Session) -> T) -> T {
        let Some(adapting) = &mut self.adapting else { return body(&mut *self.session) };
        let begin = Instant::now();
        let result = body(&mut *self.session);
        adapting.since.ran += begin.elapsed();
        result
    }

    /// A step was begun.
    pub(super) fn count_step(&mut self) {
        self.adapting.iter_mut().for_each(|adapting| adapting.since.steps += 1);
    }

    /// Looks, where it is time to.
    pub(super) fn adapt_if_due(&mut self) -> Result<()> {
        let Some(adapting) = &mut self.adapting else { return Ok(()) };
        let Ok(adapter) = &mut adapting.adapter else { return Ok(()) };
        let patience = adapter.patience();
        let Since { look, steps, ran } = adapting.since;
        if steps < patience.steps.max(1) {
            return Ok(());
        }
        let paid = adapting.spent.0 as f64 / patience.part.max(1e-3);
        if (look.elapsed().as_nanos() as u64) < patience.time.0.max(paid as u64) {
            return Ok(());
        }
        let begin = Instant::now();
        let counted = self.session.counters().by_worker();
        // A run does not end since nobody can say what would be better: it goes on as it is.
        let verdict = match adapter.look(&self.plan, &counted) {
            Ok(verdict) => verdict,
            Err(error) => {
                adapting.adapter = Err(error);
                return Ok(());
            }
        };
        let took = Nanos(begin.elapsed().as_nanos() as u64);
        adapting.spent = Nanos(0);
        if let Some(verdict) = verdict {
            let change = verdict.change.as_ref();
            let name = change.map_or(String::new(), |(grain, _)| grain.to_string());
            let replanned = self.session.replan(&Decision {
                to: change.map(|(_, plan)| plan),
                name: &name,
                why: &verdict.why,
                measured: Nanos(ran.as_nanos() as u64 / steps),
                predicted: verdict.predicted,
                took,
            });
            match replanned {
                Ok(()) => {}
                // Refused before anything was changed.
                Err(error @ Error::Plan(_)) => {
                    adapting.adapter = Err(error);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if let Some((_, plan)) = verdict.change {
                self.plan = plan;
                adapting.changes += 1;
            }
            adapting.spent = Nanos(begin.elapsed().as_nanos() as u64);
        }
        adapting.since = Since::now();
        Ok(())
    }
}
