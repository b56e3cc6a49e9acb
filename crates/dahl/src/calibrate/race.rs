//! Steps of several plans, run in turns.
//!
//! A machine's speed changes from minute to minute; what takes turns sees the same machine.

use super::steps::fill;
use crate::error::Result;
use crate::exec::Session;
use crate::graph::Programs;
use crate::native::{Native, NativeSession};
use crate::plan::Plan;
use crate::units::{Nanos, ProgramId};
use dahl_kernels::StepScalars;
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
    let mut last = None;
    for _ in 0..steps {
        let slot = session.slot(program)?;
        // Learning nothing keeps numbers as they are, for any number of steps.
        last = Some(session.step(program, slot, StepScalars::default())?);
    }
    last.map_or(Ok(()), |step| session.wait(step))?;
    Ok(begin.elapsed() / steps as u32)
}
