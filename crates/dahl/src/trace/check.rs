//! Whether the calls of a trace are what its header says, so that whoever reads it need not
//! ask.

use super::{Event, Header, Trace};

/// More workers than any machine has: lists as long as this are made for them.
const MOST_WORKERS: usize = 1 << 16;

/// A run of a task: its step, and how many of its calls were seen.
type Run = (u64, u32);

/// Tells which call of its task a call is.
pub(crate) struct Ordinals {
    /// The runs of a task that may go on, by program and task; two steps may be under way.
    runs: Vec<Vec<Vec<Run>>>,
}

/// Runs of one task that may be under way at a time.
const UNDER_WAY: usize = 4;

impl Ordinals {
    pub(crate) fn new(header: &Header) -> Self {
        let runs = header.programs.iter().map(|p| vec![Vec::new(); p.tasks.len()]).collect();
        Self { runs }
    }

    /// Counts a call; which of its task's it is in this step, from 0.
    pub(crate) fn count(&mut self, program: u32, task: u32, step: u64) -> u32 {
        let runs = &mut self.runs[program as usize][task as usize];
        if let Some((_, calls)) = runs.iter_mut().find(|(s, _)| *s == step) {
            *calls += 1;
            return *calls - 1;
        }
        if runs.len() >= UNDER_WAY {
            runs.remove(0);
        }
        runs.push((step, 1));
        0
    }
}

/// Where a trace is not what it should be: the line, what was expected, what is there.
pub(super) type Flaw = (usize, &'static str, String);

pub(super) fn calls(trace: &Trace) -> Result<(), Flaw> {
    let header = &trace.header;
    if header.workers > MOST_WORKERS {
        return Err((1, "at most 65536 workers", header.workers.to_string()));
    }
    if !header.units.is_empty() && header.units.len() != header.workers {
        return Err((1, "one unit per worker, or none", header.units.len().to_string()));
    }
    let mut ordinals = Ordinals::new(header);
    let mut free = vec![0; header.workers];
    let mut before = 0;
    let [mut nanos, mut flops, mut bytes] = [0u64; 3];
    for (i, event) in trace.events.iter().enumerate() {
        let flaw = |expected: &'static str| Err((i + 2, expected, format!("{event:?}")));
        // Whoever adds up what is in events need not ask whether the sum fits.
        let all = event.end().checked_mul(header.workers.max(1) as u64);
        if all.is_none() || !add(&mut nanos, event.end() - event.start()) {
            return flaw("times whose sum over all workers is below 2^64 ns");
        }
        let moved = if let Event::Move { bytes, .. } = *event { bytes } else { 0 };
        if !add(&mut bytes, moved) {
            return flaw("moves of fewer than 2^64 bytes together");
        }
        if event.start() < before {
            return flaw("events by start");
        }
        before = event.start();
        let Event::Call { step, program, task, codelet, worker, from, to } = *event else {
            continue;
        };
        if from < free[worker as usize] {
            return flaw("a call after the end of the one before on its worker");
        }
        free[worker as usize] = to;
        let ordinal = ordinals.count(program, task, step);
        let Some(work) = header.programs[program as usize].work.get(task as usize) else {
            continue;
        };
        let Some(&(cell, _)) = work.calls.get(ordinal as usize) else {
            return flaw("no more calls of a task than the header lists");
        };
        let cell = &header.cells[cell as usize];
        if cell.codelet != codelet {
            return flaw("the codelet that the header lists for this call");
        }
        if !add(&mut flops, cell.flops) || !add(&mut bytes, cell.bytes) {
            return flaw("calls of fewer than 2^64 operations and bytes together");
        }
    }
    Ok(())
}

/// Adds to a sum; false where it does not fit.
fn add(sum: &mut u64, term: u64) -> bool {
    let all = sum.checked_add(term);
    *sum = all.unwrap_or(u64::MAX);
    all.is_some()
}

#[cfg(test)]
mod tests {
    use super::super::{CodeletShape, ProgramHeader, TaskWork, VERSION};
    use super::*;
    use std::path::Path;

    fn call(task: u32, codelet: u32, worker: u32, [from, to]: [u64; 2]) -> Event {
        Event::Call { step: 0, program: 0, task, codelet, worker, from, to }
    }

    fn trace(events: Vec<Event>) -> Trace {
        let cell = |codelet| CodeletShape { codelet, ..CodeletShape::default() };
        let work = TaskWork { calls: vec![(0, 0), (1, 0)], after: Vec::new() };
        let header = Header {
            dahl_trace: VERSION,
            workers: 2,
            codelets: vec!["a.plain".to_owned(), "b.plain".to_owned()],
            cells: vec![cell(0), cell(1)],
            layers: vec![String::new()],
            programs: vec![ProgramHeader {
                name: "train 2".to_owned(),
                tasks: vec!["t0".to_owned(), "t1".to_owned()],
                work: vec![work; 2],
                ..ProgramHeader::default()
            }],
            ..Header::default()
        };
        Trace { header, events }
    }

    #[test]
    fn every_worker_has_a_unit_or_none_has() {
        let named = |units: &[&str]| {
            let units = units.iter().map(|unit| (*unit).to_owned()).collect();
            let header = Header { workers: 2, units, ..Header::default() };
            calls(&Trace { header, events: Vec::new() })
        };
        assert!(named(&[]).is_ok() && named(&["a/core[0]", "a/gpu[0]"]).is_ok());
        assert_eq!(named(&["a/core[0]"]).unwrap_err().0, 1);
    }

    #[test]
    fn calls_that_contradict_the_header_are_refused() {
        let refused = |trace: Trace, expected: &str| {
            let error = Trace::parse(&trace.to_text(), Path::new("x")).unwrap_err().to_string();
            assert!(error.starts_with("x: line ") && error.contains(expected), "{error}");
        };
        let good = vec![call(0, 0, 0, [1, 2]), call(1, 0, 1, [1, 3]), call(0, 1, 0, [2, 4])];
        Trace::parse(&trace(good.clone()).to_text(), Path::new("x")).unwrap();
        let with = |event: Event| trace([&good[..], &[event]].concat());
        refused(with(call(0, 0, 0, [4, 5])), "no more calls of a task");
        refused(with(call(1, 0, 1, [4, 5])), "the codelet that the header lists");
        refused(with(call(1, 1, 1, [2, 5])), "the end of the one before");
        refused(with(call(1, 1, 1, [0, 1])), "events by start");
        for [flops, bytes] in [[u64::MAX / 2, 0], [0, u64::MAX / 2]] {
            let mut large = trace(good.clone());
            large.header.cells[0] = CodeletShape { flops, bytes, ..CodeletShape::default() };
            Trace::parse(&large.to_text(), Path::new("x")).unwrap();
            large.header.cells[1] = CodeletShape { codelet: 1, ..large.header.cells[0].clone() };
            refused(large, "fewer than 2^64 operations and bytes");
        }
        let moved = |bytes| Event::Move { source: 0, target: 0, bytes, from: 4, to: 4 };
        let mut large = trace(vec![moved(u64::MAX), moved(1)]);
        large.header.memories = vec!["ram".to_owned()];
        refused(large, "moves of fewer than 2^64 bytes");
        let mut many = trace(good);
        many.header.workers = 1_000_000_000_000_000;
        refused(many, "at most 65536 workers");
    }

    #[test]
    fn steps_may_be_under_way_together() {
        let mut ordinals = Ordinals::new(&trace(Vec::new()).header);
        let found = [(0, 7), (0, 8), (0, 7), (0, 8), (1, 7)].map(|(t, s)| ordinals.count(0, t, s));
        assert_eq!(found, [0, 0, 1, 1, 0]);
    }
}
