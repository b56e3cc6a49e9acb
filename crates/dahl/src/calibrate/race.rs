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

/// Turns of each plan, at least.
const TURNS: usize = 4;
/// A turn takes about so long, or one step.
const TURN: Duration = Duration::from_millis(20);

/// The shortest step of each plan, on this machine and all its workers, for about `budget`
/// together. All plans are in memory at once.
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
    while turns < TURNS || begin.elapsed() < budget {
        for (session, steps, best) in &mut racers {
            *best = turn(session, program, *steps)?.min(*best);
        }
        turns += 1;
    }
    Ok(racers.iter().map(|(.., best)| Nanos(best.as_nanos() as u64)).collect())
}

/// The time of one of some steps.
fn turn(session: &mut NativeSession, program: ProgramId, steps: u64) -> Result<Duration> {
    let begin = Instant::now();
    run_steps(session, program, steps)?;
    Ok(begin.elapsed() / steps as u32)
}
