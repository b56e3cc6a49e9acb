//! The ranks that follow rank 0.

use super::command::{self, Command};
use super::{InputRead, inputs_of, rows_of};
use crate::error::{Error, Result};
use crate::exec::{Batch, BatchSource, Channel, Session, Share, Slot, StepId, Transport};
use crate::os::threads::spawn;
use crate::plan::PlannedPrograms;
use crate::units::{PersistentId, ProgramId};
use dahl_kernels::StepScalars;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, mpsc};

/// Runs the commands of rank 0 on the session of another rank, until the run ends; `source` reads its
/// samples, if rank 0 does not send them.
///
/// Commands are received on a thread of their own, so that rank 0 never waits for this rank to take
/// one while this rank waits for rank 0's tasks.
///
/// # Errors
/// Where a step failed, here or on another rank; the other ranks then end too.
pub fn follow(
    session: &mut dyn Session,
    part: &PlannedPrograms,
    with: &Arc<dyn Transport>,
    source: &dyn Fn() -> Option<Arc<dyn BatchSource>>,
) -> Result<()> {
    let (received, commands) = mpsc::channel();
    let (part_inputs, name) = (inputs_of(part), format!("dahl-inbox-{}", with.rank()));
    let inbox = with.clone();
    let body = move || {
        loop {
            let command = command::receive(&*inbox);
            let last = !matches!(command, Ok((ref command, _)) if !matches!(command, Command::End));
            if received.send(command).is_err() || last {
                return;
            }
        }
    };
    spawn(&name, body).map_err(|e| Error::thread(&name, e))?;
    let mut loader: Option<SlotLoader> = None;
    let mut last: Option<StepId> = None;
    let ended = || Error::Rank { rank: 0, why: "it sends no more commands".to_owned() };
    loop {
        let next = match (commands.try_recv(), last.take()) {
            (Ok(next), open) => {
                last = open;
                next
            }
            // The tasks of a session's first worker run while it waits: other ranks need them.
            (Err(_), Some(step)) => {
                session.wait(step)?;
                continue;
            }
            (Err(_), None) => commands.recv().map_err(|_| ended())?,
        };
        let (command, payload) = next?;
        match command {
            Command::Load { program, batch, number, live } => {
                let loader = match &mut loader {
                    Some(loader) => loader,
                    none => {
                        let source = source().ok_or_else(|| Error::Rank {
                            rank: with.rank(),
                            why: "it has no datasets".to_owned(),
                        })?;
                        none.insert(SlotLoader::start(source, with.rank())?)
                    }
                };
                loader.keep(&live)?;
                let mut slot = session.slot(ProgramId(program))?;
                let rows = rows_of(&part_inputs[program as usize]);
                *slot.wanted() = Some(Share { rows, number, _alive: Arc::default() });
                loader.begin((number, slot, batch));
            }
            Command::Step { program, lr_bits, counter, loaded } => {
                let program = ProgramId(program);
                let slot = match (&mut loader, loaded) {
                    (Some(loader), Some(number)) => loader.take(number)?,
                    _ => {
                        let mut slot = session.slot(program)?;
                        let mut rest = &payload[..];
                        for InputRead { name, bytes, .. } in &part_inputs[program.index()] {
                            let (rows, later) = rest.split_at(bytes.len());
                            slot.input(name)?.bytes[bytes.clone()].copy_from_slice(rows);
                            rest = later;
                        }
                        slot
                    }
                };
                let scalars = StepScalars { lr: f64::from_bits(lr_bits), counter };
                last = Some(session.step(program, slot, scalars)?);
            }
            Command::Snapshot { program } => {
                session.snapshot(ProgramId(program))?;
            }
            Command::Read { value, bytes } => {
                let mut sent = Ok(());
                session.read(PersistentId(value), &mut |own| {
                    sent = with.send(0, Channel::Control, &[&own.bytes[bytes.clone()]]);
                })?;
                sent?;
            }
            Command::Write { value } => session.write(PersistentId(value), &mut |to| {
                to.bytes.copy_from_slice(&payload);
                Ok(())
            })?,
            Command::Clock => {
                let now = session.counters().activity().elapsed;
                with.send(0, Channel::Control, &[&now.to_le_bytes()])?;
            }
            Command::Trace => {
                command::send_text(&**with, 0, &session.take_trace().to_text(), &[])?;
            }
            Command::End => return Ok(()),
        }
    }
}

/// Fills slots on a thread of its own while steps run, in the order of the announcements.
struct SlotLoader {
    work: mpsc::Sender<(u64, Slot, Batch)>,
    filled: mpsc::Receiver<(u64, Result<Slot>)>,
    /// The batches that are being read, in order.
    begun: VecDeque<u64>,
    /// The batches that were read, and not stepped with.
    ready: BTreeMap<u64, Slot>,
}

impl SlotLoader {
    fn start(source: Arc<dyn BatchSource>, rank: u32) -> Result<Self> {
        let (work, todo) = mpsc::channel::<(u64, Slot, Batch)>();
        let (done, filled) = mpsc::channel();
        let name = format!("dahl-loader-{rank}");
        let body = move || {
            for (number, slot, batch) in todo {
                if done.send((number, source.fill(slot, &batch))).is_err() {
                    return;
                }
            }
        };
        spawn(&name, body).map_err(|e| Error::thread(&name, e))?;
        Ok(Self { work, filled, begun: VecDeque::new(), ready: BTreeMap::new() })
    }

    fn begin(&mut self, work: (u64, Slot, Batch)) {
        self.begun.push_back(work.0);
        // If the thread has ended, the wait for it returns the error.
        drop(self.work.send(work));
    }

    /// Waits for the next batch.
    fn next(&mut self) -> Result<(u64, Result<Slot>)> {
        self.begun.pop_front();
        self.filled.recv().map_err(|_| Error::Task {
            task: "of the loader".to_owned(),
            message: "it ended early".to_owned(),
        })
    }

    /// Returns the slots of batches that no step will use, whether they could be read or not.
    fn keep(&mut self, live: &[u64]) -> Result<()> {
        while self.begun.iter().any(|number| !live.contains(number)) {
            let (number, slot) = self.next()?;
            if live.contains(&number) {
                self.ready.insert(number, slot?);
            }
        }
        self.ready.retain(|number, _| live.contains(number));
        Ok(())
    }

    /// The slot of a batch.
    fn take(&mut self, number: u64) -> Result<Slot> {
        loop {
            if let Some(slot) = self.ready.remove(&number) {
                return Ok(slot);
            }
            if self.begun.is_empty() {
                let expected = "the number of a batch that was announced";
                return Err(Error::config("batch", expected, number));
            }
            let (found, slot) = self.next()?;
            self.ready.insert(found, slot?);
        }
    }
}
