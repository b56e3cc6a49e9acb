//! The trace event format of Chrome and Perfetto, as JSON.

use super::super::calls::Calls;
use super::{Watts, byte_curve, watt_curves};
use crate::trace::{Event, Trace};
use serde_json::json;
use std::io::{self, Write};

/// Nanoseconds as the microseconds that the format has, without a loss.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Writes a trace for ui.perfetto.dev or chrome://tracing: a track per worker, one for
/// transfers, counters for watts and bytes.
pub fn perfetto(trace: &Trace, watts: Watts<'_>, out: &mut dyn Write) -> io::Result<()> {
    let header = &trace.header;
    let calls = Calls::of(trace);
    let workers = header.workers;
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let name = |kind: &str, tid: usize, name: String| json!({"ph": "M", "pid": 1, "tid": tid, "ts": 0, "name": kind, "args": {"name": name}});
    write!(out, "\n{}", name("process_name", 0, format!("dahl, {} engine", header.engine)))?;
    for w in 0..workers {
        write!(out, ",\n{}", name("thread_name", w + 1, header.worker_name(w)))?;
    }
    if !header.memories.is_empty() {
        write!(out, ",\n{}", name("thread_name", workers + 1, "transfers".to_owned()))?;
    }
    let text = |text: &str| serde_json::to_string(text).expect("a text");
    for call in &calls.all {
        let cell = &calls.cells[call.cell as usize];
        write!(
            out,
            ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{},\"dur\":{},\"name\":{},\
             \"cat\":\"call\",\"args\":{{\"step\":{},\"task\":{},\"layer\":{},\"shape\":{},\
             \"flops\":{},\"bytes\":{},\"data\":\"{}\",\"off_processor_ns\":{}}}}}",
            call.worker + 1,
            Micros(call.from),
            Micros(call.nanos()),
            text(calls.codelet(call)),
            call.step,
            text(calls.task(call)),
            text(calls.layer(call)),
            text(&cell.shape),
            cell.flops,
            cell.bytes,
            if call.warm { "warm" } else { "cold" },
            call.lost
        )?;
    }
    for event in &trace.events {
        match *event {
            Event::Wait { worker, from, to, parked } => write!(
                out,
                ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{},\"dur\":{},\"name\":\"{}\",\
                 \"cat\":\"wait\"}}",
                worker + 1,
                Micros(from),
                Micros(to - from),
                if parked { "waiting" } else { "spinning" }
            )?,
            Event::Submit { step, program, at } => write!(
                out,
                ",\n{{\"ph\":\"i\",\"pid\":1,\"tid\":1,\"ts\":{},\"s\":\"p\",\"name\":{},\
                 \"cat\":\"submit\",\"args\":{{\"step\":{step}}}}}",
                Micros(at),
                text(&format!("submit {}", header.programs[program as usize].name))
            )?,
            Event::Move { source, target, bytes, from, to } => write!(
                out,
                ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{},\"dur\":{},\"name\":{},\
                 \"cat\":\"move\",\"args\":{{\"bytes\":{bytes}}}}}",
                workers + 1,
                Micros(from),
                Micros(to - from),
                text(&format!(
                    "{} to {}",
                    header.memories[source as usize], header.memories[target as usize]
                ))
            )?,
            Event::Replan { step, placement, from, to, .. } => write!(
                out,
                ",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":{},\"dur\":{},\"name\":{},\
                 \"cat\":\"replan\",\"args\":{{\"step\":{step}}}}}",
                Micros(from),
                Micros(to - from),
                text(&format!("placement {placement}"))
            )?,
            Event::Call { .. } | Event::Preempt { .. } => {}
        }
    }
    for curve in watt_curves(&calls, watts).into_iter().chain(byte_curve(&calls)) {
        let unit = if curve.name.starts_with("watts") { "W" } else { "B/s" };
        for (at, value) in curve.points {
            // The format has no way to end a counter: what is not known is 0.
            write!(
                out,
                ",\n{{\"ph\":\"C\",\"pid\":1,\"tid\":0,\"ts\":{},\"name\":{},\
                 \"args\":{{\"{unit}\":{}}}}}",
                Micros(at),
                text(&curve.name),
                json!(value.unwrap_or(0.0))
            )?;
        }
    }
    writeln!(out, "\n]}}")
}
