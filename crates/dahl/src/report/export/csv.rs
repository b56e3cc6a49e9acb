//! A row per event, for pandas and others.

use super::super::calls::Calls;
use crate::trace::{Event, Trace};
use std::borrow::Cow;
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

/// A name from a file as a cell: a spreadsheet takes what begins with one of these characters
/// for a formula, unless an apostrophe stands before it.
fn name(text: &str) -> Cow<'_, str> {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{text}").into(),
        false => text.into(),
    }
}

/// The error of the writer: a closed pipe must be distinguished from other errors.
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
            &name(&header.programs[call.program as usize].name),
            &name(calls.task(call)),
            &call.ordinal.to_string(),
            &name(calls.codelet(call)),
            &name(&cell.shape),
            &name(calls.layer(call)),
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
                row[2] = name(&header.programs[program as usize].name).into_owned();
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
                let [from, to] = [source, target].map(|m| &header.memories[m as usize]);
                row[0] = "move".to_owned();
                row[3] = name(&format!("{from} to {to}")).into_owned();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ProgramHeader;

    #[test]
    fn a_name_that_begins_a_formula_is_text() {
        for formula in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"] {
            let program = ProgramHeader { name: formula.to_owned(), ..ProgramHeader::default() };
            let header = crate::trace::Header { programs: vec![program], ..Default::default() };
            let events = vec![Event::Submit { step: 0, program: 0, at: 7 }];
            let mut text = Vec::new();
            csv(&Trace { header, events }, &mut text).unwrap();
            let mut table = csv::Reader::from_reader(&text[..]);
            let row = table.records().next().unwrap().unwrap();
            assert_eq!((&row[2], &row[9]), (&*format!("'{formula}"), "7"));
        }
        assert_eq!(name("conv2d.gemm"), "conv2d.gemm");
    }
}
