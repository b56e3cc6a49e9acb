//! The longest chain of tasks of a step that wait for each other: no number of workers
//! makes a step shorter.

use super::super::calls::Calls;
use super::codelets::quantile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The critical path of a program's steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramPath {
    /// The program.
    pub program: String,
    /// Number of its steps.
    pub steps: u64,
    /// The median time from the first call of a step to the end of its last.
    pub span: u64,
    /// The median of all calls' time together.
    pub work: u64,
    /// The median length of the longest chain.
    pub path: u64,
    /// The chain of a step of that length: tasks and their times.
    pub tasks: Vec<(String, u64)>,
    /// The same by codelet, the longest first.
    pub codelets: Vec<(String, u64)>,
    /// Nanoseconds of all calls of all its steps, by codelet.
    pub times: Vec<(String, u64)>,
}

/// A step's tasks, with their times and which calls those are.
#[derive(Default)]
struct Step {
    from: u64,
    to: u64,
    times: Vec<u64>,
    calls: Vec<usize>,
}

pub(super) fn paths(calls: &Calls<'_>) -> Vec<ProgramPath> {
    let header = &calls.trace.header;
    let mut steps: BTreeMap<(u32, u64), Step> = BTreeMap::new();
    for (i, call) in calls.all.iter().enumerate() {
        let program = &header.programs[call.program as usize];
        let step = steps.entry((call.program, call.step)).or_insert_with(|| Step {
            from: call.from,
            times: vec![0; program.tasks.len()],
            ..Step::default()
        });
        step.times[call.task as usize] += call.nanos();
        step.to = step.to.max(call.to);
        step.calls.push(i);
    }
    let mut result = Vec::new();
    for (p, program) in header.programs.iter().enumerate() {
        let own: Vec<&Step> =
            steps.range((p as u32, 0)..=(p as u32, u64::MAX)).map(|(_, step)| step).collect();
        if own.is_empty() || program.work.len() != program.tasks.len() {
            continue;
        }
        let mut chains: Vec<(u64, usize, Vec<usize>)> = own
            .iter()
            .enumerate()
            .map(|(i, step)| {
                let (length, chain) = longest(&step.times, |t| &program.work[t].after);
                (length, i, chain)
            })
            .collect();
        chains.sort();
        let (path, of, chain) = chains.swap_remove((chains.len() - 1) / 2);
        let mut by_codelet: BTreeMap<&str, u64> = BTreeMap::new();
        for &i in &own[of].calls {
            let call = &calls.all[i];
            if chain.contains(&(call.task as usize)) {
                *by_codelet.entry(calls.codelet(call)).or_default() += call.nanos();
            }
        }
        let mut codelets: Vec<(String, u64)> =
            by_codelet.into_iter().map(|(name, nanos)| (name.to_owned(), nanos)).collect();
        codelets.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let median = |of: &dyn Fn(&Step) -> u64| {
            let mut all: Vec<u64> = own.iter().map(|step| of(step)).collect();
            all.sort_unstable();
            quantile(&all, 0.5)
        };
        let times = &own[of].times;
        let mut all: BTreeMap<&str, u64> = BTreeMap::new();
        for call in own.iter().flat_map(|step| &step.calls).map(|&i| &calls.all[i]) {
            *all.entry(calls.codelet(call)).or_default() += call.nanos();
        }
        result.push(ProgramPath {
            program: program.name.clone(),
            steps: own.len() as u64,
            span: median(&|step| step.to - step.from),
            work: median(&|step| step.times.iter().sum()),
            path,
            tasks: chain.iter().map(|&t| (program.tasks[t].clone(), times[t])).collect(),
            codelets,
            times: all.into_iter().map(|(name, nanos)| (name.to_owned(), nanos)).collect(),
        });
    }
    result
}

/// The longest chain through tasks that wait for earlier ones, and its length.
fn longest<'a>(times: &[u64], after: impl Fn(usize) -> &'a Vec<u32>) -> (u64, Vec<usize>) {
    let mut ends: Vec<(u64, Option<usize>)> = Vec::with_capacity(times.len());
    for (t, time) in times.iter().enumerate() {
        // The first of equal ones.
        let before = after(t).iter().map(|&p| p as usize).rev().max_by_key(|&p| ends[p].0);
        ends.push((time + before.map_or(0, |p| ends[p].0), before));
    }
    let Some(last) = (0..ends.len()).rev().max_by_key(|&t| ends[t].0) else {
        return (0, Vec::new());
    };
    let mut chain = vec![last];
    while let Some(before) = ends[chain[chain.len() - 1]].1 {
        chain.push(before);
    }
    chain.reverse();
    (ends[last].0, chain)
}
