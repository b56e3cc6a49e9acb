//! The trace format of Paje, for ViTE, StarVZ and pajeng.
//!
//! Events stand in the order of their times, which are seconds to the nanosecond.

use super::super::calls::Calls;
use super::{Watts, byte_curve, watt_curves};
use crate::trace::{Event, Trace};
use std::io::{self, Write};

const DEFINITIONS: &str = "\
%EventDef PajeDefineContainerType 0
% Alias string
% Type string
% Name string
%EndEventDef
%EventDef PajeDefineStateType 1
% Alias string
% Type string
% Name string
%EndEventDef
%EventDef PajeDefineVariableType 2
% Alias string
% Type string
% Name string
% Color color
%EndEventDef
%EventDef PajeDefineEntityValue 3
% Alias string
% Type string
% Name string
% Color color
%EndEventDef
%EventDef PajeCreateContainer 4
% Time date
% Alias string
% Type string
% Container string
% Name string
%EndEventDef
%EventDef PajeDestroyContainer 5
% Time date
% Type string
% Name string
%EndEventDef
%EventDef PajeSetState 6
% Time date
% Type string
% Container string
% Value string
%EndEventDef
%EventDef PajeSetVariable 7
% Time date
% Type string
% Container string
% Value double
%EndEventDef
";

/// Seconds, to the nanosecond.
fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

/// A name in quotes, which the format has no way to write inside of them; tools that make
/// tables of it do not expect commas.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace(['"', '\n'], "'").replace(',', ""))
}

/// A colour of its own for each of many values: red, green, blue from 0 to 1.
fn colour(i: usize, all: usize) -> String {
    let hue = 6.0 * i as f64 / all.max(1) as f64;
    let wave = |shift: f64| {
        let at = (hue + shift) % 6.0;
        (0.9 - 0.6 * (at - 3.0).abs().clamp(1.0, 2.0) + 0.6).clamp(0.2, 0.95)
    };
    format!("\"{:.3} {:.3} {:.3}\"", wave(3.0), wave(1.0), wave(5.0))
}

/// Writes a trace as Paje's text.
pub fn paje(trace: &Trace, watts: Watts<'_>, out: &mut dyn Write) -> io::Result<()> {
    let header = &trace.header;
    let calls = Calls::of(trace);
    let (begin, end) = calls.window;
    out.write_all(DEFINITIONS.as_bytes())?;
    writeln!(out, "0 R 0 \"Run\"\n0 W R \"Worker\"\n1 S W \"State\"")?;
    writeln!(out, "0 M R \"Transfers\"\n1 T M \"Transfer\"")?;
    writeln!(out, "3 move T \"moving\" \"0.5 0.3 0.6\"\n3 still T \"still\" \"0.95 0.95 0.95\"")?;
    let values = header.codelets.len() + 3;
    for (i, codelet) in header.codelets.iter().enumerate() {
        writeln!(out, "3 c{i} S {} {}", quoted(codelet), colour(i, values))?;
    }
    writeln!(out, "3 spin S \"spinning\" \"0.9 0.7 0.3\"")?;
    writeln!(out, "3 park S \"waiting\" \"0.7 0.7 0.7\"")?;
    writeln!(out, "3 idle S \"idle\" \"0.95 0.95 0.95\"")?;
    let curves: Vec<_> = watt_curves(&calls, watts).into_iter().chain(byte_curve(&calls)).collect();
    for (i, curve) in curves.iter().enumerate() {
        writeln!(out, "2 v{i} R {} {}", quoted(&curve.name), colour(i, curves.len()))?;
    }
    let at = seconds(begin);
    writeln!(out, "4 {at} run R 0 {}", quoted(&format!("dahl, {}", header.engine)))?;
    for w in 0..header.workers {
        let name = quoted(&header.worker_name(w));
        writeln!(out, "4 {at} w{w} W run {name}\n6 {at} S w{w} idle")?;
    }
    let ways = ways(trace);
    for (i, &(source, target)) in ways.iter().enumerate() {
        let name = |memory: u32| &header.memories[memory as usize];
        let name = quoted(&format!("{} to {}", name(source), name(target)));
        writeln!(out, "4 {at} m{i} M run {name}\n6 {at} T m{i} still")?;
    }
    // A state lasts until the next: an end is the start of idleness, unless something
    // begins at that moment.
    let mut changes: Vec<(u64, u32, u8, String)> = Vec::new();
    let mut moves: Vec<(u64, usize, i64)> = Vec::new();
    let mut push = |worker: u32, from: u64, to: u64, value: String| {
        changes.push((from, worker, 1, value));
        changes.push((to, worker, 0, "idle".to_owned()));
    };
    for event in &trace.events {
        match *event {
            Event::Call { codelet, worker, from, to, .. } => {
                push(worker, from, to, format!("c{codelet}"));
            }
            Event::Wait { worker, from, to, parked } => {
                let value = if parked { "park" } else { "spin" };
                push(worker, from, to, value.to_owned());
            }
            Event::Move { source, target, from, to, .. } => {
                let way = ways.binary_search(&(source, target)).expect("one of them");
                moves.extend([(from, way, 1), (to, way, -1)]);
            }
            Event::Submit { .. } | Event::Preempt { .. } | Event::Replan { .. } => {}
        }
    }
    changes.sort_by_key(|change| (change.0, change.1, change.2));
    let mut lines: Vec<(u64, String)> = Vec::with_capacity(changes.len());
    for (i, (at, worker, _, value)) in changes.iter().enumerate() {
        let next = changes.get(i + 1);
        if value == "idle" && next.is_some_and(|n| n.0 == *at && n.1 == *worker) {
            continue;
        }
        lines.push((*at, format!("6 {} S w{worker} {value}", seconds(*at))));
    }
    // Several may be under way at a time.
    moves.sort_unstable();
    let mut under_way = vec![0; ways.len()];
    for (at, way, change) in moves {
        let before = under_way[way];
        under_way[way] += change;
        if (before == 0) != (under_way[way] == 0) {
            let value = if before == 0 { "move" } else { "still" };
            lines.push((at, format!("6 {} T m{way} {value}", seconds(at))));
        }
    }
    for (i, curve) in curves.iter().enumerate() {
        for (at, value) in curve.points.iter().filter(|p| (begin..=end).contains(&p.0)) {
            // The format has no way to end a variable: what is not known is 0.
            let value = value.unwrap_or(0.0);
            lines.push((*at, format!("7 {} v{i} run {value}", seconds(*at))));
        }
    }
    lines.sort_by_key(|line| line.0);
    for (_, line) in lines {
        writeln!(out, "{line}")?;
    }
    let at = seconds(end);
    for w in 0..header.workers {
        writeln!(out, "5 {at} W w{w}")?;
    }
    for way in 0..ways.len() {
        writeln!(out, "5 {at} M m{way}")?;
    }
    writeln!(out, "5 {at} R run")
}

/// The pairs of memories between which something was moved.
fn ways(trace: &Trace) -> Vec<(u32, u32)> {
    let moved = trace.events.iter().filter_map(|event| match *event {
        Event::Move { source, target, .. } => Some((source, target)),
        _ => None,
    });
    moved.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}
