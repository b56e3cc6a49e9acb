//! The calls of a trace with all that is known of each.

use crate::trace::{CodeletShape, Event, Ordinals, TaskWork, Trace};

/// A call, with its entries of the header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallAt {
    /// The step.
    pub step: u64,
    /// Its program.
    pub program: u32,
    /// The task.
    pub task: u32,
    /// Which call of the task it is.
    pub ordinal: u32,
    /// The codelet and shape, by index of [`Calls::cells`].
    pub cell: u32,
    /// The place in the model, by index of the header's layers; the length of that list
    /// where it is not known.
    pub layer: u32,
    /// The worker.
    pub worker: u32,
    /// When it began.
    pub from: u64,
    /// When it ended.
    pub to: u64,
    /// Whether it follows another call of its task, or waited for tasks that were all done by
    /// the same worker: its data may be in that processor's cache. What the step before has
    /// written, such as weights, is not looked at.
    pub warm: bool,
    /// Average number of other workers that computed at the same time.
    pub neighbours: f32,
    /// Nanoseconds that the worker was off its processor.
    pub lost: u64,
}

impl CallAt {
    /// Its duration.
    pub fn nanos(&self) -> u64 {
        self.to - self.from
    }
}

/// All calls of a trace, by start.
#[derive(Clone, Debug)]
pub struct Calls<'a> {
    /// Where they come from.
    pub trace: &'a Trace,
    /// The calls.
    pub all: Vec<CallAt>,
    /// Codelets by shape; without shapes where the trace does not say them.
    pub cells: Vec<CodeletShape>,
    /// From the first submission or call to the end of the last call or wait.
    pub window: (u64, u64),
}

/// The worker that ran a task last, and the step.
type Ran = Option<(u64, u32)>;

impl<'a> Calls<'a> {
    /// Takes the calls out of a trace.
    pub fn of(trace: &'a Trace) -> Self {
        let header = &trace.header;
        let known = header.programs.iter().all(|p| p.work.len() == p.tasks.len());
        let plain = |codelet| CodeletShape { codelet, ..CodeletShape::default() };
        // A call that the header does not know has a codelet, and no shape.
        let listed = if known { &header.cells[..] } else { &[] };
        let others = (0..header.codelets.len() as u32).map(plain);
        let cells: Vec<CodeletShape> = listed.iter().cloned().chain(others).collect();
        let mut ordinals = Ordinals::new(header);
        let mut ran: Vec<Vec<Ran>> =
            header.programs.iter().map(|p| vec![None; p.tasks.len()]).collect();
        let mut all = Vec::new();
        for event in &trace.events {
            let Event::Call { step, program, task, codelet, worker, from, to } = *event else {
                continue;
            };
            let ordinal = ordinals.count(program, task, step);
            let of_program = &mut ran[program as usize];
            of_program[task as usize] = Some((step, worker));
            let work = header.programs[program as usize].work.get(task as usize).filter(|_| known);
            let (cell, layer) = work
                .and_then(|work| work.calls.get(ordinal as usize).copied())
                .unwrap_or((listed.len() as u32 + codelet, header.layers.len() as u32));
            let own = |pred: &u32| of_program[*pred as usize] == Some((step, worker));
            let after = |work: &TaskWork| !work.after.is_empty() && work.after.iter().all(own);
            let warm = ordinal > 0 || work.is_some_and(after);
            let (neighbours, lost) = (0.0, 0);
            all.push(CallAt {
                step,
                program,
                task,
                ordinal,
                cell,
                layer,
                worker,
                from,
                to,
                warm,
                neighbours,
                lost,
            });
        }
        // Decisions are recorded between steps that are not, too.
        let of_steps = || trace.events.iter().filter(|e| !matches!(e, Event::Replan { .. }));
        let begin = of_steps().next().map_or(0, Event::start);
        let timed = of_steps().filter(|e| !matches!(e, Event::Submit { .. }));
        let end = timed.map(Event::end).max().unwrap_or(begin);
        let mut calls = Self { trace, all, cells, window: (begin, end) };
        calls.find_neighbours();
        calls.find_lost();
        calls
    }

    /// The codelet of a call by name.
    pub fn codelet(&self, call: &CallAt) -> &'a str {
        &self.trace.header.codelets[self.cells[call.cell as usize].codelet as usize]
    }

    /// The place in the model of a call.
    pub fn layer(&self, call: &CallAt) -> &'a str {
        self.trace.header.layers.get(call.layer as usize).map_or("", String::as_str)
    }

    /// The label of a call's task.
    pub fn task(&self, call: &CallAt) -> &'a str {
        &self.trace.header.programs[call.program as usize].tasks[call.task as usize]
    }

    /// The time that all workers together are busy up to t, at both ends of a call: the
    /// difference is its own time and that of its neighbours.
    fn find_neighbours(&mut self) {
        let mut ends: Vec<(u64, i32, usize)> = Vec::with_capacity(2 * self.all.len());
        for (i, call) in self.all.iter().enumerate() {
            ends.push((call.from, 1, i));
            ends.push((call.to, -1, i));
        }
        ends.sort_unstable();
        let mut at_start = vec![0u128; self.all.len()];
        let (mut busy, mut running, mut before) = (0u128, 0i64, 0);
        for (at, change, i) in ends {
            busy += u128::from(at - before) * running.max(0) as u128;
            (before, running) = (at, running + i64::from(change));
            if change > 0 {
                at_start[i] = busy;
            } else {
                let call = &mut self.all[i];
                let own = call.nanos().max(1) as f64;
                call.neighbours = (((busy - at_start[i]) as f64 / own) - 1.0).max(0.0) as f32;
            }
        }
    }

    /// A look at the clock that finds a worker off its processor follows the call in
    /// which it was.
    fn find_lost(&mut self) {
        let mut looks: Vec<(u32, u64, u64)> = Vec::new();
        for event in &self.trace.events {
            if let Event::Preempt { worker, to, lost, .. } = *event {
                looks.push((worker, to, lost));
            }
        }
        looks.sort_unstable();
        for call in &mut self.all {
            let found = looks.binary_search_by_key(&(call.worker, call.to), |l| (l.0, l.1));
            if let Ok(i) = found {
                call.lost = looks[i].2.min(call.nanos());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Header, ProgramHeader};

    /// Decisions long before and after the recorded steps made workers seem idle.
    #[test]
    fn decisions_between_steps_that_are_not_recorded_are_no_part_of_the_window() {
        let program = ProgramHeader { tasks: vec!["t0".to_owned()], ..ProgramHeader::default() };
        let codelets = vec!["a".to_owned()];
        let header = Header { workers: 1, codelets, programs: vec![program], ..Header::default() };
        let replan = |step, from, to| Event::Replan {
            step,
            placement: 0,
            measured: 1,
            predicted: 1,
            from,
            to,
        };
        let (program, task, codelet, worker) = (0, 0, 0, 0);
        let events = vec![
            replan(3, 10, 20),
            Event::Submit { step: 8, program, at: 100 },
            Event::Call { step: 8, program, task, codelet, worker, from: 110, to: 150 },
            replan(90, 1000, 2000),
        ];
        let trace = Trace { header, events };
        assert_eq!(Calls::of(&trace).window, (100, 150));
        let alone = Trace { events: vec![replan(3, 10, 20)], ..trace };
        assert_eq!(Calls::of(&alone).window, (0, 0));
    }
}
