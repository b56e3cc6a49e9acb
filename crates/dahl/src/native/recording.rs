//! Which steps are recorded, and who was off its processor.

use super::sys::{Ticks, thread_time};

/// How much of a run is recorded, in whole steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLimit {
    /// The first step.
    pub from_step: u64,
    /// How many events there may be: recording ends with the step after which there could be
    /// more. One step is always recorded.
    pub events: usize,
}

impl Default for TraceLimit {
    fn default() -> Self {
        Self { from_step: 0, events: usize::MAX }
    }
}

/// Decides which steps are recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorder {
    limit: TraceLimit,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// With the most events of the step before, which may be under way.
    Recording(usize),
    /// The bound was reached.
    Full,
    Never,
}

impl Recorder {
    /// One that records up to a limit, or nothing.
    pub(super) fn new(limit: Option<TraceLimit>) -> Self {
        let state = if limit.is_some() { State::Waiting } else { State::Never };
        Self { limit: limit.unwrap_or_default(), state }
    }

    /// Whether a step is recorded that has at most so many events, when so many were counted
    /// of those that have ended.
    pub(super) fn wants(
        &mut self,
        step: u64,
        counted: impl FnOnce() -> usize,
        most: impl FnOnce() -> usize,
    ) -> bool {
        let under_way = match self.state {
            State::Never | State::Full => return false,
            State::Waiting if step < self.limit.from_step => return false,
            State::Waiting => None,
            State::Recording(most) => Some(most),
        };
        let most = most();
        let fits = |before: usize| {
            counted().saturating_add(before).saturating_add(most) <= self.limit.events
        };
        let wanted = under_way.is_none_or(fits);
        self.state = if wanted { State::Recording(most) } else { State::Full };
        wanted
    }

    /// The bound on events, where recording ended at it.
    pub(super) fn bound(&self) -> Option<u64> {
        (self.state == State::Full).then_some(self.limit.events as u64)
    }
}

/// Tells how long a thread was off its processor between two looks.
///
/// A look costs some hundred nanoseconds, so it is taken after long calls only. That is
/// enough: a call in which the thread lost its processor was long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    /// Ticks and the thread's own time, in nanoseconds.
    last: Option<(u64, u64)>,
}

/// Ticks of a call after which to look; some tens of microseconds.
const LONG: u64 = 1 << 17;
/// What is less may be the clocks' error: nanoseconds, and a part of the time.
const NOISE: (u64, u64) = (20_000, 100);

impl Watch {
    #[inline]
    pub(super) fn is_worth_a_look(ticks: u64) -> bool {
        ticks >= LONG
    }

    /// Looks now; since when and for how many nanoseconds the thread was off its
    /// processor, where that is more than noise.
    pub(super) fn look(&mut self, ticks: &Ticks, now: u64) -> Option<(u64, u64)> {
        let used = thread_time()?;
        let (from, before) = self.last.replace((now, used))?;
        let time = ticks.early_nanos(now.wrapping_sub(from));
        let lost = time.saturating_sub(used.saturating_sub(before));
        (lost > NOISE.0.max(time / NOISE.1)).then_some((from, lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_steps_are_recorded_up_to_the_limit() {
        let mut recorder = Recorder::new(Some(TraceLimit { from_step: 2, events: 25 }));
        let mut counted = 0;
        let mut wants = |step| {
            // A step has 4 events, and could have 10.
            let wanted = recorder.wants(step, || counted, || 10);
            counted += if wanted { 4 } else { 0 };
            wanted
        };
        let found: Vec<bool> = (0..7).map(&mut wants).collect();
        assert_eq!(found, [false, false, true, true, false, false, false]);
        assert_eq!(recorder.bound(), Some(25));
        // One step is more than nothing.
        let mut small = Recorder::new(Some(TraceLimit { from_step: 0, events: 1 }));
        assert_eq!([0, 1].map(|step| small.wants(step, || 4, || 10)), [true, false]);
        assert!(!Recorder::new(None).wants(0, || 0, || 1));
    }
}
