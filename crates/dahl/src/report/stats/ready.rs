//! Whether workers waited though there was something to run.
//!
//! A task is ready when its step was submitted and all that it waits for, in its step and the
//! one before, has ended. Older steps have ended by then but for pipelines that have more
//! than two under way; there this counts too much.

use super::super::calls::Calls;
use crate::trace::Event;
use std::collections::{BTreeMap, BTreeSet};

/// When a task began and ended; the begin is the largest number where it has not run.
type Span = (u64, u64);

/// A step's tasks.
struct Step {
    program: u32,
    spans: Vec<Span>,
}

/// Nanoseconds that workers waited while a task was ready: at any time as many workers count
/// as had a task to run. `None` where a trace does not say what tasks wait for: in their step,
/// in the step before, or that it is bytes.
pub(super) fn waited(calls: &Calls<'_>) -> Option<u64> {
    let programs = &calls.trace.header.programs;
    if calls.all.is_empty() || programs.iter().any(|p| p.work.len() != p.tasks.len()) {
        return None;
    }
    let mut steps: BTreeMap<u64, Step> = BTreeMap::new();
    for call in &calls.all {
        let step = steps.entry(call.step).or_insert_with(|| {
            let tasks = programs[call.program as usize].tasks.len();
            Step { program: call.program, spans: vec![(u64::MAX, 0); tasks] }
        });
        let span = &mut step.spans[call.task as usize];
        *span = (span.0.min(call.from), span.1.max(call.to));
    }
    let distinct: BTreeSet<u32> = steps.values().map(|step| step.program).collect();
    let repeated = distinct.len() < steps.len();
    // Older traces do not have it.
    let silent = programs.iter().all(|program| program.across.is_empty());
    let moves = calls.trace.events.iter().any(|event| matches!(event, Event::Move { .. }));
    if moves || (silent && repeated) {
        return None;
    }
    // Ready tasks and waiting workers, by how much their numbers change when.
    let mut changes: Vec<(u64, i64, i64)> = Vec::new();
    for event in &calls.trace.events {
        match *event {
            Event::Wait { from, to, .. } => changes.extend([(from, 0, 1), (to, 0, -1)]),
            Event::Submit { step, at, .. } => {
                let before = step.checked_sub(1).and_then(|before| steps.get(&before));
                // Without the step before it is not known when tasks were ready.
                if let (Some(of), Some(before)) = (steps.get(&step), before) {
                    for (from, to) in ready(calls, of, before, at) {
                        changes.extend([(from, 1, 0), (to, -1, 0)]);
                    }
                }
            }
            _ => {}
        }
    }
    changes.sort_unstable();
    let (mut ready, mut waiting, mut last, mut sum) = (0i64, 0i64, 0, 0);
    for (at, of_ready, of_waiting) in changes {
        sum += (at - last) * ready.min(waiting).max(0) as u64;
        (ready, waiting, last) = (ready + of_ready, waiting + of_waiting, at);
    }
    Some(sum)
}

/// From when to when each task of a step was ready and not begun.
fn ready(calls: &Calls<'_>, of: &Step, before: &Step, submitted: u64) -> Vec<Span> {
    let program = &calls.trace.header.programs[of.program as usize];
    let mut from: Vec<u64> = vec![submitted; of.spans.len()];
    for (t, work) in program.work.iter().enumerate() {
        from[t] = work.after.iter().fold(from[t], |at, &p| at.max(of.spans[p as usize].1));
    }
    let across = program.across.iter().filter(|across| across.program == before.program);
    for &(task, earlier) in across.flat_map(|across| &across.waits) {
        let at = &mut from[task as usize];
        *at = (*at).max(before.spans[earlier as usize].1);
    }
    let spans = from.into_iter().zip(&of.spans).map(|(from, &(begin, _))| (from, begin));
    spans.filter(|&(from, begin)| begin != u64::MAX && from < begin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Across, CodeletShape, Header, ProgramHeader, TaskWork, Trace};

    /// Steps 0 and 1 of two tasks; of the second step, t0 waits for t1 of the first and t1
    /// for nothing.
    fn trace(events: Vec<Event>) -> Trace {
        let work = TaskWork { calls: vec![(0, 0)], after: vec![] };
        let program = ProgramHeader {
            name: "train 2".to_owned(),
            tasks: vec!["t0".to_owned(), "t1".to_owned()],
            work: vec![work; 2],
            across: vec![Across { program: 0, waits: vec![(0, 1)] }],
        };
        let header = Header {
            workers: 2,
            codelets: vec!["a".to_owned()],
            cells: vec![CodeletShape::default()],
            layers: vec!["b".to_owned()],
            programs: vec![program],
            ..Header::default()
        };
        Trace { header, events }
    }

    fn call(step: u64, task: u32, worker: u32, from: u64, to: u64) -> Event {
        Event::Call { step, program: 0, task, codelet: 0, worker, from, to }
    }

    /// Two steps, whose second has its tasks begin when it is said.
    fn two_steps(waits: &[(u32, u64, u64)], second: [u64; 2]) -> Trace {
        let mut events = vec![
            Event::Submit { step: 0, program: 0, at: 0 },
            call(0, 0, 0, 0, 10),
            call(0, 1, 1, 0, 20),
            Event::Submit { step: 1, program: 0, at: 5 },
            call(1, 0, 0, second[0], second[0] + 10),
            call(1, 1, 1, second[1], second[1] + 10),
        ];
        let wait = |&(worker, from, to)| Event::Wait { worker, from, to, parked: false };
        events.extend(waits.iter().map(wait));
        events.sort_by_key(Event::start);
        trace(events)
    }

    fn check(waits: &[(u32, u64, u64)], second: [u64; 2], expected: u64) {
        let found = waited(&Calls::of(&two_steps(waits, second)));
        assert_eq!(found, Some(expected), "{waits:?} {second:?}");
    }

    #[test]
    fn a_wait_counts_while_a_task_is_ready_and_not_begun() {
        // t0 is ready at 20, t1 at 5, though its worker is busy until 20.
        check(&[(0, 10, 20)], [20, 20], 10);
        check(&[(0, 10, 23)], [23, 20], 13);
        // Both are ready from 20 to 25, and both workers wait.
        check(&[(0, 20, 25), (1, 20, 25)], [25, 25], 10);
        // Only t0 is left.
        check(&[(0, 20, 25), (1, 30, 35)], [25, 20], 5);
        check(&[], [25, 20], 0);
    }

    /// Tasks that wait for the step before seemed ready when their step was submitted.
    #[test]
    fn traces_without_edges_from_step_to_step_say_nothing() {
        let mut old = two_steps(&[(0, 10, 20)], [20, 20]);
        old.header.programs[0].across.clear();
        assert_eq!(waited(&Calls::of(&old)), None);
        // One step has none before it.
        old.events.retain(|event| {
            !matches!(event, Event::Call { step: 1, .. } | Event::Submit { step: 1, .. })
        });
        assert_eq!(waited(&Calls::of(&old)), Some(0));
    }

    /// A task that waits for bytes seemed ready.
    #[test]
    fn traces_with_moved_bytes_say_nothing() {
        let mut moved = two_steps(&[(0, 10, 20)], [20, 20]);
        moved.header.memories = vec!["ram".to_owned(), "gpu".to_owned()];
        moved.events.push(Event::Move { source: 0, target: 1, bytes: 8, from: 20, to: 25 });
        assert_eq!(waited(&Calls::of(&moved)), None);
    }
}
