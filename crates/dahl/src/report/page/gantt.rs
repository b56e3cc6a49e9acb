//! The events of a trace as few bytes: differences as numbers of variable length, in
//! base64.
//!
//! For each track (a worker, or a way between memories): how many events, then for each event
//! its kind (0 spinning, 1 waiting, 2 transfer, 3 + n a call of cell n), the time since
//! the end of the event before, how long it took and, of a call, its layer, the difference of
//! its step to that of the call before, its task, counted over all programs, and the time that
//! its worker was off its processor. What may be negative is folded (0, -1, 1, -2, …).

use super::super::calls::Calls;
use crate::trace::Event;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The kind of a transfer, and the first one of calls.
const MOVED: u64 = 2;
const CALL: u64 = 3;

fn number(out: &mut Vec<u8>, n: u64) {
    let mut n = n;
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn signed(out: &mut Vec<u8>, n: i64) {
    number(out, ((n << 1) ^ (n >> 63)) as u64);
}

pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let get = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = get(0) << 16 | get(1) << 8 | get(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// The events of a worker, before they become bytes.
#[derive(Default)]
struct Track {
    bytes: Vec<u8>,
    events: u64,
    free: u64,
    step: u64,
}

impl Track {
    fn begin(&mut self, kind: u64, from: u64, to: u64) {
        number(&mut self.bytes, kind);
        signed(&mut self.bytes, from as i64 - self.free as i64);
        number(&mut self.bytes, to - from);
        self.events += 1;
        self.free = to;
    }
}

/// The part of a trace that the page draws.
pub(super) fn gantt(calls: &Calls<'_>) -> Value {
    let header = &calls.trace.header;
    let mut offsets = Vec::new();
    let mut tasks: Vec<&str> = Vec::new();
    for program in &header.programs {
        offsets.push(tasks.len() as u64);
        tasks.extend(program.tasks.iter().map(String::as_str));
    }
    let begin = calls.window.0;
    let mut tracks: Vec<Track> = Vec::new();
    tracks.resize_with(header.workers, || Track { free: begin, ..Track::default() });
    let mut ways: BTreeMap<(u32, u32), Vec<(u64, u64)>> = BTreeMap::new();
    let mut next = 0;
    for event in &calls.trace.events {
        match *event {
            Event::Call { .. } => {
                let call = &calls.all[next];
                next += 1;
                let track = &mut tracks[call.worker as usize];
                track.begin(CALL + u64::from(call.cell), call.from, call.to);
                number(&mut track.bytes, u64::from(call.layer));
                signed(&mut track.bytes, call.step as i64 - track.step as i64);
                number(&mut track.bytes, offsets[call.program as usize] + u64::from(call.task));
                number(&mut track.bytes, call.lost);
                track.step = call.step;
            }
            Event::Wait { worker, from, to, parked } => {
                tracks[worker as usize].begin(u64::from(parked), from, to);
            }
            Event::Move { source, target, from, to, .. } => {
                let spans = ways.entry((source, target)).or_default();
                match spans.last_mut() {
                    // Several may be under way at a time.
                    Some(last) if from <= last.1 => last.1 = last.1.max(to),
                    _ => spans.push((from, to)),
                }
            }
            // Calls have what they lost.
            Event::Submit { .. } | Event::Preempt { .. } | Event::Replan { .. } => {}
        }
    }
    let mut names: Vec<String> = (0..header.workers).map(|w| header.worker_name(w)).collect();
    for ((source, target), spans) in ways {
        let name = |memory: u32| &header.memories[memory as usize];
        names.push(format!("{} to {}", name(source), name(target)));
        let mut track = Track { free: begin, ..Track::default() };
        spans.into_iter().for_each(|(from, to)| track.begin(MOVED, from, to));
        tracks.push(track);
    }
    let mut bytes = Vec::new();
    let mut count = 0;
    for track in &tracks {
        number(&mut bytes, track.events);
        bytes.extend_from_slice(&track.bytes);
        count += track.events;
    }
    let cells: Vec<Value> =
        calls.cells.iter().map(|cell| json!([cell.codelet, cell.shape])).collect();
    json!({
        "workers": header.workers,
        "tracks": names,
        "codelets": header.codelets,
        "cells": cells,
        "layers": header.layers,
        "tasks": tasks,
        "begin": begin,
        "end": calls.window.1,
        "events": count,
        "data": base64(&bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_as_everywhere() {
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
    }

    #[test]
    fn numbers_are_as_long_as_they_need() {
        let mut out = Vec::new();
        number(&mut out, 300);
        signed(&mut out, -1);
        signed(&mut out, 64);
        assert_eq!(out, [0xac, 0x02, 1, 0x80, 0x01]);
    }
}
