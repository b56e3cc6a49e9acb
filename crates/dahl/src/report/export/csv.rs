//! A row an event, for pandas and others.

use super::super::calls::Calls;
use crate::trace::{Event, Trace};
use std::io::{self, Write};

const COLUMNS: [&str; 17] = [
    "kind",
    "step",
    "program",
    "task",
    "call",
    "codelet",
    "shape",
    "layer",
    "worker",
    "from_ns",
    "to_ns",
    "ns",
    "flops",
    "bytes",
    "data",
    "neighbours",
    "lost_ns",
];

/// The error of whoever is written to: that a reader has gone must be told from others.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Writes calls, waits, submissions, transfers and preemptions, calls first, each by start.
pub fn csv(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let calls = Calls::of(trace);
    let header = &trace.header;
    let mut table = csv::Writer::from_writer(out);
    table.write_record(COLUMNS).map_err(io_error)?;
    for call in &calls.all {
        let cell = &calls.cells[call.cell as usize];
        let written = table.write_record([
            "call",
            &call.step.to_string(),
            &header.programs[call.program as usize].name,
            calls.task(call),
            &call.ordinal.to_string(),
            calls.codelet(call),
            &cell.shape,
            calls.layer(call),
            &call.worker.to_string(),
            &call.from.to_string(),
            &call.to.to_string(),
            &call.nanos().to_string(),
            &cell.flops.to_string(),
            &cell.bytes.to_string(),
            if call.warm { "warm" } else { "cold" },
            &format!("{:.3}", call.neighbours),
            &call.lost.to_string(),
        ]);
        written.map_err(io_error)?;
    }
    for event in &trace.events {
        let (from, to) = (event.start(), event.end());
        let mut row: [String; 17] = Default::default();
        match *event {
            Event::Call { .. } => continue,
            Event::Submit { step, program, .. } => {
                row[0] = "submit".to_owned();
                row[1] = step.to_string();
                row[2].clone_from(&header.programs[program as usize].name);
            }
            Event::Wait { worker, parked, .. } => {
                row[0] = if parked { "waiting" } else { "spinning" }.to_owned();
                row[8] = worker.to_string();
            }
            Event::Preempt { worker, lost, .. } => {
                row[0] = "preempt".to_owned();
                row[8] = worker.to_string();
                row[16] = lost.to_string();
            }
            Event::Move { source, target, bytes, .. } => {
                let name = |m: u32| &header.memories[m as usize];
                row[0] = "move".to_owned();
                row[3] = format!("{} to {}", name(source), name(target));
                row[13] = bytes.to_string();
            }
            Event::Replan { step, placement, .. } => {
                row[0] = "replan".to_owned();
                row[1] = step.to_string();
                row[3] = format!("placement {placement}");
            }
        }
        row[9] = from.to_string();
        row[10] = to.to_string();
        row[11] = (to - from).to_string();
        table.write_record(&row).map_err(io_error)?;
    }
    table.flush()
}
