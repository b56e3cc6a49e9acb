//! Steps of several plans, run in turns.
//!
//! A machine's speed changes within tenths of seconds, by what others do on it. What takes turns
//! sees the same machine: turns of one round are compared with each other, and only their
//! ratios count. A plan whose ratio to the best is above 1 by more than chance has no more
//! turns; so the time that there is goes to those that are close.

use super::steps::{fill, run_steps};
use crate::error::Result;
use crate::exec::Session;
use crate::native::{Native, NativeSession};
use crate::plan::PlannedPrograms;
use crate::trace::Activity;
use crate::units::{Nanos, ProgramId};
use std::time::{Duration, Instant};

/// Turns of each plan that are wanted, even if they take [`PATIENCE`] times the budget.
const TURNS: usize = 5;
/// How many standard errors are not chance. Every round asks again: it is less sure than it
/// would be of one question.
const CERTAIN: f64 = 2.6;
/// What disturbs lasts less long, mostly: means over so long are independent of each other.
const APART: Duration = Duration::from_millis(500);
/// What is worse by less is as good.
const AS_GOOD: f64 = 0.02;
/// Times the budget after which there is no turn more for them.
const PATIENCE: u32 = 3;
/// A turn takes about so long, or one step.
const TURN: Duration = Duration::from_millis(20);
/// Rounds of the steps that follow each other, in a turn of what has several under way.
const UNDER_WAY: u64 = 8;

/// A plan that takes turns with others.
#[derive(Clone, Copy)]
pub struct Racer<'a> {
    /// What is run.
    pub plan: &'a PlannedPrograms,
    /// The programs of its steps, one after the other and again.
    pub steps: &'a [ProgramId],
    /// By whom.
    pub engine: &'a Native,
}

/// Steps that ran without a break.
#[derive(Clone, Debug)]
pub struct Turn {
    /// How many.
    pub steps: u64,
    /// How long they took together, and what workers did meanwhile.
    pub did: Activity,
}

impl Turn {
    /// The time of a step.
    pub fn step(&self) -> Nanos {
        Nanos(self.did.elapsed / self.steps.max(1))
    }
}

/// The turns of each plan, on this machine and all its workers, until one is better than all
/// others or the rest is as good, at most for about `budget`; up to three times that where steps
/// are so long that there are few turns, and one turn in any case. All plans are in memory at
/// once. `value` says what is to be small, of a racer's turn.
///
/// # Errors
/// Where one does not run.
pub fn race(
    racers: &[Racer<'_>],
    budget: Duration,
    value: &dyn Fn(usize, &Turn) -> f64,
) -> Result<Vec<Vec<Turn>>> {
    let begin = Instant::now();
    let mut running = Vec::with_capacity(racers.len());
    for &Racer { plan, steps, engine } in racers {
        let mut session = engine.prepare_native(plan)?;
        let first = steps.first().copied().unwrap_or(ProgramId(0));
        fill(&mut session, plan, first)?;
        // The first steps touch their memory for the first time. Where several are under way
        // at once, filling and draining the stages should not count.
        let least = if steps.len() > 1 { UNDER_WAY * steps.len() as u64 } else { 1 };
        turn(&mut session, steps, least)?;
        let one = turn(&mut session, steps, least)?.did.elapsed / least;
        let wanted = (TURN.as_nanos() as u64 / one.max(1)).min(10_000).max(least);
        running.push((session, wanted / least * least));
    }
    let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); racers.len()];
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); racers.len()];
    let mut left: Vec<usize> = (0..racers.len()).collect();
    let mut rounds = 0;
    while is_due(rounds, begin.elapsed(), budget) {
        // Nobody is always behind the same.
        let middle = rounds % left.len().max(1);
        for &i in left[middle..].iter().chain(&left[..middle]) {
            let (session, count) = &mut running[i];
            let turn = turn(session, racers[i].steps, *count)?;
            values[i].push(value(i, &turn));
            turns[i].push(turn);
        }
        rounds += 1;
        let block = (APART.as_secs_f64() / begin.elapsed().as_secs_f64() * rounds as f64).ceil();
        let block = block.max(1.0) as usize;
        if rounds >= TURNS * block && go_on(&values, block, &mut left) == Open::No {
            break;
        }
    }
    Ok(turns)
}

/// Whether it is open which is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Yes,
    No,
}

/// Leaves out who is worse than the best of those that are left by more than chance; turns
/// that are a block apart are independent.
fn go_on(values: &[Vec<f64>], block: usize, left: &mut Vec<usize>) -> Open {
    let sum = |i: usize| values[i].iter().map(|x| x.ln()).sum::<f64>();
    let Some(&best) = left.iter().min_by(|a, b| sum(**a).total_cmp(&sum(**b))) else {
        return Open::No;
    };
    let mut open = Open::No;
    left.retain(|&i| {
        let [mean, error] = ratio(&values[i], &values[best], block);
        // About Student's distribution.
        let others = (values[i].len() / block).saturating_sub(1).max(1) as f64;
        let chance = CERTAIN * (1.0 + 3.0 / others) * error;
        if i != best && mean <= chance && mean + chance > AS_GOOD {
            open = Open::Yes;
        }
        mean <= chance
    });
    open
}

/// The mean logarithm of the ratios of two plans in the same rounds, and its standard error by
/// the means of blocks.
fn ratio(a: &[f64], b: &[f64], block: usize) -> [f64; 2] {
    let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a / b).ln()).collect();
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
    let whole = mean(&logs);
    let squares = logs.chunks_exact(block).map(|block| (mean(block) - whole).powi(2));
    let n = (logs.len() / block).max(1) as f64;
    [whole, (squares.sum::<f64>() / (n - 1.0).max(1.0) / n).sqrt()]
}

/// Who had turns to the end: nobody was better by more than chance.
pub fn to_the_end(turns: &[Vec<Turn>]) -> Vec<bool> {
    let most = turns.iter().map(Vec::len).max();
    turns.iter().map(|of| Some(of.len()) == most).collect()
}

/// What turns are about, for each racer: the mean of those that had most turns, and the others
/// as they compare with the best of these in the same rounds. By logarithms.
pub fn compared(turns: &[Vec<Turn>], value: &dyn Fn(usize, &Turn) -> f64) -> Vec<f64> {
    let of = |(i, turns): (usize, &Vec<Turn>)| turns.iter().map(|turn| value(i, turn)).collect();
    let values: Vec<Vec<f64>> = turns.iter().enumerate().map(of).collect();
    let mean = |of: &[f64]| of.iter().map(|x| x.ln()).sum::<f64>() / of.len().max(1) as f64;
    let best = values.iter().min_by(|a, b| b.len().cmp(&a.len()).then(mean(a).total_cmp(&mean(b))));
    let Some(best) = best else { return Vec::new() };
    values.iter().map(|of| (mean(best) + ratio(of, best, 1)[0]).exp()).collect()
}

/// Whether there is a turn more after so many that took so long.
fn is_due(turns: usize, elapsed: Duration, budget: Duration) -> bool {
    let few = turns < TURNS && elapsed < PATIENCE * budget;
    turns == 0 || few || elapsed < budget
}

/// So many steps, a multiple of how many follow each other.
fn turn(session: &mut NativeSession, steps: &[ProgramId], count: u64) -> Result<Turn> {
    let counters = session.counters();
    let (begin, before) = (Instant::now(), counters.activity());
    run_steps(session, steps, count)?;
    let elapsed = begin.elapsed().as_nanos() as u64;
    Ok(Turn { steps: count, did: Activity { elapsed, ..counters.activity().since(&before) } })
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
        check(4, 11, true);
        check(5, 11, false);
        check(1000, 9, true);
    }

    /// Numbers around a mean that are the same in every run.
    fn noisy(mean: f64, seed: usize, count: usize) -> Vec<f64> {
        let mut state = seed as u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed as u64 | 1);
            (state >> 40) as f64 / (1u64 << 24) as f64 - 0.5
        };
        (0..count).map(|_| mean * (0.4 * noise()).exp()).collect()
    }

    #[test]
    fn who_is_worse_by_more_than_chance_has_no_more_turns() {
        let all = |count| vec![noisy(1.5, 1, count), noisy(1.0, 2, count), noisy(1.05, 3, count)];
        let mut left = vec![0, 1, 2];
        assert_eq!(go_on(&all(8), 1, &mut left), Open::Yes);
        assert_eq!(left, [1, 2], "5 % cannot be told from chance by 8 turns");
        assert_eq!(go_on(&all(500), 1, &mut left), Open::No);
        assert_eq!(left, [1]);
        // Two halves that differ are two values, not many.
        let halves = [[noisy(1.0, 1, 10), noisy(1.4, 2, 10)].concat(), noisy(1.0, 3, 20)];
        for (block, left_over) in [(1, 1), (10, 2)] {
            let mut left = vec![0, 1];
            go_on(&halves, block, &mut left);
            assert_eq!(left.len(), left_over, "blocks of {block}");
        }
        // What is as good need not be decided.
        let mut left = vec![0, 1];
        let alike = [noisy(1.0, 1, 5000), noisy(1.001, 2, 5000)];
        assert_eq!((go_on(&alike, 1, &mut left), left.len()), (Open::No, 2));
    }

    /// A plan that had turns only while the machine was slow was said to be slower.
    #[test]
    fn plans_are_compared_in_the_same_rounds() {
        let turn = |nanos: &u64| {
            let did = Activity { elapsed: *nanos, workers: Vec::new() };
            Turn { steps: 1, did }
        };
        let turns = [vec![200, 200, 100, 100], vec![240, 240]];
        let turns: Vec<Vec<Turn>> = turns.iter().map(|t| t.iter().map(turn).collect()).collect();
        let found = compared(&turns, &|_, turn| turn.step().0 as f64);
        let mean = 20_000f64.sqrt();
        assert!((found[0] / mean - 1.0).abs() < 1e-12 && (found[1] / mean - 1.2).abs() < 1e-12);
    }
}
