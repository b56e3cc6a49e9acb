//! Steps of several plans, run in turns.
//!
//! A machine's speed changes from minute to minute; what takes turns sees the same machine.

use super::steps::{fill, run_steps};
use crate::error::Result;
use crate::graph::Programs;
use crate::native::{Native, NativeSession};
use crate::plan::Plan;
use crate::units::{Nanos, ProgramId};
use std::time::{Duration, Instant};

/// Turns of each plan that are wanted, whatever the budget.
const TURNS: usize = 4;
/// Times the budget after which there is no turn more for them.
const PATIENCE: u32 = 3;
/// A turn takes about so long, or one step.
const TURN: Duration = Duration::from_millis(20);

/// The shortest step of each plan, on this machine and all its workers, for about `budget`
/// together; up to three times that where steps are so long that there are few turns, and one
/// turn in any case. All plans are in memory at once.
pub fn race(
    programs: &Programs,
    plans: &[&Plan],
    program: ProgramId,
    budget: Duration,
) -> Result<Vec<Nanos>> {
    let begin = Instant::now();
    let mut racers = Vec::with_capacity(plans.len());
    for plan in plans {
        let mut session = Native::default().prepare_native(programs, plan)?;
        fill(&mut session, programs, program, plan.memory.input_slots)?;
        // The first step touches its memory for the first time.
        turn(&mut session, program, 1)?;
        let one = turn(&mut session, program, 1)?;
        let steps = (TURN.as_nanos() / one.as_nanos().max(1)).clamp(1, 10_000) as u64;
        racers.push((session, steps, Duration::MAX));
    }
    let mut turns = 0;
    while is_due(turns, begin.elapsed(), budget) {
        for (session, steps, best) in &mut racers {
            *best = turn(session, program, *steps)?.min(*best);
        }
        turns += 1;
    }
    Ok(racers.iter().map(|(.., best)| Nanos(best.as_nanos() as u64)).collect())
}

/// Whether there is a turn more after so many that took so long.
fn is_due(turns: usize, elapsed: Duration, budget: Duration) -> bool {
    let few = turns < TURNS && elapsed < PATIENCE * budget;
    turns == 0 || few || elapsed < budget
}

/// The time of one of some steps.
fn turn(session: &mut NativeSession, program: ProgramId, steps: u64) -> Result<Duration> {
    let begin = Instant::now();
    run_steps(session, program, steps)?;
    Ok(begin.elapsed() / steps as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of seconds were run for four turns of each plan, whatever the budget.
    #[test]
    fn turns_end_with_the_time_that_there_is() {
        let check = |turns, elapsed, expected| {
            let (elapsed, budget) = (Duration::from_secs(elapsed), Duration::from_secs(10));
            assert_eq!(is_due(turns, elapsed, budget), expected, "{turns} in {elapsed:?}");
        };
        check(0, 100, true);
        check(1, 29, true);
        check(1, 30, false);
        check(3, 11, true);
        check(4, 11, false);
        check(1000, 9, true);
    }
}
