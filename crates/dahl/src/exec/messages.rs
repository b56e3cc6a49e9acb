//! The messages of a plan between ranks, on the memory of a session.
//!
//! # Invariants
//! Those of `arenas.rs`: the plan's edges order a message with all tasks that touch its bytes.
#![expect(unsafe_code, reason = "hands out the bytes that a message consists of")]

use super::arenas::{Arenas, Buffer};
use super::{Channel, Slots, Transport};
use crate::error::Result;
use crate::plan::{Does, PlannedPrograms, Task, TaskGraph};
use crate::units::{ProgramId, SpaceId, TaskId, ValueId};
use dahl_kernels::Region;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Send,
    Receive,
}

/// A message to or from another rank, with the bytes that it consists of.
pub(crate) struct PreparedMessage {
    direction: Direction,
    peer: u32,
    /// By input slot and output slot: contiguous bytes, in order.
    runs: Vec<Vec<(Arc<Buffer>, Range<usize>)>>,
    output_slots: usize,
}

impl PreparedMessage {
    /// Whether it is sent, not received.
    pub(crate) fn is_sent(&self) -> bool {
        self.direction == Direction::Send
    }

    /// Sends or receives it, and waits for that.
    ///
    /// # Errors
    /// Those of the transport.
    ///
    /// # Safety
    /// While it runs, nothing else writes what it sends, nor reads or writes what it receives.
    pub(crate) unsafe fn run(&self, slots: Slots, transport: &dyn Transport) -> Result<()> {
        let runs = &self.runs[slots.input * self.output_slots + slots.output];
        match self.direction {
            Direction::Send => {
                // SAFETY: the caller's promise.
                let part = |(buffer, at): &'_ (Arc<Buffer>, Range<usize>)| unsafe {
                    let bytes = buffer.slice(at.start, at.len());
                    std::slice::from_raw_parts(bytes.as_ptr(), bytes.len())
                };
                let parts: Vec<&[u8]> = runs.iter().map(part).collect();
                transport.send(self.peer, Channel::Data, &parts)
            }
            Direction::Receive => {
                // SAFETY: the caller's promise; the runs of a message do not overlap.
                let part = |(buffer, at): &'_ (Arc<Buffer>, Range<usize>)| unsafe {
                    let bytes = buffer.slice_mut(at.start, at.len());
                    std::slice::from_raw_parts_mut(bytes.as_mut_ptr(), bytes.len())
                };
                let mut parts: Vec<&mut [u8]> = runs.iter().map(part).collect();
                transport.receive(self.peer, Channel::Data, &mut parts)
            }
        }
    }
}

impl Arenas {
    /// The messages of a program to and from other ranks, by task.
    pub(crate) fn messages(
        &self,
        planned: &PlannedPrograms,
        program: ProgramId,
    ) -> BTreeMap<TaskId, PreparedMessage> {
        let tasks = &planned.program(program).1.tasks;
        let output_slots = planned.memory.programs[program.index()].output_slots;
        let combinations = planned.memory.input_slots * output_slots;
        let rank_of = |space| planned.placement.rank_of(space);
        let message = |(t, task): (usize, &Task)| {
            let (direction, of, space, peer) = match &task.does {
                Does::Send(of) => (Direction::Send, of, of.from, rank_of(of.to)),
                Does::Receive(of) => (Direction::Receive, of, of.to, rank_of(of.from)),
                _ => return None,
            };
            let runs = (0..combinations).map(|c| {
                let slots = Slots { input: c / output_slots, output: c % output_slots };
                let mut runs = Vec::new();
                for (root, region) in &of.parts {
                    self.runs(planned, program, (space, *root, region), slots, &mut runs);
                }
                runs
            });
            let runs = runs.collect();
            Some((TaskId::new(t), PreparedMessage { direction, peer, runs, output_slots }))
        };
        tasks.iter().enumerate().filter_map(message).collect()
    }

    /// The contiguous bytes of a box of a value, in order.
    fn runs(
        &self,
        planned: &PlannedPrograms,
        program: ProgramId,
        (space, root, region): (SpaceId, ValueId, &Region),
        slots: Slots,
        runs: &mut Vec<(Arc<Buffer>, Range<usize>)>,
    ) {
        if region.is_empty() {
            return;
        }
        let (graph, TaskGraph { layout, .. }) = planned.program(program);
        let id = layout.find(space, root, region);
        let storage = &layout.storages[id];
        let buffer = self.buffer(program, storage, slots);
        let meta = graph.value(root).meta;
        let (rank, size, strides) = (meta.shape.rank(), meta.dtype.size(), meta.shape.strides());
        let offset = planned.memory.programs[program.index()].offsets[id];
        let skipped = if rank == 0 { 0 } else { storage.region.range(0).start * strides[0] };
        // The axes from `whole` on are contiguous.
        let full = |axis: &usize| region.len(*axis) == meta.shape[*axis];
        let whole = (1..rank).rev().take_while(full).last().unwrap_or(rank).saturating_sub(1);
        let length: usize = (whole..rank).map(|axis| region.len(axis)).product();
        let outer: usize = (0..whole).map(|axis| region.len(axis)).product();
        for run in 0..outer {
            let (mut rest, mut at) = (run, 0);
            for axis in (0..rank).rev() {
                let start = region.range(axis).start;
                let index = if axis < whole {
                    let index = rest % region.len(axis);
                    rest /= region.len(axis);
                    start + index
                } else {
                    start
                };
                at += index * strides[axis];
            }
            let begin = offset + (at - skipped) * size;
            let bytes = begin..begin + length * size;
            assert!(bytes.end <= offset + storage.bytes, "{root} lies in its storage");
            match runs.last_mut() {
                Some((last, before)) if Arc::ptr_eq(last, buffer) && before.end == bytes.start => {
                    before.end = bytes.end;
                }
                _ => runs.push((buffer.clone(), bytes)),
            }
        }
    }
}
